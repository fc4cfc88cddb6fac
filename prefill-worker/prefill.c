/* The prefill loop: embed, then per phase drop rows, and per group of layers run chunks and select.
 * The thread that owns the decoder. */
#include "prefill-worker/prefill.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "model/net/expand.h"
#include "model/net/step.h"
#include "policy/plan/attention.h"
#include "prefill-worker/influence.h"
#include "prefill-worker/mask.h"
#include "prefill-worker/prune.h"
#include "prefill-worker/rank.h"
#include "prefill-worker/select.h"

/* All rows of the batch that are still running: request after request, positions ascending. */
typedef struct row_list {
    int32_t n;
    int32_t *first; /* [n_req + 1] where each request's rows start */
    int32_t *pos;   /* [n] */
    uint8_t *seg;   /* [n] */
    fv_tensor x;    /* [n, d] residual stream */
} row_list;

/* The visual rows of a request, as far as it has come. */
typedef struct visual_rows {
    int32_t n;             /* that are still running */
    int32_t first;         /* position of the prompt's first; behind the prompt when it has none */
    float *attention;      /* [n] in a tapped layer, the last row's, mean over heads */
    float *l2, *cos;       /* [n] their influence there */
    fv_prune_state pruner; /* of a method that decides by data */
} visual_rows;

typedef struct prefill {
    fv_decoder *dec;
    const fv_prefill_request *req;
    const fv_prefill_options *opt;
    int32_t n_req, d;
    fv_buf x[2]; /* the residual stream, and the one that rows are gathered into */
    row_list rows;
    fv_buf last;         /* [n_req, d] hidden states behind the last rows */
    visual_rows *visual; /* [n_req] */
    /* [n_req] [N] what rows are ranked by, and importance begins with, by position */
    float ***paid;
    fv_buf *queries;       /* [n_req] of blocks that phases of others cut: [rows, H D] */
    int32_t *settled;      /* [n_req] layers that are done and in no open block */
    fv_select_sums **sums; /* [n_req] [N] what the select stage chooses by: of the group */
    fv_rope rope;
    int32_t n_final; /* layers that were said to be final */
    fv_arena arena;
    fv_arena group; /* what a group of layers leaves for its end */
} prefill;

static fv_tensor matrix(const fv_buf *buf, int32_t rows, int32_t d) {
    return fv_tensor_of(buf->data, FV_F32, rows, d);
}

/* ---- lazy blocks ----------------------------------------------------------------------- */

/* Whether a block of request b lies on both sides of `layer`. */
static bool cuts_block(const prefill *p, int32_t b, int32_t layer) {
    return p->req[b].plan->leader[layer] != layer;
}

static void borrow_keys(const fv_prefill_request *req, int32_t n_layer) {
    for (int32_t l = 0; l < n_layer; l++)
        if (req->plan->leader[l] != l)
            fv_kv_borrow(req->kv, l, req->plan->leader[l], req->plan->lent_text);
}

/* Layers below `layer`, but for those of a block that goes on. */
static int32_t settled_of(const prefill *p, int32_t b, int32_t layer) {
    return layer < fv_decoder_config(p->dec)->n_layer ? p->req[b].plan->leader[layer] : layer;
}

/* The same for all requests. */
static int32_t settled_below(const prefill *p, int32_t layer) {
    int32_t n = layer;
    for (int32_t b = 0; b < p->n_req; b++)
        if (settled_of(p, b, layer) < n) n = settled_of(p, b, layer);
    return n;
}

/* ---- start: every row's embedding ------------------------------------------------------ */

/* Rows of an answer that is taken up again run behind the prompt, as they did the first time, if
 * what they saw was not what the prompt's rows see: factors, or fewer rows from token to token. */
static int32_t rows_behind(const fv_prefill_request *req) {
    const fv_plan *plan = req->plan;
    bool behind = plan->evict || plan->packs || plan->select || plan->decode_n > 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) behind |= plan->forget[l];
    return behind ? req->n_answer : 0;
}

