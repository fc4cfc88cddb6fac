/* prune=pvtp: progressive visual token pruning of ST3 (arXiv 2412.20105, algorithm 1). At each of
 * the plan's layers the rows that are still there are ranked by what the prompt's last row paid to
 * them in the layer before, mean over heads, and the first of that order go on: every set lies in
 * the one before. Rows of all images stand in one ranking. */
#include "prefill-worker/prune/prune.h"

extern const fv_prune_method fv_prune_pvtp;
const fv_prune_method fv_prune_pvtp = {.keep = fv_prune_by_attention};
