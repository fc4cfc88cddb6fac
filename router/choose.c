/* The choice of workers: filter by room, draw two, compare. No state but the random number. */
#include "router/choose.h"

#define READY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY
#define DECODE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE

uint64_t fv_member_bytes_used(const fv_member *w) {
    uint64_t said = w->load.bytes_granted + w->load.bytes_held;
    return said > w->bytes_taken ? said : w->bytes_taken;
}

static bool has_room(const fv_member *w, uint64_t bytes) {
    if (w->role != DECODE) return w->n_taken < FV_PREFILL_MAX;
    uint64_t used = fv_member_bytes_used(w), capacity = w->load.bytes_capacity;
    return capacity == 0 || used == 0 || (used <= capacity && bytes <= capacity - used);
}

/* Part of its KV that would be taken; workers that do not say how much they have are all alike. */
static double fullness(const fv_member *w, uint64_t bytes) {
    if (w->role != DECODE || w->load.bytes_capacity == 0) return 0;
    return ((double)fv_member_bytes_used(w) + (double)bytes) / (double)w->load.bytes_capacity;
}

static fv_member *better(fv_member *a, fv_member *b, uint64_t bytes) {
    double fa = fullness(a, bytes), fb = fullness(b, bytes);
    if (fa != fb) return fa < fb ? a : b;
    return b->n_taken < a->n_taken ? b : a;
}

/* xorshift64 (Marsaglia 2003); the state is never 0. */
static uint64_t draw(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static fv_member *eligible(fv_member *w, Fovea__Inference__V1__Role role, uint64_t bytes) {
    while (w && !(w->state == READY && w->role == role && has_room(w, bytes))) w = w->next;
    return w;
}

fv_member *fv_choose(const fv_members *m, Fovea__Inference__V1__Role role, uint64_t bytes,
                     uint64_t *random) {
    uint64_t n = 0;
    for (fv_member *w = eligible(fv_members_first(m), role, bytes); w;
         w = eligible(w->next, role, bytes))
        n++;
    if (n == 0) return NULL;
    uint64_t i = draw(random) % n, j = n > 1 ? draw(random) % (n - 1) : 0;
    if (n > 1 && j >= i) j++; /* two different ones */
    fv_member *a = NULL, *b = NULL;
    uint64_t at = 0;
    for (fv_member *w = eligible(fv_members_first(m), role, bytes); w;
         w = eligible(w->next, role, bytes), at++) {
        if (at == i) a = w;
        if (at == j) b = w;
    }
    return better(a, b, bytes);
}
