/* Every operation against the textbook, in double precision and in the plainest loops.
 *
 * The other programs compare paths with each other; this one checks that their common result is
 * right. Tolerances follow from f32 arithmetic on inputs of size 1; types narrower than f32 enter
 * exactly, because the reference reads the same stored values. */
#include "tests/ops/attention_case.h"
#include "tests/ops/ops_test.h"

#include "common/convert.h"
#include "kernels/mathf.h"

enum { MAX_VARIANT = 12 };

static variant variants[MAX_VARIANT];
static int n_variant;

static const double EPS = 0x1p-24;

/* ---- exp, log, erf, tanh --------------------------------------------------------------- */

/* Distance in units of the last place of an f32 at `exact`. */
static double ulps(float got, double exact) {
    if ((double)got == exact || (got != got && exact != exact)) return 0;
    if (fabs(exact) >= 0x1.ffffffp127) return isinf(got) && got * exact > 0 ? 0 : INFINITY;
    if (isinf(got)) return fabs(exact) >= 0x1.fffffep127 ? 0 : INFINITY;
    int e;
    frexp(exact, &e);
    return fabs((double)got - exact) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static void sweep(const char *name, float (*f)(float), double (*exact)(double), uint32_t first,
                  uint32_t last, double bound) {
    char line[80];
    double worst = 0;
    float at = 0;
    for (uint64_t u = first; u <= last; u += 509) {
        float x = f32_of_bits((uint32_t)u);
        double d = ulps(f(x), exact((double)x));
        if (!(d <= worst)) {
            worst = d;
            at = x;
        }
    }
    snprintf(line, sizeof line, "%s: largest error %.2f ulp", name, worst);
    group(line);
    check(worst <= bound, "%s(%a): %.3f ulp, at most %.2f are allowed", name, (double)at, worst,
          bound);
    group_end();
}

static void test_math(void) {
    const uint32_t inf = 0x7f800000, sign = 0x80000000;
    sweep("exp, positive", exp_f32, exp, 0, inf, 1.0);
    sweep("exp, negative", exp_f32, exp, sign, sign | inf, 1.0);
    sweep("log", log_f32, log, 0, inf, 1.0);
    sweep("erf, positive", erf_f32, erf, 0, inf, 1.1);
    sweep("erf, negative", erf_f32, erf, sign, sign | inf, 1.1);
    sweep("tanh", tanh_f32, tanh, 0, inf, 1.5);
    group("exp, log, erf, tanh: special values");
    check(exp_f32(-INFINITY) == 0 && exp_f32(INFINITY) == INFINITY, "exp of infinities");
    check(exp_f32(0.0f) == 1 && exp_f32(-0.0f) == 1, "exp of zeros");
    check(isnan(exp_f32(NAN)) && isnan(log_f32(NAN)), "exp, log of NaN");
    check(isnan(erf_f32(NAN)) && isnan(tanh_f32(NAN)), "erf, tanh of NaN");
    check(log_f32(0.0f) == -INFINITY && log_f32(1.0f) == 0, "log of 0 and 1");
    check(log_f32(INFINITY) == INFINITY && isnan(log_f32(-1.0f)), "log of inf and -1");
    check(erf_f32(-INFINITY) == -1 && tanh_f32(-INFINITY) == -1, "erf, tanh of -inf");
}

/* ---- narrowing ------------------------------------------------------------------------- */

/* Rounds x to a type with `mantissa` bits after the point and smallest exponent `e_min`. */
static double rounded(double x, int mantissa, int e_min, double largest) {
    if (x != x || isinf(x) || x == 0) return x;
    int e = ilogb(x) < e_min ? e_min : ilogb(x);
    double unit = ldexp(1, e - mantissa), y = nearbyint(x / unit) * unit; /* ties to even */
    return fabs(y) > largest ? copysign(INFINITY, x) : y;
}

static void test_narrow(void) {
    group("narrowing to bf16 and f16: nearest, ties to even, over all floats");
    fv_tensor b = tensor_new(FV_BF16, 1, 1, 0), h = tensor_new(FV_F16, 1, 1, 0);
    int bad = 0;
    for (uint64_t u = 0; u <= UINT32_MAX; u += 1021) {
        /* Every other one is moved to a tie. */
        float x = f32_of_bits((uint32_t)(u & 1 ? u & ~0xfffULL : u));
        *(uint16_t *)b.data = bf16_of_f32(x);
        *(uint16_t *)h.data = f16_of_f32(x);
        double eb = rounded((double)x, 7, -126, 0x1.fep127);
        double eh = rounded((double)x, 10, -14, 65504);
        double gb = get(&b, 0, 0), gh = get(&h, 0, 0);
        bool ok = (gb == eb || (gb != gb && eb != eb)) && (gh == eh || (gh != gh && eh != eh));
        ok &= x != x || (!signbit(gb) == !signbit(x) && !signbit(gh) == !signbit(x));
        if (!ok && bad++ < 5) check(false, "%a: bf16 %a f16 %a", (double)x, gb, gh);
    }
    check(bad == 0, "%d wrong", bad);
    group("widening: every bf16 and f16 pattern");
    bad = 0;
    for (unsigned u = 0; u < 65536; u++) {
        *(uint16_t *)b.data = (uint16_t)u;
        *(uint16_t *)h.data = (uint16_t)u;
        float wb = f32_of_bf16((uint16_t)u), wh = f32_of_f16((uint16_t)u);
        double gb = get(&b, 0, 0), gh = get(&h, 0, 0);
        bad += !((double)wb == gb || (wb != wb && gb != gb)) ||
               !((double)wh == gh || (wh != wh && gh != gh));
    }
    check(bad == 0, "%d wrong", bad);
    free(b.data);
    free(h.data);
}

/* ---- linear ---------------------------------------------------------------------------- */

static void linear_case(fv_backend *be, const char *name, fv_dtype t, int M, int K, int N) {
    fv_linear_args a = {.x = tensor_new(FV_F32, M, K, 1), .n_part = 2};
    fill_normal(&a.x, 1);
    for (int p = 0; p < 2; p++) {
        a.part[p].w = tensor_new(t, N, K, 0);
        a.part[p].y = tensor_new(FV_F32, M, N, 2);
        fill_normal(&a.part[p].w, 1);
        fill_normal(&a.part[p].y, 1);
    }
    a.part[1].bias = tensor_new(t, 1, N, 0);
    a.part[1].accumulate = true;
    fill_normal(&a.part[1].bias, 1);
    fv_tensor before = tensor_new(FV_F32, M, N, 2);
    memcpy(before.data, a.part[1].y.data, tensor_bytes(&before));
    must(be->ops->linear(be, &a));
    double worst = 0;
    for (int p = 0; p < 2; p++)
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                double sum = p ? get(&a.part[1].bias, 0, n) + get(&before, m, n) : 0;
                double size = fabs(sum) + 1;
                for (int k = 0; k < K; k++) {
                    double term = get(&a.x, m, k) * get(&a.part[p].w, n, k);
                    sum += term;
                    size += fabs(term);
                }
                /* K / 16 fused steps, 4 of the tree, bias and accumulation */
                double bound = EPS * (K / 16 + 8) * size;
                double d = fabs(get(&a.part[p].y, m, n) - sum) / bound;
                worst = d > worst ? d : worst;
            }
    check(worst <= 1, "%s %s M=%d K=%d N=%d: %.2f of the bound", name, fv_dtype_name(t), M, K, N,
          worst);
    for (int p = 0; p < 2; p++) {
        free(a.part[p].w.data);
        free(a.part[p].y.data);
    }
    free(a.part[1].bias.data);
    free(before.data);
    free(a.x.data);
}

