/* Training kernels besides matrix products: attention over packed rows, norms,
 * gates and the optimiser, each with its backward pass, fused and vectorised for one core.
 *
 * Called by ops.py through ctypes; one process per core, so there are no threads here. Everything
 * is f32 and row-major. Vectors are GCC's extension: 16 floats, which the compiler splits where
 * the machine has no AVX-512. Built with -ffast-math: no infinities, no NaN tests.
 *
 * model.py holds the same network in plain PyTorch; `python ops.py` compares the two. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    LANES = 16,
    HEAD = 32,
    HALF = HEAD / 2,
    TILE = 8
}; /* TILE query rows share what is loaded */

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), aligned(4), may_alias));

#define UNROLL _Pragma("GCC unroll 8")

static const float HIDDEN = -1e30f; /* the score of a key that a row does not see */
static const float LOG2E = 1.44269504f, LN2 = 0.69314718f;

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec x) { *(vec *)p = x; }
static inline vec all(float x) { return x - (vec){0}; }
static inline int round_up(int n, int to) { return (n + to - 1) / to * to; }

static inline vec at_least(vec x, float low) {
    ivec keep = x > low;
    return (vec)(((ivec)x & keep) | ((ivec)all(low) & ~keep));
}

static inline vec at_most(vec x, float high) { return -at_least(-x, -high); }

static inline float sum(vec x) {
    float s = 0;
    for (int i = 0; i < LANES; i++) s += x[i];
    return s;
}

/* 2^x for x <= 127, exactly 0 from x = -127 down; relative error about 2e-7 (Taylor's series on
 * [-1/2, 1/2]). The nearest integer is found by truncating a positive number; it is taken off as
 * an integer, for -ffast-math would reorder a sum of floats. */
static inline vec exp2_of(vec x) {
    x = at_least(x, -127.0f);
    ivec biased = __builtin_convertvector(x + 127.5f, ivec);
    vec f = x - __builtin_convertvector(biased - 127, vec);
    vec y = f * 1.54035304e-4f + 1.33335581e-3f;
    y = y * f + 9.61812911e-3f;
    y = y * f + 5.55041087e-2f;
    y = y * f + 2.40226507e-1f;
    y = y * f + 6.93147181e-1f;
    y = y * f + 1.0f;
    return y * (vec)(biased << 23);
}

static inline vec sigmoid(vec x) { return 1.0f / (1.0f + exp2_of(at_most(x * -LOG2E, 126.0f))); }

/* ---- attention --------------------------------------------------------------------------------
 * Samples lie one after another in `rows`: sample s has rows bounds[s] .. bounds[s + 1]. Within a
 * sample row i sees key j
 *   causal:  j <= i and (j < prefix or j >= first[i])       else:  every j
 * (first[i] = 0 in the prefix), so blocks after the prefix see it and themselves. Without
 * `causal` prefix is the length of the sample.
 *
 * Keys are kept in slots: the prefix, zeros up to a whole vector, then the rest, so that a tile of
 * query rows meets at most two runs of whole vectors; all other keys are never touched. */

struct attention {
    int32_t samples, heads, prefix, causal;
    int32_t after; /* only rows after the prefix are queries; others get no output and no dq */
    const int32_t *bounds, *first;
    const float *cos, *sin; /* [rows, HALF], or NULL: no rotation */
    float *scratch;         /* attention_scratch() floats */
};

/* A head of one sample. Scores are powers of two: q carries scale * log2(e). */
struct head {
    int n, prefix, gap, slots;
    float (*q)[HEAD], (*k)[HEAD], (*v)[HEAD];    /* [n + TILE], [slots], [slots] */
    float (*dq)[HEAD], (*dk)[HEAD], (*dv)[HEAD]; /* likewise */
    float *kt, *vt;                              /* [HEAD, slots]: transposed */
    float *p, *ds;                               /* [TILE, slots] */
};

/* Runs of slots that a tile of rows meets: 0 .. a and from .. to, whole vectors. */
struct tile {
    int row, rows;
    int a, from, to;
};

