/* ops.c with matrices in bf16: inputs and outputs of products are bf16, sums and the residual
 * stream stay f32. Attention multiplies pairs of bf16 where the machine can. Functions have the
 * names of ops.c's with `_half` at the end; ops.py builds this file, and with it ops.c.
 *
 * A pair is 32 bits: its first number in the low half. */
#include "ops.c"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

typedef uint32_t uvec __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t hvec __attribute__((vector_size(32), aligned(2), may_alias));

enum { PAIRS = HEAD / 2 };

static inline vec widen(const uint16_t *p) {
    return (vec)(__builtin_convertvector(*(const hvec *)p, uvec) << 16);
}

/* Rounds to bf16, in the high half of each lane; the low half is garbage. */
static inline uvec rounded(vec x) {
    uvec u = (uvec)x;
    return u + 0x7fff + (u >> 16 & 1);
}

static inline void narrow(uint16_t *p, vec x) {
    *(hvec *)p = __builtin_convertvector(rounded(x) >> 16, hvec);
}

static inline uvec pair_of(vec low, vec high) {
    return rounded(low) >> 16 | (rounded(high) & 0xffff0000u);
}

static inline uvec get(const uint32_t *p) { return *(const uvec *)p; }
static inline void put(uint32_t *p, uvec x) { *(uvec *)p = x; }

/* Returns s + a b for both numbers of each pair; b is the same in every lane. */
static inline vec dot(vec s, uvec a, uint32_t b) {
#ifdef __AVX512BF16__
    return (vec)_mm512_dpbf16_ps((__m512)s, (__m512bh)a, (__m512bh)_mm512_set1_epi32((int)b));
#else
    uvec all_b = b - (uvec){0};
    s += (vec)(a << 16) * (vec)(all_b << 16);
    return s + (vec)(a & 0xffff0000u) * (vec)(all_b & 0xffff0000u);
#endif
}

/* 2^x like exp2_of, with a relative error of 4e-6. */
static inline vec short_exp2_of(vec x) {
    x = at_least(x, -127.0f);
    ivec biased = __builtin_convertvector(x + 127.5f, ivec);
    vec f = x - __builtin_convertvector(biased - 127, vec);
    vec y = f * 9.61812911e-3f + 5.55041087e-2f;
    y = y * f + 2.40226507e-1f;
    y = y * f + 6.93147181e-1f;
    y = y * f + 1.0f;
    return y * (vec)(biased << 23);
}

/* ---- attention -------------------------------------------------------------------------------- */

/* struct head's members, in pairs: over d for products with a row, over rows for sums of rows. */
struct half_head {
    struct head at;                  /* n, prefix, gap, slots, dq, dk, dv, p, ds */
    uint32_t (*q)[PAIRS];            /* [n + TILE] over d */
    uint32_t (*rows)[PAIRS];         /* [slots] over d: keys or values before they are laid out */
    uint32_t *kt, *vt;               /* [PAIRS, slots] over d */
    uint32_t (*k)[HEAD], (*v)[HEAD]; /* [slots / 2] over rows */
    uint32_t *p, *ds;                /* [TILE, slots / 2] over keys */
    uint32_t *pt, *dst;              /* [TILE / 2, slots] over the tile's rows */
};

static struct half_head carve_half(const struct attention *a, int n) {
    struct half_head h = {.at = {.n = n, .prefix = a->causal ? a->prefix : n}};
    struct head *o = &h.at;
    o->gap = round_up(o->prefix, LANES) - o->prefix;
    o->slots = round_up(n + o->gap, LANES);
    float *at = a->scratch;
    const size_t slots = (size_t)o->slots;
    o->dk = (float(*)[HEAD])at, at += slots * HEAD;
    o->dv = (float(*)[HEAD])at, at += slots * HEAD;
    o->dq = (float(*)[HEAD])at, at += (size_t)(n + TILE) * HEAD;
    o->p = at, at += slots * TILE;
    o->ds = at, at += slots * TILE;
    h.q = (uint32_t(*)[PAIRS])at, at += (size_t)(n + TILE) * PAIRS;
    h.rows = (uint32_t(*)[PAIRS])at, at += slots * PAIRS;
    h.kt = (uint32_t *)at, at += slots * PAIRS;
    h.vt = (uint32_t *)at, at += slots * PAIRS;
    h.k = (uint32_t(*)[HEAD])at, at += slots / 2 * HEAD;
    h.v = (uint32_t(*)[HEAD])at, at += slots / 2 * HEAD;
    h.p = (uint32_t *)at, at += slots / 2 * TILE;
    h.ds = (uint32_t *)at, at += slots / 2 * TILE;
    h.pt = (uint32_t *)at, at += slots * TILE / 2;
    h.dst = (uint32_t *)at;
    return h;
}

