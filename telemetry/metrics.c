/* Stores values in one array of words, which change by atomic operations only.
 *
 *   counter, gauge   [value]                                   the bits of a double
 *   histogram        [counts: one per bucket, +Inf last][sum][exemplars: one per bucket]
 *   exemplar         [version][trace, 2 words][value][time]    odd version: being written
 *
 * A scrape during an observation may see its bucket but not yet its sum. */
#include "telemetry/metrics.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "telemetry/metrics_internal.h"

enum {
    ROUTER = FV_DAEMON_ROUTER,
    PREFILL = FV_DAEMON_PREFILL,
    DECODE = FV_DAEMON_DECODE,
    GATEWAY = FV_DAEMON_GATEWAY,
    WORKERS = PREFILL | DECODE,
    MEMBERS = ROUTER | WORKERS,
    ALL = MEMBERS | GATEWAY,
};

static const fv_metric_info table[FV_N_METRIC] = {
#define FV_METRIC(id, name, type, unit, label, label2, daemons, help)                              \
    [FV_METRIC_##                                                                                  \
        id] = {name, unit, help, FV_TYPE_##type, {FV_LABEL_##label, FV_LABEL_##label2}, daemons},
#include "telemetry/metrics.def"
};

static const double latency[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                 0.5,   1,      2.5,   5,    10,    25,   50,  100};
static const double token_latency[] = {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025,
                                       0.05,   0.075, 0.1,    0.15,  0.25,   0.5,  1,     2.5};
static const double rank[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
static const double error[] = {0.0001, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1};

#define BOUNDS(a)                                                                                  \
    { a, sizeof a / sizeof *a }
static const struct {
    const double *bound;
    int32_t n;
} bounds[] = {[FV_TYPE_LATENCY] = BOUNDS(latency),
              [FV_TYPE_TOKEN_LATENCY] = BOUNDS(token_latency),
              [FV_TYPE_RANK] = BOUNDS(rank),
              [FV_TYPE_ERROR] = BOUNDS(error)};

static struct {
    _Atomic uint64_t *words; /* NULL: nothing is recorded */
    size_t first[FV_N_METRIC];
    unsigned daemon;
} kept;

const fv_metric_info *fv_metric_get_info(fv_metric m) { return &table[m]; }

const double *fv_metric_bounds(fv_metric_type t, int32_t *n) {
    *n = bounds[t].n;
    return bounds[t].bound;
}

const char *fv_metric_type_name(fv_metric_type t) {
    return t == FV_TYPE_COUNTER ? "counter" : t == FV_TYPE_GAUGE ? "gauge" : "histogram";
}

/* ---- words ------------------------------------------------------------------------------ */

enum { EX_VERSION, EX_TRACE, EX_VALUE = EX_TRACE + 2, EX_TIME, EX_WORDS };

static size_t words_of(fv_metric_type t) {
    size_t n = (size_t)bounds[t].n + 1;
    return t < FV_TYPE_LATENCY ? 1 : n + 1 + n * EX_WORDS;
}

static int32_t n_series(fv_metric m) {
    return fv_label_count(table[m].label[0]) * fv_label_count(table[m].label[1]);
}

int32_t fv_metric_series(fv_metric m, int32_t value, int32_t value2) {
    return value * fv_label_count(table[m].label[1]) + value2;
}

fv_status fv_metrics_open(unsigned daemon) {
    size_t n = 0;
    for (int m = 0; m < FV_N_METRIC; m++) {
        kept.first[m] = n;
        n += words_of(table[m].type) * (size_t)n_series((fv_metric)m);
    }
    kept.daemon = daemon;
    kept.words = calloc(n, sizeof *kept.words);
    if (!kept.words) return FV_FAIL(FV_ENOMEM, "out of memory for metrics");
    fv_metric_set(FV_METRIC_BUILD, 0, 1);
    return FV_OK;
}

void fv_metrics_close(void) {
    free(kept.words);
    kept.words = NULL;
}

static _Atomic uint64_t *series_of(fv_metric m, int32_t series) {
    return kept.words + kept.first[m] + words_of(table[m].type) * (size_t)series;
}

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double number_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void add(_Atomic uint64_t *word, double by) {
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &before, bits_of(number_of(before) + by),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic uint64_t *word, uint64_t bits) {
    atomic_store_explicit(word, bits, memory_order_relaxed);
}

/* ---- recording -------------------------------------------------------------------------- */

void fv_metric_add(fv_metric m, int32_t series, double by) {
    if (kept.words) add(series_of(m, series), by);
}

void fv_metric_set(fv_metric m, int32_t series, double value) {
    if (kept.words) store(series_of(m, series), bits_of(value));
}

static int32_t bucket_of(fv_metric_type t, double value) {
    int32_t i = 0;
    while (i < bounds[t].n && value > bounds[t].bound[i]) i++;
    return i;
}

/* A writer that finds another one at work leaves its exemplar in place: any recent trace is good
 * enough. */
static void set_exemplar(_Atomic uint64_t *x, double value, const fv_trace_context *trace) {
    uint64_t version = load(&x[EX_VERSION]), id[2];
    if (version % 2 ||
        !atomic_compare_exchange_strong_explicit(&x[EX_VERSION], &version, version + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    memcpy(id, trace->trace_id, sizeof id);
    /* release stores: a reader that sees one of them also sees the odd version */
    atomic_store_explicit(&x[EX_TRACE], id[0], memory_order_release);
    atomic_store_explicit(&x[EX_TRACE + 1], id[1], memory_order_release);
    atomic_store_explicit(&x[EX_VALUE], bits_of(value), memory_order_release);
    atomic_store_explicit(&x[EX_TIME], bits_of(1e-9 * (double)fv_log_time_ns()),
                          memory_order_release);
    atomic_store_explicit(&x[EX_VERSION], version + 2, memory_order_release);
}

static void observe(fv_metric m, int32_t series, double value, uint32_t n,
                    const fv_trace_context *trace) {
    fv_metric_type t = table[m].type;
    if (!kept.words || n == 0) return;
    _Atomic uint64_t *s = series_of(m, series);
    int32_t bucket = bucket_of(t, value), n_bucket = bounds[t].n + 1;
    atomic_fetch_add_explicit(&s[bucket], n, memory_order_relaxed);
    add(&s[n_bucket], value * n);
    if (trace && trace->sampled) set_exemplar(&s[n_bucket + 1 + bucket * EX_WORDS], value, trace);
}

void fv_metric_observe(fv_metric m, int32_t series, double value, const fv_trace_context *trace) {
    observe(m, series, value, 1, trace);
}

void fv_metric_observe_n(fv_metric m, int32_t series, double value, uint32_t n) {
    observe(m, series, value, n, NULL);
}

/* ---- reading ---------------------------------------------------------------------------- */

bool fv_metric_has(fv_metric m) { return kept.words && (table[m].daemons & kept.daemon); }

double fv_metric_value(fv_metric m, int32_t series) {
    return number_of(load(series_of(m, series)));
}

uint64_t fv_metric_bucket(fv_metric m, int32_t series, int32_t bucket) {
    return load(series_of(m, series) + bucket);
}

double fv_metric_sum(fv_metric m, int32_t series) {
    return number_of(load(series_of(m, series) + bounds[table[m].type].n + 1));
}

bool fv_metric_exemplar(fv_metric m, int32_t series, int32_t bucket, fv_exemplar *out) {
    int32_t n_bucket = bounds[table[m].type].n + 1;
    const _Atomic uint64_t *x = series_of(m, series) + n_bucket + 1 + bucket * EX_WORDS;
    uint64_t version = atomic_load_explicit(&x[EX_VERSION], memory_order_acquire), id[2];
    if (version == 0 || version % 2) return false;
    id[0] = atomic_load_explicit(&x[EX_TRACE], memory_order_acquire);
    id[1] = atomic_load_explicit(&x[EX_TRACE + 1], memory_order_acquire);
    out->value = number_of(atomic_load_explicit(&x[EX_VALUE], memory_order_acquire));
    out->time_s = number_of(atomic_load_explicit(&x[EX_TIME], memory_order_acquire));
    memcpy(out->trace.trace_id, id, sizeof id);
    return load(&x[EX_VERSION]) == version;
}
