#ifndef FOVEA_KERNELS_CPU_LANES_ATTN_LATENT_ITEM_H
#define FOVEA_KERNELS_CPU_LANES_ATTN_LATENT_ITEM_H

/* An item of attention on coefficients (lanes/attn_latent.h) and its memory. */
#include "kernels/cpu/lanes/latent.h"
#include "kernels/cpu/lanes/packed_rows.h"

enum {
    LATENT_VECTORS = 16, /* of an item with few query rows: they fill a register, */
    LATENT_ITEMS = 8, /* unless that leaves fewer items than this, if there are as many KV heads */
    LATENT_TILES = FV_KV_BLOCK / FV_PACKED_TILE,
    OWN_LINE = FV_LATENT_OWN + 1 /* own directions and the exact token */
};

typedef struct latent_item {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    const packed_products *products;
    latent_block block;
    bool coded;                /* keys are read as codes */
    const packed_words *words; /* unpacks codes to words; NULL: to f32 */
    size_t D, Dp;              /* head dim, and padded */
    size_t low[2];             /* coefficients that rows of group 1 are read with: keys, values */
    int32_t group, g0, n_g;    /* query heads of a KV head; KV heads */
    int32_t row0, n_row;       /* rows of the sequence */
    int32_t R;                 /* vectors: v is KV head v / (n_row * group), then row, then head */
    size_t Rp;                 /* padded */
    int32_t anchor;            /* anchor block of the row listed last */
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

/* ---- sizes of items ----------------------------------------------------------------------- */

/* Query rows of an item. */
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

/* ---- scratch ---------------------------------------------------------------------------- */

/* Places the item's arrays in `scratch`, large enough for any sequence; NULL: only counts the bytes. */
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

static fv_cpu_plan attn_latent_plan(const void *args) {
    const fv_attn_packed_args *a = ((const fv_cpu_attention *)args)->a;
    latent_item t = {.products = packed_for(args)};
    fv_cpu_plan plan = {.grain = 1, .scratch_bytes = latent_scratch(a, &t, NULL)};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += latent_items(a, &a->seqs[i]);
    return plan;
}

#endif
