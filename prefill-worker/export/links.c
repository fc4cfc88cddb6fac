/* Links of a request for a grant. Any thread. */
#include "prefill-worker/export/links.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"

static bool stays(const fv_chain_link *chain, int32_t i, int32_t step) {
    bool image = chain[i].n_visual > (i ? chain[i - 1].n_visual : 0);
    return step == 1 || image || chain[i].n_text % (step * FV_KV_BLOCK) == 0;
}

/* Many images alone may be too many: then the first ones stay. */
static int32_t step_of(const fv_chain_link *chain, int32_t n) {
    for (int32_t step = 1;; step *= 2) {
        int32_t left = 0;
        for (int32_t i = 0; i < n; i++) left += stays(chain, i, step);
        if (left <= FV_LINKS_MAX || step >= 1 << 20) return step;
    }
}

fv_status fv_export_links(const fv_chain_link *chain, int32_t n, fv_wire_link **link,
                          uint32_t *n_link) {
    *n_link = 0;
    *link = NULL;
    if (n <= 0) return FV_OK;
    int32_t step = step_of(chain, n), most = n < FV_LINKS_MAX ? n : FV_LINKS_MAX;
    fv_wire_link *out = calloc((size_t)most, sizeof *out);
    if (!out) return FV_FAIL(FV_ENOMEM, "out of memory for %d links of a prompt", n);
    for (int32_t i = 0; i < n && *n_link < FV_LINKS_MAX; i++) {
        if (!stays(chain, i, step)) continue;
        fv_wire_link *to = &out[(*n_link)++];
        memcpy(to->key, chain[i].key.bytes, sizeof to->key);
        to->n_text = (uint32_t)chain[i].n_text;
        to->n_visual = (uint32_t)chain[i].n_visual;
        to->name = chain[i].name;
    }
    *link = out;
    return FV_OK;
}
