#ifndef FOVEA_KERNELS_CPU_ATTENTION_ITEM_H
#define FOVEA_KERNELS_CPU_ATTENTION_ITEM_H

/* An item of attention, which lanes/attention.h takes through the KV blocks, and the products that compute it: in
 * f32 (lanes/attention.h), in bf16 (lanes/attention_bf16.h), and those of instruction sets that have products in bf16
 * of their own. */
#include "kernels/cpu/packed_products.h"
#include "kernels/cpu/path.h"

typedef struct attn_products attn_products;

typedef struct attn_item {
    const fv_attn_args *a;
    const fv_attn_seq *seq;
    const attn_products *products;
    const attn_products *const
        *choices; /* for bf16: fv_isa_choice.attention; otherwise those of f32 alone */
    const packed_products *panels;  /* fv_isa_choice.panels */
    const fv_block_table *tables;   /* [n_seg] of this KV head */
    const int32_t *const *position; /* [n_seg] of this KV head; NULL: no window */
    int32_t head0, group;           /* first query head, number of them */
    int32_t row0, n_row;            /* query rows of the sequence */
    int32_t R;    /* n_row * group vectors: vector v is row v / group, head v % group */
    size_t D, Dp; /* head dim, and rounded up to the products' `pad` */

    /* scratch */
    float *q, *k, *v; /* [R, Dp] queries, a panel of NR keys, [64, Dp] values */
    float *s, *o, *p; /* [R, 64], [R, Dp]; [R, 32] for products with whole_block() */
    float *m, *l, *c; /* [R] */
    int32_t *n_seen;  /* [R] keys of the current block */

    /* The block read after the current one, or NULL, and how many of its rows: the next block of this segment,
     * the first of a later segment or of the thread's next item. */
    const fv_kv_block *after;
    int32_t n_after;
    const struct attn_item *following; /* the thread's next item, or NULL */
    int32_t fetched; /* for products: rows of q and o prefetched so far; 0 at first */
} attn_item;

struct attn_products {
    bool bf16;           /* p is rounded to bf16 */
    int item_vectors;    /* query vectors that share keys and values, at most, or one row's heads */
    int pad;             /* Dp is a multiple of it */
    float zero;          /* added to o at the end: +0 makes zeros positive, -0 changes nothing */
    void (*close)(void); /* after the last item of a thread; or NULL */
    /* Whether these products compute the item; NULL: any. An item is computed by the first on the list that takes it.
     * Items are cut as the first that takes any wants it, so that the others do not change the cut. */
    bool (*takes)(const attn_item *t);
    /* Writes the item's vectors to t->q, in the layout that scores reads. */
    void (*copy_queries)(attn_item *t);
    /* s[v][j] = dot(q_v, k_j), j < n; columns from n to 64 may get any number. next: the block's n rows of values,
     * to prefetch; or NULL. */
    void (*scores)(attn_item *t, const void *k, const void *next, int32_t n);
    /* o = o * c + p v, rows j < n_seen[v] of n. Prefetches t->after. */
    void (*values)(attn_item *t, const void *block, int32_t n);
    /* Replaces scores(), softmax() and values() if present: computes all three for n rows, of which vector v sees
     * the first n_seen[v], those in its window if there is one (position [n]; NULL: none). o may have the products'
     * own layout: it starts as zeros, with memory for whole bands of 48 vectors; rows_of_o() returns rows [R, Dp]. */
    void (*whole_block)(attn_item *t, const void *k, const void *v, int32_t n,
                        const int32_t *position);
    const float *(*rows_of_o)(attn_item *t);
};

#endif