static inline void rotate_half(uint16_t *out, const uint16_t *x, const float *cos, const float *sin,
                               float by) {
    vec a = widen(x) * by, b = widen(x + HALF) * by;
    if (cos) {
        vec c = load(cos), s = load(sin), t = a * c - b * s;
        b = b * c + a * s, a = t;
    }
    narrow(out, a), narrow(out + HALF, b);
}

/* Two rows of HEAD numbers -> pairs of one number of each. */
static inline void interleave(uint32_t *out, const uint16_t *low, const uint16_t *high) {
    for (int d = 0; d < HEAD; d += LANES)
        put(out + d, (uvec)widen(low + d) >> 16 | (uvec)widen(high + d));
}

static void lay_out(const struct half_head *h, uint32_t *across, uint32_t (*over)[HEAD]) {
    const size_t slots = (size_t)h->at.slots;
    for (size_t j = 0; j < slots; j += LANES)
        for (int d = 0; d < PAIRS; d++)
            for (int i = 0; i < LANES; i++) across[(size_t)d * slots + j + i] = h->rows[j + i][d];
    for (size_t j = 0; j < slots; j += 2)
        interleave(over[j / 2], (const uint16_t *)h->rows[j], (const uint16_t *)h->rows[j + 1]);
}

/* `qkv` points at q of this head in the sample's first row. */
static void read_half(const struct attention *a, struct half_head *h, const uint16_t *qkv,
                      int row) {
    const struct head *o = &h->at;
    const int d = a->heads * HEAD;
    const float scale = LOG2E / sqrtf(HEAD);
    memset(h->rows[o->prefix], 0, (size_t)o->gap * sizeof *h->rows);
    memset(h->rows[o->n + o->gap], 0, (size_t)(o->slots - o->n - o->gap) * sizeof *h->rows);
    for (int i = 0; i < o->n; i++) {
        const uint16_t *q = qkv + (size_t)i * 3 * d;
        const float *cos = a->cos ? a->cos + (size_t)(row + i) * HALF : NULL;
        const float *sin = a->cos ? a->sin + (size_t)(row + i) * HALF : NULL;
        rotate_half((uint16_t *)h->q[i], q, cos, sin, scale);
        rotate_half((uint16_t *)h->rows[slot(o, i)], q + d, cos, sin, 1.0f);
    }
    memset(h->q[o->n], 0, TILE * sizeof *h->q);
    lay_out(h, h->kt, h->k);
    for (int i = 0; i < o->n; i++)
        memcpy(h->rows[slot(o, i)], qkv + (size_t)i * 3 * d + 2 * d, sizeof *h->rows);
    lay_out(h, h->vt, h->v);
}

/* out[r][j] = x[r] . keys[j] for slots from .. to */
static inline void dots_half(size_t n, float *out, uint32_t (*x)[PAIRS], const uint32_t *keys,
                             int from, int to) {
    int j = from;
    for (; j + 2 * LANES <= to; j += 2 * LANES) {
        vec s[TILE] = {0}, t[TILE] = {0};
        for (int d = 0; d < PAIRS; d++) {
            uvec a = get(keys + (size_t)d * n + j), b = get(keys + (size_t)d * n + j + LANES);
            UNROLL for (int r = 0; r < TILE; r++) {
                s[r] = dot(s[r], a, x[r][d]);
                t[r] = dot(t[r], b, x[r][d]);
            }
        }
        UNROLL for (int r = 0; r < TILE; r++) {
            store(out + (size_t)r * n + j, s[r]);
            store(out + (size_t)r * n + j + LANES, t[r]);
        }
    }
    if (j == to) return;
    vec s[TILE] = {0};
    for (int d = 0; d < PAIRS; d++) {
        uvec a = get(keys + (size_t)d * n + j);
        UNROLL for (int r = 0; r < TILE; r++) s[r] = dot(s[r], a, x[r][d]);
    }
    UNROLL for (int r = 0; r < TILE; r++) store(out + (size_t)r * n + j, s[r]);
}

