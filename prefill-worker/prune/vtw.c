/* prune=vtw: Visual Tokens Withdrawal (arXiv 2405.05803). Before layer k every visual token
 * leaves, since by then the text tokens have taken from them what they need. Positions of the rest
 * stay. The plan's count is 0, so there is nothing to choose. */
#include <assert.h>

#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, int32_t *kept) {
    assert(ctx->keep == 0);
    (void)kept;
    return FV_OK;
}

extern const fv_prune_method fv_prune_vtw;
const fv_prune_method fv_prune_vtw = {.name = "vtw", .keep = keep};
