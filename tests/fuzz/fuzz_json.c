/* Any bytes as JSON, in pieces whose sizes follow from the bytes: the result must be jansson's for
 * the whole text. jansson refuses numbers beyond its types, so texts with long ones are passed
 * over. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

/* Builds a tree from events: the open values, from the outside in, and the current text. */
typedef struct builder {
    json_t *open[FV_JSON_DEPTH_MAX], *root;
    int32_t depth;
    char *keys[FV_JSON_DEPTH_MAX], text[1 << 20];
    size_t n_text;
} builder;

static void put(builder *b, json_t *v) {
    expect(v != NULL);
    if (b->depth == 0) {
        b->root = v;
    } else if (json_is_array(b->open[b->depth - 1])) {
        json_array_append_new(b->open[b->depth - 1], v);
    } else {
        json_object_set_new(b->open[b->depth - 1], b->keys[b->depth - 1], v);
        free(b->keys[b->depth - 1]);
        b->keys[b->depth - 1] = NULL;
    }
    if (json_is_array(v) || json_is_object(v)) b->open[b->depth++] = v;
}

static fv_status on_event(void *user, const fv_json_event *e) {
    builder *b = user;
    switch (e->type) {
    case FV_JSON_NULL: put(b, json_null()); break;
    case FV_JSON_FALSE: put(b, json_false()); break;
    case FV_JSON_TRUE: put(b, json_true()); break;
    case FV_JSON_INTEGER: put(b, json_integer(e->integer)); break;
    case FV_JSON_REAL: put(b, json_real(e->real)); break;
    case FV_JSON_OBJECT: put(b, json_object()); break;
    case FV_JSON_ARRAY: put(b, json_array()); break;
    case FV_JSON_OBJECT_END:
    case FV_JSON_ARRAY_END:
        b->depth--; /* the macros below look at their argument twice */
        expect(e->type == FV_JSON_ARRAY_END ? json_is_array(b->open[b->depth])
                                            : json_is_object(b->open[b->depth]));
        break;
    case FV_JSON_KEY:
    case FV_JSON_STRING:
        expect(b->n_text + e->n < sizeof b->text);
        memcpy(b->text + b->n_text, e->text, e->n);
        b->n_text += e->n;
        if (e->more) break;
        if (e->type == FV_JSON_KEY)
            b->keys[b->depth - 1] = strndup(b->text, b->n_text);
        else
            put(b, json_stringn(b->text, b->n_text));
        b->n_text = 0;
        break;
    }
    return FV_OK;
}

/* A number of up to 18 digits fits in 64 bits, and one with an exponent of up to two in a double. */
static bool has_long_number(const uint8_t *data, size_t n) {
    size_t digits = 0;
    for (size_t i = 0; i < n; i++) {
        const bool in_exponent = digits > 0 && memchr("eE+-", data[i], 4);
        digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : in_exponent ? 16 : 0;
        if (digits > 18) return true;
    }
    return false;
}

static fv_status read_all(fv_json *j, const uint8_t *data, size_t n) {
    size_t at = 0, size = 1;
    while (at < n) {
        size = 1 + (size * 7 + data[at]) % (data[0] % 2 ? 3 : 40);
        if (size > n - at) size = n - at;
        char *piece = malloc(size); /* so that reading past it is detected */
        memcpy(piece, data + at, size);
        fv_status st = fv_json_feed(j, piece, size);
        free(piece);
        if (st != FV_OK) return st;
        at += size;
    }
    return fv_json_end(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static builder b;
    static fv_json j;
    json_error_t error;
    if (n >= sizeof b.text || has_long_number(data, n)) return 0;
    b.depth = 0;
    b.root = NULL;
    b.n_text = 0;
    expect(fv_json_init(&j, on_event, &b) == FV_OK);
    fv_status st = read_all(&j, data, n);
    fv_json_fini(&j);
    json_t *wanted =
        json_loadb((const char *)data, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    /* A byte 0 is never valid; jansson overlooks it after a number. */
    expect((st == FV_OK) == (wanted != NULL && !memchr(data, 0, n)));
    if (st == FV_OK)
        expect(b.depth == 0 && json_equal(b.root, wanted));
    else
        expect((st == FV_EDATA || st == FV_EINVAL) && *fv_last_error());
    for (int32_t i = 0; i < b.depth; i++) {
        free(b.keys[i]);
        b.keys[i] = NULL;
    }
    json_decref(b.root);
    json_decref(wanted);
    return 0;
}
