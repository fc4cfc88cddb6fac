/* A mixture of experts (model/net/experts.h) of the shape of Qwen3-VL-30B-A3B: 128 experts of width 768,
 * 8 of them active, on a model of width 2048, in bf16.
 *
 *   decode    one token, whose experts differ from call to call: bytes of its active experts per second,
 *             beside a loop that only reads
 *   prefill   640 and 4096 tokens: FLOP/s, and the share of the rate of one dense FFN of 8 x 768 columns,
 *             which takes the same FLOPs
 *
 *     bench_experts --threads 2 --rounds 5 --json FILE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "common/convert.h"
#include "model/net/experts.h"

enum { E = 128, K = 8, D = 2048, M = 768, STEPS = 24, MOST = 4096 };

static const fv_text_config cfg = {
    .d_model = D, .n_expert = E, .n_active = K, .d_expert = M, .act = FV_ACT_SILU};

/* Weights of small numbers, repeated. */
static fv_tensor weights(int32_t rows, int32_t cols) {
    enum { SOME = 1 << 16 };
    const size_t n = (size_t)rows * (size_t)cols;
    uint16_t *at = aligned_alloc(4096, (n * sizeof *at + 4095) / 4096 * 4096);
    uint32_t seed = (uint32_t)rows;
    if (!at) bench_must(FV_FAIL(FV_ENOMEM, "out of memory for %d x %d weights", rows, cols));
    for (size_t i = 0; i < n && i < SOME; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = bf16_of_f32(((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.04f);
    }
    for (size_t i = SOME; i < n; i += SOME)
        memcpy(at + i, at, (n - i < SOME ? n - i : SOME) * sizeof *at);
    return fv_tensor_of(at, FV_BF16, rows, cols);
}

typedef struct rig {
    bench *b;
    fv_workspace ws;
    fv_text_layer experts, dense;
    fv_tensor h, y;     /* [MOST, D] */
    fv_tensor gate, up; /* [MOST, K M] of the dense FFN */
} rig;

static double seconds_of_experts(rig *r, int32_t row, int32_t n) {
    const double begin = bench_now_s();
    bench_must(fv_experts_run(&r->ws, &cfg, &r->experts, NULL, fv_tensor_rows(r->h, row, n),
                              fv_tensor_rows(r->h, row, n), fv_tensor_rows(r->y, row, n)));
    return bench_now_s() - begin;
}

static double seconds_of_dense(rig *r, int32_t n) {
    fv_backend *be = &r->b->be;
    fv_tensor gate = fv_tensor_rows(r->gate, 0, n), up = fv_tensor_rows(r->up, 0, n);
    fv_linear_args in = {.x = fv_tensor_rows(r->h, 0, n),
                         .n_part = 2,
                         .part = {{.w = r->dense.gate, .y = gate}, {.w = r->dense.up, .y = up}}};
    fv_activate_args act = {.act = FV_ACT_SILU, .x = gate, .gate = up, .y = gate};
    fv_linear_args out = {
        .x = gate, .n_part = 1, .part = {{.w = r->dense.down, .y = fv_tensor_rows(r->y, 0, n)}}};
    const double begin = bench_now_s();
    bench_must(be->ops->linear(be, &in));
    bench_must(be->ops->activate(be, &act));
    bench_must(be->ops->linear(be, &out));
    return bench_now_s() - begin;
}

static void measure_decode(rig *r) {
    const double bytes = 2.0 * K * 3 * D * M + 2.0 * E * D;
    double each[STEPS];
    bench_measure_read(r->b);
    for (int i = 0; i < STEPS; i++)
        each[i] = seconds_of_experts(r, (r->b->round * STEPS + i) % MOST, 1);
    bench_note(r->b, "decode, 1 token", "GB/s", bytes / bench_median(each, STEPS), 1e9, BENCH_READ);
}

static void measure_prefill(rig *r, int32_t n) {
    const double flops = 2.0 * n * K * 3 * D * M;
    char name[64];
    const double dense = seconds_of_dense(r, n), experts = seconds_of_experts(r, 0, n);
    snprintf(name, sizeof name, "prefill, %d tokens", n);
    bench_note(r->b, name, "GFLOP/s", flops / experts, 1e9, BENCH_NO_LIMIT);
    snprintf(name, sizeof name, "dense, %d tokens", n);
    bench_note(r->b, name, "GFLOP/s", flops / dense, 1e9, BENCH_NO_LIMIT);
    snprintf(name, sizeof name, "prefill / dense, %d tokens", n);
    bench_note(r->b, name, "%", 100 * dense / experts, 1, BENCH_NO_LIMIT);
}

int main(int argc, char **argv) {
    static bench b;
    bench_open(&b, argc, argv, "bench_experts [options]     only: decode, prefill",
               "How fast a mixture of experts is computed, beside reading and a dense product.");
    b.be.compute = FV_COMPUTE_BF16;
    rig r = {
        .b = &b,
        .ws = {.be = &b.be},
        .experts = {.router = weights(E, D),
                    .experts_in = weights(E * 2 * M, D),
                    .experts_out = weights(E * D, M)},
        .dense = {.gate = weights(K * M, D), .up = weights(K * M, D), .down = weights(D, K * M)},
        .h = bench_activations(MOST, D),
        .y = bench_activations(MOST, D),
        .gate = bench_activations(MOST, K * M),
        .up = bench_activations(MOST, K * M)};
    for (b.round = 0; b.round < b.n_round; b.round++) {
        b.next_row = 0;
        if (bench_wants(&b, "decode")) measure_decode(&r);
        if (bench_wants(&b, "prefill")) {
            measure_prefill(&r, 640);
            measure_prefill(&r, MOST);
        }
    }
    bench_report(&b);
    fv_workspace_fini(&r.ws);
    fv_tensor *owned[] = {&r.experts.router,
                          &r.experts.experts_in,
                          &r.experts.experts_out,
                          &r.dense.gate,
                          &r.dense.up,
                          &r.dense.down,
                          &r.h,
                          &r.y,
                          &r.gate,
                          &r.up};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]->data);
    bench_close(&b);
    return 0;
}
