/* prune=vtw: Visual Tokens Withdrawal (arXiv 2405.05803). Before layer k all visual tokens are dropped,
 * since text tokens have gathered their information by then. The others keep their positions. */
#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    (void)ctx, (void)state, (void)kept;
    *n_kept = 0;
    return FV_OK;
}

const fv_prune_method fv_prune_vtw = {.keep = keep};
