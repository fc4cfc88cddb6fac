#ifndef FOVEA_KERNELS_CPU_ATTN_QUANTIZED_LANES_H
#define FOVEA_KERNELS_CPU_ATTN_QUANTIZED_LANES_H

/* Attention on quantized, depth-merged and latent tokens, in the order of summation of
 * kernels/ops.h, for a path with 16-lane vectors.
 *
 * An item is a KV head times some query rows: the R vectors of its query heads share every row.
 * A softmax block of 64 tokens is decoded once, into panels of f32 that stay in the cache, and used
 * by all of them:
 *
 *     keys     [D, 64]   in tiles of 16 tokens; outliers are inserted, then keys are rotated
 *     scores   S [R, 64] = q K        chains of chains_lanes.h
 *     softmax                         that of softmax_lanes.h
 *     values   o [R, D] = o c + P V   valid tokens
 *
 * Of latents the panels are the coefficients z [1 + n, 64], from which keys are rebuilt, K = B z, and
 * which are what o sums, [R, 1 + n]; at the end o is multiplied by the values' directions. Of a tile
 * whose tokens are all of group 1 the other directions are skipped; values are summed tier by tier,
 * the second one without rows of group 1. Own directions are decoded once for the item, and each of the
 * two products goes on along them.
 *
 * In bf16 the chains are canonical products (product_bf16.h) of the same panels, rounded. */
#include <string.h>

#include "kernels/cpu/packed_lanes.h"
#include "kernels/cpu/path.h"
#include "kernels/cpu/softmax_lanes.h"
#include "kernels/latent_read.h"

enum { OWN_LINE = FV_LATENT_OWN + 1 };

typedef struct codes_item {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    const packed_products *products;
    codes_view k, v;
    latent_view latent;
    bool is_latent;
    size_t g, D, Dp; /* KV head; head dim, and padded */
    /* numbers of a token that o sums, and padded: D; or coefficients, of all tokens and, in the
     * second tier, of those of group 0 */
    size_t Z[2], P[2];
    size_t full, low;           /* coefficients that make a key, of group 0 and 1 */
    int32_t group, row0, n_row; /* query heads; rows of the sequence */
    int32_t R;                  /* vectors: v is row v / group, head v % group of the KV head's */
    int32_t anchor;             /* block of the row that was listed last */
    int32_t n_list[2], list[2][FV_KV_BLOCK]; /* rows of the block: valid; valid and of group 0 */

    /* scratch */
    float *q, *keys;  /* [R, Dp], [Dp, 64] */
    float *s, *p;     /* [R, 64] scores, then p; p of the valid rows */
    float *w[2];      /* [64, P] values, per tier, */
    float *o[2];      /* [R, P] */
    float *z, *out;   /* of latents: [1 + n, 64], [R, Dp] */
    float *own[2];    /* own directions, exact token: of keys [Dp, OWN_LINE], of values [.., Dp] */
    float *m, *l, *c; /* [R] */
    int32_t *n_seen;  /* [R] */
} codes_item;

static int32_t codes_rows(const fv_attn_packed_args *a) {
    int32_t rows = PACKED_VECTORS / (a->n_head / a->n_kv);
    return rows > 0 ? rows : 1;
}

/* The most numbers of a token that o sums, and whether some are coefficients. */
static size_t codes_summed(const fv_attn_packed_args *a, bool *latent) {
    size_t most = (size_t)a->d_head;
    *latent = false;
    for (int i = 0; i < a->n_seq; i++) {
        const fv_latent_layer *l = a->seqs[i].k->latent;
        *latent |= l != NULL;
        size_t n = l ? 2 + (size_t)(l->n_dir + a->seqs[i].k->shape.n_own) : 0;
        most = n > most ? n : most;
    }
    return most;
}

/* Vectors that there is memory for. */
static size_t codes_vectors(const fv_attn_packed_args *a) {
    return (size_t)(codes_rows(a) * (a->n_head / a->n_kv)) + MR;
}

