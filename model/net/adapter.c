/* Adds the low-rank products of adapters to a layer's products. Runs on the thread that owns the decoder.
 *
 * The low-rank part is computed after the base product and added to it, so the base product is the same call for all
 * rows. Rows of an adapter that are adjacent are used in place; others are gathered, and their sums scattered. */
#include "model/net/adapter.h"

#include <assert.h>
#include <string.h>

#include "model/net/decoder_internal.h"

const fv_adapter *fv_adapters_named(const fv_adapters *all, const char *name) {
    for (int32_t i = 0; i < all->n; i++)
        if (strcmp(all->adapter[i].name, name) == 0) return &all->adapter[i];
    return NULL;
}

const fv_adapter *fv_adapters_with(const fv_adapters *all, const char *digest) {
    for (int32_t i = 0; i < all->n; i++)
        if (strcmp(all->adapter[i].digest, digest) == 0) return &all->adapter[i];
    return NULL;
}

/* ---- rows -------------------------------------------------------------------------------- */

static const fv_adapter *adapter_of(const fv_forward_batch *pass, int32_t b) {
    return fv_kv_get_sequence(pass->seq[b].kv)->adapter;
}

static fv_adapter_group *group_of(fv_adapter_rows *rows, const fv_adapter *adapter) {
    for (int32_t i = 0; i < rows->n; i++)
        if (rows->group[i].adapter == adapter) return &rows->group[i];
    return NULL;
}

/* Counts or, with `put`, writes the rows of each group. */
static void walk(const fv_forward_batch *pass, const int32_t *row, int32_t n, bool put,
                 fv_adapter_rows *out) {
    int32_t b = 0, end = pass->n_seq ? pass->seq[0].n_rows : 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = row ? row[i] : i;
        while (at >= end) end += pass->seq[++b].n_rows;
        const fv_adapter *adapter = adapter_of(pass, b);
        fv_adapter_group *g = adapter ? group_of(out, adapter) : NULL;
        if (g && put) g->row[g->n] = i;
        if (g) g->n++;
    }
}

fv_status fv_adapter_rows_make(const fv_forward_batch *pass, const int32_t *row, int32_t n,
                               fv_arena *arena, fv_adapter_rows *out) {
    bool any = false;
    *out = (fv_adapter_rows){0};
    for (int32_t b = 0; b < pass->n_seq; b++) any |= adapter_of(pass, b) != NULL;
    if (!any) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, pass->n_seq, out->group));
    for (int32_t b = 0; b < pass->n_seq; b++)
        if (adapter_of(pass, b) && !group_of(out, adapter_of(pass, b)))
            out->group[out->n++].adapter = adapter_of(pass, b);
    walk(pass, row, n, false, out);
    for (int32_t i = 0; i < out->n; i++) {
        FV_TRY(FV_ARENA_NEW(arena, out->group[i].n, out->group[i].row));
        out->group[i].n = 0;
    }
    walk(pass, row, n, true, out);
    return FV_OK;
}

/* ---- products ---------------------------------------------------------------------------- */

static const fv_adapter_pair *pair_of(const fv_decoder *dec, const fv_adapter *adapter,
                                      const fv_text_layer *w, const fv_tensor *of) {
    const fv_text_layer *first = dec->w.layer;
    bool plain = w >= first && w < first + fv_text_layers(dec->cfg);
    const fv_adapter_layer *layer =
        plain ? &adapter->layer[w - first] : &adapter->recurrent[w - dec->w.recurrent];
    return &layer->pair[of - (const fv_tensor *)w];
}

/* y = x w^T, or y += x w^T, in f32. */
static fv_status multiply(fv_decoder *dec, fv_tensor x, fv_tensor w, fv_tensor y, bool add) {
    fv_linear_args a = {.x = x, .in_f32 = true, .n_part = 1, .part = {{w, {0}, y, add}}};
    return dec->be->ops->linear(dec->be, &a);
}

/* Adds row i of x to row g->row[i] of y, adjacent rows at once. */
static fv_status scatter(fv_decoder *dec, const fv_adapter_group *g, fv_tensor x, fv_tensor y) {
    for (int32_t i = 0, n; i < g->n; i += n) {
        for (n = 1; i + n < g->n && g->row[i + n] == g->row[i] + n; n++) {
        }
        fv_activate_args add = {.act = FV_ACT_NONE,
                                .x = fv_tensor_rows(x, i, n),
                                .y = fv_tensor_rows(y, g->row[i], n),
                                .accumulate = true};
        FV_TRY(dec->be->ops->activate(dec->be, &add));
    }
    return FV_OK;
}

static fv_status add_group(fv_decoder *dec, const fv_adapter_group *g, const fv_adapter_pair *p,
                           fv_tensor x, fv_tensor y) {
    fv_workspace *ws = &dec->adapter_ws;
    const int32_t n = g->n, first = g->row[0];
    const bool adjacent = g->row[n - 1] == first + n - 1;
    FV_TRY(fv_workspace_reset(ws, fv_workspace_need(x.dtype, n, x.cols) +
                                      fv_workspace_need(FV_F32, n, p->a.rows) +
                                      fv_workspace_need(FV_F32, n, y.cols)));
    fv_tensor low = fv_workspace_cut(ws, FV_F32, n, p->a.rows);
    if (adjacent) {
        FV_TRY(multiply(dec, fv_tensor_rows(x, first, n), p->a, low, false));
        return multiply(dec, low, p->b, fv_tensor_rows(y, first, n), true);
    }
    fv_tensor some = fv_workspace_cut(ws, x.dtype, n, x.cols);
    fv_tensor sum = fv_workspace_cut(ws, FV_F32, n, y.cols);
    fv_index_select_args rows = {.table = x, .y = some, .ids = g->row};
    FV_TRY(dec->be->ops->index_select(dec->be, &rows));
    FV_TRY(multiply(dec, some, p->a, low, false));
    FV_TRY(multiply(dec, low, p->b, sum, false));
    return scatter(dec, g, sum, y);
}

fv_status fv_adapter_add(fv_decoder *dec, const fv_adapter_rows *rows, const fv_text_layer *w,
                         const fv_tensor *of, fv_tensor x, fv_tensor y) {
    for (int32_t i = 0; i < rows->n; i++) {
        const fv_adapter_group *g = &rows->group[i];
        const fv_adapter_pair *p = pair_of(dec, g->adapter, w, of);
        if (g->n == 0 || !p->a.data) continue;
        assert(p->a.cols == x.cols && p->b.rows == y.cols);
        FV_TRY(add_group(dec, g, p, x, y));
    }
    return FV_OK;
}