/* out[r] += sum of p[r][j] x[j] over slots from .. to */
static inline void mix_half(size_t n, float (*out)[HEAD], const uint32_t *p, uint32_t (*x)[HEAD],
                            int from, int to) {
    vec a[TILE], b[TILE];
    UNROLL for (int r = 0; r < TILE; r++) a[r] = load(out[r]), b[r] = load(out[r] + LANES);
    for (int j = from / 2; j < to / 2; j++) {
        uvec s = get(x[j]), t = get(x[j] + LANES);
        UNROLL for (int r = 0; r < TILE; r++) {
            a[r] = dot(a[r], s, p[(size_t)r * (n / 2) + j]);
            b[r] = dot(b[r], t, p[(size_t)r * (n / 2) + j]);
        }
    }
    UNROLL for (int r = 0; r < TILE; r++) store(out[r], a[r]), store(out[r] + LANES, b[r]);
}

/* out[j] += sum of p[r][j] x[r] over the tile's rows, for slots from .. to */
static inline void spread_half(size_t n, float (*out)[HEAD], const uint32_t *p, uint32_t (*x)[HEAD],
                               int from, int to) {
    uvec a[TILE / 2], b[TILE / 2];
    UNROLL for (int r = 0; r < TILE / 2; r++) a[r] = get(x[r]), b[r] = get(x[r] + LANES);
    for (int j = from; j < to; j++) {
        vec s = load(out[j]), t = load(out[j] + LANES);
        UNROLL for (int r = 0; r < TILE / 2; r++) {
            s = dot(s, a[r], p[(size_t)r * n + j]);
            t = dot(t, b[r], p[(size_t)r * n + j]);
        }
        store(out[j], s), store(out[j] + LANES, t);
    }
}

static void scores_half(const struct attention *a, const struct half_head *h, struct tile t,
                        const int32_t *first) {
    const struct head *o = &h->at;
    const size_t n = (size_t)o->slots;
    dots_half(n, o->p, &h->q[t.row], h->kt, 0, t.a);
    dots_half(n, o->p, &h->q[t.row], h->kt, t.from, t.to);
    for (int r = 0; r < t.rows; r++) hide_unseen(a, o, t, first, t.row + r, o->p + r * n);
}

/* out = 2^(p - m) on slots from .. to; returns their sum. */
static inline float powers_half(uint16_t *out, const float *p, int from, int to, float m) {
    vec s = {0};
    for (int j = from; j < to; j += LANES) {
        vec x = short_exp2_of(load(p + j) - m);
        narrow(out + j, x);
        s += x;
    }
    return sum(s);
}

static void attend_half(const struct attention *a, struct half_head *h, const int32_t *first,
                        uint16_t *out, float *lse) {
    const struct head *o = &h->at;
    const int d = a->heads * HEAD;
    const size_t n = (size_t)o->slots;
    for (int row = first_row(a); row < o->n;) {
        struct tile t = tile_at(a, o, first, row);
        float y[TILE][HEAD] = {{0}}, inverse[TILE];
        scores_half(a, h, t, first);
        for (int r = 0; r < t.rows; r++) {
            const float *p = o->p + r * n;
            uint16_t *to = (uint16_t *)(h->p + r * (n / 2));
            const float m = largest(p, t.from, t.to, largest(p, 0, t.a, HIDDEN));
            const float s = powers_half(to, p, 0, t.a, m) + powers_half(to, p, t.from, t.to, m);
            inverse[r] = 1.0f / s;
            lse[row + r] = m + log2f(s);
        }
        mix_half(n, y, h->p, h->v, 0, t.a);
        mix_half(n, y, h->p, h->v, t.from, t.to);
        for (int r = 0; r < t.rows; r++) {
            uint16_t *to = out + (size_t)(row + r) * d;
            narrow(to, load(y[r]) * inverse[r]);
            narrow(to + LANES, load(y[r] + LANES) * inverse[r]);
        }
        row += t.rows;
    }
}

