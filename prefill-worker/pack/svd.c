/* pack=svd: a layer's visual keys and values as low-rank factors (AttentionPack, CVPR 2026, section
 * 3.2), all heads side by side and all images together, never with text rows.
 *
 *   rows of the store --pack_layer.h--> M [n, Hkv D] --fv_factorise--> U, B --round--> parts
 *
 * Keys are factored as Rot(p_j - a) k_j, a the start of their block. The paper does not say which
 * side of the rotation it factors on, and its code takes keys before it, which attention then has
 * to rebuild row by row.
 *
 * Of text rows only keys are factored, values are laid as they are. */
#include <math.h>

#include "kernels/factor.h"
#include "prefill-worker/pack_layer.h"

/* A row of U is as long as its row of M, over all heads: longer than F16 may hold where each number
 * of it was not. Of fewer bits, numbers are relative. */
static fv_status check_range(const fv_packed_shape *s, const fv_factor *f, int32_t n) {
    const float most = 65504;
    if (s->dtype != FV_F16 || s->bits != 16) return FV_OK;
    for (size_t i = 0; i < (size_t)n * (size_t)f->rank; i++)
        if (!(fabsf(f->u[i]) <= most))
            return FV_FAIL(FV_EINVAL,
                           "a factor holds %g, more than f16 can: start both workers with "
                           "--kv-dtype bf16, or ask for pack=svd,bits=8",
                           (double)f->u[i]);
    return FV_OK;
}

/* Random numbers are a function of layer, segment and kind, so that the same prompt has the same
 * factors wherever it is prefilled. */
static fv_status factorise(const fv_pack_context *ctx, const fv_pack_job *job, fv_packed_kind kind,
                           fv_tensor m, fv_factor *f) {
    const fv_pack_layer *l = job->state;
    fv_factor_goal goal = {
        .rank = l->shape[kind].rank,
        .energy = fv_choice_value(&ctx->plan->policy.stage[FV_STAGE_PACK], "energy"),
        .seed = ((uint64_t)job->seg << 32) + 2 * (uint64_t)job->layer + (uint64_t)kind};
    fv_status st = fv_factorise(ctx->be, ctx->room, &m, &goal, f);
    if (st == FV_OK) st = check_range(&l->shape[kind], f, m.rows);
    if (st == FV_OK) return FV_OK;
    return fv_pack_layer_fail(st, job, kind);
}

static fv_status part(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind) {
    fv_pack_layer *l = job->state;
    fv_packed_shape *s = &l->shape[kind];
    fv_tensor m;
    fv_factor f;
    FV_TRY(fv_pack_layer_matrix(ctx, job, kind, &m));
    if (fv_packed_is_rows(s)) {
        fv_packed_write(s, m.data, NULL, l->data[kind]);
        return FV_OK;
    }
    FV_TRY(factorise(ctx, job, kind, m, &f));
    s->rank = f.rank;
    if (s->rank2 > s->rank) s->rank2 = s->rank;
    fv_packed_write(s, f.u, f.basis, l->data[kind]);
    job->rank[kind] = f.rank;
    job->error[kind] = (float)f.error;
    return FV_OK;
}

const fv_pack_method fv_pack_svd = {
    .name = "svd", .begin = fv_pack_layer_begin, .part = part, .end = fv_pack_layer_end};
