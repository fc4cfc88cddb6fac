/* The prefill loop: embed, then per phase drop rows, and per group of layers run chunks and select.
 * The thread that owns the decoder. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/accum.h"
#include "prefill-worker/prefill/internal.h"
#include "prefill-worker/prefill/mask.h"
#include "prefill-worker/prefill/rank.h"
#include "prefill-worker/prefill/values.h"

static fv_tensor matrix(const fv_buf *buf, int32_t rows, int32_t d) {
    return fv_tensor_of(buf->data, FV_F32, rows, d);
}

/* ---- lazy blocks ----------------------------------------------------------------------- */

/* Whether a block of request b has layers on both sides of `layer`. */
static bool cuts_block(const fv_prefill *p, int32_t b, int32_t layer) {
    return fv_kv_source_layer(p->req[b].kv, layer) != layer;
}

static void borrow_keys(const fv_prefill_request *req, int32_t n_layer) {
    for (int32_t l = 0; l < n_layer; l++)
        if (req->plan->share.source_layer[l] != l)
            fv_kv_borrow(req->kv, l, req->plan->share.source_layer[l], req->plan->share.text);
}

/* Number of complete layers below `layer`: without those of a lazy block, or of layers compressed
 * together, that continues at `layer`, and without those that layers after the last one read. */
static int32_t layers_done_of(const fv_prefill *p, int32_t b, int32_t layer) {
    const fv_text_config *c = fv_decoder_config(p->dec);
    if (layer == c->n_layer) return layer;
    int32_t first = fv_plan_pair(p->req[b].plan, layer), shared = fv_text_first_shared(c);
    if (shared < first) first = shared;
    if (first < layer) return first;
    return fv_kv_source_layer(p->req[b].kv, layer);
}

/* The smallest such number of all requests. */
static int32_t layers_done_below(const fv_prefill *p, int32_t layer) {
    int32_t n = layer;
    for (int32_t b = 0; b < p->n_req; b++)
        if (layers_done_of(p, b, layer) < n) n = layers_done_of(p, b, layer);
    return n;
}

/* ---- start: every row's embedding ------------------------------------------------------ */

static fv_status embed_request(fv_prefill *p, const fv_prefill_request *req, fv_tensor x) {
    int32_t visual = 0, n = req->n_kept + x.rows;
    for (int32_t r = req->n_kept, end; r < n; r = end) {
        for (end = r + 1; end < n && req->seg[end] == req->seg[r]; end++) {
        }
        fv_tensor y = fv_tensor_rows(x, r - req->n_kept, end - r);
        if (req->seg[r] == FV_SEG_TEXT || req->visual_ids) {
            FV_TRY(fv_decoder_embed(p->dec, req->ids + r, end - r, y));
            if (req->seg[r] == FV_SEG_VISUAL) visual += end - r;
        } else {
            fv_tensor embeds = fv_tensor_rows(req->embeds, visual, end - r);
            embeds.cols = p->d;
            FV_TRY(fv_decoder_embed_images(p->dec, embeds, y));
            visual += end - r;
        }
    }
    assert(visual == req->embeds.rows);
    return FV_OK;
}

static fv_status start_visual(fv_prefill *p, int32_t b) {
    const fv_prefill_request *req = &p->req[b];
    fv_prefill_visual *v = &p->visual[b];
    v->n = req->embeds.rows;
    FV_TRY(FV_ARENA_NEW(&p->arena, req->n, v->row_at));
    for (int32_t i = 0, at = 0; i < req->n; i++) {
        bool visual = req->seg[i] == FV_SEG_VISUAL, kept = i < req->n_kept;
        v->n += visual && kept;
        v->row_at[i] = visual && !kept ? at++ : -1;
    }
    while (v->first < req->n && req->seg[v->first] != FV_SEG_VISUAL) v->first++;
    int32_t n_layer = fv_decoder_config(p->dec)->n_layer;
    FV_TRY(FV_ARENA_NEW(&p->arena, n_layer, v->rank_from));
    memcpy(v->rank_from, req->plan->evict.rank_from, (size_t)n_layer * sizeof *v->rank_from);
    FV_TRY(FV_ARENA_NEW(&p->arena, v->n, v->attention));
    FV_TRY(FV_ARENA_NEW(&p->arena, v->n, v->l2));
    FV_TRY(FV_ARENA_NEW(&p->arena, v->n, v->cos));
    return fv_prefill_find_scorers(p, b);
}

