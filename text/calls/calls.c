/* The machine behind all forms. `held` is what has come and is not decided:
 *
 *   TEXT   the beginning of what may be a mark, and the space before it
 *   CALL   a mark and what follows it, until the form's scan finds the end
 *   AFTER  the beginning of what may follow a call and is dropped
 *
 * Held text that turns out to be no call is given out as a whole and not searched for marks again:
 * so no text is read twice. Any thread. */
#include "text/calls/calls.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "text/calls/internal.h"

enum { SPACE_MAX = 256 }; /* bytes of held space; more is text */

typedef enum state { TEXT, CALL, AFTER } state;

struct fv_calls_parser {
    const fv_calls_form *form;
    const json_t *tools; /* borrowed; NULL: all names */
    fv_calls_events events;
    void *user;
    state state;
    bool begun; /* a character of text or a call has come */
    int32_t n_call;
    char *held; /* [n_held] owned */
    size_t n_held, cap_held;
    size_t n_space; /* TEXT, CALL: held bytes of space before the mark */
    size_t n_mark;  /* CALL: and those of the mark, if it is no part of the call */
    fv_scan scan;
};

bool fv_calls_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- tools ------------------------------------------------------------------------------- */

/* The function of the tool of this name; NULL: there is none. */
static const json_t *find_tool(const fv_calls_parser *p, const char *name) {
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *f = json_object_get(json_array_get(p->tools, i), "function");
        const char *is = json_string_value(json_object_get(f, "name"));
        if (is && strcmp(is, name) == 0) return f;
    }
    return NULL;
}

const char *fv_calls_only_tool(const fv_calls_parser *p) {
    const json_t *f = json_object_get(json_array_get(p->tools, 0), "function");
    return json_array_size(p->tools) == 1 ? json_string_value(json_object_get(f, "name")) : NULL;
}

bool fv_calls_takes(const fv_calls_parser *p, const char *name) {
    return p->n_call < FV_CALLS_MAX && *name && (!p->tools || find_tool(p, name));
}

const json_t *fv_calls_parameters(const fv_calls_parser *p, const char *tool) {
    return json_object_get(find_tool(p, tool), "parameters");
}

bool fv_calls_has_room(const fv_calls_parser *p, size_t n) {
    return n <= (size_t)(FV_CALLS_MAX - p->n_call);
}

fv_status fv_calls_report(fv_calls_parser *p, const char *name, const json_t *arguments) {
    char *text = json_dumps(arguments, JSON_COMPACT);
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for a tool call");
    p->n_call++;
    fv_status st = p->events.call(p->user, name, text);
    free(text);
    return st;
}

/* ---- what is held ------------------------------------------------------------------------ */

static fv_status hold(fv_calls_parser *p, const char *text, size_t n) {
    FV_TRY(fv_grow(&p->held, &p->cap_held, p->n_held + n, 1));
    memcpy(p->held + p->n_held, text, n);
    p->n_held += n;
    return FV_OK;
}

static void drop(fv_calls_parser *p, size_t n) {
    p->n_held -= n;
    memmove(p->held, p->held + n, p->n_held);
}

/* Gives out the first n bytes that are held. */
static fv_status give(fv_calls_parser *p, size_t n) {
    if (n == 0) return FV_OK;
    p->begun = true;
    FV_TRY(p->events.text(p->user, p->held, n));
    drop(p, n);
    return FV_OK;
}

/* Tells whether s[n] begins with `mark`; *part: it may, once more has come. */
static bool begins(const char *s, size_t n, const char *mark, bool *part) {
    const size_t all = strlen(mark);
    if (n >= all) return memcmp(s, mark, all) == 0;
    if (memcmp(s, mark, n) == 0) *part = true;
    return false;
}

/* The first of `marks` that s[n] begins with. */
static const char *find(const char *s, size_t n, const char *const *marks, bool *part) {
    for (int32_t i = 0; i < FV_CALLS_MARKS && marks[i]; i++)
        if (begins(s, n, marks[i], part)) return marks[i];
    return NULL;
}

/* ---- states ------------------------------------------------------------------------------ */

static void begin_call(fv_calls_parser *p, size_t n_space, size_t n_mark) {
    p->state = CALL;
    p->n_space = n_space;
    p->n_mark = n_mark;
    p->scan = (fv_scan){0};
}

