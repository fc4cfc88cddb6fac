/* Reserves and releases room at a worker: its registry entry counts it, its breaker gets the outcome. */
#include "router/reservation.h"

#include <stdio.h>

void fv_reservation_take(fv_reservation *x, fv_registered_worker *w, const fv_portion *of,
                         double now_s) {
    *x = (fv_reservation){.worker = w, .of = *of, .taken_s = now_s};
    x->trial = fv_breaker_begin(&w->breaker);
    snprintf(x->name, sizeof x->name, "%s", w->intro->name);
    w->n_taken++;
    w->n_suspect += of->suspect;
    w->bytes_taken += of->bytes;
    w->pixels_taken += of->pixels;
}

void fv_reservation_wait(fv_reservation *x) {
    x->waits = true;
    x->worker->n_waiting++;
}

static void end_wait(fv_reservation *x) {
    if (x->waits) x->worker->n_waiting--;
    x->waits = false;
}

void fv_reservation_full(fv_reservation *x) {
    if (x->worker) x->worker->full = true;
}

void fv_reservation_resize(fv_reservation *x, uint64_t bytes) {
    if (!x->worker) return;
    end_wait(x);
    x->worker->bytes_taken += bytes - x->of.bytes;
    x->of.bytes = bytes;
}

void fv_reservation_queue(fv_reservation *x, uint64_t prompt) {
    fv_registered_worker *w = x->worker;
    x->prompt = prompt;
    w->prompt_taken += prompt;
    x->ahead = w->prompt_taken + (uint64_t)w->n_foreign * prompt;
    x->pixels_ahead = x->of.pixels ? w->pixels_taken : 0;
}

void fv_reservation_prefilled(fv_reservation *x) {
    if (x->worker) x->worker->prompt_taken -= x->prompt;
    x->prompt = 0;
}

void fv_reservation_decoded(fv_reservation *x) {
    if (x->worker) x->worker->pixels_taken -= x->of.pixels;
    x->of.pixels = 0;
}

void fv_reservation_give(fv_reservation *x, fv_outcome outcome, double now_s) {
    fv_registered_worker *w = x->worker;
    if (!w) return;
    fv_reservation_prefilled(x);
    end_wait(x);
    fv_reservation_decoded(x);
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