static fv_status embed_request(prefill *p, const fv_prefill_request *req, fv_tensor x) {
    fv_device *dev = fv_decoder_backend(p->dec)->device;
    int32_t visual = 0, n = x.rows;
    for (int32_t r = 0, end; r < n; r = end) {
        for (end = r + 1; end < n && req->seg[end] == req->seg[r]; end++) {
        }
        fv_tensor y = fv_tensor_rows(x, r, end - r);
        if (req->seg[r] == FV_SEG_TEXT) {
            FV_TRY(fv_decoder_embed(p->dec, req->ids + r, end - r, y));
        } else {
            fv_tensor rows = fv_tensor_rows(req->embeds, visual, end - r);
            FV_TRY(dev->ops->copy_async(dev, y.data, rows.data,
                                        (size_t)(end - r) * (size_t)p->d * sizeof(float)));
            visual += end - r;
        }
    }
    assert(visual == req->embeds.rows);
    return FV_OK;
}

static fv_status start_visual(prefill *p, int32_t b) {
    const fv_prefill_request *req = &p->req[b];
    visual_rows *v = &p->visual[b];
    v->n = req->embeds.rows;
    while (v->first < req->n && req->seg[v->first] != FV_SEG_VISUAL) v->first++;
    FV_TRY(FV_ARENA_NEW(&p->arena, v->n, v->attention));
    FV_TRY(FV_ARENA_NEW(&p->arena, v->n, v->l2));
    return FV_ARENA_NEW(&p->arena, v->n, v->cos);
}

static fv_status start(prefill *p) {
    row_list *rows = &p->rows;
    int32_t n_layer = fv_decoder_config(p->dec)->n_layer;
    for (int32_t b = 0; b < p->n_req; b++) rows->n += p->req[b].n - rows_behind(&p->req[b]);
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->paid));
    for (int32_t b = 0; b < p->n_req; b++) FV_TRY(FV_ARENA_NEW(&p->arena, n_layer, p->paid[b]));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->visual));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->queries));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->settled));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req + 1, rows->first));
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, rows->pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, rows->seg));
    fv_device *dev = fv_decoder_backend(p->dec)->device;
    size_t bytes = (size_t)rows->n * (size_t)p->d * sizeof(float);
    bool drops = false;
    for (int32_t b = 0; b < p->n_req; b++) drops |= p->req[b].plan->n_edit > 0;
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &p->x[0]));
    if (drops) FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &p->x[1]));
    FV_TRY(fv_buf_alloc(dev, (size_t)p->n_req * (size_t)p->d * sizeof(float), FV_BUF_DEVICE,
                        &p->last));
    rows->x = matrix(&p->x[0], rows->n, p->d);
    for (int32_t b = 0; b < p->n_req; b++)
        borrow_keys(&p->req[b], fv_decoder_config(p->dec)->n_layer);
    for (int32_t b = 0, at = 0; b < p->n_req; at = rows->first[++b]) {
        const fv_prefill_request *req = &p->req[b];
        int32_t n = req->n - rows_behind(req);
        FV_TRY(embed_request(p, req, fv_tensor_rows(rows->x, at, n)));
        for (int32_t r = 0; r < n; r++) {
            rows->pos[at + r] = r;
            rows->seg[at + r] = req->seg[r];
        }
        rows->first[b + 1] = at + n;
        FV_TRY(start_visual(p, b));
    }
    return FV_OK;
}

/* ---- taps: what the last rows of a prompt attend to ------------------------------------- */

static bool wants_influence(const prefill *p, int32_t b, int32_t layer) {
    return p->req[b].plan->tap[layer] & FV_TAP_INFLUENCE && !p->visual[b].pruner.over;
}

static bool wants_tap(const prefill *p, int32_t b, int32_t layer) {
    const fv_prefill_request *req = &p->req[b];
    return req->attention || req->visual_mass || req->plan->tap[layer] & FV_TAP_LAST_ROW ||
           wants_influence(p, b, layer);
}

static bool taps_any(const prefill *p, int32_t b, int32_t l0, int32_t l1) {
    for (int32_t l = l0; l < l1; l++)
        if (wants_tap(p, b, l) || fv_select_asks(p->req[b].plan, l)) return true;
    return false;
}

/* Behind the prompt's last row of request b. Rows that leave are all before it. */
static int32_t prompt_end(const prefill *p, int32_t b) {
    return p->rows.first[b + 1] - (p->req[b].n_answer - rows_behind(&p->req[b]));
}