/* Rows that run through the layers with the prompt. */
static int32_t rows_to_run(const fv_prefill_request *req) {
    return req->n - req->n_kept - fv_prefill_n_deferred(req);
}

static fv_status start(fv_prefill *p) {
    fv_prefill_rows *rows = &p->rows;
    int32_t n_layer = fv_decoder_config(p->dec)->n_layer;
    int32_t joining = 0;
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->n_kept));
    for (int32_t b = 0; b < p->n_req; b++) {
        rows->n += rows_to_run(&p->req[b]);
        p->n_kept[b] = p->req[b].n_kept;
        joining += p->req[b].join_layer ? p->n_kept[b] : 0;
    }
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->attention));
    for (int32_t b = 0; b < p->n_req; b++)
        FV_TRY(FV_ARENA_NEW(&p->arena, n_layer, p->attention[b]));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->visual));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->mask));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->queries));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->layers_done));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->ready));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req, p->packed));
    FV_TRY(FV_ARENA_NEW(&p->arena, p->n_req + 1, rows->first));
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, rows->pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, rows->rope_pos));
    FV_TRY(FV_ARENA_NEW(&p->arena, rows->n, rows->seg));
    fv_device *dev = fv_decoder_backend(p->dec)->device;
    size_t bytes = (size_t)(rows->n + joining) * (size_t)p->d * sizeof(float);
    bool drops = joining > 0;
    for (int32_t b = 0; b < p->n_req; b++) drops |= p->req[b].plan->prune.n_edit > 0;
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &p->x[0]));
    if (drops) FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &p->x[1]));
    FV_TRY(fv_buf_alloc(dev, (size_t)p->n_req * (size_t)p->d * sizeof(float), FV_BUF_DEVICE,
                        &p->last));
    rows->x = matrix(&p->x[0], rows->n, p->d);
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_text_config *c = fv_decoder_config(p->dec);
        FV_TRY(fv_kv_set_rope_map(p->req[b].kv, &p->req[b].rope_map));
        borrow_keys(&p->req[b], c->n_layer);
        fv_accum_init(p->req[b].kv, p->req[b].plan->evict.accum.kind, c->n_head / c->n_kv);
    }
    for (int32_t b = 0, at = 0; b < p->n_req; at = rows->first[++b]) {
        const fv_prefill_request *req = &p->req[b];
        int32_t n = rows_to_run(req);
        FV_TRY(embed_request(p, req, fv_tensor_rows(rows->x, at, n)));
        for (int32_t r = 0; r < n; r++) {
            const int32_t pos = req->n_kept + r;
            rows->pos[at + r] = pos;
            rows->rope_pos[at + r] = fv_rope_map_at(&req->rope_map, pos);
            rows->seg[at + r] = req->seg[pos];
        }
        rows->first[b + 1] = at + n;
        FV_TRY(start_visual(p, b));
    }
    return FV_OK;
}

/* ---- a group: chunks of rows through some layers ---------------------------------------- */

/* How many of a chunk's last rows must run all of the last layer: the prompt's last, and
 * those that are captured there. */
static int32_t rows_wanted(const fv_forward_seq *seq, int32_t n_layer, bool last) {
    int32_t n = last ? 1 : 0;
    for (int32_t i = 0; i < seq->n_capture; i++)
        if (seq->capture[i].layer == n_layer - 1 && seq->capture[i].n_row > n)
            n = seq->capture[i].n_row;
    return n;
}

static fv_status ask_masks(fv_prefill *p, int32_t b, int32_t l0, int32_t l1, fv_forward_seq *seq) {
    fv_mask_rows rows = {.n = seq->n_rows,
                         .pos = seq->pos,
                         .seg = seq->seg,
                         .visual0 = p->visual[b].first,
                         .n_prompt = p->req[b].n - p->req[b].n_answer};
    seq->share_first = p->req[b].plan->shape.n_visual / 2;
    return fv_mask_shares(p->req[b].plan, l0, l1, &rows, &p->group, &seq->share);
}

/* Memory for queries of rows [a, e) between groups, if request b needs that. */
static fv_tensor carried_queries(const fv_prefill *p, int32_t b, int32_t a, int32_t e) {
    const fv_text_config *c = fv_decoder_config(p->dec);
    if (!p->queries[b].data) return (fv_tensor){0};
    fv_tensor all = fv_tensor_of(p->queries[b].data, fv_decoder_backend(p->dec)->ops->act,
                                 p->rows.first[b + 1] - p->rows.first[b], c->n_head * c->d_head);
    return fv_tensor_rows(all, a - p->rows.first[b], e - a);
}

