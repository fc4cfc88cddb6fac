/* Holds back what may be a mark, and space, which is dropped if a mark follows. Any thread. */
#include "text/calls/thinking.h"

#include <string.h>

struct fv_thinking_form {
    const char *name, *opens, *closes;
};

static const fv_thinking_form forms[] = {{"think", "<think>", "</think>"},
                                         {"mistral", "[THINK]", "[/THINK]"}};
enum { N_FORM = sizeof forms / sizeof *forms };

/* BEFORE: the opening mark may come. INSIDE: reasoning. BEHIND: space before the answer. */
enum { BEFORE, INSIDE, BEHIND, TEXT };

const fv_thinking_form *fv_thinking_form_named(const char *name) {
    for (int i = 0; i < N_FORM; i++)
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    return NULL;
}

const fv_thinking_form *fv_thinking_form_of_template(const char *program) {
    for (int i = 0; i < N_FORM; i++)
        if (strstr(program, forms[i].opens) || strstr(program, forms[i].closes)) return &forms[i];
    return NULL;
}

const char *fv_thinking_form_name(const fv_thinking_form *f) { return f->name; }

const char *fv_thinking_form_names(void) { return "think, mistral"; }

void fv_thinking_form_marks(const fv_thinking_form *f, const char **opens, const char **closes) {
    *opens = f->opens;
    *closes = f->closes;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static bool ends_with(const char *mark, const char *prompt, const unsigned char *user, size_t n) {
    const size_t all = strlen(mark);
    return n >= all && memcmp(prompt + n - all, mark, all) == 0 && !memchr(user + n - all, 1, all);
}

fv_reasoning fv_thinking_after(const fv_thinking_form *f, const char *prompt,
                               const unsigned char *user, size_t n) {
    while (n > 0 && is_space(prompt[n - 1]) && !user[n - 1]) n--;
    return ends_with(f->opens, prompt, user, n)    ? FV_REASONING_OPEN
           : ends_with(f->closes, prompt, user, n) ? FV_REASONING_OVER
                                                   : FV_REASONING_MAY;
}

fv_thinking fv_thinking_begin(const fv_thinking_form *form, bool open) {
    return (fv_thinking){.form = form, .state = open ? INSIDE : BEFORE};
}

bool fv_thinking_is_inside(const fv_thinking *t) { return t->state == INSIDE; }

static fv_status give(fv_thinking *t, size_t n, fv_thinking_part part, void *user) {
    if (n == 0) return FV_OK;
    t->begun = true;
    FV_TRY(part(user, t->state == INSIDE, t->held, n));
    t->n_held -= n;
    memmove(t->held, t->held + n, t->n_held);
    return FV_OK;
}

/* Goes to a state whose part has not begun, and drops what is held. */
static void enter(fv_thinking *t, unsigned char state) {
    t->state = state;
    t->begun = false;
    t->n_held = 0;
}

/* The run of space that the held bytes begin with. */
static size_t space_in(const fv_thinking *t) {
    size_t n = 0;
    while (n < t->n_held && is_space(t->held[n])) n++;
    return n;
}

/* Decides about what is held, after each byte: it is space, and behind that the beginning of a
 * mark. */
static fv_status decide(fv_thinking *t, fv_thinking_part part, void *user) {
    const char *mark = t->state == BEFORE ? t->form->opens : t->form->closes;
    const size_t all = strlen(mark), space = space_in(t), n = t->n_held - space;
    if (t->state == BEHIND && n == 0) {
        t->n_held = 0;
        return FV_OK;
    }
    if (t->state == BEHIND) t->state = TEXT;
    if (t->state == TEXT) return give(t, t->n_held, part, user);
    if (t->state == INSIDE && !t->begun && n == 0) {
        t->n_held = 0;
        return FV_OK;
    }
    if (memcmp(t->held + space, mark, n < all ? n : all) == 0) {
        if (n == all) enter(t, t->state == BEFORE ? INSIDE : BEHIND);
        if (t->n_held < FV_THINKING_HELD_MAX) return FV_OK;
    }
    if (t->state == BEFORE) {
        t->state = TEXT;
        return give(t, t->n_held, part, user);
    }
    if (n <= 1) return give(t, t->n_held, part, user);
    FV_TRY(give(t, t->n_held - 1, part, user)); /* the last byte may begin something again */
    return decide(t, part, user);
}

fv_status fv_thinking_feed(fv_thinking *t, const char *text, size_t n, fv_thinking_part part,
                           void *user) {
    size_t i = 0;
    for (; i < n && t->state != TEXT; i++) {
        t->held[t->n_held++] = text[i];
        FV_TRY(decide(t, part, user));
    }
    return i < n ? part(user, false, text + i, n - i) : FV_OK;
}

fv_status fv_thinking_end(fv_thinking *t, fv_thinking_part part, void *user) {
    if (t->state == INSIDE) t->n_held -= space_in(t) == t->n_held ? t->n_held : 0;
    return give(t, t->n_held, part, user);
}