void attention_forward_half(const struct attention *a, const uint16_t *qkv, uint16_t *out,
                            float *lse) {
    const int d = a->heads * HEAD, rows = a->bounds[a->samples];
    for (int s = 0; s < a->samples; s++) {
        const int row = a->bounds[s];
        struct half_head h = carve_half(a, a->bounds[s + 1] - row);
        for (int i = 0; i < a->heads; i++) {
            read_half(a, &h, qkv + (size_t)row * 3 * d + i * HEAD, row);
            attend_half(a, &h, a->causal ? a->first + row : NULL, out + (size_t)row * d + i * HEAD,
                        lse + (size_t)i * rows + row);
        }
    }
}

/* Like score_gradient, for two rows of the tile; both results in pairs over keys and over the two
 * rows. */
static inline void score_gradients(const struct half_head *h, int r, int from, int to,
                                   const float *lse, const float *go) {
    const struct head *o = &h->at;
    const size_t n = (size_t)o->slots;
    const float *p = o->p + r * n, *ds = o->ds + r * n;
    uint16_t *g = (uint16_t *)(h->ds + r * (n / 2));
    uint32_t *pt = h->pt + r / 2 * n, *dst = h->dst + r / 2 * n;
    for (int j = from; j < to; j += LANES) {
        vec x = short_exp2_of(load(p + j) - lse[0]), y = short_exp2_of(load(p + n + j) - lse[1]);
        put(pt + j, pair_of(x, y));
        uvec u = rounded(x * (load(ds + j) - go[0])), v = rounded(y * (load(ds + n + j) - go[1]));
        put(dst + j, u >> 16 | (v & 0xffff0000u));
        *(hvec *)(g + j) = __builtin_convertvector(u >> 16, hvec);
        *(hvec *)(g + n + j) = __builtin_convertvector(v >> 16, hvec);
    }
}

static void attend_backward_half(const struct attention *a, struct half_head *h,
                                 const int32_t *first, const uint16_t *out, const float *lse,
                                 const uint16_t *grad) {
    const struct head *o = &h->at;
    const int d = a->heads * HEAD;
    const size_t n = (size_t)o->slots;
    for (int row = first_row(a); row < o->n;) {
        struct tile t = tile_at(a, o, first, row);
        uint32_t g[TILE][PAIRS] = {{0}}, gt[TILE / 2][HEAD], qt[TILE / 2][HEAD];
        float go[TILE] = {0}, base[TILE];
        for (int r = 0; r < TILE; r++) {
            base[r] = -2 * HIDDEN; /* no such row: probabilities are 0 */
            if (r >= t.rows) continue;
            const size_t at = (size_t)(row + r) * d;
            memcpy(g[r], grad + at, sizeof g[r]);
            go[r] = sum(widen(grad + at) * widen(out + at) +
                        widen(grad + at + LANES) * widen(out + at + LANES));
            base[r] = lse[row + r];
        }
        for (int r = 0; r < TILE; r += 2) {
            interleave(gt[r / 2], (uint16_t *)g[r], (uint16_t *)g[r + 1]);
            interleave(qt[r / 2], (uint16_t *)h->q[row + r], (uint16_t *)h->q[row + r + 1]);
        }
        scores_half(a, h, t, first);
        dots_half(n, o->ds, g, h->vt, 0, t.a);
        dots_half(n, o->ds, g, h->vt, t.from, t.to);
        for (int r = 0; r < TILE; r += 2) {
            score_gradients(h, r, 0, t.a, base + r, go + r);
            score_gradients(h, r, t.from, t.to, base + r, go + r);
        }
        spread_half(n, o->dv, h->pt, gt, 0, t.a);
        spread_half(n, o->dv, h->pt, gt, t.from, t.to);
        spread_half(n, o->dk, h->dst, qt, 0, t.a);
        spread_half(n, o->dk, h->dst, qt, t.from, t.to);
        /* A tile may reach into the rows of the next, which are written later. */
        memset(o->dq[row], 0, TILE * sizeof *o->dq);
        mix_half(n, &o->dq[row], h->ds, h->k, 0, t.a);
        mix_half(n, &o->dq[row], h->ds, h->k, t.from, t.to);
        row += t.rows;
    }
}

