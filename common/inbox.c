/* The inbox: a list under a mutex. A lock-free list would not be faster: an event loop's doorbell
 * coalesces and orders nothing, so the list would need a full fence to be sure that a wake-up sees
 * the item. The mutex costs less than the wake-up that it protects. */
#include "common/inbox.h"

#include <time.h>

fv_status fv_inbox_init(fv_inbox *box, size_t limit, void (*ring)(void *user), void *user) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0) return FV_FAIL(FV_ENOMEM, "no memory for an inbox");
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* waits ignore clock changes */
    int err = pthread_cond_init(&box->filled, &attr);
    pthread_condattr_destroy(&attr);
    if (err != 0) return FV_FAIL(FV_ENOMEM, "no memory for an inbox");
    if (pthread_mutex_init(&box->mutex, NULL) != 0) {
        pthread_cond_destroy(&box->filled);
        return FV_FAIL(FV_ENOMEM, "no memory for an inbox");
    }
    box->head = NULL;
    box->tail = &box->head;
    box->n = 0;
    box->limit = limit;
    box->closed = false;
    box->ring = ring;
    box->user = user;
    return FV_OK;
}

void fv_inbox_fini(fv_inbox *box) {
    pthread_cond_destroy(&box->filled);
    pthread_mutex_destroy(&box->mutex);
}

static void wake_owner(fv_inbox *box) {
    if (box->ring)
        box->ring(box->user);
    else
        pthread_cond_signal(&box->filled);
}

fv_status fv_inbox_post(fv_inbox *box, fv_inbox_item *item) {
    pthread_mutex_lock(&box->mutex);
    bool closed = box->closed, full = box->limit && box->n == box->limit;
    bool first = box->head == NULL;
    if (!closed && !full) {
        item->next = NULL;
        *box->tail = item;
        box->tail = &item->next;
        box->n++;
    }
    pthread_mutex_unlock(&box->mutex);
    if (closed) return FV_FAIL(FV_ECANCELLED, "the receiving thread has stopped");
    if (full) return FV_FAIL(FV_EBUSY, "the queue is full: %zu items wait", box->limit);
    if (first) wake_owner(box); /* later items find the bell rung */
    return FV_OK;
}

void fv_inbox_close(fv_inbox *box) {
    pthread_mutex_lock(&box->mutex);
    bool wake = !box->closed && box->head == NULL;
    box->closed = true;
    pthread_mutex_unlock(&box->mutex);
    if (wake) wake_owner(box);
}

static fv_inbox_item *take_locked(fv_inbox *box, bool *closed) {
    fv_inbox_item *items = box->head;
    box->head = NULL;
    box->tail = &box->head;
    box->n = 0;
    if (closed) *closed = box->closed;
    return items;
}

fv_inbox_item *fv_inbox_take(fv_inbox *box, bool *closed) {
    pthread_mutex_lock(&box->mutex);
    fv_inbox_item *items = take_locked(box, closed);
    pthread_mutex_unlock(&box->mutex);
    return items;
}

static struct timespec seconds_from_now(double seconds) {
    enum { NS = 1000000000 };
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = (double)(time_t)seconds;
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((seconds - whole) * NS);
    if (t.tv_nsec >= NS) {
        t.tv_sec++;
        t.tv_nsec -= NS;
    }
    return t;
}

fv_inbox_item *fv_inbox_wait(fv_inbox *box, double seconds, bool *closed) {
    struct timespec until = {0};
    if (seconds >= 0) until = seconds_from_now(seconds);
    pthread_mutex_lock(&box->mutex);
    int err = 0;
    while (!box->head && !box->closed && err == 0)
        err = seconds < 0 ? pthread_cond_wait(&box->filled, &box->mutex)
                          : pthread_cond_timedwait(&box->filled, &box->mutex, &until);
    fv_inbox_item *items = take_locked(box, closed);
    pthread_mutex_unlock(&box->mutex);
    return items;
}
