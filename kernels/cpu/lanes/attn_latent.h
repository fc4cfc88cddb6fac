#ifndef FOVEA_KERNELS_CPU_LANES_ATTN_LATENT_H
#define FOVEA_KERNELS_CPU_LANES_ATTN_LATENT_H

/* Attention on coefficients, as kernels/ops.h words it, for a path with 16-lane vectors.
 *
 * An item is some KV heads times some query rows: the R vectors of their query heads share every row. A
 * softmax block of 64 tokens is decoded once for all of them, into panels that stay in the cache:
 *
 *     levels   [quads, 64, 4]    int8, a lane a token
 *     z        [1 + n, 64]       levels as coefficients
 *     keys     [D, 64]           of a KV head: integer sums of levels, mean and scale, own directions; rotated
 *     scores   S [R, 64] = q K   chains of lanes/chains.h
 *     softmax                    that of lanes/softmax.h
 *     sums     y [1 + n, R] = y c + Z P^T, P^T [64, R]: a lane is a vector
 *     output   o [R, D] = y^T B  a KV head's directions
 *
 * A tile whose tokens are all of group 1 skips the directions beyond R2; sums over these directions leave
 * out rows of group 1.
 *
 * In bf16 scores and sums are canonical products (packed_products.h) of the same panels, rounded; where these
 * products have words, keys in codes are unpacked to words directly. */
#include <string.h>

#include "kernels/cpu/lanes/attn_latent_tokens.h"
#include "kernels/cpu/lanes/softmax.h"

/* ---- a block ---------------------------------------------------------------------------- */

/* Lists the valid rows among [j0, j0 + n), and those of group 0 among them. */
static void latent_list(latent_item *t, int32_t j0, int32_t n) {
    t->n_list[0] = rows_valid(t->seq->rows, j0, n, &t->anchor, t->list[0]);
    t->n_list[1] = 0;
    for (int32_t i = 0; i < t->n_list[0]; i++)
        if (!latent_low(t, t->list[0][i])) t->list[1][t->n_list[1]++] = t->list[0][i];
}

/* Computes S of KV head g0 + h. */
static void latent_head_scores(const latent_item *t, int32_t h, int32_t j0, size_t tiles,
                               const size_t *need) {
    int32_t M = t->n_row * t->group;
    size_t v = (size_t)(h * M);
    latent_keys_of(t, h, j0, tiles, need);
    packed_multiply(t->products,
                    (chains){t->q + v * t->Dp, t->Dp, t->keys, FV_KV_BLOCK, t->D, tiles, NULL,
                             t->s + v * FV_KV_BLOCK, FV_KV_BLOCK, NULL},
                    M, 0);
}

/* Computes S of KV head g0 + h from codes unpacked to words; codes have no lower rank. */
static void latent_head_scores_of_words(const latent_item *t, int32_t h, int32_t j0, size_t tiles,
                                        const size_t *need) {
    int32_t M = t->n_row * t->group;
    size_t v = (size_t)(h * M);
    float *to = t->s + v * FV_KV_BLOCK;
    (void)need;
    latent_coded_words(t, h, j0, tiles);
    memset(to, 0, (size_t)M * FV_KV_BLOCK * sizeof *to);
    t->words->multiply(&(words_product){.x = t->q + v * t->Dp,
                                        .ldx = t->Dp,
                                        .M = M,
                                        .panels = (int)tiles,
                                        .steps = t->Dp / BF16_STEP,
                                        .w = (const uint32_t *)t->keys,
                                        .ldw = FV_KV_BLOCK,
                                        .acc = to,
                                        .ld_row = FV_KV_BLOCK});
}

static void latent_scores(const latent_item *t, int32_t j0, int32_t n) {
    size_t tiles = fv_packed_tiles((size_t)n), need[LATENT_TILES];
    latent_needs(t, j0, tiles, need);
    latent_decode(t, j0, tiles, need);
    for (int32_t h = 0; h < t->n_g; h++)
        (t->words ? latent_head_scores_of_words : latent_head_scores)(t, h, j0, tiles, need);
    rows_hide_others(t->s, t->R, j0, t->list[0], t->n_list[0]);
}

