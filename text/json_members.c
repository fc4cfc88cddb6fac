/* Finds where each member's name and value end, by quotes and brackets alone; Jansson parses each of
 * them, and says what is wrong in it. Any thread. */
#include "text/json_members.h"

#include <string.h>

static fv_status fail(const fv_json_members *m, size_t at, const char *what) {
    return FV_FAIL(FV_EDATA, "%s: not valid JSON at byte %zu: %s", m->where, at, what);
}

static void skip_space(fv_json_members *m) {
    while (m->at < m->n && strchr(" \t\r\n", m->text[m->at]) && m->text[m->at]) m->at++;
}

static bool is_at(const fv_json_members *m, char c) { return m->at < m->n && m->text[m->at] == c; }

static fv_status need(fv_json_members *m, char c) {
    char what[] = "'x' is expected";
    what[1] = c;
    if (!is_at(m, c)) return fail(m, m->at, what);
    m->at++;
    return FV_OK;
}

/* Returns the end of the string that begins at `at`; n if it does not end. */
static size_t end_of_string(const fv_json_members *m, size_t at) {
    for (at++; at < m->n && m->text[at] != '"'; at++)
        if (m->text[at] == '\\') at++;
    return at < m->n ? at + 1 : m->n;
}

/* Likewise of any value. */
static size_t end_of_value(const fv_json_members *m, size_t at) {
    for (size_t depth = 0; at < m->n;) {
        char c = m->text[at];
        if (depth == 0 && (c == ',' || c == '}')) break;
        if (c == '"') {
            at = end_of_string(m, at);
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--; /* Jansson sees whether they are pairs */
        at++;
    }
    return at;
}

static fv_status parse(fv_json_members *m, size_t end, json_t **out) {
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
    const char *from = m->text + m->at;
    json_error_t err;
    json_decref(*out);
    *out = json_loadb(from, end - m->at, flags, &err);
    if (!*out && json_error_code(&err) == json_error_numeric_overflow)
        *out = json_loadb(from, end - m->at, flags | JSON_DECODE_INT_AS_REAL, &err);
    if (!*out) return fail(m, m->at + (size_t)(err.position > 0 ? err.position : 0), err.text);
    m->at = end;
    return FV_OK;
}

static fv_status parse_name(fv_json_members *m) {
    if (!is_at(m, '"')) return fail(m, m->at, "a name is expected");
    size_t at = m->at;
    FV_TRY(parse(m, end_of_string(m, m->at), &m->name));
    if (memchr(json_string_value(m->name), 0, json_string_length(m->name)))
        return fail(m, at, "a name with U+0000");
    return FV_OK;
}

static fv_status finish(fv_json_members *m) {
    skip_space(m);
    return m->at == m->n ? FV_OK : fail(m, m->at, "the end is expected");
}

fv_status fv_json_members_next(fv_json_members *m, bool *more) {
    bool first = !m->begun;
    *more = false;
    skip_space(m);
    if (first && m->at < m->n && strchr("[\"-0123456789tfn", m->text[m->at]))
        return FV_FAIL(FV_EDATA, "%s: a JSON object is expected", m->where);
    if (first) FV_TRY(need(m, '{'));
    m->begun = true;
    skip_space(m);
    if (is_at(m, '}')) {
        m->at++;
        return finish(m);
    }
    if (!first) FV_TRY(need(m, ','));
    skip_space(m);
    FV_TRY(parse_name(m));
    skip_space(m);
    FV_TRY(need(m, ':'));
    skip_space(m);
    FV_TRY(parse(m, end_of_value(m, m->at), &m->value));
    *more = true;
    return FV_OK;
}

void fv_json_members_end(fv_json_members *m) {
    json_decref(m->name);
    json_decref(m->value);
    m->name = m->value = NULL;
}
