/* What pack methods share: see pack_layer.h. */
#include "prefill-worker/pack_layer.h"

#include <assert.h>

/* Which block a row belongs to: positions are counted from the first row's. */
static int32_t block_of(int32_t pos, int32_t base, int32_t block) {
    return block > 0 ? (pos - base) / block : 0;
}

/* Rows by block; inside a block as they lie in the store, which may be in the order of their rank.
 * Blocks without rows have no place. */
static fv_status make_order(const fv_pack_context *ctx, const fv_pack_job *job, fv_pack_layer *o) {
    const int32_t *pos = fv_kv_positions(ctx->kv, job->layer, 0, job->seg);
    int32_t n = job->n;
    int32_t block = (int32_t)fv_choice_value(&ctx->plan->policy.stage[FV_STAGE_PACK], "block");
    int32_t base = pos[0], last = pos[0], *at;
    for (int32_t j = 0; j < n; j++) {
        base = pos[j] < base ? pos[j] : base;
        last = pos[j] > last ? pos[j] : last;
    }
    int32_t n_block = block_of(last, base, block) + 1;
    *o = (fv_pack_layer){.n = n, .anchored = block > 0};
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

/* A head's rows to y [n, D]. Image rows follow one another in the layer's extent; those of text lie
 * in pages, in the order that they have. */
static fv_status gather_head(const fv_pack_context *ctx, const fv_pack_job *job, int32_t head,
                             bool value, const fv_pack_layer *o, fv_tensor y) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    for (int32_t row = 0, rows; row < o->n; row += rows) {
        void *at;
        rows = fv_kv_stretch(ctx->kv, job->layer, head, job->seg, value, row, o->n, &at);
        assert(rows == o->n || (job->seg == FV_SEG_TEXT && o->row[row] == row));
        fv_gather_args a = {.table = fv_tensor_of(at, s->dtype, rows, s->d_head),
                            .y = fv_tensor_rows(y, row, rows),
                            .ids = o->row};
        FV_TRY(ctx->be->ops->gather(ctx->be, &a));
    }
    return FV_OK;
}

/* M [n, Hkv D] F32 in that order. */
static fv_status gather(const fv_pack_context *ctx, const fv_pack_job *job, const fv_pack_layer *o,
                        bool value, fv_tensor *m) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    int32_t width = s->n_kv * s->d_head;
    FV_TRY(fv_matrix_new(ctx->matrices, o->n, width, m));
    for (int32_t g = 0; g < s->n_kv; g++) {
        float *head = (float *)m->data + (size_t)g * (size_t)s->d_head;
        fv_tensor y = {head, FV_F32, o->n, s->d_head, width};
        FV_TRY(gather_head(ctx, job, g, value, o, y));
    }
    return FV_OK;
}

/* Turns every key back by its block's anchor. */
static fv_status turn_back(const fv_pack_context *ctx, const fv_pack_layer *o, fv_tensor m) {
    size_t half = (size_t)ctx->rope->half;
    float *c, *s;
    fv_rope_args args = {.x = m, .n_head = fv_kv_get_shape(ctx->kv)->n_kv};
    FV_TRY(FV_ARENA_NEW(ctx->room, (size_t)o->n * half, c));
    FV_TRY(FV_ARENA_NEW(ctx->room, (size_t)o->n * half, s));
    for (int32_t a = 0; a < o->n_anchor; a++)
        for (int32_t j = o->first[a]; j < o->first[a + 1]; j++)
            fv_rope_angles(ctx->rope, &o->anchor[a], 1, c + (size_t)j * half, s + (size_t)j * half);
    for (size_t i = 0; i < (size_t)o->n * half; i++) s[i] = -s[i];
    FV_TRY(fv_matrix_send(ctx->matrices, c, o->n, (int32_t)half, &args.cos));
    FV_TRY(fv_matrix_send(ctx->matrices, s, o->n, (int32_t)half, &args.sin));
    return ctx->be->ops->rope(ctx->be, &args);
}

