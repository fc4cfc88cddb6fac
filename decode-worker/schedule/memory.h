#ifndef FOVEA_DECODE_WORKER_SCHEDULE_MEMORY_H
#define FOVEA_DECODE_WORKER_SCHEDULE_MEMORY_H

/* MEMORY OF GROWING ANSWERS. An answer gets memory for as many tokens as it is expected to have (lengths.h),
 * and more as it grows. When there is none, kept conversations are given up, then answers are preempted: the
 * router replays them later, after the tokens that their clients have.
 *
 *   - The eldest answer, by arrival at its router, is never preempted, and may preempt all others. So it
 *     always reaches its end, and then another one is the eldest.
 *   - Another answer may preempt a younger one, and one of a tenant whose answers hold more memory for its
 *     weight. First goes the youngest of the tenant that holds most.
 *   - An answer that may preempt none waits, and keeps its memory, until an answer ends or it is preempted
 *     itself.
 *   - An answer whose memory was all reserved at first (fv_answer.whole) is never preempted and never waits. A
 *     router asks for that when an answer was preempted twice.
 *   - Follow-ups are `whole`, too: only the client could repeat a kept conversation.
 *   - If its tenant's limit stops an answer, only answers and kept conversations of the tenant give way.
 *   - An answer may find too little memory although no other holds any: the share of its prompt (kv/share.h) has
 *     tables, and may have rows that the prompt does not use. Then it is preempted, too: a request that needs more
 *     than its share leaves has memory of its own.
 *
 * For the computing thread. */
#include "decode-worker/schedule/scheduler.h"

/* Whether the next row of a running answer, or of one that waits for memory, has none. */
bool fv_answer_needs_memory(const fv_answer *x);

/* Reserves memory for some more tokens. FV_EBUSY: the pool is full; refused with TENANT_FULL: the tenant may
 * have no more. */
fv_status fv_answer_grow(fv_answer *x);

/* Returns the eldest answer that needs memory and is not marked `asked`; NULL: none. `first`: the list. */
fv_answer *fv_answer_needy(fv_answer *first);

/* Returns the answer to be preempted for x; NULL: none. own: one of x's tenant. */
fv_answer *fv_answer_victim(fv_answer *first, const fv_answer *x, bool own);

/* Whether no other answer, or with `own` none of x's tenant, holds memory. If no hand-off does either, waiting
 * would not help: the second is the failure for that. */
bool fv_answer_is_alone(const fv_answer *first, const fv_answer *x, bool own);
fv_status fv_answer_too_large(const fv_answer *x, bool own);

#endif
