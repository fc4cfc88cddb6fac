/* The operations of Gated DeltaNet: the bits of the plain path, which is near the equations in double
 * precision, and the same bits however a sequence is cut. */
#include "kernels/recurrent.h"

#include <math.h>

#include "tests/ops/run/run.h"

enum { MAX_SEQ = 3 };

/* The rows of a case's sequences, and their states: on the host and, apart, for the other backend. */
typedef struct sequences {
    int n, rows;
    size_t floats; /* of a state */
    fv_recurrent_seq host[MAX_SEQ], there[MAX_SEQ];
} sequences;

static float *state_new(size_t floats, bool zero) {
    float *s = room(floats * sizeof *s);
    fv_tensor t = fv_tensor_of(s, FV_F32, 1, (int32_t)floats);
    if (zero)
        memset(s, 0, floats * sizeof *s);
    else
        fill_normal(&t, 1);
    return s;
}

static sequences sequences_new(int n, int most_rows, size_t floats) {
    sequences q = {.n = n, .floats = floats};
    for (int i = 0; i < n; i++) {
        int rows = random_int(0, 3) ? random_int(1, most_rows) : PICK(0, 1, 2);
        q.host[i] = (fv_recurrent_seq){q.rows, rows, state_new(floats, random_int(0, 2) == 0)};
        q.there[i] = q.host[i];
        q.there[i].state = room(floats * sizeof(float));
        memcpy(q.there[i].state, q.host[i].state, floats * sizeof(float));
        q.rows += rows;
    }
    return q;
}

static void sequences_check(sequences *q, const char *what) {
    for (int i = 0; i < q->n; i++) {
        check(memcmp(q->host[i].state, q->there[i].state, q->floats * sizeof(float)) == 0,
              "%s: the state of sequence %d", what, i);
        free(q->host[i].state);
        free(q->there[i].state);
    }
}

/* ---- causal_conv ------------------------------------------------------------------------- */

static void conv_once(device_test *d, int n_seq, int C, int K) {
    sequences q = sequences_new(n_seq, 40, (size_t)(K - 1) * (size_t)C);
    both x = both_normal(d, FV_F32, q.rows, C, random_int(0, 3));
    both w = both_normal(d, FV_F32, K, C, random_int(0, 2));
    both y = both_new(d, FV_F32, q.rows, C, random_int(0, 3));
    fv_causal_conv_args a = {x.host, y.host, w.host, n_seq, q.host};
    fv_causal_conv_args b = {x.there, y.there, w.there, n_seq, q.there};
    must(d->plain.ops->causal_conv(&d->plain, &a));
    must(d->be.ops->causal_conv(&d->be, &b));
    check(same_bits(d, &y, "causal_conv"), "causal_conv: %d rows of %d, %d taps", q.rows, C, K);
    sequences_check(&q, "causal_conv");
    both_free(&x);
    both_free(&w);
    both_free(&y);
}

/* The equation in double, for the first sequence from zeros. */
static void conv_near(device_test *d) {
    enum { M = 9, C = 70, K = 4 };
    fv_tensor x = tensor_new(FV_F32, M, C, 0), w = tensor_new(FV_F32, K, C, 0),
              y = tensor_new(FV_F32, M, C, 0);
    fill_normal(&x, 1);
    fill_normal(&w, 1);
    fv_recurrent_seq seq = {0, M, state_new((size_t)(K - 1) * C, true)};
    must(d->plain.ops->causal_conv(&d->plain, &(fv_causal_conv_args){x, y, w, 1, &seq}));
    double worst = 0;
    for (int t = 0; t < M; t++)
        for (int c = 0; c < C; c++) {
            double s = 0;
            for (int i = 0; i < K; i++)
                if (t - K + 1 + i >= 0)
                    s += (double)get(&w, i, c) * (double)get(&x, t - K + 1 + i, c);
            worst = fmax(worst, fabs(s / (1 + exp(-s)) - (double)get(&y, t, c)));
        }
    check(worst < 1e-5, "causal_conv: %g from the equation", worst);
    for (int j = 0; j < K - 1; j++)
        for (int c = 0; c < C; c++)
            check(seq.state[j * C + c] == (float)get(&x, M - K + 1 + j, c), "the state's row %d",
                  j);
    free(seq.state);
    free(x.data);
    free(w.data);
    free(y.data);
}