/* Returns n lines of z from line r on, with the columns of a list's rows. */
static const float *latent_listed(const latent_item *t, size_t r, size_t n, int32_t j0,
                                  const int32_t *list, int32_t rows) {
    float *z = t->z + r * FV_KV_BLOCK;
    if (list[rows - 1] == j0 + rows - 1) {
        as_rows(t->products, z, FV_KV_BLOCK, (int64_t)n, (size_t)rows);
        return z;
    }
    for (size_t k = 0; k < n; k++)
        for (int32_t i = 0; i < rows; i++)
            t->z_some[k * FV_KV_BLOCK + (size_t)i] = z[k * FV_KV_BLOCK + (size_t)(list[i] - j0)];
    as_rows(t->products, t->z_some, FV_KV_BLOCK, (int64_t)n, (size_t)rows);
    return t->z_some;
}

/* y = y c + Z P^T over the rows of a list, for lines [r, end) of y. */
static void latent_sums(const latent_item *t, int which, size_t r, size_t end, int32_t j0) {
    const int32_t *list = t->list[which], rows = t->n_list[which];
    if (r == end || rows == 0) return;
    for (int32_t i = 0; i < rows; i++)
        for (int32_t v = 0; v < t->R; v++)
            t->pt[(size_t)i * t->Rp + (size_t)v] = t->s[v * FV_KV_BLOCK + list[i] - j0];
    as_lines(t->products, t->pt, t->Rp, (size_t)rows, t->Rp);
    const float *z = latent_listed(t, r, end - r, j0, list, rows);
    packed_multiply(t->products,
                    (chains){z, FV_KV_BLOCK, t->pt, t->Rp, (size_t)rows, t->Rp / LANES, GOES_ON,
                             t->y + r * t->Rp, t->Rp, NULL},
                    (int64_t)(end - r), 0);
}

static void latent_values(const latent_item *t, int32_t j0) {
    bool shrinks = false;
    size_t all = 1 + t->block.latent.n, first = 1 + t->low[1];
    for (int32_t v = 0; v < t->R; v++) shrinks |= t->c[v] != 1.0f;
    for (size_t i = 0; shrinks && i < all * t->Rp; i += LANES)
        f32x16_store(t->y + i, f32x16_mul(f32x16_load(t->y + i), f32x16_load(t->c + i % t->Rp)));
    latent_sums(t, 0, 0, first, j0);
    latent_sums(t, 1, first, all, j0);
}

/* ---- one item --------------------------------------------------------------------------- */

static size_t latent_head(const latent_item *t, int32_t v) {
    return (size_t)((t->g0 + v / (t->n_row * t->group)) * t->group + v % t->group);
}

static int32_t latent_row_in(const latent_item *t, int32_t v) {
    return t->row0 + v / t->group % t->n_row;
}

/* Returns the line for the scores of vector v, or NULL. */
static float *latent_score_line(const latent_item *t, int32_t v) {
    return rows_score_line(t->seq, latent_head(t, v), latent_row_in(t, v));
}

static void latent_leave_scores(const latent_item *t, int32_t j0, int32_t n) {
    for (int32_t v = 0; v < t->R; v++) {
        float *line = latent_score_line(t, v);
        for (int32_t j = 0; line && j < n; j++)
            line[j0 + j] = t->s[v * FV_KV_BLOCK + j] * t->a->scale;
    }
}

/* Decodes the own directions of the item's KV heads, those of keys as columns. */
static void latent_own(const latent_item *t) {
    for (int32_t h = 0; h < t->n_g; h++) {
        size_t c = (size_t)(t->g0 + h) * t->D;
        float *key = t->own[0] + (size_t)h * t->D * OWN_LINE;
        float *value = t->own[1] + (size_t)h * OWN_LINE * t->Dp;
        for (size_t i = 0; t->block.latent.n_dir + i < t->block.latent.n; i++)
            for (size_t d = 0; d < t->D; d++) {
                key[d * OWN_LINE + i] = latent_own_number(t->seq->k, i, c + d);
                value[i * t->Dp + d] = latent_own_number(t->seq->v, i, c + d);
            }
    }
}

static void latent_begin(latent_item *t) {
    memset(t->q, 0, (size_t)t->R * t->Dp * sizeof *t->q);
    memset(t->y, 0, (1 + t->block.latent.n) * t->Rp * sizeof *t->y);
    memset(t->pt, 0, FV_KV_BLOCK * t->Rp * sizeof *t->pt);
    memset(t->c, 0, t->Rp * sizeof *t->c);
    t->anchor = 0;
    for (int32_t v = 0; v < t->R; v++) {
        int64_t row = (int64_t)t->seq->row0 + latent_row_in(t, v);
        memcpy(t->q + (size_t)v * t->Dp, row_f32(&t->a->q, row) + latent_head(t, v) * t->D,
               t->D * sizeof *t->q);
        rows_begin(t->seq, latent_score_line(t, v), &t->m[v], &t->l[v], &t->n_seen[v]);
    }
    as_rows(t->products, t->q, t->Dp, t->R, t->D);
    latent_own(t);
}

