/* A table of slots under a mutex. The mutex is held only for a copy, so a thread that hangs in its
 * work does not hold it. Steps do not lock it. */
#include "common/pulse.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct place {
    char id[FV_PULSE_ID_MAX + 1]; /* "": free */
    uint64_t (*shared)(const void *user);
    const void *user;
    atomic_ullong
        steps; /* never reset: the next request in this slot must not look like the last one */
} place;

struct fv_pulse {
    pthread_mutex_t mutex;
    int32_t n; /* slots ever used: the first n */
    place place[FV_PULSE_MAX];
};

fv_status fv_pulse_open(fv_pulse **out) {
    fv_pulse *p = calloc(1, sizeof *p);
    if (!p || pthread_mutex_init(&p->mutex, NULL) != 0) {
        free(p);
        return FV_FAIL(FV_ENOMEM, "out of memory to follow requests");
    }
    *out = p;
    return FV_OK;
}

void fv_pulse_close(fv_pulse *p) {
    if (!p) return;
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

void fv_pulse_step(fv_pulse *p, int32_t i) {
    if (i > 0) atomic_fetch_add_explicit(&p->place[i - 1].steps, 1, memory_order_relaxed);
}

int32_t fv_pulse_begin(fv_pulse *p, const char *id, uint64_t (*shared)(const void *user),
                       const void *user) {
    int32_t i = 0;
    pthread_mutex_lock(&p->mutex);
    while (i < FV_PULSE_MAX && p->place[i].id[0]) i++;
    if (i < FV_PULSE_MAX) {
        place *x = &p->place[i];
        snprintf(x->id, sizeof x->id, "%s", *id ? id : "?");
        x->shared = shared;
        x->user = user;
        if (i >= p->n) p->n = i + 1;
    }
    pthread_mutex_unlock(&p->mutex);
    if (i == FV_PULSE_MAX) return 0;
    fv_pulse_step(p, i + 1);
    return i + 1;
}

void fv_pulse_end(fv_pulse *p, int32_t i) {
    if (i == 0) return;
    pthread_mutex_lock(&p->mutex);
    p->place[i - 1].id[0] = '\0';
    pthread_mutex_unlock(&p->mutex);
}

int32_t fv_pulse_read(fv_pulse *p, fv_pulse_item *out) {
    int32_t n = 0;
    pthread_mutex_lock(&p->mutex);
    for (int32_t i = 0; i < p->n; i++) {
        place *x = &p->place[i];
        if (!x->id[0]) continue;
        snprintf(out[n].id, sizeof out[n].id, "%s", x->id);
        out[n].count = atomic_load_explicit(&x->steps, memory_order_relaxed);
        if (x->shared) out[n].count += x->shared(x->user);
        n++;
    }
    pthread_mutex_unlock(&p->mutex);
    return n;
}