/* The rows of the window that the select stage looks through, of those in [a, e) of request b. */
static int32_t window_rows(const prefill *p, int32_t b, int32_t a, int32_t e) {
    int32_t end = prompt_end(p, b), first = end - p->req[b].plan->window.rows;
    if (first < a) first = a;
    if (e > end) e = end;
    return e > first ? e - first : 0;
}

/* Room for the sums of layers [l0, l1) that the select stage asks for. */
static fv_status open_sums(prefill *p, int32_t l0, int32_t l1) {
    int32_t n_head = fv_decoder_config(p->dec)->n_head;
    fv_arena_reset(&p->group);
    FV_TRY(FV_ARENA_NEW(&p->group, p->n_req, p->sums));
    for (int32_t b = 0; b < p->n_req; b++) {
        FV_TRY(FV_ARENA_NEW(&p->group, fv_decoder_config(p->dec)->n_layer, p->sums[b]));
        for (int32_t l = l0; l < l1; l++) {
            if (!fv_select_asks(p->req[b].plan, l)) continue;
            fv_select_sums *s = &p->sums[b][l];
            *s = (fv_select_sums){.n_head = n_head,
                                  .text = p->visual[b].n,
                                  .n_key = prompt_end(p, b) - p->rows.first[b]};
            FV_TRY(FV_ARENA_NEW(&p->group, (size_t)(n_head * FV_N_SEG) * (size_t)s->n_key, s->p));
        }
    }
    return FV_OK;
}

/* The tap of a window in one layer, which goes on with what the sums hold. */
static fv_pass_tap window_tap(const prefill *p, int32_t b, int32_t l, int32_t n_row) {
    const fv_select_sums *s = &p->sums[b][l];
    return (fv_pass_tap){.layer = l,
                         .n_row = n_row,
                         .n = p->req[b].plan->window.n,
                         .by_segment = true,
                         .text = s->text,
                         .n_key = s->n_key,
                         .p = s->p};
}

static fv_status last_row_tap(prefill *p, int32_t b, int32_t l, fv_pass_tap *tap) {
    const fv_text_config *cfg = fv_decoder_config(p->dec);
    size_t n_head = (size_t)cfg->n_head;
    *tap = (fv_pass_tap){.layer = l,
                         .n_row = 1,
                         .text = p->visual[b].n,
                         .n_key = prompt_end(p, b) - p->rows.first[b]};
    if (wants_influence(p, b, l))
        FV_TRY(FV_ARENA_NEW(&p->arena, n_head * (size_t)cfg->d_head, tap->o));
    return FV_ARENA_NEW(&p->arena, n_head * (size_t)tap->n_key, tap->p);
}

/* Taps of request b in layers [l0, l1), whose rows [a, e) are in this chunk: those of the last row
 * stand first. */
static fv_status ask_taps(prefill *p, int32_t b, int32_t l0, int32_t l1, int32_t a, int32_t e,
                          fv_pass_seq *seq, int32_t *n_last) {
    int32_t n_row = window_rows(p, b, a, e);
    fv_pass_tap *tap;
    FV_TRY(FV_ARENA_NEW(&p->arena, 2 * (l1 - l0), tap));
    for (int32_t l = l0; l < l1 && e == prompt_end(p, b); l++)
        if (wants_tap(p, b, l)) FV_TRY(last_row_tap(p, b, l, &tap[seq->n_tap++]));
    *n_last = seq->n_tap;
    for (int32_t l = l0; l < l1 && n_row > 0; l++)
        if (fv_select_asks(p->req[b].plan, l)) tap[seq->n_tap++] = window_tap(p, b, l, n_row);
    seq->tap = tap;
    return FV_OK;
}

/* Image rows of request b that are still running: their positions, in memory of the run. */
static fv_status visual_positions(prefill *p, int32_t b, int32_t **pos, int32_t *n) {
    const row_list *rows = &p->rows;
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->first[b + 1] - rows->first[b], *pos));
    *n = 0;
    for (int32_t r = rows->first[b]; r < rows->first[b + 1]; r++)
        if (rows->seg[r] == FV_SEG_VISUAL) (*pos)[(*n)++] = rows->pos[r];
    return FV_OK;
}

