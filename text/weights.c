/* Loops over the vocabulary have LANES independent chains, which the compiler vectorizes. */
#include "text/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/vectors.h"

enum { LANES = 16, BLOCK = FV_WEIGHT_BLOCK };

/* Compares absolute values as integers, which keep the order of floats; NaN and infinity are the highest. */
VECTORS bool fv_all_finite(const float *l, int32_t n) {
    int32_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &l[i], sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

VECTORS_PART float highest_of(const float *l, int32_t n) {
    float lane[LANES], m = l[0];
    for (int j = 0; j < LANES; j++) lane[j] = m;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = l[i + j] > lane[j] ? l[i + j] : lane[j];
    for (; i < n; i++) m = l[i] > m ? l[i] : m;
    for (int j = 0; j < LANES; j++) m = lane[j] > m ? lane[j] : m;
    return m;
}

VECTORS float fv_highest(const float *l, int32_t n) { return highest_of(l, n); }

VECTORS void fv_highest_of_blocks(const float *l, int32_t n, float *highest) {
    int32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) *highest++ = highest_of(l + i, BLOCK);
    if (i < n) *highest = highest_of(l + i, n - i);
}

VECTORS int32_t fv_index_of(const float *l, int32_t n, float x) {
    int32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        int any = 0;
        for (int j = 0; j < BLOCK; j++) any |= l[i + j] == x;
        if (any) break;
    }
    while (i < n - 1 && l[i] != x) i++;
    return i;
}

/* e^x for x <= 0, without a branch or a table: libm's would be a call per id, and its last bit differs
 * between CPUs. x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series. 0 for a NaN and for x below
 * -87, where e^x is about the least normal number. */
VECTORS_PART float exp_below(float x) {
    static const float inverse[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
    const float least = -87, to_integer = 0x1.8p23f;
    float y = x > least ? x : least;
    float shifted = y * 0x1.715476p0f + to_integer, k = shifted - to_integer;
    float r = y - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f, p = inverse[0];
    for (int i = 1; i < 6; i++) p = p * r + inverse[i];
    p = p * r * r + r + 1;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + ((uint32_t)127 << 23); /* k is in the low bits of `shifted` */
    float power;
    memcpy(&power, &bits, sizeof power);
    return x > least ? p * power : 0;
}

VECTORS double fv_log_sum_exp(const float *l, int32_t n) {
    float m = highest_of(l, n);
    double lane[LANES] = {0}, sum = 0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)exp_below(l[i + j] - m);
    for (; i < n; i++) sum += (double)exp_below(l[i] - m);
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return (double)m + log(sum);
}

VECTORS_PART double sum_of(const float *w, int32_t n) {
    double lane[LANES] = {0}, sum = 0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)w[i + j];
    for (; i < n; i++) sum += (double)w[i];
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* Sets the sum and the highest of block b. */
VECTORS_PART void add_up_block(fv_weights *v, int32_t b) {
    const float *w = v->w + b * BLOCK;
    int32_t left = v->n - b * BLOCK;
    v->sum[b] = (float)(left >= BLOCK ? sum_of(w, BLOCK) : sum_of(w, left));
    v->highest[b] = left >= BLOCK ? highest_of(w, BLOCK) : highest_of(w, left);
}

/* Sets sums and highest weights of blocks with a weight of `least` or more, 0 for others; and the total. */
VECTORS static void add_up(fv_weights *v, float least) {
    v->total = 0;
    for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(v->n); b++) {
        if (v->highest[b] < least)
            v->sum[b] = v->highest[b] = 0;
        else
            add_up_block(v, b);
        v->total += (double)v->sum[b];
    }
}

VECTORS void fv_weights_fill(fv_weights *v, const float *l, float m, float temperature,
                             float least) {
    float *w = v->w;
    for (int32_t i = 0; i < v->n; i++) {
        float x = exp_below((l[i] - m) / temperature);
        w[i] = x < least ? 0 : x;
    }
    v->total = 0;
    for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(v->n); b++) {
        add_up_block(v, b);
        v->total += (double)v->sum[b];
    }
}

/* ---- top_p ------------------------------------------------------------------------------- */

/* Bins of weights, 32 per power of two: the weight's leading bits, counted from 1 downwards. */
enum { BIN_SHIFT = 23 - 5, BINS = 128 << 5 };

