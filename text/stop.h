#ifndef FOVEA_TEXT_STOP_H
#define FOVEA_TEXT_STOP_H

/* STOP STRINGS in a stream of text: the output ends before the first one, or with `include` behind it, and
 * never contains the beginning of one that is completed later. */
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

enum { FV_MAX_STOP = 16, FV_STOP_BYTES_MAX = 256 };

typedef struct fv_stop fv_stop; /* opaque */

/* n strings (copied), each 1..FV_STOP_BYTES_MAX bytes; FV_EINVAL otherwise. n = 0 is fine. include: the
 * output has the stop string. */
fv_status fv_stop_open(const char *const *strings, int32_t n, bool include, fv_stop **out);
void fv_stop_close(fv_stop *s); /* NULL is fine */

/* Adds text. *out, *n_out: what can be output now (borrowed until the next call). *hit: a stop
 * string is complete; the text that belongs to the output has been output, and nothing follows. may_end:
 * a stop string that is complete with this text counts; otherwise it is text like any other, now and later. */
fv_status fv_stop_push(fv_stop *s, const char *text, size_t n, bool may_end, const char **out,
                       size_t *n_out, bool *hit);

/* Ends the stream: returns the text that was held back. */
void fv_stop_flush(fv_stop *s, const char **out, size_t *n_out);

#endif