static fv_status keep_paid(prefill *p, int32_t b, int32_t layer) {
    int32_t *pos, n;
    FV_TRY(visual_positions(p, b, &pos, &n));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->req[b].n, p->paid[b][layer]));
    for (int32_t j = 0; j < n; j++) p->paid[b][layer][pos[j]] = p->visual[b].attention[j];
    return FV_OK;
}

static fv_status tell_ranked(prefill *p, int32_t b, int32_t layer) {
    const fv_prefill_request *req = &p->req[b];
    int32_t *pos, n;
    if (req->plan->observes || fv_rank_asks(req->plan, layer)) FV_TRY(keep_paid(p, b, layer));
    if (!req->ranked || !(req->plan->tap[layer] & FV_TAP_LAST_ROW)) return FV_OK;
    FV_TRY(visual_positions(p, b, &pos, &n));
    return req->ranked(req->ranked_user, layer, p->visual[b].attention, pos, n);
}

/* Before anything leaves the layer's store. */
static fv_status measure_influence(prefill *p, int32_t b, const fv_pass_tap *tap) {
    fv_influence_args a = {.be = fv_decoder_backend(p->dec),
                           .kv = p->req[b].kv,
                           .layer = tap->layer,
                           .n_head = fv_decoder_config(p->dec)->n_head,
                           .a = tap->p,
                           .ld = tap->n_key,
                           .o = tap->o};
    return tap->o ? fv_influence(&a, &p->group, p->visual[b].l2, p->visual[b].cos) : FV_OK;
}

static fv_status read_taps(prefill *p, int32_t b, const fv_pass_seq *seq, int32_t n) {
    const fv_prefill_request *req = &p->req[b];
    fv_backend *be = fv_decoder_backend(p->dec);
    int32_t n_head = fv_decoder_config(p->dec)->n_head;
    if (n == 0) return FV_OK;
    visual_rows *v = &p->visual[b];
    FV_TRY(be->ops->sync(be));
    for (int32_t i = 0; i < n; i++) {
        const fv_pass_tap *tap = &seq->tap[i];
        fv_prune_head_mean(tap->p, n_head, tap->n_key, v->n, v->attention);
        FV_TRY(measure_influence(p, b, tap));
        FV_TRY(tell_ranked(p, b, tap->layer));
        if (req->attention)
            fv_prune_head_mean(tap->p, n_head, tap->n_key, tap->n_key,
                               req->attention + (size_t)tap->layer * (size_t)req->n);
        if (!req->visual_mass) continue;
        double mass = 0;
        for (int32_t j = 0; j < v->n; j++) mass += (double)v->attention[j];
        req->visual_mass[tap->layer] = (float)mass;
    }
    return FV_OK;
}

/* ---- between phases: rows leave -------------------------------------------------------- */

/* The edit before `layer`, unless its method has nothing more to decide. */
static const fv_plan_edit *edit_at(const prefill *p, int32_t b, int32_t layer) {
    const fv_plan *plan = p->req[b].plan;
    for (int32_t e = 0; e < plan->n_edit; e++)
        if (plan->edit[e].layer == layer)
            return plan->edit[e].by_data && p->visual[b].pruner.over ? NULL : &plan->edit[e];
    return NULL;
}

/* Which of n visual rows, at pos[n], go on into the edit's layer. Phases end where rows leave, so
 * the last layer of a phase is the last that was tapped. */
static fv_status edit_rows(prefill *p, int32_t b, const fv_plan_edit *edit, const int32_t *pos,
                           int32_t *kept, int32_t *n_kept) {
    const fv_plan *plan = p->req[b].plan;
    visual_rows *v = &p->visual[b];
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

/* Appends to stay[] the rows of request b that go on into `layer`. */
static fv_status choose_rows(prefill *p, int32_t b, int32_t layer, int32_t *stay, int32_t *n) {
    const row_list *rows = &p->rows;
    const fv_plan_edit *edit = edit_at(p, b, layer);
    int32_t first = rows->first[b], end = rows->first[b + 1], keep;
    int32_t *pos, *kept;
    FV_TRY(visual_positions(p, b, &pos, &keep));
    FV_TRY(FV_ARENA_NEW(&p->arena, keep, kept));
    for (int32_t i = 0; i < keep; i++) kept[i] = i;
    if (edit) FV_TRY(edit_rows(p, b, edit, pos, kept, &keep));
    p->visual[b].n = keep;
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

static fv_status drop_rows(prefill *p, int32_t layer) {
    row_list *rows = &p->rows;
    bool any = false;
    for (int32_t b = 0; b < p->n_req; b++) any |= edit_at(p, b, layer) != NULL;
    if (!any) return FV_OK;
    int32_t n = 0, *stay, *first;
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, stay));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req + 1, first));
    for (int32_t b = 0; b < p->n_req; b++) {
        FV_TRY(choose_rows(p, b, layer, stay, &n));
        first[b + 1] = n;
    }
    fv_buf *to = rows->x.data == p->x[0].data ? &p->x[1] : &p->x[0];
    fv_gather_args gather = {.table = rows->x, .y = matrix(to, n, p->d), .ids = stay};
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

