/* Routes tokens, groups them by expert, runs each expert's matrices on its tokens, and sums.
 *
 *   h --router--> experts and weights of each token --count--> tokens of expert 0, of expert 1, ...
 *     --gather--> rows by expert --items--> gate, up, activation --items--> down --sum--> y
 *
 * An item is a band of one expert's outputs: operations on it are small, so each thread computes
 * items of its own (fv_backend_each) instead of sharing every operation with the others. A band is
 * narrow where an expert has few tokens, so that all threads read weights. Runs on the thread that
 * owns the decoder. */
#include "model/net/experts.h"

#include <assert.h>
#include <string.h>

#include "common/vectors.h"
#include "kernels/mathf.h"

/* Tokens at a time, which bounds the memory; an expert's weights are read once for all of them. */
enum { TOKENS_MAX = 1024 };

/* Weights of a band, and the rows that it has at least. With more tokens than FEW a band is the whole
 * expert: its products then take long enough. */
enum { BAND_WEIGHTS = 1 << 18, BAND_ROWS = 64, FEW = 16 };

/* Tokens that an item of routing or summing takes. */
enum { SOME = 16 };

/* ---- one pass -------------------------------------------------------------------------- */

/* An expert that some tokens chose: its rows among those grouped by expert. */
typedef struct group {
    int32_t expert, row0, rows;
} group;

typedef struct mixture {
    fv_backend *be;
    const fv_text_config *cfg;
    const fv_text_layer *layer;
    const fv_text_expert *apart; /* [E] or NULL */
    int32_t n, k, d, m;          /* tokens, experts of each, width of the model and of an expert */
    fv_tensor logits;            /* [n, E] */
    fv_tensor x;                 /* [n k, d] inputs by expert */
    fv_tensor gate, up;          /* [n k, m] */
    fv_tensor out;               /* [n k, d] outputs by expert */
    fv_tensor y;                 /* [n, d] */
    int32_t *expert;             /* [n, k] */
    float *weight;               /* [n, k] */
    int32_t *token;              /* [n k] the token of each row by expert */
    int32_t *row;                /* [n, k] the row of each token's experts, in ascending order */
    group group[FV_EXPERTS_MAX];
    int32_t n_group;
    int32_t *item;     /* [items] the group of each item, and below the item's first output */
    int32_t *first;    /* [items] */
    int32_t band;      /* outputs of an item */
    fv_status *status; /* [FV_EACH_SLOTS] the first failure of a slot */
} mixture;

static size_t ints(size_t n) { return fv_workspace_need(FV_F32, 1, (int32_t)n); }

static int32_t cut_ints(int32_t width, int32_t band) { return (width + band - 1) / band; }

/* The most items: every expert cut as finely as possible. */
static size_t items_max(const fv_text_config *c, int32_t n) {
    const int32_t wide = c->d_model > c->d_expert ? c->d_model : c->d_expert;
    const int64_t active = (int64_t)n * c->n_active;
    const int64_t experts = active < c->n_expert ? active : c->n_expert;
    return (size_t)experts * (size_t)cut_ints(wide, BAND_ROWS);
}

static size_t bytes_of(const fv_text_config *c, int32_t n) {
    const int32_t rows = n * c->n_active;
    return fv_workspace_need(FV_F32, n, c->n_expert) +
           2 * fv_workspace_need(FV_F32, rows, c->d_model) +
           2 * fv_workspace_need(FV_F32, rows, c->d_expert) + 4 * ints((size_t)rows) +
           2 * ints(items_max(c, n)) + ints(FV_EACH_SLOTS);
}

static void *cut(fv_workspace *ws, size_t n) {
    return fv_workspace_cut(ws, FV_F32, 1, (int32_t)n).data;
}

/* Cuts the memory of n tokens. A single token's rows are all the same one. */
static void open_mixture(fv_workspace *ws, const fv_text_config *c, const fv_text_layer *layer,
                         const fv_text_expert *apart, fv_tensor h, fv_tensor y, mixture *x) {
    const int32_t n = h.rows, rows = n * c->n_active;
    *x = (mixture){.be = ws->be,
                   .cfg = c,
                   .layer = layer,
                   .apart = apart,
                   .n = n,
                   .k = c->n_active,
                   .d = c->d_model,
                   .m = c->d_expert,
                   .y = y};
    x->logits = fv_workspace_cut(ws, FV_F32, n, c->n_expert);
    x->x = fv_workspace_cut(ws, FV_F32, rows, x->d);
    x->out = fv_workspace_cut(ws, FV_F32, rows, x->d);
    x->gate = fv_workspace_cut(ws, FV_F32, rows, x->m);
    x->up = fv_workspace_cut(ws, FV_F32, rows, x->m);
    x->expert = cut(ws, (size_t)rows);
    x->weight = cut(ws, (size_t)rows);
    x->token = cut(ws, (size_t)rows);
    x->row = cut(ws, (size_t)rows);
    x->item = cut(ws, items_max(c, n));
    x->first = cut(ws, items_max(c, n));
    x->status = cut(ws, FV_EACH_SLOTS);
}

