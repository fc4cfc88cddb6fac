#ifndef FOVEA_KERNELS_CPU_ATTN_LATENT_LANES_H
#define FOVEA_KERNELS_CPU_ATTN_LATENT_LANES_H

/* Attention on coefficients, as kernels/ops.h words it, for a path with 16-lane vectors.
 *
 * An item is some KV heads times some query rows: the R vectors of their query heads share every row. A
 * softmax block of 64 tokens is decoded once for all of them, into panels that stay in the cache:
 *
 *     levels   [quads, 64, 4]    whole numbers of 8 bits, a lane a token
 *     z        [1 + n, 64]       the same as coefficients
 *     keys     [D, 64]           of a KV head: whole sums of levels, mean and scale, own directions; rotated
 *     scores   S [R, 64] = q K   chains of chains_lanes.h
 *     softmax                    that of softmax_lanes.h
 *     sums     y [1 + n, R] = y c + Z P^T, P^T [64, R]: a lane is a vector
 *     output   o [R, D] = y^T B  a KV head's directions
 *
 * Of a tile whose tokens are all of group 1 the other directions are skipped; what rows of group 1 are
 * read without is summed without them.
 *
 * In bf16 scores and sums are canonical products (product_bf16.h) of the same panels, rounded; where these
 * products have words, keys in codes become words at once. */
#include <string.h>

#include "kernels/cpu/latent_lanes.h"
#include "kernels/cpu/packed_rows_lanes.h"
#include "kernels/cpu/softmax_lanes.h"

enum {
    LATENT_VECTORS = 16, /* of an item with few query rows: a whole vector of lanes, */
    LATENT_ITEMS = 8,    /* but so many items, as far as there are KV heads */
    LATENT_TILES = FV_KV_BLOCK / FV_PACKED_TILE,
    OWN_LINE = FV_LATENT_OWN + 1 /* own directions and the exact token */
};

typedef struct latent_item {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    const packed_products *products;
    latent_block block;
    bool coded;                /* keys are read as codes, */
    const packed_words *words; /* which become words, or NULL */
    size_t D, Dp;              /* head dim, and padded */
    size_t low[2];             /* coefficients that rows of group 1 are read with: keys, values */
    int32_t group, g0, n_g;    /* query heads of a KV head; KV heads */
    int32_t row0, n_row;       /* rows of the sequence */
    int32_t R;                 /* vectors: v is KV head v / (n_row * group), then row, then head */
    size_t Rp;                 /* padded */
    int32_t anchor;            /* block of the row that was listed last */
    int32_t n_list[2];         /* rows of the block: valid; valid and of group 0 */
    int32_t list[2][FV_KV_BLOCK];

    /* scratch */
    float *z, *z_some; /* [1 + n, 64]; of the rows of a list */
    float *own_z;      /* [OWN_LINE, 64] as keys read them */
    float *own[2];     /* of each KV head: of keys [D, OWN_LINE], of values [OWN_LINE, Dp] */
    float *q, *keys;   /* [R, Dp], [Dp, 64] */
    float *s, *p, *pt; /* [R, 64] scores, then p; p of the rows of a list; [64, Rp] */
    float *y, *yt;     /* [1 + n, Rp]; [R, 1 + n] */
    float *out;        /* [R, Dp] */
    float *m, *l, *c;  /* [R] */
    int32_t *n_seen;   /* [R] */
} latent_item;

/* ---- items ------------------------------------------------------------------------------ */

/* Query rows and KV heads of an item. */
static int32_t latent_rows(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    int32_t most = PACKED_VECTORS / (a->n_head / a->n_kv);
    most = most > 0 ? most : 1;
    return seq->n_rows < most ? seq->n_rows : most;
}

static int32_t latent_heads(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    int32_t rows = latent_rows(a, seq) * (a->n_head / a->n_kv);
    int32_t most = rows > 0 ? LATENT_VECTORS / rows : 1;
    int32_t share = (int32_t)div_up((int64_t)a->n_kv * a->n_seq, LATENT_ITEMS);
    most = most < share ? most : share;
    most = most < a->n_kv ? most : a->n_kv;
    return most > 0 ? most : 1;
}

static int64_t latent_items(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    if (seq->n_rows == 0) return 0;
    return div_up(a->n_kv, latent_heads(a, seq)) * div_up(seq->n_rows, latent_rows(a, seq));
}

