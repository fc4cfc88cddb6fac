#ifndef FOVEA_EVAL_SUITE_RESULTS_H
#define FOVEA_EVAL_SUITE_RESULTS_H

/* RESULTS: scores -> quality and cost of each policy.
 *
 * Groups are the tasks (in a benchmark the metrics), then "two-hop" (the tasks in which an object
 * must be found before its attribute can be read) and "all". A group's value is the mean score of
 * its items: accuracy, F1 for captions, the share of right turns for dialogs. A pure function of
 * the available scores. */
#include "eval/scenes/score.h"
#include "eval/suite/results_log.h"

enum { FV_GROUPS_MAX = FV_N_TASK + 2 };

typedef struct fv_group {
    const char *name;
    bool one_task;       /* the group is a single task: */
    int32_t task;        /* its index */
    double chance;       /* score of the best constant answer; for several tasks their mean */
    bool has[FV_N_TASK]; /* the tasks in it */
} fv_group;

/* Mean and quantiles of measurements; n = 0: none, and the others are 0. */
typedef struct fv_spread {
    int32_t n;
    double mean, p10, p50, p90;
} fv_spread;

typedef struct fv_group_result {
    int32_t n;         /* items */
    fv_interval score; /* fv_interval_wilson */
    fv_interval less;  /* difference to the first policy's score on the same items */
    double bytes_exact, bytes_visual, bytes_visual_end, bytes_sent; /* means per item */
} fv_group_result;

typedef struct fv_policy_result {
    fv_group_result group[FV_GROUPS_MAX];
    fv_spread ttft_s, tpot_s; /* over all items */
    const char *note;         /* why a stage did nothing, from the first item with such a note; or
                               * NULL */
    int32_t n_note;           /* items with a note */
} fv_policy_result;

typedef struct fv_results {
    const fv_results_log *results_log; /* borrowed */
    int32_t n_group;
    fv_group group[FV_GROUPS_MAX];
    fv_policy_result *policy; /* [n_policy] owned */
} fv_results;

fv_status fv_results_make(const fv_results_log *results_log, fv_results *out);
void fv_results_free(fv_results *r);

/* The results as in results.json (eval/README.md); NULL: out of memory. */
json_t *fv_results_json(const fv_results *r);

#endif