/* ---- items ----------------------------------------------------------------------------- */

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* Calls fn for items [0, n), and passes on the first failure. */
static fv_status each(mixture *x, int32_t n, fv_each_fn *fn) {
    for (int32_t s = 0; s < FV_EACH_SLOTS; s++) x->status[s] = FV_OK;
    FV_TRY(fv_backend_each(x->be, n, fn, x));
    for (int32_t s = 0; s < FV_EACH_SLOTS; s++)
        if (x->status[s] != FV_OK)
            return FV_FAIL(x->status[s], "an expert's product failed on one of the threads");
    return FV_OK;
}

static void note(mixture *x, int32_t slot, fv_status st) {
    if (st != FV_OK && x->status[slot] == FV_OK) x->status[slot] = st;
}

static void route_some(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    mixture *x = arg;
    const int32_t t0 = i * SOME, E = x->cfg->n_expert;
    (void)be, (void)slot;
    fv_experts_route(x->cfg, x->layer->router_bias.data,
                     (const float *)x->logits.data + (size_t)t0 * (size_t)E, least(SOME, x->n - t0),
                     x->expert + (size_t)t0 * (size_t)x->k, x->weight + (size_t)t0 * (size_t)x->k);
    const float *scale = x->layer->expert_scale.data;
    for (int32_t j = t0 * x->k; scale && j < least(t0 + SOME, x->n) * x->k; j++)
        x->weight[j] *= scale[x->expert[j]];
}

/* Sorts the pairs (token, expert) by expert, and in an expert by token. */
static void sort_by_expert(mixture *x) {
    int32_t at[FV_EXPERTS_MAX] = {0}, row = 0;
    for (int32_t i = 0; i < x->n * x->k; i++) at[x->expert[i]]++;
    for (int32_t e = 0; e < x->cfg->n_expert; e++) {
        const int32_t rows = at[e];
        at[e] = row;
        if (rows > 0) x->group[x->n_group++] = (group){e, row, rows};
        row += rows;
    }
    for (int32_t i = 0; i < x->n * x->k; i++) {
        x->row[i] = at[x->expert[i]]++;
        x->token[x->row[i]] = i / x->k;
    }
}

/* Cuts every expert's `width` outputs, of `inputs` columns each, into bands; returns the items. */
static int32_t cut_bands(mixture *x, int32_t width, int32_t inputs) {
    int32_t n = 0, most = 0;
    for (int32_t g = 0; g < x->n_group; g++)
        if (x->group[g].rows > most) most = x->group[g].rows;
    x->band = BAND_WEIGHTS / inputs / BAND_ROWS * BAND_ROWS;
    if (x->band < BAND_ROWS) x->band = BAND_ROWS;
    if (most > FEW && x->n_group >= 2 * BAND_ROWS) x->band = width;
    for (int32_t g = 0; g < x->n_group; g++)
        for (int32_t first = 0; first < width; first += x->band) {
            x->item[n] = g;
            x->first[n++] = first;
        }
    return n;
}

/* Columns [first, first + n) of rows of a matrix. */
static fv_tensor band_of(fv_tensor t, const group *g, int32_t first, int32_t n) {
    t = fv_tensor_rows(t, g->row0, g->rows);
    t.data = (float *)t.data + first;
    t.cols = n;
    return t;
}

/* Rows [first, first + n) of an expert's gate and up projections, and of its down projection. */
static fv_tensor gate_of(const mixture *x, int32_t e, int32_t first, int32_t n, fv_quant *quant) {
    if (x->apart) return fv_weight_rows(x->apart[e].gate, first, n, quant);
    return fv_weight_rows(x->layer->experts_in, e * 2 * x->m + first, n, quant);
}

static fv_tensor up_of(const mixture *x, int32_t e, int32_t first, int32_t n, fv_quant *quant) {
    if (x->apart) return fv_weight_rows(x->apart[e].up, first, n, quant);
    return fv_weight_rows(x->layer->experts_in, (e * 2 + 1) * x->m + first, n, quant);
}

