#ifndef FOVEA_DECODE_WORKER_KEEP_ANSWER_H
#define FOVEA_DECODE_WORKER_KEEP_ANSWER_H

/* ANSWERS EXTEND THE CHAIN of their prompts: the next turn of a chat that is sent whole begins with prompt and answer, and
 * finds both.
 *
 *   prompt's links --> last one where every longer prompt has a link, too --> links of the text after it, and a tail
 *
 * The decode worker makes these links of the ids that have run, as the prefill worker will when the next turn comes
 * (kv/cache/chain.h). If the next turn renders the answer to other ids, they have other keys, and the hit ends there. For
 * the pool's thread. */
#include "decode-worker/keep/prefixes.h"

/* Keeps the rows of a store with the ids [n], of which the last may not have run yet. link[n_link]: the prompt's. Does
 * nothing where fv_prefixes_extend would not, or if the store has not all rows from the first one on. */
void fv_prefixes_keep_answer(fv_prefixes *p, const fv_wire_link *link, uint32_t n_link,
                             const int32_t *ids, int32_t n, fv_kv *kv);

#endif
