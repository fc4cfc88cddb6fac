#ifndef FOVEA_KERNELS_CPU_LANES_ATTENTION_H
#define FOVEA_KERNELS_CPU_LANES_ATTENTION_H

/* Attention in the order of summation of kernels/ops.h, for a path with 16-lane vectors.
 *
 * An item is a block of query rows of one sequence and one KV head. Its rows times the query
 * heads of the group are R vectors that go through the KV blocks together: each KV row is
 * widened once and used R times. For every block of FV_KV_BLOCK rows:
 *
 *     scores   S [R, 64] = dot(q, k)     tiles of lanes/dots.h
 *     softmax  each row: scale, running maximum m, p = exp(s - m), running sum l
 *     values   o [R, D] = o * c + P V    lanes along D, one fma after another over j
 *
 * Rows may see different numbers of keys. A key that a row does not see has p = 0 in its sum l and no
 * fma in o, so a row gets the same bits as alone. */
#include <assert.h>
#include <float.h>
#include <string.h>

#include "kernels/cpu/attention_item.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lanes/chains.h"
#include "kernels/cpu/lanes/dots.h"
#include "kernels/cpu/lanes/softmax.h"

/* Query vectors per item: their q, o and scores stay in L2 next to one block of K and V. */
enum { ITEM_VECTORS = 48 };

enum { BAND_LANES = 48 };

/* Up to this many vectors read keys and values as they are stored; more have them widened once. */
enum { FEW_VECTORS = 8 };

static int32_t rows_per_item(const fv_attn_args *a, const attn_products *products) {
    int32_t rows = products->item_vectors / (a->n_head / a->n_kv);
    return rows > 0 ? rows : 1;
}

/* Vectors to allocate for: a tile more than an item has; in bf16 whole bands of avx512bf16/attention_prefill.c,
 * and a band more. */
static size_t vectors_per_item(const fv_attn_args *a, const attn_products *products) {
    const size_t n = (size_t)rows_per_item(a, products) * (size_t)(a->n_head / a->n_kv);
    return products->bf16 ? (n + 2 * BAND_LANES - 1) / BAND_LANES * BAND_LANES : n + LANES;
}

static size_t padded_for(const attn_products *p, size_t D) {
    return (D + (size_t)p->pad - 1) / (size_t)p->pad * (size_t)p->pad;
}

/* Items that a thread takes at a time: several where items are small, so that it can prefetch the next
 * one, yet few enough to occupy all threads. */
static int64_t grain_for(int64_t n_item, int64_t work) {
    enum { ENOUGH = 2048, PIECES = 64 };
    int64_t grain = n_item * ENOUGH / (work + 1), most = n_item / PIECES;
    grain = grain < most ? grain : most;
    return grain > 1 ? grain : 1;
}

static fv_cpu_plan plan_with(const fv_attn_args *a, const attn_products *products) {
    size_t R = vectors_per_item(a, products), Dp = padded_for(products, (size_t)a->d_head);
    fv_cpu_plan plan = {.grain = 1};
    int64_t work = 0;
    for (int i = 0; i < a->n_seq; i++) {
        plan.n_item += div_up(a->seqs[i].n_rows, rows_per_item(a, products)) * a->n_kv;
        for (int s = 0; s < a->seqs[i].n_seg; s++)
            work += (int64_t)a->seqs[i].tables[s].len * a->seqs[i].n_rows * a->n_head;
    }
    plan.grain = grain_for(plan.n_item, work);
    plan.scratch_bytes =
        sizeof(float) * (2 * R * Dp + 2 * FV_KV_BLOCK * Dp + R * FV_KV_BLOCK * 3 / 2 + 4 * R);
    return plan;
}

static void item_scratch(attn_item *t, float *scratch) {
    size_t R = vectors_per_item(t->a, t->products);
    t->q = scratch;
    t->o = t->q + R * t->Dp;
    t->k = t->o + R * t->Dp;
    t->v = t->k + FV_KV_BLOCK * t->Dp;
    t->s = t->v + FV_KV_BLOCK * t->Dp;
    t->p = t->s + R * FV_KV_BLOCK;
    t->m = t->p + R * FV_KV_BLOCK / 2;
    t->l = t->m + R;
    t->c = t->l + R;
    t->n_seen = (int32_t *)(t->c + R);
}

