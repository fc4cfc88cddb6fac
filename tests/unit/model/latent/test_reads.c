/* Weights of latent directions: the predicted effect of an error is its actual effect. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model/latent/reads.h"

enum { HEADS = 4, HKV = 2, GROUP = HEADS / HKV, D = 6, HALF = 2, N = 5, WIDE = 7, ALL = HEADS * D };
static const double SCALE = 0.4;

/* A query of a layer that reads N tokens, keys before rotation. */
typedef struct reading {
    double q[HEADS][D], key[HKV][N][D], v[HKV][N][D], angle[N][HALF];
    float w[WIDE][ALL];
} reading;

static double number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

static void fill(reading *r, uint64_t seed) {
    double *x = &r->q[0][0];
    for (size_t i = 0; i < offsetof(reading, w) / sizeof *x; i++) x[i] = number(&seed);
    for (int i = 0; i < WIDE * ALL; i++) r->w[i / ALL][i % ALL] = (float)number(&seed);
}

static void rotate(const double *x, const double *angle, double *y) {
    memcpy(y, x, D * sizeof *y);
    for (int i = 0; i < HALF; i++) {
        y[i] = x[i] * cos(angle[i]) - x[i + HALF] * sin(angle[i]);
        y[i + HALF] = x[i + HALF] * cos(angle[i]) + x[i] * sin(angle[i]);
    }
}

/* o [D] of head h, its lse, and o W_o [WIDE]. */
static double attend(const reading *r, int h, double *o, double *out) {
    double sum = 0, p, k[D];
    memset(o, 0, D * sizeof *o);
    for (int j = 0; j < N; j++) {
        double score = 0;
        rotate(r->key[h / GROUP][j], r->angle[j], k);
        for (int c = 0; c < D; c++) score += r->q[h][c] * k[c];
        sum += p = exp(SCALE * score);
        for (int c = 0; c < D; c++) o[c] += p * r->v[h / GROUP][j][c];
    }
    for (int c = 0; c < D; c++) o[c] /= sum;
    for (int i = 0; i < WIDE; i++) {
        out[i] = 0;
        for (int c = 0; c < D; c++) out[i] += o[c] * (double)r->w[i][h * D + c];
    }
    return log(sum);
}

static void add(const reading *r, fv_latent_reads *reads) {
    float q[ALL], o[ALL], lse[HEADS], k[HKV * N * D], v[HKV * N * D], c[N * HALF], s[N * HALF];
    double turned[D], out[WIDE], exact[D];
    for (int h = 0; h < HEADS; h++) {
        lse[h] = (float)attend(r, h, exact, out);
        for (int i = 0; i < D; i++) {
            q[h * D + i] = (float)r->q[h][i];
            o[h * D + i] = (float)exact[i];
        }
    }
    for (int g = 0; g < HKV; g++)
        for (int j = 0; j < N; j++) {
            rotate(r->key[g][j], r->angle[j], turned);
            for (int i = 0; i < D; i++) {
                k[(g * N + j) * D + i] = (float)turned[i];
                v[(g * N + j) * D + i] = (float)r->v[g][j][i];
            }
        }
    for (int i = 0; i < N * HALF; i++) {
        c[i] = (float)cos(r->angle[i / HALF][i % HALF]);
        s[i] = (float)sin(r->angle[i / HALF][i % HALF]);
    }
    fv_latent_query query = {.q = q,
                             .o = o,
                             .lse = lse,
                             .scale = (float)SCALE,
                             .n = N,
                             .k = k,
                             .v = v,
                             .half = HALF,
                             .cosine = c,
                             .sine = s};
    fv_latent_reads_add(reads, 1, &query);
}

/* The sum over the query heads of KV head g, and over tokens, of |change of o W_o|^2 when a token's
 * key or value changes by a small step along x [D]. */
static double change(const reading *r, int g, int kind, const double *x) {
    double sum = 0, step = 1e-4, o[D], before[WIDE], after[WIDE];
    for (int j = 0; j < N; j++) {
        reading moved = *r;
        double *at = kind ? moved.v[g][j] : moved.key[g][j];
        for (int c = 0; c < D; c++) at[c] += step * x[c];
        for (int h = g * GROUP; h < (g + 1) * GROUP; h++) {
            attend(r, h, o, before);
            attend(&moved, h, o, after);
            for (int i = 0; i < WIDE; i++)
                sum += (after[i] - before[i]) * (after[i] - before[i]) / (step * step);
        }
    }
    return sum;
}

static fv_latent_reads *open_with(const reading *r) {
    fv_latent_reads *reads;
    fv_tensor w = fv_tensor_of((void *)r->w, FV_F32, WIDE, ALL);
    cr_assert_eq(fv_latent_reads_open(2, HEADS, HKV, D, &reads), FV_OK);
    cr_assert_eq(fv_latent_reads_output(reads, 1, &w), FV_OK);
    return reads;
}

Test(reads, weights_are_what_an_error_changes_of_the_output) {
    static reading r, other;
    double m[HKV * D * D];
    fill(&r, 4);
    fill(&other, 9);
    memcpy(other.w, r.w, sizeof r.w);
    fv_latent_reads *reads = open_with(&r);
    cr_assert_eq(fv_latent_reads_count(reads, 1), 0);
    add(&r, reads);
    add(&other, reads);
    cr_assert(fv_latent_reads_count(reads, 1) == 2 && fv_latent_reads_count(reads, 0) == 0);
    for (int kind = 0; kind < 2; kind++) {
        fv_latent_reads_weights(reads, 1, kind, m);
        for (int g = 0; g < HKV; g++)
            for (int a = 0; a < D; a++)
                for (int b = 0; b < D; b++) {
                    double x[D] = {0}, said = 0;
                    x[a] += 1;
                    x[b] -= 0.5;
                    for (int i = 0; i < D * D; i++) said += x[i / D] * m[g * D * D + i] * x[i % D];
                    double is = change(&r, g, kind, x) + change(&other, g, kind, x);
                    cr_assert_float_eq(said, is, 1e-3 * is, "%d %d %d %d: %g, not %g", kind, g, a,
                                       b, said, is);
                }
    }
    fv_latent_reads_close(reads);
}

Test(reads, the_same_queries_give_the_same_bits_and_none_give_zeros) {
    static reading r;
    double m[2][HKV * D * D];
    fill(&r, 6);
    for (int again = 0; again < 2; again++) {
        fv_latent_reads *reads = open_with(&r);
        add(&r, reads);
        fv_latent_reads_weights(reads, 1, 0, m[again]);
        if (again) {
            cr_assert(memcmp(m[0], m[1], sizeof m[0]) == 0);
            for (int kind = 0; kind < 2; kind++) {
                fv_latent_reads_weights(reads, 0, kind, m[0]);
                for (int i = 0; i < HKV * D * D; i++) cr_assert_eq(m[0][i], 0);
            }
        }
        fv_latent_reads_close(reads);
    }
}
