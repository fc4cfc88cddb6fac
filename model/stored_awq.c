/* AWQ as AutoAWQ's layout "gemm" stores it:
 *
 *     X.qweight I32 [K, N/8]   X.qzeros I32 [K/group, N/8]   X.scales [K/group, N]
 *     number[n, k] = scale[g, n] * (integer[k, n] - zero[g, n]),   g = k / group
 *
 * A word has the integers of eight columns of N in the order 0, 2, 4, 6, 1, 3, 5, 7 from its low bits on. */
#include "model/stored_internal.h"

enum { QWEIGHT, QZEROS, SCALES };

static fv_status place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    const int64_t N = e->shape[0], K = e->shape[1];
    const fv_safetensors_entry *s = w->part[SCALES];
    FV_TRY(fv_stored_expect(w, QWEIGHT, "I32", K, N / 8));
    int64_t groups = s && s->n_dim == 2 && s->shape[0] > 0 ? s->shape[0] : 1, group = K / groups;
    FV_TRY(fv_stored_expect(w, SCALES, NULL, groups, N));
    FV_TRY(fv_stored_expect(w, QZEROS, "I32", groups, N / 8));
    if (N % 8 || K % groups || (group % 32 && groups > 1) || K % 2)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s (awq): %lld columns in %lld groups; groups must be of a "
                       "multiple of 32 columns",
                       w->part[0]->name, w->file, (long long)K, (long long)groups);
    return fv_stored_lay(w, e, arena,
                         &(fv_stored_layout){.dtype = FV_INT4,
                                             .group = groups > 1 ? (int32_t)group : 0,
                                             .scale_type = fv_stored_scale_type(w, SCALES),
                                             .zero = true});
}

/* Column j of the eight in a word. */
static unsigned column(uint32_t word, int j) {
    static const uint8_t shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};
    return word >> shift[j] & 15;
}

static void fill_zeros(const fv_stored_weight *w) {
    const size_t N = (size_t)w->view.rows, G = (size_t)w->quant->groups;
    uint8_t *zero = (uint8_t *)(uintptr_t)w->quant->zero;
    for (size_t g = 0; g < G; g++)
        for (size_t i = 0; i < N / 8; i++)
            for (int j = 0; j < 8; j++)
                zero[(8 * i + (size_t)j) * G + g] =
                    (uint8_t)column(fv_stored_u32(w->part[QZEROS], g * (N / 8) + i), j);
}

/* Repacks words [i0, i1) of each row k: a cache line of them at a time. */
static void fill_words(const fv_stored_weight *w, size_t i0, size_t i1) {
    const size_t words = (size_t)w->view.rows / 8, K = (size_t)w->view.cols;
    const size_t row = w->quant->row_bytes;
    uint8_t *data = w->view.data;
    for (size_t k = 0; k < K; k += 2)
        for (size_t i = i0; i < i1; i++) {
            uint32_t even = fv_stored_u32(w->part[QWEIGHT], k * words + i);
            uint32_t odd = fv_stored_u32(w->part[QWEIGHT], (k + 1) * words + i);
            uint8_t *to = data + 8 * i * row + k / 2;
            for (int j = 0; j < 8; j++, to += row)
                *to = (uint8_t)(column(even, j) | column(odd, j) << 4);
        }
}

static bool fill(const fv_stored_weight *w) {
    enum { LINE = 16 };
    const size_t words = (size_t)w->view.rows / 8;
    for (size_t i = 0; i < words; i += LINE) fill_words(w, i, i + LINE < words ? i + LINE : words);
    fill_zeros(w);
    return fv_stored_turn_scales(w, SCALES);
}

const fv_stored_form fv_stored_awq = {.name = "awq",
                                      .methods = 1 << FV_STORED_AWQ,
                                      .part = {"qweight", "qzeros", "scales"},
                                      .dtype = "I32",
                                      .place = place,
                                      .fill = fill};
