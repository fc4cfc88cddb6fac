#ifndef FOVEA_GATEWAY_API_JSON_H
#define FOVEA_GATEWAY_API_JSON_H

/* JSON as it arrives: pieces of a text -> events, so that neither the text nor a tree of it is ever in memory.
 *
 *     {"a": [1, "xy"]}  ->  OBJECT, KEY a, ARRAY, INTEGER 1, STRING xy, ARRAY_END, OBJECT_END
 *
 * The text is one object or array as RFC 8259 defines it, in valid UTF-8, without U+0000 in a string and without
 * the same key twice in an object; what jansson refuses with JSON_REJECT_DUPLICATES is refused here, and nothing
 * else (tests/fuzz/fuzz_json.c), except for the two limits below that jansson does not have. Time is linear in the
 * text; memory is eight bytes for each key of the objects that are open, and a constant. One thread at a time. */
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

enum {
    FV_JSON_DEPTH_MAX = 2048,   /* values inside of each other */
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
    /* Of a KEY or STRING: the next n bytes of it, without escapes, not terminated, borrowed for the call. A piece may
     * end inside of a character. `more`: another piece follows; the last one may be empty. */
    const char *text;
    size_t n;
    bool more;
    int64_t integer;
    double real;
} fv_json_event;

typedef struct fv_json {
    /* private */
    fv_status (*on_event)(void *user, const fv_json_event *e);
    void *user;
    uint8_t state, number_state, depth_is_object[FV_JSON_DEPTH_MAX / 8];
    bool is_key;
    int32_t depth;
    /* a string: what its next byte may be where a character has begun, and an escape */
    uint8_t n_follow, follow_min, follow_max, n_hex;
    uint32_t hex, high;
    /* a literal or a number */
    const char *literal;
    int32_t n_number;
    char number[FV_JSON_NUMBER_MAX + 1];
    /* the keys of the open objects: their hashes in order, where each object's begin, and a table of them */
    uint64_t seed, hash, *keys, *table;
    size_t n_key, cap_key, n_slot;
    uint32_t first_key[FV_JSON_DEPTH_MAX];
    /* where it is */
    uint64_t n_read, line_at;
    uint32_t line;
} fv_json;

/* What on_event returns other than FV_OK ends the reading with it. fv_json_fini the reader. */
fv_status fv_json_init(fv_json *j, fv_status (*on_event)(void *user, const fv_json_event *e),
                       void *user);
void fv_json_fini(fv_json *j); /* {0} is fine */

/* The next n bytes. FV_EDATA: the text is not JSON, and the sentence says where and why; FV_ENOMEM; or what on_event
 * said. After a failure nothing else may be fed. */
fv_status fv_json_feed(fv_json *j, const char *text, size_t n);

/* There is no more. FV_EDATA: the text is not complete. */
fv_status fv_json_end(fv_json *j);

#endif
