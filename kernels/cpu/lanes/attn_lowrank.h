#ifndef FOVEA_KERNELS_CPU_LANES_ATTN_LOWRANK_H
#define FOVEA_KERNELS_CPU_LANES_ATTN_LOWRANK_H

/* Attention in rank space in the order of summation of kernels/ops.h, for a path with 16-lane
 * vectors.
 *
 * An item is some query heads times some query rows: up to V vectors, which share every row of the
 * block. All five steps are chains of lanes/chains.h against a panel of f32, which is decoded once
 * and used by all vectors:
 *
 *     latent   t [V, anchors, R] = q_a B^T   a head's basis [D, R], for as many anchor blocks as
 *                                            the cache holds
 *     scores   S [V, 64] = t U^T             keys' U is in tiles of 16 rows
 *     softmax                                that of lanes/softmax.h
 *     values   z [V, R] = z c + P W          each tier of U by itself: rows at the lower rank are
 *                                            missing from the second
 *     output   o [V, D] = z B                a head's basis [R, D]
 *
 * With uncompressed values the last two are one, head by head: o [V, D] = o c + P V.
 *
 * In bf16 the chains are canonical products (packed_products.h) of the same panels, rounded; where these
 * products have words, U and bases in codes of 4 bits are unpacked to words directly.
 *
 * Each basis is read once, sequentially. Invalid rows are not read, nor is the second tier of rows
 * at the lower rank. */
#include <string.h>

#include "kernels/cpu/lanes/attn_lowrank_item.h"
#include "kernels/cpu/lanes/packed_rows.h"
#include "kernels/cpu/lanes/softmax.h"

/* ---- a head's basis -------------------------------------------------------------------- */

static size_t kv_head(const packed_item *t, int32_t head) {
    return (size_t)((t->head0 + head) / (t->a->n_head / t->a->n_kv));
}

/* Number of the item's heads from head h on that share a basis. */
static int32_t heads_alike(const packed_item *t, int32_t h) {
    int32_t n = 1;
    while (h + n < t->n_head && kv_head(t, h + n) == kv_head(t, h)) n++;
    return n;
}

/* Decodes lines [k, k + n) of the basis of head h into rows of ld columns. */
static void take_basis(packed_item *t, const packed_view *v, int32_t h, size_t k, size_t n,
                       size_t ld) {
    lanes_basis_pairs(v, kv_head(t, h), t->lo, t->step);
    lanes_basis(v, kv_head(t, h), k, n, t->lo, t->step, t->panel, ld);
}

