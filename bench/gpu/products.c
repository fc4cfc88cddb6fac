/* The two ceilings, then matrix products and row-wise operations at the widths of LLaVA-1.5-7B. */
#include <math.h>
#include <stdlib.h>

#include "bench/gpu/rig.h"

enum { MAX_SET = 64 };

/* ---- ceilings -------------------------------------------------------------------------- */

typedef struct copy {
    fv_buf from, to;
} copy;

static fv_status do_copy(void *arg, int32_t call) {
    copy *c = arg;
    fv_device *dev = rig.be.device;
    (void)call;
    return dev->ops->copy_async(dev, c->to.data, c->from.data, c->to.bytes);
}

static void copy_rate(void) {
    copy c;
    fv_tensor t = bench_tensor(FV_F32, rig.small ? 64 : 1 << 14, 1 << 14, &c.from);
    double bytes = (double)t.rows * t.cols * 4;
    must(fv_buf_alloc(rig.be.device, (size_t)bytes, FV_BUF_DEVICE, &c.to));
    double s = bench_seconds(do_copy, &c, 20);
    rig.copy_rate = 2 * bytes / s;
    bench_row("copy", "copy on the device (ceiling)", s, 2 * bytes, 0, NO_AIM);
    fv_buf_free(&c.from);
    fv_buf_free(&c.to);
}

/* ---- linear ---------------------------------------------------------------------------- */

typedef struct linear {
    fv_linear_args a;
    fv_tensor w[MAX_SET];
    fv_buf w_buf[MAX_SET], x_buf, y_buf;
    int32_t n_set;
} linear;

static fv_status do_linear(void *arg, int32_t call) {
    linear *l = arg;
    l->a.part[0].w = l->w[call % l->n_set];
    return rig.be.ops->linear(&rig.be, &l->a);
}

/* Weights of at least 512 MiB in total: an L2 cache holds a tenth of that. */
static void measure_linear(const char *key, const char *name, int32_t M, int32_t N, int32_t K,
                           int32_t calls) {
    linear *l = zeroed(1, sizeof *l);
    if (rig.small) M = M < 4 ? M : 4, N = 64, K = 64;
    double w_bytes = 2.0 * N * K, flop = 2.0 * M * N * K;
    l->n_set = rig.small ? 1 : (int32_t)fmin(MAX_SET, 1 + 512e6 / w_bytes);
    for (int32_t i = 0; i < l->n_set; i++) l->w[i] = bench_tensor(FV_BF16, N, K, &l->w_buf[i]);
    l->a = (fv_linear_args){.x = bench_tensor(FV_F32, M, K, &l->x_buf), .n_part = 1};
    l->a.part[0].y = bench_tensor(FV_F32, M, N, &l->y_buf);
    double s = bench_seconds(do_linear, l, calls);
    if (rig.product_rate == 0) rig.product_rate = flop / s;
    bench_row(key, name, s, w_bytes + 4.0 * M * (N + K), flop, NO_AIM);
    for (int32_t i = 0; i < l->n_set; i++) fv_buf_free(&l->w_buf[i]);
    fv_buf_free(&l->x_buf);
    fv_buf_free(&l->y_buf);
    free(l);
}

/* The product is wide enough that rounding x, which is part of a call, costs little. */
void bench_ceilings(void) {
    copy_rate();
    measure_linear("product", "linear 8192 x 32768 x 8192 (ceiling)", 8192, 32768, 8192, 5);
}

/* ---- row-wise -------------------------------------------------------------------------- */

static fv_status do_norm(void *arg, int32_t call) {
    (void)call;
    return rig.be.ops->norm(&rig.be, arg);
}

static fv_status do_activate(void *arg, int32_t call) {
    (void)call;
    return rig.be.ops->activate(&rig.be, arg);
}

static void measure_rowwise(int32_t M) {
    fv_buf b[4];
    char name[64];
    int32_t d = rig.small ? 64 : 4096, m = rig.small ? 96 : 11008;
    if (rig.small) M = M < 4 ? M : 4;
    fv_tensor x = bench_tensor(FV_F32, M, d, &b[0]), y = bench_tensor(FV_F32, M, d, &b[1]);
    fv_norm_args norm = {
        .x = x, .w = bench_tensor(FV_BF16, 1, d, &b[2]), .y = y, .eps = 1e-5f, .rms = true};
    snprintf(name, sizeof name, "rms norm, %d rows of %d", M, d);
    bench_row("norm", name, bench_seconds(do_norm, &norm, 200), 8.0 * M * d, 0, NO_AIM);
    fv_tensor g = bench_tensor(FV_F32, M, m, &b[3]);
    fv_activate_args act = {FV_ACT_SILU, g, g, g, false};
    snprintf(name, sizeof name, "silu and gate, %d rows of %d", M, m);
    bench_row("activate", name, bench_seconds(do_activate, &act, 200), 8.0 * M * m, 0, NO_AIM);
    for (int32_t i = 0; i < 4; i++) fv_buf_free(&b[i]);
}

void bench_products(void) {
    static const int32_t batches[] = {1, 16, 64, 640, 4096};
    char name[64], key[32];
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        int32_t M = batches[i], calls = M > 64 ? 20 : 100;
        snprintf(key, sizeof key, "linear_qkv_%d", M);
        snprintf(name, sizeof name, "linear %d rows, q k v: 4096 -> 12288", M);
        measure_linear(key, name, M, 12288, 4096, calls);
        snprintf(key, sizeof key, "linear_down_%d", M);
        snprintf(name, sizeof name, "linear %d rows, down: 11008 -> 4096", M);
        measure_linear(key, name, M, 4096, 11008, calls);
        measure_rowwise(M);
    }
}
