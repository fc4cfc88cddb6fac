#ifndef FOVEA_KERNELS_CPU_GEMM_H
#define FOVEA_KERNELS_CPU_GEMM_H

/* Matrix products y = x w^T + bias (+ y): one driver (gemm.c) for the implementations of all instruction sets.
 *
 *     parts -> items -> blocks of K -> panels of w -> tiles -> store
 *
 * An item is a block of y. K is cut into blocks of KB columns; in each, NR rows of w are packed as a panel, and tiles
 * of MR rows of x are multiplied by it. Sums stay in scratch memory from block to block, and go to y after the last
 * one. An output gets its blocks of K in order, whatever the cut, so the cut does not change its bits.
 *
 * An implementation that reads w in place, or overlaps one item with the next, computes whole items itself. */
#include <stdbool.h>

#include "kernels/cpu/path.h"

/* How a part of linear is multiplied (kernels/ops.h). */
typedef enum fv_product {
    FV_PRODUCT_F32,
    FV_PRODUCT_BF16,
    FV_PRODUCT_INT8,        /* integers with a scale for each row */
    FV_PRODUCT_INT8_GROUPS, /* integers of 8 bits with scales along K */
    FV_PRODUCT_INT4_GROUPS, /* integers of 4 bits with scales along K */
    FV_N_PRODUCT
} fv_product;

enum { FV_GEMM_COLUMNS_MAX = 128 };

typedef struct fv_gemm_impl fv_gemm_impl;

/* A call: the arguments of pack_x_plan(), pack_x() and the driver. */
typedef struct fv_gemm_call {
    const fv_gemm_impl *impl;
    fv_product product;
    const fv_linear_args *a; /* parts of this product that impl takes */
    void *x;                 /* packed, aligned to 64 bytes; NULL where x is read in place */
} fv_gemm_call;

/* Memory that an implementation prefetches while it multiplies, as it likes. */
typedef struct fv_gemm_ahead {
    uintptr_t at;
    size_t stride;
    int line;
} fv_gemm_ahead;

/* A block of y: rows [m0, m0 + M) and columns [n0, n0 + N). */
typedef struct fv_gemm_item {
    const fv_gemm_call *call;
    const fv_linear_part *p;
    int64_t m0, n0;
    int M, N;
    const float *bias; /* [N], or NULL: none */
    char *scratch;     /* the implementation's own, of scratch_bytes() */
    size_t k;          /* the current block of K */
    bool last;         /* it is the last one */
    fv_gemm_ahead ahead;
} fv_gemm_item;

/* The products that an implementation computes, and how it packs x for them; args of both functions is the call. */
typedef struct fv_gemm_x {
    unsigned products; /* 1 << fv_product of each */
    fv_cpu_plan_fn
        *plan; /* rows or blocks of x as items, and shared_bytes; NULL: x is read in place */
    fv_cpu_items *pack;
} fv_gemm_x;

/* Panels and tiles. Their positions count from the item's first row and column; panels and sums are aligned to 64
 * bytes. */
typedef struct fv_gemm_tiles {
    int MR, NR;
    size_t KB;
    size_t panel_bytes, sum_bytes; /* of a panel; of one output's sums between blocks of K */
    bool
        panel_stays; /* each panel meets all rows at once; otherwise MR rows meet all panels of the item */
    /* Packs block t->k of rows [n, n + cols) of w, cols <= NR. */
    void (*pack_w)(fv_gemm_item *t, int n, int cols, void *panel);
    /* Adds `rows` <= MR rows of x from m on times the panel to sums, MR NR outputs in a layout of its own, which have
     * no value yet where t->k is 0. */
    void (*multiply)(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel,
                     void *sums);
    /* Adds the bias, scales where the product has scales, and writes y; NULL: multiply() does, where t->last. */
    void (*store)(const fv_gemm_item *t, int m, int rows, int n, int cols, const void *sums);
} fv_gemm_tiles;

/* An implementation. It computes items by tiles, or with one of item() and items() itself. */
struct fv_gemm_impl {
    const char *name; /* tells it from the others of its instruction set */
    const fv_gemm_x *x;
    int32_t rows_max; /* the most rows of x; 0: any number */
    bool (*takes)(const fv_linear_args *a,
                  const fv_tensor *w); /* NULL: any weights of these products */
    int columns;                       /* of an item */
    int rows;  /* the most rows of an item, cut evenly in multiples of MR; 0: all */
    int grain; /* weights that a thread takes at a time; 0: an item */
    /* Around the items of a part, on their thread; or NULL. */
    void (*open)(const fv_gemm_call *c, const fv_linear_part *p);
    void (*close)(void);
    size_t (*scratch_bytes)(const fv_linear_args *a); /* of the item's scratch; NULL: none */
    const fv_gemm_tiles *tiles;
    void (*item)(fv_gemm_item *t);
    /* Items [begin, end) of part p, one overlapping the next. */
    void (*items)(const fv_gemm_call *c, const fv_linear_part *p, int64_t begin, int64_t end,
                  void *scratch);
};

enum { FV_GEMM_STREAM = 1 << 18 }; /* a usual grain where weights are read once: some 20 us */

/* How a call is cut; its items, whose args is the call. */
fv_cpu_plan fv_gemm_plan(const fv_gemm_call *c);
fv_cpu_items fv_gemm_items;

#endif
