/* Fork and join for the CPU backend.
 *
 * One 64-bit word is the state of the current loop:
 *
 *     state = generation << 17 | open << 16 | threads inside
 *
 *     caller: store (generation + 1, open, 0) --> works --> clears open --> waits for inside = 0
 *     worker: sees open and a new generation --> CAS inside + 1 --> works --> inside - 1
 *
 * The job's fields are written before the first store and read after the CAS; they change only
 * when `open` is clear and `inside` is 0, so no worker can see half a job. A worker that comes
 * after `open` was cleared stays outside: on a busy machine a sleeping worker costs nothing.
 *
 * Waiting spins for a moment, because the next loop of a forward pass follows within
 * microseconds, and then sleeps on a condition variable, because an idle server must not burn
 * a core. */
#include "kernels/cpu/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/limits.h"

/* With more threads than MAX_SHARES several use the same share: a thread without work polls every share, so there
 * must be few. */
enum { MAX_THREADS = 256, MAX_SHARES = 16 };

/* About 40 us on Sapphire Rapids (one pause = 45 ns): longer than the single-threaded steps
 * between two loops of a decode pass, shorter than the scheduler's notice. */
enum { SPINS = 1000 };

static const uint64_t INSIDE = 0xffff, OPEN = 1 << 16, GENERATION = 1 << 17;

typedef struct worker {
    fv_threads *pool;
    pthread_t id;
    int thread;
} worker;

/* A run of consecutive chunks. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next; /* first index not handed out */
    int64_t end;
} share;

struct fv_threads {
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) int64_t n_item;
    int64_t grain;
    fv_threads_fn fn;
    void *arg;

    atomic_bool stop;
    _Atomic int sleepers; /* workers in `work`, or about to be */
    atomic_bool joining;  /* the caller is in `done`, or about to be */
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    int n_worker, n_share;
    share shares[MAX_SHARES];
    worker workers[];
};

static void pause_cpu(void) { __builtin_ia32_pause(); }

/* Works on the thread's own share, then on what is left of the others. */
static void work(fv_threads *t, int thread) {
    const int own = thread * t->n_share / (t->n_worker + 1);
    for (int i = 0; i < t->n_share; i++) {
        share *of = &t->shares[(own + i) % t->n_share];
        while (atomic_load_explicit(&of->next, memory_order_relaxed) < of->end) {
            int64_t begin = atomic_fetch_add_explicit(&of->next, t->grain, memory_order_relaxed);
            if (begin >= of->end) break;
            int64_t end = of->end - begin < t->grain ? of->end : begin + t->grain;
            t->fn(t->arg, thread, begin, end);
        }
    }
}

/* Cuts the loop into shares of whole chunks. */
static void share_out(fv_threads *t) {
    const int64_t chunks = (t->n_item + t->grain - 1) / t->grain;
    int64_t begin = 0;
    for (int i = 0; i < t->n_share; i++) {
        int64_t end = chunks * (i + 1) / t->n_share * t->grain;
        atomic_store_explicit(&t->shares[i].next, begin, memory_order_relaxed);
        t->shares[i].end = begin = end < t->n_item ? end : t->n_item;
    }
}

/* ---- worker ---------------------------------------------------------------------------- */

static bool has_news(fv_threads *t, uint64_t seen) {
    uint64_t s = atomic_load(&t->state);
    return ((s & OPEN) && s / GENERATION != seen) || atomic_load(&t->stop);
}

static void wait_for_news(fv_threads *t, uint64_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (has_news(t, seen)) return;
        pause_cpu();
    }
    /* `sleepers` before the last look at `state`; the caller does it the other way round, so
     * one of the two sees the other (both sequentially consistent). */
    pthread_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->sleepers, 1);
    while (!has_news(t, seen)) pthread_cond_wait(&t->work, &t->mutex);
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&t->mutex);
}

static void *worker_main(void *arg) {
    worker *w = arg;
    fv_threads *t = w->pool;
    uint64_t seen = 0;
    for (;;) {
        wait_for_news(t, seen);
        if (atomic_load(&t->stop)) return NULL;
        uint64_t s = atomic_load(&t->state);
        if (!(s & OPEN)) continue; /* it closed in between */
        if (!atomic_compare_exchange_weak(&t->state, &s, s + 1)) continue;
        seen = s / GENERATION;
        work(t, w->thread);
        s = atomic_fetch_sub(&t->state, 1) - 1;
        if ((s & (OPEN | INSIDE)) == 0 && atomic_load(&t->joining)) {
            pthread_mutex_lock(&t->mutex);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->mutex);
        }
    }
}

/* ---- caller ---------------------------------------------------------------------------- */

static bool is_drained(fv_threads *t) { return (atomic_load(&t->state) & INSIDE) == 0; }

static void join(fv_threads *t) {
    atomic_fetch_and(&t->state, ~OPEN);
    for (int i = 0; i < SPINS; i++) {
        if (is_drained(t)) return;
        pause_cpu();
    }
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->joining, true);
    while (!is_drained(t)) pthread_cond_wait(&t->done, &t->mutex);
    atomic_store(&t->joining, false);
    pthread_mutex_unlock(&t->mutex);
}

void fv_threads_for(fv_threads *t, int64_t n, int64_t grain, fv_threads_fn fn, void *arg) {
    if (n <= 0) return;
    if (n <= grain || t->n_worker == 0) {
        fn(arg, 0, 0, n);
        return;
    }
    t->n_item = n;
    t->grain = grain;
    t->fn = fn;
    t->arg = arg;
    share_out(t);
    uint64_t generation = atomic_load_explicit(&t->state, memory_order_relaxed) / GENERATION;
    atomic_store(&t->state, (generation + 1) * GENERATION | OPEN);
    if (atomic_load(&t->sleepers) > 0) {
        pthread_mutex_lock(&t->mutex);
        pthread_cond_broadcast(&t->work);
        pthread_mutex_unlock(&t->mutex);
    }
    work(t, 0);
    join(t);
}

/* ---- life ------------------------------------------------------------------------------ */

fv_status fv_threads_open(int n, fv_threads **out) {
    if (n < 0 || n > MAX_THREADS)
        return FV_FAIL(FV_EINVAL, "%d threads: give 1..%d, or 0 for all cores", n, MAX_THREADS);
    if (n == 0) n = fv_core_limit();
    if (n > MAX_THREADS) n = MAX_THREADS;
    size_t bytes = sizeof(fv_threads) + (size_t)n * sizeof(worker);
    fv_threads *t = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for %d threads", n);
    *t = (fv_threads){.n_share = n < MAX_SHARES ? n : MAX_SHARES};
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    for (int i = 1; i < n; i++) {
        worker *w = &t->workers[i - 1];
        *w = (worker){.pool = t, .thread = i};
        if (pthread_create(&w->id, NULL, worker_main, w) != 0) {
            fv_threads_close(t);
            return FV_FAIL(FV_ENOMEM, "cannot create %d threads", n);
        }
        t->n_worker = i;
    }
    *out = t;
    return FV_OK;
}

void fv_threads_close(fv_threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->stop, true);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->mutex);
    for (int i = 0; i < t->n_worker; i++) pthread_join(t->workers[i].id, NULL);
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

int fv_threads_count(const fv_threads *t) { return t->n_worker + 1; }