int64_t attention_scratch(int32_t longest) {
    return ((int64_t)longest + 4 * LANES) * (8 * HEAD + 2 * TILE);
}

static struct head carve(const struct attention *a, int n) {
    struct head h = {.n = n, .prefix = a->causal ? a->prefix : n};
    h.gap = round_up(h.prefix, LANES) - h.prefix;
    h.slots = round_up(n + h.gap, LANES);
    float *at = a->scratch;
    float(**parts[])[HEAD] = {&h.k, &h.v, &h.dk, &h.dv};
    for (int i = 0; i < 4; i++, at += (size_t)h.slots * HEAD) *parts[i] = (float(*)[HEAD])at;
    h.kt = at, at += (size_t)h.slots * HEAD;
    h.vt = at, at += (size_t)h.slots * HEAD;
    h.q = (float(*)[HEAD])at, at += (size_t)(n + TILE) * HEAD;
    h.dq = (float(*)[HEAD])at, at += (size_t)(n + TILE) * HEAD;
    h.p = at, at += (size_t)h.slots * TILE;
    h.ds = at;
    return h;
}

static inline int slot(const struct head *h, int i) { return i < h->prefix ? i : i + h->gap; }

static inline void rotate(float *out, const float *x, const float *cos, const float *sin,
                          float by) {
    vec a = load(x) * by, b = load(x + HALF) * by;
    if (cos) {
        vec c = load(cos), s = load(sin), t = a * c - b * s;
        b = b * c + a * s, a = t;
    }
    store(out, a), store(out + HALF, b);
}

static inline void rotate_back(float *out, const float *x, const float *cos, const float *sin,
                               float by) {
    vec a = load(x) * by, b = load(x + HALF) * by;
    if (cos) {
        vec c = load(cos), s = load(sin), t = a * c + b * s;
        b = b * c - a * s, a = t;
    }
    store(out, a), store(out + HALF, b);
}

static void transpose(float *out, float (*x)[HEAD], int slots) {
    for (int j = 0; j < slots; j += LANES)
        for (int d = 0; d < HEAD; d++)
            for (int i = 0; i < LANES; i++) out[(size_t)d * slots + j + i] = x[j + i][d];
}

/* `qkv` points at q of this head in the sample's first row. */
static void read_head(const struct attention *a, struct head *h, const float *qkv, int row) {
    const int d = a->heads * HEAD;
    const float scale = LOG2E / sqrtf(HEAD);
    for (int i = h->prefix; i < h->prefix + h->gap; i++)
        memset(h->k[i], 0, sizeof *h->k), memset(h->v[i], 0, sizeof *h->v);
    for (int i = h->n + h->gap; i < h->slots; i++)
        memset(h->k[i], 0, sizeof *h->k), memset(h->v[i], 0, sizeof *h->v);
    for (int i = 0; i < h->n; i++) {
        const float *q = qkv + (size_t)i * 3 * d;
        const float *cos = a->cos ? a->cos + (size_t)(row + i) * HALF : NULL;
        const float *sin = a->cos ? a->sin + (size_t)(row + i) * HALF : NULL;
        const int j = slot(h, i);
        rotate(h->q[i], q, cos, sin, scale);
        rotate(h->k[j], q + d, cos, sin, 1.0f);
        memcpy(h->v[j], q + 2 * d, sizeof *h->v);
    }
    memset(h->q[h->n], 0, TILE * sizeof *h->q);
    transpose(h->kt, h->k, h->slots);
}

/* The tile at `row`. Tiles do not cross the end of the prefix. */
static struct tile tile_at(const struct attention *a, const struct head *h, const int32_t *first,
                           int row) {
    const int end = row < h->prefix ? h->prefix : h->n;
    struct tile t = {.row = row, .rows = end - row < TILE ? end - row : TILE};
    const int last = row + t.rows - 1;
    t.a = round_up(a->causal && row < h->prefix ? last + 1 : h->prefix, LANES);
    if (row >= h->prefix) { /* blocks lie in order, so the first row's begins first */
        t.from = slot(h, first[row]) / LANES * LANES;
        t.to = round_up(slot(h, last) + 1, LANES);
    }
    return t;
}

