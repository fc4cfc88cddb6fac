/* prune=fastv: FastV (arXiv 2403.06764). Before layer k the visual rows are ranked by what the
 * prompt's last row paid to them in layer k - 1, mean over heads, and the first of that order go
 * on. Rows are chosen once; the answer's tokens see what the prompt's last row chose.
 *
 * The authors also mask: rows stay, and nobody sees them from layer k on. A row that nobody sees
 * changes nothing, so that gives these answers at the cost of `exact`, and is not offered. */
#include "prefill-worker/prune.h"

extern const fv_prune_method fv_prune_fastv;
const fv_prune_method fv_prune_fastv = {.name = "fastv", .keep = fv_prune_by_attention};
