/* Writes values as they come to JSON again, for what the gateway passes on unread: the members of
 * messages and the variables of a template, whose meaning is the template's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "gateway/api/reader.h"

static fv_status put(fv_api_capture *c, const char *text, size_t n) {
    FV_TRY(fv_grow(&c->s, &c->cap, c->n + n, 1));
    memcpy(c->s + c->n, text, n);
    c->n += n;
    return FV_OK;
}

static fv_status put_text(fv_api_capture *c, const char *text) {
    return put(c, text, strlen(text));
}

/* Separates a value or a key from the one before it. */
static fv_status separate(fv_api_capture *c) {
    const bool first = c->first;
    c->first = false;
    return first ? FV_OK : put_text(c, ",");
}

static fv_status put_escaped(fv_api_capture *c, const char *text, size_t n) {
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    size_t from = 0;
    char escape[8];
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] ? strchr(plain, text[i]) : NULL;
        if (!known && (unsigned char)text[i] >= 0x20) continue;
        if (!text[i]) return FV_FAIL(FV_EINVAL, "\\u0000 in a string is not supported");
        FV_TRY(put(c, text + from, i - from));
        if (known)
            snprintf(escape, sizeof escape, "\\%c", letters[known - plain]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)text[i]);
        FV_TRY(put_text(c, escape));
        from = i + 1;
    }
    return put(c, text + from, n - from);
}

/* The next piece of a string or a key. */
static fv_status put_piece(fv_api_capture *c, const fv_json_event *e) {
    if (!c->in_string) {
        FV_TRY(separate(c));
        FV_TRY(put_text(c, "\""));
    }
    c->in_string = e->more;
    FV_TRY(put_escaped(c, e->text ? e->text : "", e->n));
    if (e->more) return FV_OK;
    c->first = e->type == FV_JSON_KEY;
    return put_text(c, e->type == FV_JSON_KEY ? "\":" : "\"");
}

static fv_status put_number(fv_api_capture *c, const fv_json_event *e) {
    char text[48];
    if (e->type == FV_JSON_INTEGER) {
        snprintf(text, sizeof text, "%" PRId64, e->integer);
    } else {
        snprintf(text, sizeof text, "%.17g", e->real);
        if (!strpbrk(text, ".e")) strcat(text, ".0");
    }
    return put_text(c, text);
}

static fv_status put_event(fv_api_capture *c, const fv_json_event *e) {
    const bool ends = e->type == FV_JSON_OBJECT_END || e->type == FV_JSON_ARRAY_END,
               object = e->type == FV_JSON_OBJECT || e->type == FV_JSON_OBJECT_END;
    if (e->type == FV_JSON_STRING || e->type == FV_JSON_KEY) return put_piece(c, e);
    if (ends) {
        c->depth--;
        c->first = false;
        return put_text(c, object ? "}" : "]");
    }
    FV_TRY(separate(c));
    switch (e->type) {
    case FV_JSON_OBJECT:
    case FV_JSON_ARRAY:
        c->depth++;
        c->first = true;
        return put_text(c, object ? "{" : "[");
    case FV_JSON_INTEGER:
    case FV_JSON_REAL: return put_number(c, e);
    case FV_JSON_NULL: return put_text(c, "null");
    default: return put_text(c, e->type == FV_JSON_TRUE ? "true" : "false");
    }
}

fv_status fv_api_capture_event(fv_api_reader *r, const fv_json_event *e) {
    fv_api_capture *c = &r->capture;
    FV_TRY(put_event(c, e));
    if (c->depth || !c->to) return FV_OK;
    FV_TRY(fv_arena_strndup(r->arena, c->s, c->n, c->to));
    c->n = 0;
    c->to = NULL;
    return FV_OK;
}

fv_status fv_api_capture_value(fv_api_reader *r, const fv_json_event *e, char **out) {
    fv_api_capture *c = &r->capture;
    c->n = 0;
    c->first = true;
    c->to = out;
    return fv_api_capture_event(r, e);
}

fv_status fv_api_capture_member(fv_api_reader *r, const char *key, const fv_json_event *e) {
    fv_api_capture *c = &r->capture;
    const fv_json_event name = {.type = FV_JSON_KEY, .text = key, .n = strlen(key)};
    c->first = c->n == 0;
    if (c->first) FV_TRY(put_text(c, "{"));
    FV_TRY(put_event(c, &name));
    return fv_api_capture_event(r, e);
}

fv_status fv_api_capture_end(fv_api_reader *r, char **out) {
    fv_api_capture *c = &r->capture;
    if (c->n == 0) return FV_OK;
    FV_TRY(put_text(c, "}"));
    FV_TRY(fv_arena_strndup(r->arena, c->s, c->n, out));
    c->n = 0;
    return FV_OK;
}