static inline int first_row(const struct attention *a) { return a->after ? a->prefix : 0; }

/* out[r][j] = x[r] . keys[j] for slots from .. to, keys transposed. */
static inline void dots(const struct head *h, float *out, float (*x)[HEAD], const float *keys,
                        int from, int to) {
    const int n = h->slots;
    int j = from;
    for (; j + 2 * LANES <= to; j += 2 * LANES) {
        vec s[TILE] = {0}, t[TILE] = {0};
        for (int d = 0; d < HEAD; d++) {
            vec a = load(keys + (size_t)d * n + j), b = load(keys + (size_t)d * n + j + LANES);
            UNROLL for (int r = 0; r < TILE; r++) s[r] += x[r][d] * a, t[r] += x[r][d] * b;
        }
        UNROLL for (int r = 0; r < TILE; r++) {
            store(out + (size_t)r * n + j, s[r]);
            store(out + (size_t)r * n + j + LANES, t[r]);
        }
    }
    if (j == to) return;
    vec s[TILE] = {0};
    for (int d = 0; d < HEAD; d++) {
        vec a = load(keys + (size_t)d * n + j);
        UNROLL for (int r = 0; r < TILE; r++) s[r] += x[r][d] * a;
    }
    UNROLL for (int r = 0; r < TILE; r++) store(out + (size_t)r * n + j, s[r]);
}

/* out[r] += sum of p[r][j] x[j] over slots from .. to */
static inline void mix(const struct head *h, float (*out)[HEAD], const float *p, float (*x)[HEAD],
                       int from, int to) {
    const int n = h->slots;
    vec a[TILE], b[TILE];
    UNROLL for (int r = 0; r < TILE; r++) a[r] = load(out[r]), b[r] = load(out[r] + LANES);
    for (int j = from; j < to; j++) {
        vec s = load(x[j]), t = load(x[j] + LANES);
        UNROLL for (int r = 0; r < TILE; r++) {
            a[r] += p[(size_t)r * n + j] * s;
            b[r] += p[(size_t)r * n + j] * t;
        }
    }
    UNROLL for (int r = 0; r < TILE; r++) store(out[r], a[r]), store(out[r] + LANES, b[r]);
}

/* out[j] += sum of p[r][j] x[r] over the tile's rows, for slots from .. to */
static inline void spread(const struct head *h, float (*out)[HEAD], const float *p,
                          float (*x)[HEAD], int from, int to) {
    const int n = h->slots;
    vec a[TILE], b[TILE];
    UNROLL for (int r = 0; r < TILE; r++) a[r] = load(x[r]), b[r] = load(x[r] + LANES);
    for (int j = from; j < to; j++) {
        vec s = load(out[j]), t = load(out[j] + LANES);
        UNROLL for (int r = 0; r < TILE; r++) {
            s += p[(size_t)r * n + j] * a[r];
            t += p[(size_t)r * n + j] * b[r];
        }
        store(out[j], s), store(out[j] + LANES, t);
    }
}

static inline void hide(float *p, int from, int to) {
    for (int j = from; j < to; j++) p[j] = HIDDEN;
}

/* Hides what row i of the tile does not see in the runs that the tile meets. */
static inline void hide_unseen(const struct attention *a, const struct head *h, struct tile t,
                               const int32_t *first, int i, float *p) {
    const int within = i < h->prefix;
    hide(p, a->causal && within ? i + 1 : h->prefix, t.a);
    if (within) return;
    hide(p, t.from, slot(h, first[i]));
    hide(p, slot(h, i) + 1, t.to);
}