/* The item's arrays in `scratch`, as large as any sequence needs; NULL: only counts the bytes. */
static size_t latent_scratch(const fv_attn_packed_args *a, latent_item *t, void *scratch) {
    scratch_bump at = {.base = scratch};
    size_t R = 0, dirs = 0, heads = 0;
    t->D = (size_t)a->d_head;
    t->Dp = stepped(t->products, t->D);
    for (int i = 0; i < a->n_seq; i++) {
        const fv_packed_seq *seq = &a->seqs[i];
        size_t n_g = (size_t)latent_heads(a, seq), n = (size_t)seq->k->latent->n_dir;
        size_t vectors = n_g * (size_t)(latent_rows(a, seq) * (a->n_head / a->n_kv));
        R = vectors > R ? vectors : R;
        dirs = n > dirs ? n : dirs;
        heads = n_g > heads ? n_g : heads;
    }
    size_t n = 1 + dirs + OWN_LINE, Rp = padded(R);
    R += MR;
    t->block.D = t->D;
    latent_take_block(&at, &t->block, dirs);
    t->z = scratch_take(&at, n * FV_KV_BLOCK);
    t->z_some = scratch_take(&at, n * FV_KV_BLOCK);
    t->own_z = scratch_take(&at, OWN_LINE * FV_KV_BLOCK);
    for (int k = 0; k < 2; k++) t->own[k] = scratch_take(&at, heads * OWN_LINE * t->Dp);
    t->q = scratch_take(&at, R * t->Dp);
    t->keys = scratch_take(&at, t->Dp * FV_KV_BLOCK);
    t->s = scratch_take(&at, R * FV_KV_BLOCK);
    t->p = scratch_take(&at, R * FV_KV_BLOCK);
    t->pt = scratch_take(&at, Rp * FV_KV_BLOCK);
    t->y = scratch_take(&at, n * Rp);
    t->yt = scratch_take(&at, R * n);
    t->out = scratch_take(&at, R * t->Dp);
    t->m = scratch_take(&at, R);
    t->l = scratch_take(&at, R);
    t->c = scratch_take(&at, Rp + R);
    t->n_seen = (int32_t *)scratch_take(&at, R);
    return at.bytes;
}

static fv_cpu_plan latent_plan_with(const fv_attn_packed_args *a, const packed_products *products) {
    latent_item t = {.products = products};
    fv_cpu_plan plan = {.grain = 1, .scratch_bytes = latent_scratch(a, &t, NULL)};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += latent_items(a, &a->seqs[i]);
    return plan;
}

/* ---- coefficients ----------------------------------------------------------------------- */

static bool latent_low(const latent_item *t, int32_t j) {
    return t->seq->rows->group && t->seq->rows->group[j] &&
           !latent_is_exact(&t->block.latent, (size_t)j);
}

