/* How near the CPU kernels come to what this machine can do.
 *
 * Two limits are measured first, with the same threads: fused multiply-adds per second in a
 * loop that touches registers only, and bytes per second of a loop that only reads. Each kernel
 * is then given as a fraction of its limit: matrix-vector products (decode) of the reading,
 * matrix products (prefill) of the arithmetic.
 *
 * Weights lie in one buffer (1 GiB unless told otherwise: far beyond any cache) and every call
 * takes the next piece of it. Each measurement of a kernel follows directly on one of its limit,
 * so that a slow moment of the machine meets both, and all alternate within a round; what is
 * printed is the median over the rounds, of fractions the median of the pairs' fractions.
 *
 *     bench_kernels --rounds 9 --json results/kernels.json */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/options.h"
#include "kernels/cpu/threads.h"
#include "kernels/ops.h"

enum { MAX_ROW = 96, MAX_ROUND = 101 };

typedef enum limit { LIMIT_NONE, LIMIT_FMA, LIMIT_READ } limit;

/* One line of the table. */
typedef struct row {
    char name[64];
    const char *unit;
    limit of;
    double value[MAX_ROUND], fraction[MAX_ROUND];
} row;

typedef struct bench {
    fv_backend be;
    fv_threads *threads;
    char *weights; /* owned */
    size_t weights_bytes, weights_at;
    row rows[MAX_ROW];
    int n_row, next_row, round;
    double fma_rate, read_rate; /* latest: flop/s, bytes/s */
} bench;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(fv_status s) {
    if (s == FV_OK) return;
    fprintf(stderr, "bench_kernels: %s\n", fv_last_error());
    exit(1);
}

/* Notes `value`, in units of `scale`; the first round names the rows. */
static void note(bench *b, const char *name, const char *unit, double value, double scale,
                 limit of) {
    row *r = &b->rows[b->next_row++];
    if (b->round == 0) {
        snprintf(r->name, sizeof r->name, "%s", name);
        r->unit = unit;
        r->of = of;
        b->n_row = b->next_row;
    }
    r->value[b->round] = value / scale;
    r->fraction[b->round] = of == LIMIT_FMA    ? value / b->fma_rate
                            : of == LIMIT_READ ? value / b->read_rate
                                               : 0;
}

/* Makes room for `bytes` of weights: starts from the front when the buffer ends. */
static void advance(bench *b, size_t bytes) {
    if (b->weights_at + bytes > b->weights_bytes) b->weights_at = 0;
}

/* ---- the limits ------------------------------------------------------------------------ */

enum {
    FMA_CHAINS = 16,
    FMA_ITEMS = 64,
    FMA_STEPS = 100000,
    READ_CHUNK = 1 << 21,
    READ_BYTES = 256 << 20
};

static volatile float fma_sink;
static volatile long long read_sink;

