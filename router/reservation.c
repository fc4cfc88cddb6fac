/* Reserves and releases room at a worker: its registry entry counts it, its breaker gets the outcome. */
#include "router/reservation.h"

#include <stdio.h>

void fv_reservation_take(fv_reservation *x, fv_registered_worker *w, const fv_worker_need *need,
                         double now_s) {
    *x = (fv_reservation){.worker = w, .need = *need, .taken_s = now_s};
    x->trial = fv_breaker_begin(&w->breaker);
    snprintf(x->name, sizeof x->name, "%s", w->intro->name);
    w->n_taken++;
    w->n_suspect += need->suspect;
    w->bytes_taken += need->bytes;
    w->pixels_taken += need->pixels;
}

void fv_reservation_mark_waiting(fv_reservation *x) {
    x->waits = true;
    x->worker->n_waiting++;
}

static void end_wait(fv_reservation *x) {
    if (x->waits) x->worker->n_waiting--;
    x->waits = false;
}

void fv_reservation_mark_full(fv_reservation *x) {
    if (x->worker) x->worker->out_of_memory = true;
}

void fv_reservation_resize(fv_reservation *x, uint64_t bytes) {
    if (!x->worker) return;
    end_wait(x);
    x->worker->bytes_taken += bytes - x->need.bytes;
    x->need.bytes = bytes;
}

void fv_reservation_queue_prompt(fv_reservation *x, uint64_t prompt) {
    fv_registered_worker *w = x->worker;
    x->prompt = prompt;
    w->prompt_taken += prompt;
    w->n_prompt++;
    x->n_ahead = w->n_prompt + w->n_foreign;
    x->prompt_ahead = w->prompt_taken + (uint64_t)w->n_foreign * prompt;
    x->pixels_ahead = x->need.pixels ? w->pixels_taken : 0;
}

void fv_reservation_prompt_done(fv_reservation *x) {
    if (x->worker && x->prompt) {
        x->worker->prompt_taken -= x->prompt;
        x->worker->n_prompt--;
    }
    x->prompt = 0;
}

void fv_reservation_images_decoded(fv_reservation *x) {
    if (x->worker) x->worker->pixels_taken -= x->need.pixels;
    x->need.pixels = 0;
}

void fv_reservation_give(fv_reservation *x, fv_outcome outcome, double now_s) {
    fv_registered_worker *w = x->worker;
    if (!w) return;
    fv_reservation_prompt_done(x);
    end_wait(x);
    fv_reservation_images_decoded(x);
    x->worker = NULL;
    w->n_taken--;
    w->n_suspect -= x->need.suspect;
    w->bytes_taken -= x->need.bytes;
    switch (outcome) {
    case FV_OUTCOME_WORKED: fv_breaker_worked(&w->breaker); break;
    case FV_OUTCOME_FAILED: fv_breaker_failed(&w->breaker, x->taken_s, now_s); break;
    case FV_OUTCOME_UNKNOWN: fv_breaker_unknown(&w->breaker, x->trial); break;
    }
}
