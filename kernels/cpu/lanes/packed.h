#ifndef FOVEA_KERNELS_CPU_LANES_PACKED_H
#define FOVEA_KERNELS_CPU_LANES_PACKED_H

/* Decodes a packed block in 16-lane vectors, to lines padded with zeros: each number by the fma and product
 * of packed/read.h, so with the same bits.
 *
 * Codes are read in whole vectors, past the end of a line: the block's last array, the basis' pairs, follows
 * all codes. */
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/lanes/chains.h"
#include "kernels/cpu/lanes/linear_bf16.h"
#include "kernels/ops.h"
#include "packed/read.h"

enum { PACKED_VECTORS = 48 }; /* the most vectors of an item, unless one row has more heads */

/* ---- an item's memory ------------------------------------------------------------------ */

/* Bump allocator for an item's scratch; without a base it only counts the bytes. */
typedef struct scratch_bump {
    char *base;
    size_t bytes;
} scratch_bump;

static float *scratch_take(scratch_bump *at, size_t n) {
    char *p = at->base ? at->base + at->bytes : NULL;
    at->bytes += padded(n) * sizeof(float);
    return (float *)p;
}

/* Returns p [R, 64] with the columns of a list's rows contiguous: in place if the list has no gap, otherwise
 * in `copy`, with zeros after them. */
static const float *listed(const float *p, float *copy, int32_t R, int32_t j0, const int32_t *list,
                           int32_t n) {
    if (n == 0 || list[n - 1] == j0 + n - 1) return p;
    memset(copy, 0, (size_t)R * FV_KV_BLOCK * sizeof *copy);
    for (int32_t v = 0; v < R; v++)
        for (int32_t i = 0; i < n; i++)
            copy[v * FV_KV_BLOCK + i] = p[v * FV_KV_BLOCK + list[i] - j0];
    return copy;
}

/* ---- products -------------------------------------------------------------------------- */

static const packed_products packed_f32 = {.step = LANES},
                             packed_bf16 = {.multiply = bf16_products, .step = BF16_STEP};

static const packed_products *packed_for(const fv_cpu_attention *c) {
    return c->compute == FV_COMPUTE_BF16 ? c->isa->packed : &packed_f32;
}

/* n rounded up to whole steps of a product. */
static size_t stepped(const packed_products *p, size_t n) {
    return (n + p->step - 1) / p->step * p->step;
}

static void round_all(const packed_products *p, float *x, size_t n) {
    for (size_t i = 0; !p->rounds && i < n; i += LANES)
        f32x16_store(x + i, f32x16_round_bf16(f32x16_load(x + i)));
}

/* Prepares M rows of n numbers as operand x: rounds them for products in bf16, and adds zeros. */
static void as_rows(const packed_products *p, float *x, size_t ld, int64_t M, size_t n) {
    const size_t zeros = stepped(p, n) - n;
    for (; p->multiply && M > 0 && (zeros || !p->rounds); M--, x += ld) {
        if (zeros) memset(x + n, 0, zeros * sizeof *x);
        round_all(p, x, n);
    }
}

/* Prepares n lines of `cols` numbers, whole vectors, as operand w, likewise. */
static void as_lines(const packed_products *p, float *w, size_t ld, size_t n, size_t cols) {
    if (!p->multiply) return;
    for (size_t k = 0; k < n && !p->rounds; k++) round_all(p, w + k * ld, cols);
    for (size_t k = n; k < stepped(p, n); k++) memset(w + k * ld, 0, cols * sizeof *w);
}

/* y = y * c + x w, as chains_all; x and w come from as_rows and as_lines. */
static void packed_multiply(const packed_products *p, chains a, int64_t M, size_t bytes) {
    if (!p->multiply) {
        chains_all(a, M, bytes);
        return;
    }
    for (size_t i = 0; a.next && i < bytes; i += 64) _mm_prefetch(a.next + i, _MM_HINT_T1);
    for (int64_t m = 0; m < M && a.c != GOES_ON; m++)
        for (size_t i = 0; i < a.registers * LANES; i += LANES) {
            float *y = a.y + (size_t)m * a.ldy + i;
            f32x16_store(y, a.c ? f32x16_mul(f32x16_load(y), f32x16_all(a.c[m])) : f32x16_zero());
        }
    p->multiply(&(bf16_product){.x = a.x,
                                .w = a.panel,
                                .ldx = a.ldx,
                                .ldw = LANES,
                                .ld_line = a.ldp,
                                .M = (int)M,
                                .panels = (int)a.registers,
                                .steps = bf16_steps(a.K),
                                .acc = a.y,
                                .ld_row = a.ldy,
                                .ld_panel = LANES});
}

