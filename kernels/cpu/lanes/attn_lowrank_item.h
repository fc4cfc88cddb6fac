#ifndef FOVEA_KERNELS_CPU_LANES_ATTN_LOWRANK_ITEM_H
#define FOVEA_KERNELS_CPU_LANES_ATTN_LOWRANK_ITEM_H

/* An item of attention in rank space (lanes/attn_lowrank.h) and its memory. */
#include "kernels/cpu/lanes/packed.h"
#include "kernels/cpu/path.h"

enum {
    PACKED_TILES = FV_KV_BLOCK / FV_PACKED_TILE,
    PACKED_HEADS = 16,   /* query heads of an item: two items for the 32 of a 7B network */
    PACKED_ANCHORS = 64, /* blocks whose latent queries are held: 64 x 16 x 64 are 256 KiB */
    PACKED_LINES = 128   /* lines of a basis in a panel: 128 x 64 are 32 KiB */
};

typedef struct packed_item {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    const packed_products *products;
    packed_view k, v;
    int32_t head0, n_head, row0, n_row; /* query heads, and rows of the sequence */
    int32_t R;                          /* vectors: v is head v / n_row, row v % n_row */
    size_t D, Dp, Rk, Rv;               /* head dim; padded: head dim, ranks */
    size_t P[2];                        /* padded tiers of values */
    int32_t n_held;                     /* anchor blocks whose latent queries are held */

    /* scratch */
    float *q, *t;       /* [n_row * n_held, Dp] of one head; [R, n_held, Rk] */
    float *panel;       /* [PACKED_LINES, Rk or Dp] lines of a head's basis */
    float *lo, *step;   /* [Rk or Rv] pairs of the basis */
    float *keys, *part; /* [Rk, 64] keys' U of a softmax block; [R, 64] scores of an anchor block */
    uint32_t *tables;   /* [Rk, 8] tables that unpack keys' U to words */
    float *s, *p;       /* [R, 64] scores, then p; p of the rows of a list */
    float *w, *z[2];    /* [64, P or Dp] rows of values; per tier [R, P] */
    float *z_all;       /* [R, Rv] of both tiers, in bf16 */
    float *o;           /* [R, Dp] */
    float *m, *l, *c;   /* [R] */
    int32_t *n_seen;    /* [R] */

    const packed_words *key_words, *value_words; /* NULL: panels of f32 */
    bool has_tile[PACKED_TILES];                 /* which tiles `keys` holds */
    int32_t n_list[2], list[2][FV_KV_BLOCK]; /* rows of the block: valid; valid and of full rank */
} packed_item;

static int32_t packed_heads(const fv_attn_packed_args *a) {
    return min_int(PACKED_HEADS, a->n_head);
}

static int32_t packed_rows(const fv_attn_packed_args *a) {
    return PACKED_VECTORS / packed_heads(a) > 0 ? PACKED_VECTORS / packed_heads(a) : 1;
}

/* ---- scratch --------------------------------------------------------------------------- */

/* Sets the widths to the largest of the call's sequences. */
static void packed_widths(const fv_attn_packed_args *a, packed_item *t) {
    t->Dp = stepped(t->products, (size_t)a->d_head);
    t->Rk = t->Rv = t->P[0] = t->P[1] = 0;
    for (int i = 0; i < a->n_seq; i++) {
        const fv_packed_shape *k = &a->seqs[i].k->shape, *v = &a->seqs[i].v->shape;
        size_t Rk = stepped(t->products, (size_t)k->lowrank.rank);
        size_t Rv = stepped(t->products, (size_t)v->lowrank.rank);
        t->Rk = Rk > t->Rk ? Rk : t->Rk;
        t->Rv = Rv > t->Rv ? Rv : t->Rv;
        for (int p = 0; p < 2; p++) {
            size_t P = padded(fv_packed_tier_rank(v, p));
            t->P[p] = P > t->P[p] ? P : t->P[p];
        }
    }
}

/* Places the item's arrays in `scratch`; NULL: only counts the bytes. */
static size_t packed_scratch(const fv_attn_packed_args *a, packed_item *t, void *scratch) {
    scratch_bump at = {.base = scratch};
    packed_widths(a, t);
    size_t rows = (size_t)packed_rows(a), V = (size_t)packed_heads(a) * rows + MR;
    size_t rank = t->Rk > t->Rv ? t->Rk : t->Rv, line = t->Rk > t->Dp ? t->Rk : t->Dp;
    t->q = scratch_take(&at, PACKED_ANCHORS * rows * t->Dp);
    t->t = scratch_take(&at, PACKED_ANCHORS * V * t->Rk);
    t->panel = scratch_take(&at, PACKED_LINES * line);
    t->lo = scratch_take(&at, rank);
    t->step = scratch_take(&at, rank);
    t->keys = scratch_take(&at, t->Rk * FV_KV_BLOCK);
    t->tables = (uint32_t *)scratch_take(&at, t->products->words ? t->Rk * 8 : 0);
    t->part = scratch_take(&at, V * FV_KV_BLOCK);
    t->s = scratch_take(&at, V * FV_KV_BLOCK);
    t->p = scratch_take(&at, V * FV_KV_BLOCK);
    size_t wide = t->P[0] > t->P[1] ? t->P[0] : t->P[1];
    t->w = scratch_take(&at, FV_KV_BLOCK * (wide > t->Dp ? wide : t->Dp));
    for (int p = 0; p < 2; p++) t->z[p] = scratch_take(&at, V * t->P[p]);
    t->z_all = scratch_take(&at, t->products->multiply ? V * t->Rv : 0);
    t->o = scratch_take(&at, V * t->Dp);
    t->m = scratch_take(&at, V);
    t->l = scratch_take(&at, V);
    t->c = scratch_take(&at, V);
    t->n_seen = (int32_t *)scratch_take(&at, V);
    return at.bytes;
}

static int64_t packed_items(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    return div_up(a->n_head, packed_heads(a)) * div_up(seq->n_rows, packed_rows(a));
}

static fv_cpu_plan attn_lowrank_plan(const void *args) {
    const fv_attn_packed_args *a = ((const fv_cpu_attention *)args)->a;
    packed_item t = {.products = packed_for(args)};
    fv_cpu_plan plan = {.grain = 1, .scratch_bytes = packed_scratch(a, &t, NULL)};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += packed_items(a, &a->seqs[i]);
    return plan;
}

#endif
