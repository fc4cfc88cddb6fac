/* Rows that were kept up to a layer: from there on they run with the others, because a stage of the plan looks at all of
 * them (policy/plan/prefix.h). For the thread that owns the decoder. */
#include "prefill-worker/prefill/internal.h"

/* Number of kept rows of request b that join in `layer`. */
static int32_t joining(const fv_prefill *p, int32_t b, int32_t layer) {
    return p->req[b].join_layer == layer ? p->n_kept[b] : 0;
}

/* Copies the residual streams of request b to row `at` of x: those that were kept, then those that run. */
static fv_status join_streams(const fv_prefill *p, int32_t b, int32_t n_kept, char *x) {
    const fv_prefill_rows *rows = &p->rows;
    fv_device *dev = fv_decoder_backend(p->dec)->device;
    size_t row = (size_t)p->d * sizeof(float);
    int32_t first = rows->first[b], n = rows->first[b + 1] - first;
    if (n_kept) FV_TRY(p->req[b].join(p->req[b].kept_user, x));
    return dev->ops->copy_async(dev, x + (size_t)n_kept * row,
                                fv_tensor_rows(rows->x, first, n).data, (size_t)n * row);
}

/* Writes where the rows of request b are in the prompt, from row `at` of the new list on. */
static void join_places(const fv_prefill *p, int32_t b, int32_t n_kept, int32_t at,
                        fv_prefill_rows *out) {
    const fv_prefill_request *req = &p->req[b];
    const fv_prefill_rows *rows = &p->rows;
    for (int32_t i = 0; i < n_kept; i++, at++) {
        out->pos[at] = i;
        out->rope_pos[at] = fv_rope_map_at(&req->rope_map, i);
        out->seg[at] = req->seg[i];
    }
    for (int32_t r = rows->first[b]; r < rows->first[b + 1]; r++, at++) {
        out->pos[at] = rows->pos[r];
        out->rope_pos[at] = rows->rope_pos[r];
        out->seg[at] = rows->seg[r];
    }
}

static fv_status join(fv_prefill *p, int32_t layer, int32_t n) {
    fv_prefill_rows *rows = &p->rows, all = {.n = rows->n + n};
    fv_buf *other = rows->x.data == p->x[0].data ? &p->x[1] : &p->x[0];
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req + 1, all.first));
    FV_TRY(FV_ARENA_NEW(&p->arena, all.n, all.pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, all.n, all.rope_pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, all.n, all.seg));
    all.x = fv_tensor_of(other->data, FV_F32, all.n, p->d);
    for (int32_t b = 0; b < p->n_req; b++) {
        int32_t at = all.first[b], n_kept = joining(p, b, layer);
        FV_TRY(join_streams(p, b, n_kept, fv_tensor_rows(all.x, at, all.n - at).data));
        join_places(p, b, n_kept, at, &all);
        all.first[b + 1] = at + n_kept + rows->first[b + 1] - rows->first[b];
        p->n_kept[b] -= n_kept;
    }
    *rows = all;
    return FV_OK;
}

fv_status fv_prefill_join_rows(fv_prefill *p, int32_t layer) {
    int32_t n = 0;
    for (int32_t b = 0; b < p->n_req && layer > 0; b++) n += joining(p, b, layer);
    if (n > 0) FV_TRY(join(p, layer, n));
    for (int32_t b = 0; b < p->n_req && layer > 0; b++) {
        const fv_prefill_request *req = &p->req[b];
        if (req->join_layer == layer && req->joined)
            req->joined(req->kept_user, fv_tensor_rows(p->rows.x, p->rows.first[b], 1).data);
    }
    return FV_OK;
}
