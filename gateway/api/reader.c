/* Turns JSON events into calls of shapes: tracks paths and levels, and joins the pieces of
 * strings. */
#include "gateway/api/reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

enum { PIECE_MAX = 64 << 10 }; /* json_max is checked after each piece */

/* ---- paths ------------------------------------------------------------------------------- */

void fv_api_name(fv_api_reader *r, const char *key) {
    const size_t at = strlen(r->param);
    snprintf(r->param + at, sizeof r->param - at, "%s%s", at ? "." : "", key);
}

static void number(fv_api_reader *r, size_t i) {
    const size_t at = strlen(r->param);
    snprintf(r->param + at, sizeof r->param - at, "[%zu]", i);
}

static fv_api_level *top(fv_api_reader *r) { return &r->levels[r->n_level - 1]; }

const fv_api_level *fv_api_top(const fv_api_reader *r) { return &r->levels[r->n_level - 1]; }

void fv_api_unnumber(fv_api_reader *r) { r->param[top(r)->path] = '\0'; }

static void name_member(fv_api_reader *r) {
    if (r->n_key > 0)
        fv_api_name(r, r->key);
    else if (!top(r)->shape->unnumbered)
        number(r, top(r)->n);
}

/* ---- values ------------------------------------------------------------------------------ */

/* Prints a value as an error shows it. */
static const char *show(const fv_json_event *e, char out[48]) {
    switch (e->type) {
    case FV_JSON_INTEGER: snprintf(out, 48, "%" PRId64, e->integer); break;
    case FV_JSON_REAL: snprintf(out, 48, "%.17g", e->real); break;
    case FV_JSON_STRING:
        snprintf(out, 48, "the string \"%.*s\"", e->n < 24 ? (int)e->n : 24, e->text);
        break;
    case FV_JSON_OBJECT: return "an object";
    case FV_JSON_ARRAY: return "a list";
    case FV_JSON_NULL: return "null";
    default: return e->type == FV_JSON_TRUE ? "true" : "false";
    }
    return out;
}

fv_status fv_api_text(fv_api_reader *r, const fv_json_event *e, char **out) {
    char value[48];
    if (e->type != FV_JSON_STRING)
        return FV_FAIL(FV_EINVAL, "it must be a string, not %s", show(e, value));
    return fv_arena_strndup(r->arena, e->text, e->n, out);
}

fv_status fv_api_number(const fv_json_event *e, double *out) {
    char value[48];
    const bool whole = e->type == FV_JSON_INTEGER;
    if (!whole && e->type != FV_JSON_REAL)
        return FV_FAIL(FV_EINVAL, "it must be a number, not %s", show(e, value));
    const double x = whole ? (double)e->integer : e->real;
    if (!isfinite((float)x))
        return FV_FAIL(FV_EINVAL, "the number is out of range: at most 3.4e38 in size");
    *out = x;
    return FV_OK;
}

/* JSON has one kind of number: 16.0 is an integer, and so is 1e3. Reals beyond 2^63 fit in no
 * int64_t. */
fv_status fv_api_integer(const fv_json_event *e, int64_t min, int64_t max, int64_t *out) {
    char value[48];
    const bool whole =
        e->type == FV_JSON_REAL && fabs(e->real) < 0x1p63 && e->real == trunc(e->real);
    const int64_t x = e->type == FV_JSON_INTEGER ? e->integer : whole ? (int64_t)e->real : 0;
    if ((e->type != FV_JSON_INTEGER && !whole) || x < min || x > max)
        return FV_FAIL(FV_EINVAL, "it must be an integer, %" PRId64 " to %" PRId64 ", not %s", min,
                       max, show(e, value));
    *out = x;
    return FV_OK;
}

fv_status fv_api_bool(const fv_json_event *e, bool *out) {
    char value[48];
    if (e->type != FV_JSON_TRUE && e->type != FV_JSON_FALSE)
        return FV_FAIL(FV_EINVAL, "it must be true or false, not %s", show(e, value));
    *out = e->type == FV_JSON_TRUE;
    return FV_OK;
}

