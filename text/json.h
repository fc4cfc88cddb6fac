#ifndef FOVEA_TEXT_JSON_H
#define FOVEA_TEXT_JSON_H

/* JSON from untrusted sources: typed access with errors that name file and key.
 *
 * The parser is Jansson: strict RFC 8259, valid UTF-8 only, nesting bounded. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

/* Parses n bytes that must be one JSON object. FV_EDATA says `where`, line and column.
 * Gives *out (json_decref it). U+0000 in strings is kept (json_string_length counts).
 * In a text with an integer beyond 64 bits all numbers are real. */
fv_status fv_json_object(const char *text, size_t n, const char *where, json_t **out);

/* Reads `key` of `obj` when it is there and not null; otherwise leaves *out alone (put the
 * default there first). A wrong type or range is FV_EDATA: "<where>: key 'x' ...". */
fv_status fv_json_i32(const json_t *obj, const char *key, const char *where, int32_t min,
                      int32_t max, int32_t *out);
fv_status fv_json_f64(const json_t *obj, const char *key, const char *where, double *out);
fv_status fv_json_f32(const json_t *obj, const char *key, const char *where, float *out);
fv_status fv_json_bool(const json_t *obj, const char *key, const char *where, bool *out);
/* *out borrows from obj. */
fv_status fv_json_str(const json_t *obj, const char *key, const char *where, const char **out);

#endif