/* ---- lines ----------------------------------------------------------------------------- */

/* Widens n stored numbers. */
static ALWAYS_INLINE void numbers_line(const char *p, const fv_dtype t, size_t n, float *y) {
    size_t size = fv_dtype_bytes(t), i = 0;
    for (; i + LANES <= n; i += LANES) f32x16_store(y + i, f32x16_widen(p + i * size, t));
    if (i < n) f32x16_store(y + i, f32x16_widen_tail(p + i * size, t, n - i));
}

/* Decodes codes: fma(step, c, lo) times column, if there is one. */
typedef struct code_scale {
    const float *lo,
        *step; /* one pair for all, or with `each` one per element, up to whole vectors */
    bool each;
    const float *column; /* one per element, or NULL */
} code_scale;

/* Decodes n codes. */
static ALWAYS_INLINE void codes_line(const char *p, const int bits, size_t n, code_scale c,
                                     float *y) {
    for (size_t i = 0; i < n; i += LANES, p += LANES * (size_t)bits / 8) {
        f32x16 lo = c.each ? f32x16_load(c.lo + i) : f32x16_all(*c.lo);
        f32x16 step = c.each ? f32x16_load(c.step + i) : f32x16_all(*c.step);
        f32x16 x = f32x16_fma(step, f32x16_of_codes(p, bits), lo);
        if (c.column) x = f32x16_mul(x, f32x16_load(c.column + i));
        f32x16_store(y + i, x);
    }
    for (; n % LANES != 0; n++) y[n] = 0.0f;
}

/* ---- U --------------------------------------------------------------------------------- */

/* Decodes one tile of keys' U in one tier: column r of its 16 rows to y + r * ld. */
static void lanes_k_tile(const packed_view *v, int tier, size_t tile, float *y, size_t ld) {
    size_t n = fv_packed_tier_rank(&v->s, tier), r0 = tier ? (size_t)v->s.lowrank.rank2 : 0;
    size_t bytes = fv_packed_row_bytes(&v->s, FV_PACKED_TILE), r;
    const char *p = v->data + v->l.tier[tier] + tile * v->l.stride[tier];
    const float *pair = (const float *)(v->data + v->l.pair) + 2 * r0;
    if (v->s.lowrank.bits == 8) {
        for (r = 0; r < n; r++, p += bytes, y += ld, pair += 2)
            codes_line(p, 8, LANES, (code_scale){.lo = pair, .step = pair + 1}, y);
    } else if (v->s.lowrank.bits == 4) {
        for (r = 0; r < n; r++, p += bytes, y += ld, pair += 2)
            codes_line(p, 4, LANES, (code_scale){.lo = pair, .step = pair + 1}, y);
    } else if (v->s.dtype == FV_BF16) {
        for (r = 0; r < n; r++, p += bytes, y += ld) f32x16_store(y, f32x16_widen(p, FV_BF16));
    } else if (v->s.dtype == FV_F16) {
        for (r = 0; r < n; r++, p += bytes, y += ld) f32x16_store(y, f32x16_widen(p, FV_F16));
    } else {
        for (r = 0; r < n; r++, p += bytes, y += ld) f32x16_store(y, f32x16_widen(p, FV_F32));
    }
}

/* Decodes rows j[0 .. n) of values' U in one tier, to lines ld apart. */
static ALWAYS_INLINE void v_rows(const packed_view *v, int tier, const int32_t *j, int32_t n,
                                 const int bits, const fv_dtype type, float *y, size_t ld) {
    size_t stride = v->l.stride[tier], width = fv_packed_tier_rank(&v->s, tier);
    const float *column = (const float *)(v->data + v->l.column) + (tier ? v->s.lowrank.rank2 : 0);
    for (int32_t i = 0; i < n; i++, y += ld) {
        const char *p = v->data + v->l.tier[tier] + (size_t)j[i] * stride;
        if (bits == 16) {
            numbers_line(p, type, width, y);
            continue;
        }
        float lo, step;
        packed_pair_f16(v->data + v->l.pair + (size_t)j[i] * 4, &lo, &step);
        codes_line(p, bits, width, (code_scale){&lo, &step, false, column}, y);
    }
}