/* How many rows of segment s the item's query row i sees. */
static int32_t visible(const attn_item *t, int s, int32_t i) {
    const int32_t *masked_tail = t->seq->masked_tail;
    int32_t n =
        t->tables[s].len - (masked_tail ? masked_tail[s * t->seq->n_rows + t->row0 + i] : 0);
    return n < 0 ? 0 : n;
}

/* Whether key j of segment s is in query row i's window. */
static bool in_window(const attn_item *t, int s, int32_t i, int32_t j) {
    return !t->position || t->position[s][j] >= t->seq->window_from[t->row0 + i];
}

/* How many of the n keys of segment s from j0 on are in query row i's window. */
static int32_t n_in_window(const attn_item *t, int s, int32_t i, int32_t j0, int32_t n) {
    int32_t count = 0;
    if (!t->position) return n;
    for (int32_t j = j0; j < j0 + n; j++) count += in_window(t, s, i, j);
    return count;
}

/* ---- scores ---------------------------------------------------------------------------- */

/* Copies the item's vectors into rows of Dp columns; rows of zeros fill the last tile. */
static void copy_queries_f32(attn_item *t) {
    for (int32_t v = 0; v < div_up(t->R, MR) * MR; v++)
        pack_panel(v < t->R ? attn_query(t, v) : NULL, FV_F32, 0, v < t->R, t->D, 1,
                   t->q + (size_t)v * t->Dp);
}

/* Scores of an item's only vector, s[0][j] = dot(q_0, k_j), j < n, with keys as stored; `type` is constant after
 * inlining. */
static ALWAYS_INLINE void scores_one_as(attn_item *t, const void *k, const void *next, int32_t n,
                                        const fv_dtype type) {
    const size_t bytes_row = t->D * fv_dtype_bytes(type);
    few a = {.bytes_row = bytes_row, .K = t->D};
    for (int32_t j = 0; j < n; j += NR) {
        f32x16 acc[TILE];
        float out[TILE_OUT];
        a.w = (const char *)k + (size_t)j * bytes_row;
        a.next = (uintptr_t)(next ? next : k) + (size_t)j * bytes_row;
        a.n = min_int(NR, n - j);
        UNROLL for (int i = 0; i < NR; i++) acc[i] = f32x16_zero();
        dots_stored(acc, 1, type, &a, t->q);
        trees(acc, NR, out);
        memcpy(t->s + j, out, NR * sizeof *out);
    }
}

static void scores_one(attn_item *t, const void *k, const void *next, int32_t n) {
    switch (t->a->kv_dtype) {
    case FV_BF16: scores_one_as(t, k, next, n, FV_BF16); break;
    case FV_F16: scores_one_as(t, k, next, n, FV_F16); break;
    default: scores_one_as(t, k, next, n, FV_F32);
    }
}

/* Scores of few vectors, with keys as stored. */
static void scores_few(attn_item *t, const void *k, const void *next, int32_t n) {
    size_t bytes_row = t->D * fv_dtype_bytes(t->a->kv_dtype);
    float out[FEW_VECTORS * NR + NR];
    few a = {
        .x = t->q, .ldx = t->Dp, .M = t->R, .bytes_row = bytes_row, .t = t->a->kv_dtype, .K = t->D};
    for (int32_t j = 0; j < n; j += NR) {
        a.w = (const char *)k + (size_t)j * bytes_row;
        a.next = (uintptr_t)(next ? next : k) + (size_t)j * bytes_row;
        a.n = min_int(NR, n - j);
        dots_few(&a, out);
        for (int i = 0; i < t->R; i++)
            for (int x = 0; x < a.n; x++) t->s[i * FV_KV_BLOCK + j + x] = out[i * NR + x];
    }
}