/* ---- a group: chunks of rows through some layers ---------------------------------------- */

/* How many of a chunk's rows must go through the last layer as a whole: the prompt's last, and
 * those that are tapped there. */
static int32_t rows_wanted(const fv_pass_seq *seq, int32_t n_layer, bool last) {
    int32_t n = last ? 1 : 0;
    for (int32_t i = 0; i < seq->n_tap; i++)
        if (seq->tap[i].layer == n_layer - 1 && seq->tap[i].n_row > n) n = seq->tap[i].n_row;
    return n;
}

static fv_status ask_masks(prefill *p, int32_t b, int32_t l0, int32_t l1, fv_pass_seq *seq) {
    fv_mask_rows rows = {.n = seq->n_rows,
                         .pos = seq->pos,
                         .seg = seq->seg,
                         .visual0 = p->visual[b].first,
                         .n_prompt = p->req[b].n - p->req[b].n_answer};
    return fv_mask_shares(p->req[b].plan, l0, l1, &rows, &p->group, &seq->share);
}

/* Where queries of rows [a, e) are kept between groups, when request b needs that. */
static fv_tensor carried_queries(const prefill *p, int32_t b, int32_t a, int32_t e) {
    const fv_text_config *c = fv_decoder_config(p->dec);
    if (!p->queries[b].data) return (fv_tensor){0};
    fv_tensor all = fv_tensor_of(p->queries[b].data, fv_decoder_backend(p->dec)->ops->act,
                                 p->rows.first[b + 1] - p->rows.first[b], c->n_head * c->d_head);
    return fv_tensor_rows(all, a - p->rows.first[b], e - a);
}

/* Groups do not cut blocks; phases of other requests may. */
static fv_status keep_queries(prefill *p, int32_t layer) {
    const fv_text_config *c = fv_decoder_config(p->dec);
    fv_backend *be = fv_decoder_backend(p->dec);
    for (int32_t b = 0; b < p->n_req && layer < c->n_layer; b++) {
        size_t rows = (size_t)(p->rows.first[b + 1] - p->rows.first[b]);
        size_t bytes = rows * (size_t)(c->n_head * c->d_head) * fv_dtype_bytes(be->ops->act);
        if (!cuts_block(p, b, layer) || p->queries[b].bytes >= bytes) continue;
        fv_buf_free(&p->queries[b]);
        FV_TRY(fv_buf_alloc(be->device, bytes, FV_BUF_DEVICE, &p->queries[b]));
    }
    return FV_OK;
}