/* Allocates memory for queries of the requests whose block continues at `layer`: a group does not cut
 * blocks, but phases of other requests may. */
static fv_status keep_queries(fv_prefill *p, int32_t layer) {
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

/* Computes the logits of rows x, whose positions are pos, a few at a time, for the request's observer. */
static fv_status tell_logits(fv_prefill *p, const fv_prefill_request *req, fv_tensor x,
                             const int32_t *pos) {
    enum { ROWS = 16 };
    const size_t vocab = (size_t)fv_decoder_config(p->dec)->vocab;
    float *logits = malloc(ROWS * vocab * sizeof *logits);
    fv_status st = logits ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for logits of a prompt");
    for (int32_t i = 0; i < x.rows && st == FV_OK; i += ROWS) {
        int32_t n = x.rows - i < ROWS ? x.rows - i : ROWS;
        st = fv_decoder_logits(p->dec, fv_tensor_rows(x, i, n), logits);
        for (int32_t j = 0; j < n && st == FV_OK; j++)
            req->row_logits(req->row_logits_user, pos[i + j], logits + (size_t)j * vocab);
    }
    free(logits);
    return st;
}

/* Does so for the pass that ended with the last layer. */
static fv_status tell_all_logits(fv_prefill *p, const fv_forward_batch *pass,
                                 const int32_t *request) {
    for (int32_t i = 0, at = 0; i < pass->n_seq; at += pass->seq[i++].wanted) {
        const fv_prefill_request *req = &p->req[request[i]];
        const fv_forward_seq *s = &pass->seq[i];
        if (req->row_logits)
            FV_TRY(tell_logits(p, req, fv_tensor_rows(pass->out, at, s->wanted),
                               s->pos + s->n_rows - s->wanted));
    }
    return FV_OK;
}

static fv_status run_chunk(fv_prefill *p, int32_t from, int32_t to, int32_t l0, int32_t l1) {
    const fv_prefill_rows *rows = &p->rows;
    fv_forward_seq *seq;
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
        seq[n_seq] = (fv_forward_seq){.kv = p->req[b].kv,
                                      .n_rows = e - a,
                                      .pos = rows->pos + a,
                                      .rope_pos = rows->rope_pos + a,
                                      .seg = rows->seg + a,
                                      .embeds = p->req[b].embeds,
                                      .embed_at = p->visual[b].row_at,
                                      .ids = p->req[b].ids,
                                      .queries = carried_queries(p, b, a, e)};
        FV_TRY(fv_prefill_ask_captures(p, b, l0, l1, a, e, &seq[n_seq], &n_last[n_seq]));
        FV_TRY(ask_masks(p, b, l0, l1, &seq[n_seq]));
        seq[n_seq].wanted = rows_wanted(&seq[n_seq], n_layer, last);
        if (l1 == n_layer && p->req[b].row_logits) seq[n_seq].wanted = e - a;
        n_out += seq[n_seq].wanted;
        out[n_seq] = last ? n_out - 1 : -1;
        request[n_seq++] = b;
    }
    fv_forward_batch pass = {
        .x = fv_tensor_rows(rows->x, from, to - from), .n_seq = n_seq, .seq = seq};
    FV_TRY(fv_decoder_layers(p->dec, &pass, l0, l1));
    for (int32_t i = 0; i < n_seq; i++)
        FV_TRY(fv_prefill_read_captures(p, request[i], &seq[i], n_last[i]));
    fv_device *dev = fv_decoder_backend(p->dec)->device;
    size_t bytes = (size_t)p->d * sizeof(float);
    for (int32_t i = 0; i < n_seq; i++)
        if (out[i] >= 0)
            FV_TRY(dev->ops->copy_async(dev, (char *)p->last.data + (size_t)request[i] * bytes,
                                        fv_tensor_rows(pass.out, out[i], 1).data, bytes));
    return l1 == n_layer ? tell_all_logits(p, &pass, request) : FV_OK;
}

/* Returns the end of the chunk that starts at `from`. As a pass captures its last rows, a chunk ends between
 * a prompt and its answer; if an image's tokens attend to the whole image, it ends after the image. */
