#ifndef FOVEA_PREFILL_WORKER_SELECT_SELECT_H
#define FOVEA_PREFILL_WORKER_SELECT_SELECT_H

/* SELECT: chooses the rows of the KV cache that stay when prefill ends, per layer and KV head. Attention
 * inside prefill is untouched. One file per method in select/, one row each in
 * policy/methods.def; select_rows.h has functions that several of them need. */
#include "common/arena.h"
#include "kv/kv.h"
#include "policy/plan/plan.h"

/* The attention of a layer's window, as a capture leaves it (model/net/decoder.h). */
typedef struct fv_select_sums {
    int32_t n_head, n_kind; /* n_kind: FV_N_SEG if segments are summed separately, otherwise 1 */
    int32_t text, n_key;    /* text: the first column of text tokens */
    float *p; /* [H, n_kind, n_key]; NULL: not captured, or the same as in the source layer */
} fv_select_sums;

typedef struct fv_select_context {
    const fv_params *params; /* a union: the method reads its own member */
    fv_plan_budget budget;   /* of methods that have one */
    int32_t layer, head, n_kv;
    int32_t n_prompt;             /* tokens of the prompt before any were dropped */
    int32_t n[FV_N_SEG];          /* rows that this head holds */
    const int32_t *pos[FV_N_SEG]; /* their prompt positions, ascending */
    /* attention[from][to][j]: attention of the window's tokens of segment `from` to this head's entry j
     * of segment `to`, summed; query heads are combined as the plan says. For layers that share
     * keys, the mean over them. NULL if the plan does not need it (fv_plan_window), if the layer keeps
     * all its entries, or if tokens of all segments are summed together. */
    const float *attention[FV_N_SEG][FV_N_SEG];
    /* own[from][j], if layers share keys of visual tokens only: the attention to text token j in
     * this layer alone. Visual tokens must be chosen by `attention`, so that each layer chooses the
     * same. Otherwise NULL. */
    const float *own[FV_N_SEG];
    /* Attention by query head, in the source layer; NULL if the plan does not need it. */
    const fv_select_sums *sums;
    int32_t head0, head1; /* this head chooses by query heads [head0, head1) of sums: */
    bool max;             /* by the largest of them, or by their mean */
    fv_backend *be;       /* for methods that read the rows themselves (store_rows.h) */
    const fv_kv *kv;
} fv_select_context;

/* A layer whose heads have chosen, and whose rows have not moved yet. */
typedef struct fv_select_kept {
    const fv_params *params; /* a union: the method reads its own member */
    fv_backend *be;
    fv_kv *kv;
    int32_t layer;
    int32_t *const *kept[FV_N_SEG];  /* [Hkv] [n_kept] as the method wrote them */
    const int32_t *n_kept[FV_N_SEG]; /* [Hkv] */
} fv_select_kept;

typedef struct fv_select_method {
    /* Writes for each segment the indices of the kept entries, ascending, and their number, initially 0.
     * A repeated index is held twice; at most fv_plan_select_stage.dup_max are. The arena's memory is
     * freed when the layer is done. */
    fv_status (*keep)(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]);
    /* Or NULL. Merges dropped entries into kept ones, which it overwrites (store_rows.h). */
    fv_status (*merge)(const fv_select_kept *kept, fv_arena *arena);
} fv_select_method;

/* Whether the plan's select stage needs to know the attention of a layer. */
bool fv_select_needs_attention(const fv_plan *plan, int32_t layer);

/* Runs the plan's select stage on layers [l0, l1) of a store, which are prefilled and contain whole lazy
 * blocks only; sums [N]. Layers of a block hold the same entries of the segments that they share. A method
 * that sums segments separately (Q Cache with CSP) chooses by the mean over the block and, if text keys
 * are each layer's own, chooses text tokens again by that layer's attention; any other method uses the
 * source layer alone, and its choice, text too, applies to the block. */
fv_status fv_select_run(const fv_plan *plan, fv_backend *be, fv_kv *kv, int32_t l0, int32_t l1,
                        const fv_select_sums *sums);

#endif