/* The item's arrays in `scratch`; NULL: only counts the bytes. */
static size_t codes_scratch(const fv_attn_packed_args *a, codes_item *t, void *scratch) {
    scratch_bump at = {.base = scratch};
    size_t R = codes_vectors(a);
    t->D = (size_t)a->d_head;
    t->Dp = stepped(t->products, t->D);
    bool latent;
    size_t Z = codes_summed(a, &latent);
    size_t P = stepped(t->products, Z) + (latent ? stepped(t->products, 1) : 0); /* of two tiers */
    t->q = scratch_take(&at, R * t->Dp);
    t->keys = scratch_take(&at, t->Dp * FV_KV_BLOCK);
    t->s = scratch_take(&at, R * FV_KV_BLOCK);
    t->p = scratch_take(&at, R * FV_KV_BLOCK);
    t->w[0] = scratch_take(&at, FV_KV_BLOCK * P);
    t->o[0] = scratch_take(&at, R * P);
    t->z = scratch_take(&at, latent ? Z * FV_KV_BLOCK : 0);
    t->out = scratch_take(&at, latent ? R * t->Dp : 0);
    for (int k = 0; k < 2; k++) t->own[k] = scratch_take(&at, latent ? OWN_LINE * t->Dp : 0);
    t->m = scratch_take(&at, R);
    t->l = scratch_take(&at, R);
    t->c = scratch_take(&at, R);
    t->n_seen = (int32_t *)scratch_take(&at, R);
    return at.bytes;
}

static int64_t codes_items(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    return a->n_kv * div_up(seq->n_rows, codes_rows(a));
}

static fv_cpu_plan codes_plan_with(const fv_attn_packed_args *a, const packed_products *products) {
    codes_item t = {.products = products};
    fv_cpu_plan plan = {.grain = 1, .scratch_bytes = codes_scratch(a, &t, NULL)};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += codes_items(a, &a->seqs[i]);
    return plan;
}

/* ---- keys ------------------------------------------------------------------------------- */

static ALWAYS_INLINE void keys_tile(const codes_item *t, size_t j0, float *to, const int bits) {
    const char *at = (const char *)codes_at(&t->k, t->g, j0);
    const float *pair = codes_pair(&t->k, t->g * t->D);
    size_t line = fv_packed_row_bytes(&t->k.s, FV_PACKED_TILE);
    for (size_t d = 0; d < t->D; d++, at += line, pair += 2, to += FV_KV_BLOCK)
        codes_line(at, bits, LANES, (code_scale){.lo = pair, .step = pair + 1}, to);
}

/* Directions times the layer's norms. */
static ALWAYS_INLINE void merged_tile(const codes_item *t, size_t j0, float *to,
                                      const fv_dtype type) {
    const char *at = (const char *)codes_at(&t->k, t->g, j0);
    size_t line = FV_PACKED_TILE * fv_dtype_bytes(type);
    f32x16 norm = f32x16_load(merged_norms(&t->k, t->g, j0));
    for (size_t d = 0; d < t->D; d++, at += line, to += FV_KV_BLOCK)
        f32x16_store(to, f32x16_mul(norm, f32x16_widen(at, type)));
}

static void keys_of_tile(const codes_item *t, size_t j0, float *to) {
    if (t->k.s.bits == 8)
        keys_tile(t, j0, to, 8);
    else if (t->k.s.bits == 4)
        keys_tile(t, j0, to, 4);
    else if (t->k.s.dtype == FV_BF16)
        merged_tile(t, j0, to, FV_BF16);
    else if (t->k.s.dtype == FV_F16)
        merged_tile(t, j0, to, FV_F16);
    else
        merged_tile(t, j0, to, FV_F32);
}

static bool codes_low(const codes_item *t, int32_t j) {
    if (t->is_latent && latent_is_exact(&t->latent, (size_t)j)) return false;
    return t->seq->rows->group && t->seq->rows->group[j];
}

/* Of latents: of how many coefficients the keys of each tile from row j0 on are made. */
static void tiles_need(const codes_item *t, int32_t j0, size_t tiles, size_t *need) {
    for (size_t i = 0; i < tiles; i++) need[i] = t->low;
    for (int32_t i = 0; i < t->n_list[1]; i++)
        need[(size_t)(t->list[1][i] - j0) / FV_PACKED_TILE] = t->full;
}

