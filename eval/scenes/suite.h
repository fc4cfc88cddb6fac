#ifndef FOVEA_EVAL_SCENES_SUITE_H
#define FOVEA_EVAL_SCENES_SUITE_H

/* A SUITE: which items of the split TEST are evaluated.
 *
 *   (tasks, items, seed) -> item 0, 1, ... : one of each task in turn
 *
 * A longer suite starts with the items of a shorter one. Suites of two seeds share no item.
 *
 * Pure functions: any thread. */
#include "eval/scenes/tasks.h"

enum { FV_SUITE_SEED_MAX = (1 << 20) - 1, FV_SUITE_ITEMS_MAX = 1 << 20 };

typedef struct fv_suite {
    int32_t n_task;
    fv_scene_task task[FV_N_TASK]; /* ascending */
    int32_t n_item;                /* over all tasks */
    int32_t seed;
} fv_suite;

/* A suite of some tasks (n_name 0: all; a repeated name counts once). Every task has at least one
 * item. FV_EINVAL when a name, the seed or the number of items is out of range. */
fv_status fv_suite_make(const char *const *name, int32_t n_name, int32_t n_item, int32_t seed,
                        fv_suite *out);

fv_scene_task fv_suite_task_of(const fv_suite *suite, int32_t item);

/* Item [0, n_item). */
fv_status fv_suite_item(const fv_suite *suite, int32_t item, fv_item *out);

/* Tokens that an answer to a turn of this task may have: twice those of the longest right answer in
 * a tokenizer of whole words, and more; who says more than that says it wrong. */
int32_t fv_suite_max_tokens(fv_scene_task task);

#endif