static void scores(const struct attention *a, const struct head *h, struct tile t,
                   const int32_t *first) {
    dots(h, h->p, &h->q[t.row], h->kt, 0, t.a);
    dots(h, h->p, &h->q[t.row], h->kt, t.from, t.to);
    for (int r = 0; r < t.rows; r++)
        hide_unseen(a, h, t, first, t.row + r, h->p + (size_t)r * h->slots);
}

static inline float largest(const float *p, int from, int to, float m) {
    for (int j = from; j < to; j++) m = p[j] > m ? p[j] : m;
    return m;
}

/* p = 2^(p - m) on slots from .. to; returns their sum. */
static inline float powers(float *p, int from, int to, float m) {
    vec s = {0};
    for (int j = from; j < to; j += LANES) {
        vec x = exp2_of(load(p + j) - m);
        store(p + j, x);
        s += x;
    }
    return sum(s);
}

static void attend(const struct attention *a, struct head *h, const int32_t *first, float *out,
                   float *lse) {
    const int d = a->heads * HEAD;
    for (int row = first_row(a); row < h->n;) {
        struct tile t = tile_at(a, h, first, row);
        float o[TILE][HEAD] = {{0}}, inverse[TILE];
        scores(a, h, t, first);
        for (int r = 0; r < t.rows; r++) {
            float *p = h->p + (size_t)r * h->slots;
            const float m = largest(p, t.from, t.to, largest(p, 0, t.a, HIDDEN));
            const float s = powers(p, 0, t.a, m) + powers(p, t.from, t.to, m);
            inverse[r] = 1.0f / s;
            lse[row + r] = m + log2f(s);
        }
        mix(h, o, h->p, h->v, 0, t.a);
        mix(h, o, h->p, h->v, t.from, t.to);
        for (int r = 0; r < t.rows; r++) {
            float *to = out + (size_t)(row + r) * d;
            store(to, load(o[r]) * inverse[r]);
            store(to + LANES, load(o[r] + LANES) * inverse[r]);
        }
        row += t.rows;
    }
}

/* qkv [rows, 3, heads, HEAD] -> out [rows, heads, HEAD], lse [heads, rows] (base 2). */
void attention_forward(const struct attention *a, const float *qkv, float *out, float *lse) {
    const int d = a->heads * HEAD, rows = a->bounds[a->samples];
    for (int s = 0; s < a->samples; s++) {
        const int row = a->bounds[s];
        struct head h = carve(a, a->bounds[s + 1] - row);
        for (int i = 0; i < a->heads; i++) {
            read_head(a, &h, qkv + (size_t)row * 3 * d + i * HEAD, row);
            attend(a, &h, a->causal ? a->first + row : NULL, out + (size_t)row * d + i * HEAD,
                   lse + (size_t)i * rows + row);
        }
    }
}

/* p becomes the probabilities, ds (which holds g . v) the gradient of the scores:
 *   ds = p (g . v - g . o)   */
static inline void score_gradient(float *p, float *ds, int from, int to, float lse, float go) {
    for (int j = from; j < to; j += LANES) {
        vec x = exp2_of(load(p + j) - lse);
        store(p + j, x);
        store(ds + j, x * (load(ds + j) - go));
    }
}

static inline void zero(float *p, int from, int to) {
    if (to > from) memset(p + from, 0, (size_t)(to - from) * sizeof *p);
}

