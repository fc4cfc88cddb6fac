/* From a layer's rows to a packed block: see pack_layer.h. */
#include "prefill-worker/pack/pack_layer.h"

#include "model/net/row_matrix.h"

/* The block of a row, with positions counted from `base`. */
static int32_t block_of(int32_t pos, int32_t base, int32_t block) {
    return block > 0 ? (pos - base) / block : 0;
}

/* Orders tokens by anchor block; within a block as the store has them, which may be by rank. Blocks
 * without tokens are left out. */
static fv_status make_order(const fv_pack_context *ctx, const fv_pack_job *job, fv_pack_layer *o) {
    const int32_t *pos = fv_kv_positions(ctx->kv, job->layer, 0, job->seg);
    int32_t n = job->n, block = ctx->plan->pack.block;
    int32_t base = pos[0], last = pos[0], *at;
    for (int32_t j = 0; j < n; j++) {
        base = pos[j] < base ? pos[j] : base;
        last = pos[j] > last ? pos[j] : last;
    }
    int32_t n_block = block_of(last, base, block) + 1;
    *o = (fv_pack_layer){.n = n, .anchored = block > 0};
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, o->row));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, o->pos));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n + 1, o->first));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, o->anchor));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n_block + 1, at));
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
    o->rank = o->row; /* rows of a ranked layer are stored by rank */
    return FV_OK;
}

/* Expands anchors to one per row. */
static fv_status anchors(const fv_pack_layer *o, fv_arena *scratch, int32_t **out) {
    FV_TRY(FV_ARENA_NEW(scratch, o->n, *out));
    for (int32_t a = 0; a < o->n_anchor; a++)
        for (int32_t j = o->first[a]; j < o->first[a + 1]; j++) (*out)[j] = o->anchor[a];
    return FV_OK;
}

/* Whether packing still pays: the layer may have fewer rows than the plan knew. */
static bool worth_it(const fv_pack_context *ctx, const fv_pack_job *job) {
    const fv_plan_shape *s = &ctx->plan->shape;
    if (job->seg == FV_SEG_TEXT)
        return fv_text_keys_pack(&ctx->plan->pack.text_keys, job->n, s->n_kv * s->d_head);
    return fv_plan_packs(ctx->plan, job->layer, job->n);
}

static fv_packed_shape shape_of(const fv_pack_context *ctx, const fv_pack_job *job,
                                fv_packed_kind kind) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    if (job->seg == FV_SEG_TEXT)
        return fv_text_keys_shape(&ctx->plan->pack.text_keys, kind, job->n, s->n_kv, s->d_head,
                                  s->dtype);
    return fv_plan_packed_shape(ctx->plan, job->layer, kind, job->n, s->dtype);
}

fv_status fv_pack_layer_order(const fv_pack_context *ctx, const fv_pack_job *job,
                              fv_pack_layer **out) {
    *out = NULL;
    if (!worth_it(ctx, job)) return FV_OK;
    FV_TRY(FV_ARENA_NEW(ctx->scratch, 1, *out));
    return make_order(ctx, job, *out);
}

fv_status fv_pack_layer_begin(const fv_pack_context *ctx, fv_pack_job *job) {
    fv_pack_layer *l;
    FV_TRY(fv_pack_layer_order(ctx, job, &l));
    if (!l) return FV_OK;
    job->part[FV_PACKED_K] =
        !fv_kv_borrows(ctx->kv, job->layer, job->seg); /* or the source layer packs them */
    job->part[FV_PACKED_V] = true;
    for (int k = 0; k < 2; k++) {
        if (!job->part[k]) continue;
        l->shape[k] = shape_of(ctx, job, (fv_packed_kind)k);
        FV_TRY(fv_arena_alloc(ctx->scratch, fv_packed_bytes(&l->shape[k]), &l->data[k]));
    }
    job->state = l;
    return FV_OK;
}

fv_status fv_pack_layer_matrix(const fv_pack_context *ctx, const fv_pack_job *job,
                               fv_packed_kind kind, fv_tensor *m) {
    const fv_pack_layer *l = job->state;
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    fv_row_set rows = {.layer = job->layer,
                       .seg = job->seg,
                       .value = kind == FV_PACKED_V,
                       .n = l->n,
                       .row = l->row};
    int32_t *anchor;
    FV_TRY(fv_matrix_new(ctx->matrices, l->n, s->n_kv * s->d_head, m));
    FV_TRY(fv_rows_gather(ctx->kv, ctx->be, &rows, *m));
    if (kind == FV_PACKED_V || !l->anchored) return FV_OK;
    FV_TRY(anchors(l, ctx->scratch, &anchor));
    return fv_rows_rotate(ctx->matrices, ctx->rope, fv_kv_rope_map(ctx->kv), anchor, true, s->n_kv,
                          *m);
}

fv_status fv_pack_layer_fail(fv_status st, const fv_pack_job *job, fv_packed_kind kind) {
    return fv_fail_prefix(st, "%s %s of layer %d", job->seg == FV_SEG_TEXT ? "text" : "visual",
                          kind == FV_PACKED_K ? "keys" : "values", job->layer);
}

/* The layer whose keys or directions the block reads. */
static int32_t source_layer_of(const fv_pack_context *ctx, const fv_pack_job *job) {
    if (job->first) return job->first->layer;
    bool own = !fv_kv_borrows(ctx->kv, job->layer, job->seg);
    return own ? job->layer : fv_kv_source_layer(ctx->kv, job->layer);
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
                              .rank = ranked ? l->rank : NULL,
                              .source_layer = source_layer_of(ctx, job),
                              .seg = job->seg};
    fv_kv_packed *p;
    FV_TRY(fv_kv_pack(ctx->kv, job->layer, &form, &p));
    fv_device *dev = fv_kv_get_device(ctx->kv);
    for (int k = 0; k < 2; k++)
        if (l->data[k])
            FV_TRY(dev->ops->copy_async(dev, p->part[k].data, l->data[k],
                                        fv_packed_sent_bytes(&l->shape[k])));
    return FV_OK;
}