static void test_linear(void) {
    group("linear: x w^T + bias + y");
    for (int v = 0; v < n_variant; v++)
        for (fv_dtype t = FV_F32; t < FV_N_DTYPE; t++) {
            linear_case(&variants[v].be, variants[v].name, t, 1, 700, 9);
            linear_case(&variants[v].be, variants[v].name, t, 7, 65, 35);
            linear_case(&variants[v].be, variants[v].name, t, 50, 1100, 21);
            linear_case(&variants[v].be, variants[v].name, t, 9, 0, 21);
            linear_case(&variants[v].be, variants[v].name, t, 50, 0, 21);
        }
}

/* ---- the canonical order ---------------------------------------------------------------- */

/* The dot product as kernels/ops.h defines it; w = NULL is a vector of ones. */
static float canonical_dot(const float *x, const float *w, int n) {
    float acc[16] = {0};
    for (int k = 0; k < n; k++)
        acc[k % 16] = w ? fmaf(x[k], w[k], acc[k % 16]) : acc[k % 16] + x[k];
    for (int i = n % 16; n % 16 && i < 16; i++) acc[i] = acc[i] + 0.0f; /* zero padding */
    for (int s = 8; s > 0; s /= 2)
        for (int i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

static void test_canonical(void) {
    group("linear and norm: the order of summation of ops.h, to the bit");
    enum { K = 1999, N = 5 };
    fv_tensor x = tensor_new(FV_F32, 1, K, 0), w = tensor_new(FV_F32, N, K, 0);
    fv_tensor b = tensor_new(FV_F32, 1, K, 0), y = tensor_new(FV_F32, 1, K, 0);
    float *xs = x.data, *ws = w.data, *bs = b.data, *ys = y.data, centred[K];
    for (int v = 0; v < n_variant; v++) {
        fv_backend be = variants[v].be;
        fill_normal(&x, 1);
        fill_normal(&w, 1);
        fill_normal(&b, 1);
        fv_tensor bias = fv_tensor_of(bs, FV_F32, 1, N), out = fv_tensor_of(ys, FV_F32, 1, N);
        fv_linear_args lin = {.x = x, .n_part = 1, .part = {{w, bias, out, true}}};
        bool ok = true;
        float before[N] = {1, 2, 3, 4, 5};
        memcpy(ys, before, sizeof before);
        must(be.ops->linear(&be, &lin));
        for (int n = 0; n < N; n++)
            ok &= same_f32(ys[n], (canonical_dot(xs, ws + n * K, K) + bs[n]) + before[n]);
        check(ok, "%s linear", variants[v].name);

        fv_tensor gain = fv_tensor_of(ws, FV_F32, 1, K);
        must(be.ops->norm(&be, &(fv_norm_args){x, gain, {0}, y, 1e-5f, true}));
        float scale = sqrtf(canonical_dot(xs, xs, K) / (float)K + 1e-5f);
        ok = true;
        for (int k = 0; k < K; k++) ok &= same_f32(ys[k], ws[k] * (xs[k] / scale));
        check(ok, "%s rms norm", variants[v].name);

        must(be.ops->norm(&be, &(fv_norm_args){x, gain, b, y, 1e-5f, false}));
        float mean = canonical_dot(xs, NULL, K) / (float)K;
        for (int k = 0; k < K; k++) centred[k] = xs[k] - mean;
        scale = sqrtf(canonical_dot(centred, centred, K) / (float)K + 1e-5f);
        ok = true;
        for (int k = 0; k < K; k++) ok &= same_f32(ys[k], centred[k] / scale * ws[k] + bs[k]);
        check(ok, "%s layer norm", variants[v].name);
    }
    free(x.data);
    free(w.data);
    free(b.data);
    free(y.data);
}

/* ---- row-wise -------------------------------------------------------------------------- */

static void test_norm(void) {
    group("norm: LayerNorm and RMSNorm");
    for (int v = 0; v < n_variant; v++)
        for (int rms = 0; rms < 2; rms++) {
            enum { M = 4, K = 333 };
            fv_norm_args a = {.x = tensor_new(FV_F32, M, K, 0),
                              .w = tensor_new(FV_BF16, 1, K, 0),
                              .y = tensor_new(FV_F32, M, K, 1),
                              .eps = 1e-3f,
                              .rms = rms};
            fill_normal(&a.x, 1);
            for (int k = 0; k < K; k++) put(&a.x, 2, k, get(&a.x, 2, k) * 1e-3f + 3);
            fill_normal(&a.w, 1);
            if (!rms) {
                a.b = tensor_new(FV_F16, 1, K, 0);
                fill_normal(&a.b, 1);
            }
            must(variants[v].be.ops->norm(&variants[v].be, &a));
            double worst = 0;
            for (int m = 0; m < M; m++) {
                double mean = 0, var = 0;
                for (int k = 0; k < K && !rms; k++) mean += get(&a.x, m, k) / K;
                for (int k = 0; k < K; k++) var += pow(get(&a.x, m, k) - mean, 2) / K;
                for (int k = 0; k < K; k++) {
                    double scale = sqrt(var + (double)a.eps);
                    double y = (get(&a.x, m, k) - mean) / scale * get(&a.w, 0, k);
                    if (!rms) y += get(&a.b, 0, k);
                    /* the mean is rounded once: that error, scaled, and a few more */
                    double bound = EPS * (8 * fabs(y) + 16 * fabs(mean) / scale + 8);
                    worst = fmax(worst, fabs(get(&a.y, m, k) - y) / bound);
                }
            }
            check(worst <= 1, "%s %s: %.2f of the bound", variants[v].name, rms ? "rms" : "layer",
                  worst);
            free(a.x.data);
            free(a.w.data);
            free(a.b.data);
            free(a.y.data);
        }
}

static double activation(fv_activation act, double x) {
    switch (act) {
    case FV_ACT_SILU: return x / (1 + exp(-x));
    case FV_ACT_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
    case FV_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case FV_ACT_QUICK_GELU: return x / (1 + exp(-1.702 * x));
    case FV_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case FV_ACT_RELU: return x > 0 ? x : 0;
    default: return x;
    }
}

static void test_activate(void) {
    static const char *const names[] = {"silu", "gelu", "gelu_tanh", "quick_gelu",
                                        "relu", "none", "sigmoid"};
    group("activate: each, with and without gate, alone and added, from -12 to 12");
    for (int v = 0; v < n_variant; v++)
        for (fv_activation act = 0; act < FV_N_ACT; act++)
            for (int form = 0; form < 4; form++) {
                enum { K = 4801 };
                int gated = form & 1;
                fv_activate_args a = {.act = act,
                                      .x = tensor_new(FV_F32, 1, K, 0),
                                      .y = tensor_new(FV_F32, 1, K, 0),
                                      .accumulate = form & 2};
                for (int k = 0; k < K; k++) {
                    put(&a.x, 0, k, (float)(k - K / 2) * 0.005f);
                    put(&a.y, 0, k, 1);
                }
                if (gated) {
                    a.gate = tensor_new(FV_F32, 1, K, 0);
                    fill_normal(&a.gate, 1);
                }
                must(variants[v].be.ops->activate(&variants[v].be, &a));
                double worst = 0;
                for (int k = 0; k < K; k++) {
                    double x = get(&a.x, 0, k), g = gated ? get(&a.gate, 0, k) : 1;
                    double y = activation(act, x) * g;
                    /* exp and its argument round; 1 + erf cancels where x is negative */
                    double bound = EPS * (16 * fabs(y) + 3 * fabs(x * g)) + 1e-30;
                    if (a.accumulate) y += 1, bound += EPS * fabs(y);
                    worst = fmax(worst, fabs(get(&a.y, 0, k) - y) / bound);
                }
                check(worst <= 1, "%s %s: %.2f of the bound", variants[v].name, names[act], worst);
                free(a.x.data);
                free(a.y.data);
                free(a.gate.data);
            }
}

static void test_rope(void) {
    group("rope: pairs (i, i + D/2) turn by their angle");
    for (int v = 0; v < n_variant; v++) {
        enum { M = 3, H = 2, D = 20 };
        fv_rope_args a = {.x = tensor_new(FV_F32, M, H * D, 1),
                          .cos = tensor_new(FV_F32, M, D / 2, 0),
                          .sin = tensor_new(FV_F32, M, D / 2, 0),
                          .n_head = H};
        fill_normal(&a.x, 1);
        fv_tensor before = a.x;
        before.data = room(tensor_bytes(&a.x));
        memcpy(before.data, a.x.data, tensor_bytes(&a.x));
        for (int m = 0; m < M; m++)
            for (int i = 0; i < D / 2; i++) {
                put(&a.cos, m, i, (float)cos(m + i));
                put(&a.sin, m, i, (float)sin(m + i));
            }
        must(variants[v].be.ops->rope(&variants[v].be, &a));
        double worst = 0;
        for (int m = 0; m < M; m++)
            for (int h = 0; h < H; h++)
                for (int i = 0; i < D / 2; i++) {
                    double lo = get(&before, m, h * D + i), hi = get(&before, m, h * D + D / 2 + i);
                    double c = cos(m + i), s = sin(m + i), bound = EPS * 4 * (fabs(lo) + fabs(hi));
                    double e0 = get(&a.x, m, h * D + i) - (lo * c - hi * s);
                    double e1 = get(&a.x, m, h * D + D / 2 + i) - (hi * c + lo * s);
                    worst = fmax(worst, fmax(fabs(e0), fabs(e1)) / bound);
                }
        check(worst <= 1, "%s: %.2f of the bound", variants[v].name, worst);
        free(a.x.data);
        free(a.cos.data);
        free(a.sin.data);
        free(before.data);
    }
}

static void test_index_select(void) {
    group("index_select: rows of the table, widened");
    for (int v = 0; v < n_variant; v++)
        for (fv_dtype t = FV_F32; t < FV_N_DTYPE; t++) {
            int32_t ids[] = {3, 0, 3, 6};
            fv_index_select_args a = {
                .table = tensor_new(t, 7, 37, 0), .y = tensor_new(FV_F32, 4, 37, 2), .ids = ids};
            fill_normal(&a.table, 1);
            must(variants[v].be.ops->index_select(&variants[v].be, &a));
            bool same = true;
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 37; c++) same &= get(&a.y, r, c) == get(&a.table, ids[r], c);
            check(same, "%s %s", variants[v].name, fv_dtype_name(t));
            free(a.table.data);
            free(a.y.data);
        }
}

/* ---- KV and attention ------------------------------------------------------------------ */

static void test_kv_write(void) {
    group("kv_write: rows land in their segment, block and slot");
    for (int v = 0; v < n_variant; v++)
        for (fv_dtype t = FV_F32; t < FV_N_DTYPE; t++) {
            enum { HKV = 2, D = 12, SEG = 2, ROWS = 5 };
            size_t bytes = (size_t)FV_KV_BLOCK * D * fv_dtype_bytes(t);
            fv_kv_block blocks[HKV * SEG][2];
            fv_block_table runs[HKV * SEG];
            for (int r = 0; r < HKV * SEG; r++) {
                for (int b = 0; b < 2; b++) blocks[r][b] = (fv_kv_block){room(bytes), room(bytes)};
                runs[r] = (fv_block_table){.block = blocks[r], .len = 62 - r}; /* crosses a block */
            }
            uint8_t seg[ROWS] = {0, 1, 1, 0, 1};
            int32_t slot[ROWS] = {1, 0, 2, 0, 3};
            fv_kv_write_seq s = {
                .row0 = 2, .n_rows = ROWS, .n_seg = SEG, .tables = runs, .seg = seg, .slot = slot};
            fv_kv_write_args a = {.k = tensor_new(FV_F32, ROWS + 2, HKV * D, 0),
                                  .v = tensor_new(FV_F32, ROWS + 2, HKV * D, 3),
                                  .kv_dtype = t,
                                  .n_kv = HKV,
                                  .d_head = D,
                                  .n_seq = 1,
                                  .seqs = &s};
            fill_normal(&a.k, 1);
            fill_normal(&a.v, 1);
            must(variants[v].be.ops->kv_write(&variants[v].be, &a));
            double worst = 0, unit = t == FV_F32 ? 0 : t == FV_BF16 ? 0x1p-8 : 0x1p-11;
            for (int r = 0; r < ROWS; r++)
                for (int g = 0; g < HKV; g++)
                    for (int d = 0; d < D; d++) {
                        const fv_block_table *run = &runs[g * SEG + seg[r]];
                        int j = run->len + slot[r];
                        fv_kv_block *b = &run->block[j / FV_KV_BLOCK];
                        fv_tensor kt = fv_tensor_of(b->k, t, FV_KV_BLOCK, D);
                        fv_tensor vt = fv_tensor_of(b->v, t, FV_KV_BLOCK, D);
                        double k = get(&a.k, 2 + r, g * D + d), w = get(&a.v, 2 + r, g * D + d);
                        double ek = fabs(get(&kt, j % FV_KV_BLOCK, d) - k) - unit * fabs(k);
                        double ew = fabs(get(&vt, j % FV_KV_BLOCK, d) - w) - unit * fabs(w);
                        worst = fmax(worst, fmax(ek, ew));
                    }
            check(worst <= 1e-7, "%s %s: off by %g", variants[v].name, fv_dtype_name(t), worst);
            for (int r = 0; r < HKV * SEG; r++)
                for (int b = 0; b < 2; b++) {
                    free(blocks[r][b].k);
                    free(blocks[r][b].v);
                }
            free(a.k.data);
            free(a.v.data);
        }
}

static void test_kv_write_halves(void) {
    group("kv_write: an absent half of the rows stays as it was");
    for (int v = 0; v < n_variant; v++)
        for (int absent = 0; absent < 2; absent++) {
            enum { D = 12, ROWS = 3 };
            float k[FV_KV_BLOCK * D], w[FV_KV_BLOCK * D];
            uint8_t seg[ROWS] = {0};
            int32_t slot[ROWS] = {0, 1, 2};
            fv_kv_block block = {k, w};
            fv_block_table run = {.block = &block, .len = 5};
            fv_kv_write_seq s = {
                .n_rows = ROWS, .n_seg = 1, .tables = &run, .seg = seg, .slot = slot};
            fv_tensor x = tensor_new(FV_F32, ROWS, D, 0), none = {0};
            fv_kv_write_args a = {.k = absent ? x : none,
                                  .v = absent ? none : x,
                                  .kv_dtype = FV_F32,
                                  .n_kv = 1,
                                  .d_head = D,
                                  .n_seq = 1,
                                  .seqs = &s};
            const float *written = (absent ? k : w) + (size_t)run.len * D;
            const float *other = absent ? w : k;
            fill_normal(&x, 1);
            for (int i = 0; i < FV_KV_BLOCK * D; i++) k[i] = w[i] = 7;
            must(variants[v].be.ops->kv_write(&variants[v].be, &a));
            bool kept = true;
            for (int i = 0; i < FV_KV_BLOCK * D; i++) kept = kept && other[i] == 7;
            check(kept && memcmp(written, x.data, ROWS * D * sizeof(float)) == 0, "%s: %s alone",
                  variants[v].name, absent ? "keys" : "values");
            free(x.data);
        }
}

enum { MAX_KEY = 1024, MAX_D = 256 };

/* exp(score) of every key for query row i and head h, 0 for those that it does not see, segment after
 * segment; and their sum with n. */
static double weights(const attention_case *c, const fv_attn_seq *q, int i, int h, double *w) {
    const fv_attn_args *a = &c->args;
    int r0 = h / (a->n_head / a->n_kv) * q->n_seg;
    const fv_block_table *runs = q->tables + r0;
    double sum = (double)q->n;
    for (int seg = 0; seg < q->n_seg; seg++)
        for (int j = 0; j < runs[seg].len; j++, w++) {
            *w = 0;
            if (!case_sees(q, r0 + seg, i, j)) continue;
            fv_tensor k = fv_tensor_of(runs[seg].block[j / FV_KV_BLOCK].k, a->kv_dtype, FV_KV_BLOCK,
                                       a->d_head);
            double dot = 0;
            for (int d = 0; d < a->d_head; d++)
                dot += get(&a->q, q->row0 + i, h * a->d_head + d) * get(&k, j % FV_KV_BLOCK, d);
            sum += *w = exp(dot * (double)a->scale);
        }
    return sum;
}

/* Softmax over all keys at once. Returns the largest error, in units of the tolerance. */
static double attention_error(const attention_case *c, int s, int i, int h) {
    static double w[MAX_KEY], o[MAX_D];
    const fv_attn_args *a = &c->args;
    const fv_attn_seq *q = &c->seqs[s];
    const fv_block_table *runs = q->tables + h / (a->n_head / a->n_kv) * q->n_seg;
    int row = q->row0 + i, D = a->d_head, column = 0;
    uint8_t share = q->share ? q->share[i] : FV_SHARE_KEPT;
    double sum = weights(c, q, i, h, w), of_first = 0, worst = 0;
    memset(o, 0, sizeof o);
    int dropped = share == FV_SHARE_KEPT ? 0 : runs[0].len;
    if (share == FV_SHARE_WITHOUT_FIRST && q->n_first < dropped) dropped = q->n_first;
    for (int j = 0; j < dropped; j++) {
        of_first += w[j];
        w[j] = 0;
    }
    if (share == FV_SHARE_ON_FIRST && of_first > 0) w[0] = of_first;
    for (int seg = 0; seg < q->n_seg; column += runs[seg++].len)
        for (int j = 0; j < runs[seg].len; j++) {
            if (w[column + j] == 0) continue; /* its value may be unreadable */
            fv_tensor v =
                fv_tensor_of(runs[seg].block[j / FV_KV_BLOCK].v, a->kv_dtype, FV_KV_BLOCK, D);
            for (int d = 0; d < D; d++) o[d] += w[column + j] / sum * get(&v, j % FV_KV_BLOCK, d);
        }
    for (int d = 0; d < D; d++) worst = fmax(worst, fabs(get(&a->o, row, h * D + d) - o[d]) / 5e-6);
    double lse = log(sum);
    if (a->lse.data && sum > 0)
        worst = fmax(worst, fabs(get(&a->lse, row, h) - lse) / (2e-6 * (1 + fabs(lse))));
    return worst;
}

static void test_attention(void) {
    group("attention: (n-)softmax(scale q K^T) V and lse, over segments, with shares dropped");
    for (int i = 0; i < cases(60); i++)
        for (int v = 0; v < n_variant; v++) {
            attention_shape s = attention_shape_random();
            attention_case c = attention_case_new(&s);
            must(variants[v].be.ops->attention(&variants[v].be, attention_case_args(&c)));
            double worst = 0;
            for (int q = 0; q < s.n_seq; q++)
                for (int r = 0; r < c.seqs[q].n_rows; r++)
                    for (int h = 0; h < c.args.n_head; h += 1 + i % 3)
                        worst = fmax(worst, attention_error(&c, q, r, h));
            check(worst <= 1, "%s %s D=%d G=%d: %.2f of the bound", variants[v].name,
                  fv_dtype_name(s.dtype), s.D, s.group, worst);
            attention_case_free(&c);
        }
}

/* With one-hot values the output is a query's attention to each key. */
static void test_shares(void) {
    group("attention: a mass that is dropped or moved leaves the rest as it was");
    enum { V = 20, T = 10, D = V + T + 2, H = 2, Q = 3 };
    fv_tensor k = tensor_new(FV_F32, V + T, D, 0), q = tensor_new(FV_F32, Q, H * D, 0);
    fill_normal(&k, 1);
    fill_normal(&q, 2);
    float v[(V + T) * D] = {0}, o[FV_SHARE_ON_FIRST + 1][Q][H][D];
    for (int j = 0; j < V + T; j++) v[j * D + j] = 1;
    fv_kv_block block[] = {{k.data, v}, {(float *)k.data + V * D, v + V * D}};
    fv_block_table runs[] = {{.block = &block[0], .len = V}, {.block = &block[1], .len = T}};
    static const int32_t masked_tail[] = {0, 0, 0, 2, 1, 0};
    for (int way = 0; way < n_variant; way++) {
        for (int s = FV_SHARE_KEPT; s <= FV_SHARE_ON_FIRST; s++) {
            uint8_t share[] = {(uint8_t)s, (uint8_t)s, (uint8_t)s};
            fv_attn_seq seq = {.n_rows = Q,
                               .n_seg = 2,
                               .tables = runs,
                               .masked_tail = masked_tail,
                               .share = share};
            fv_attn_args a = {.q = q,
                              .o = fv_tensor_of(o[s], FV_F32, Q, H * D),
                              .kv_dtype = FV_F32,
                              .n_head = H,
                              .n_kv = 1,
                              .d_head = D,
                              .n_seq = 1,
                              .scale = 0.2f,
                              .seqs = &seq};
            must(variants[way].be.ops->attention(&variants[way].be, &a));
        }
        double worst = 0;
        for (int i = 0; i < Q * H; i++) {
            const float *kept = o[0][i / H][i % H], *gone = o[FV_SHARE_DROPPED][i / H][i % H];
            const float *moved = o[FV_SHARE_ON_FIRST][i / H][i % H];
            double mass = 0;
            for (int j = 0; j < V; j++) mass += (double)kept[j];
            for (int j = 0; j < V + T; j++) {
                double stays = j < V ? 0 : (double)kept[j];
                worst = fmax(worst, fabs((double)gone[j] - stays));
                worst = fmax(worst, fabs((double)moved[j] - (j == 0 ? mass : stays)));
            }
        }
        check(worst < 1e-6, "%s: %g", variants[way].name, worst);
    }
    free(k.data);
    free(q.data);
}

/* Keys that row i of a sequence attends to in all segments of a head. */
static int keys_seen(const fv_attn_seq *q, int g, int i) {
    int n = 0;
    for (int r = g * q->n_seg; r < (g + 1) * q->n_seg; r++)
        for (int j = 0; j < q->tables[r].len; j++) n += case_sees(q, r, i, j);
    return n;
}

/* Returns what a probability adds to a sum: itself, or 1 when it is below an even share. *open
 * grows where rounding decides that. */
static double added(const fv_score_sum *to, double p, int n_seen, double *open) {
    if (!to->low) return p;
    *open += fabs(p * n_seen - 1) < 1e-4;
    return p * n_seen < 1;
}

/* Returns the largest error of head-max scores, whose sums are the first [n_kind, ld] of the
 * buffer. */
static double peak_error(const attention_case *c, const fv_score_sum *to, const float *before) {
    static double w[MAX_KEY];
    const fv_attn_seq *q = &c->seqs[to->seq];
    size_t n = (size_t)to->n_kind * (size_t)to->ld, ld = (size_t)to->ld;
    double *want = room(n * sizeof *want), *most = room(ld * sizeof *most), worst = 0;
    for (size_t j = 0; j < n; j++) want[j] = (double)before[j];
    for (int i = 0; i < to->n_row; i++) {
        memset(most, 0, ld * sizeof *most);
        for (int h = 0; h < c->args.n_head; h++) {
            const fv_block_table *runs = q->tables + h / (c->args.n_head / c->args.n_kv) * q->n_seg;
            double sum = weights(c, q, q->n_rows - to->n_row + i, h, w) + (double)to->n;
            for (int s = 0, column = 0; s < q->n_seg; column += runs[s++].len)
                for (int j = 0; j < runs[s].len; j++) {
                    double *at = &most[to->column[s] + j];
                    *at = fmax(*at, w[column + j] / sum);
                }
        }
        size_t line = (size_t)(to->kind ? to->kind[i] : 0) * ld;
        for (size_t j = 0; j < ld; j++) want[line + j] += most[j];
    }
    for (size_t j = 0; j < n; j++)
        worst = fmax(worst, fabs((double)to->sum[j] - want[j]) / (2e-6 * (1 + to->n_row)));
    free(want);
    free(most);
    return worst;
}

/* before: what the sums held, [H, n_kind, ld]. Returns the largest error of head h. */
static double sum_error(const attention_case *c, const fv_score_sum *to, const float *before,
                        int h) {
    static double w[MAX_KEY];
    if (to->head_max) return peak_error(c, to, before);
    const fv_attn_seq *q = &c->seqs[to->seq];
    int g = h / (c->args.n_head / c->args.n_kv);
    const fv_block_table *runs = q->tables + g * q->n_seg;
    size_t n = (size_t)to->n_kind * (size_t)to->ld, at = (size_t)h * n;
    double *want = room(n * sizeof *want), *open = room(n * sizeof *open), worst = 0;
    for (size_t j = 0; j < n; j++) want[j] = (double)before[at + j], open[j] = 0;
    for (int i = 0; i < to->n_row; i++) {
        int column = 0, row = q->n_rows - to->n_row + i, n_seen = keys_seen(q, g, row);
        double sum = weights(c, q, row, h, w) + (double)to->n;
        size_t line = (size_t)(to->kind ? to->kind[i] : 0) * (size_t)to->ld;
        for (int s = 0; s < q->n_seg; column += runs[s++].len)
            for (int j = 0; j < runs[s].len; j++) {
                size_t x = line + (size_t)(to->column[s] + j);
                size_t of = (size_t)i * (size_t)to->ld + (size_t)(to->column[s] + j);
                double counts = to->weight ? (double)to->weight[of] : 1;
                if (w[column + j] > 0)
                    want[x] += counts * added(to, w[column + j] / sum, n_seen, &open[x]);
            }
    }
    for (size_t j = 0; j < n; j++)
        worst = fmax(worst, fabs((double)to->sum[at + j] - want[j]) /
                                (open[j] + (to->weight ? 8e-6 : 2e-6) * (1 + to->n_row)));
    free(want);
    free(open);
    return worst;
}

static void test_score_sums(void) {
    group("score_sums: what rows pay to keys, by kind of row, with n");
    for (int i = 0; i < cases(40); i++)
        for (int v = 0; v < n_variant; v++) {
            attention_shape s = attention_shape_random();
            s.sums = true;
            attention_case c = attention_case_new(&s);
            float *before = room(tensor_bytes(&c.out));
            memcpy(before, c.out.data, tensor_bytes(&c.out));
            must(attention_case_run(&variants[v].be, &c));
            double worst = 0;
            for (int q = 0; q < s.n_seq; q++)
                for (int h = 0; h < c.args.n_head; h++) {
                    const float *old = before + (c.sums[q].sum - (float *)c.out.data);
                    worst = fmax(worst, sum_error(&c, &c.sums[q], old, h));
                }
            check(worst <= 1, "%s %s D=%d G=%d: %.2f of the bound", variants[v].name,
                  fv_dtype_name(s.dtype), s.D, s.group, worst);
            free(before);
            attention_case_free(&c);
        }
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){2}, 1);
    test_math();
    test_narrow();
    test_linear();
    test_canonical();
    test_norm();
    test_activate();
    test_rope();
    test_index_select();
    test_kv_write();
    test_kv_write_halves();
    test_attention();
    test_shares();
    test_score_sums();
    variants_close(variants, n_variant);
    return summary();
}
