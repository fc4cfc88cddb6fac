/* Finds the budget by bisection. Each try walks the layers once with all prompts together, because
 * they have one common target. */
#include "eval/scenes/fit.h"

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/top.h"

enum { HALVINGS = 7 };

typedef struct fit {
    const fv_fit_prompt *prompt;
    int32_t n, n_layer;
    const fv_fit_work *work;
    double all;      /* the work of all rows in all layers */
    uint8_t **gone;  /* [n] [rows] dropped rows of each prompt */
    int32_t *left;   /* [n] remaining rows */
    int32_t **order; /* [2] by x and by y, [most rows] */
    float *score;    /* [most rows] */
    uint8_t *may;    /* [most rows] 2: the row may be dropped by x and by y */
} fit;

static double work_of(const fv_fit_work *w, double n, double left) {
    return n * w->row_in + n * n * w->pair + left * w->row_out;
}

/* Increments may[] for the longest prefix of rows, in ascending order of mass, that keeps the
 * dropped share of the layer's mass within alpha. */
static fv_status mark(fit *f, int32_t b, const float *mass, double alpha, int32_t *order) {
    int32_t n = f->prompt[b].n;
    double sum = 0, gone = 0;
    for (int32_t j = 0; j < n; j++) {
        sum += (double)mass[j];
        gone += f->gone[b][j] ? (double)mass[j] : 0;
        f->score[j] = -mass[j];
    }
    FV_TRY(fv_top_sort(f->score, n, order));
    for (int32_t i = 0; i < n; i++) {
        int32_t j = order[i];
        if (f->gone[b][j]) continue;
        gone += (double)mass[j];
        if (gone > alpha * sum * (1 + 1e-9)) break;
        f->may[j]++;
    }
    return FV_OK;
}

/* Drops a prompt's tokens after a layer; *leave is their number. */
static fv_status let_go(fit *f, int32_t b, int32_t layer, double alpha, int32_t *leave) {
    const fv_fit_prompt *p = &f->prompt[b];
    *leave = 0;
    memset(f->may, 0, (size_t)p->n);
    FV_TRY(mark(f, b, p->x + (ptrdiff_t)layer * p->n, alpha, f->order[0]));
    FV_TRY(mark(f, b, p->y + (ptrdiff_t)layer * p->n, alpha, f->order[1]));
    for (int32_t j = 0; j < p->n; j++) {
        if (f->may[j] < 2) continue;
        f->gone[b][j] = 1;
        (*leave)++;
    }
    return FV_OK;
}

/* Work of all prompts if layers below `layer` cost `done` and no more rows are dropped. */
static double forecast(const fit *f, int32_t layer, double done) {
    for (int32_t b = 0; b < f->n; b++)
        done += (f->n_layer - layer) * work_of(f->work, f->left[b], f->left[b]);
    return done;
}

/* Tries a budget: mean[l] of FV_SCHEDULE_OF tokens are dropped after layer l; *work is the
 * remaining work. */
static fv_status try_budget(fit *f, double alpha, double goal, double *mean, double *work) {
    int32_t with = 0;
    double done = 0;
    for (int32_t b = 0; b < f->n; b++) {
        f->left[b] = f->prompt[b].n;
        with += f->prompt[b].n > 0;
        memset(f->gone[b], 0, (size_t)f->prompt[b].n);
    }
    for (int32_t l = 0; l < f->n_layer; l++) {
        bool enough = forecast(f, l, done) <= goal;
        mean[l] = 0;
        for (int32_t b = 0; b < f->n; b++) {
            int32_t n = f->left[b], leave = 0;
            if (!enough && n > 0) FV_TRY(let_go(f, b, l, alpha, &leave));
            f->left[b] = n - leave;
            done += work_of(f->work, n, f->left[b]);
            if (n > 0) mean[l] += (double)leave * FV_SCHEDULE_OF / f->prompt[b].n / with;
        }
    }
    *work = done;
    return FV_OK;
}

static fv_status open_fit(fit *f, fv_arena *arena) {
    int32_t most = 0;
    FV_TRY(FV_ARENA_NEW(arena, f->n, f->gone));
    FV_TRY(FV_ARENA_NEW(arena, f->n, f->left));
    FV_TRY(FV_ARENA_NEW(arena, 2, f->order));
    for (int32_t b = 0; b < f->n; b++) {
        int32_t n = f->prompt[b].n;
        FV_TRY(FV_ARENA_NEW(arena, n, f->gone[b]));
        f->all += f->n_layer * work_of(f->work, n, n);
        most = n > most ? n : most;
    }
    if (most == 0) return FV_FAIL(FV_EDATA, "none of %d prompts has a visual token", f->n);
    for (int k = 0; k < 2; k++) FV_TRY(FV_ARENA_NEW(arena, most, f->order[k]));
    FV_TRY(FV_ARENA_NEW(arena, most, f->score));
    return FV_ARENA_NEW(arena, most, f->may);
}

/* A budget of 1 drops everything after the first layer: if that does not reach the target, nothing
 * does. */
static fv_status search(fit *f, int32_t target, fv_arena *arena, fv_fitted *out) {
    double goal = f->all * (1 - target / 100.0) * (1 + 1e-12), least = 0, most = 1, work, *mean;
    FV_TRY(FV_ARENA_NEW(arena, f->n_layer, mean));
    for (int i = 0; i < HALVINGS; i++) {
        double alpha = (least + most) / 2;
        FV_TRY(try_budget(f, alpha, goal, mean, &work));
        *(work <= goal ? &most : &least) = alpha;
    }
    FV_TRY(try_budget(f, most, goal, mean, &work));
    *out = (fv_fitted){.schedule = {.target = target}, .alpha = most, .saved = 1 - work / f->all};
    for (int32_t l = 0; l < f->n_layer; l++) out->schedule.leave[l] = (int32_t)(mean[l] + 1e-9);
    return FV_OK;
}

fv_status fv_fit(const fv_fit_prompt *prompt, int32_t n, int32_t n_layer, const fv_fit_work *work,
                 int32_t target, fv_fitted *out) {
    fv_arena arena = {0};
    fit f = {.prompt = prompt, .n = n, .n_layer = n_layer, .work = work};
    fv_status st = open_fit(&f, &arena);
    if (st == FV_OK) st = search(&f, target, &arena, out);
    fv_arena_fini(&arena);
    return st;
}