static void test_causal_conv(device_test *d) {
    group("causal_conv: the bits of the plain path, outputs and states");
    if (!on_cpu(d)) return; /* other backends refuse it */
    conv_near(d);
    for (int i = 0; i < cases(60); i++)
        conv_once(d, random_int(0, MAX_SEQ), size_about(200), random_int(2, FV_CONV_TAPS_MAX));
}

/* ---- delta_rule -------------------------------------------------------------------------- */

typedef struct delta {
    int Hk, Hv, Dk, Dv;
    both qkv, a, b, rate, shift, o;
} delta;

static delta delta_new(device_test *d, int rows, int Hk, int per, int Dk, int Dv) {
    delta t = {.Hk = Hk, .Hv = Hk * per, .Dk = Dk, .Dv = Dv};
    t.qkv = both_normal(d, FV_F32, rows, 2 * Hk * Dk + t.Hv * Dv, random_int(0, 3));
    t.a = both_normal(d, FV_F32, rows, t.Hv, random_int(0, 2));
    t.b = both_normal(d, FV_F32, rows, t.Hv, random_int(0, 2));
    t.rate = both_normal(d, FV_F32, 1, t.Hv, 0);
    t.shift = both_normal(d, FV_F32, 1, t.Hv, 0);
    t.o = both_new(d, FV_F32, rows, t.Hv * Dv, random_int(0, 3));
    for (int h = 0; h < t.Hv; h++) put(&t.rate.host, 0, h, fabsf((float)get(&t.rate.host, 0, h)));
    send(d, &t.rate);
    return t;
}

static void delta_free(delta *t) {
    both *all[] = {&t->qkv, &t->a, &t->b, &t->rate, &t->shift, &t->o};
    for (int i = 0; i < 6; i++) both_free(all[i]);
}

static fv_delta_rule_args delta_args(const delta *t, bool there, int n_seq,
                                     const fv_recurrent_seq *seqs) {
#define SIDE(x) (there ? t->x.there : t->x.host)
    return (fv_delta_rule_args){SIDE(qkv), SIDE(a), SIDE(b), SIDE(rate), SIDE(shift), SIDE(o),
                                t->Hk,     t->Hv,   t->Dk,   t->Dv,      n_seq,       seqs};
#undef SIDE
}

static void delta_once(device_test *d, int n_seq, int Hk, int per, int Dk, int Dv) {
    sequences q = sequences_new(n_seq, 30, (size_t)(Hk * per * Dk * Dv));
    delta t = delta_new(d, q.rows, Hk, per, Dk, Dv);
    fv_delta_rule_args a = delta_args(&t, false, n_seq, q.host),
                       b = delta_args(&t, true, n_seq, q.there);
    must(d->plain.ops->delta_rule(&d->plain, &a));
    must(d->be.ops->delta_rule(&d->be, &b));
    check(same_bits(d, &t.o, "delta_rule"), "delta_rule: %d rows, %d and %d heads of %d x %d",
          q.rows, Hk, t.Hv, Dk, Dv);
    sequences_check(&q, "delta_rule");
    delta_free(&t);
}

/* The equations in double, from zeros. */
static void delta_near(device_test *d) {
    enum { M = 40, HK = 2, PER = 2, DK = 32, DV = 48 };
    static double S[HK * PER][DK][DV];
    delta t = delta_new(d, M, HK, PER, DK, DV);
    fv_recurrent_seq seq = {0, M, state_new((size_t)(HK * PER * DK * DV), true)};
    fv_delta_rule_args a = delta_args(&t, false, 1, &seq);
    must(d->plain.ops->delta_rule(&d->plain, &a));
    memset(S, 0, sizeof S);
    double worst = 0;
    for (int r = 0; r < M; r++)
        for (int h = 0; h < HK * PER; h++) {
            double q[DK], k[DK], qq = 1e-6, kk = 1e-6;
            for (int i = 0; i < DK; i++) {
                q[i] = get(&a.qkv, r, h / PER * DK + i);
                k[i] = get(&a.qkv, r, (HK + h / PER) * DK + i);
                qq += q[i] * q[i];
                kk += k[i] * k[i];
            }
            double step = log1p(exp(get(&a.a, r, h) + get(&a.shift, 0, h)));
            double alpha = exp(-get(&a.rate, 0, h) * step), beta = 1 / (1 + exp(-get(&a.b, r, h)));
            for (int c = 0; c < DV; c++) {
                double m = 0, o = 0;
                for (int i = 0; i < DK; i++) m += alpha * S[h][i][c] * k[i] / sqrt(kk);
                double e = (get(&a.qkv, r, 2 * HK * DK + h * DV + c) - m) * beta;
                for (int i = 0; i < DK; i++) {
                    S[h][i][c] = alpha * S[h][i][c] + k[i] / sqrt(kk) * e;
                    o += S[h][i][c] * q[i] / sqrt(qq) / sqrt(DK);
                }
                worst = fmax(worst, fabs(o - get(&a.o, r, h * DV + c)));
            }
        }
    check(worst < 1e-5, "delta_rule: %g from the equations", worst);
    free(seq.state);
    delta_free(&t);
}