__attribute__((target("avx512f"))) static void fma_avx512(void *arg, int thread, int64_t begin,
                                                          int64_t end) {
    (void)arg, (void)thread;
    __m512 acc[FMA_CHAINS], a = _mm512_set1_ps(0.5f), c = _mm512_set1_ps(1);
    for (int i = 0; i < FMA_CHAINS; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int64_t n = begin * FMA_STEPS; n < end * FMA_STEPS; n++)
        for (int i = 0; i < FMA_CHAINS; i++) acc[i] = _mm512_fmadd_ps(acc[i], a, c);
    for (int i = 1; i < FMA_CHAINS; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    fma_sink = _mm512_reduce_add_ps(acc[0]);
}

__attribute__((target("avx2,fma"))) static void fma_avx2(void *arg, int thread, int64_t begin,
                                                         int64_t end) {
    (void)arg, (void)thread;
    enum { CHAINS = 12 }; /* of 16 registers */
    __m256 acc[CHAINS], a = _mm256_set1_ps(0.5f), c = _mm256_set1_ps(1);
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_set1_ps((float)i);
    for (int64_t n = begin * FMA_STEPS; n < end * FMA_STEPS; n++)
        for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_fmadd_ps(acc[i], a, c);
    for (int i = 1; i < CHAINS; i++) acc[0] = _mm256_add_ps(acc[0], acc[i]);
    fma_sink = acc[0][0];
}

static void measure_fma(bench *b) {
    bool wide = strcmp(fv_backend_isa(&b->be), "avx512") == 0;
    double flops = (double)FMA_ITEMS * FMA_STEPS * 2 * (wide ? 16 * FMA_CHAINS : 8 * 12);
    double t0 = now_s();
    fv_threads_for(b->threads, FMA_ITEMS, 1, wide ? fma_avx512 : fma_avx2, NULL);
    b->fma_rate = flops / (now_s() - t0);
}

/* As wide as the kernels: narrower loads reach two thirds of the rate. */
__attribute__((target("avx512f"))) static void read_avx512(void *arg, int thread, int64_t begin,
                                                           int64_t end) {
    const __m512i *p = (const __m512i *)((const char *)arg + begin * READ_CHUNK);
    size_t n = (size_t)(end - begin) * READ_CHUNK / sizeof *p;
    __m512i sum[4] = {0};
    (void)thread;
    for (size_t i = 0; i < n; i += 4)
        for (size_t j = 0; j < 4; j++) sum[j] = _mm512_add_epi64(sum[j], p[i + j]);
    for (int j = 1; j < 4; j++) sum[0] = _mm512_add_epi64(sum[0], sum[j]);
    read_sink = _mm512_reduce_add_epi64(sum[0]);
}

__attribute__((target("avx2"))) static void read_avx2(void *arg, int thread, int64_t begin,
                                                      int64_t end) {
    const __m256i *p = (const __m256i *)((const char *)arg + begin * READ_CHUNK);
    size_t n = (size_t)(end - begin) * READ_CHUNK / sizeof *p;
    __m256i sum[4] = {0};
    (void)thread;
    for (size_t i = 0; i < n; i += 4)
        for (size_t j = 0; j < 4; j++) sum[j] = _mm256_add_epi64(sum[j], p[i + j]);
    for (int j = 1; j < 4; j++) sum[0] = _mm256_add_epi64(sum[0], sum[j]);
    read_sink = sum[0][0];
}

static void measure_read(bench *b) {
    advance(b, READ_BYTES);
    double t0 = now_s();
    bool wide = strcmp(fv_backend_isa(&b->be), "avx512") == 0;
    int64_t chunks = READ_BYTES / READ_CHUNK;
    fv_threads_for(b->threads, chunks, 1, wide ? read_avx512 : read_avx2,
                   b->weights + b->weights_at / 64 * 64);
    b->read_rate = READ_BYTES / (now_s() - t0);
    b->weights_at += READ_BYTES;
}

static void no_work(void *arg, int thread, int64_t begin, int64_t end) {
    (void)arg, (void)thread, (void)begin, (void)end;
}

/* What a loop costs before it does anything: two chunks, one after the other in quick succession,
 * so that workers are awake, as between the operations of a forward pass. */
static void measure_fork(bench *b) {
    enum { LOOPS = 1000 };
    double t0 = now_s();
    for (int i = 0; i < LOOPS; i++) fv_threads_for(b->threads, 2, 1, no_work, NULL);
    note(b, "fork and join", "us", (now_s() - t0) / LOOPS, 1e-6, LIMIT_NONE);
}

/* ---- row-wise -------------------------------------------------------------------------- */

static fv_tensor activations(int rows, int cols) {
    float *p = aligned_alloc(64, ((size_t)rows * (size_t)cols * 4 + 63) / 64 * 64);
    if (!p) exit(1);
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++) p[i] = 0.01f * (float)(i % 100);
    return fv_tensor_of(p, FV_F32, rows, cols);
}

