/* pack=svd: a layer's visual keys and values as low-rank factors (AttentionPack, CVPR 2026, section
 * 3.2), all heads side by side and all images together, never with text rows.
 *
 *   rows of the store --pack_layer.h--> M [n, Hkv D] --factor_part.h: U, B, rounded--> parts
 *
 * Keys are factored as Rot(p_j - a) k_j, a the start of their block. The paper does not say which
 * side of the rotation it factors on, and its code takes keys before it, which attention then has
 * to rebuild row by row.
 *
 * Of text rows only keys are factored, values are laid as they are. */
#include "kernels/factor_part.h"
#include "prefill-worker/pack_layer.h"

static fv_status part(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind) {
    fv_pack_layer *l = job->state;
    fv_packed_shape *s = &l->shape[kind];
    fv_tensor m;
    double error;
    FV_TRY(fv_pack_layer_matrix(ctx, job, kind, &m));
    if (fv_packed_is_rows(s)) {
        float *rows;
        FV_TRY(fv_matrix_fetch(ctx->matrices, &m, &rows));
        fv_packed_write(s, rows, NULL, l->data[kind]);
        return FV_OK;
    }
    fv_factor_part what = {.layer = job->layer,
                           .segment = job->seg,
                           .energy =
                               fv_choice_value(&ctx->plan->policy.stage[FV_STAGE_PACK], "energy")};
    fv_status st = fv_factor_write(ctx->be, ctx->room, &m, &what, s, l->data[kind], &error);
    if (st != FV_OK) return fv_pack_layer_fail(st, job, kind);
    job->rank[kind] = s->rank;
    job->error[kind] = (float)error;
    return FV_OK;
}

const fv_pack_method fv_pack_svd = {
    .name = "svd", .begin = fv_pack_layer_begin, .part = part, .end = fv_pack_layer_end};