static int32_t chunk_end(const fv_prefill *p, int32_t from, int32_t l0, int32_t l1) {
    int32_t n = p->rows.n, step = p->opt->chunk > 0 ? p->opt->chunk : n;
    int32_t to = from + step < n ? from + step : n;
    for (int32_t b = 0; b < p->n_req; b++) {
        int32_t end = fv_prefill_prompt_end(p, b);
        if (p->req[b].n_answer && end > from && end < to && fv_prefill_captures_any(p, b, l0, l1))
            to = end;
    }
    while (fv_decoder_config(p->dec)->image_whole && to < n &&
           p->rows.seg[to - 1] == FV_SEG_VISUAL && p->rows.seg[to] == FV_SEG_VISUAL)
        to++;
    return to;
}

/* Number of visual tokens of request b that run, masked ones too. */
static int32_t visual_of(const fv_prefill *p, int32_t b) { return p->visual[b].n + p->mask[b].n; }

/* Reports how many visual tokens of request b layers [l0, l1) run. */
static void count_visual(const fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    int32_t *out = p->req[b].visual_tokens;
    for (int32_t l = l0; out && l < l1; l++) out[l] = visual_of(p, b);
}

/* How many of the n_layer layers that have run hold request b's final rows in the final order. */
static int32_t ready_of(const fv_prefill *p, int32_t b, int32_t n_layer) {
    int32_t ranked = fv_rank_ready(p->visual[b].rank_from, n_layer),
            layers_done = layers_done_of(p, b, n_layer);
    return ranked < layers_done ? ranked : layers_done;
}

/* Packs the layers that are ready, if the plan says so. */
static fv_status pack_ready(fv_prefill *p) {
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        assert(!fv_plan_packs_any(req->plan) || req->packed);
        if (fv_plan_packs_any(req->plan))
            FV_TRY(fv_pack_run(req->plan, fv_decoder_backend(p->dec), &p->rope, req->kv,
                               p->ready[b], (const float *const *)p->attention[b], req->packed));
        p->packed[b] = p->ready[b];
    }
    return FV_OK;
}

/* Whether a group is compressed while the next one runs: on a device that computes asynchronously, all
 * groups but the last are. */
static bool packs_in_next_group(const fv_prefill *p, int32_t l1) {
    bool any = false;
    for (int32_t b = 0; b < p->n_req; b++) any |= fv_plan_packs_any(p->req[b].plan);
    return any && l1 < fv_decoder_config(p->dec)->n_layer &&
           fv_decoder_backend(p->dec)->device != fv_device_host();
}

/* Reduces layers [l0, l1), which the prompt has run, to the entries that stay. */
static fv_status end_layers(fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    const fv_prefill_request *req = &p->req[b];
    int32_t n_kv = fv_decoder_config(p->dec)->n_kv, *none;
    const int32_t **rows;
    FV_TRY(FV_ARENA_NEW(&p->group, n_kv, rows));
    FV_TRY(FV_ARENA_NEW(&p->group, n_kv, none));
    for (int32_t l = l0; l < l1; l++) {
        const fv_select_sums *s = &p->accums[b][l];
        if (s->p) fv_accum_put(req->kv, l, s->p, s->text, s->n_key);
        FV_TRY(fv_values_fill(req->plan, fv_decoder_backend(p->dec), req->kv, l, &p->group));
        if (req->plan->prune.drop_visual_kv[l] && !fv_kv_borrows(req->kv, l, FV_SEG_VISUAL))
            FV_TRY(fv_kv_keep(req->kv, l, FV_SEG_VISUAL, rows, none));
    }
    return fv_select_run(req->plan, fv_decoder_backend(p->dec), req->kv, l0, l1, p->sums[b]);
}

/* Allocates the visual rows of layers [l0, l1), and fills in the rows that are not computed. */
static fv_status open_layers(fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    const fv_prefill_request *req = &p->req[b];
    for (int32_t l = l0; l < l1; l++) FV_TRY(fv_kv_extent(req->kv, l, visual_of(p, b)));
    return p->n_kept[b] ? req->fill(req->kept_user, req->kv, l0, l1) : FV_OK;
}

