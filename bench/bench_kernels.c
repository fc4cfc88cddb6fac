/* How near the CPU kernels come to what this machine can do (machine.h): matrix-vector products
 * (decode) as a fraction of the reading loop, matrix products (prefill) of the arithmetic one.
 *
 *     bench_kernels --rounds 9 --json results/kernels.json */
#include <stdio.h>
#include <stdlib.h>

#include "bench/machine.h"

static void no_work(void *arg, int thread, int64_t begin, int64_t end) {
    (void)arg, (void)thread, (void)begin, (void)end;
}

/* What a loop costs before it does anything: two chunks, one after the other in quick succession,
 * so that workers are awake, as between the operations of a forward pass. */
static void measure_fork(bench *b) {
    enum { LOOPS = 1000 };
    double t0 = bench_now_s();
    for (int i = 0; i < LOOPS; i++) fv_threads_for(b->threads, 2, 1, no_work, NULL);
    bench_note(b, "fork and join", "us", (bench_now_s() - t0) / LOOPS, 1e-6, BENCH_NO_LIMIT);
}

/* ---- row-wise -------------------------------------------------------------------------- */

/* Elements per second of norm and activate, on one row and on many. */
static void measure_rowwise(bench *b) {
    enum { K = 4096, CALLS = 20 };
    char name[64];
    for (int M = 1; M <= 640; M += 639) {
        fv_tensor x = bench_activations(M, K), w = bench_activations(1, K),
                  y = bench_activations(M, K);
        fv_norm_args norm = {.x = x, .w = w, .y = y, .eps = 1e-5f, .rms = true};
        fv_activate_args act = {.act = FV_ACT_SILU, .x = x, .gate = x, .y = y};
        double t0 = bench_now_s();
        for (int i = 0; i < CALLS; i++) bench_must(b->be.ops->norm(&b->be, &norm));
        double t1 = bench_now_s();
        for (int i = 0; i < CALLS; i++) bench_must(b->be.ops->activate(&b->be, &act));
        double t2 = bench_now_s(), elements = (double)M * K * CALLS;
        snprintf(name, sizeof name, "rms norm %d rows of %d", M, K);
        bench_note(b, name, "G/s", elements / (t1 - t0), 1e9, BENCH_NO_LIMIT);
        snprintf(name, sizeof name, "silu and gate %d rows of %d", M, K);
        bench_note(b, name, "G/s", elements / (t2 - t1), 1e9, BENCH_NO_LIMIT);
        free(x.data);
        free(w.data);
        free(y.data);
    }
}

/* ---- linear ---------------------------------------------------------------------------- */

/* Seconds of one call, averaged over as many as read `bytes_min` bytes of weights. */
static double linear_s(bench *b, fv_dtype t, int M, int N, int K, size_t bytes_min) {
    fv_linear_args a = {.x = bench_activations(M, K), .n_part = 1};
    size_t bytes = (size_t)N * (size_t)K * fv_dtype_bytes(t);
    int calls = (int)((bytes_min + bytes - 1) / bytes);
    a.part[0].y = bench_activations(M, N);
    double t0 = bench_now_s();
    for (int i = 0; i < calls; i++) {
        a.part[0].w = bench_weight(b, t, N, K);
        bench_must(b->be.ops->linear(&b->be, &a));
    }
    double s = (bench_now_s() - t0) / calls;
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
                bench_measure_read(b);
                double time = linear_s(b, t, M, N, K, BENCH_READ_BYTES);
                snprintf(name, sizeof name, "linear %dx%d %s M=%d", N, K, fv_dtype_name(t), M);
                bench_note(b, name, "GB/s", bytes / time, 1e9, BENCH_READ);
            }
}

static void measure_gemm(bench *b) {
    static const int shapes[][2] = {{1024, 1024}, {2752, 1024}, {4096, 4096}, {11008, 4096}};
    char name[64];
    for (int s = 0; s < 4; s++)
        for (fv_dtype t = FV_F32; t <= FV_BF16; t++) {
            int N = shapes[s][0], K = shapes[s][1], M = 640;
            bench_measure_fma(b);
            double time = linear_s(b, t, M, N, K, s < 2 ? (size_t)16 << 20 : 1);
            snprintf(name, sizeof name, "linear %dx%d %s M=%d", N, K, fv_dtype_name(t), M);
            bench_note(b, name, "GFLOP/s", 2.0 * M * N * K / time, 1e9, BENCH_FMA);
        }
}