/* It may have fewer rows than the plan knew, and no longer be worth it. */
static bool worth_it(const fv_pack_context *ctx, const fv_pack_job *job) {
    const fv_plan_shape *s = &ctx->plan->shape;
    if (job->seg == FV_SEG_TEXT)
        return fv_text_keys_pack(&ctx->plan->text_keys, job->n, s->n_kv * s->d_head);
    return fv_plan_packs(ctx->plan, job->layer, job->n);
}

static fv_packed_shape shape_of(const fv_pack_context *ctx, const fv_pack_job *job,
                                fv_packed_kind kind) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    if (job->seg == FV_SEG_TEXT)
        return fv_text_keys_shape(&ctx->plan->text_keys, kind, job->n, s->n_kv, s->d_head,
                                  s->dtype);
    return fv_plan_packed_shape(ctx->plan, job->layer, kind, job->n, s->dtype);
}

fv_status fv_pack_layer_order(const fv_pack_context *ctx, const fv_pack_job *job,
                              fv_pack_layer **out) {
    *out = NULL;
    if (!worth_it(ctx, job)) return FV_OK;
    FV_TRY(FV_ARENA_NEW(ctx->room, 1, *out));
    return make_order(ctx, job, *out);
}

fv_status fv_pack_layer_begin(const fv_pack_context *ctx, fv_pack_job *job) {
    fv_pack_layer *l;
    FV_TRY(fv_pack_layer_order(ctx, job, &l));
    if (!l) return FV_OK;
    job->part[FV_PACKED_K] = !fv_kv_borrows(ctx->kv, job->layer, job->seg); /* or they are there */
    job->part[FV_PACKED_V] = true;
    for (int k = 0; k < 2; k++) {
        if (!job->part[k]) continue;
        l->shape[k] = shape_of(ctx, job, (fv_packed_kind)k);
        FV_TRY(fv_arena_alloc(ctx->room, fv_packed_bytes(&l->shape[k]), &l->data[k]));
    }
    job->state = l;
    return FV_OK;
}

fv_status fv_pack_layer_matrix(const fv_pack_context *ctx, const fv_pack_job *job,
                               fv_packed_kind kind, fv_tensor *m) {
    const fv_pack_layer *l = job->state;
    FV_TRY(gather(ctx, job, l, kind == FV_PACKED_V, m));
    return kind == FV_PACKED_K && l->anchored ? turn_back(ctx, l, *m) : FV_OK;
}

fv_status fv_pack_layer_fail(fv_status st, const fv_pack_job *job, fv_packed_kind kind) {
    return fv_fail_prefix(st, "%s %s of layer %d", job->seg == FV_SEG_TEXT ? "text" : "visual",
                          kind == FV_PACKED_K ? "keys" : "values", job->layer);
}

/* Whose keys the block reads, or whose directions. */
static int32_t leader_of(const fv_pack_context *ctx, const fv_pack_job *job) {
    if (job->first) return job->first->layer;
    bool own = !fv_kv_borrows(ctx->kv, job->layer, job->seg);
    return own ? job->layer : fv_kv_leader(ctx->kv, job->layer);
}

fv_status fv_pack_layer_end(const fv_pack_context *ctx, fv_pack_job *job) {
    const fv_pack_layer *l = job->state;
    bool ranked = job->seg == FV_SEG_VISUAL && fv_kv_ranked(ctx->kv, job->layer, 0);
    fv_kv_packed_form form = {.part = {l->shape[0], l->shape[1]},
                              .n = l->n,
                              .n_anchor = l->n_anchor,
                              .pos = l->pos,
                              .first = l->first,
                              .anchor = l->anchored ? l->anchor : NULL,
                              .rank = ranked ? l->row : NULL,
                              .leader = leader_of(ctx, job),
                              .seg = job->seg};
    fv_kv_packed *p;
    FV_TRY(fv_kv_pack(ctx->kv, job->layer, &form, &p));
    fv_device *dev = fv_kv_get_device(ctx->kv);
    for (int k = 0; k < 2; k++)
        if (l->data[k])
            FV_TRY(dev->ops->copy_async(dev, p->part[k].data, l->data[k],
                                        fv_packed_bytes(&l->shape[k])));
    return FV_OK;
}
