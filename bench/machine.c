/* See machine.h. The limits are plain loops with intrinsics, with vectors as wide as the
 * kernels'. */
#include "bench/machine.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backends/open.h"

static clockid_t time_of = CLOCK_MONOTONIC;

double bench_now_s(void) {
    struct timespec t;
    clock_gettime(time_of, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_open(bench *b, int argc, char **argv, const char *usage, const char *about) {
    static const fv_option table[] = {
        {"threads", NULL, FV_OPTION_INT, "N", "0", "threads; 0 = all cores", 0, 256},
        {"isa", NULL, FV_OPTION_STRING, "NAME", "auto",
         "auto, avx2, avx512, avx512vnni, avx512bf16 or amx", 0, 0},
        {"rounds", NULL, FV_OPTION_INT, "N", "5", "rounds, of which the median", 1,
         BENCH_MAX_ROUND},
        {"weights", NULL, FV_OPTION_INT, "MIB", "1024", "size of the weight buffer", 256, 65536},
        {"only", NULL, FV_OPTION_STRING, "WHAT", NULL, "one of the parts that the usage names", 0,
         0},
        {"clock", NULL, FV_OPTION_STRING, "NAME", "wall",
         "wall; cpu: time that was computed, for one thread on a machine with other work", 0, 0},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the table as JSON", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    memset(b, 0, sizeof *b);
    b->options = bench_options(table, N_OPTION, argc, argv, usage, about);
    int threads = (int)fv_options_int(b->options, "threads");
    b->n_round = (int)fv_options_int(b->options, "rounds");
    b->only = fv_options_string(b->options, "only");
    bool cpu = strcmp(fv_options_string(b->options, "clock"), "cpu") == 0;
    if (cpu) time_of = CLOCK_PROCESS_CPUTIME_ID;
    fv_backend_options opt = {.n_threads = threads, .isa = fv_options_string(b->options, "isa")};
    bench_must(fv_backend_open(&b->be, "cpu", &opt));
    bench_must(fv_threads_open(threads, &b->threads));
    b->weights_bytes = (size_t)fv_options_int(b->options, "weights") << 20;
    b->weights = aligned_alloc(4096, b->weights_bytes);
    if (!b->weights)
        bench_must(FV_FAIL(FV_ENOMEM, "out of memory for %zu bytes of weights", b->weights_bytes));
    memset(b->weights, 0x3c, b->weights_bytes);
}

void bench_close(bench *b) {
    free(b->weights);
    fv_threads_close(b->threads);
    fv_backend_close(&b->be);
    fv_options_free(b->options);
}

bool bench_wants(const bench *b, const char *what) {
    return !b->only || strcmp(b->only, what) == 0;
}

void bench_note(bench *b, const char *name, const char *unit, double value, double scale,
                bench_limit of) {
    bench_row *r = &b->rows[b->next_row++];
    if (b->round == 0) {
        snprintf(r->name, sizeof r->name, "%s", name);
        r->unit = unit;
        r->of = of;
        b->n_row = b->next_row;
    }
    r->value[b->round] = value / scale;
    r->fraction[b->round] = of == BENCH_FMA    ? value / b->fma_rate
                            : of == BENCH_READ ? value / b->read_rate
                                               : 0;
}

void *bench_memory(bench *b, size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (b->weights_at + bytes > b->weights_bytes) b->weights_at = 0; /* wrap around */
    void *p = b->weights + b->weights_at;
    b->weights_at += bytes;
    return p;
}

fv_tensor bench_weight(bench *b, fv_dtype t, int N, int K) {
    return fv_tensor_of(bench_memory(b, (size_t)N * (size_t)K * fv_dtype_bytes(t)), t, N, K);
}

fv_tensor bench_activations(int rows, int cols) {
    float *p = aligned_alloc(64, ((size_t)rows * (size_t)cols * 4 + 63) / 64 * 64);
    if (!p) exit(1);
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++) p[i] = 0.01f * (float)(i % 100);
    return fv_tensor_of(p, FV_F32, rows, cols);
}

/* ---- the limits ------------------------------------------------------------------------ */

enum { FMA_CHAINS = 16, FMA_ITEMS = 64, FMA_STEPS = 100000, READ_CHUNK = 1 << 21 };

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

void bench_measure_fma(bench *b) {
    bool wide = strcmp(b->be.isa, "avx2") != 0;
    double flops = (double)FMA_ITEMS * FMA_STEPS * 2 * (wide ? 16 * FMA_CHAINS : 8 * 12);
    double t0 = bench_now_s();
    fv_threads_for(b->threads, FMA_ITEMS, 1, wide ? fma_avx512 : fma_avx2, NULL);
    b->fma_rate = flops / (bench_now_s() - t0);
}

/* Measures the limit of canonical bf16 products: VDPBF16PS in independent chains, or TDPBF16PS on
 * tiles that stay loaded. */
__attribute__((target("avx512f,avx512bf16"))) static void bf16_avx512(void *arg, int thread,
                                                                      int64_t begin, int64_t end) {
    (void)arg, (void)thread;
    __m512 acc[FMA_CHAINS];
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), c = (__m512bh)_mm512_set1_epi16(0x3c00);
    for (int i = 0; i < FMA_CHAINS; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int64_t n = begin * FMA_STEPS; n < end * FMA_STEPS; n++)
        for (int i = 0; i < FMA_CHAINS; i++) acc[i] = _mm512_dpbf16_ps(acc[i], a, c);
    for (int i = 1; i < FMA_CHAINS; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    fma_sink = _mm512_reduce_add_ps(acc[0]);
}

enum { AMX_STEPS = FMA_STEPS / 32 }; /* of four tiles with 8192 multiply-adds each */

__attribute__((target("amx-tile,amx-bf16"))) static void bf16_amx(void *arg, int thread,
                                                                  int64_t begin, int64_t end) {
    (void)arg, (void)thread;
    _Alignas(64) uint8_t config[64] = {1}; /* palette 1, eight tiles of 16 rows of 64 bytes */
    for (int i = 0; i < 8; i++) config[16 + 2 * i] = 64, config[48 + i] = 16;
    __asm__ volatile("" : : "r"(config) : "memory"); /* GCC assumes only 8 bytes are read */
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t n = begin * AMX_STEPS; n < end * AMX_STEPS; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}

bool bench_measure_bf16(bench *b) {
    bool tiles = strcmp(b->be.isa, "amx") == 0;
    if (!tiles && strcmp(b->be.isa, "avx512bf16") != 0) return false;
    double flops =
        (double)FMA_ITEMS * 2 * (tiles ? AMX_STEPS * 4 * 8192.0 : FMA_STEPS * 32.0 * FMA_CHAINS);
    double t0 = bench_now_s();
    fv_threads_for(b->threads, FMA_ITEMS, 1, tiles ? bf16_amx : bf16_avx512, NULL);
    b->bf16_rate = flops / (bench_now_s() - t0);
    return true;
}

/* Reads with vectors as wide as the kernels': narrower loads reach two thirds of the rate. */
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

void bench_measure_read(bench *b) {
    void *from = bench_memory(b, BENCH_READ_BYTES);
    double t0 = bench_now_s();
    bool wide = strcmp(b->be.isa, "avx2") != 0;
    int64_t chunks = BENCH_READ_BYTES / READ_CHUNK;
    fv_threads_for(b->threads, chunks, 1, wide ? read_avx512 : read_avx2, from);
    b->read_rate = BENCH_READ_BYTES / (bench_now_s() - t0);
}

/* ---- report ---------------------------------------------------------------------------- */

void bench_report(const bench *b) {
    static const char *const limits[] = {"", "of fma loop", "of read loop"};
    json_t *rows = json_array();
    printf("isa=%s threads=%d rounds=%d weights=%zu MiB clock=%s\n", b->be.isa,
           fv_threads_count(b->threads), b->n_round, b->weights_bytes >> 20,
           fv_options_string(b->options, "clock"));
    for (int i = 0; i < b->n_row; i++) {
        bench_row r = b->rows[i];
        double value = bench_median(r.value, b->n_round);
        double fraction = bench_median(r.fraction, b->n_round);
        printf("%-46s %8.1f %-8s", r.name, value, r.unit);
        if (r.of) printf(" %5.1f %% %s", 100 * fraction, limits[r.of]);
        printf("\n");
        json_t *row = json_pack("{s:s, s:f, s:s}", "name", r.name, "value", value, "unit", r.unit);
        if (r.of) json_object_set_new(row, "fraction", json_real(fraction));
        json_array_append_new(rows, row);
    }
    bench_write_json(b->options,
                     json_pack("{s:s, s:i, s:i, s:o}", "isa", b->be.isa, "threads",
                               fv_threads_count(b->threads), "rounds", b->n_round, "rows", rows));
}
