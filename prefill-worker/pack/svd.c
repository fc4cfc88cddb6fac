/* pack=svd: a layer's visual keys and values as low-rank factors (AttentionPack, CVPR 2026, section
 * 3.2), all heads side by side and all images together, never with text rows.
 *
 *   rows of the store --by anchor block--> M [n, Hkv D] --fv_factorise--> U, B --round--> parts
 *
 * Keys are factored as Rot(p_j - a) k_j, a the start of their block (kernels/packed.h): the store
 * has Rot(p_j) k_j, so they are turned back by a. The paper does not say which side of the rotation
 * it factors on, and its code takes keys before it, which attention then has to rebuild row by row.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/factor.h"
#include "prefill-worker/pack.h"

/* The rows of a layer in the order of the packed block. */
typedef struct order {
    int32_t n, n_anchor;
    int32_t *row;    /* [n] of the store; where that is ranked, their rank */
    int32_t *pos;    /* [n] */
    int32_t *first;  /* [n_anchor + 1] */
    int32_t *anchor; /* [n_anchor] */
} order;

static int32_t setting(const fv_pack_context *ctx, const char *param) {
    return (int32_t)fv_choice_value(&ctx->plan->policy.stage[FV_STAGE_PACK], param);
}

/* Which block a row belongs to: positions are counted from the first image row's. */
static int32_t block_of(int32_t pos, int32_t base, int32_t block) {
    return block > 0 ? (pos - base) / block : 0;
}

/* Rows by block; inside a block as they lie in the store, which may be in the order of their rank.
 * Blocks without rows have no place. */
static fv_status make_order(const fv_pack_context *ctx, order *o) {
    const int32_t *pos = fv_kv_positions(ctx->kv, ctx->layer, 0, FV_SEG_VISUAL);
    int32_t n = fv_kv_len(ctx->kv, ctx->layer, 0, FV_SEG_VISUAL), block = setting(ctx, "block");
    int32_t base = pos[0], last = pos[0], *at;
    for (int32_t j = 0; j < n; j++) {
        base = pos[j] < base ? pos[j] : base;
        last = pos[j] > last ? pos[j] : last;
    }
    int32_t n_block = block_of(last, base, block) + 1;
    *o = (order){.n = n};
    FV_TRY(FV_ARENA_NEW(ctx->room, n, o->row));
    FV_TRY(FV_ARENA_NEW(ctx->room, n, o->pos));
    FV_TRY(FV_ARENA_NEW(ctx->room, n + 1, o->first));
    FV_TRY(FV_ARENA_NEW(ctx->room, n, o->anchor));
    FV_TRY(FV_ARENA_NEW(ctx->room, n_block + 1, at));
    for (int32_t j = 0; j < n; j++) at[block_of(pos[j], base, block) + 1]++;
    for (int32_t b = 0; b < n_block; b++) {
        if (at[b + 1] > 0) {
            o->anchor[o->n_anchor] = block > 0 ? base + b * block : 0;
            o->first[o->n_anchor++] = at[b];
        }
        at[b + 1] += at[b];
    }
    o->first[o->n_anchor] = n;
    for (int32_t j = 0; j < n; j++) {
        int32_t to = at[block_of(pos[j], base, block)]++;
        o->row[to] = j;
        o->pos[to] = pos[j];
    }
    return FV_OK;
}

/* M [n, Hkv D] F32 in that order. A head's rows follow one another in the layer's extent. */
static fv_status gather(const fv_pack_context *ctx, const order *o, bool value, fv_tensor *m) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    float *data;
    int32_t width = s->n_kv * s->d_head;
    FV_TRY(FV_ARENA_NEW(ctx->room, (size_t)o->n * (size_t)width, data));
    *m = fv_tensor_of(data, FV_F32, o->n, width);
    for (int32_t g = 0; g < s->n_kv; g++) {
        fv_tensor y = {data + (size_t)g * (size_t)s->d_head, FV_F32, o->n, s->d_head, width};
        void *at;
        fv_kv_stretch(ctx->kv, ctx->layer, g, FV_SEG_VISUAL, value, 0, o->n, &at);
        fv_gather_args a = {
            .table = fv_tensor_of(at, s->dtype, o->n, s->d_head), .y = y, .ids = o->row};
        FV_TRY(ctx->be->ops->gather(ctx->be, &a));
    }
    return ctx->be->ops->sync(ctx->be);
}