fv_status fv_api_room(fv_arena *arena, void *list, size_t n, size_t size) {
    enum { FIRST = 8 };
    void *old, *new;
    if (n > 0 && (n < FIRST || (n & (n - 1)) != 0)) return FV_OK; /* room is a power of two */
    FV_TRY(fv_arena_array(arena, n ? 2 * n : FIRST, size, &new));
    memcpy(&old, list, sizeof old);
    if (n) memcpy(new, old, n * size);
    memcpy(list, &new, sizeof new);
    return FV_OK;
}

fv_status fv_api_keep(fv_api_reader *r, const char *text, size_t n, size_t max) {
    if (n > max || r->n_text > max - n)
        return FV_FAIL(FV_EINVAL, "the string is longer than %zu bytes", max);
    FV_TRY(fv_grow(&r->text, &r->cap_text, r->n_text + n + 1, 1));
    memcpy(r->text + r->n_text, text, n);
    r->n_text += n;
    r->text[r->n_text] = '\0';
    return FV_OK;
}

/* ---- levels ------------------------------------------------------------------------------ */

fv_status fv_api_enter(fv_api_reader *r, const fv_api_shape *shape) {
    r->levels[r->n_level++] = (fv_api_level){.shape = shape, .path = strlen(r->param)};
    r->n_key = 0;
    return FV_OK;
}

fv_status fv_api_skip(fv_api_reader *r, const fv_json_event *e) {
    r->n_skipped = e->type == FV_JSON_OBJECT || e->type == FV_JSON_ARRAY;
    return FV_OK;
}

fv_status fv_api_ignore(fv_api_reader *r, const fv_json_event *e) {
    fv_api_request *q = r->out;
    char *path;
    if (r->opt.strict) return FV_FAIL(FV_EINVAL, "this field is not supported (--strict-fields)");
    if (q->n_ignored < FV_API_IGNORED_MAX) {
        FV_TRY(fv_arena_strndup(r->arena, r->param, strlen(r->param), &path));
        q->ignored[q->n_ignored++] = path;
    }
    return fv_api_skip(r, e);
}

static void end_value(fv_api_reader *r) {
    r->param[top(r)->path] = '\0';
    r->n_key = 0;
    top(r)->n++;
}

static fv_status on_value(fv_api_reader *r, const fv_json_event *e) {
    const int32_t n_level = r->n_level;
    if (n_level == 0) {
        if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "the body must be a JSON object");
        return fv_api_enter(r, &fv_api_body);
    }
    name_member(r);
    FV_TRY(top(r)->shape->member(r, r->n_key ? r->key : "", e));
    if (r->n_level == n_level && r->n_skipped == 0 && r->capture.depth == 0) end_value(r);
    return FV_OK;
}

static fv_status on_captured(fv_api_reader *r, const fv_json_event *e) {
    FV_TRY(fv_api_capture_event(r, e));
    if (r->capture.depth == 0) end_value(r);
    return FV_OK;
}

static fv_status on_end(fv_api_reader *r) {
    if (top(r)->shape->end) FV_TRY(top(r)->shape->end(r));
    if (--r->n_level > 0) end_value(r);
    return FV_OK;
}

static fv_status on_skipped(fv_api_reader *r, const fv_json_event *e) {
    if (e->type == FV_JSON_OBJECT || e->type == FV_JSON_ARRAY) r->n_skipped++;
    if (e->type == FV_JSON_OBJECT_END || e->type == FV_JSON_ARRAY_END) r->n_skipped--;
    if (r->n_skipped == 0) end_value(r);
    return FV_OK;
}

/* ---- strings ----------------------------------------------------------------------------- */

/* Texts end with a NUL here, so they cannot have one within. Only an escape can write it, and it
 * comes in a piece of its own. */
static fv_status check_nul(const fv_json_event *e, const char *where) {
    if (e->n != 1 || e->text[0] != '\0') return FV_OK;
    return FV_FAIL(FV_EINVAL, "\\u0000 in %s is not supported", where);
}

/* An empty key becomes '"', a name that no field has: n_key 0 would mean an array. */
static fv_status on_key(fv_api_reader *r, const fv_json_event *e) {
    FV_TRY(check_nul(e, "a key"));
    if (!r->in_string) r->n_key = 0;
    r->in_string = e->more;
    const size_t room = FV_API_KEY_MAX - r->n_key, n = e->n < room ? e->n : room;
    if (n) memcpy(r->key + r->n_key, e->text, n);
    r->n_key += n;
    if (r->n_key == 0 && !e->more) r->key[r->n_key++] = '"';
    r->key[r->n_key] = '\0';
    return FV_OK;
}

