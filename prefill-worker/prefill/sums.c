/* Captures sums over many tokens of the prompt for the prune stage (FV_CAPTURE in methods.def). A
 * captured layer is the last of its group, because tokens are dropped after it. For the thread that
 * owns the decoder. */
#include "prefill-worker/prefill/internal.h"

#include "prefill-worker/prefill/scorers.h"

/* A row FV_CAPTURE of methods.def. */
typedef struct row_sums {
    uint8_t flag;
    enum { ALL, AFTER } rows;
    enum { SUM, LOW, HEAD_MAX } reads;
} row_sums;

static const row_sums table[] = {
#define FV_CAPTURE(name, rows, reads, meaning) {FV_CAPTURE_##name, rows, reads},
#include "policy/methods.def"
};

_Static_assert(8 << FV_N_CAPTURE_ROW <= 256, "flags are a byte (fv_plan.capture)");

/* The capture of the layer, or NULL. An observer of head-max scores gets all layers. */
static const row_sums *sums_of(const fv_prefill *p, int32_t b, int32_t layer) {
    int flags = p->req[b].plan->capture[layer] | (p->req[b].head_max ? FV_CAPTURE_HEAD_MAX : 0);
    for (int i = 0; i < FV_N_CAPTURE_ROW; i++)
        if (flags & table[i].flag) return &table[i];
    return NULL;
}

bool fv_prefill_has_row_sums(const fv_prefill *p, int32_t b, int32_t layer) {
    return sums_of(p, b, layer) != NULL;
}

fv_status fv_prefill_report_head_max(const fv_prefill *p, int32_t b, int32_t layer) {
    const fv_prefill_request *req = &p->req[b];
    const fv_prefill_visual *v = &p->visual[b];
    if (!req->head_max) return FV_OK;
    return req->head_max(req->head_max_user, layer, v->sums + (ptrdiff_t)FV_SEG_TEXT * v->n_key,
                         v->sums + (ptrdiff_t)FV_SEG_VISUAL * v->n_key, v->n);
}

/* ---- scorers ---------------------------------------------------------------------------- */

/* Computes dot [n, n_text] of visual tokens [r, r + n) and the text tokens after the images. */
static fv_status dot_span(fv_prefill *p, int32_t r, int32_t n, fv_tensor text, float *dot) {
    fv_backend *be = fv_decoder_backend(p->dec);
    size_t bytes = (size_t)n * (size_t)text.rows * sizeof *dot;
    fv_buf y;
    FV_TRY(fv_buf_alloc(be->device, bytes, FV_BUF_DEVICE, &y));
    fv_linear_args a = {.x = fv_tensor_rows(p->rows.x, r, n),
                        .n_part = 1,
                        .part = {{text, {0}, fv_tensor_of(y.data, FV_F32, n, text.rows), false}}};
    fv_status st = be->ops->linear(be, &a);
    if (st == FV_OK) st = be->device->ops->copy_async(be->device, dot, y.data, bytes);
    if (st == FV_OK) st = be->ops->sync(be);
    fv_buf_free(&y);
    return st;
}

static bool asks_scorers(const fv_plan *plan) {
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        if (plan->capture[l] & FV_CAPTURE_SCORERS) return true;
    return false;
}

fv_status fv_prefill_find_scorers(fv_prefill *p, int32_t b) {
    const fv_prefill_rows *rows = &p->rows;
    fv_prefill_visual *v = &p->visual[b];
    int32_t first = rows->first[b], end = fv_prefill_prompt_end(p, b), after = end;
    float *dot;
    double *m;
    while (after > first && rows->seg[after - 1] == FV_SEG_TEXT) after--;
    v->n_after = end - after;
    if (!asks_scorers(p->req[b].plan)) return FV_OK;
    fv_tensor text = fv_tensor_rows(rows->x, after, v->n_after);
    FV_TRY(FV_ARENA_NEW(&p->arena, v->n_after, v->scorer));
    FV_TRY(FV_ARENA_NEW(&p->group, v->n_after, m));
    FV_TRY(FV_ARENA_NEW(&p->group, (size_t)v->n * (size_t)v->n_after, dot));
    for (int32_t r = first, at = 0, n; r < after; r += n) {
        for (n = 1; r + n < after && rows->seg[r + n] == rows->seg[r]; n++) {
        }
        if (rows->seg[r] == FV_SEG_TEXT) continue;
        FV_TRY(dot_span(p, r, n, text, dot + (size_t)at * (size_t)v->n_after));
        at += n;
    }
    v->n_scorer = fv_scorers_choose(dot, v->n, v->n_after, m, v->scorer);
    return FV_OK;
}

