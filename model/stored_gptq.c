/* GPTQ as AutoGPTQ and GPTQModel store it, in b = 4 or 8 bits, with p = 32 / b integers in a word:
 *
 *     X.qweight I32 [K/p, N]   X.qzeros I32 [groups, N/p]   X.scales [groups, N]   X.g_idx I32 [K], or absent
 *     number[n, k] = scale[g, n] * (integer[k, n] - zero[g, n]),   g = g_idx[k], or k / group
 *
 * A word has consecutive integers, the first in its lowest bits. Version 1 stores zero points less 1; the
 * reference adds the ones to whole words, and so does this.
 *
 * Act-order: with g_idx, the columns of a group are anywhere. They are brought together: the view has them group by
 * group, and fv_quant's `order` says which column of x each of them meets.
 *
 * In 8 bits the view has integers less 128, so scale * (integer - zero) = scale * (integer - 128) - min with
 * min = scale * (zero - 128), exact for scales in 16 bits. */
#include "model/stored_internal.h"

enum { QWEIGHT, QZEROS, SCALES, G_IDX };

/* ---- act-order -------------------------------------------------------------------------- */

static bool is_in_order(const fv_safetensors_entry *t, int32_t K, int32_t group) {
    for (int32_t k = 0; k < K; k++)
        if (fv_stored_u32(t, (size_t)k) != (uint32_t)(k / group)) return false;
    return true;
}

/* Sorts columns by group: order[i] is the column at place i. Each group must be full, but for the last. */
static fv_status sort_columns(const fv_stored_weight *w, int32_t K, int32_t group, int32_t groups,
                              int32_t *order, int32_t *next) {
    const fv_safetensors_entry *t = w->part[G_IDX];
    for (int32_t g = 0; g < groups; g++) next[g] = g * group;
    for (int32_t k = 0; k < K; k++) {
        uint32_t g = fv_stored_u32(t, (size_t)k);
        int32_t end = g < (uint32_t)groups ? ((int32_t)g + 1) * group : 0;
        if (g >= (uint32_t)groups || next[g] == (end < K ? end : K))
            return FV_FAIL(FV_EDATA,
                           "tensor '%s' in %s must name each of %d groups %d times; column %d has "
                           "%u once too often",
                           t->name, w->file, groups, group, k, g);
        order[next[g]++] = k;
    }
    return FV_OK;
}

/* Sets the view's order, shared with the weight before where it is the same: products then copy x once. */
static fv_status set_order(fv_stored_weight *w, int32_t K, fv_arena *arena) {
    const int32_t group = w->quant->group, groups = w->quant->groups;
    fv_stored_config *c = w->config;
    int32_t *order, *next;
    if (is_in_order(w->part[G_IDX], K, group)) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, K, order));
    FV_TRY(FV_ARENA_NEW(arena, groups, next));
    FV_TRY(sort_columns(w, K, group, groups, order, next));
    if (c->n_order != K || memcmp(c->order, order, (size_t)K * sizeof *order) != 0) {
        c->order = order;
        c->n_order = K;
        w->bytes += (size_t)K * sizeof *order;
    }
    w->quant->order = c->order;
    return FV_OK;
}

/* ---- sizes ------------------------------------------------------------------------------ */

static fv_status read_bits(const fv_stored_weight *w, int64_t K, int *bits) {
    const fv_safetensors_entry *t = w->part[QWEIGHT];
    int64_t words = t->n_dim == 2 ? t->shape[0] : 0;
    *bits = words * 8 == K ? 4 : words * 4 == K ? 8 : 0;
    if (*bits) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "tensor '%s' in %s (gptq) has %lld words for %lld columns; weights of 4 and 8 "
                   "bits are read: quantize the original checkpoint instead (--weights int4)",
                   t->name, w->file, (long long)words, (long long)K);
}

static fv_status check_index(const fv_stored_weight *w, int64_t K) {
    const fv_safetensors_entry *t = w->part[G_IDX];
    if (!t || (strcmp(t->dtype, "I32") == 0 && t->n_dim == 1 && t->shape[0] == K)) return FV_OK;
    return FV_FAIL(FV_EDATA, "tensor '%s' in %s must be I32 of shape [%lld] (gptq)", t->name,
                   w->file, (long long)K);
}