/* The coefficients of a tier's rows, a token's beside each other. */
static void latent_rows(const codes_item *t, int32_t j0, int tier) {
    const float *from = t->z + (tier ? t->Z[0] * FV_KV_BLOCK : 0);
    size_t n = t->Z[tier];
    for (int32_t i = 0; n && i < t->n_list[tier]; i++) {
        float *to = t->w[tier] + (size_t)i * t->P[tier];
        const float *z = from + (t->list[tier][i] - j0);
        for (size_t r = 0; r < n; r++) to[r] = z[r * FV_KV_BLOCK];
        memset(to + n, 0, (padded(n) - n) * sizeof *to);
    }
}

/* The coefficients that rows of group 1 are read without become 0, in tiles that have all. */
static void latent_lower(const codes_item *t, int32_t j0, const size_t *need) {
    for (int32_t i = 0; t->low < t->full && i < t->n_list[0]; i++) {
        int32_t at = t->list[0][i] - j0;
        if (need[at / FV_PACKED_TILE] == t->low || !codes_low(t, j0 + at)) continue;
        for (size_t r = t->low; r < t->full; r++) t->z[r * FV_KV_BLOCK + (size_t)at] = 0.0f;
    }
}

/* The own directions of the item's KV head, those of keys as columns. */
static void latent_own(const codes_item *t) {
    for (size_t i = 0; t->latent.n_dir + i < t->latent.n; i++)
        for (size_t d = 0, c = t->g * t->D; d < t->D; d++, c++) {
            t->own[0][d * OWN_LINE + i] = latent_own_number(t->seq->k, i, c);
            t->own[1][i * t->Dp + d] = latent_own_number(t->seq->v, i, c);
        }
}

/* Keys of `tiles` tiles from the first n numbers of z, both at column `at`. */
static void latent_keys(const codes_item *t, size_t at, size_t tiles, size_t n) {
    const fv_latent_layer *l = t->latent.l;
    size_t line = (size_t)l->n_dir + 1, shared = 1 + t->latent.n_dir;
    const float *basis = l->key + t->g * t->D * line, *own = t->z + shared * FV_KV_BLOCK + at;
    chains_all((chains){basis, line, t->z + at, FV_KV_BLOCK, n < shared ? n : shared, tiles, NULL,
                        t->keys + at, FV_KV_BLOCK, NULL},
               (int64_t)t->D, 0);
    if (n > shared)
        chains_all((chains){t->own[0], OWN_LINE, own, FV_KV_BLOCK, n - shared, tiles, GOES_ON,
                            t->keys + at, FV_KV_BLOCK, NULL},
                   (int64_t)t->D, 0);
}

/* Coefficients of rows [j0, j0 + n), as values and as the keys made of them. */
static void latent_decode(codes_item *t, int32_t j0, int32_t n) {
    size_t tiles = fv_packed_tiles((size_t)n);
    size_t need[FV_KV_BLOCK / FV_PACKED_TILE], least = t->low > t->Z[0] ? t->low : t->Z[0];
    tiles_need(t, j0, tiles, need);
    for (size_t i = 0; i < tiles * FV_PACKED_TILE; i++) t->z[i] = 1.0f;
    for (size_t i = 0; i < tiles; i++)
        latent_tile(&t->latent, (size_t)j0 / FV_PACKED_TILE + i,
                    (need[i] > least ? need[i] : least) - 1,
                    t->z + FV_KV_BLOCK + i * FV_PACKED_TILE, FV_KV_BLOCK);
    if (t->latent.exact >= j0 && t->latent.exact < j0 + n) t->z[t->latent.exact - j0] = 0.0f;
    for (int tier = 0; tier < 2; tier++) latent_rows(t, j0, tier);
    latent_lower(t, j0, need);
    for (size_t i = 0, same; i < tiles; i += same) {
        for (same = 1; i + same < tiles && need[i + same] == need[i];) same++;
        latent_keys(t, i * FV_PACKED_TILE, same, need[i]);
    }
}

/* Rot(a) k for the 16 rows of a tile. */
static void rotate_tile(const codes_item *t, size_t tile, float *to) {
    size_t half = t->D / 2, at = tile * half * FV_PACKED_TILE;
    const float *cos = t->seq->rows->cos + at, *sin = t->seq->rows->sin + at;
    float *other = to + half * FV_KV_BLOCK;
    const f32x16 minus = f32x16_all(-1.0f);
    for (size_t i = 0; i < half; i++, to += FV_KV_BLOCK, other += FV_KV_BLOCK) {
        f32x16 a = f32x16_load(to), b = f32x16_load(other);
        f32x16 c = f32x16_load(cos + i * LANES), s = f32x16_load(sin + i * LANES);
        f32x16_store(to, f32x16_fma(a, c, f32x16_mul(minus, f32x16_mul(b, s))));
        f32x16_store(other, f32x16_fma(b, c, f32x16_mul(a, s)));
    }
}

