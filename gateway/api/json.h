#ifndef FOVEA_GATEWAY_API_JSON_H
#define FOVEA_GATEWAY_API_JSON_H

/* Streaming JSON: pieces of a text -> events. Neither the text nor a tree of it is ever in memory.
 *
 *     {"a": [1, "xy"]}  ->  OBJECT, KEY a, ARRAY, INTEGER 1, STRING xy, ARRAY_END, OBJECT_END
 *
 * The text is one object or array as RFC 8259 defines it, in valid UTF-8, without the same key
 * twice in an object; it accepts what jansson accepts with JSON_REJECT_DUPLICATES and
 * JSON_ALLOW_NUL (tests/fuzz/fuzz_json.c), except for the limits of keys and numbers below, and
 * numbers of any size.
 * Time is linear in the text; memory is eight bytes for each key of the objects that are open, and
 * a constant. One thread at a time. */
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

enum {
    FV_JSON_DEPTH_MAX = 2048,   /* nested values */
    FV_JSON_KEYS_MAX = 1 << 16, /* keys of the objects that are open at a time */
    FV_JSON_NUMBER_MAX = 1024,  /* characters of a number */
};

typedef enum fv_json_type {
    FV_JSON_NULL,
    FV_JSON_FALSE,
    FV_JSON_TRUE,
    FV_JSON_INTEGER,
    FV_JSON_REAL,
    FV_JSON_STRING,
    FV_JSON_OBJECT,
    FV_JSON_ARRAY,
    FV_JSON_KEY,
    FV_JSON_OBJECT_END,
    FV_JSON_ARRAY_END,
} fv_json_type;

typedef struct fv_json_event {
    fv_json_type type;
    /* The next n bytes of a KEY or STRING, unescaped, not terminated, borrowed for the call. A
     * piece may end inside a character. `more`: another piece follows; the last one may be
     * empty. U+0000, which only an escape can write, is a piece of its own. */
    const char *text;
    size_t n;
    bool more;
    int64_t integer;
    double real; /* of a REAL, and of an integer beyond 64 bits, which is a REAL; may be infinite */
} fv_json_event;

typedef struct fv_json {
    /* private */
    fv_status (*on_event)(void *user, const fv_json_event *e);
    void *user;
    uint8_t state, number_state, depth_is_object[FV_JSON_DEPTH_MAX / 8];
    bool is_key;
    int32_t depth;
    /* in a string: what may follow in the current character, and the current escape */
    uint8_t n_follow, follow_min, follow_max, n_hex;
    uint32_t hex, high;
    /* in a literal or a number */
    const char *literal;
    int32_t n_number;
    char number[FV_JSON_NUMBER_MAX + 1];
    /* hashes of the open objects' keys in order, a table of them, and where each object's begin */
    uint64_t seed, hash, *keys, *table;
    size_t n_key, cap_key, n_slot;
    uint32_t first_key[FV_JSON_DEPTH_MAX];
    /* the position */
    uint64_t n_read, line_at;
    uint32_t line;
} fv_json;

/* Begins a text; fv_json_fini the reader. If on_event fails, fv_json_feed returns its status. */
fv_status fv_json_init(fv_json *j, fv_status (*on_event)(void *user, const fv_json_event *e),
                       void *user);
void fv_json_fini(fv_json *j); /* {0} is fine */

/* Reads the next n bytes. FV_EDATA: not JSON, FV_EINVAL: beyond one of the limits above;
 * fv_last_error says where and why. FV_ENOMEM, or a failure of on_event. Nothing may be fed after a
 * failure. */
fv_status fv_json_feed(fv_json *j, const char *text, size_t n);

/* Ends the text. FV_EDATA: it is incomplete. */
fv_status fv_json_end(fv_json *j);

#endif