static fv_status run_chunk(prefill *p, int32_t from, int32_t to, int32_t l0, int32_t l1) {
    const row_list *rows = &p->rows;
    fv_pass_seq *seq;
    int32_t *request, *n_last, *out, n_seq = 0, n_out = 0;
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, request));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, n_last));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, seq));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, out));
    int32_t n_layer = fv_decoder_config(p->dec)->n_layer;
    for (int32_t b = 0; b < p->n_req; b++) {
        int32_t a = rows->first[b] > from ? rows->first[b] : from;
        int32_t e = rows->first[b + 1] < to ? rows->first[b + 1] : to;
        if (a >= e) continue;
        bool last = l1 == n_layer && e == rows->first[b + 1];
        seq[n_seq] = (fv_pass_seq){.kv = p->req[b].kv,
                                   .n_rows = e - a,
                                   .pos = rows->pos + a,
                                   .seg = rows->seg + a,
                                   .queries = carried_queries(p, b, a, e)};
        FV_TRY(ask_taps(p, b, l0, l1, a, e, &seq[n_seq], &n_last[n_seq]));
        FV_TRY(ask_masks(p, b, l0, l1, &seq[n_seq]));
        seq[n_seq].wanted = rows_wanted(&seq[n_seq], n_layer, last);
        n_out += seq[n_seq].wanted;
        out[n_seq] = last ? n_out - 1 : -1;
        request[n_seq++] = b;
    }
    fv_pass pass = {.x = fv_tensor_rows(rows->x, from, to - from), .n_seq = n_seq, .seq = seq};
    FV_TRY(fv_decoder_layers(p->dec, &pass, l0, l1));
    for (int32_t i = 0; i < n_seq; i++) FV_TRY(read_taps(p, request[i], &seq[i], n_last[i]));
    fv_device *dev = fv_decoder_backend(p->dec)->device;
    size_t bytes = (size_t)p->d * sizeof(float);
    for (int32_t i = 0; i < n_seq; i++)
        if (out[i] >= 0)
            FV_TRY(dev->ops->copy_async(dev, (char *)p->last.data + (size_t)request[i] * bytes,
                                        fv_tensor_rows(pass.out, out[i], 1).data, bytes));
    return FV_OK;
}

/* A tap is of a pass's last rows: where an answer follows the prompt, the chunk ends between them.
 */
static int32_t chunk_end(const prefill *p, int32_t from, int32_t l0, int32_t l1) {
    int32_t n = p->rows.n, step = p->opt->chunk > 0 ? p->opt->chunk : n;
    int32_t to = from + step < n ? from + step : n;
    for (int32_t b = 0; b < p->n_req; b++) {
        int32_t end = prompt_end(p, b);
        if (p->req[b].n_answer && end > from && end < to && taps_any(p, b, l0, l1)) to = end;
    }
    return to;
}

/* Rows of request b that layers [l0, l1) run. */
static void count_visual(const prefill *p, int32_t b, int32_t l0, int32_t l1) {
    int32_t *out = p->req[b].visual_rows;
    for (int32_t l = l0; out && l < l1; l++) out[l] = p->visual[b].n;
}

/* Layers below n_layer have run: how many of them have all that request b will have there. */
static int32_t ready_of(const prefill *p, int32_t b, int32_t n_layer) {
    int32_t ranked = fv_rank_ready(p->req[b].plan, n_layer), settled = settled_of(p, b, n_layer);
    return ranked < settled ? ranked : settled;
}

/* Layers below n_layer have run: they are packed, where the plan says so, once their rows are in
 * the order that they will have. */
static fv_status pack_layers(prefill *p, int32_t n_layer) {
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        assert(!req->plan->packs || req->packed);
        if (req->plan->packs)
            FV_TRY(fv_pack_run(req->plan, fv_decoder_backend(p->dec), &p->rope, req->kv,
                               ready_of(p, b, n_layer), (const float *const *)p->paid[b],
                               req->packed));
    }
    return FV_OK;
}

/* The prompt has gone through layers [l0, l1): what of it stays in the store. */
static fv_status end_layers(prefill *p, int32_t b, int32_t l0, int32_t l1) {
    const fv_prefill_request *req = &p->req[b];
    int32_t n_kv = fv_decoder_config(p->dec)->n_kv, *none;
    const int32_t **rows;
    FV_TRY(FV_ARENA_NEW(&p->group, n_kv, rows));
    FV_TRY(FV_ARENA_NEW(&p->group, n_kv, none));
    for (int32_t l = l0; l < l1; l++) {
        if (req->plan->forget[l]) FV_TRY(fv_kv_keep(req->kv, l, FV_SEG_VISUAL, rows, none));
    }
    return fv_select_run(req->plan, req->kv, l0, l1, p->sums[b]);
}