/* meet_basis() with a basis in codes, unpacked to words. */
static void meet_basis_words(packed_item *t, const packed_view *v, int32_t h, size_t k, size_t end,
                             const float *x, size_t ldx, int32_t M, float *y, size_t ldy) {
    const packed_words *words = t->products->words;
    const size_t width = fv_packed_basis_line(&v->s), registers = steps_of(width);
    const bool of_columns = v->s.kind == FV_PACKED_K;
    lanes_basis_pairs(v, kv_head(t, h), t->lo, t->step);
    for (int32_t m = 0; k == 0 && m < M; m++)
        memset(y + (size_t)m * ldy, 0, registers * LANES * sizeof *y);
    for (size_t n; k < end; k += n, x += n) {
        n = end - k < PACKED_LINES ? end - k : PACKED_LINES;
        const char *next = packed_basis_at(v, kv_head(t, h), k + n); /* or the next head's */
        for (size_t i = 0; i < n * v->l.basis_stride; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
        words->basis(packed_basis_at(v, kv_head(t, h), k), v->l.basis_stride, n, width,
                     of_columns ? t->lo : t->lo + k, of_columns ? t->step : t->step + k, of_columns,
                     (uint32_t *)t->panel, registers * LANES);
        words->multiply(&(words_product){.x = x,
                                         .ldx = ldx,
                                         .M = M,
                                         .panels = (int)registers,
                                         .steps = bf16_steps(n),
                                         .w = (const uint32_t *)t->panel,
                                         .ldw = registers * LANES,
                                         .acc = y,
                                         .ld_row = ldy});
    }
}

/* y [M, ldy] += x [M, ldx] times lines [k, end) of the basis of head h; from 0 where k is 0. */
static void meet_basis(packed_item *t, const packed_view *v, int32_t h, size_t k, size_t end,
                       const float *x, size_t ldx, int32_t M, float *y, size_t ldy) {
    size_t registers = steps_of(fv_packed_basis_line(&v->s));
    bool stored = !t->products->multiply && M <= STORED_ROWS && v->s.lowrank.bits == 16;
    if (stored && fv_packed_basis_line(&v->s) == ldy) {
        chains_stored(x, ldx, packed_basis_at(v, kv_head(t, h), k), v->s.dtype, end - k, M,
                      registers, k ? GOES_ON : NULL, y, ldy);
        return;
    }
    if (t->products->words && v->s.lowrank.bits == 4) {
        meet_basis_words(t, v, h, k, end, x, ldx, M, y, ldy);
        return;
    }
    for (size_t n; k < end; k += n, x += n) {
        n = end - k < PACKED_LINES ? end - k : PACKED_LINES;
        take_basis(t, v, h, k, n, ldy);
        as_lines(t->products, t->panel, ldy, n, registers * LANES);
        const char *next = packed_basis_at(v, kv_head(t, h), k + n); /* or the next head's */
        packed_multiply(
            t->products,
            (chains){x, ldx, t->panel, ldy, n, registers, k ? GOES_ON : NULL, y, ldy, next}, M,
            n * v->l.basis_stride);
    }
}

/* ---- latent queries -------------------------------------------------------------------- */

/* Writes q_a of one head and row, padded with zeros to Dp columns. */
static void rotate_query(const packed_item *t, int32_t head, int32_t i, int32_t anchor, float *to) {
    const fv_packed_rows *rows = t->seq->rows;
    const float *q =
        row_f32(&t->a->q, (int64_t)t->seq->row0 + t->row0 + i) + (size_t)(t->head0 + head) * t->D;
    size_t half = t->D / 2;
    memset(to + t->D, 0, (t->Dp - t->D) * sizeof *to);
    if (!rows->cos) {
        memcpy(to, q, t->D * sizeof *to);
        return;
    }
    const float *c = rows->cos + (size_t)anchor * half, *s = rows->sin + (size_t)anchor * half;
    size_t x = 0;
    for (; x + LANES <= half; x += LANES) {
        f32x16 a = f32x16_load(q + x), b = f32x16_load(q + x + half);
        f32x16 cos = f32x16_load(c + x), sin = f32x16_load(s + x);
        f32x16_store(to + x, f32x16_fma(a, cos, f32x16_mul(b, sin)));
        f32x16_store(to + x + half,
                     f32x16_fma(b, cos, f32x16_mul(f32x16_all(-1.0f), f32x16_mul(a, sin))));
    }
    for (; x < half; x++) {
        to[x] = fmaf(q[x], c[x], q[x + half] * s[x]);
        to[x + half] = fmaf(q[x + half], c[x], -(q[x] * s[x]));
    }
}

/* Computes latent queries of anchor blocks [anchor0, anchor0 + n), together for as many heads of one
 * basis as scratch memory allows. */
static void latent(packed_item *t, int32_t anchor0, int32_t n) {
    int32_t M = t->n_row * n, most = PACKED_ANCHORS * packed_rows(t->a) / M;
    t->n_held = n;
    for (int32_t h = 0, heads; h < t->n_head; h += heads) {
        heads = min_int(heads_alike(t, h), most);
        for (int32_t m = 0; m < heads * M; m++)
            rotate_query(t, h + m / M, m % M / n, anchor0 + m % n, t->q + (size_t)m * t->Dp);
        float *to = t->t + (size_t)h * (size_t)M * t->Rk;
        as_rows(t->products, t->q, t->Dp, heads * M, t->D);
        meet_basis(t, &t->k, h, 0, t->D, t->q, t->Dp, heads * M, to, t->Rk);
        as_rows(t->products, to, t->Rk, heads * M, (size_t)t->k.s.lowrank.rank);
    }
}

/* ---- scores ---------------------------------------------------------------------------- */

static bool low_rank(const packed_item *t, int32_t j) {
    return t->seq->rows->group && t->seq->rows->group[j];
}

/* Decodes a tile of keys' U into columns of `keys`; 0 beyond the lower rank of rows read at it. */
static void take_tile(packed_item *t, int32_t tile) {
    int32_t j0 = tile * FV_PACKED_TILE, n = 0, low[FV_PACKED_TILE];
    size_t low_rank2 = (size_t)t->k.s.lowrank.rank2, more = fv_packed_tier_rank(&t->k.s, 1);
    float *to = t->keys + j0 % FV_KV_BLOCK, *second = to + low_rank2 * FV_KV_BLOCK;
    lanes_k_tile(&t->k, 0, (size_t)tile, to, FV_KV_BLOCK);
    for (int32_t j = j0; more && j < min_int(j0 + FV_PACKED_TILE, t->k.s.n); j++)
        if (low_rank(t, j)) low[n++] = j - j0;
    if (more && n < FV_PACKED_TILE) lanes_k_tile(&t->k, 1, (size_t)tile, second, FV_KV_BLOCK);
    for (size_t r = 0; r < more; r++)
        for (int32_t i = 0; i < n; i++) second[r * FV_KV_BLOCK + (size_t)low[i]] = 0.0f;
    as_lines(t->products, to, FV_KV_BLOCK, (size_t)t->k.s.lowrank.rank, FV_PACKED_TILE);
}

/* Unpacks a tile of keys' U to words, [Rk / 2, 64]; zeros in the second tier for rows at the lower rank. */
static void take_tile_words(packed_item *t, int32_t tile) {
    size_t low_rank2 = (size_t)t->k.s.lowrank.rank2, more = fv_packed_tier_rank(&t->k.s, 1);
    int32_t j0 = tile * FV_PACKED_TILE, n = min_int(FV_PACKED_TILE, t->k.s.n - j0);
    uint32_t *to = (uint32_t *)t->keys + (size_t)(tile % PACKED_TILES) * FV_PACKED_TILE;
    const char *at = t->k.data + (size_t)tile * t->k.l.stride[0];
    unsigned without = 0;
    t->key_words->keys(at + t->k.l.tier[0], low_rank2, t->tables, 0, to, FV_KV_BLOCK);
    if (more == 0) return;
    for (int32_t i = 0; i < n; i++) without |= (unsigned)low_rank(t, j0 + i) << i;
    to += low_rank2 / 2 * FV_KV_BLOCK;
    if (without == (1u << n) - 1) {
        for (size_t i = 0; i < more / 2; i++, to += FV_KV_BLOCK)
            memset(to, 0, FV_PACKED_TILE * sizeof *to);
        return;
    }
    t->key_words->keys(t->k.data + t->k.l.tier[1] + (size_t)tile * t->k.l.stride[1], more,
                       t->tables + low_rank2 * 8, without, to, FV_KV_BLOCK);
}

/* Address, in the first tier, of the tiles a softmax block after [first, end); *bytes: their size. */
static const char *tiles_ahead(const packed_item *t, int32_t first, int32_t end, size_t *bytes) {
    int32_t last = (int32_t)div_up(t->k.s.n, FV_PACKED_TILE), ahead = FV_KV_BLOCK / FV_PACKED_TILE;
    first = min_int(first + ahead, last);
    end = min_int(end + ahead, last);
    *bytes = (size_t)(end - first) * t->k.l.stride[0];
    return t->k.data + (size_t)first * t->k.l.stride[0];
}

/* Scores of n tiles of words. */
static void scores_of_words(const packed_item *t, const float *x, size_t ld, int32_t first,
                            int32_t n, float *to) {
    for (int32_t v = 0; v < t->R; v++)
        memset(to + v * FV_KV_BLOCK, 0, (size_t)n * FV_PACKED_TILE * sizeof *to);
    t->key_words->multiply(&(words_product){.x = x,
                                            .ldx = ld,
                                            .M = t->R,
                                            .panels = n,
                                            .steps = t->Rk / BF16_STEP,
                                            .w = (const uint32_t *)t->keys +
                                                 (size_t)(first % PACKED_TILES) * FV_PACKED_TILE,
                                            .ldw = FV_KV_BLOCK,
                                            .acc = to,
                                            .ld_row = FV_KV_BLOCK});
}

/* Scores of rows [j0, j1) of one softmax block; x: their anchor block's latent queries, ld apart. Tiles
 * are computed whole, because lanes do not affect each other. */
static void packed_scores(packed_item *t, const float *x, size_t ld, int32_t j0, int32_t j1) {
    int32_t first = j0 / FV_PACKED_TILE, end = (j1 - 1) / FV_PACKED_TILE + 1;
    size_t at = (size_t)(first % PACKED_TILES) * FV_PACKED_TILE;
    for (int32_t tile = first; tile < end; tile++) {
        if (!t->has_tile[tile % PACKED_TILES])
            (t->key_words ? take_tile_words : take_tile)(t, tile);
        t->has_tile[tile % PACKED_TILES] = true;
    }
    size_t from = (size_t)(j0 % FV_KV_BLOCK), bytes = (size_t)(j1 - j0) * sizeof(float);
    bool whole = j0 % FV_PACKED_TILE == 0 && j1 % FV_PACKED_TILE == 0;
    size_t ahead;
    const char *next = tiles_ahead(t, first, end, &ahead);
    float *to = (whole ? t->s : t->part) + at;
    if (t->key_words) {
        scores_of_words(t, x, ld, first, end - first, to);
        for (size_t i = 0; i < ahead; i += 64) _mm_prefetch(next + i, _MM_HINT_T0);
    } else {
        packed_multiply(t->products,
                        (chains){x, ld, t->keys + at, FV_KV_BLOCK, (size_t)t->k.s.lowrank.rank,
                                 (size_t)(end - first), NULL, to, FV_KV_BLOCK, next},
                        t->R, ahead);
    }
    for (size_t v = from; !whole && v < (size_t)t->R * FV_KV_BLOCK; v += FV_KV_BLOCK)
        memcpy(t->s + v, t->part + v, bytes);
}

static void block_begin(packed_item *t) {
    for (int32_t i = 0; i < t->R * FV_KV_BLOCK; i++) t->s[i] = -INFINITY;
    t->n_list[0] = t->n_list[1] = 0;
    memset(t->has_tile, 0, sizeof t->has_tile);
}

/* Scores and lists rows [j0, j1), all valid and of one softmax block. */
static void block_rows(packed_item *t, const float *x, size_t ld, int32_t j0, int32_t j1) {
    int32_t n = t->n_list[0], n_full = t->n_list[1];
    packed_scores(t, x, ld, j0, j1);
    for (int32_t j = j0; j < j1; j++) t->list[0][n++] = j;
    if (t->seq->rows->group) {
        for (int32_t j = j0; j < j1; j++)
            if (!low_rank(t, j)) t->list[1][n_full++] = j;
    } else {
        for (int32_t j = j0; j < j1; j++) t->list[1][n_full++] = j;
    }
    t->n_list[0] = n;
    t->n_list[1] = n_full;
}

/* ---- values ---------------------------------------------------------------------------- */

/* packed_values() with rows in codes, unpacked to words. */
static void values_of_words(packed_item *t, int32_t j0, int tier) {
    size_t n = fv_packed_tier_rank(&t->v.s, tier), P = padded(n), stride = t->v.l.stride[tier];
    const int32_t *list = t->list[tier], rows = t->n_list[tier];
    const char *from = t->v.data + t->v.l.tier[tier];
    const float *column =
        (const float *)(t->v.data + t->v.l.column) + (tier ? t->v.s.lowrank.rank2 : 0);
    const float *p = listed(t->s, t->p, t->R, j0, list, rows);
    int32_t next = min_int(j0 + FV_KV_BLOCK, t->v.s.n), end = min_int(next + FV_KV_BLOCK, t->v.s.n);
    for (size_t i = 0; rows > FV_KV_BLOCK / 2 && i < (size_t)(end - next) * stride; i += 64)
        _mm_prefetch(from + (size_t)next * stride + i, _MM_HINT_T0);
    for (size_t v = 0; v < (size_t)t->R; v++)
        for (size_t i = 0; i < P; i += LANES) {
            float *z = t->z[tier] + v * P + i;
            f32x16_store(z, f32x16_mul(f32x16_load(z), f32x16_all(t->c[v])));
        }
    t->value_words->rows(from, stride, t->v.data + t->v.l.pair, column, n, list, rows,
                         (uint32_t *)t->w);
    t->value_words->multiply(
        &(words_product){.x = p,
                         .ldx = FV_KV_BLOCK,
                         .M = t->R,
                         .panels = (int)(P / LANES),
                         .steps = stepped(t->products, (size_t)rows) / BF16_STEP,
                         .w = (const uint32_t *)t->w,
                         .ldw = P,
                         .acc = t->z[tier],
                         .ld_row = P});
}

/* z = z c + sum_j p_j w_j in one tier. Prefetches the next rows if most of these were needed. */
static void packed_values(packed_item *t, int32_t j0, int tier) {
    size_t n = fv_packed_tier_rank(&t->v.s, tier), P = padded(n), stride = t->v.l.stride[tier];
    const int32_t *list = t->list[tier], rows = t->n_list[tier];
    if (n == 0) return;
    if (t->value_words && rows > 0) {
        values_of_words(t, j0, tier);
        return;
    }
    lanes_v_rows(&t->v, tier, list, rows, t->w, P);
    as_lines(t->products, t->w, P, (size_t)rows, P);
    int32_t next = min_int(j0 + FV_KV_BLOCK, t->v.s.n), end = min_int(next + FV_KV_BLOCK, t->v.s.n);
    size_t ahead = rows > FV_KV_BLOCK / 2 ? (size_t)(end - next) * stride : 0;
    packed_multiply(t->products,
                    (chains){listed(t->s, t->p, t->R, j0, list, rows), FV_KV_BLOCK, t->w, P,
                             (size_t)rows, P / LANES, t->c, t->z[tier], P,
                             t->v.data + t->v.l.tier[tier] + (size_t)next * stride},
                    t->R, ahead);
}

/* o = o c + sum_j p_j v_j of values that are rows, for the heads that share them. */
static void packed_row_values(packed_item *t, int32_t j0) {
    const int32_t *list = t->list[0], rows = t->n_list[0];
    const float *p = listed(t->s, t->p, t->R, j0, list, rows);
    for (int32_t h = 0, heads; h < t->n_head; h += heads) {
        heads = heads_alike(t, h);
        size_t v = (size_t)h * (size_t)t->n_row;
        lanes_rows(&t->v, kv_head(t, h), list, rows, t->w, t->Dp);
        as_lines(t->products, t->w, t->Dp, (size_t)rows, padded(t->D));
        packed_multiply(t->products,
                        (chains){p + v * FV_KV_BLOCK, FV_KV_BLOCK, t->w, t->Dp, (size_t)rows,
                                 steps_of(t->D), t->c + v, t->o + v * t->Dp, t->Dp, NULL},
                        heads * t->n_row, 0);
    }
}

/* Returns the line for the scores of vector v, or NULL. */
static float *score_line(const packed_item *t, int32_t v) {
    return rows_score_line(t->seq, (size_t)(t->head0 + v / t->n_row), t->row0 + v % t->n_row);
}

static void leave_scores(const packed_item *t, int32_t j0, int32_t n) {
    for (int32_t v = 0; v < t->R; v++) {
        float *line = score_line(t, v);
        for (int32_t j = 0; line && j < n; j++)
            line[j0 + j] = t->s[v * FV_KV_BLOCK + j] * t->a->scale;
    }
}

static void block_end(packed_item *t, int32_t j0, int32_t n) {
    if (t->n_list[0] == 0) return;
    leave_scores(t, j0, n);
    softmax(t->R, t->a->scale, t->n_seen, t->products->multiply, t->s, t->m, t->l, t->c);
    if (fv_packed_is_rows(&t->v.s)) packed_row_values(t, j0);
    for (int tier = 0; tier < 2; tier++) packed_values(t, j0, tier);
}

/* ---- output ---------------------------------------------------------------------------- */

/* Joins both tiers of z into rows, for one product in bf16. */
static void join_tiers(packed_item *t) {
    size_t low = (size_t)t->v.s.lowrank.rank2, more = fv_packed_tier_rank(&t->v.s, 1);
    for (size_t v = 0; v < (size_t)t->R; v++) {
        float *to = t->z_all + v * t->Rv;
        memcpy(to, t->z[0] + v * padded(low), low * sizeof *to);
        if (more) memcpy(to + low, t->z[1] + v * padded(more), more * sizeof *to);
    }
    as_rows(t->products, t->z_all, t->Rv, t->R, low + more);
}

static void output(packed_item *t) {
    size_t low = (size_t)t->v.s.lowrank.rank2, rank = (size_t)t->v.s.lowrank.rank;
    size_t P0 = padded(low), P1 = padded(rank - low);
    bool bf16 = t->products->multiply;
    if (bf16 && rank > 0) join_tiers(t);
    for (int32_t h = 0, heads; rank > 0 && h < t->n_head; h += heads) {
        heads = heads_alike(t, h);
        size_t v = (size_t)h * (size_t)t->n_row;
        int32_t M = heads * t->n_row;
        float *o = t->o + v * t->Dp;
        if (bf16) {
            meet_basis(t, &t->v, h, 0, rank, t->z_all + v * t->Rv, t->Rv, M, o, t->Dp);
            continue;
        }
        meet_basis(t, &t->v, h, 0, low, t->z[0] + v * P0, P0, M, o, t->Dp);
        if (rank > low) meet_basis(t, &t->v, h, low, rank, t->z[1] + v * P1, P1, M, o, t->Dp);
    }
    for (int32_t v = 0; v < t->R; v++)
        rows_end(t->a, (int64_t)t->seq->row0 + t->row0 + v % t->n_row,
                 (size_t)(t->head0 + v / t->n_row), t->o + (size_t)v * t->Dp, t->m[v], t->l[v]);
}

/* ---- one item -------------------------------------------------------------------------- */

/* Decides whether 4-bit codes of keys and of values are unpacked to words: if the products have words. */
static void words_begin(packed_item *t) {
    const packed_words *words = t->products->words;
    const fv_packed_shape *k = &t->k.s, *v = &t->v.s;
    bool keys =
        words && k->lowrank.bits == 4 && k->lowrank.rank % 4 == 0 && k->lowrank.rank2 % 4 == 0;
    t->key_words = keys ? words : NULL;
    t->value_words = words && v->lowrank.bits == 4 && !fv_packed_is_rows(v) ? words : NULL;
    if (!keys) return;
    words->tables((const float *)(t->k.data + t->k.l.pair), (size_t)k->lowrank.rank, t->tables);
    memset((uint32_t *)t->keys + (size_t)k->lowrank.rank / 2 * FV_KV_BLOCK, 0,
           (t->Rk - (size_t)k->lowrank.rank) / 2 * FV_KV_BLOCK * sizeof *t->keys);
}

static void packed_begin(packed_item *t) {
    words_begin(t);
    for (int tier = 0; tier < 2; tier++)
        memset(t->z[tier], 0,
               (size_t)t->R * padded(fv_packed_tier_rank(&t->v.s, tier)) * sizeof(float));
    if (fv_packed_is_rows(&t->v.s)) memset(t->o, 0, (size_t)t->R * t->Dp * sizeof *t->o);
    for (int32_t v = 0; v < t->R; v++)
        rows_begin(t->seq, score_line(t, v), &t->m[v], &t->l[v], &t->n_seen[v]);
}

/* Goes through the rows of an anchor block, softmax block by softmax block. */
static void packed_anchor(packed_item *t, int32_t anchor, const float *x) {
    const fv_packed_rows *rows = t->seq->rows;
    size_t ld = (size_t)t->n_held * t->Rk;
    int32_t end = rows->first[anchor + 1], valid = end;
    if (rows->valid) valid = rows->first[anchor] + rows->valid[anchor];
    for (int32_t j = rows->first[anchor], next; j < end; j = next) {
        int32_t j0 = j - j % FV_KV_BLOCK;
        next = min_int(end, j0 + FV_KV_BLOCK);
        if (j == j0) block_begin(t);
        if (j < valid) block_rows(t, x, ld, j, min_int(next, valid));
        if (next == j0 + FV_KV_BLOCK || next == rows->n) block_end(t, j0, next - j0);
    }
}

static void packed_attend(packed_item *t) {
    const fv_packed_rows *rows = t->seq->rows;
    packed_begin(t);
    for (int32_t a0 = 0; a0 < rows->n_anchor; a0 += PACKED_ANCHORS) {
        int32_t n = min_int(PACKED_ANCHORS, rows->n_anchor - a0);
        if (rows->cos || a0 == 0) latent(t, a0, rows->cos ? n : 1);
        for (int32_t i = 0; i < n; i++)
            packed_anchor(t, a0 + i, rows->cos ? t->t + (size_t)i * t->Rk : t->t);
    }
    output(t);
}

static void attn_lowrank(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_attn_packed_args *a = ((const fv_cpu_attention *)args)->a;
    const packed_products *products = packed_for(args);
    packed_item t = {.a = a, .products = products, .D = (size_t)a->d_head};
    packed_scratch(a, &t, scratch);
    int32_t heads = packed_heads(a), rows = packed_rows(a);
    if (products->open) products->open();
    for (int q = 0; q < a->n_seq; q++) {
        t.seq = &a->seqs[q];
        t.k = packed_view_of(t.seq->k);
        t.v = packed_view_of(t.seq->v);
        t.Rk = stepped(products, (size_t)t.k.s.lowrank.rank);
        int64_t blocks = div_up(a->n_head, heads), n = packed_items(a, t.seq);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++) {
            t.head0 = (int32_t)(i % blocks) * heads;
            t.n_head = min_int(heads, a->n_head - t.head0);
            t.row0 = (int32_t)(i / blocks) * rows;
            t.n_row = min_int(rows, t.seq->n_rows - t.row0);
            t.R = t.n_head * t.n_row;
            packed_attend(&t);
        }
        begin -= n;
        end -= n;
    }
    if (products->close) products->close();
}

#endif