static void lanes_v_rows(const packed_view *v, int tier, const int32_t *j, int32_t n, float *y,
                         size_t ld) {
    if (v->s.lowrank.bits == 8)
        v_rows(v, tier, j, n, 8, FV_F32, y, ld);
    else if (v->s.lowrank.bits == 4)
        v_rows(v, tier, j, n, 4, FV_F32, y, ld);
    else if (v->s.dtype == FV_BF16)
        v_rows(v, tier, j, n, 16, FV_BF16, y, ld);
    else
        v_rows(v, tier, j, n, 16, v->s.dtype, y, ld);
}

/* Widens rows j[0 .. n) of KV head g of values that are rows, to lines ld apart. */
static void lanes_rows(const packed_view *v, size_t g, const int32_t *j, int32_t n, float *y,
                       size_t ld) {
    for (int32_t i = 0; i < n; i++, y += ld)
        numbers_line(packed_row_at(v, g, (size_t)j[i]), v->s.dtype, (size_t)v->s.d_head, y);
}

/* ---- rotation -------------------------------------------------------------------------- */

/* Rotates the keys of a tile, D lines FV_KV_BLOCK apart, to Rot(a) k, a the angles of their anchors or of the
 * tokens themselves; does nothing where there are no angles. */
static void lanes_rotate(const fv_packed_rows *rows, size_t D, size_t tile, float *to) {
    size_t half = D / 2, at = tile * half * FV_PACKED_TILE;
    float *other = to + half * FV_KV_BLOCK;
    const f32x16 minus = f32x16_all(-1.0f);
    for (size_t i = 0; rows->cos && i < half; i++, to += FV_KV_BLOCK, other += FV_KV_BLOCK) {
        f32x16 a = f32x16_load(to), b = f32x16_load(other);
        f32x16 c = f32x16_load(rows->cos + at + i * LANES);
        f32x16 s = f32x16_load(rows->sin + at + i * LANES);
        f32x16_store(to, f32x16_fma(a, c, f32x16_mul(minus, f32x16_mul(b, s))));
        f32x16_store(other, f32x16_fma(b, c, f32x16_mul(a, s)));
    }
}

/* ---- basis ----------------------------------------------------------------------------- */

/* Widens the pairs of one head's basis: lo and step [R], up to whole vectors. */
static void lanes_basis_pairs(const packed_view *v, size_t g, float *lo, float *step) {
    const char *pair = v->data + v->l.basis_pair + g * (size_t)v->s.lowrank.rank * 4;
    size_t n = v->s.lowrank.bits == 16 ? 0 : (size_t)v->s.lowrank.rank, r = 0;
    for (; r + LANES / 2 <= n; r += LANES / 2) {
        float both[LANES];
        f32x16_store(both, f32x16_widen(pair + r * 4, FV_F16));
        for (size_t i = 0; i < LANES / 2; i++) {
            lo[r + i] = both[2 * i];
            step[r + i] = both[2 * i + 1];
        }
    }
    for (; r < n; r++) packed_pair_f16(pair + r * 4, lo + r, step + r);
}

/* Decodes lines [k, k + n) of head g's basis with pairs lo and step, to lines ld apart. */
static ALWAYS_INLINE void basis_lines(const packed_view *v, size_t g, size_t k, size_t n,
                                      const int bits, const fv_dtype type, const float *lo,
                                      const float *step, float *y, size_t ld) {
    size_t stride = v->l.basis_stride, width = fv_packed_basis_line(&v->s);
    bool key = v->s.kind == FV_PACKED_K;
    const char *p = packed_basis_at(v, g, k);
    for (size_t x = k; x < k + n; x++, p += stride, y += ld) {
        code_scale c = {key ? lo : lo + x, key ? step : step + x, key, NULL};
        if (bits == 16)
            numbers_line(p, type, width, y);
        else
            codes_line(p, bits, width, c, y);
    }
}

static void lanes_basis(const packed_view *v, size_t g, size_t k, size_t n, const float *lo,
                        const float *step, float *y, size_t ld) {
    if (v->s.lowrank.bits == 8)
        basis_lines(v, g, k, n, 8, FV_F32, lo, step, y, ld);
    else if (v->s.lowrank.bits == 4)
        basis_lines(v, g, k, n, 4, FV_F32, lo, step, y, ld);
    else if (v->s.dtype == FV_BF16)
        basis_lines(v, g, k, n, 16, FV_BF16, lo, step, y, ld);
    else
        basis_lines(v, g, k, n, 16, v->s.dtype, lo, step, y, ld);
}

#endif