static f32x16 f32x16_of_levels(const int8_t *p) {
#ifdef __AVX512F__
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
#else
    __m128i x = _mm_loadu_si128((const void *)p);
    return (f32x16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
#endif
}

/* z of a tile's first n directions, whose levels are at column `at` too. */
static void latent_take_tile(const latent_item *t, size_t tile, size_t at, size_t n) {
    const latent_view *v = &t->block.latent;
    const int8_t *level = t->block.level + at;
    float *z = t->z + FV_KV_BLOCK + at;
    for (size_t r = 0; r < n; r++, level += FV_KV_BLOCK, z += FV_KV_BLOCK)
        f32x16_store(z, f32x16_mul(f32x16_of_levels(level), f32x16_all(latent_unit(v, r))));
    for (size_t r = n; r < v->n_dir; r++, z += FV_KV_BLOCK)
        memset(z, 0, FV_PACKED_TILE * sizeof *z);
    const uint16_t *p = latent_own_planes(v, tile);
    for (size_t i = 0; i < v->n_own; i++, p += FV_LATENT_BITS, z += FV_KV_BLOCK) {
        uint8_t code[16];
        _mm_storeu_si128((void *)code, latent_plane_codes(p, FV_LATENT_BITS));
        for (int k = 0; k < FV_PACKED_TILE; k++) z[k] = (float)((int32_t)code[k] - 128);
    }
    if (v->n > v->n_dir + v->n_own) memset(z, 0, FV_PACKED_TILE * sizeof *z);
}

/* The exact token has none, but for the last. */
static void latent_take_exact(const latent_item *t, size_t at) {
    latent_clear_levels(&t->block, at);
    for (size_t r = 0; r <= t->block.latent.n; r++)
        t->z[r * FV_KV_BLOCK + at] = r == t->block.latent.n ? 1.0f : 0.0f;
}

/* What keys of group 1 are read without becomes 0. */
static void latent_lower(const latent_item *t, int32_t j0) {
    size_t low = t->low[0], n_dir = t->block.latent.n_dir;
    for (int32_t i = 0; low < t->block.latent.n && i < t->n_list[0]; i++) {
        int32_t at = t->list[0][i] - j0;
        if (!latent_low(t, j0 + at)) continue;
        for (size_t r = low; r < n_dir; r++) t->block.level[r * FV_KV_BLOCK + (size_t)at] = 0;
        for (size_t r = low > n_dir ? low : n_dir; r < t->block.latent.n; r++)
            t->own_z[(r - n_dir) * FV_KV_BLOCK + (size_t)at] = 0.0f;
    }
}

/* ---- keys ------------------------------------------------------------------------------- */

/* Of how many directions the keys of each tile from row j0 on are made. */
static void latent_needs(const latent_item *t, int32_t j0, size_t tiles, size_t *need) {
    size_t low = t->low[0] < t->block.latent.n_dir ? t->low[0] : t->block.latent.n_dir;
    for (size_t i = 0; i < tiles; i++) need[i] = low;
    for (int32_t i = 0; i < t->n_list[1]; i++)
        need[(size_t)(t->list[1][i] - j0) / FV_PACKED_TILE] = t->block.latent.n_dir;
}

/* The keys of KV head g0 + h from its tokens' levels. */
static void latent_rebuilt_keys(const latent_item *t, int32_t h, size_t tiles, const size_t *need) {
    size_t c = (size_t)(t->g0 + h) * t->D;
    for (size_t i = 0, same; i < tiles; i += same) {
        for (same = 1; i + same < tiles && need[i + same] == need[i];) same++;
        latent_some_keys(&t->block, c, t->block.latent.l->affine + 2 * c, i * FV_PACKED_TILE, same,
                         need[i], t->keys);
    }
}

/* The same from codes. */
static void latent_coded_keys(const latent_item *t, int32_t h, int32_t j0, size_t tiles) {
    const fv_latent_layer *l = t->block.latent.l;
    size_t g = (size_t)(t->g0 + h), c = g * t->D, line = FV_PACKED_TILE / 2;
    for (size_t i = 0; i < tiles; i++) {
        const uint8_t *at = fv_latent_coded(t->seq->k, g, (size_t)j0 / FV_PACKED_TILE + i);
        f32x16 s = f32x16_widen(fv_latent_coded_scale(t->seq->k, at), FV_F16);
        f32x16 lo = f32x16_mul(f32x16_all(-7.5f), s);
        float *to = t->keys + i * FV_PACKED_TILE;
        for (size_t d = 0; d < t->D; d++, at += line, to += FV_KV_BLOCK) {
            f32x16 w = f32x16_fma(s, f32x16_of_codes(at, 4), lo);
            f32x16_store(
                to, f32x16_fma(f32x16_all(l->sigma[c + d]), w, f32x16_all(l->affine[2 * (c + d)])));
        }
    }
}

/* Column of the exact token in the block from j0 on, or -1. */
static int32_t latent_exact_at(const latent_item *t, int32_t j0) {
    int32_t at = t->block.latent.exact - j0;
    return t->block.latent.exact >= 0 && at >= 0 && at < FV_KV_BLOCK ? at : -1;
}

/* The keys of KV head g0 + h of the block from j0 on as words. */
static void latent_coded_words(const latent_item *t, int32_t h, int32_t j0, size_t tiles) {
    const fv_latent_layer *l = t->block.latent.l;
    const fv_packed_rows *rows = t->seq->rows;
    size_t g = (size_t)(t->g0 + h), c = g * t->D, angles = t->D / 2 * FV_PACKED_TILE;
    uint32_t *to = (uint32_t *)t->keys;
    int32_t exact = latent_exact_at(t, j0);
    for (size_t i = 0, tile = (size_t)j0 / FV_PACKED_TILE; i < tiles; i++, tile++) {
        const uint8_t *at = fv_latent_coded(t->seq->k, g, tile);
        bool in = exact >= 0 && (size_t)exact / FV_PACKED_TILE == i;
        t->words->coded(&(coded_tile){.codes = at,
                                      .scale = fv_latent_coded_scale(t->seq->k, at),
                                      .sigma = l->sigma + c,
                                      .affine = l->affine + 2 * c,
                                      .cos = rows->cos ? rows->cos + tile * angles : NULL,
                                      .sin = rows->cos ? rows->sin + tile * angles : NULL,
                                      .own = t->own[0] + (size_t)h * t->D * OWN_LINE,
                                      .own_z = t->own_z + i * FV_PACKED_TILE,
                                      .n_own = t->block.latent.n - t->block.latent.n_dir,
                                      .ld_own = OWN_LINE,
                                      .without = in ? 1u << exact % FV_PACKED_TILE : 0,
                                      .D = t->D},
                        to + i * FV_PACKED_TILE, FV_KV_BLOCK);
    }
}

/* The keys of KV head g0 + h of the block from j0 on, as columns. */
static void latent_keys_of(const latent_item *t, int32_t h, int32_t j0, size_t tiles,
                           const size_t *need) {
    size_t own = t->block.latent.n - t->block.latent.n_dir;
    int32_t exact = latent_exact_at(t, j0);
    if (t->coded)
        latent_coded_keys(t, h, j0, tiles);
    else
        latent_rebuilt_keys(t, h, tiles, need);
    for (size_t d = 0; exact >= 0 && d < t->D; d++) t->keys[d * FV_KV_BLOCK + (size_t)exact] = 0.0f;
    if (own)
        chains_all((chains){t->own[0] + (size_t)h * t->D * OWN_LINE, OWN_LINE, t->own_z,
                            FV_KV_BLOCK, own, tiles, GOES_ON, t->keys, FV_KV_BLOCK, NULL},
                   (int64_t)t->D, 0);
    for (size_t i = 0; i < tiles; i++) {
        float *to = t->keys + i * FV_PACKED_TILE;
        lanes_rotate(t->seq->rows, t->D, (size_t)j0 / FV_PACKED_TILE + i, to);
        as_lines(t->products, to, FV_KV_BLOCK, t->D, FV_PACKED_TILE);
    }
}

/* ---- a block ---------------------------------------------------------------------------- */

/* Which of the rows [j0, j0 + n) are valid, and of group 0. */
static void latent_list(latent_item *t, int32_t j0, int32_t n) {
    t->n_list[0] = rows_valid(t->seq->rows, j0, n, &t->anchor, t->list[0]);
    t->n_list[1] = 0;
    for (int32_t i = 0; i < t->n_list[0]; i++)
        if (!latent_low(t, t->list[0][i])) t->list[1][t->n_list[1]++] = t->list[0][i];
}

static void latent_decode(const latent_item *t, int32_t j0, size_t tiles, const size_t *need) {
    size_t least = t->low[1], own = t->block.latent.n - t->block.latent.n_dir;
    int32_t exact = latent_exact_at(t, j0);
    bool alike = true;
    for (size_t i = 1; i < tiles; i++) alike = alike && need[i] == need[0];
    for (size_t i = 0; i < FV_KV_BLOCK; i++) t->z[i] = 1.0f;
    for (size_t i = 0, tile = (size_t)j0 / FV_PACKED_TILE, n; i < tiles; i++, tile++) {
        n = need[i] > least ? need[i] : least;
        n = n < t->block.latent.n_dir ? n : t->block.latent.n_dir;
        if (!alike) latent_take_levels(&t->block, tile, i * FV_PACKED_TILE, n);
        if (alike && i == 0) latent_take_block_levels(&t->block, tile, tiles, n);
        latent_take_tile(t, tile, i * FV_PACKED_TILE, n);
    }
    if (exact >= 0) latent_take_exact(t, (size_t)exact);
    memcpy(t->own_z, t->z + (1 + t->block.latent.n_dir) * FV_KV_BLOCK,
           own * FV_KV_BLOCK * sizeof *t->own_z);
    latent_lower(t, j0);
    if (!t->coded) latent_lay(&t->block, tiles);
}

/* S of KV head g0 + h. */
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

/* The same of keys that become words; they have no rank of their own. */
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

/* n lines of z from line r on, of a list's rows. */
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

/* y = y c + Z P^T along the rows of a list, lines [r, end). */
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

/* The line for the scores of vector v, or NULL. */
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

/* The own directions of the item's KV heads, those of keys as columns. */
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

/* What was summed, as values. */
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
    t->coded = t->seq->k->shape.coded;
    t->words = t->coded && t->D % 8 == 0 ? t->products->words : NULL;
    if (t->words) memset(t->keys, 0, t->Dp / 2 * FV_KV_BLOCK * sizeof *t->keys);
    latent_view_open(&t->block.latent, t->seq->k);
    t->low[0] = fv_latent_read_dirs(&t->seq->k->shape, t->block.latent.n, groups);
    t->low[1] = fv_latent_read_dirs(&t->seq->v->shape, t->block.latent.n, groups);
}

static void latent_with(const fv_attn_packed_args *a, const packed_products *products,
                        void *scratch, int64_t begin, int64_t end) {
    latent_item t = {.a = a,
                     .products = products,
                     .block.by_quads = products->keys ? products->keys : latent_by_quads(),
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

static fv_cpu_plan attn_latent_plan(const void *args) {
    return latent_plan_with(args, &packed_f32);
}

static void attn_latent(const void *args, void *scratch, int64_t begin, int64_t end) {
    latent_with(args, &packed_f32, scratch, begin, end);
}

static fv_cpu_plan attn_latent_bf16_plan(const void *args) {
    return latent_plan_with(args, packed_bf16());
}

static void attn_latent_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    latent_with(args, packed_bf16(), scratch, begin, end);
}

#endif