static fv_status run_group(fv_prefill *p, int32_t l0, int32_t l1) {
    for (int32_t b = 0; b < p->n_req; b++) count_visual(p, b, l0, l1);
    FV_TRY(keep_queries(p, l1));
    for (int32_t b = 0; b < p->n_req; b++) FV_TRY(open_layers(p, b, l0, l1));
    FV_TRY(fv_prefill_open_sums(p, l0, l1));
    for (int32_t from = 0, to; from < p->rows.n; from = to) {
        to = chunk_end(p, from, l0, l1);
        FV_TRY(run_chunk(p, from, to, l0, l1));
        if (p->opt->between) p->opt->between(p->opt->user);
    }
    for (int32_t b = 0; b < p->n_req; b++) FV_TRY(fv_prefill_run_masked(p, b, l0, l1));
    FV_TRY(pack_ready(p)); /* the previous group, while the device runs this one */
    fv_backend *be = fv_decoder_backend(p->dec);
    FV_TRY(be->ops->sync(be));
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        int32_t from = p->layers_done[b];
        if (req->computed) req->computed(req->kept_user, req->kv, l0, l1);
        p->layers_done[b] = layers_done_of(p, b, l1);
        FV_TRY(end_layers(p, b, from, p->layers_done[b]));
        FV_TRY(fv_prefill_mark_order(p, b, l0, l1));
        FV_TRY(fv_rank_run(p->visual[b].rank_from, req->kv, l1,
                           (const float *const *)p->attention[b]));
        FV_TRY(fv_prefill_report_head_max(p, b, l1 - 1));
        p->ready[b] = ready_of(p, b, l1);
    }
    FV_TRY(be->ops->sync(be)); /* packing reads the moved rows while the next group runs */
    return packs_in_next_group(p, l1) ? FV_OK : pack_ready(p);
}

/* Announces the layers that are final, if there are more than before. */
static fv_status announce_final(fv_prefill *p) {
    fv_backend *be = fv_decoder_backend(p->dec);
    int32_t n = fv_decoder_config(p->dec)->n_layer;
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_plan *plan = p->req[b].plan;
        bool goes_on = fv_prefill_n_deferred(&p->req[b]) || plan->pack.first_packed;
        int32_t final = goes_on ? 0 : p->packed[b];
        if (final < n) n = final;
    }
    if (!p->opt->final || n <= p->n_final) return FV_OK;
    p->n_final = n;
    FV_TRY(be->ops->sync(be));
    return p->opt->final(p->opt->user, n);
}

/* ---- the run ----------------------------------------------------------------------------- */

static bool phase_starts(const fv_prefill *p, int32_t layer) {
    for (int32_t b = 0; b < p->n_req; b++)
        if (fv_prefill_edit_at(p, b, layer) || p->req[b].join_layer == layer) return true;
    return false;
}

/* Whether an observer wants the maximum attention of every layer: each layer is then a group of its own, as
 * there is memory for one layer's sums. */
static bool reports_head_max(const fv_prefill *p) {
    for (int32_t b = 0; b < p->n_req; b++)
        if (p->req[b].head_max) return true;
    return false;
}

/* Returns the end of the group that starts at l0. A group never reaches into the next phase; one that would
 * end inside a lazy block goes on to the block's end. */
static int32_t group_end(const fv_prefill *p, int32_t l0, int32_t n_layer) {
    int32_t l1 = l0 + 1;
    while (l1 < n_layer && !phase_starts(p, l1) && !reports_head_max(p) &&
           (p->opt->group == 0 || l1 - l0 < p->opt->group || layers_done_below(p, l1) < l1))
        l1++;
    return l1;
}

/* Whether rows that were kept would be missed in a layer that does without them. */
static bool misses_in(const fv_plan *plan, int32_t layer) {
    const int alone = FV_CAPTURE_LAST_ROW | FV_CAPTURE_ABLATION;
    return plan->capture[layer] & ~alone || plan->prune.mask[layer] == FV_MASK_HALF;
}

/* Whether they would be missed by a stage between the layers, an observer, or a capture. */
static bool misses_kept(const fv_prefill_request *req) {
    const fv_plan *plan = req->plan;
    /* Kept rows may reach into a replayed answer. */
    int32_t prompt = req->n - req->n_answer;
    int32_t computed = prompt > req->n_kept ? prompt - req->n_kept : 0;
    int32_t until = req->join_layer ? req->join_layer : plan->shape.n_layer;
    bool misses = req->head_max || req->row_logits || plan->select.window.rows > computed ||
                  plan->evict.accum_tokens > computed ||
                  (plan->prune.n_edit && plan->prune.edit[0].layer < until);
    for (int32_t l = 0; l < until; l++) misses |= misses_in(plan, l);
    for (int32_t l = until; l < plan->shape.n_layer; l++)
        misses |= plan->share.source_layer[l] < until;
    return misses;
}

