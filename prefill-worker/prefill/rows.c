/* Drops visual tokens between phases of a prefill, and gathers the residual stream of the others. For the
 * thread that owns the decoder. */
#include "prefill-worker/prefill/internal.h"

#include "model/net/lookahead.h"

fv_status fv_prefill_visual_rows(fv_prefill *p, int32_t b, int32_t **pos, int32_t *n) {
    const fv_prefill_rows *rows = &p->rows;
    const fv_prefill_request *req = &p->req[b];
    int32_t running = rows->first[b + 1] - rows->first[b];
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_kept[b] + running, *pos));
    *n = 0;
    for (int32_t i = 0; i < p->n_kept[b]; i++)
        if (req->seg[i] == FV_SEG_VISUAL) (*pos)[(*n)++] = i;
    for (int32_t r = rows->first[b]; r < rows->first[b + 1]; r++)
        if (rows->seg[r] == FV_SEG_VISUAL) (*pos)[(*n)++] = rows->pos[r];
    return FV_OK;
}

const fv_plan_edit *fv_prefill_edit_at(const fv_prefill *p, int32_t b, int32_t layer) {
    const fv_plan *plan = p->req[b].plan;
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        if (plan->prune.edit[e].layer == layer)
            return plan->prune.edit[e].by_data && p->visual[b].pruner.over ? NULL
                                                                           : &plan->prune.edit[e];
    return NULL;
}

/* Computes look-ahead attention of the last prompt token to visual tokens in `layer`, mean over heads. */
static fv_status lookahead(fv_prefill *p, int32_t b, int32_t layer) {
    const fv_prefill_rows *rows = &p->rows;
    int32_t first = rows->first[b], n = fv_prefill_prompt_end(p, b) - first;
    int32_t n_head = fv_decoder_config(p->dec)->n_head;
    float *mean, *at = p->visual[b].attention;
    fv_lookahead ask = {.layer = layer,
                        .x = fv_tensor_rows(rows->x, first, n),
                        .pos = rows->pos + first,
                        .rope_pos = rows->rope_pos + first,
                        .kv = p->req[b].kv};
    FV_TRY(FV_ARENA_NEW(&p->group, (size_t)n_head * (size_t)n, ask.p));
    FV_TRY(FV_ARENA_NEW(&p->group, n, mean));
    FV_TRY(fv_decoder_lookahead(p->dec, &ask));
    fv_prune_head_mean(ask.p, n_head, n, n, mean);
    for (int32_t r = 0; r < n; r++)
        if (rows->seg[first + r] == FV_SEG_VISUAL) *at++ = mean[r];
    return FV_OK;
}

/* Copies the hidden states of request b's visual tokens to the host. */
static fv_status bring_visual(fv_prefill *p, int32_t b, float **x) {
    const fv_prefill_rows *rows = &p->rows;
    fv_backend *be = fv_decoder_backend(p->dec);
    size_t d = (size_t)p->d;
    float *at;
    FV_TRY(FV_ARENA_NEW(&p->group, (size_t)p->visual[b].n * d, *x));
    at = *x;
    for (int32_t r = rows->first[b]; r < rows->first[b + 1]; r++) {
        if (rows->seg[r] != FV_SEG_VISUAL) continue;
        FV_TRY(be->device->ops->copy_async(be->device, at, fv_tensor_rows(rows->x, r, 1).data,
                                           d * sizeof *at));
        at += d;
    }
    return be->ops->sync(be);
}

/* The result of an edit: kept[n], followed by merged tokens. */
typedef struct edited {
    int32_t n, *kept;
    int32_t n_merged, *centre; /* [n_merged] the visual tokens whose places merged ones take */
    float *mean;               /* [n_merged, d] */
} edited;

static fv_status merge_rows(fv_prefill *p, const fv_prune_method *method,
                            const fv_prune_context *ctx, edited *e) {
    int32_t *group, *count;
    FV_TRY(FV_ARENA_NEW(&p->group, ctx->n_visual, group));
    FV_TRY(FV_ARENA_NEW(&p->group, ctx->merged, count));
    FV_TRY(FV_ARENA_NEW(&p->group, ctx->merged, e->centre));
    FV_TRY(FV_ARENA_NEW(&p->group, (size_t)ctx->merged * (size_t)ctx->d, e->mean));
    FV_TRY(method->merge(ctx, e->kept, group, e->centre));
    for (int32_t j = 0; j < ctx->n_visual; j++)
        if (group[j] >= 0) count[group[j]]++;
    for (int32_t j = 0; j < ctx->n_visual; j++)
        for (int32_t c = 0; c < ctx->d && group[j] >= 0; c++)
            e->mean[(ptrdiff_t)group[j] * ctx->d + c] +=
                ctx->x[(ptrdiff_t)j * ctx->d + c] / (float)count[group[j]];
    e->n_merged = ctx->merged;
    return FV_OK;
}