/* Elements per second of norm and activate, on one row and on many. */
static void measure_rowwise(bench *b) {
    enum { K = 4096, CALLS = 20 };
    char name[64];
    for (int M = 1; M <= 640; M += 639) {
        fv_tensor x = activations(M, K), w = activations(1, K), y = activations(M, K);
        fv_norm_args norm = {.x = x, .w = w, .y = y, .eps = 1e-5f, .rms = true};
        fv_activate_args act = {.act = FV_ACT_SILU, .x = x, .gate = x, .y = y};
        double t0 = now_s();
        for (int i = 0; i < CALLS; i++) must(b->be.ops->norm(&b->be, &norm));
        double t1 = now_s();
        for (int i = 0; i < CALLS; i++) must(b->be.ops->activate(&b->be, &act));
        double t2 = now_s(), elements = (double)M * K * CALLS;
        snprintf(name, sizeof name, "rms norm %d rows of %d", M, K);
        note(b, name, "G/s", elements / (t1 - t0), 1e9, LIMIT_NONE);
        snprintf(name, sizeof name, "silu and gate %d rows of %d", M, K);
        note(b, name, "G/s", elements / (t2 - t1), 1e9, LIMIT_NONE);
        free(x.data);
        free(w.data);
        free(y.data);
    }
}

/* ---- linear ---------------------------------------------------------------------------- */

/* The next piece of the weight buffer as [N, K]. */
static fv_tensor next_weight(bench *b, fv_dtype t, int N, int K) {
    size_t bytes = (size_t)N * (size_t)K * fv_dtype_bytes(t);
    advance(b, bytes);
    fv_tensor w = fv_tensor_of(b->weights + b->weights_at, t, N, K);
    b->weights_at += bytes;
    return w;
}

/* Seconds of one call, averaged over as many as read `bytes_min` bytes of weights. */
static double linear_s(bench *b, fv_dtype t, int M, int N, int K, size_t bytes_min) {
    fv_linear_args a = {.x = activations(M, K), .n_part = 1};
    size_t bytes = (size_t)N * (size_t)K * fv_dtype_bytes(t);
    int calls = (int)((bytes_min + bytes - 1) / bytes);
    a.part[0].y = activations(M, N);
    double t0 = now_s();
    for (int i = 0; i < calls; i++) {
        a.part[0].w = next_weight(b, t, N, K);
        must(b->be.ops->linear(&b->be, &a));
    }
    double s = (now_s() - t0) / calls;
    free(a.x.data);
    free(a.part[0].y.data);
    return s;
}

static void measure_gemv(bench *b) {
    static const int shapes[][2] = {{4096, 4096}, {11008, 4096}, {4096, 11008}};
    static const int rows[] = {1, 2, 4, 8, 16};
    char name[64];
    for (int s = 0; s < 3; s++)
        for (fv_dtype t = FV_F32; t < FV_N_DTYPE; t++)
            for (int m = 0; m < 5; m++) {
                int N = shapes[s][0], K = shapes[s][1], M = rows[m];
                if (s > 0 && (t == FV_F16 || (M != 1 && M != 8))) continue;
                double bytes = (double)N * K * (double)fv_dtype_bytes(t);
                measure_read(b);
                double time = linear_s(b, t, M, N, K, READ_BYTES);
                snprintf(name, sizeof name, "linear %dx%d %s M=%d", N, K, fv_dtype_name(t), M);
                note(b, name, "GB/s", bytes / time, 1e9, LIMIT_READ);
            }
}

static void measure_gemm(bench *b) {
    static const int shapes[][2] = {{1024, 1024}, {2752, 1024}, {4096, 4096}, {11008, 4096}};
    char name[64];
    for (int s = 0; s < 4; s++)
        for (fv_dtype t = FV_F32; t <= FV_BF16; t++) {
            int N = shapes[s][0], K = shapes[s][1], M = 640;
            measure_fma(b);
            double time = linear_s(b, t, M, N, K, s < 2 ? (size_t)16 << 20 : 1);
            snprintf(name, sizeof name, "linear %dx%d %s M=%d", N, K, fv_dtype_name(t), M);
            note(b, name, "GFLOP/s", 2.0 * M * N * K / time, 1e9, LIMIT_FMA);
        }
}

