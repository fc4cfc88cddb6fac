/* Room at a worker, taken and given back: its member counts it, its breaker hears how it went. */
#include "router/place.h"

#include <stdio.h>

void fv_place_take(fv_place *x, fv_member *w, const fv_portion *of, double now_s) {
    *x = (fv_place){.worker = w, .of = *of, .taken_s = now_s};
    x->trial = fv_breaker_begin(&w->breaker);
    snprintf(x->name, sizeof x->name, "%s", w->intro->name);
    w->n_taken++;
    w->n_suspect += of->suspect;
    w->bytes_taken += of->bytes;
    w->pixels_taken += of->pixels;
}

void fv_place_wait(fv_place *x) {
    x->waits = true;
    x->worker->n_waiting++;
}

static void end_wait(fv_place *x) {
    if (x->waits) x->worker->n_waiting--;
    x->waits = false;
}

void fv_place_full(fv_place *x) {
    if (x->worker) x->worker->full = true;
}

void fv_place_resize(fv_place *x, uint64_t bytes) {
    if (!x->worker) return;
    end_wait(x);
    x->worker->bytes_taken += bytes - x->of.bytes;
    x->of.bytes = bytes;
}

void fv_place_queue(fv_place *x, uint64_t prompt) {
    fv_member *w = x->worker;
    x->prompt = prompt;
    w->prompt_taken += prompt;
    x->ahead = w->prompt_taken + (uint64_t)w->n_foreign * prompt;
}

void fv_place_prefilled(fv_place *x) {
    if (x->worker) x->worker->prompt_taken -= x->prompt;
    x->prompt = 0;
}

void fv_place_decoded(fv_place *x) {
    if (x->worker) x->worker->pixels_taken -= x->of.pixels;
    x->of.pixels = 0;
}

void fv_place_give(fv_place *x, fv_outcome outcome, double now_s) {
    fv_member *w = x->worker;
    if (!w) return;
    fv_place_prefilled(x);
    end_wait(x);
    fv_place_decoded(x);
    x->worker = NULL;
    w->n_taken--;
    w->n_suspect -= x->of.suspect;
    w->bytes_taken -= x->of.bytes;
    switch (outcome) {
    case FV_OUTCOME_WORKED: fv_breaker_worked(&w->breaker); break;
    case FV_OUTCOME_FAILED: fv_breaker_failed(&w->breaker, x->taken_s, now_s); break;
    case FV_OUTCOME_UNKNOWN: fv_breaker_unknown(&w->breaker, x->trial); break;
    }
}
