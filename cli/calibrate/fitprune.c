/* Fits schedules of prune=fitprune for a checkpoint, one for each possible target, to the maximum
 * attention that visual tokens receive in a run that drops none (eval/scenes/fit.h). */
#include <stdio.h>
#include <string.h>

#include "cli/calibrate/calibrate.h"
#include "eval/scenes/fit.h"
#include "model/calibration.h"

static const int32_t targets[] = {40, 50, 60, 70, 80, 90};
enum { N_TARGET = sizeof targets / sizeof targets[0] };
_Static_assert((int)N_TARGET <= (int)FV_SCHEDULES, "the written file must be readable");

typedef struct seen {
    fv_arena arena;
    int32_t n_layer, item; /* item: the one being run */
    fv_fit_prompt *prompt; /* [n_item] */
    float **x, **y;        /* [n_item] of [n_layer, n] */
} seen;

static fv_status on_prompt(void *user, const char *text, const fv_prompt *prompt) {
    seen *s = user;
    int32_t b = ++s->item, n = prompt->n_visual;
    (void)text;
    FV_TRY(FV_ARENA_NEW(&s->arena, (size_t)s->n_layer * (size_t)n, s->x[b]));
    FV_TRY(FV_ARENA_NEW(&s->arena, (size_t)s->n_layer * (size_t)n, s->y[b]));
    s->prompt[b] = (fv_fit_prompt){.n = n, .x = s->x[b], .y = s->y[b]};
    return FV_OK;
}

static fv_status on_head_max(void *user, int32_t layer, const float *text, const float *visual,
                             int32_t n) {
    seen *s = user;
    size_t at = (size_t)layer * (size_t)n, bytes = (size_t)n * sizeof(float);
    if (n == 0) return FV_OK;
    memcpy(s->x[s->item] + at, text, bytes);
    memcpy(s->y[s->item] + at, visual, bytes);
    return FV_OK;
}

static fv_fit_work work_of(const fv_text_config *c) {
    double q = (double)c->n_head * c->d_head, kv = (double)c->n_kv * c->d_head, d = c->d_model;
    return (fv_fit_work){.row_in = d * (q + 2 * kv),
                         .pair = 2 * q,
                         .row_out = q * d + 3 * d * (double)fv_text_ffn_width(c, c->n_layer - 1)};
}

static json_t *to_json(const fv_fitted *f, int32_t n_layer) {
    json_t *leave = json_array();
    for (int32_t l = 0; l < n_layer; l++)
        json_array_append_new(leave, json_integer(f->schedule.leave[l]));
    return json_pack("{s:i, s:f, s:f, s:o}", "target", (int)f->schedule.target, "alpha", f->alpha,
                     "saved", f->saved, "leave", leave);
}

static fv_status write_found(const fv_calibrate *c, const fv_fitted fitted[N_TARGET]) {
    json_t *list = json_array();
    for (int i = 0; i < N_TARGET; i++) json_array_append_new(list, to_json(&fitted[i], c->n_layer));
    json_t *json = json_pack("{s:i, s:o}", "items", (int)c->n_item, "schedules", list);
    return fv_calibrate_write(c, "fitprune", json);
}

static void print_found(const fv_calibrate *c, const fv_fitted *f) {
    printf("prune=fitprune,target=%d: of 576 tokens, dropped after each layer:",
           f->schedule.target);
    for (int32_t l = 0; l < c->n_layer; l++) printf("%c%d", l ? '/' : ' ', f->schedule.leave[l]);
    printf(" (budget %.3f)\n", f->alpha);
}

static fv_status look(const fv_calibrate *c, seen *s) {
    fv_ask_hooks hooks = {.user = s, .prompt = on_prompt, .head_max = on_head_max};
    *s = (seen){.n_layer = c->n_layer, .item = -1};
    FV_TRY(FV_ARENA_NEW(&s->arena, c->n_item, s->prompt));
    FV_TRY(FV_ARENA_NEW(&s->arena, c->n_item, s->x));
    FV_TRY(FV_ARENA_NEW(&s->arena, c->n_item, s->y));
    return fv_calibrate_run_items(c, "", &hooks, "peaks");
}

fv_status fv_calibrate_fitprune(const fv_calibrate *c) {
    fv_fit_work work = work_of(&fv_local_config(c->local)->text);
    fv_fitted fitted[N_TARGET];
    seen s;
    fv_status st;
    FV_TRY_GOTO(look(c, &s), st, out);
    for (int i = 0; i < N_TARGET; i++)
        FV_TRY_GOTO(fv_fit(s.prompt, c->n_item, c->n_layer, &work, targets[i], &fitted[i]), st,
                    out);
    st = write_found(c, fitted);
    for (int i = 0; i < N_TARGET && st == FV_OK; i++) print_found(c, &fitted[i]);
out:
    fv_arena_fini(&s.arena);
    return st;
}