/* Sets the weights of scorer r of request b for visual tokens: 1 / number of scorers, with `turned`
 * divided by the score that rotation alone would give. */
static fv_status weigh_row(fv_prefill *p, int32_t b, int32_t r, bool turned, float *weight) {
    const fv_prefill_rows *rows = &p->rows;
    const fv_prefill_visual *v = &p->visual[b];
    int32_t first = rows->first[b], n = r - first + 1;
    double *turn;
    FV_TRY(FV_ARENA_NEW(&p->group, n, turn));
    for (int32_t i = 0; i < n; i++) turn[i] = 1;
    if (turned) fv_scorers_rope(&p->rope, rows->rope_pos + first, n, turn);
    for (int32_t i = 0, j = 0; i < n; i++)
        if (rows->seg[first + i] == FV_SEG_VISUAL)
            weight[j++] = turn[i] != 0 ? (float)(1 / (turn[i] * v->n_scorer)) : 0;
    return FV_OK;
}

/* ---- captures ------------------------------------------------------------------------------- */

fv_status fv_prefill_open_row_sums(fv_prefill *p, int32_t b, int32_t layer) {
    fv_prefill_visual *v = &p->visual[b];
    bool head_max = sums_of(p, b, layer)->reads == HEAD_MAX;
    int32_t lines = head_max ? FV_N_SEG : fv_decoder_config(p->dec)->n_head;
    v->n_key = fv_prefill_prompt_end(p, b) - p->rows.first[b];
    return FV_ARENA_NEW(&p->group, (size_t)lines * (size_t)v->n_key, v->sums);
}

/* Makes the weights of tokens [a, e), text after the images. */
static fv_status weigh_rows(fv_prefill *p, int32_t b, int32_t layer, int32_t a, int32_t e,
                            const float **out) {
    const fv_prefill_visual *v = &p->visual[b];
    int32_t after = fv_prefill_prompt_end(p, b) - v->n_after;
    bool turned = p->req[b].plan->capture[layer] & FV_CAPTURE_UNROTATED;
    float *weight;
    FV_TRY(FV_ARENA_NEW(&p->group, (size_t)(e - a) * (size_t)v->n_key, weight));
    for (int32_t r = a; r < e; r++)
        if (v->scorer[r - after])
            FV_TRY(weigh_row(p, b, r, turned, weight + (size_t)(r - a) * (size_t)v->n_key));
    *out = weight;
    return FV_OK;
}

fv_status fv_prefill_row_sums_capture(fv_prefill *p, int32_t b, int32_t layer, int32_t a, int32_t e,
                                      fv_forward_capture *capture) {
    const fv_prefill_visual *v = &p->visual[b];
    const row_sums *sums = sums_of(p, b, layer);
    int32_t end = fv_prefill_prompt_end(p, b), after = end - v->n_after;
    if (e > end) e = end;
    if (sums->rows == AFTER && a < after) a = after;
    *capture = (fv_forward_capture){.layer = layer,
                                    .n_row = e > a ? e - a : 0,
                                    .low = sums->reads == LOW,
                                    .by_segment = sums->reads == HEAD_MAX,
                                    .head_max = sums->reads == HEAD_MAX,
                                    .text = v->n,
                                    .n_key = v->n_key,
                                    .p = v->sums};
    if (sums->flag != FV_CAPTURE_SCORERS || e <= a) return FV_OK;
    return weigh_rows(p, b, layer, a, e, &capture->weight);
}
