/* prune=fastv: FastV (arXiv 2403.06764). Before layer k the visual tokens are ranked by the
 * attention of the last prompt token in layer k - 1, mean over heads, and the first of that order
 * are kept. Tokens are chosen once; the answer's tokens attend to the same choice.
 *
 * In the authors' evaluation tokens are masked instead: they run on, but nothing attends to them
 * from layer k on. A masked token influences nothing, so mode=mask gives these answers, bit for
 * bit, at the cost of `exact`, which is what tables of that mode show
 * (prefill-worker/prefill/mask.c). Their code makes a new mask for each token of an answer, by that
 * token's attention; here the prompt's choice stays.
 */
#include "prefill-worker/prune/prune.h"

const fv_prune_method fv_prune_fastv = {.keep = fv_prune_by_attention};