/* Chooses the visual tokens, at positions pos, that continue into the edit's layer. A phase ends before
 * that layer, so v->attention is of the layer before it. */
static fv_status edit_rows(fv_prefill *p, int32_t b, const fv_plan_edit *edit, const int32_t *pos,
                           edited *e) {
    const fv_plan *plan = p->req[b].plan;
    fv_prefill_visual *v = &p->visual[b];
    uint8_t capture = edit->layer > 0 ? plan->capture[edit->layer - 1] : 0;
    bool sums = edit->layer > 0 && fv_prefill_has_row_sums(p, b, edit->layer - 1);
    float *x = NULL;
    if (edit->lookahead) FV_TRY(lookahead(p, b, edit->layer));
    if (edit->merged) FV_TRY(bring_visual(p, b, &x));
    fv_prune_context ctx = {
        .params = &plan->params[FV_STAGE_PRUNE],
        .layer = edit->layer,
        .n_layer = plan->shape.n_layer,
        .n_visual = v->n,
        .pos = pos,
        .keep = edit->keep - edit->merged,
        .merged = edit->merged,
        .x = x,
        .d = p->d,
        .n_span = plan->shape.n_span,
        .span = plan->shape.span,
        .share = edit->share,
        .thresholds = plan->prune.thresholds,
        .thresholds_of = plan->prune.thresholds_of,
        .attention = edit->lookahead || capture & FV_CAPTURE_LAST_ROW ? v->attention : NULL,
        .sums = sums ? v->sums : NULL,
        .n_head = fv_decoder_config(p->dec)->n_head,
        .n_key = v->n_key,
        .l2 = capture & FV_CAPTURE_ABLATION ? v->l2 : NULL,
        .cos = capture & FV_CAPTURE_ABLATION ? v->cos : NULL};
    const fv_prune_method *method =
        fv_prune_method_of(plan->policy.stage[FV_STAGE_PRUNE].method->id);
    FV_TRY(method->keep(&ctx, &v->pruner, e->kept, &e->n));
    FV_TRY(fv_plan_check_kept(plan, FV_STAGE_PRUNE, e->n, ctx.keep, edit->by_data));
    return edit->merged ? merge_rows(p, method, &ctx, e) : FV_OK;
}

/* Adapts the plan of the layers from `layer` on, before which tokens were dropped by data. A lazy block
 * that goes on is cut, because layers share keys of the same tokens
 * only; and the layer in which the tokens were chosen ranks those that stay. */
static void adapt_plan(fv_prefill *p, int32_t b, int32_t layer) {
    const fv_plan *plan = p->req[b].plan;
    fv_kv *kv = p->req[b].kv;
    int32_t source_layer = fv_kv_source_layer(kv, layer);
    bool nothing = p->visual[b].n == 0 && !plan->share.text;
    for (int32_t l = layer; l < plan->shape.n_layer; l++) {
        if (nothing)
            fv_kv_borrow(kv, l, l, false);
        else if (source_layer < layer && fv_kv_source_layer(kv, l) == source_layer)
            fv_kv_borrow(kv, l, layer, plan->share.text);
        if (p->visual[b].rank_from[l] >= 0) p->visual[b].rank_from[l] = layer - 1;
    }
}

/* Masks the visual tokens at rows at[n] that an edit does not keep: they run separately. */
static fv_status mask_rows(fv_prefill *p, int32_t b, int32_t layer, const int32_t *at, int32_t n,
                           const edited *e) {
    int32_t *row, n_row = 0;
    FV_TRY(FV_ARENA_NEW(&p->group, n, row));
    for (int32_t v = 0, k = 0; v < n; v++) {
        if (k < e->n && e->kept[k] == v)
            k++;
        else
            row[n_row++] = at[v];
    }
    return fv_prefill_mask_rows(p, b, layer, row, n_row);
}

/* The rows of all requests that continue: row[n] of the current list, and new states of merged ones. */
typedef struct going {
    int32_t n, *row;
    const float **become; /* [n] a new row of the residual stream; NULL: unchanged */
} going;

static void add(going *to, int32_t row, const float *become) {
    to->row[to->n] = row;
    to->become[to->n++] = become;
}

/* Adds the tokens of request b that continue into `layer`. Merged tokens come after the last visual
 * token. */
