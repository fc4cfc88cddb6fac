/* Chooses thresholds of prune=visipruner for a checkpoint, from the influence of image tokens on
 * the prompt's last row, measured twice: first with VisiPruner's masks and no filter, for the
 * cosine of the test and the norm of rows that stay; then with that filter, for the cosine of the
 * exit. */
#include <stdio.h>
#include <string.h>

#include "cli/calibrate/calibrate.h"
#include "eval/scenes/thresholds.h"

enum { EXIT_COUNT = 2 };

/* LLaVA-1.5's mean depths of filter and exit, layers 14 and 22.9 of 32, and the share of visual tokens
 * that its filter keeps, 10.3 of 576. */
static const double FILTER_DEPTH = 0.4375, EXIT_DEPTH = 0.7156, KEEP = 0.0179;

typedef struct seen {
    fv_arena arena;
    int32_t n_item, n_layer, item; /* item: the one being run */
    float *least;                  /* [n_item, n_layer] */
    float **l2;                    /* [n_item, n_layer] of [rows] */
    int32_t *rows;                 /* [n_item, n_layer] */
} seen;

static size_t at(const seen *s, int32_t item, int32_t layer) {
    return (size_t)item * (size_t)s->n_layer + (size_t)layer;
}

static fv_status open_seen(const fv_calibrate *c, seen *s) {
    size_t n = (size_t)c->n_item * (size_t)c->n_layer;
    *s = (seen){.n_item = c->n_item, .n_layer = c->n_layer, .item = -1};
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->least));
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->l2));
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->rows));
    for (size_t i = 0; i < n; i++) s->least[i] = FV_NOT_MEASURED;
    return FV_OK;
}

static fv_status on_prompt(void *user, const char *text, const fv_prompt *prompt) {
    (void)text;
    (void)prompt;
    ((seen *)user)->item++;
    return FV_OK;
}

static fv_status on_ablation(void *user, int32_t layer, const float *l2, const float *cos,
                             int32_t n) {
    seen *s = user;
    size_t i = at(s, s->item, layer);
    s->least[i] = 1;
    for (int32_t j = 0; j < n; j++)
        if (cos[j] < s->least[i]) s->least[i] = cos[j];
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->l2[i]));
    if (n > 0) memcpy(s->l2[i], l2, (size_t)n * sizeof *l2);
    s->rows[i] = n;
    return FV_OK;
}

/* Returns whether the network has layers after which the method can drop tokens. */
static fv_status has_layers(const fv_calibrate *c, bool *out) {
    fv_policy policy;
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = c->n_layer, .n_kv = 1, .n_visual = 1, .n_text = 1};
    FV_TRY(fv_policy_parse("prune=visipruner", &policy));
    FV_TRY(fv_plan_make(&policy, &shape, &plan));
    *out = plan.prune.n_edit > 0;
    return FV_OK;
}

static fv_status look(const fv_calibrate *c, const char *policy, const char *what, seen *s) {
    fv_ask_hooks hooks = {.user = s, .prompt = on_prompt, .ablation = on_ablation};
    FV_TRY(open_seen(c, s));
    return fv_calibrate_run_items(c, policy, &hooks, what);
}

/* ---- the filter -------------------------------------------------------------------------- */

typedef struct found {
    double cos, l2, exit_cos;
    double filter, exit, kept, rows; /* means: layers, rows that stay, and all rows */
} found;

static fv_status choose_l2(seen *s, found *f) {
    size_t n = 0, items = 0;
    float *all;
    for (int32_t i = 0; i < s->n_item; i++) {
        int32_t l = fv_filter_layer(s->least + at(s, i, 0), s->n_layer, f->cos);
        n += l < s->n_layer ? (size_t)s->rows[at(s, i, l)] : 0;
    }
    FV_TRY(FV_ARENA_NEW(&s->arena, n, all));
    n = 0;
    for (int32_t i = 0; i < s->n_item; i++) {
        int32_t l = fv_filter_layer(s->least + at(s, i, 0), s->n_layer, f->cos);
        if (l == s->n_layer) continue;
        memcpy(all + n, s->l2[at(s, i, l)], (size_t)s->rows[at(s, i, l)] * sizeof *all);
        n += (size_t)s->rows[at(s, i, l)];
        items++;
    }
    FV_TRY(fv_kept_l2(all, n, KEEP, &f->l2));
    f->rows = (double)n / (double)items;
    return FV_OK;
}