static bool comes_in_pieces(fv_api_reader *r) {
    if (r->n_level == 0) return false;
    const char *key = top(r)->shape->in_pieces;
    return key && strcmp(key, r->key) == 0;
}

static fv_status on_piece(fv_api_reader *r, const fv_json_event *e) {
    const bool first = !r->in_string;
    r->in_string = e->more;
    if (first) name_member(r);
    FV_TRY(top(r)->shape->piece(r, e, first));
    if (!e->more) end_value(r);
    return FV_OK;
}

static fv_status on_string(fv_api_reader *r, const fv_json_event *e) {
    const fv_status st = check_nul(e, "a string");
    if (!r->in_string) r->n_text = 0;
    if (st != FV_OK && !(comes_in_pieces(r) && r->in_string)) name_member(r);
    if (st != FV_OK) return st;
    if (comes_in_pieces(r)) return on_piece(r, e);
    r->in_string = e->more;
    FV_TRY(fv_api_keep(r, e->text, e->n, SIZE_MAX)); /* json_max bounds it */
    if (e->more) return FV_OK;
    return on_value(r, &(fv_json_event){.type = FV_JSON_STRING, .text = r->text, .n = r->n_text});
}

/* ---- reading a body ---------------------------------------------------------------------- */

static fv_status on_event(void *user, const fv_json_event *e) {
    fv_api_reader *r = user;
    if (r->n_skipped) return on_skipped(r, e);
    if (r->capture.depth) return on_captured(r, e);
    switch (e->type) {
    case FV_JSON_KEY: return on_key(r, e);
    case FV_JSON_STRING: return on_string(r, e);
    case FV_JSON_OBJECT_END:
    case FV_JSON_ARRAY_END: return on_end(r);
    default: return on_value(r, e);
    }
}

fv_status fv_api_reader_open(const fv_api_reader_options *opt, fv_arena *arena, fv_api_request *out,
                             fv_api_reader **reader) {
    fv_api_reader *r = calloc(1, sizeof *r);
    *out = (fv_api_request){.kind = opt->kind, .n = 1};
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    r->opt = *opt;
    r->arena = arena;
    r->out = out;
    fv_status st = fv_json_init(&r->json, on_event, r);
    if (st == FV_OK) st = fv_api_body_begin(r);
    if (st == FV_OK)
        *reader = r;
    else
        fv_api_reader_close(r);
    return st;
}

void fv_api_reader_close(fv_api_reader *r) {
    if (!r) return;
    fv_json_fini(&r->json);
    fv_data_url_drop(&r->url.data);
    fv_api_item_fini(&r->item);
    free(r->capture.s);
    free(r->text);
    free(r);
}

/* A syntax error belongs to no field: clears the path. */
static fv_status of_json(fv_api_reader *r, fv_status st) {
    if (st != FV_EDATA) return st;
    r->param[0] = '\0';
    fv_fail_prefix(st, "the body is not JSON");
    return FV_EINVAL;
}

fv_status fv_api_reader_feed(fv_api_reader *r, const char *bytes, size_t n) {
    while (n > 0) {
        const size_t piece = n < PIECE_MAX ? n : PIECE_MAX;
        r->n_fed += piece;
        FV_TRY(of_json(r, fv_json_feed(&r->json, bytes, piece)));
        if (r->n_fed - r->n_data > r->opt.json_max) {
            r->param[0] = '\0';
            return FV_FAIL(FV_ENOMEM,
                           "the body has more than %zu bytes of JSON beside the data: URLs of its "
                           "images and videos",
                           r->opt.json_max);
        }
        bytes += piece;
        n -= piece;
    }
    return FV_OK;
}

fv_status fv_api_reader_end(fv_api_reader *r) {
    FV_TRY(of_json(r, fv_json_end(&r->json)));
    return fv_api_body_end(r);
}

const char *fv_api_reader_param(const fv_api_reader *r) { return r->param; }
