#ifndef FOVEA_DECODE_WORKER_SPECULATE_LOOKUP_H
#define FOVEA_DECODE_WORKER_SPECULATE_LOOKUP_H

/* PROMPT LOOKUP: an answer that quotes, copies or repeats continues as an earlier place with the same last tokens did.
 * (Saxena, "Prompt Lookup Decoding", 2023; LLMA, arXiv 2304.04487.)
 *
 *   searched    [end of the prompt, prediction] [prompt] [answer so far]
 *   place       the one at which most of the last tokens are the same, at least 2; of equal ones the latest
 *   draft       the tokens behind it; where these reach the end, the draft itself goes on from its beginning,
 *               as in a text that repeats
 *
 * A prediction is text that the client expects in the answer. The end of the prompt stands before it, so that an answer
 * which begins with it is found from the first token. Places are in a hash of pairs of tokens, so a draft takes about
 * a microsecond at any length. One thread at a time. */
#include "common/status.h"
#include "decode-worker/speculate/draft.h"

typedef struct fv_lookup fv_lookup; /* opaque */

/* ids [n_prompt]: the prompt. prediction [n]: may be empty. Both are copied as far as they are needed. */
fv_status fv_lookup_open(const int32_t *ids, int32_t n_prompt, const int32_t *prediction, int32_t n,
                         fv_lookup **out);
void fv_lookup_close(fv_lookup *k); /* NULL is fine */

/* Drafts from here. Borrowed. Without memory for more places the latest tokens are not found; nothing fails. */
fv_draft_source fv_lookup_source(fv_lookup *k);

#endif
