/* Tasks alternate; the seed is the upper half of an item's index. */
#include "eval/suite/suite.h"

#include <string.h>

enum { INDEX_BITS = 20 };

/* Finds the task of this name. FV_EINVAL lists the known ones. */
static fv_status find_task(const char *name, fv_scene_task *out) {
    char known[160] = "";
    for (int32_t t = 0; t < FV_N_TASK; t++) {
        const char *is = fv_task_describe(t)->name;
        if (strcmp(is, name) == 0) {
            *out = (fv_scene_task)t;
            return FV_OK;
        }
        strncat(known, t ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, is, sizeof known - strlen(known) - 1);
    }
    return FV_FAIL(FV_EINVAL, "unknown task '%s'; available: %s", name, known);
}

fv_status fv_suite_make(const char *const *name, int32_t n_name, int32_t n_item, int32_t seed,
                        bool rich, fv_suite *out) {
    bool wanted[FV_N_TASK] = {false};
    fv_suite e = {.n_item = n_item, .seed = seed, .rich = rich};
    for (int32_t i = 0; i < n_name; i++) {
        fv_scene_task t;
        FV_TRY(find_task(name[i], &t));
        wanted[t] = true;
    }
    for (int32_t t = 0; t < FV_N_TASK; t++)
        if (wanted[t] || n_name == 0) e.task[e.n_task++] = t;
    if (n_item < e.n_task || n_item > FV_SUITE_ITEMS_MAX)
        return FV_FAIL(FV_EINVAL, "%d items: write %d (one for each task) to %d", n_item, e.n_task,
                       FV_SUITE_ITEMS_MAX);
    if (seed < 0 || seed > FV_SUITE_SEED_MAX)
        return FV_FAIL(FV_EINVAL, "seed %d: write 0 to %d", seed, FV_SUITE_SEED_MAX);
    *out = e;
    return FV_OK;
}

fv_suite fv_suite_of_benchmark(const fv_benchmark *b) {
    fv_suite e = {.n_item = b->n_item, .benchmark = b};
    bool used[FV_N_METRIC] = {false};
    for (int32_t i = 0; i < b->n_item; i++) used[b->item[i].metric] = true;
    for (int32_t m = 0; m < FV_N_METRIC; m++)
        if (used[m]) e.task[e.n_task++] = m;
    return e;
}

int32_t fv_suite_task_of(const fv_suite *e, int32_t item) {
    return e->benchmark ? (int32_t)e->benchmark->item[item].metric : e->task[item % e->n_task];
}

const char *fv_suite_task_name(const fv_suite *e, int32_t task) {
    return e->benchmark ? fv_metric_describe(task)->name : fv_task_describe(task)->name;
}

const char *fv_suite_measure(const fv_suite *e, int32_t task) {
    if (e->benchmark) return fv_metric_describe(task)->measure;
    if (task == FV_TASK_CAPTION) return "F1";
    return task == FV_TASK_DIALOG ? "accuracy of turns" : "accuracy";
}

double fv_suite_chance(const fv_suite *e, int32_t task) {
    if (!e->benchmark) return fv_task_describe(task)->chance;
    double sum = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_item; i++) {
        if (fv_suite_task_of(e, i) != task) continue;
        sum += fv_benchmark_chance(&e->benchmark->item[i]);
        n++;
    }
    return sum / n;
}

int32_t fv_suite_turns(const fv_suite *e, int32_t item) {
    return e->benchmark ? 1 : fv_task_turns((fv_scene_task)fv_suite_task_of(e, item), e->rich);
}

fv_status fv_suite_item(const fv_suite *e, int32_t item, fv_item *out) {
    uint64_t index = ((uint64_t)e->seed << INDEX_BITS) | (uint64_t)(item / e->n_task);
    const fv_scene_knobs rich = fv_scene_knobs_rich();
    return fv_item_make(FV_SPLIT_TEST, (fv_scene_task)fv_suite_task_of(e, item), index,
                        e->rich ? &rich : NULL, out);
}

int32_t fv_suite_max_tokens(int32_t t, bool rich) {
    return t != FV_TASK_CAPTION ? 32 : rich ? 640 : 320;
}