/* ---- attention ------------------------------------------------------------------------- */

/* n_seq sequences of `rows` query rows that see `len` keys each (causally). The KV blocks are
 * pieces of the weight buffer. Seconds of one call. */
static double attention_s(bench *b, int n_seq, int rows, int len, int H, int Hkv, int D) {
    int n_block = (len + FV_KV_BLOCK - 1) / FV_KV_BLOCK, n_run = n_seq * Hkv;
    fv_kv_block *blocks = malloc((size_t)(n_run * n_block) * sizeof *blocks);
    fv_block_table *runs = malloc((size_t)n_run * sizeof *runs);
    fv_attn_seq *seqs = malloc((size_t)n_seq * sizeof *seqs);
    int32_t *masked_tail = malloc((size_t)rows * sizeof *masked_tail);
    if (!blocks || !runs || !seqs || !masked_tail) exit(1);
    for (int i = 0; i < n_run * n_block; i++) {
        blocks[i].k = bench_weight(b, FV_BF16, FV_KV_BLOCK, D).data;
        blocks[i].v = bench_weight(b, FV_BF16, FV_KV_BLOCK, D).data;
    }
    for (int i = 0; i < n_run; i++)
        runs[i] = (fv_block_table){.block = blocks + (ptrdiff_t)i * n_block, .len = len};
    for (int i = 0; i < rows; i++) masked_tail[i] = rows - 1 - i;
    for (int i = 0; i < n_seq; i++)
        seqs[i] = (fv_attn_seq){.row0 = i * rows,
                                .n_rows = rows,
                                .n_seg = 1,
                                .tables = runs + (ptrdiff_t)i * Hkv,
                                .masked_tail = masked_tail};
    fv_attn_args a = {.q = bench_activations(n_seq * rows, H * D),
                      .o = bench_activations(n_seq * rows, H * D),
                      .kv_dtype = FV_BF16,
                      .n_head = H,
                      .n_kv = Hkv,
                      .d_head = D,
                      .n_seq = n_seq,
                      .scale = 0.1f,
                      .seqs = seqs};
    double t0 = bench_now_s();
    bench_must(b->be.ops->attention(&b->be, &a));
    double s = bench_now_s() - t0;
    free(a.q.data);
    free(a.o.data);
    free(masked_tail);
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
        M > 1 ? bench_measure_fma(b) : bench_measure_read(b);
        double time = attention_s(b, n, M, L, H, Hkv, D);
        double seen = (double)M * L - 0.5 * M * (M - 1); /* keys over all rows */
        snprintf(name, sizeof name, "attention %dx%d rows %d keys H=%d/%d D=%d", n, M, L, H, Hkv,
                 D);
        if (M > 1)
            bench_note(b, name, "GFLOP/s", 4.0 * n * seen * H * D / time, 1e9, BENCH_FMA);
        else
            bench_note(b, name, "GB/s", 4.0 * n * (double)L * Hkv * D / time, 1e9, BENCH_READ);
    }
}

int main(int argc, char **argv) {
    static bench b;
    if (!bench_open(&b, argc, argv,
                    "bench_kernels [options]     only: rowwise, gemv, gemm, attention",
                    "CPU kernels against the machine."))
        return 0;
    for (b.round = 0; b.round < b.n_round; b.round++) {
        b.next_row = 0;
        bench_measure_fma(&b);
        bench_measure_read(&b);
        bench_note(&b, "fused multiply-adds in registers", "GFLOP/s", b.fma_rate, 1e9,
                   BENCH_NO_LIMIT);
        bench_note(&b, "reading", "GB/s", b.read_rate, 1e9, BENCH_NO_LIMIT);
        measure_fork(&b);
        if (bench_wants(&b, "rowwise")) measure_rowwise(&b);
        if (bench_wants(&b, "gemv")) measure_gemv(&b);
        if (bench_wants(&b, "gemm")) measure_gemm(&b);
        if (bench_wants(&b, "attention")) measure_attention(&b);
    }
    bench_report(&b);
    bench_close(&b);
    return 0;
}
