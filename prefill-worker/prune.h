#ifndef FOVEA_PREFILL_WORKER_PRUNE_H
#define FOVEA_PREFILL_WORKER_PRUNE_H

/* PRUNE: which visual rows go on, where the plan lets some leave. One file per method in
 * prune/, one row each in policy/methods.def; prune.c makes the table from those rows. */
#include "policy/plan.h"

typedef struct fv_prune_context {
    const fv_choice *choice;
    int32_t layer;      /* the first layer that will not see the rows that leave */
    int32_t n_visual;   /* visual rows present */
    const int32_t *pos; /* [n_visual] their prompt positions, ascending */
    int32_t keep;       /* how many go on, 0..n_visual: the plan's number */
} fv_prune_context;

typedef struct fv_prune_method {
    const char *name;
    /* Writes the indices of the rows that go on, kept[ctx->keep], ascending. */
    fv_status (*keep)(const fv_prune_context *ctx, int32_t *kept);
} fv_prune_method;

/* The method of that name in methods.def. */
const fv_prune_method *fv_prune_find(const char *name);

#endif
