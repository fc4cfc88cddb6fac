#ifndef FOVEA_KERNELS_CPU_PATH_H
#define FOVEA_KERNELS_CPU_PATH_H

/* The CPU backend's mathematics for one instruction set.
 *
 * There are three tables with the same bits: "plain" is the specification, "avx2" and
 * "avx512" are fast. A function does the items [begin, end) of an operation on the calling
 * thread and touches nothing else, so backend_cpu.c may spread them over threads as it likes.
 * Arguments have been checked. */
#include <stdint.h>

#include "kernels/ops.h"

/* How an operation falls into independent items. */
typedef struct fv_cpu_plan {
    int64_t n_item, grain; /* grain: items that one thread takes at a time */
    size_t scratch_bytes;  /* per thread */
} fv_cpu_plan;

/* Does items [begin, end) of the operation that `args` describes. */
typedef void fv_cpu_items(const void *args, void *scratch, int64_t begin, int64_t end);

typedef struct fv_cpu_path {
    const char *isa;

    /* fv_linear_args; items: tiles of the output, as the path cuts it, of all parts */
    fv_cpu_plan (*linear_plan)(const fv_linear_args *a);
    fv_cpu_items *linear;

    /* fv_matmul_nn_args; items: rows or bands of columns of the output, as the path cuts it */
    fv_cpu_plan (*matmul_nn_plan)(const fv_matmul_nn_args *a);
    fv_cpu_items *matmul_nn;

    /* fv_syrk_args; items: blocks of rows of the result, as the path cuts it */
    fv_cpu_plan (*syrk_plan)(const fv_syrk_args *a);
    fv_cpu_items *syrk;

    /* fv_attn_args; items: blocks of query rows, of some or all heads */
    fv_cpu_plan (*attention_plan)(const fv_attn_args *a);
    fv_cpu_items *attention;

    /* fv_score_sums_args; items: keys of a KV head, of one sum */
    fv_cpu_plan (*score_sums_plan)(const fv_score_sums_args *a);
    fv_cpu_items *score_sums;

    /* fv_attn_packed_args; items: blocks of query rows and heads */
    fv_cpu_plan (*attn_lowrank_plan)(const fv_attn_packed_args *a);
    fv_cpu_items *attn_lowrank;

    /* the same args, of codes or of directions; items: blocks of query rows of a KV head */
    fv_cpu_plan (*attn_quantized_plan)(const fv_attn_packed_args *a);
    fv_cpu_items *attn_quantized;

    /* fv_importance_args; items: rows of the block */
    fv_cpu_items *importance;

    /* The args of that operation; items: rows, and no scratch. kv_write counts the rows of its
     * sequences, one sequence after another. */
    fv_cpu_items *norm, *activate, *rope, *index_select, *kv_write, *merge;
} fv_cpu_path;

extern const fv_cpu_path fv_cpu_path_plain, fv_cpu_path_avx2, fv_cpu_path_avx512;

/* The best path of this machine, or the one called `isa`. FV_EINVAL for an unknown name,
 * FV_EUNSUPPORTED for one that this machine cannot run. */
fv_status fv_cpu_path_find(const char *isa, const fv_cpu_path **out);

/* The path of an open CPU backend. */
const char *fv_cpu_backend_isa(const fv_backend *be);

#endif
