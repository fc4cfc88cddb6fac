/* Captures attention of the prompt's last tokens: requests captures from the decoder chunk by chunk, and
 * converts them to the scores that the stages choose by. For the thread that owns the decoder. */
#include "prefill-worker/prefill/internal.h"

#include "prefill-worker/prefill/ablation.h"
#include "prefill-worker/prefill/rank.h"

static bool wants_ablation(const fv_prefill *p, int32_t b, int32_t layer) {
    return p->req[b].plan->capture[layer] & FV_CAPTURE_ABLATION && !p->visual[b].pruner.over;
}

static bool wants_capture(const fv_prefill *p, int32_t b, int32_t layer) {
    const fv_prefill_request *req = &p->req[b];
    return req->attention || req->visual_mass || req->plan->capture[layer] & FV_CAPTURE_LAST_ROW ||
           wants_ablation(p, b, layer);
}

/* Whether the select stage needs the layer's attention. A layer that borrows all keys has its source
 * layer's attention, and most methods capture only the source layer of a block. */
static bool wants_window(const fv_prefill *p, int32_t b, int32_t layer) {
    bool each = p->req[b].plan->select.window.by_segment;
    return fv_select_needs_attention(p->req[b].plan, layer) &&
           !fv_kv_borrows(p->req[b].kv, layer, each ? FV_SEG_TEXT : FV_SEG_VISUAL);
}

bool fv_prefill_captures_any(const fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    for (int32_t l = l0; l < l1; l++)
        if (wants_capture(p, b, l) || wants_window(p, b, l) || p->req[b].plan->evict.accum_tokens ||
            fv_prefill_has_row_sums(p, b, l))
            return true;
    return false;
}

int32_t fv_prefill_prompt_end(const fv_prefill *p, int32_t b) {
    return p->rows.first[b + 1] - (p->req[b].n_answer - fv_prefill_n_deferred(&p->req[b]));
}

/* Number of the prompt's rows that are running, or were kept: the keys that its last row sees. */
static int32_t prompt_keys(const fv_prefill *p, int32_t b) {
    return p->n_kept[b] + fv_prefill_prompt_end(p, b) - p->rows.first[b];
}

/* Counts those of the last `rows` prompt rows of request b that are in [a, e). */
static int32_t window_rows(const fv_prefill *p, int32_t b, int32_t rows, int32_t a, int32_t e) {
    int32_t end = fv_prefill_prompt_end(p, b), first = end - rows;
    if (first < a) first = a;
    if (e > end) e = end;
    return e > first ? e - first : 0;
}

/* Whether `layer` is inside some request's block, whose sums are needed at the block's end. Phases of other
 * requests can cut a block. */
static bool any_open_block(const fv_prefill *p, int32_t layer) {
    for (int32_t b = 0; b < p->n_req; b++)
        if (p->layers_done[b] < layer) return true;
    return false;
}

/* Allocates sums [H, n_kind, n_key] of one layer. */
static fv_status open_sums_at(fv_prefill *p, int32_t b, int32_t n_kind, fv_select_sums *s) {
    int32_t n_head = fv_decoder_config(p->dec)->n_head;
    *s = (fv_select_sums){
        .n_head = n_head, .n_kind = n_kind, .text = p->visual[b].n, .n_key = prompt_keys(p, b)};
    return FV_ARENA_NEW(&p->group, (size_t)(n_head * n_kind) * (size_t)s->n_key, s->p);
}

static fv_status open_sums_of(fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    const fv_plan *plan = p->req[b].plan;
    for (int32_t l = l0; l < l1; l++) {
        int32_t n_kind = plan->select.window.by_segment ? FV_N_SEG : 1;
        if (wants_window(p, b, l)) FV_TRY(open_sums_at(p, b, n_kind, &p->sums[b][l]));
        if (plan->evict.accum_tokens) FV_TRY(open_sums_at(p, b, 1, &p->accums[b][l]));
        if (fv_prefill_has_row_sums(p, b, l)) FV_TRY(fv_prefill_open_row_sums(p, b, l));
    }
    return FV_OK;
}

fv_status fv_prefill_open_sums(fv_prefill *p, int32_t l0, int32_t l1) {
    if (!any_open_block(p, l0)) {
        fv_arena_reset(&p->group);
        FV_TRY(FV_ARENA_NEW(&p->group, p->n_req, p->sums));
        FV_TRY(FV_ARENA_NEW(&p->group, p->n_req, p->accums));
        for (int32_t b = 0; b < p->n_req; b++) {
            FV_TRY(FV_ARENA_NEW(&p->group, fv_decoder_config(p->dec)->n_layer, p->sums[b]));
            FV_TRY(FV_ARENA_NEW(&p->group, fv_decoder_config(p->dec)->n_layer, p->accums[b]));
        }
    }
    for (int32_t b = 0; b < p->n_req; b++) FV_TRY(open_sums_of(p, b, l0, l1));
    return FV_OK;
}

/* Makes the capture of a window in one layer, which adds to the sums. */
static fv_forward_capture window_capture(const fv_prefill *p, int32_t b, int32_t l, int32_t n_row) {
    const fv_select_sums *s = &p->sums[b][l];
    return (fv_forward_capture){.layer = l,
                                .n_row = n_row,
                                .n = p->req[b].plan->select.window.n,
                                .by_segment = s->n_kind > 1,
                                .text = s->text,
                                .n_key = s->n_key,
                                .p = s->p};
}