static fv_status run_group(prefill *p, int32_t l0, int32_t l1) {
    for (int32_t b = 0; b < p->n_req; b++) count_visual(p, b, l0, l1);
    FV_TRY(keep_queries(p, l1));
    for (int32_t b = 0; b < p->n_req; b++)
        for (int32_t l = l0; l < l1; l++) FV_TRY(fv_kv_extent(p->req[b].kv, l, p->visual[b].n));
    FV_TRY(open_sums(p, l0, l1));
    for (int32_t from = 0, to; from < p->rows.n; from = to) {
        to = chunk_end(p, from, l0, l1);
        FV_TRY(run_chunk(p, from, to, l0, l1));
    }
    fv_backend *be = fv_decoder_backend(p->dec);
    FV_TRY(be->ops->sync(be));
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        int32_t from = p->settled[b];
        p->settled[b] = settled_of(p, b, l1);
        FV_TRY(end_layers(p, b, from, p->settled[b]));
        FV_TRY(fv_rank_run(req->plan, req->kv, l0, l1, (const float *const *)p->paid[b]));
    }
    FV_TRY(pack_layers(p, l1));
    return FV_OK;
}

/* Layers below l1 have run: says which are final, if they are more than before. */
static fv_status say_final(prefill *p, int32_t l1) {
    fv_backend *be = fv_decoder_backend(p->dec);
    int32_t n = l1;
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_plan *plan = p->req[b].plan;
        bool goes_on = rows_behind(&p->req[b]) || plan->first_packed;
        int32_t ready = goes_on ? 0 : ready_of(p, b, l1);
        if (ready < n) n = ready;
    }
    if (!p->opt->final || n <= p->n_final) return FV_OK;
    p->n_final = n;
    FV_TRY(be->ops->sync(be));
    return p->opt->final(p->opt->user, n);
}

/* ---- an answer that is taken up again ---------------------------------------------------- */

/* One row after another, and what the stages on the other side had let go before each is let go
 * here: so it finds the store as it was. The prompt's first token was chosen then, and t counts it.
 */
static fv_status run_answer(fv_stepper *stepper, const fv_prefill_request *req, float *logits) {
    const fv_plan *plan = req->plan;
    int32_t n_prompt = req->n - req->n_answer;
    if (plan->keeps_packed < 1) FV_TRY(fv_expand_keep(req->kv, plan->keeps_packed));
    for (int32_t i = 0; i < req->n_answer; i++) {
        fv_step_seq row = {.kv = req->kv,
                           .n = 1,
                           .ids = req->ids + n_prompt + i,
                           .pos = n_prompt + i,
                           .partial = !plan->observes && i + 1 < req->n_answer};
        if (plan->evict) FV_TRY(fv_kv_shrink(req->kv, plan->evict(plan, i + 1)));
        FV_TRY(fv_stepper_run(stepper, &row, 1, logits));
    }
    return FV_OK;
}

/* The prompt's last row leaves every layer again, and runs as the first row of decoding does: so
 * that the first token, too, comes from factors. */
static fv_status run_last_again(fv_stepper *stepper, const fv_prefill_request *req, fv_arena *arena,
                                float *logits) {
    int32_t n_kv = fv_kv_get_shape(req->kv)->n_kv, last = req->n - req->n_answer - 1, *n, *same;
    const int32_t **idx;
    FV_TRY(FV_ARENA_NEW(arena, n_kv, n));
    FV_TRY(FV_ARENA_NEW(arena, n_kv, idx));
    FV_TRY(FV_ARENA_NEW(arena, req->n, same));
    for (int32_t j = 0; j < req->n; j++) same[j] = j;
    for (int32_t l = 0; l < fv_kv_get_shape(req->kv)->n_layer; l++) {
        if (fv_kv_borrows(req->kv, l, FV_SEG_TEXT)) continue;
        for (int32_t g = 0; g < n_kv; g++) {
            idx[g] = same;
            n[g] = fv_kv_len(req->kv, l, g, FV_SEG_TEXT) - 1;
        }
        FV_TRY(fv_kv_keep(req->kv, l, FV_SEG_TEXT, idx, n));
    }
    fv_step_seq row = {.kv = req->kv, .n = 1, .ids = req->ids + last, .pos = last};
    return fv_stepper_run(stepper, &row, 1, logits);
}

static bool packed_well(const fv_prefill_request *req) {
    return !req->packed || req->packed->status == FV_OK;
}

