/* Sums a GPU's time by kernel: records an event on either side of each launch, product and copy, and adds
 * the time between the two to its name. Steps do not become graphs during a trace, so every launch is
 * seen; the host's time between launches is not counted.
 *
 * Events are read in groups, which waits for the device: a traced run is slower as a whole, but the
 * kernels' own times are right. */
#include "kernels/cuda/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "kernels/cuda/cuda.h"

enum { NAMES = 128, PENDING = 512 };

typedef struct total {
    const char *name;
    uint64_t n;
    double ms;
} total;

typedef struct span {
    const char *name;
    cudaEvent_t begin, end;
} span;

typedef struct trace {
    char *path;
    total total[NAMES];
    int n_name;
    span span[PENDING];
    int n_span;   /* recorded, and not yet read */
    int n_events; /* spans whose events exist */
} trace;

/* The process has a single trace, because a launch names its stream and not its backend. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static trace *_Atomic present;

bool fv_cuda_is_traced(void) { return atomic_load(&present) != NULL; }

fv_status fv_cuda_trace_start(const char *path) {
    if (fv_cuda_is_traced())
        return FV_FAIL(FV_EBUSY, "another trace of the GPU is running in this process");
    trace *t = calloc(1, sizeof *t);
    if (t) t->path = strdup(path);
    if (!t || !t->path) {
        free(t);
        return FV_FAIL(FV_ENOMEM, "out of memory for a trace");
    }
    FILE *f = fopen(path, "w"); /* fails now, not after the work */
    if (!f) {
        fv_status st = FV_FAIL(FV_EIO, "cannot write %s, the trace of the GPU", path);
        free(t->path);
        free(t);
        return st;
    }
    fclose(f);
    atomic_store(&present, t);
    return FV_OK;
}

static total *total_of(trace *t, const char *name) {
    for (int i = 0; i < t->n_name; i++)
        if (strcmp(t->total[i].name, name) == 0) return &t->total[i];
    if (t->n_name == NAMES) return &t->total[NAMES - 1];
    t->total[t->n_name] = (total){.name = name};
    return &t->total[t->n_name++];
}

/* Reads recorded spans; leaves out those that cannot be read. */
static void read_spans(trace *t) {
    for (int i = 0; i < t->n_span; i++) {
        span *s = &t->span[i];
        float ms;
        if (cudaEventSynchronize(s->end) != cudaSuccess) continue;
        if (cudaEventElapsedTime(&ms, s->begin, s->end) != cudaSuccess) continue;
        total *to = total_of(t, s->name);
        to->n++;
        to->ms += (double)ms;
    }
    t->n_span = 0;
    (void)cudaGetLastError();
}

/* This thread is between a span's begin and end: launches in there belong to the span. */
static _Thread_local bool within;

int fv_cuda_trace_begin(const char *name, cudaStream_t stream) {
    trace *t = atomic_load(&present);
    if (!t || within) return -1;
    pthread_mutex_lock(&lock);
    if (t->n_span == PENDING) read_spans(t);
    int i = t->n_span;
    span *s = &t->span[i];
    bool there =
        i < t->n_events || (cudaEventCreateWithFlags(&s->begin, cudaEventDefault) == cudaSuccess &&
                            cudaEventCreateWithFlags(&s->end, cudaEventDefault) == cudaSuccess);
    if (there && i == t->n_events) t->n_events++;
    if (!there || cudaEventRecord(s->begin, stream) != cudaSuccess) {
        pthread_mutex_unlock(&lock);
        return -1;
    }
    s->name = name;
    within = true;
    return i; /* holds the lock until fv_cuda_trace_end */
}

void fv_cuda_trace_end(int i, cudaStream_t stream) {
    if (i < 0) return;
    trace *t = atomic_load(&present);
    within = false;
    if (cudaEventRecord(t->span[i].end, stream) == cudaSuccess) t->n_span = i + 1;
    pthread_mutex_unlock(&lock);
}

static int by_time(const void *x, const void *y) {
    const total *a = x, *b = y;
    return a->ms < b->ms ? 1 : a->ms > b->ms ? -1 : strcmp(a->name, b->name);
}

static fv_status print(trace *t) {
    double all = 0;
    FILE *f = fopen(t->path, "w");
    if (!f) return FV_FAIL(FV_EIO, "cannot write %s", t->path);
    qsort(t->total, (size_t)t->n_name, sizeof *t->total, by_time);
    for (int i = 0; i < t->n_name; i++) all += t->total[i].ms;
    fprintf(f, "%12s %10s %12s %7s  %s\n", "ms", "launches", "us each", "share", "kernel");
    for (int i = 0; i < t->n_name; i++) {
        const total *k = &t->total[i];
        fprintf(f, "%12.3f %10llu %12.2f %6.1f%%  %s\n", k->ms, (unsigned long long)k->n,
                1e3 * k->ms / (double)k->n, all > 0 ? 100 * k->ms / all : 0, k->name);
    }
    bool good = !ferror(f);
    if (fclose(f) != 0 || !good) return FV_FAIL(FV_EIO, "cannot write %s", t->path);
    return FV_OK;
}

void fv_cuda_trace_stop(void) {
    trace *t = atomic_exchange(&present, NULL);
    if (!t) return;
    read_spans(t);
    if (print(t) != FV_OK)
        FV_LOG(ERROR, KERNELS, "event=trace-lost reason=\"%s\"", fv_last_error());
    for (int i = 0; i < t->n_events; i++) {
        (void)cudaEventDestroy(t->span[i].begin);
        (void)cudaEventDestroy(t->span[i].end);
    }
    free(t->path);
    free(t);
}