/* Turns every key back by its block's anchor. */
static fv_status turn_back(const fv_pack_context *ctx, const order *o, fv_tensor m) {
    size_t half = (size_t)ctx->rope->half;
    float *c, *s;
    FV_TRY(FV_ARENA_NEW(ctx->room, (size_t)o->n * half, c));
    FV_TRY(FV_ARENA_NEW(ctx->room, (size_t)o->n * half, s));
    for (int32_t a = 0; a < o->n_anchor; a++)
        for (int32_t j = o->first[a]; j < o->first[a + 1]; j++)
            fv_rope_angles(ctx->rope, &o->anchor[a], 1, c + (size_t)j * half, s + (size_t)j * half);
    for (size_t i = 0; i < (size_t)o->n * half; i++) s[i] = -s[i];
    fv_rope_args args = {.x = m,
                         .cos = fv_tensor_of(c, FV_F32, o->n, (int32_t)half),
                         .sin = fv_tensor_of(s, FV_F32, o->n, (int32_t)half),
                         .n_head = fv_kv_get_shape(ctx->kv)->n_kv};
    FV_TRY(ctx->be->ops->rope(ctx->be, &args));
    return ctx->be->ops->sync(ctx->be);
}

static fv_packed_shape shape_of(const fv_pack_context *ctx, int kind, int32_t n) {
    return fv_plan_packed_shape(ctx->plan, ctx->layer, (fv_packed_kind)kind, n,
                                fv_kv_get_shape(ctx->kv)->dtype);
}

/* A row of U is as long as its row of M, over all heads: longer than F16 may hold where each number
 * of it was not. Of fewer bits, numbers are relative. */
static fv_status check_range(const fv_pack_context *ctx, const fv_factor *f, int32_t n) {
    const float most = 65504;
    if (fv_kv_get_shape(ctx->kv)->dtype != FV_F16 || ctx->plan->pack_bits != 16) return FV_OK;
    for (size_t i = 0; i < (size_t)n * (size_t)f->rank; i++)
        if (!(fabsf(f->u[i]) <= most))
            return FV_FAIL(FV_EINVAL,
                           "a factor holds %g, more than f16 can: start both workers with "
                           "--kv-dtype bf16, or ask for pack=svd,bits=8",
                           (double)f->u[i]);
    return FV_OK;
}

/* Random numbers are a function of layer and kind, so that the same prompt has the same factors
 * wherever it is prefilled. */
static fv_status factorise(const fv_pack_context *ctx, const order *o, int kind, fv_tensor m,
                           fv_factor *f) {
    const fv_choice *c = &ctx->plan->policy.stage[FV_STAGE_PACK];
    fv_factor_goal goal = {.rank = shape_of(ctx, kind, o->n).rank,
                           .energy = fv_choice_value(c, "energy"),
                           .seed = 2 * (uint64_t)ctx->layer + (uint64_t)kind};
    fv_status st = fv_factorise(ctx->be, ctx->room, &m, &goal, f);
    if (st == FV_OK) st = check_range(ctx, f, o->n);
    if (st == FV_OK) return FV_OK;
    return fv_fail_prefix(st, "visual %s of layer %d", kind == FV_PACKED_K ? "keys" : "values",
                          ctx->layer);
}

static fv_status pack_layer(const fv_pack_context *ctx, fv_packed_layer *out) {
    order o;
    fv_tensor m[2];
    fv_factor f[2];
    fv_kv_packed *p;
    /* It may have fewer rows than the plan knew, and no longer be worth it. */
    int32_t n = fv_kv_len(ctx->kv, ctx->layer, 0, FV_SEG_VISUAL);
    if (!fv_plan_packs(ctx->plan, ctx->layer, n)) return FV_OK;
    FV_TRY(make_order(ctx, &o));
    bool anchored = setting(ctx, "block") > 0;
    fv_kv_packed_form form = {.n = o.n,
                              .n_anchor = o.n_anchor,
                              .pos = o.pos,
                              .first = o.first,
                              .anchor = anchored ? o.anchor : NULL,
                              .rank = fv_kv_ranked(ctx->kv, ctx->layer, 0) ? o.row : NULL,
                              .leader = fv_kv_leader(ctx->kv, ctx->layer)};
    int first = form.leader == ctx->layer ? FV_PACKED_K : FV_PACKED_V; /* or keys are there */
    for (int k = first; k < 2; k++) {
        FV_TRY(gather(ctx, &o, k == FV_PACKED_V, &m[k]));
        if (k == FV_PACKED_K && anchored) FV_TRY(turn_back(ctx, &o, m[k]));
        FV_TRY(factorise(ctx, &o, k, m[k], &f[k]));
        fv_packed_shape *s = &form.part[k];
        *s = shape_of(ctx, k, o.n);
        s->rank = f[k].rank;
        if (s->rank2 > s->rank) s->rank2 = s->rank;
        out->rank[k] = f[k].rank;
        out->error[k] = (float)f[k].error;
    }
    FV_TRY(fv_kv_pack(ctx->kv, ctx->layer, &form, &p));
    for (int k = first; k < 2; k++)
        fv_packed_write(&form.part[k], f[k].u, f[k].basis, p->part[k].data);
    return FV_OK;
}

const fv_pack_method fv_pack_svd = {.name = "svd", .layer = pack_layer};
