/* prune=pvtp: progressive visual token pruning of ST3 (arXiv 2412.20105, algorithm 1). At each of
 * the plan's layers the remaining tokens are ranked by the attention of the last prompt token in
 * the layer before, mean over heads, and those of highest score are kept: every set is a subset of
 * the one before. Tokens of all images are ranked together. */
#include "prefill-worker/prune/prune.h"

const fv_prune_method fv_prune_pvtp = {.keep = fv_prune_by_attention};