/* The keys of rows [j0, j0 + n) as columns. */
static void take_keys(codes_item *t, int32_t j0, int32_t n) {
    if (t->is_latent) latent_decode(t, j0, n);
    for (int32_t j = j0; j < j0 + n; j += FV_PACKED_TILE) {
        float *to = t->keys + (j - j0);
        if (!t->is_latent) keys_of_tile(t, (size_t)j, to);
        for (int32_t i = j; !t->is_latent && i < min_int(j + FV_PACKED_TILE, j0 + n); i++)
            codes_put_outliers(&t->k, t->g, (size_t)i, t->keys + (i - j0), FV_KV_BLOCK);
        if (t->seq->rows->cos) rotate_tile(t, (size_t)j / FV_PACKED_TILE, to);
        as_lines(t->products, to, FV_KV_BLOCK, t->D, FV_PACKED_TILE);
    }
}

/* Which of the rows [j0, j0 + n) are valid, and of group 0. */
static void list_valid(codes_item *t, int32_t j0, int32_t n) {
    const fv_packed_rows *rows = t->seq->rows;
    t->n_list[0] = t->n_list[1] = 0;
    for (int32_t j = j0; j < j0 + n; j++) {
        while (j >= rows->first[t->anchor + 1]) t->anchor++;
        if (rows->valid && j - rows->first[t->anchor] >= rows->valid[t->anchor]) continue;
        t->list[0][t->n_list[0]++] = j;
        if (!codes_low(t, j)) t->list[1][t->n_list[1]++] = j;
    }
}

/* Lanes of rows that are not valid hold anything, and become -inf. */
static void coded_scores(codes_item *t, int32_t j0, int32_t n) {
    take_keys(t, j0, n);
    packed_multiply(t->products,
                    (chains){t->q, t->Dp, t->keys, FV_KV_BLOCK, t->D, fv_packed_tiles((size_t)n),
                             NULL, t->s, FV_KV_BLOCK, NULL},
                    t->R, 0);
    for (int32_t v = 0; v < t->R; v++) {
        float *s = t->s + v * FV_KV_BLOCK;
        for (int32_t j = 0, i = 0; j < FV_KV_BLOCK; j++)
            if (i < t->n_list[0] && t->list[0][i] == j0 + j)
                i++;
            else
                s[j] = -INFINITY;
    }
}

/* ---- values ----------------------------------------------------------------------------- */

static ALWAYS_INLINE void coded_rows(const codes_item *t, const int bits) {
    float *to = t->w[0];
    for (int32_t i = 0; i < t->n_list[0]; i++, to += t->Dp) {
        size_t j = (size_t)t->list[0][i];
        const float *pair = codes_pair(&t->v, j);
        codes_line((const char *)codes_at(&t->v, t->g, j), bits, t->D,
                   (code_scale){.lo = pair, .step = pair + 1}, to);
        codes_put_outliers(&t->v, t->g, j, to, 1);
    }
}

/* Values as they are, beside coded keys. */
static ALWAYS_INLINE void plain_rows(const codes_item *t, const fv_dtype type) {
    float *to = t->w[0];
    for (int32_t i = 0; i < t->n_list[0]; i++, to += t->Dp)
        numbers_line((const char *)codes_at(&t->v, t->g, (size_t)t->list[0][i]), type, t->D, to);
}

static ALWAYS_INLINE void merged_rows(const codes_item *t, const fv_dtype type) {
    float *to = t->w[0];
    for (int32_t i = 0; i < t->n_list[0]; i++, to += t->Dp) {
        size_t j = (size_t)t->list[0][i];
        f32x16 norm = f32x16_all(*merged_norms(&t->v, t->g, j));
        numbers_line((const char *)codes_at(&t->v, t->g, j), type, t->D, to);
        for (size_t d = 0; d < t->D; d += LANES)
            f32x16_store(to + d, f32x16_mul(norm, f32x16_load(to + d)));
        codes_put_outliers(&t->v, t->g, j, to, 1);
    }
}