static inline int32_t bin_of(float w) {
    int32_t bits, one = 127 << 23;
    memcpy(&bits, &w, sizeof bits);
    int32_t bin = (one - bits) >> BIN_SHIFT;
    return bin < 0 ? 0 : bin < BINS ? bin : BINS - 1;
}

/* The least weight of a bin. */
static float least_of(int32_t bin) {
    int32_t bits = (127 << 23) - ((bin + 1) << BIN_SHIFT) + 1;
    float w;
    memcpy(&w, &bits, sizeof w);
    return bin < BINS - 1 ? w : 0;
}

/* Orders ids by weight, highest first; ties: lower id first. */
static int by_weight(const void *a, const void *b, void *weights) {
    const float *w = weights;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (w[i] != w[j]) return w[i] > w[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

static int32_t end_of(const fv_weights *v, int32_t b) {
    return v->n - b * BLOCK > BLOCK ? (b + 1) * BLOCK : v->n;
}

/* Finds the bin in which the summed weights reach `enough`; *before: the sum of the bins before it. Blocks
 * below `least` are left out. */
static int32_t bin_at(const fv_weights *v, float least, double enough, double *before) {
    double mass[BINS] = {0};
    for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(v->n); b++)
        for (int32_t i = b * BLOCK; !(v->highest[b] < least) && i < end_of(v, b); i++)
            mass[bin_of(v->w[i])] += (double)v->w[i];
    int32_t bin = 0;
    for (*before = 0; bin < BINS - 1 && *before + mass[bin] < enough; bin++) *before += mass[bin];
    return bin;
}

/* Sets weights below `least` to 0. Writes the ids of weights in [least, most) to ids; returns how many. */
VECTORS static int32_t leave_bins(fv_weights *v, float least, float most, int32_t *ids) {
    int32_t n = 0;
    for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(v->n); b++) {
        const int32_t begin = b * BLOCK, end = end_of(v, b);
        float *w = v->w;
        if (v->highest[b] < least) {
            memset(w + begin, 0, (size_t)(end - begin) * sizeof *w);
            continue;
        }
        for (int32_t i = begin; i < end; i++) w[i] = w[i] < least ? 0 : w[i];
        for (int32_t i = begin; i < end; i++)
            if (w[i] >= least && w[i] < most) ids[n++] = i;
    }
    return n;
}

void fv_weights_cut(fv_weights *v, float top_p, int32_t *ids) {
    double enough = (double)top_p * v->total, reached;
    /* Weights below an n-th of what top_p cuts are cut for certain; 1e-3 covers rounding of f32 sums. */
    float least = (float)((v->total - enough) * (1 - 1e-3) / v->n);
    int32_t bin = bin_at(v, least, enough, &reached), kept = 0;
    least = least_of(bin);
    int32_t n = leave_bins(v, least, bin > 0 ? least_of(bin - 1) : INFINITY, ids);
    qsort_r(ids, (size_t)n, sizeof *ids, by_weight, v->w);
    for (; kept < n && (reached <= 0 || reached < enough); kept++)
        reached += (double)v->w[ids[kept]];
    for (; kept < n; kept++) v->w[ids[kept]] = 0;
    add_up(v, least);
}

/* ---- one id ------------------------------------------------------------------------------ */

float fv_weight(float l, float m, float temperature) { return exp_below((l - m) / temperature); }

/* Finds the first id of block b at which `before` plus the weights up to it exceeds `to`; if there is none,
 * the last id with a weight above 0. */
static int32_t at_in_block(const fv_weights *v, int32_t b, double before, double to) {
    int32_t end = b * BLOCK + BLOCK < v->n ? b * BLOCK + BLOCK : v->n, last = end - 1;
    for (int32_t i = b * BLOCK; i < end; i++) {
        if (!(v->w[i] > 0)) continue;
        before += (double)v->w[i];
        last = i;
        if (to < before) break;
    }
    return last;
}

int32_t fv_weights_draw(const fv_weights *v, double to) {
    double before = 0, before_last = 0;
    int32_t last = FV_WEIGHT_BLOCKS(v->n) - 1;
    for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(v->n); b++) {
        if (!(v->sum[b] > 0)) continue;
        last = b;
        before_last = before;
        before += (double)v->sum[b];
        if (to < before) break;
    }
    return at_in_block(v, last, before_last, to);
}