/* Goes through held text up to the first mark, or to what may become one. Space before a mark is
 * held too, as a call may follow. */
static fv_status search(fv_calls_parser *p, bool *again) {
    size_t at = 0, space = 0; /* space: where the run of space before `at` begins */
    for (; at < p->n_held; at++) {
        bool part = false;
        const char *s = p->held + at, *mark = find(s, p->n_held - at, p->form->marks, &part);
        const bool brace = p->form->at_start && *s == '{' && space == 0 && !p->begun;
        if (mark || brace) {
            const bool keeps = brace || (p->form->kept && strcmp(mark, p->form->kept) == 0);
            const size_t n_space = at - space;
            FV_TRY(give(p, space));
            begin_call(p, n_space, keeps ? 0 : strlen(mark));
            *again = true;
            return FV_OK;
        }
        if (part) break;
        if (!fv_calls_is_space(*s)) space = at + 1;
        if (at + 1 - space >= SPACE_MAX) space = at + 1;
    }
    return give(p, space);
}

/* A call is over, or was none: back to text. */
static void end_call(fv_calls_parser *p, state next) {
    p->state = next;
    p->n_space = p->n_mark = 0;
}

static fv_status collect(fv_calls_parser *p, bool *again) {
    const size_t at = p->n_space + p->n_mark;
    const char *s = p->held + at;
    const size_t n = p->n_held - at;
    bool is = false;
    fv_scan_end end = p->form->scan(&p->scan, s, n);
    if (end == FV_SCAN_MORE && n <= FV_CALLS_HELD_MAX) return FV_OK;
    *again = true;
    if (end == FV_SCAN_DONE) FV_TRY(p->form->read(p, &p->scan, s, p->scan.at, &is));
    if (is) {
        p->begun = true;
        drop(p, at + p->scan.at);
        end_call(p, AFTER);
        return FV_OK;
    }
    const size_t all = at + (end == FV_SCAN_MORE ? n : p->scan.at);
    end_call(p, TEXT);
    return give(p, all);
}

/* Drops space and what the form writes behind a call. */
static fv_status skip(fv_calls_parser *p, bool *again) {
    size_t at = 0;
    bool part = false;
    while (at < p->n_held && fv_calls_is_space(p->held[at])) at++;
    drop(p, at);
    if (p->n_held == 0) return FV_OK;
    const char *after = find(p->held, p->n_held, p->form->after, &part);
    if (!after && part) return FV_OK;
    *again = true;
    if (after)
        drop(p, strlen(after));
    else if (p->form->at_start && p->held[0] == '{')
        begin_call(p, 0, 0);
    else
        end_call(p, TEXT);
    return FV_OK;
}

static fv_status run(fv_calls_parser *p) {
    for (bool again = true; again && p->n_held > 0;) {
        again = false;
        if (p->state == TEXT)
            FV_TRY(search(p, &again));
        else if (p->state == CALL)
            FV_TRY(collect(p, &again));
        else
            FV_TRY(skip(p, &again));
    }
    return FV_OK;
}

/* ---- the interface ----------------------------------------------------------------------- */

fv_status fv_calls_parser_open(const fv_calls_form *form, const json_t *tools,
                               const fv_calls_events *events, void *user, fv_calls_parser **out) {
    fv_calls_parser *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for tool calls");
    p->form = form;
    p->tools = tools;
    p->events = *events;
    p->user = user;
    *out = p;
    return FV_OK;
}

void fv_calls_parser_close(fv_calls_parser *p) {
    if (!p) return;
    free(p->held);
    free(p);
}

fv_status fv_calls_parser_feed(fv_calls_parser *p, const char *text, size_t n) {
    FV_TRY(hold(p, text, n));
    return run(p);
}

/* Held bytes are text, but for space after a call. */
fv_status fv_calls_parser_end(fv_calls_parser *p) {
    size_t n = p->n_held;
    if (p->state == TEXT && p->n_call > 0)
        while (n > 0 && fv_calls_is_space(p->held[n - 1])) n--;
    FV_TRY(give(p, n));
    p->n_held = 0;
    end_call(p, TEXT);
    return FV_OK;
}
