/* Keeps the list of tenants that have answers here, and applies the rule of shares.h. There are at most
 * as many tenants as answers, so the list is simply walked. */
#include "decode-worker/schedule/shares.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

fv_status fv_shares_enter(fv_shares *a, const char *name, double weight, fv_share **out) {
    fv_share **at = &a->first;
    while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
    if (!*at) {
        size_t n = strlen(name) + 1;
        fv_share *s = malloc(sizeof *s + n);
        if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for a tenant's share");
        *s = (fv_share){.served = a->now};
        memcpy(s->name, name, n);
        *at = s;
    }
    (*at)->weight = weight > 0 ? weight : 1;
    (*at)->n_answer++;
    *out = *at;
    return FV_OK;
}

void fv_shares_leave(fv_shares *a, fv_share *s) {
    if (--s->n_answer > 0) return;
    assert(s->n_running == 0 && s->n_waiting == 0);
    fv_share **at = &a->first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s);
}

void fv_share_charge(fv_share *s, int32_t rows) { s->served += rows / s->weight; }

void fv_shares_settle(fv_shares *a) {
    double least = INFINITY, most = a->now;
    for (const fv_share *s = a->first; s; s = s->next) {
        if (s->n_waiting > 0) least = fmin(least, s->served);
        most = fmax(most, s->served);
    }
    a->now = isinf(least) ? most : least;
    for (fv_share *s = a->first; s; s = s->next)
        if (s->n_waiting == 0) s->served = fmax(s->served, a->now - FV_SHARE_QUANTUM / s->weight);
}

static double due(const fv_share *s, int32_t slots) {
    return s->served + slots * (double)FV_SHARE_QUANTUM / s->weight;
}

fv_share *fv_shares_next(const fv_shares *a) {
    fv_share *best = NULL;
    for (fv_share *s = a->first; s; s = s->next)
        if (s->n_waiting > 0 &&
            (!best || due(s, s->n_running + 1) < due(best, best->n_running + 1)))
            best = s;
    return best;
}

bool fv_shares_swap(const fv_shares *a, fv_share **from, fv_share **to) {
    fv_share *waits = fv_shares_next(a), *most = NULL;
    if (!waits) return false;
    for (fv_share *s = a->first; s; s = s->next)
        if (s != waits && s->n_running > 0 &&
            (!most || due(s, s->n_running - 1) > due(most, most->n_running - 1)))
            most = s;
    if (!most || due(most, most->n_running - 1) < due(waits, waits->n_running + 1)) return false;
    *from = most;
    *to = waits;
    return true;
}

int32_t fv_shares_waiting(const fv_shares *a) {
    int32_t n = 0;
    for (const fv_share *s = a->first; s; s = s->next) n += s->n_waiting;
    return n;
}