/* A sequence in pieces of any length gives the bits of the whole. */
static void delta_cut(device_test *d) {
    enum { M = 33, HK = 2, PER = 3, DK = 16, DV = 80 };
    size_t floats = HK * PER * DK * DV;
    delta t = delta_new(d, M, HK, PER, DK, DV);
    fv_recurrent_seq whole = {0, M, state_new(floats, true)},
                     part = {.state = state_new(floats, true)};
    fv_delta_rule_args a = delta_args(&t, false, 1, &whole), b = delta_args(&t, true, 1, &part);
    must(d->be.ops->delta_rule(&d->be, &a));
    for (int at = 0; at < M; at += part.n_rows) {
        part.row0 = at;
        part.n_rows = random_int(1, M - at);
        must(d->be.ops->delta_rule(&d->be, &b));
    }
    check(same_bits(d, &t.o, "delta_rule"), "delta_rule in pieces");
    check(memcmp(whole.state, part.state, floats * sizeof(float)) == 0, "the state, in pieces");
    free(whole.state);
    free(part.state);
    delta_free(&t);
}

static void test_delta_rule(device_test *d) {
    group("delta_rule: the bits of the plain path, outputs and states");
    if (!on_cpu(d)) return; /* other backends refuse it */
    delta_near(d);
    delta_cut(d);
    for (int i = 0; i < cases(40); i++)
        delta_once(d, random_int(0, MAX_SEQ), random_int(1, 3), random_int(1, 3),
                   16 * random_int(1, 8), 16 * random_int(1, 9));
    delta_once(d, 1, 1, 1, FV_DELTA_KEY_MAX, 128);
}

/* ---- speed ------------------------------------------------------------------------------ */

enum { KEYS = 16, VALUES = 32, WIDE = 128, COLUMNS = (2 * KEYS + VALUES) * WIDE };

/* Times a token, and a prompt, in a layer of Qwen3.5 9B. */
static void perf_causal_conv(device_test *d) {
    if (!on_cpu(d)) return;
    fv_recurrent_seq seq = {.state = state_new(3 * COLUMNS, true)};
    both w = both_normal(d, FV_F32, 4, COLUMNS, 0);
    for (int M = 1; M <= 640; M += 639) {
        both x = both_normal(d, FV_F32, M, COLUMNS, 0), y = both_new(d, FV_F32, M, COLUMNS, 0);
        seq.n_rows = M;
        fv_causal_conv_args a = {x.there, y.there, w.there, 1, &seq};
        report(seconds_of(d, d->be.ops->causal_conv, a), 8.0 * M * COLUMNS, 8.0 * M * COLUMNS,
               "%d rows of %d, 4 taps", M, COLUMNS);
        both_free(&x);
        both_free(&y);
    }
    both_free(&w);
    free(seq.state);
}

static void perf_delta_rule(device_test *d) {
    if (!on_cpu(d)) return;
    size_t floats = (size_t)VALUES * WIDE * WIDE;
    fv_recurrent_seq seq = {.state = state_new(floats, true)};
    for (int M = 1; M <= 640; M += 639) {
        delta t = delta_new(d, M, KEYS, VALUES / KEYS, WIDE, WIDE);
        seq.n_rows = M;
        fv_delta_rule_args a = delta_args(&t, true, 1, &seq);
        report(seconds_of(d, d->be.ops->delta_rule, a), 7.0 * M * (double)floats,
               M == 1 ? 8.0 * (double)floats : 4.0 * M * (COLUMNS + VALUES * WIDE),
               "%d rows, %d and %d heads of %d", M, KEYS, VALUES, WIDE);
        delta_free(&t);
    }
    free(seq.state);
}

const op op_causal_conv = {"causal_conv", "bits", test_causal_conv, perf_causal_conv};
const op op_delta_rule = {"delta_rule", "bits", test_delta_rule, perf_delta_rule};
