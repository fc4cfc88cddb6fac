/* The loops of all matrix products (gemm.h). Compiled for any x86-64: what has to be fast is in the implementation's
 * functions, each call of which is some thousand multiply-adds. */
#include "kernels/cpu/gemm.h"

#include "common/convert.h"

static int least(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

/* Blocks of K; one without columns, too, as y is the bias then. */
static size_t blocks_of_k(const fv_gemm_call *c) {
    const size_t K = (size_t)c->a->x.cols, KB = c->impl->tiles->KB;
    return K > KB ? (K + KB - 1) / KB : 1;
}

/* Rows of an item. */
static int64_t rows_of_item(const fv_gemm_call *c) {
    const fv_gemm_impl *f = c->impl;
    const int64_t M = c->a->x.rows;
    if (!f->rows) return M;
    return div_up(div_up(M, f->tiles->MR), div_up(M, f->rows)) * f->tiles->MR;
}

static int64_t items_of_part(const fv_gemm_call *c, const fv_linear_part *p) {
    return div_up(p->w.rows, c->impl->columns) * div_up(c->a->x.rows, rows_of_item(c));
}

static size_t own_bytes(const fv_gemm_call *c) {
    return c->impl->scratch_bytes ? (c->impl->scratch_bytes(c->a) + 63) / 64 * 64 : 0;
}

static size_t panels_bytes(const fv_gemm_impl *f) {
    const fv_gemm_tiles *s = f->tiles;
    return s->panel_bytes * (s->panel_stays ? 1 : (size_t)div_up(f->columns, s->NR));
}

fv_cpu_plan fv_gemm_plan(const fv_gemm_call *c) {
    const fv_gemm_impl *f = c->impl;
    fv_cpu_plan plan = {.grain = 1, .scratch_bytes = own_bytes(c)};
    for (int p = 0; p < c->a->n_part; p++) plan.n_item += items_of_part(c, &c->a->part[p]);
    if (f->grain) plan.grain = div_up(f->grain, (int64_t)f->columns * (c->a->x.cols + 1));
    if (!f->tiles) return plan;
    const int64_t M = div_up(rows_of_item(c), f->tiles->MR) * f->tiles->MR;
    const int64_t N = div_up(f->columns, f->tiles->NR) * f->tiles->NR;
    plan.scratch_bytes += panels_bytes(f) + (size_t)M * (size_t)N * f->tiles->sum_bytes;
    return plan;
}

/* Multiplies `rows` rows of x from m on by panel j; returns the sums after those of its tiles. Without a further block
 * of K, all tiles have the same memory for their sums. */
static char *multiply(fv_gemm_item *t, int m, int rows, int j, const char *panel, char *sums) {
    const fv_gemm_tiles *s = t->call->impl->tiles;
    const int n = j * s->NR, cols = least(s->NR, t->N - n);
    const size_t bytes = (size_t)s->MR * (size_t)s->NR * s->sum_bytes;
    for (const int end = m + rows; m < end; m += s->MR) {
        const int some = least(s->MR, end - m);
        s->multiply(t, m, some, n, cols, panel, sums);
        if (t->last && s->store) s->store(t, m, some, n, cols, sums);
        if (!t->last || t->k > 0) sums += bytes;
    }
    return sums;
}

/* An item by blocks of K, panels and tiles. */
static void run_tiles(fv_gemm_item *t) {
    const fv_gemm_tiles *s = t->call->impl->tiles;
    const size_t blocks = blocks_of_k(t->call);
    const int panels = (int)div_up(t->N, s->NR), together = s->panel_stays ? t->M : s->MR;
    char *first = t->scratch + own_bytes(t->call);
    for (t->k = 0; t->k < blocks; t->k++) {
        char *sums = first + panels_bytes(t->call->impl); /* in the order of the loops */
        t->last = t->k + 1 == blocks;
        for (int m = 0; m < t->M; m += together)
            for (int j = 0; j < panels; j++) {
                char *panel = first + (s->panel_stays ? 0 : (size_t)j * s->panel_bytes);
                /* between tiles, whose arithmetic its stores overlap */
                if (m == 0) s->pack_w(t, j * s->NR, least(s->NR, t->N - j * s->NR), panel);
                sums = multiply(t, m, least(together, t->M - m), j, panel, sums);
            }
    }
}

/* Neighbouring items share their weights and run at the same time. */
static void run_item(const fv_gemm_call *c, const fv_linear_part *p, int64_t i, char *scratch) {
    const int64_t rows = rows_of_item(c), blocks = div_up(c->a->x.rows, rows);
    float bias[FV_GEMM_COLUMNS_MAX];
    fv_gemm_item t = {.call = c,
                      .p = p,
                      .m0 = i % blocks * rows,
                      .n0 = i / blocks * c->impl->columns,
                      .bias = p->bias.data ? bias : NULL,
                      .scratch = scratch};
    t.M = least(rows, c->a->x.rows - t.m0);
    t.N = least(c->impl->columns, p->w.rows - t.n0);
    for (int j = 0; t.bias && j < t.N; j++)
        bias[j] = widened(p->bias.data, p->bias.dtype, (size_t)(t.n0 + j));
    if (c->impl->tiles)
        run_tiles(&t);
    else
        c->impl->item(&t);
}

/* Items [begin, end) of a part. */
static void run_part(const fv_gemm_call *c, const fv_linear_part *p, int64_t begin, int64_t end,
                     char *scratch) {
    const fv_gemm_impl *f = c->impl;
    if (f->open) f->open(c, p);
    if (f->items) f->items(c, p, begin, end, scratch);
    for (int64_t i = begin; !f->items && i < end; i++) run_item(c, p, i, scratch);
    if (f->close) f->close();
}

void fv_gemm_items(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *c = args;
    for (int p = 0; p < c->a->n_part; p++) {
        const int64_t n = items_of_part(c, &c->a->part[p]);
        const int64_t from = begin < 0 ? 0 : begin, to = end < n ? end : n;
        if (from < to) run_part(c, &c->a->part[p], from, to, scratch);
        begin -= n;
        end -= n;
    }
}