/* Refuses prompts that are empty, or whose last token the policy could drop or cannot run again. */
static fv_status check_requests(const fv_prefill *p) {
    const fv_text_config *c = fv_decoder_config(p->dec);
    const int32_t n_layer = c->n_layer;
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        assert(req->n_answer == 0 || (req->n_answer < req->n && !req->visual_mass));
        assert(req->n_answer == 0 || !req->row_logits);
        assert(req->n_kept == 0 || (req->n_kept < req->n && !misses_kept(req)));
        assert(!req->head_max || (req->plan->prune.n_edit == 0 && req->n_answer == 0));
        if (req->n == 0) return FV_FAIL(FV_EINVAL, "the prompt is empty: write a question");
        bool ends_with_image = req->seg[req->n - req->n_answer - 1] == FV_SEG_VISUAL;
        if (req->plan->pack.first_packed && ends_with_image)
            return FV_FAIL(FV_EINVAL,
                           "the prompt ends with an image, but pack=%s,first=packed runs its last "
                           "token again: put the question after the image",
                           req->plan->policy.stage[FV_STAGE_PACK].method->name);
        if (req->row_logits && fv_prefill_edit_at(p, b, n_layer - 1) && c->n_sharer)
            return FV_FAIL(
                FV_EUNSUPPORTED,
                "prompt_logprobs: this policy drops tokens ahead of layer %d, and layers "
                "after it use the keys of the layer before: choose an earlier layer",
                n_layer - 1);
        if (req->plan->prune.n_edit && req->seg[req->n - 1] == FV_SEG_VISUAL)
            return FV_FAIL(FV_EINVAL, "the prompt ends with an image, but this policy drops visual "
                                      "tokens: put the question after the image");
    }
    return FV_OK;
}

/* Sets how later tokens read the stores, and reports what the prune stage decided. */
static void end_prompts(fv_prefill *p) {
    for (int32_t b = 0; b < p->n_req; b++) {
        const fv_prefill_request *req = &p->req[b];
        fv_kv_sequence *seq = fv_kv_get_sequence(req->kv);
        const fv_plan_read *read = &req->plan->read;
        seq->n = req->plan->select.nsoftmax;
        seq->expand = (fv_expand_rule){read->by_importance, read->full, read->alpha};
        const char *said = p->visual[b].pruner.said;
        if (req->pruned)
            memcpy(req->pruned, said[0] ? said : req->plan->prune.chose, FV_PLAN_NOTE_MAX);
    }
}

static fv_status run(fv_prefill *p, float *logits) {
    FV_TRY(check_requests(p));
    int32_t n_layer = fv_decoder_config(p->dec)->n_layer;
    FV_TRY(start(p));
    for (int32_t l0 = 0, l1; l0 < n_layer; l0 = l1) {
        l1 = group_end(p, l0, n_layer);
        FV_TRY(fv_prefill_join_rows(p, l0));
        FV_TRY(fv_prefill_drop_rows(p, l0));
        FV_TRY(run_group(p, l0, l1));
        if (l1 < n_layer) FV_TRY(announce_final(p));
    }
    end_prompts(p);
    FV_TRY(fv_decoder_logits(p->dec, matrix(&p->last, p->n_req, p->d), logits));
    return fv_prefill_run_answers(p, logits);
}

fv_status fv_prefill_run(fv_decoder *dec, const fv_prefill_request *req, int32_t n,
                         const fv_prefill_options *opt, float *logits) {
    fv_prefill p = {
        .dec = dec, .req = req, .opt = opt, .n_req = n, .d = fv_decoder_config(dec)->d_model};
    fv_rope_init(&p.rope, &fv_decoder_config(dec)->rope, fv_decoder_config(dec)->d_head);
    fv_status st = run(&p, logits);
    fv_buf_free(&p.x[0]);
    fv_buf_free(&p.x[1]);
    fv_buf_free(&p.last);
    fv_arena_fini(&p.group);
    for (int32_t b = 0; p.queries && b < n; b++) fv_buf_free(&p.queries[b]);
    for (int32_t b = 0; p.mask && b < n; b++) fv_buf_free(&p.mask[b].x);
    fv_arena_fini(&p.arena);
    return st;
}
