/* pack=minicache: visual keys and values of two neighbouring layers share their directions
 * (MiniCache, arXiv 2405.14366, sections 3.2 and 3.3).
 *
 *   rows of layers 2p and 2p + 1 --pack_layer.h--> two M [n, Hkv D] --packed/merged.h--> 4 parts
 *
 * How many rows stay unmerged depends on the data: if the four parts are no smaller than the rows, both
 * layers stay raw. The paper merges all rows; here only image tokens are merged, as AttentionPack's
 * comparison does.
 */
#include <string.h>

#include "packed/merged.h"
#include "prefill-worker/pack/pack_layer.h"

/* Whether two layers hold the same rows in the same order: methods that decide by data may have dropped
 * rows between the two. */
static bool same_rows(const fv_pack_layer *a, const fv_pack_layer *b) {
    return a && b && a->n == b->n && memcmp(a->pos, b->pos, (size_t)a->n * sizeof *a->pos) == 0;
}

/* Allocates parts for the worst case, in which all rows stay unmerged. */
static fv_status take_room(const fv_pack_context *ctx, fv_pack_job *job, fv_pack_layer *l) {
    for (int k = 0; k < 2; k++) {
        fv_packed_shape s = fv_plan_packed_shape(ctx->plan, job->layer, (fv_packed_kind)k, l->n,
                                                 fv_kv_get_shape(ctx->kv)->dtype);
        l->shape[k] = s;
        s.merged.n_exact = s.n * s.n_kv;
        FV_TRY(fv_arena_alloc(ctx->scratch, fv_packed_bytes(&s), &l->data[k]));
    }
    job->state = l;
    return FV_OK;
}

static fv_status begin(const fv_pack_context *ctx, fv_pack_job *job) {
    fv_pack_layer *l, *first;
    if (!job->first) return FV_OK;
    FV_TRY(fv_pack_layer_order(ctx, job->first, &first));
    FV_TRY(fv_pack_layer_order(ctx, job, &l));
    if (!same_rows(first, l)) return FV_OK;
    FV_TRY(take_room(ctx, job->first, first));
    FV_TRY(take_room(ctx, job, l));
    job->part[FV_PACKED_K] = job->part[FV_PACKED_V] = true;
    return FV_OK;
}

static fv_status part(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind) {
    fv_pack_job *jobs[2] = {job->first, job};
    fv_pack_layer *l[2] = {job->first->state, job->state};
    fv_packed_shape *s = &l[0]->shape[kind];
    const fv_pack_minicache_params *p = &ctx->plan->params[FV_STAGE_PACK].pack_minicache;
    fv_tensor m[2];
    float *at[2];
    uint8_t *kept;
    double error[2];
    for (int i = 0; i < 2; i++) {
        FV_TRY(fv_pack_layer_matrix(ctx, jobs[i], kind, &m[i]));
        FV_TRY(fv_matrix_fetch(ctx->matrices, &m[i], &at[i]));
    }
    FV_TRY(FV_ARENA_NEW(ctx->scratch, (size_t)s->n * (size_t)s->n_kv, kept));
    const float *const rows[2] = {at[0], at[1]};
    s->merged.n_exact = fv_merged_keep(s, rows, p->gamma, kept);
    l[1]->shape[kind].merged.n_exact = s->merged.n_exact;
    fv_status st = fv_merged_write((fv_packed_shape[]){*s, l[1]->shape[kind]}, rows, p->t, kept,
                                   (void *const[]){l[0]->data[kind], l[1]->data[kind]}, error);
    if (st != FV_OK) return fv_pack_layer_fail(st, job, kind);
    for (int i = 0; i < 2; i++) {
        jobs[i]->rank[kind] = (int32_t)fv_packed_width(s);
        jobs[i]->error[kind] = (float)error[i];
    }
    return FV_OK;
}

/* Whether a pair is smaller merged; the same for both layers, whose shapes differ in `borrows` only. */
static bool worthwhile(const fv_pack_layer *l) {
    size_t merged = 0, raw = 0;
    for (int i = 0; i < 4; i++) {
        fv_packed_shape s = l->shape[i % 2];
        s.borrows = i / 2;
        merged += fv_packed_bytes(&s);
        raw += fv_packed_raw_bytes(&s);
    }
    return merged < raw;
}

static fv_status end(const fv_pack_context *ctx, fv_pack_job *job) {
    return worthwhile(job->state) ? fv_pack_layer_end(ctx, job) : FV_OK;
}

const fv_pack_method fv_pack_minicache = {.begin = begin,
                                          .part = part,
                                          .end = end,
                                          .none =
                                              "no pair of layers is smaller merged: their visual "
                                              "tokens differ, or too many rows stay unmerged"};