static void attend_backward(const struct attention *a, struct head *h, const int32_t *first,
                            const float *out, const float *lse, const float *grad) {
    const int d = a->heads * HEAD;
    for (int row = first_row(a); row < h->n;) {
        struct tile t = tile_at(a, h, first, row);
        float g[TILE][HEAD] = {{0}}, go[TILE] = {0};
        for (int r = 0; r < t.rows; r++) {
            const size_t at = (size_t)(row + r) * d;
            memcpy(g[r], grad + at, sizeof g[r]);
            for (int i = 0; i < HEAD; i++) go[r] += g[r][i] * out[at + i];
        }
        scores(a, h, t, first);
        dots(h, h->ds, g, h->vt, 0, t.a);
        dots(h, h->ds, g, h->vt, t.from, t.to);
        for (int r = 0; r < TILE; r++) {
            float *p = h->p + (size_t)r * h->slots, *ds = h->ds + (size_t)r * h->slots;
            if (r >= t.rows) { /* no such row */
                zero(p, 0, t.a), zero(p, t.from, t.to);
                zero(ds, 0, t.a), zero(ds, t.from, t.to);
                continue;
            }
            score_gradient(p, ds, 0, t.a, lse[row + r], go[r]);
            score_gradient(p, ds, t.from, t.to, lse[row + r], go[r]);
        }
        spread(h, h->dv, h->p, g, 0, t.a);
        spread(h, h->dv, h->p, g, t.from, t.to);
        spread(h, h->dk, h->ds, &h->q[row], 0, t.a);
        spread(h, h->dk, h->ds, &h->q[row], t.from, t.to);
        /* A tile may reach into the rows of the next, which are written later. */
        memset(h->dq[row], 0, TILE * sizeof *h->dq);
        mix(h, &h->dq[row], h->ds, h->k, 0, t.a);
        mix(h, &h->dq[row], h->ds, h->k, t.from, t.to);
        row += t.rows;
    }
}

static void write_gradient(const struct attention *a, const struct head *h, float *dqkv, int row) {
    const int d = a->heads * HEAD;
    for (int i = 0; i < h->n; i++) {
        float *q = dqkv + (size_t)i * 3 * d;
        const float *cos = a->cos ? a->cos + (size_t)(row + i) * HALF : NULL;
        const float *sin = a->cos ? a->sin + (size_t)(row + i) * HALF : NULL;
        const int j = slot(h, i);
        rotate_back(q, h->dq[i], cos, sin, 1.0f / sqrtf(HEAD));
        rotate_back(q + d, h->dk[j], cos, sin, LN2); /* of q's scale * log2(e) only scale stays */
        memcpy(q + 2 * d, h->dv[j], sizeof *h->dv);
    }
}

void attention_backward(const struct attention *a, const float *qkv, const float *out,
                        const float *lse, const float *grad, float *dqkv) {
    const int d = a->heads * HEAD, rows = a->bounds[a->samples];
    for (int s = 0; s < a->samples; s++) {
        const int row = a->bounds[s];
        struct head h = carve(a, a->bounds[s + 1] - row);
        for (int i = 0; i < a->heads; i++) {
            const size_t in = (size_t)row * 3 * d + i * HEAD, at = (size_t)row * d + i * HEAD;
            read_head(a, &h, qkv + in, row);
            transpose(h.vt, h.v, h.slots);
            memset(h.dk, 0, (size_t)h.slots * sizeof *h.dk);
            memset(h.dv, 0, (size_t)h.slots * sizeof *h.dv);
            memset(h.dq, 0, (size_t)first_row(a) * sizeof *h.dq);
            attend_backward(a, &h, a->causal ? a->first + row : NULL, out + at,
                            lse + (size_t)i * rows + row, grad + at);
            write_gradient(a, &h, dqkv + in, row);
        }
    }
}

/* ---- norms: x [rows, d], d a multiple of LANES --------------------------------------------------
 * Backward passes add the gradient that goes around the norm, and add to the gradients of the
 * weights. */

static const float EPSILON = 1e-5f;

/* y = x w / sqrt(mean(x^2) + eps); inverse [rows] is kept for the backward pass. */
void rms_forward(int64_t rows, int64_t d, const float *x, const float *w, float *y,
                 float *inverse) {
    for (int64_t i = 0; i < rows; i++, x += d, y += d) {
        float s = 0;
        for (int64_t j = 0; j < d; j++) s += x[j] * x[j];
        const float r = inverse[i] = 1.0f / sqrtf(s / (float)d + EPSILON);
        for (int64_t j = 0; j < d; j++) y[j] = x[j] * r * w[j];
    }
}