static inline void rotate_back_half(uint16_t *out, const float *x, const float *cos,
                                    const float *sin, float by) {
    float y[HEAD];
    rotate_back(y, x, cos, sin, by);
    narrow(out, load(y)), narrow(out + LANES, load(y + LANES));
}

static void write_half(const struct attention *a, const struct head *h, uint16_t *dqkv, int row) {
    const int d = a->heads * HEAD;
    for (int i = 0; i < h->n; i++) {
        uint16_t *q = dqkv + (size_t)i * 3 * d;
        const float *cos = a->cos ? a->cos + (size_t)(row + i) * HALF : NULL;
        const float *sin = a->cos ? a->sin + (size_t)(row + i) * HALF : NULL;
        const int j = slot(h, i);
        rotate_back_half(q, h->dq[i], cos, sin, 1.0f / sqrtf(HEAD));
        rotate_back_half(q + d, h->dk[j], cos, sin, LN2);
        narrow(q + 2 * d, load(h->dv[j])), narrow(q + 2 * d + LANES, load(h->dv[j] + LANES));
    }
}

void attention_backward_half(const struct attention *a, const uint16_t *qkv, const uint16_t *out,
                             const float *lse, const uint16_t *grad, uint16_t *dqkv) {
    const int d = a->heads * HEAD, rows = a->bounds[a->samples];
    for (int s = 0; s < a->samples; s++) {
        const int row = a->bounds[s];
        struct half_head h = carve_half(a, a->bounds[s + 1] - row);
        struct head *o = &h.at;
        for (int i = 0; i < a->heads; i++) {
            const size_t in = (size_t)row * 3 * d + i * HEAD, at = (size_t)row * d + i * HEAD;
            read_half(a, &h, qkv + in, row);
            memset(o->dk, 0, (size_t)o->slots * sizeof *o->dk);
            memset(o->dv, 0, (size_t)o->slots * sizeof *o->dv);
            memset(o->dq, 0, (size_t)first_row(a) * sizeof *o->dq);
            attend_backward_half(a, &h, a->causal ? a->first + row : NULL, out + at,
                                 lse + (size_t)i * rows + row, grad + at);
            write_half(a, o, dqkv + in, row);
        }
    }
}

/* ---- norms -------------------------------------------------------------------------------------- */

void rms_forward_half(int64_t rows, int64_t d, const float *x, const float *w, uint16_t *y,
                      float *inverse) {
    for (int64_t i = 0; i < rows; i++, x += d, y += d) {
        vec s = {0};
        for (int64_t j = 0; j < d; j += LANES) s += load(x + j) * load(x + j);
        const float r = inverse[i] = 1.0f / sqrtf(sum(s) / (float)d + EPSILON);
        for (int64_t j = 0; j < d; j += LANES) narrow(y + j, load(x + j) * r * load(w + j));
    }
}

void rms_backward_half(int64_t rows, int64_t d, const float *x, const float *w,
                       const float *inverse, const uint16_t *dy, const float *around, float *dx,
                       float *dw) {
    for (int64_t i = 0; i < rows; i++, x += d, dy += d, around += d, dx += d) {
        const float r = inverse[i];
        vec t = {0};
        for (int64_t j = 0; j < d; j += LANES) t += widen(dy + j) * load(w + j) * load(x + j);
        const float s = sum(t) * r * r * r / (float)d;
        for (int64_t j = 0; j < d; j += LANES) {
            vec g = widen(dy + j) * r, at = load(x + j);
            store(dx + j, load(around + j) + g * load(w + j) - s * at);
            store(dw + j, load(dw + j) + g * at);
        }
    }
}

