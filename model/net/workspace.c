/* Device copies of weights, and the scratch area of a pass. */
#include "model/net/workspace.h"

#include <assert.h>
#include <stdlib.h>

#include "common/grow.h"

enum { ALIGN = 256 };

void fv_workspace_fini(fv_workspace *ws) {
    fv_buf_free(&ws->scratch);
    for (int32_t i = 0; i < ws->n_owned; i++) fv_buf_free(&ws->owned[i]);
    free(ws->owned);
    *ws = (fv_workspace){.be = ws->be};
}

fv_status fv_workspace_weight(fv_workspace *ws, const fv_tensor *host, fv_tensor *out) {
    if (!host->data) {
        *out = *host;
        return FV_OK;
    }
    FV_TRY(fv_grow(&ws->owned, &ws->cap_owned, (size_t)ws->n_owned + 1, sizeof *ws->owned));
    fv_buf owned = {0};
    FV_TRY(ws->be->ops->weight(ws->be, host, out, &owned));
    if (owned.data) ws->owned[ws->n_owned++] = owned;
    return FV_OK;
}

size_t fv_workspace_need(fv_dtype dtype, int32_t rows, int32_t cols) {
    size_t bytes = (size_t)rows * (size_t)cols * fv_dtype_bytes(dtype);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

fv_status fv_workspace_reset(fv_workspace *ws, size_t bytes) {
    ws->used = 0;
    if (bytes <= ws->scratch.bytes) return FV_OK;
    fv_buf_free(&ws->scratch);
    return fv_buf_alloc(ws->be->device, bytes, FV_BUF_DEVICE, &ws->scratch);
}

fv_tensor fv_workspace_cut(fv_workspace *ws, fv_dtype dtype, int32_t rows, int32_t cols) {
    size_t need = fv_workspace_need(dtype, rows, cols);
    assert(ws->used + need <= ws->scratch.bytes);
    void *p = (char *)ws->scratch.data + ws->used;
    ws->used += need;
    return fv_tensor_of(p, dtype, rows, cols);
}