static fv_forward_capture accum_capture(const fv_prefill *p, int32_t b, int32_t l, int32_t n_row) {
    const fv_select_sums *s = &p->accums[b][l];
    return (fv_forward_capture){.layer = l,
                                .n_row = n_row,
                                .low = p->req[b].plan->evict.accum.kind == FV_ACCUM_LOW,
                                .text = s->text,
                                .n_key = s->n_key,
                                .p = s->p};
}

static fv_status last_row_capture(fv_prefill *p, int32_t b, int32_t l,
                                  fv_forward_capture *capture) {
    const fv_text_config *cfg = fv_decoder_config(p->dec);
    size_t n_head = (size_t)cfg->n_head;
    *capture = (fv_forward_capture){
        .layer = l, .n_row = 1, .text = p->visual[b].n, .n_key = prompt_keys(p, b)};
    if (wants_ablation(p, b, l))
        FV_TRY(FV_ARENA_NEW(&p->arena, n_head * (size_t)cfg->d_head, capture->o));
    return FV_ARENA_NEW(&p->arena, n_head * (size_t)capture->n_key, capture->p);
}

fv_status fv_prefill_ask_captures(fv_prefill *p, int32_t b, int32_t l0, int32_t l1, int32_t a,
                                  int32_t e, fv_forward_seq *seq, int32_t *n_last) {
    const fv_plan *plan = p->req[b].plan;
    int32_t n_row = window_rows(p, b, plan->select.window.rows, a, e);
    int32_t n_accum = window_rows(p, b, plan->evict.accum_tokens, a, e);
    fv_forward_capture *capture;
    FV_TRY(FV_ARENA_NEW(&p->arena, 4 * (l1 - l0), capture));
    for (int32_t l = l0; l < l1 && e == fv_prefill_prompt_end(p, b); l++)
        if (wants_capture(p, b, l)) FV_TRY(last_row_capture(p, b, l, &capture[seq->n_capture++]));
    *n_last = seq->n_capture;
    for (int32_t l = l0; l < l1 && n_row > 0; l++)
        if (wants_window(p, b, l)) capture[seq->n_capture++] = window_capture(p, b, l, n_row);
    for (int32_t l = l0; l < l1 && n_accum > 0; l++)
        capture[seq->n_capture++] = accum_capture(p, b, l, n_accum);
    for (int32_t l = l0; l < l1; l++) {
        if (!fv_prefill_has_row_sums(p, b, l)) continue;
        FV_TRY(fv_prefill_row_sums_capture(p, b, l, a, e, &capture[seq->n_capture]));
        seq->n_capture += capture[seq->n_capture].n_row > 0;
    }
    seq->capture = capture;
    return FV_OK;
}

static fv_status keep_attention(fv_prefill *p, int32_t b, int32_t layer) {
    int32_t *pos, n;
    FV_TRY(fv_prefill_visual_rows(p, b, &pos, &n));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->req[b].n, p->attention[b][layer]));
    for (int32_t j = 0; j < n; j++) p->attention[b][layer][pos[j]] = p->visual[b].attention[j];
    return FV_OK;
}

static fv_status report_ranked(fv_prefill *p, int32_t b, int32_t layer) {
    const fv_prefill_request *req = &p->req[b];
    int32_t *pos, n;
    if (!(req->plan->capture[layer] & FV_CAPTURE_LAST_ROW)) return FV_OK;
    if (req->plan->pack.observed || req->plan->evict.share) FV_TRY(keep_attention(p, b, layer));
    if (!req->ranked) return FV_OK;
    FV_TRY(fv_prefill_visual_rows(p, b, &pos, &n));
    return req->ranked(req->ranked_user, layer, p->visual[b].attention, pos, n);
}

/* Measures ablation scores before any token is dropped from the layer's store. */
static fv_status measure_ablation(fv_prefill *p, int32_t b, const fv_forward_capture *capture) {
    fv_ablation_args a = {.be = fv_decoder_backend(p->dec),
                          .kv = p->req[b].kv,
                          .layer = capture->layer,
                          .n_head = fv_decoder_config(p->dec)->n_head,
                          .a = capture->p,
                          .ld = capture->n_key,
                          .o = capture->o};
    const fv_prefill_visual *v = &p->visual[b];
    if (!capture->o) return FV_OK;
    FV_TRY(fv_ablation(&a, &p->group, v->l2, v->cos));
    const fv_prefill_request *req = &p->req[b];
    if (!req->ablation) return FV_OK;
    return req->ablation(req->ablation_user, capture->layer, v->l2, v->cos, v->n);
}

fv_status fv_prefill_read_captures(fv_prefill *p, int32_t b, const fv_forward_seq *seq, int32_t n) {
    const fv_prefill_request *req = &p->req[b];
    fv_backend *be = fv_decoder_backend(p->dec);
    int32_t n_head = fv_decoder_config(p->dec)->n_head;
    if (n == 0) return FV_OK;
    fv_prefill_visual *v = &p->visual[b];
    FV_TRY(be->ops->sync(be));
    for (int32_t i = 0; i < n; i++) {
        const fv_forward_capture *capture = &seq->capture[i];
        fv_prune_head_mean(capture->p, n_head, capture->n_key, v->n, v->attention);
        FV_TRY(measure_ablation(p, b, capture));
        FV_TRY(report_ranked(p, b, capture->layer));
        if (req->attention)
            fv_prune_head_mean(capture->p, n_head, capture->n_key, capture->n_key,
                               req->attention + (size_t)capture->layer * (size_t)req->n);
        if (!req->visual_mass) continue;
        double mass = 0;
        for (int32_t j = 0; j < v->n; j++) mass += (double)v->attention[j];
        req->visual_mass[capture->layer] = (float)mass;
    }
    return FV_OK;
}