/* Scores of many vectors, with keys packed in panels. */
static void scores_many(attn_item *t, const void *k, int32_t n) {
    fv_dtype type = t->a->kv_dtype;
    size_t bytes_row = t->D * fv_dtype_bytes(type);
    for (int32_t j = 0; j < n; j += NR) {
        pack_panel((const char *)k + (size_t)j * bytes_row, type, bytes_row, min_int(NR, n - j),
                   t->D, NR, t->k);
        for (int32_t v = 0; v < t->R; v += MR) {
            f32x16 acc[TILE];
            float out[TILE_OUT];
            UNROLL for (int i = 0; i < TILE; i++) acc[i] = f32x16_zero();
            dots_panel(acc, t->q + (size_t)v * t->Dp, t->Dp, t->k, t->D);
            trees(acc, TILE, out);
            for (int i = 0; i < MR && v + i < t->R; i++)
                memcpy(t->s + (size_t)(v + i) * FV_KV_BLOCK + j, out + i * NR, NR * sizeof *out);
        }
    }
}

static void scores_f32(attn_item *t, const void *k, const void *next, int32_t n) {
    if (t->R == 1)
        scores_one(t, k, next, n);
    else if (t->R <= FEW_VECTORS)
        scores_few(t, k, next, n);
    else
        scores_many(t, k, n);
}

static int32_t longest_visible(const attn_item *t, int s) {
    int32_t longest = 0;
    for (int32_t i = 0; i < t->n_row; i++)
        longest = visible(t, s, i) > longest ? visible(t, s, i) : longest;
    return longest;
}

/* Sets n_seen: how many keys of the block at row j0 of segment s each vector sees; 0 where its window has none of
 * them. */
static void see_rows(attn_item *t, int s, int32_t j0) {
    for (int32_t i = 0, v = 0; i < t->n_row; i++) {
        int32_t seen = visible(t, s, i) - j0;
        seen = seen < 0 ? 0 : min_int(seen, FV_KV_BLOCK);
        if (n_in_window(t, s, i, j0, seen) == 0) seen = 0;
        for (int32_t h = 0; h < t->group; h++) t->n_seen[v++] = seen;
    }
}

/* Sets scores of keys outside vector v's window to -inf. */
static void mask_window(attn_item *t, int s, int32_t v, int32_t j0) {
    for (int32_t j = 0; j < t->n_seen[v]; j++)
        if (!in_window(t, s, v / t->group, j0 + j)) t->s[v * FV_KV_BLOCK + j] = -INFINITY;
}

/* Computes scores of the n keys of segment s from j0 on, and n_seen. */
static void scores(attn_item *t, int s, int32_t j0, const void *k, const void *next, int32_t n) {
    t->products->scores(t, k, next, n);
    see_rows(t, s, j0);
    for (int32_t v = 0; t->position && v < t->R; v++) mask_window(t, s, v, j0);
}

/* Whether a query row of the item sees any of the n keys of segment s from j0 on. */
static bool is_wanted(const attn_item *t, int s, int32_t j0, int32_t n) {
    for (int32_t i = 0; i < t->n_row; i++)
        if (n_in_window(t, s, i, j0, min_int(n, visible(t, s, i) - j0)) > 0) return true;
    return false;
}

/* Sets the item to KV head g. */
static void take_head(attn_item *t, int32_t g) {
    ptrdiff_t table = (ptrdiff_t)g * t->seq->n_seg;
    t->tables = t->seq->tables + table;
    t->position = t->seq->window_from ? t->seq->position + table : NULL;
    t->head0 = g * t->group;
}

/* ---- values ---------------------------------------------------------------------------- */

/* Rows of values, as stored or widened. */
typedef struct value_rows {
    const char *v;
    size_t bytes_row;
    fv_dtype t;
    const char *next; /* rows to prefetch; NULL: none */
} value_rows;

/* o = o * c + sum_j p_j v_j for mr vectors from v0 on and nv registers of columns from d on;
 * mr, nv and the type are constants after inlining. j runs to `n` for all vectors together, then
 * on to each vector's own n_seen. */