/* ---- attention ------------------------------------------------------------------------- */

/* n_seq sequences of `rows` query rows that see `len` keys each (causally). The KV blocks are
 * pieces of the weight buffer. Seconds of one call. */
static double attention_s(bench *b, int n_seq, int rows, int len, int H, int Hkv, int D) {
    int n_block = (len + FV_KV_BLOCK - 1) / FV_KV_BLOCK, n_run = n_seq * Hkv;
    fv_kv_block *blocks = malloc((size_t)(n_run * n_block) * sizeof *blocks);
    fv_kv_run *runs = malloc((size_t)n_run * sizeof *runs);
    fv_attn_seq *seqs = malloc((size_t)n_seq * sizeof *seqs);
    int32_t *hidden = malloc((size_t)rows * sizeof *hidden);
    if (!blocks || !runs || !seqs || !hidden) exit(1);
    for (int i = 0; i < n_run * n_block; i++) {
        blocks[i].k = next_weight(b, FV_BF16, FV_KV_BLOCK, D).data;
        blocks[i].v = next_weight(b, FV_BF16, FV_KV_BLOCK, D).data;
    }
    for (int i = 0; i < n_run; i++)
        runs[i] = (fv_kv_run){.block = blocks + (ptrdiff_t)i * n_block, .len = len};
    for (int i = 0; i < rows; i++) hidden[i] = rows - 1 - i;
    for (int i = 0; i < n_seq; i++)
        seqs[i] = (fv_attn_seq){.row0 = i * rows,
                                .n_rows = rows,
                                .n_seg = 1,
                                .runs = runs + (ptrdiff_t)i * Hkv,
                                .hidden = hidden};
    fv_attn_args a = {.q = activations(n_seq * rows, H * D),
                      .o = activations(n_seq * rows, H * D),
                      .kv_dtype = FV_BF16,
                      .n_head = H,
                      .n_kv = Hkv,
                      .d_head = D,
                      .n_seq = n_seq,
                      .scale = 0.1f,
                      .seqs = seqs};
    double t0 = now_s();
    must(b->be.ops->attention(&b->be, &a));
    double s = now_s() - t0;
    free(a.q.data);
    free(a.o.data);
    free(hidden);
    free(seqs);
    free(runs);
    free(blocks);
    return s;
}

static void measure_attention(bench *b) {
    static const struct {
        int n_seq, rows, len, H, Hkv, D;
    } cases[] = {
        {1, 640, 640, 32, 32, 128}, {1, 640, 640, 14, 2, 64}, {1, 577, 577, 16, 16, 64},
        {8, 1, 2048, 32, 32, 128},  {8, 1, 2048, 32, 8, 128}, {32, 1, 1024, 14, 2, 64},
    };
    char name[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = cases[i].n_seq, M = cases[i].rows, L = cases[i].len, H = cases[i].H;
        int Hkv = cases[i].Hkv, D = cases[i].D;
        M > 1 ? measure_fma(b) : measure_read(b);
        double time = attention_s(b, n, M, L, H, Hkv, D);
        double seen = (double)M * L - 0.5 * M * (M - 1); /* keys over all rows */
        snprintf(name, sizeof name, "attention %dx%d rows %d keys H=%d/%d D=%d", n, M, L, H, Hkv,
                 D);
        if (M > 1)
            note(b, name, "GFLOP/s", 4.0 * n * seen * H * D / time, 1e9, LIMIT_FMA);
        else
            note(b, name, "GB/s", 4.0 * n * (double)L * Hkv * D / time, 1e9, LIMIT_READ);
    }
}