static fv_status choose_filter(const fv_calibrate *c, seen *s, found *f) {
    FV_TRY(look(c, "prune=visipruner,cos=-1,l2=0,exit_cos=1,exit_count=255", "influence", s));
    FV_TRY(fv_filter_cos(s->least, s->n_item, s->n_layer, FILTER_DEPTH * s->n_layer, &f->cos,
                         &f->filter));
    return choose_l2(s, f);
}

/* ---- the exit ---------------------------------------------------------------------------- */

/* Ignores layers up to the filter. An item without remaining rows has none to measure. */
static void after_filter(const seen *first, seen *s, found *f) {
    int32_t items = 0, kept = 0;
    for (int32_t i = 0; i < s->n_item; i++) {
        int32_t l = fv_filter_layer(first->least + at(s, i, 0), s->n_layer, f->cos);
        for (int32_t k = 0; k < s->n_layer && k <= l; k++) s->least[at(s, i, k)] = FV_NOT_MEASURED;
        if (l == s->n_layer) continue;
        int32_t stay = 0;
        for (int32_t j = 0; j < first->rows[at(s, i, l)]; j++)
            stay += (double)first->l2[at(s, i, l)][j] > f->l2;
        for (int32_t k = l + 1; k < s->n_layer && stay == 0; k++) s->least[at(s, i, k)] = 1;
        kept += stay;
        items++;
    }
    f->kept = items ? (double)kept / items : 0;
}

static fv_status choose_exit(const fv_calibrate *c, const seen *first, found *f) {
    char policy[200];
    seen s = {0};
    fv_status st;
    snprintf(policy, sizeof policy, "prune=visipruner,cos=%.17g,l2=%.17g,exit_cos=1,exit_count=255",
             f->cos, f->l2);
    FV_TRY_GOTO(look(c, policy, "what stays", &s), st, out);
    after_filter(first, &s, f);
    st = fv_exit_cos(s.least, s.n_item, s.n_layer, EXIT_COUNT, EXIT_DEPTH * s.n_layer, &f->exit_cos,
                     &f->exit);
out:
    fv_arena_fini(&s.arena);
    return st;
}

/* ---- results ----------------------------------------------------------------------------- */

static fv_status write_found(const fv_calibrate *c, const found *f) {
    json_t *json =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "cos", f->cos, "l2", f->l2,
                  "exit_cos", f->exit_cos, "filter_layer", f->filter, "exit_layer", f->exit,
                  "visual_tokens_kept", f->kept, "visual_tokens", f->rows, "items", c->n_item);
    return fv_calibrate_write(c, "visipruner", json);
}

fv_status fv_calibrate_visipruner(const fv_calibrate *c) {
    seen s = {0};
    found f = {0};
    fv_status st;
    bool deep;
    FV_TRY(has_layers(c, &deep));
    if (!deep) {
        printf("prune=visipruner: no layer to decide in, so nothing to calibrate\n");
        return FV_OK;
    }
    FV_TRY_GOTO(choose_filter(c, &s, &f), st, out);
    FV_TRY_GOTO(choose_exit(c, &s, &f), st, out);
    st = write_found(c, &f);
    if (st == FV_OK)
        printf("prune=visipruner: cos %.6g, l2 %.4g, exit_cos %.6g; on these images filtered after "
               "layer %.1f of 0..%d, %.1f of %.0f tokens kept, all dropped after layer %.1f\n",
               f.cos, f.l2, f.exit_cos, f.filter, c->n_layer - 1, f.kept, f.rows, f.exit);
out:
    fv_arena_fini(&s.arena);
    return st;
}