static void numbers_of_rows(const codes_item *t) {
    bool merged = t->v.s.form == FV_PACKED_MERGED;
    if (t->v.s.dtype == FV_BF16)
        merged ? merged_rows(t, FV_BF16) : plain_rows(t, FV_BF16);
    else if (t->v.s.dtype == FV_F16)
        merged ? merged_rows(t, FV_F16) : plain_rows(t, FV_F16);
    else
        merged ? merged_rows(t, FV_F32) : plain_rows(t, FV_F32);
}

/* Of latents they are there. */
static void take_values(const codes_item *t) {
    if (t->is_latent) return;
    if (t->v.s.bits == 8)
        coded_rows(t, 8);
    else if (t->v.s.bits == 4)
        coded_rows(t, 4);
    else
        numbers_of_rows(t);
}

static void coded_values(codes_item *t, int32_t j0) {
    take_values(t);
    for (int tier = 0; tier < 2 && t->Z[tier]; tier++) {
        const int32_t *list = t->list[tier], n = t->n_list[tier];
        size_t P = t->P[tier];
        as_lines(t->products, t->w[tier], P, (size_t)n, padded(t->Z[tier]));
        packed_multiply(t->products,
                        (chains){listed(t->s, t->p, t->R, j0, list, n), FV_KV_BLOCK, t->w[tier], P,
                                 (size_t)n, steps_of(t->Z[tier]), t->c, t->o[tier], P, NULL},
                        t->R, 0);
    }
}

/* ---- one item --------------------------------------------------------------------------- */

static size_t codes_head(const codes_item *t, int32_t v) {
    return t->g * (size_t)t->group + (size_t)(v % t->group);
}

static int64_t codes_row_of(const codes_item *t, int32_t v) {
    return (int64_t)t->seq->row0 + t->row0 + v / t->group;
}

/* The line for the scores of vector v, or NULL. */
static float *codes_score_line(const codes_item *t, int32_t v) {
    const fv_packed_seq *q = t->seq;
    int32_t i = t->row0 + v / t->group - (q->n_rows - q->score_rows);
    if (!q->score || i < 0) return NULL;
    size_t line = codes_head(t, v) * (size_t)q->score_rows + (size_t)i;
    return q->score + line * (size_t)q->score_ld;
}

static void codes_leave_scores(const codes_item *t, int32_t j0, int32_t n) {
    for (int32_t v = 0; v < t->R; v++) {
        float *line = codes_score_line(t, v);
        for (int32_t j = 0; line && j < n; j++)
            line[j0 + j] = t->s[v * FV_KV_BLOCK + j] * t->a->scale;
    }
}

static void codes_begin(codes_item *t) {
    memset(t->q, 0, (size_t)t->R * t->Dp * sizeof *t->q);
    for (int tier = 0; tier < 2; tier++)
        memset(t->o[tier], 0, (size_t)t->R * t->P[tier] * sizeof(float));
    t->anchor = 0;
    for (int32_t v = 0; v < t->R; v++) {
        memcpy(t->q + (size_t)v * t->Dp,
               row_f32(&t->a->q, codes_row_of(t, v)) + codes_head(t, v) * t->D,
               t->D * sizeof *t->q);
        t->m[v] = -INFINITY;
        t->l[v] = 0.0f;
        t->n_seen[v] = FV_KV_BLOCK;
        float *line = codes_score_line(t, v);
        for (int32_t j = 0; line && j < t->seq->score_ld; j++) line[j] = -INFINITY;
    }
    as_rows(t->products, t->q, t->Dp, t->R, t->D);
}

/* out goes on along n numbers of a tier's sums, from number `from` on, and as many directions. */
static void latent_expand(const codes_item *t, int tier, size_t from, const float *basis, size_t ld,
                          size_t n, bool first) {
    chains_all((chains){t->o[tier] + from, t->P[tier], basis, ld, n, steps_of(t->D),
                        first ? NULL : GOES_ON, t->out, t->Dp, NULL},
               t->R, 0);
}