void layer_norm_forward_half(int64_t rows, int64_t d, const float *x, const float *w,
                             const float *b, uint16_t *y, float *moments) {
    for (int64_t i = 0; i < rows; i++, x += d, y += d) {
        vec m = {0}, s = {0};
        for (int64_t j = 0; j < d; j += LANES) m += load(x + j);
        const float mean = sum(m) / (float)d;
        for (int64_t j = 0; j < d; j += LANES) s += (load(x + j) - mean) * (load(x + j) - mean);
        const float r = 1.0f / sqrtf(sum(s) / (float)d + EPSILON);
        for (int64_t j = 0; j < d; j += LANES)
            narrow(y + j, (load(x + j) - mean) * r * load(w + j) + load(b + j));
        moments[2 * i] = mean, moments[2 * i + 1] = r;
    }
}

void layer_norm_backward_half(int64_t rows, int64_t d, const float *x, const float *w,
                              const float *moments, const uint16_t *dy, const float *around,
                              float *dx, float *dw, float *db) {
    for (int64_t i = 0; i < rows; i++, x += d, dy += d, around += d, dx += d) {
        const float mean = moments[2 * i], r = moments[2 * i + 1];
        vec sums = {0}, against = {0};
        for (int64_t j = 0; j < d; j += LANES) {
            vec g = widen(dy + j) * load(w + j);
            sums += g, against += g * (load(x + j) - mean);
        }
        const float s = sum(sums) / (float)d, t = sum(against) * r * r / (float)d;
        for (int64_t j = 0; j < d; j += LANES) {
            vec g = widen(dy + j), at = load(x + j) - mean;
            store(dx + j, load(around + j) + r * (g * load(w + j) - s - at * t));
            store(dw + j, load(dw + j) + g * at * r);
            store(db + j, load(db + j) + g);
        }
    }
}

/* ---- gates and sums ----------------------------------------------------------------------------- */

void swiglu_forward_half(int64_t rows, int64_t m, const uint16_t *x, uint16_t *y) {
    for (int64_t i = 0; i < rows; i++, x += 2 * m, y += m)
        for (int64_t j = 0; j < m; j += LANES) {
            vec gate = widen(x + j);
            narrow(y + j, gate * sigmoid(gate) * widen(x + m + j));
        }
}

void swiglu_backward_half(int64_t rows, int64_t m, const uint16_t *x, const uint16_t *dy,
                          uint16_t *dx) {
    for (int64_t i = 0; i < rows; i++, x += 2 * m, dy += m, dx += 2 * m)
        for (int64_t j = 0; j < m; j += LANES) {
            vec gate = widen(x + j), s = sigmoid(gate), g = widen(dy + j);
            narrow(dx + j, g * widen(x + m + j) * s * (1.0f + gate * (1.0f - s)));
            narrow(dx + m + j, g * gate * s);
        }
}

void quick_gelu_forward_half(int64_t n, const uint16_t *x, uint16_t *y) {
    for (int64_t j = 0; j < n; j += LANES)
        narrow(y + j, widen(x + j) * sigmoid(1.702f * widen(x + j)));
}

void quick_gelu_backward_half(int64_t n, const uint16_t *x, const uint16_t *dy, uint16_t *dx) {
    for (int64_t j = 0; j < n; j += LANES) {
        vec a = 1.702f * widen(x + j), s = sigmoid(a);
        narrow(dx + j, widen(dy + j) * s * (1.0f + a * (1.0f - s)));
    }
}

/* out = x + y, n a multiple of LANES */
void add_half(int64_t n, const float *x, const uint16_t *y, float *out) {
    for (int64_t j = 0; j < n; j += LANES) store(out + j, load(x + j) + widen(y + j));
}

void add_float(int64_t n, const float *x, const float *y, float *out) {
    for (int64_t j = 0; j < n; j += LANES) store(out + j, load(x + j) + load(y + j));
}