static ALWAYS_INLINE void values_tile(const attn_item *t, const value_rows *r, const fv_dtype type,
                                      const int mr, const int nv, int32_t v0, size_t d, int32_t n) {
    const size_t size = type == FV_F32 ? 4 : 2, bytes_row = r->bytes_row, step = LANES * size;
    const float *p = t->s + (size_t)v0 * FV_KV_BLOCK;
    const char *row = r->v + d * size, *next = r->next && v0 == 0 ? r->next + d * size : row;
    float *o = t->o + (size_t)v0 * t->Dp + d;
    f32x16 acc[TILE], v[NR];
    UNROLL for (int i = 0; i < mr; i++) {
        f32x16 c = f32x16_all(t->c[v0 + i]);
        UNROLL for (int x = 0; x < nv; x++) {
            acc[i * nv + x] = f32x16_mul(f32x16_load(o + (size_t)i * t->Dp + x * LANES), c);
        }
    }
    for (int32_t j = 0; j < n; j++, row += bytes_row, next += bytes_row) {
        UNROLL for (int x = 0; x < nv; x++) {
            _mm_prefetch(next + (size_t)x * step, _MM_HINT_T1);
            v[x] = f32x16_widen(row + (size_t)x * step, type);
        }
        UNROLL for (int i = 0; i < mr; i++) {
            value_step(acc + i * nv, nv, p[i * FV_KV_BLOCK + j], v);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) {
        const char *rest = row;
        for (int32_t j = n; j < t->n_seen[v0 + i]; j++, rest += bytes_row) {
            UNROLL for (int x = 0; x < nv; x++) {
                v[x] = f32x16_widen(rest + (size_t)x * step, type);
            }
            value_step(acc + i * nv, nv, p[i * FV_KV_BLOCK + j], v);
        }
        UNROLL for (int x = 0; x < nv; x++) {
            f32x16_store(o + (size_t)i * t->Dp + x * LANES, acc[i * nv + x]);
        }
    }
}

static ALWAYS_INLINE void values_rows(const attn_item *t, const value_rows *r, const int mr,
                                      int32_t v0) {
    int32_t n = t->n_seen[v0];
    for (int i = 1; i < mr; i++) n = min_int(n, t->n_seen[v0 + i]);
    size_t d = 0;
    for (; d + NR * LANES <= t->Dp; d += NR * LANES) {
        switch (r->t) {
        case FV_BF16: values_tile(t, r, FV_BF16, mr, NR, v0, d, n); break;
        case FV_F16: values_tile(t, r, FV_F16, mr, NR, v0, d, n); break;
        default: values_tile(t, r, FV_F32, mr, NR, v0, d, n);
        }
    }
    for (; d < t->Dp; d += LANES) values_tile(t, r, FV_F32, mr, 1, v0, d, n);
}

/* The block's values [n, D]: in place if all their columns fill tiles and few vectors read them,
 * otherwise widened into scratch, in rows of Dp columns padded with zeros. */
static value_rows values_as(attn_item *t, const void *block, int32_t n, const void *next) {
    value_rows r = {.v = block, .t = t->a->kv_dtype, .next = next};
    r.bytes_row = t->D * fv_dtype_bytes(r.t);
    if (t->D % (NR * LANES) == 0 && (r.t == FV_F32 || t->R <= FEW_VECTORS)) return r;
    for (int32_t j = 0; j < n; j++)
        pack_panel(r.v + (size_t)j * r.bytes_row, r.t, 0, 1, t->D, 1, t->v + (size_t)j * t->Dp);
    return (value_rows){(const char *)t->v, t->Dp * sizeof(float), FV_F32, NULL};
}

static void values_f32(attn_item *t, const void *block, int32_t n) {
    value_rows r = values_as(t, block, n, t->after ? t->after->k : NULL);
    int32_t v = 0;
    for (; v + MR <= t->R; v += MR) values_rows(t, &r, MR, v);
    switch (t->R - v) {
    case 1: values_rows(t, &r, 1, v); break;
    case 2: values_rows(t, &r, 2, v); break;
    case 3: MR <= 3 ? assert(0) : values_rows(t, &r, 3, v); break;
    case 4: MR <= 4 ? assert(0) : values_rows(t, &r, 4, v); break;
    case 5: MR <= 5 ? assert(0) : values_rows(t, &r, 5, v); break;
    }
}

static const attn_products products_f32 = {.pad = LANES,
                                           .item_vectors = ITEM_VECTORS,
                                           .zero = -0.0f,
                                           .copy_queries = copy_queries_f32,
                                           .scores = scores_f32,
                                           .values = values_f32};

static const attn_products *const *choices_of(const fv_cpu_attention *c) {
    static const attn_products *const in_f32[] = {&products_f32, NULL};
    return c->compute == FV_COMPUTE_BF16 ? c->isa->attention : in_f32;
}

/* The first products that take any item. */
static const attn_products *general(const attn_products *const *choices) {
    while ((*choices)->takes) choices++;
    return *choices;
}

/* ---- one item -------------------------------------------------------------------------- */

static uint8_t share_of(const attn_item *t, int32_t v) {
    const uint8_t *share = t->seq->share;
    return share ? share[t->row0 + v / t->group] : FV_SHARE_KEPT;
}

/* Whether the values of segment 0 are summed; otherwise edit_shares() replaces the sum. */
static bool has_values(uint8_t share) {
    return share == FV_SHARE_KEPT || share == FV_SHARE_WITHOUT_FIRST;
}

static bool any_has_values(const attn_item *t) {
    for (int32_t v = 0; v < t->R; v += t->group)
        if (has_values(share_of(t, v))) return true;
    return false;
}

/* Clears p of dropped rows after the softmax over rows [j0, j0 + FV_KV_BLOCK) of segment 0. */
static void drop_first(attn_item *t, int32_t j0) {
    int32_t n = min_int(FV_KV_BLOCK, t->seq->n_first - j0);
    for (int32_t v = 0; v < t->R && n > 0; v++)
        if (share_of(t, v) == FV_SHARE_WITHOUT_FIRST)
            memset(t->s + (size_t)v * FV_KV_BLOCK, 0, (size_t)n * sizeof *t->s);
}

/* Applies changed shares to o after segment 0. */
static void edit_shares(attn_item *t) {
    for (int32_t v = 0; v < t->R; v++) {
        uint8_t share = share_of(t, v);
        int32_t i = v / t->group;
        if (has_values(share) || n_in_window(t, 0, i, 0, visible(t, 0, i)) == 0) continue;
        float *o = t->o + (size_t)v * t->Dp;
        memset(o, 0, t->Dp * sizeof *o);
        if (share == FV_SHARE_ON_FIRST)
            for (size_t d = 0; d < t->D; d++) {
                o[d] = t->l[v] * widened(t->tables[0].block[0].v, t->a->kv_dtype, d);
                if (t->products->bf16 && fabsf(o[d]) < FLT_MIN) o[d] = 0.0f;
            }
    }
}

static void finish(attn_item *t) {
    const fv_attn_seq *seq = t->seq;
    const float *rows = t->products->rows_of_o ? t->products->rows_of_o(t) : t->o;
    for (int32_t v = 0; v < t->R; v++) {
        int64_t row = t->row0 + v / t->group, head = t->head0 + v % t->group;
        const float *o = rows + (size_t)v * t->Dp;
        float *to = attn_output(t, v);
        bool saw = t->l[v] != 0.0f;
        float l = saw ? t->l[v] : 1.0f, lse = saw ? t->m[v] + log_f32(l) : -INFINITY;
        for (size_t d = 0; d < t->D; d++) to[d] = (o[d] + t->products->zero) / l;
        if (t->a->lse.data) row_f32(&t->a->lse, seq->row0 + row)[head] = lse;
    }
}

/* The first block that is read from segment s on, or NULL, and how many rows of it. */
static const fv_kv_block *first_block(const attn_item *t, int s, int32_t *n) {
    for (; s < t->seq->n_seg; s++) {
        *n = min_int(FV_KV_BLOCK, longest_visible(t, s));
        if (*n > 0) return t->tables[s].block;
    }
    *n = 0;
    return NULL;
}

/* Sets `after`: the block at row j of segment s, or the first of a later segment or of the thread's next item. */
static void look_ahead(attn_item *t, int s, int32_t j, int32_t longest) {
    t->after = j < longest ? &t->tables[s].block[j / FV_KV_BLOCK] : NULL;
    t->n_after = min_int(FV_KV_BLOCK, longest - j);
    if (!t->after) t->after = first_block(t, s + 1, &t->n_after);
    if (!t->after && t->following) t->after = first_block(t->following, 0, &t->n_after);
}

static void attend(attn_item *t) {
    int32_t room = t->R;
    if (t->products->whole_block) room = (int32_t)div_up(room, BAND_LANES) * BAND_LANES;
    memset(t->o, 0, (size_t)room * t->Dp * sizeof *t->o);
    for (int32_t v = 0; v < room; v++) {
        t->m[v] = log_f32(t->seq->n);
        t->l[v] = t->seq->n > 0.0f ? 1.0f : 0.0f;
    }
    t->products->copy_queries(t);
    for (int s = 0; s < t->seq->n_seg; s++) {
        int32_t longest = longest_visible(t, s);
        bool wanted = s > 0 || any_has_values(t); /* otherwise edit_shares() overwrites the sum */
        for (int32_t j0 = 0; j0 < longest; j0 += FV_KV_BLOCK) {
            const fv_kv_block *block = &t->tables[s].block[j0 / FV_KV_BLOCK];
            int32_t n = min_int(FV_KV_BLOCK, longest - j0);
            if (t->position && !is_wanted(t, s, j0, n)) continue;
            look_ahead(t, s, j0 + FV_KV_BLOCK, longest);
            if (t->products->whole_block) {
                see_rows(t, s, j0);
                t->products->whole_block(t, block->k, block->v, n,
                                         t->position ? t->position[s] + j0 : NULL);
                continue;
            }
            scores(t, s, j0, block->k, wanted ? block->v : NULL, n);
            softmax(t->R, t->a->scale, t->n_seen, t->products->bf16, t->s, t->m, t->l, t->c);
            if (s == 0 && t->seq->share) drop_first(t, j0);
            if (wanted) t->products->values(t, block->v, n);
        }
        if (s == 0 && t->seq->share) edit_shares(t);
    }
    finish(t);
}

static attn_item item_of(const fv_cpu_attention *c, const fv_attn_args *a,
                         const attn_products *const *choices, void *scratch) {
    const attn_products *products = general(choices);
    attn_item t = {.a = a,
                   .products = products,
                   .choices = choices,
                   .panels = c->isa->panels,
                   .group = a->n_head / a->n_kv};
    t.D = (size_t)a->d_head;
    t.Dp = padded_for(products, t.D);
    item_scratch(&t, scratch);
    return t;
}

static int64_t items_of(const fv_attn_args *a, const attn_products *products, int q) {
    return div_up(a->seqs[q].n_rows, rows_per_item(a, products)) * a->n_kv;
}

/* Sets the item to n_row query rows from row0 on, and chooses its products. */
static void take_rows(attn_item *t, int32_t row0, int32_t n_row) {
    const attn_products *const *choice = t->choices;
    t->row0 = row0;
    t->n_row = n_row;
    t->R = n_row * t->group;
    while ((*choice)->takes && !(*choice)->takes(t)) choice++;
    t->products = *choice;
}

/* Sets the item to item i of sequence q. Last rows come first: they see most, and short items at the end even out
 * the threads. */
static void take_item(attn_item *t, const attn_products *products, int q, int64_t i) {
    int32_t rows = rows_per_item(t->a, products);
    t->seq = &t->a->seqs[q];
    int64_t blocks = div_up(t->seq->n_rows, rows);
    take_head(t, (int32_t)(i / blocks));
    int32_t row0 = (int32_t)(blocks - 1 - i % blocks) * rows;
    take_rows(t, row0, min_int(rows, t->seq->n_rows - row0));
}

static fv_cpu_plan attention_plan(const void *args) {
    const fv_cpu_attention *c = args;
    return plan_with(c->a, general(choices_of(c)));
}

static void attention(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_attention *c = args;
    const fv_attn_args *a = c->a;
    const attn_products *products = general(choices_of(c));
    attn_item t = item_of(c, a, choices_of(c), scratch), next = t;
    int64_t left = end - begin;
    int q = 0;
    for (; left > 0 && begin >= items_of(a, products, q); q++) begin -= items_of(a, products, q);
    if (left > 0) take_item(&next, products, q, begin);
    for (; left > 0; left--) {
        t = next;
        for (begin++; left > 1 && begin >= items_of(a, products, q); q++)
            begin -= items_of(a, products, q);
        if (left > 1) take_item(&next, products, q, begin);
        t.following = left > 1 ? &next : NULL;
        attend(&t);
    }
    if (products->close) products->close();
}

#endif