static fv_tensor down_of(const mixture *x, int32_t e, int32_t first, int32_t n, fv_quant *quant) {
    if (x->apart) return fv_weight_rows(x->apart[e].down, first, n, quant);
    return fv_weight_rows(x->layer->experts_out, e * x->d + first, n, quant);
}

/* act(x Wgate^T) * (x Wup^T) of a band. */
static void run_in(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    mixture *x = arg;
    const group *g = &x->group[x->item[i]];
    const int32_t first = x->first[i], n = least(x->band, x->m - first);
    fv_quant quant[2];
    fv_tensor gate = band_of(x->gate, g, first, n), up = band_of(x->up, g, first, n);
    fv_linear_args in = {.x = fv_tensor_rows(x->x, g->row0, g->rows),
                         .n_part = 2,
                         .part = {{.w = gate_of(x, g->expert, first, n, &quant[0]), .y = gate},
                                  {.w = up_of(x, g->expert, first, n, &quant[1]), .y = up}}};
    fv_activate_args act = {.act = x->cfg->act, .x = gate, .gate = up, .y = gate};
    note(x, slot, be->ops->linear(be, &in));
    note(x, slot, be->ops->activate(be, &act));
}

/* A band of the outputs, of all rows of an expert. */
static void run_out(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    mixture *x = arg;
    const group *g = &x->group[x->item[i]];
    const int32_t first = x->first[i], n = least(x->band, x->d - first);
    fv_quant quant;
    fv_tensor w = down_of(x, g->expert, first, n, &quant);
    fv_linear_args out = {.x = fv_tensor_rows(x->gate, g->row0, g->rows),
                          .n_part = 1,
                          .part = {{.w = w, .y = band_of(x->out, g, first, n)}}};
    note(x, slot, be->ops->linear(be, &out));
}

VECTORS static void add_scaled(const float *from, float by, int32_t n, bool first, float *to) {
    if (first)
        for (int32_t i = 0; i < n; i++) to[i] = by * from[i];
    else
        for (int32_t i = 0; i < n; i++) to[i] = to[i] + by * from[i];
}

static void sum_some(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    mixture *x = arg;
    (void)be, (void)slot;
    for (int32_t t = i * SOME; t < least(x->n, (i + 1) * SOME); t++)
        for (int32_t j = 0; j < x->k; j++) {
            const size_t at = (size_t)t * (size_t)x->k + (size_t)j;
            add_scaled(fv_tensor_rows(x->out, x->row[at], 1).data, x->weight[at], x->d, j == 0,
                       fv_tensor_rows(x->y, t, 1).data);
        }
}

/* ---- the whole ------------------------------------------------------------------------- */

static fv_status run_tokens(fv_workspace *ws, const fv_text_config *c, const fv_text_layer *layer,
                            const fv_text_expert *apart, fv_tensor routed, fv_tensor h,
                            fv_tensor y) {
    mixture x;
    FV_TRY(fv_workspace_reset(ws, bytes_of(c, h.rows)));
    open_mixture(ws, c, layer, apart, h, y, &x);
    fv_linear_args router = {
        .x = routed, .n_part = 1, .part = {{.w = layer->router, .y = x.logits}}};
    FV_TRY(ws->be->ops->linear(ws->be, &router));
    FV_TRY(each(&x, cut_ints(x.n, SOME), route_some));
    sort_by_expert(&x);
    fv_index_select_args gather = {.table = h, .y = x.x, .ids = x.token};
    FV_TRY(ws->be->ops->index_select(ws->be, &gather));
    FV_TRY(each(&x, cut_bands(&x, x.m, x.d), run_in));
    FV_TRY(each(&x, cut_bands(&x, x.d, x.m), run_out));
    return each(&x, cut_ints(x.n, SOME), sum_some);
}

fv_status fv_experts_check(const fv_backend *be) {
    if (be->device == fv_device_host() && be->ops->act == FV_F32) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "a mixture of experts needs --device cpu");
}

fv_status fv_experts_run(fv_workspace *ws, const fv_text_config *cfg, const fv_text_layer *layer,
                         const fv_text_expert *apart, fv_tensor routed, fv_tensor h, fv_tensor y) {
    assert(h.cols == cfg->d_model && y.cols == cfg->d_model && h.rows == y.rows);
    for (int32_t t = 0; t < h.rows; t += TOKENS_MAX) {
        const int32_t n = least(TOKENS_MAX, h.rows - t);
        FV_TRY(run_tokens(ws, cfg, layer, apart, fv_tensor_rows(routed, t, n),
                          fv_tensor_rows(h, t, n), fv_tensor_rows(y, t, n)));
    }
    return FV_OK;
}
