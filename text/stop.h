#ifndef FOVEA_TEXT_STOP_H
#define FOVEA_TEXT_STOP_H

/* STOP STRINGS in a stream of text: the output never contains one, nor the beginning of one
 * that is completed later. */
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

enum { FV_MAX_STOP = 16, FV_STOP_BYTES_MAX = 256 };

typedef struct fv_stop fv_stop; /* opaque */

/* n strings (copied), each 1..FV_STOP_BYTES_MAX bytes; FV_EINVAL otherwise. n = 0 is fine. */
fv_status fv_stop_open(const char *const *strings, int32_t n, fv_stop **out);
void fv_stop_close(fv_stop *s); /* NULL is fine */

/* Adds text. *out, *n_out: what can be output now (borrowed until the next call). *hit: a stop
 * string is complete; the text before it has been output, and nothing follows. */
fv_status fv_stop_push(fv_stop *s, const char *text, size_t n, const char **out, size_t *n_out,
                       bool *hit);

/* Ends the stream: returns the text that was held back. */
void fv_stop_flush(fv_stop *s, const char **out, size_t *n_out);

#endif
