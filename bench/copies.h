#ifndef FOVEA_BENCH_COPIES_H
#define FOVEA_BENCH_COPIES_H

/* COPIES of one prefilled prompt on a decode side with a fixed number of bytes for KV: the prompt
 * is handed off in this process, as a prefill worker would do it, until the pool is full.
 * Memory and number of answers are those of a decode worker. */
#include "decode-worker/receive/receive.h"
#include "decode-worker/schedule/batch.h"
#include "model/engine.h"
#include "prefill-worker/job/job.h"

/* A prompt after prefill. */
typedef struct prefilled {
    int32_t n;
    const int32_t *ids;
    const uint8_t *seg;
    const fv_plan *plan;
    const fv_kv *kv;
    const float *logits; /* of its last row */
    int32_t max_tokens;  /* of each answer */
} prefilled;

typedef struct copies copies; /* opaque; borrows the engine */

/* Hands off up to `most` copies: as many as fit into `bytes` (0: no limit). */
fv_status copies_open(const fv_engine *e, const prefilled *from, size_t bytes, int32_t most,
                      copies **out);
void copies_close(copies *c); /* NULL is fine */

int32_t copies_count(const copies *c);
size_t copies_bytes(const copies *c); /* held by all copies and reserved for their answers */

/* Decodes one token for each copy. */
fv_status copies_step(copies *c);

#endif