void rms_backward(int64_t rows, int64_t d, const float *restrict x, const float *restrict w,
                  const float *restrict inverse, const float *restrict dy,
                  const float *restrict around, float *restrict dx, float *restrict dw) {
    for (int64_t i = 0; i < rows; i++, x += d, dy += d, around += d, dx += d) {
        const float r = inverse[i];
        float s = 0;
        for (int64_t j = 0; j < d; j++) s += dy[j] * w[j] * x[j];
        s *= r * r * r / (float)d;
        for (int64_t j = 0; j < d; j++) {
            dx[j] = around[j] + r * dy[j] * w[j] - s * x[j];
            dw[j] += dy[j] * x[j] * r;
        }
    }
}

/* y = (x - mean) w / sqrt(variance + eps) + b; moments [rows, 2] = (mean, 1 / deviation). */
void layer_norm_forward(int64_t rows, int64_t d, const float *x, const float *w, const float *b,
                        float *y, float *moments) {
    for (int64_t i = 0; i < rows; i++, x += d, y += d) {
        float mean = 0, s = 0;
        for (int64_t j = 0; j < d; j++) mean += x[j];
        mean /= (float)d;
        for (int64_t j = 0; j < d; j++) s += (x[j] - mean) * (x[j] - mean);
        const float r = 1.0f / sqrtf(s / (float)d + EPSILON);
        for (int64_t j = 0; j < d; j++) y[j] = (x[j] - mean) * r * w[j] + b[j];
        moments[2 * i] = mean, moments[2 * i + 1] = r;
    }
}

void layer_norm_backward(int64_t rows, int64_t d, const float *restrict x, const float *restrict w,
                         const float *restrict moments, const float *restrict dy,
                         const float *restrict around, float *restrict dx, float *restrict dw,
                         float *restrict db) {
    for (int64_t i = 0; i < rows; i++, x += d, dy += d, around += d, dx += d) {
        const float mean = moments[2 * i], r = moments[2 * i + 1];
        float s = 0, t = 0;
        for (int64_t j = 0; j < d; j++) {
            s += dy[j] * w[j];
            t += dy[j] * w[j] * (x[j] - mean);
        }
        s /= (float)d, t *= r * r / (float)d;
        for (int64_t j = 0; j < d; j++) {
            dx[j] = around[j] + r * (dy[j] * w[j] - s - (x[j] - mean) * t);
            dw[j] += dy[j] * (x[j] - mean) * r;
            db[j] += dy[j];
        }
    }
}

/* ---- gates: m a multiple of LANES -------------------------------------------------------------
 */

/* x [rows, 2, m] = (gate, up) -> y = gate sigmoid(gate) up */
void swiglu_forward(int64_t rows, int64_t m, const float *x, float *y) {
    for (int64_t i = 0; i < rows; i++, x += 2 * m, y += m)
        for (int64_t j = 0; j < m; j += LANES) {
            vec gate = load(x + j);
            store(y + j, gate * sigmoid(gate) * load(x + m + j));
        }
}

void swiglu_backward(int64_t rows, int64_t m, const float *x, const float *dy, float *dx) {
    for (int64_t i = 0; i < rows; i++, x += 2 * m, dy += m, dx += 2 * m)
        for (int64_t j = 0; j < m; j += LANES) {
            vec gate = load(x + j), s = sigmoid(gate), g = load(dy + j);
            store(dx + j, g * load(x + m + j) * s * (1.0f + gate * (1.0f - s)));
            store(dx + m + j, g * gate * s);
        }
}

/* y = x sigmoid(1.702 x), n a multiple of LANES */
void quick_gelu_forward(int64_t n, const float *x, float *y) {
    for (int64_t j = 0; j < n; j += LANES)
        store(y + j, load(x + j) * sigmoid(1.702f * load(x + j)));
}

void quick_gelu_backward(int64_t n, const float *x, const float *dy, float *dx) {
    for (int64_t j = 0; j < n; j += LANES) {
        vec a = 1.702f * load(x + j), s = sigmoid(a);
        store(dx + j, load(dy + j) * s * (1.0f + a * (1.0f - s)));
    }
}