/* o = y B / l: turns summed coefficients into values. */
static void latent_output(const latent_item *t) {
    const fv_latent_layer *l = t->seq->v->latent;
    size_t n = 1 + t->block.latent.n, shared = 1 + t->block.latent.n_dir,
           line = (size_t)l->n_dir + 1;
    int32_t M = t->n_row * t->group;
    for (size_t v = 0; v < (size_t)t->R; v++)
        for (size_t r = 0; r < n; r++) t->yt[v * n + r] = t->y[r * t->Rp + v];
    for (int32_t h = 0; h < t->n_g; h++) {
        const float *y = t->yt + (size_t)(h * M) * n;
        float *o = t->out + (size_t)(h * M) * t->Dp;
        chains_all((chains){y, n, l->value + (size_t)(t->g0 + h) * line * t->D, t->D, shared,
                            steps_of(t->D), NULL, o, t->Dp, NULL},
                   M, 0);
        if (n > shared)
            chains_all((chains){y + shared, n, t->own[1] + (size_t)h * OWN_LINE * t->Dp, t->Dp,
                                n - shared, steps_of(t->D), GOES_ON, o, t->Dp, NULL},
                       M, 0);
    }
}

static void latent_end(const latent_item *t) {
    latent_output(t);
    for (int32_t v = 0; v < t->R; v++)
        rows_end(t->a, (int64_t)t->seq->row0 + latent_row_in(t, v), latent_head(t, v),
                 t->out + (size_t)v * t->Dp, t->m[v], t->l[v]);
}

static void latent_attend(latent_item *t) {
    int32_t n = t->seq->rows->n;
    latent_begin(t);
    for (int32_t j0 = 0, rows; j0 < n; j0 += rows) {
        rows = min_int(FV_KV_BLOCK, n - j0);
        latent_list(t, j0, rows);
        if (t->n_list[0] == 0) continue;
        latent_scores(t, j0, rows);
        latent_leave_scores(t, j0, rows);
        softmax(t->R, t->a->scale, t->n_seen, t->products->multiply, t->s, t->m, t->l, t->c);
        latent_values(t, j0);
    }
    latent_end(t);
}

static void latent_open(latent_item *t) {
    bool groups = t->seq->rows->group != NULL;
    t->coded = t->seq->k->shape.latent.coded;
    t->words = t->coded && t->D % 8 == 0 ? t->products->words : NULL;
    if (t->words) memset(t->keys, 0, t->Dp / 2 * FV_KV_BLOCK * sizeof *t->keys);
    latent_view_open(&t->block.latent, t->seq->k);
    t->low[0] = fv_latent_read_dirs(&t->seq->k->shape, t->block.latent.n, groups);
    t->low[1] = fv_latent_read_dirs(&t->seq->v->shape, t->block.latent.n, groups);
}

static void attn_latent(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_attention *c = args;
    const fv_attn_packed_args *a = c->a;
    const packed_products *products = packed_for(c);
    latent_item t = {.a = a,
                     .products = products,
                     .block.by_quads = products->keys ? products->keys : c->isa->latent_keys,
                     .group = a->n_head / a->n_kv};
    latent_scratch(a, &t, scratch);
    if (products->open) products->open();
    for (int q = 0; q < a->n_seq; q++) {
        t.seq = &a->seqs[q];
        int32_t heads = latent_heads(a, t.seq), rows = latent_rows(a, t.seq);
        int64_t blocks = div_up(a->n_kv, heads), n = latent_items(a, t.seq);
        if (begin < n && end > 0) latent_open(&t);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++) {
            t.g0 = (int32_t)(i % blocks) * heads;
            t.n_g = min_int(heads, a->n_kv - t.g0);
            t.row0 = (int32_t)(i / blocks) * rows;
            t.n_row = min_int(rows, t.seq->n_rows - t.row0);
            t.R = t.n_g * t.n_row * t.group;
            t.Rp = padded((size_t)t.R);
            latent_attend(&t);
        }
        begin -= n;
        end -= n;
    }
    if (products->close) products->close();
}

#endif
