#ifndef FOVEA_DECODE_WORKER_SCHEDULE_LENGTHS_H
#define FOVEA_DECODE_WORKER_SCHEDULE_LENGTHS_H

/* LENGTHS: how many tokens answers have had here, and how many more one is expected to have. Lengths are
 * divided into buckets, four to an octave. In each bucket the probability that a token is its answer's last is
 * estimated from the tokens and ends that were seen there:
 *
 *     h = (ends + W w h0) / (tokens + W w)        w: lengths in the bucket
 *
 * An answer that was cut off (by its limit, its client, or a preemption) counts with its tokens and without an
 * end, so limits do not make answers look shorter than they are (Kaplan and Meier, 1958). h0 is what is known
 * otherwise: for a tenant, h of all tenants; for all together, an answer of PRIOR tokens in the mean. It weighs as
 * much as W answers, and old answers fade.
 *
 * For the computing thread. */
#include <stdbool.h>

#include "common/status.h"

typedef struct fv_lengths
    fv_lengths; /* opaque; its size is fixed, whatever the number of tenants */

fv_status fv_lengths_open(fv_lengths **out);
void fv_lengths_close(fv_lengths *l); /* NULL is fine */

/* Counts tokens [from, to) of an answer of `owner`; ended: the last of them ended it. */
void fv_lengths_add(fv_lengths *l, const char *owner, int32_t from, int32_t to, bool ended);

/* Returns for how many more tokens memory should be reserved if an answer of `owner` has `have`: three of
 * four such answers end within as many. At least 1. */
int32_t fv_lengths_expect(const fv_lengths *l, const char *owner, int32_t have);

#endif