/* What was summed, as values: each tier's numbers of the shared directions, then of own ones. */
static const float *latent_output(const codes_item *t) {
    const fv_latent_layer *l = t->latent.l;
    size_t shared = 1 + t->latent.n_dir, at = 0;
    const float *basis = l->value + t->g * ((size_t)l->n_dir + 1) * t->D;
    for (int tier = 0; tier < 2; at += t->Z[tier++]) {
        size_t n = at < shared ? shared - at : 0, all = t->Z[tier];
        n = n < all ? n : all;
        if (n) latent_expand(t, tier, 0, basis + at * t->D, t->D, n, at == 0);
        if (n < all)
            latent_expand(t, tier, n, t->own[1] + (at + n - shared) * t->Dp, t->Dp, all - n, false);
    }
    return t->out;
}

static void codes_end(const codes_item *t) {
    const float *all = t->is_latent ? latent_output(t) : t->o[0];
    for (int32_t v = 0; v < t->R; v++) {
        const float *o = all + (size_t)v * t->Dp, l = t->l[v];
        float *to = row_f32(&t->a->o, codes_row_of(t, v)) + codes_head(t, v) * t->D;
        for (size_t d = 0; d < t->D; d++) to[d] = l == 0.0f ? 0.0f : o[d] / l;
        if (t->a->lse.data)
            row_f32(&t->a->lse, codes_row_of(t, v))[codes_head(t, v)] =
                l == 0.0f ? -INFINITY : t->m[v] + log_f32(l);
    }
}

static void codes_attend(codes_item *t) {
    int32_t n = t->seq->rows->n;
    codes_begin(t);
    if (t->is_latent) latent_own(t);
    for (int32_t j0 = 0, rows; j0 < n; j0 += rows) {
        rows = min_int(FV_KV_BLOCK, n - j0);
        list_valid(t, j0, rows);
        if (t->n_list[0] == 0) continue;
        coded_scores(t, j0, rows);
        codes_leave_scores(t, j0, rows);
        softmax(t->R, t->a->scale, t->n_seen, t->products->multiply, t->s, t->m, t->l, t->c);
        coded_values(t, j0);
    }
    codes_end(t);
}

/* A sequence's parts. */
static void codes_open(codes_item *t) {
    const fv_packed_part *k = t->seq->k, *v = t->seq->v;
    t->is_latent = k->shape.form == FV_PACKED_LATENT;
    t->Z[0] = t->D;
    t->Z[1] = 0;
    if (t->is_latent) {
        latent_view_open(&t->latent, k);
        size_t n = t->latent.n;
        t->full = 1 + n;
        t->low = 1 + fv_latent_read_dirs(&k->shape, n, t->seq->rows->group != NULL);
        t->Z[0] = 1 + fv_latent_read_dirs(&v->shape, n, t->seq->rows->group != NULL);
        t->Z[1] = t->full - t->Z[0];
    } else {
        t->k = codes_view_of(k);
        t->v = codes_view_of(v);
    }
    for (int tier = 0; tier < 2; tier++) t->P[tier] = stepped(t->products, t->Z[tier]);
    t->w[1] = t->w[0] + FV_KV_BLOCK * t->P[0];
    t->o[1] = t->o[0] + codes_vectors(t->a) * t->P[0];
}

static void codes_with(const fv_attn_packed_args *a, const packed_products *products, void *scratch,
                       int64_t begin, int64_t end) {
    codes_item t = {.a = a, .products = products, .group = a->n_head / a->n_kv};
    codes_scratch(a, &t, scratch);
    if (products->open) products->open();
    for (int q = 0; q < a->n_seq; q++) {
        t.seq = &a->seqs[q];
        codes_open(&t);
        int64_t n = codes_items(a, t.seq);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++) {
            t.g = (size_t)(i % a->n_kv);
            t.row0 = (int32_t)(i / a->n_kv) * codes_rows(a);
            t.n_row = min_int(codes_rows(a), t.seq->n_rows - t.row0);
            t.R = t.group * t.n_row;
            codes_attend(&t);
        }
        begin -= n;
        end -= n;
    }
    if (products->close) products->close();
}

static fv_cpu_plan attn_quantized_plan(const void *args) {
    return codes_plan_with(args, &packed_f32);
}

static void attn_quantized(const void *args, void *scratch, int64_t begin, int64_t end) {
    codes_with(args, &packed_f32, scratch, begin, end);
}

static fv_cpu_plan attn_quantized_bf16_plan(const void *args) {
    return codes_plan_with(args, &packed_bf16);
}

static void attn_quantized_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    codes_with(args, &packed_bf16, scratch, begin, end);
}

#endif
