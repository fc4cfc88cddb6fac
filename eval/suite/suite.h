#ifndef FOVEA_EVAL_SUITE_SUITE_H
#define FOVEA_EVAL_SUITE_SUITE_H

/* A SUITE: the items that are evaluated. These are of a user's benchmark, or of generated scenes of
 * the split TEST:
 *
 *   (tasks, items, seed) -> item 0, 1, ... : one of each task in turn
 *
 * A longer suite starts with the items of a shorter one. Suites with different seeds share no item.
 *
 * Pure functions: any thread. */
#include "eval/benchmark/benchmark.h"
#include "eval/scenes/tasks.h"

enum { FV_SUITE_SEED_MAX = (1 << 20) - 1, FV_SUITE_ITEMS_MAX = 1 << 20 };

typedef struct fv_suite {
    int32_t n_task;
    int32_t task[FV_N_TASK]; /* [n_task] ascending: fv_scene_task, or for a benchmark fv_metric */
    int32_t n_item;          /* over all tasks */
    int32_t seed;
    bool rich;                     /* scenes (eval/scenes/scene.h) */
    const fv_benchmark *benchmark; /* borrowed; NULL: scenes are generated */
} fv_suite;

/* Makes a suite of some tasks about plain or rich scenes (n_name 0: all tasks; a repeated name
 * counts once). Every task has at least one item. FV_EINVAL if a name, the seed or the number of
 * items is out of range. */
fv_status fv_suite_make(const char *const *name, int32_t n_name, int32_t n_item, int32_t seed,
                        bool rich, fv_suite *out);

/* All items of a benchmark, which must stay valid. Its metrics are the tasks. */
fv_suite fv_suite_of_benchmark(const fv_benchmark *benchmark);

int32_t fv_suite_task_of(const fv_suite *suite, int32_t item);
const char *fv_suite_task_name(const fv_suite *suite, int32_t task);
/* Name of the measure: "accuracy", "F1". */
const char *fv_suite_measure(const fv_suite *suite, int32_t task);
/* Score of the best constant answer; for a benchmark the mean of fv_benchmark_chance. */
double fv_suite_chance(const fv_suite *suite, int32_t task);
int32_t fv_suite_turns(const fv_suite *suite, int32_t item);

/* Item [0, n_item) of generated scenes. */
fv_status fv_suite_item(const fv_suite *suite, int32_t item, fv_item *out);

/* Limit of tokens in an answer to a turn of this task: more than twice those of the longest right
 * answer in a tokenizer of whole words; longer answers are wrong. */
int32_t fv_suite_max_tokens(int32_t task, bool rich);

#endif