/* ---- report ---------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static void report(bench *b, int rounds, const char *json) {
    static const char *const limits[] = {"", "of fma loop", "of read loop"};
    FILE *f = json ? fopen(json, "w") : NULL;
    if (json && !f) {
        fprintf(stderr, "bench_kernels: cannot write %s\n", json);
        exit(1);
    }
    printf("isa=%s threads=%d rounds=%d weights=%zu MiB\n", fv_backend_isa(&b->be),
           fv_threads_count(b->threads), rounds, b->weights_bytes >> 20);
    if (f)
        fprintf(f, "{\"isa\": \"%s\", \"threads\": %d, \"rounds\": %d, \"rows\": [",
                fv_backend_isa(&b->be), fv_threads_count(b->threads), rounds);
    for (int i = 0; i < b->n_row; i++) {
        row *r = &b->rows[i];
        double value = median(r->value, rounds), fraction = median(r->fraction, rounds);
        printf("%-46s %8.1f %-8s", r->name, value, r->unit);
        if (r->of) printf(" %5.1f %% %s", 100 * fraction, limits[r->of]);
        printf("\n");
        if (f)
            fprintf(f, "%s\n  {\"name\": \"%s\", \"value\": %.2f, \"unit\": \"%s\"", i ? "," : "",
                    r->name, value, r->unit);
        if (f && r->of) fprintf(f, ", \"fraction\": %.3f", fraction);
        if (f) fprintf(f, "}");
    }
    if (f) fprintf(f, "\n]}\n");
    if (f && fclose(f) != 0) fprintf(stderr, "bench_kernels: cannot write %s\n", json);
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"threads", NULL, FV_OPTION_INT, "N", "0", "threads; 0 = all cores", 0, 256},
        {"isa", NULL, FV_OPTION_STRING, "NAME", "auto", "auto, avx2 or avx512", 0, 0},
        {"rounds", NULL, FV_OPTION_INT, "N", "5", "rounds, of which the median", 1, MAX_ROUND},
        {"weights", NULL, FV_OPTION_INT, "MIB", "1024", "size of the weight buffer", 256, 65536},
        {"only", NULL, FV_OPTION_STRING, "WHAT", NULL, "rowwise, gemv, gemm or attention", 0, 0},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the table as JSON", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    fv_options *o;
    must(fv_options_parse(table, N_OPTION, argc, argv, &o));
    if (fv_options_help_wanted(o)) {
        fv_options_print_help(stdout, "bench_kernels [options]", "CPU kernels against the machine.",
                              table, N_OPTION);
        return 0;
    }
    int threads = (int)fv_options_int(o, "threads"), rounds = (int)fv_options_int(o, "rounds");
    const char *only = fv_options_string(o, "only");
    static bench b;
    fv_backend_options opt = {.n_threads = threads, .isa = fv_options_string(o, "isa")};
    must(fv_backend_open(&b.be, "cpu", &opt));
    must(fv_threads_open(threads, &b.threads));
    b.weights_bytes = (size_t)fv_options_int(o, "weights") << 20;
    b.weights = aligned_alloc(4096, b.weights_bytes);
    if (!b.weights) {
        fprintf(stderr, "bench_kernels: no memory for %zu bytes of weights\n", b.weights_bytes);
        return 1;
    }
    /* As f32, bf16 and f16 a normal number: subnormal ones would take another time. */
    memset(b.weights, 0x3c, b.weights_bytes);
    for (b.round = 0; b.round < rounds; b.round++) {
        b.next_row = 0;
        measure_fma(&b);
        measure_read(&b);
        note(&b, "fused multiply-adds in registers", "GFLOP/s", b.fma_rate, 1e9, LIMIT_NONE);
        note(&b, "reading", "GB/s", b.read_rate, 1e9, LIMIT_NONE);
        measure_fork(&b);
        if (!only || strcmp(only, "rowwise") == 0) measure_rowwise(&b);
        if (!only || strcmp(only, "gemv") == 0) measure_gemv(&b);
        if (!only || strcmp(only, "gemm") == 0) measure_gemm(&b);
        if (!only || strcmp(only, "attention") == 0) measure_attention(&b);
    }
    report(&b, rounds, fv_options_string(o, "json"));
    free(b.weights);
    fv_threads_close(b.threads);
    fv_backend_close(&b.be);
    fv_options_free(o);
    return 0;
}
