/* A mixture of experts: routing, sums in the order of indices, and bits that depend neither on the batch
 * nor on threads and instruction sets. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "model/net/experts.h"
#include "model/quantize.h"

/* E experts of width M; band widths have tails. */
enum { E = 9, K = 3, D = 140, M = 70, TOKENS = 45 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static fv_text_config cfg = {
    .d_model = D, .n_expert = E, .n_active = K, .d_expert = M, .act = FV_ACT_SILU};
static float router[E * D], in[E * 2 * M * D], out[E * D * M], h[TOKENS * D];

static const fv_text_expert *apart; /* the experts of `run`, if they are tensors of their own */

static fv_text_layer layer_of(void) {
    return (fv_text_layer){.router = fv_tensor_of(router, FV_F32, E, D),
                           .experts_in = fv_tensor_of(in, FV_F32, E * 2 * M, D),
                           .experts_out = fv_tensor_of(out, FV_F32, E * D, M)};
}

static void fill(float *x, size_t n, float scale, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = scale * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

static void begin(void) {
    apart = NULL;
    fill(router, sizeof router / sizeof *router, 0.3f, 1);
    fill(in, sizeof in / sizeof *in, 0.15f, 2);
    fill(out, sizeof out / sizeof *out, 0.2f, 3);
    fill(h, sizeof h / sizeof *h, 1.0f, 4);
}

TestSuite(experts, .init = begin);

/* Rows [t0, t0 + n) of h, in place if `same`. */
static void run(const char *isa, int32_t threads, fv_compute compute, const fv_text_layer *layer,
                int32_t t0, int32_t n, bool same, float *y) {
    fv_backend be;
    ok(fv_backend_open(&be, "cpu", &(fv_backend_options){.isa = isa, .n_threads = threads}));
    be.compute = compute;
    fv_workspace ws = {.be = &be};
    fv_tensor x = fv_tensor_of(h + t0 * D, FV_F32, n, D), to = fv_tensor_of(y, FV_F32, n, D);
    if (same) {
        memcpy(y, x.data, (size_t)n * D * sizeof *y);
        x = to;
    }
    ok(fv_experts_check(&be));
    ok(fv_experts_run(&ws, &cfg, layer, apart, x, x, to));
    fv_workspace_fini(&ws);
    fv_backend_close(&be);
}

/* ---- routing -------------------------------------------------------------------------------- */

Test(experts, the_highest_logits_are_chosen_in_the_order_of_their_indices) {
    static const float logits[2][5] = {{1, 4, 2, 3, -1}, {0, 0, 0, 7, 7}};
    int32_t expert[6];
    float weight[6];
    fv_experts_route(&(fv_text_config){.n_expert = 5, .n_active = 3}, NULL, logits[0], 2, expert,
                     weight);
    cr_assert(expert[0] == 1 && expert[1] == 2 && expert[2] == 3);
    cr_assert(expert[3] == 0 && expert[4] == 3 && expert[5] == 4, "on a tie the lower index");
    const double sum = 1 + exp(-2) + exp(-1);
    cr_assert_float_eq(weight[0], 1 / sum, 1e-6);
    cr_assert_float_eq(weight[1], exp(-2) / sum, 1e-6);
    cr_assert_float_eq(weight[2], exp(-1) / sum, 1e-6);
    cr_assert_eq(weight[4], weight[5]);
}

Test(experts, nan_is_chosen_last) {
    static const float logits[4] = {NAN, 2, NAN, 1};
    int32_t expert[3];
    float weight[3];
    fv_experts_route(&(fv_text_config){.n_expert = 4, .n_active = 2}, NULL, logits, 1, expert,
                     weight);
    cr_assert(expert[0] == 1 && expert[1] == 3 && weight[0] > weight[1]);
    fv_experts_route(&(fv_text_config){.n_expert = 4, .n_active = 3}, NULL, logits, 1, expert,
                     weight);
    cr_assert(expert[0] == 0 && expert[1] == 1 && expert[2] == 3);
}

Test(experts, all_experts_can_be_active) {
    static const float logits[3] = {5, 5, 5};
    int32_t expert[3];
    float weight[3];
    fv_experts_route(&(fv_text_config){.n_expert = 3, .n_active = 3}, NULL, logits, 1, expert,
                     weight);
    cr_assert(expert[0] == 0 && expert[1] == 1 && expert[2] == 2 && weight[0] == 1.0f / 3);
}

/* Scores of 6 experts by sigmoids, with a bias that chooses but does not weigh. */
Test(experts, a_bias_chooses_but_does_not_weigh) {
    static const float logits[6] = {0, 2, -1, 1, 0.5f, -3}, bias[6] = {0, -1, 0.9f, 0, 0, 0};
    fv_text_config c = {
        .n_expert = 6, .n_active = 2, .router = {.sigmoid = true, .normed = true, .scale = 1}};
    int32_t expert[2];
    float weight[2];
    const double a = 1 / (1 + exp(1)), b = 1 / (1 + exp(-1));
    fv_experts_route(&c, bias, logits, 1, expert, weight);
    cr_assert(expert[0] == 2 && expert[1] == 3, "%d %d", expert[0], expert[1]);
    cr_assert_float_eq(weight[0], a / (a + b), 1e-6);
    cr_assert_float_eq(weight[1], b / (a + b), 1e-6);
    c.router.normed = false, c.router.scale = 2.5f;
    fv_experts_route(&c, bias, logits, 1, expert, weight);
    cr_assert_float_eq(weight[0], 2.5 * a, 1e-6);
    fv_experts_route(&c, NULL, logits, 1, expert, weight);
    cr_assert(expert[0] == 1 && expert[1] == 3, "%d %d", expert[0], expert[1]);
}

/* The best expert of all is in a group whose two best have a lower sum. */
Test(experts, only_experts_of_the_best_groups_are_chosen) {
    static const float logits[8] = {3, -9, 1, 1, 0, 0, 0, 0};
    fv_text_config c = {.n_expert = 8,
                        .n_active = 2,
                        .router = {.sigmoid = true, .n_group = 4, .n_open = 1, .scale = 1}};
    int32_t expert[2];
    float weight[2];
    fv_experts_route(&c, NULL, logits, 1, expert, weight);
    cr_assert(expert[0] == 2 && expert[1] == 3, "%d %d", expert[0], expert[1]);
    c.router.n_open = 3; /* then the third is the lower of equal groups */
    c.n_active = 1;
    fv_experts_route(&c, NULL, (const float[8]){-9, -9, 1, 1, 0, 0, 0, 0}, 1, expert, weight);
    cr_assert_eq(expert[0], 2);
    c.n_active = 2, c.router.n_open = 2;
    fv_experts_route(&c, NULL, (const float[8]){0, 0, -9, -9, 0, 0, 0, 0}, 1, expert, weight);
    cr_assert(expert[0] == 0 && expert[1] == 1, "%d %d", expert[0], expert[1]);
}

Test(experts, scores_of_0_and_nan_give_numbers) {
    static const float logits[4] = {-1000, -1000, NAN, -1000};
    const fv_text_config c = {
        .n_expert = 4,
        .n_active = 2,
        .router = {.sigmoid = true, .normed = true, .n_group = 2, .n_open = 2, .scale = 1}};
    int32_t expert[2];
    float weight[2];
    fv_experts_route(&c, NULL, logits, 1, expert, weight);
    cr_assert(expert[0] == 0 && expert[1] == 1 && weight[0] == 0 && weight[1] == 0);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static double dot(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* y of one token in double. */
static void reference(const float *x, double y[D]) {
    float logits[E];
    int32_t expert[K];
    float weight[K];
    for (int32_t e = 0; e < E; e++) logits[e] = (float)dot(x, router + e * D, D);
    fv_experts_route(&cfg, NULL, logits, 1, expert, weight);
    memset(y, 0, D * sizeof *y);
    for (int32_t j = 0; j < K; j++) {
        const float *gate = in + expert[j] * 2 * M * D, *up = gate + M * D;
        float mid[M];
        for (int32_t i = 0; i < M; i++) {
            const double g = dot(x, gate + i * D, D);
            mid[i] = (float)(g / (1 + exp(-g)) * dot(x, up + i * D, D));
        }
        for (int32_t i = 0; i < D; i++)
            y[i] += (double)weight[j] * dot(mid, out + (expert[j] * D + i) * M, M);
    }
}

Test(experts, the_sum_is_that_of_the_equation) {
    const fv_text_layer layer = layer_of();
    static float y[TOKENS * D];
    run("plain", 2, FV_COMPUTE_F32, &layer, 0, TOKENS, false, y);
    for (int32_t t = 0; t < TOKENS; t++) {
        double want[D];
        reference(h + t * D, want);
        for (int32_t i = 0; i < D; i++) cr_assert_float_eq(y[t * D + i], want[i], 2e-5);
    }
}

static const char *const isas[] = {
#define FV_ISA(name, flags) #name,
#include "kernels/cpu/isa.def"
};

/* Whether this machine has the instruction set. */
static bool has(const char *isa) {
    fv_backend be;
    if (fv_backend_open(&be, "cpu", &(fv_backend_options){.isa = isa, .n_threads = 1}) != FV_OK)
        return false;
    fv_backend_close(&be);
    return true;
}

static void expect_same_bits(const fv_text_layer *layer, fv_compute compute, const char *what) {
    static float want[TOKENS * D], y[TOKENS * D];
    run("plain", 1, compute, layer, 0, TOKENS, false, want);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!has(isas[i])) continue;
        run(isas[i], 3, compute, layer, 0, TOKENS, true, y);
        cr_expect_eq(memcmp(y, want, sizeof y), 0, "%s, %s: all tokens", what, isas[i]);
        for (int32_t t0 = 0, n = 1; t0 < TOKENS; t0 += n, n = n * 3 + 1) {
            if (n > TOKENS - t0) n = TOKENS - t0;
            run(isas[i], 2, compute, layer, t0, n, false, y);
            cr_expect_eq(memcmp(y, want + t0 * D, (size_t)n * D * sizeof *y), 0,
                         "%s, %s: tokens %d to %d", what, isas[i], t0, t0 + n);
        }
    }
}

Test(experts, bits_depend_on_nothing_but_the_token) {
    const fv_text_layer layer = layer_of();
    expect_same_bits(&layer, FV_COMPUTE_F32, "f32");
    expect_same_bits(&layer, FV_COMPUTE_BF16, "bf16");
}

static void *quantized(fv_tensor *w, const fv_weights *to) {
    fv_tensor from = *w;
    void *memory = malloc(fv_quantize_bytes(&from, to));
    cr_assert(fv_quantize(&from, to, memory, w));
    return memory;
}

Test(experts, weights_in_integers_are_cut_as_others) {
    static const char *const names[] = {"int8", "int4", "int4-128"};
    for (int i = 0; i < 3; i++) {
        fv_text_layer layer = layer_of();
        const fv_weights *to;
        ok(fv_weights_find(names[i], &to));
        void *first = quantized(&layer.experts_in, to), *second = quantized(&layer.experts_out, to);
        expect_same_bits(&layer, FV_COMPUTE_BF16, names[i]);
        static float y[TOKENS * D];
        run("auto", 2, FV_COMPUTE_F32, &layer, 0, TOKENS, false, y);
        double off = 0, all = 0;
        for (int32_t t = 0; t < TOKENS; t++) {
            double want[D];
            reference(h + t * D, want);
            for (int32_t k = 0; k < D; k++) {
                off += (y[t * D + k] - want[k]) * (y[t * D + k] - want[k]);
                all += want[k] * want[k];
            }
        }
        cr_expect_lt(sqrt(off / all), i == 0 ? 0.02 : 0.15, "%s: %g", names[i], sqrt(off / all));
        free(first);
        free(second);
    }
}

/* A router may read another input than the experts, and a factor of an expert multiplies its
 * weight after the weights were made to sum to 1. */
Test(experts, a_router_may_have_an_input_of_its_own_and_experts_a_factor) {
    static float scale[E], seen[TOKENS * D], plain[TOKENS * D], y[TOKENS * D];
    fv_text_layer layer = layer_of();
    fv_backend be;
    ok(fv_backend_open(&be, "cpu", &(fv_backend_options){.isa = "plain", .n_threads = 1}));
    fv_workspace ws = {.be = &be};
    fv_tensor x = fv_tensor_of(h, FV_F32, TOKENS, D), to = fv_tensor_of(y, FV_F32, TOKENS, D);
    run("plain", 1, FV_COMPUTE_F32, &layer, 0, TOKENS, false, plain);
    for (int e = 0; e < E; e++) scale[e] = 2;
    layer.expert_scale = fv_tensor_of(scale, FV_F32, 1, E);
    ok(fv_experts_run(&ws, &cfg, &layer, NULL, x, x, to));
    for (int i = 0; i < TOKENS * D; i++) cr_assert_eq(y[i], 2 * plain[i]);
    for (int i = 0; i < TOKENS * D; i++) seen[i] = -h[i];
    ok(fv_experts_run(&ws, &cfg, &layer, NULL, fv_tensor_of(seen, FV_F32, TOKENS, D), x, to));
    int differ = 0;
    for (int t = 0; t < TOKENS; t++) differ += memcmp(y + t * D, plain + t * D, D * sizeof *y) != 0;
    cr_assert_eq(differ, TOKENS, "the lowest logits are the highest of the other input");
    fv_workspace_fini(&ws);
    fv_backend_close(&be);
}

/* Experts that are tensors of their own give the bits of those in one tensor. */
Test(experts, experts_of_their_own_give_the_same_bits) {
    static float want[TOKENS * D], y[TOKENS * D];
    fv_text_expert own[E];
    fv_text_layer layer = layer_of();
    run("plain", 1, FV_COMPUTE_F32, &layer, 0, TOKENS, false, want);
    for (int e = 0; e < E; e++) {
        float *gate = malloc(3 * sizeof in / E / 2);
        memcpy(gate, in + e * 2 * M * D, sizeof in / E);
        memcpy(gate + 2 * M * D, out + e * D * M, sizeof out / E);
        own[e] = (fv_text_expert){fv_tensor_of(gate, FV_F32, M, D),
                                  fv_tensor_of(gate + M * D, FV_F32, M, D),
                                  fv_tensor_of(gate + 2 * M * D, FV_F32, D, M)};
    }
    layer.experts_in.data = layer.experts_out.data = NULL;
    apart = own;
    run("plain", 2, FV_COMPUTE_F32, &layer, 0, TOKENS, false, y);
    cr_expect_eq(memcmp(y, want, sizeof y), 0);
    expect_same_bits(&layer, FV_COMPUTE_BF16, "apart");
    for (int e = 0; e < E; e++) free(own[e].gate.data);
}
