/* pack=svd: a layer's visual keys and values as low-rank factors (AttentionPack, CVPR 2026, section
 * 3.2), all heads side by side and all images together, never with text tokens.
 *
 *   entries of the store --pack_layer.h--> M [n, Hkv D] --factor_part.h: U, B, rounded--> blocks
 *
 * Keys are factored as Rot(p_j - a) k_j, a the start of their anchor block. The paper does not say
 * whether it factors keys before or after rotation; its code takes them before, so that attention
 * has to rebuild keys token by token.
 *
 * Only the keys of text tokens are compressed. */
#include "factor/factor_part.h"
#include "prefill-worker/pack/pack_layer.h"

static fv_factor_part part_of(const fv_pack_context *ctx, const fv_pack_job *job) {
    return (fv_factor_part){.layer = job->layer,
                            .segment = job->seg,
                            .energy = ctx->plan->params[FV_STAGE_PACK].pack_svd.energy};
}

static fv_status put_rows(const fv_pack_context *ctx, const fv_packed_shape *s, const fv_tensor *m,
                          void *data) {
    float *rows;
    FV_TRY(fv_matrix_fetch(ctx->matrices, m, &rows));
    fv_packed_write(s, rows, NULL, data);
    return FV_OK;
}

static void note(fv_pack_job *job, fv_packed_kind kind, double error) {
    const fv_pack_layer *l = job->state;
    job->rank[kind] = l->shape[kind].lowrank.rank;
    job->error[kind] = (float)error;
}

static fv_status part(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind) {
    fv_pack_layer *l = job->state;
    fv_packed_shape *s = &l->shape[kind];
    fv_factor_part what = part_of(ctx, job);
    fv_tensor m;
    double error;
    FV_TRY(fv_pack_layer_matrix(ctx, job, kind, &m));
    if (fv_packed_is_rows(s)) return put_rows(ctx, s, &m, l->data[kind]);
    fv_status st = fv_factor_write(ctx->be, ctx->scratch, &m, &what, s, l->data[kind], &error);
    if (st != FV_OK) return fv_pack_layer_fail(st, job, kind);
    note(job, kind, error);
    return FV_OK;
}

static fv_status parts(const fv_pack_context *ctx, const fv_pack_part *part, int32_t n) {
    fv_factor_job *job;
    const fv_pack_part **of;
    int32_t n_job = 0, bad;
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, job));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, of));
    for (int32_t i = 0; i < n; i++) {
        fv_pack_layer *l = part[i].job->state;
        fv_packed_kind kind = part[i].kind;
        fv_factor_job *to = &job[n_job];
        *to = (fv_factor_job){
            .what = part_of(ctx, part[i].job), .s = &l->shape[kind], .data = l->data[kind]};
        FV_TRY(fv_pack_layer_matrix(ctx, part[i].job, kind, &to->m));
        if (fv_packed_is_rows(to->s))
            FV_TRY(put_rows(ctx, to->s, &to->m, to->data));
        else
            of[n_job++] = &part[i];
    }
    fv_status st = fv_factor_write_all(ctx->be, ctx->scratch, job, n_job, &bad);
    if (st == FV_EINVAL) return fv_pack_layer_fail(st, of[bad]->job, of[bad]->kind);
    for (int32_t i = 0; i < n_job && st == FV_OK; i++) note(of[i]->job, of[i]->kind, job[i].error);
    return st;
}

const fv_pack_method fv_pack_svd = {
    .begin = fv_pack_layer_begin, .part = part, .parts = parts, .end = fv_pack_layer_end};