static fv_status run_answers(prefill *p, float *logits) {
    size_t vocab = (size_t)fv_decoder_config(p->dec)->vocab;
    fv_stepper *stepper;
    fv_status st = FV_OK;
    FV_TRY(fv_stepper_open(p->dec, &stepper));
    for (int32_t b = 0; b < p->n_req && st == FV_OK; b++) {
        const fv_prefill_request *req = &p->req[b];
        if (!packed_well(req)) continue;
        if (req->plan->first_packed)
            st = run_last_again(stepper, req, &p->arena, logits + (size_t)b * vocab);
        if (st == FV_OK && rows_behind(req))
            st = run_answer(stepper, req, logits + (size_t)b * vocab);
    }
    fv_stepper_close(stepper);
    return st;
}

/* ---- all of it --------------------------------------------------------------------------- */

static bool phase_starts(const prefill *p, int32_t layer) {
    for (int32_t b = 0; b < p->n_req; b++)
        if (edit_at(p, b, layer)) return true;
    return false;
}

/* Groups are counted from where their phase starts, and never reach into the next. One that would
 * end inside a lazy block goes on to the block's end. */
static int32_t group_end(const prefill *p, int32_t l0, int32_t n_layer) {
    int32_t l1 = l0 + 1;
    while (l1 < n_layer && !phase_starts(p, l1) &&
           (p->opt->group == 0 || l1 - l0 < p->opt->group || settled_below(p, l1) < l1))
        l1++;
    return l1;
}

/* The row behind which the answer starts must still be there at the end. */
static fv_status check_requests(const prefill *p) {
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        assert(req->n_answer == 0 || (req->n_answer < req->n && !req->visual_mass));
        if (req->n == 0) return FV_FAIL(FV_EINVAL, "the prompt is empty: write a question");
        bool ends_with_image = req->seg[req->n - req->n_answer - 1] == FV_SEG_VISUAL;
        if (req->plan->first_packed && ends_with_image)
            return FV_FAIL(FV_EINVAL, "the prompt ends with an image, and pack=svd,first=packed "
                                      "runs its last row again: put the question behind the image");
        if (req->plan->n_edit && req->seg[req->n - 1] == FV_SEG_VISUAL)
            return FV_FAIL(FV_EINVAL, "the prompt ends with an image, and this policy lets visual "
                                      "rows leave: put the question behind the image");
    }
    return FV_OK;
}

/* From here on rows see what stands for those that were let go. */
static void end_prompts(prefill *p) {
    fv_expand_rule rule;
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        fv_kv_set_n(req->kv, req->plan->decode_n);
        if (fv_attention_reads(&req->plan->policy, &rule.full, &rule.alpha))
            fv_kv_set_expand(req->kv, &rule);
        if (req->pruned) memcpy(req->pruned, p->visual[b].pruner.said, FV_PLAN_NOTE_MAX);
    }
}

static fv_status run(prefill *p, float *logits) {
    FV_TRY(check_requests(p));
    int32_t n_layer = fv_decoder_config(p->dec)->n_layer;
    FV_TRY(start(p));
    for (int32_t l0 = 0, l1; l0 < n_layer; l0 = l1) {
        l1 = group_end(p, l0, n_layer);
        FV_TRY(drop_rows(p, l0));
        FV_TRY(run_group(p, l0, l1));
        if (l1 < n_layer) FV_TRY(say_final(p, l1));
    }
    end_prompts(p);
    FV_TRY(fv_decoder_logits(p->dec, matrix(&p->last, p->n_req, p->d), logits));
    return run_answers(p, logits);
}

fv_status fv_prefill_run(fv_decoder *dec, const fv_prefill_request *req, int32_t n,
                         const fv_prefill_options *opt, float *logits) {
    prefill p = {
        .dec = dec, .req = req, .opt = opt, .n_req = n, .d = fv_decoder_config(dec)->d_model};
    fv_rope_init(&p.rope, &fv_decoder_config(dec)->rope, fv_decoder_config(dec)->d_head);
    fv_status st = run(&p, logits);
    fv_buf_free(&p.x[0]);
    fv_buf_free(&p.x[1]);
    fv_buf_free(&p.last);
    fv_arena_fini(&p.group);
    for (int32_t b = 0; p.queries && b < n; b++) fv_buf_free(&p.queries[b]);
    fv_arena_fini(&p.arena);
    return st;
}