static fv_status choose_rows(fv_prefill *p, int32_t b, int32_t layer, going *to) {
    const fv_prefill_rows *rows = &p->rows;
    const fv_plan_edit *edit = fv_prefill_edit_at(p, b, layer);
    int32_t first = rows->first[b], end = rows->first[b + 1], *pos, *at;
    edited e = {0};
    FV_TRY(fv_prefill_visual_rows(p, b, &pos, &e.n));
    FV_TRY(FV_ARENA_NEW(&p->arena, e.n, e.kept));
    FV_TRY(FV_ARENA_NEW(&p->group, e.n, at));
    for (int32_t i = 0; i < e.n; i++) e.kept[i] = i;
    if (edit) FV_TRY(edit_rows(p, b, edit, pos, &e));
    int32_t n_visual = p->visual[b].n;
    for (int32_t r = first, v = 0, k = 0; r < end; r++) {
        if (rows->seg[r] == FV_SEG_TEXT) {
            add(to, r, NULL);
            continue;
        }
        at[v] = r;
        if (k < e.n && e.kept[k] == v) {
            add(to, r, NULL);
            k++;
        }
        if (++v < n_visual) continue;
        for (int32_t i = 0; i < e.n_merged; i++)
            add(to, at[e.centre[i]], e.mean + (ptrdiff_t)i * p->d);
    }
    if (edit && edit->masks) FV_TRY(mask_rows(p, b, layer, at, n_visual, &e));
    p->visual[b].n = e.n + e.n_merged;
    if (edit && edit->by_data && e.n < n_visual) adapt_plan(p, b, layer);
    return FV_OK;
}

/* Renumbers the remaining rows consecutively up to the last one, which keeps its position, so that those of
 * the answer's tokens do not change; only distances matter. (The authors count from the first row.) Grid
 * positions stay, as the remaining tokens keep their places in the image. */
static void renumber(fv_prefill *p, int32_t b) {
    fv_prefill_rows *rows = &p->rows;
    int32_t end = rows->first[b + 1];
    if (!p->req[b].plan->prune.renumbers || p->req[b].rope_map.n_grid) return;
    for (int32_t r = rows->first[b]; r < end; r++) {
        int32_t at = rows->pos[end - 1] - (end - 1 - r);
        rows->rope_pos[r] = (fv_rope_pos){at, at, at};
    }
}

static fv_status gather_states(fv_prefill *p, const going *to) {
    fv_prefill_rows *rows = &p->rows;
    fv_backend *be = fv_decoder_backend(p->dec);
    fv_buf *other = rows->x.data == p->x[0].data ? &p->x[1] : &p->x[0];
    fv_index_select_args pick = {
        .table = rows->x, .y = fv_tensor_of(other->data, FV_F32, to->n, p->d), .ids = to->row};
    FV_TRY(be->ops->index_select(be, &pick));
    for (int32_t r = 0; r < to->n; r++)
        if (to->become[r])
            FV_TRY(be->device->ops->copy_async(be->device, fv_tensor_rows(pick.y, r, 1).data,
                                               to->become[r], (size_t)p->d * sizeof(float)));
    rows->x = pick.y;
    return FV_OK;
}

static fv_status gather_places(fv_prefill *p, const going *to) {
    fv_prefill_rows was = p->rows, *rows = &p->rows;
    FV_TRY(FV_ARENA_NEW(&p->arena, to->n, rows->pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, to->n, rows->rope_pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, to->n, rows->seg));
    for (int32_t r = 0; r < to->n; r++) {
        rows->pos[r] = was.pos[to->row[r]];
        rows->rope_pos[r] = was.rope_pos[to->row[r]];
        rows->seg[r] = was.seg[to->row[r]];
    }
    rows->n = to->n;
    return FV_OK;
}

fv_status fv_prefill_drop_rows(fv_prefill *p, int32_t layer) {
    fv_prefill_rows *rows = &p->rows;
    bool any = false;
    for (int32_t b = 0; b < p->n_req; b++) any |= fv_prefill_edit_at(p, b, layer) != NULL;
    if (!any) return FV_OK;
    int32_t *first;
    going to = {0};
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, to.row));
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, to.become));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req + 1, first));
    for (int32_t b = 0; b < p->n_req; b++) {
        FV_TRY(choose_rows(p, b, layer, &to));
        first[b + 1] = to.n;
    }
    FV_TRY(gather_states(p, &to));
    FV_TRY(gather_places(p, &to));
    rows->first = first;
    for (int32_t b = 0; b < p->n_req; b++) renumber(p, b);
    return FV_OK;
}

static bool merged_before(const fv_plan *plan, int32_t layer) {
    for (int32_t e = 0; e < plan->prune.n_edit && plan->prune.edit[e].layer <= layer; e++)
        if (plan->prune.edit[e].merged) return true;
    return false;
}

fv_status fv_prefill_mark_order(fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    int32_t n_kv = fv_decoder_config(p->dec)->n_kv, *rows;
    FV_TRY(FV_ARENA_NEW(&p->group, n_kv, rows));
    for (int32_t g = 0; g < n_kv; g++) rows[g] = p->visual[b].n;
    for (int32_t l = l0; l < l1; l++)
        if (merged_before(p->req[b].plan, l)) fv_kv_set_ranked(p->req[b].kv, l, rows);
    return FV_OK;
}
