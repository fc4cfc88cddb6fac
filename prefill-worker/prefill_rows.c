/* Between phases of a prefill visual rows leave: which, and the residual stream without them. The
 * thread that owns the decoder. */
#include "prefill-worker/prefill_internal.h"

/* Image rows of request b that are still running: their positions, in memory of the run. */
fv_status fv_prefill_visual_rows(fv_prefill *p, int32_t b, int32_t **pos, int32_t *n) {
    const fv_prefill_rows *rows = &p->rows;
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->first[b + 1] - rows->first[b], *pos));
    *n = 0;
    for (int32_t r = rows->first[b]; r < rows->first[b + 1]; r++)
        if (rows->seg[r] == FV_SEG_VISUAL) (*pos)[(*n)++] = rows->pos[r];
    return FV_OK;
}

/* The edit before `layer`, unless its method has nothing more to decide. */
const fv_plan_edit *fv_prefill_edit_at(const fv_prefill *p, int32_t b, int32_t layer) {
    const fv_plan *plan = p->req[b].plan;
    for (int32_t e = 0; e < plan->n_edit; e++)
        if (plan->edit[e].layer == layer)
            return plan->edit[e].by_data && p->visual[b].pruner.over ? NULL : &plan->edit[e];
    return NULL;
}

/* Which of n visual rows, at pos[n], go on into the edit's layer. Phases end where rows leave, so
 * the last layer of a phase is the last that was tapped. */
static fv_status edit_rows(fv_prefill *p, int32_t b, const fv_plan_edit *edit, const int32_t *pos,
                           int32_t *kept, int32_t *n_kept) {
    const fv_plan *plan = p->req[b].plan;
    fv_prefill_visual *v = &p->visual[b];
    uint8_t tap = edit->layer > 0 ? plan->tap[edit->layer - 1] : 0;
    fv_prune_context ctx = {.choice = &plan->policy.stage[FV_STAGE_PRUNE],
                            .layer = edit->layer,
                            .n_layer = plan->shape.n_layer,
                            .n_visual = v->n,
                            .pos = pos,
                            .keep = edit->keep,
                            .n_image = plan->shape.n_image,
                            .attention = tap & FV_TAP_LAST_ROW ? v->attention : NULL,
                            .l2 = tap & FV_TAP_INFLUENCE ? v->l2 : NULL,
                            .cos = tap & FV_TAP_INFLUENCE ? v->cos : NULL};
    const fv_prune_method *method = fv_prune_find(ctx.choice->method->name);
    *n_kept = edit->keep;
    return edit->by_data ? method->decide(&ctx, &v->pruner, kept, n_kept)
                         : method->keep(&ctx, kept);
}

/* Rows have left before `layer`, as data said: what was planned for these layers while nobody knew
 * that. A lazy block that goes on is cut, as layers share keys of the same rows only; and the layer
 * in which the rows were chosen ranks those that stay. */
static void cut_plan(fv_prefill *p, int32_t b, int32_t layer) {
    const fv_plan *plan = p->req[b].plan;
    fv_kv *kv = p->req[b].kv;
    int32_t leader = fv_kv_leader(kv, layer);
    bool nothing = p->visual[b].n == 0 && !plan->lent_text;
    for (int32_t l = layer; l < plan->shape.n_layer; l++) {
        if (nothing)
            fv_kv_borrow(kv, l, l, false);
        else if (leader < layer && fv_kv_leader(kv, l) == leader)
            fv_kv_borrow(kv, l, layer, plan->lent_text);
        if (p->visual[b].rank_from[l] >= 0) p->visual[b].rank_from[l] = layer - 1;
    }
}

/* Appends to stay[] the rows of request b that go on into `layer`. */
static fv_status choose_rows(fv_prefill *p, int32_t b, int32_t layer, int32_t *stay, int32_t *n) {
    const fv_prefill_rows *rows = &p->rows;
    const fv_plan_edit *edit = fv_prefill_edit_at(p, b, layer);
    int32_t first = rows->first[b], end = rows->first[b + 1], keep;
    int32_t *pos, *kept;
    FV_TRY(fv_prefill_visual_rows(p, b, &pos, &keep));
    FV_TRY(FV_ARENA_NEW(&p->arena, keep, kept));
    for (int32_t i = 0; i < keep; i++) kept[i] = i;
    if (edit) FV_TRY(edit_rows(p, b, edit, pos, kept, &keep));
    bool by_data = edit && edit->by_data && keep < p->visual[b].n;
    p->visual[b].n = keep;
    if (by_data) cut_plan(p, b, layer);
    for (int32_t r = first, v = 0, k = 0; r < end; r++) {
        if (rows->seg[r] == FV_SEG_VISUAL) {
            bool goes_on = k < keep && kept[k] == v++;
            if (!goes_on) continue;
            k++;
        }
        stay[(*n)++] = r;
    }
    return FV_OK;
}

fv_status fv_prefill_drop_rows(fv_prefill *p, int32_t layer) {
    fv_prefill_rows *rows = &p->rows;
    bool any = false;
    for (int32_t b = 0; b < p->n_req; b++) any |= fv_prefill_edit_at(p, b, layer) != NULL;
    if (!any) return FV_OK;
    int32_t n = 0, *stay, *first;
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, stay));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req + 1, first));
    for (int32_t b = 0; b < p->n_req; b++) {
        FV_TRY(choose_rows(p, b, layer, stay, &n));
        first[b + 1] = n;
    }
    fv_buf *to = rows->x.data == p->x[0].data ? &p->x[1] : &p->x[0];
    fv_gather_args gather = {
        .table = rows->x, .y = fv_tensor_of(to->data, FV_F32, n, p->d), .ids = stay};
    fv_backend *be = fv_decoder_backend(p->dec);
    FV_TRY(be->ops->gather(be, &gather));
    for (int32_t r = 0; r < n; r++) {
        rows->pos[r] = rows->pos[stay[r]];
        rows->seg[r] = rows->seg[stay[r]];
    }
    rows->n = n;
    rows->first = first;
    rows->x = gather.y;
    return FV_OK;
}