static fv_status place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    const int64_t N = e->shape[0], K = e->shape[1];
    const fv_safetensors_entry *s = w->part[SCALES];
    int bits;
    FV_TRY(read_bits(w, K, &bits));
    const int64_t pack = 32 / bits;
    int64_t groups = s && s->n_dim == 2 && s->shape[0] > 0 ? s->shape[0] : 1, group = K / groups;
    FV_TRY(fv_stored_expect(w, QWEIGHT, "I32", K / pack, N));
    FV_TRY(fv_stored_expect(w, SCALES, NULL, groups, N));
    FV_TRY(fv_stored_expect(w, QZEROS, "I32", groups, N / pack));
    FV_TRY(check_index(w, K));
    if (N % pack || K % groups || (group % 32 && groups > 1))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s (gptq): %lld columns in %lld groups; groups must be of a "
                       "multiple of 32 columns",
                       w->part[0]->name, w->file, (long long)K, (long long)groups);
    FV_TRY(fv_stored_lay(w, e, arena,
                         &(fv_stored_layout){.dtype = bits == 4 ? FV_INT4 : FV_INT8,
                                             .group = groups > 1 ? (int32_t)group : 0,
                                             .scale_type = fv_stored_scale_type(w, SCALES),
                                             .zero = bits == 4,
                                             .min = bits == 8}));
    return w->part[G_IDX] && groups > 1 ? set_order(w, (int32_t)K, arena) : FV_OK;
}

/* ---- filling ---------------------------------------------------------------------------- */

/* Integer i of those that lie `bits` by `bits` in the words from `word` on, `stride` words apart. */
static unsigned integer(const fv_safetensors_entry *t, size_t word, size_t stride, size_t i,
                        unsigned bits, uint32_t add) {
    const size_t pack = 32 / bits;
    uint32_t value = fv_stored_u32(t, word + i / pack * stride) + add;
    return value >> i % pack * bits & ((1U << bits) - 1);
}

static void fill_int4(const fv_stored_weight *w, size_t n) {
    const size_t K = (size_t)w->view.cols, N = (size_t)w->view.rows;
    const int32_t *order = w->quant->order;
    const fv_safetensors_entry *t = w->part[QWEIGHT];
    uint8_t *to = (uint8_t *)w->view.data + n * w->quant->row_bytes;
    if (!order) { /* a word of the file is a word of the row */
        for (size_t k = 0; k < K / 8; k++) {
            uint32_t word = fv_stored_u32(t, k * N + n);
            memcpy(to + 4 * k, &word, sizeof word);
        }
        return;
    }
    for (size_t k = 0; k < K; k += 2)
        to[k / 2] = (uint8_t)(integer(t, n, N, (size_t)order[k], 4, 0) |
                              integer(t, n, N, (size_t)order[k + 1], 4, 0) << 4);
}

static void fill_int8(const fv_stored_weight *w, size_t n) {
    const size_t K = (size_t)w->view.cols, N = (size_t)w->view.rows;
    const int32_t *order = w->quant->order;
    int8_t *to = (int8_t *)w->view.data + n * w->quant->row_bytes;
    for (size_t k = 0; k < K; k++)
        to[k] = (int8_t)((int)integer(w->part[QWEIGHT], n, N, order ? (size_t)order[k] : k, 8, 0) -
                         128);
}

static void fill_zero(const fv_stored_weight *w, size_t g, size_t n, unsigned bits) {
    const fv_quant *q = w->quant;
    const size_t words = (size_t)w->view.rows * bits / 32, at = n * (size_t)q->groups + g;
    const uint32_t ones = !w->config->zero_is_less_one ? 0 : bits == 4 ? 0x11111111U : 0x01010101U;
    unsigned zero = integer(w->part[QZEROS], g * words, 1, n, bits, ones);
    if (q->zero) {
        ((uint8_t *)(uintptr_t)q->zero)[at] = (uint8_t)zero;
        return;
    }
    ((float *)(uintptr_t)q->min)[at] =
        widened(q->scale, q->scale_type, at) * (float)((int)zero - 128);
}

static bool fill(const fv_stored_weight *w) {
    const unsigned bits = w->view.dtype == FV_INT4 ? 4 : 8;
    if (!fv_stored_turn_scales(w, SCALES)) return false;
    for (size_t n = 0; n < (size_t)w->view.rows; n++) {
        (bits == 4 ? fill_int4 : fill_int8)(w, n);
        for (size_t g = 0; g < (size_t)w->quant->groups; g++) fill_zero(w, g, n, bits);
    }
    return true;
}

const fv_stored_form fv_stored_gptq = {.name = "gptq",
                                       .methods = 1 << FV_STORED_GPTQ,
                                       .part = {"qweight", "qzeros", "scales", "g_idx"},
                                       .dtype = "I32",
                                       .place = place,
                                       .fill = fill};
