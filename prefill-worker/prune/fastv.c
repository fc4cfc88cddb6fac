/* prune=fastv: FastV (arXiv 2403.06764). Before layer k the visual tokens are ranked by what the
 * prompt's last row paid to them in layer k - 1, mean over heads, and the first of that order go
 * on. Rows are chosen once; the answer's tokens see what the prompt's last row chose.
 *
 * In the authors' evaluation rows are masked instead: they run on, but nothing attends to them from layer
 * k on. What nothing attends to changes nothing, so mode=mask gives these answers, bit for bit, at the
 * cost of `exact`, which is what tables of that mode show (prefill-worker/prefill/mask.c). Their
 * code masks anew for each token of an answer, by what that token pays; here the prompt's choice
 * stays.
 */
#include "prefill-worker/prune/prune.h"

extern const fv_prune_method fv_prune_fastv;
const fv_prune_method fv_prune_fastv = {.keep = fv_prune_by_attention};
