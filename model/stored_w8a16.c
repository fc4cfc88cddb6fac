/* W8A16 of compressed-tensors, "pack-quantized" in 8 bits:
 *
 *     X.weight_packed I32 [N, K/4]   X.weight_scale [N, groups]   X.weight_shape [2]
 *     X.weight_zero_point I32 [N/4, groups] if the range is not symmetric
 *     number[n, k] = scale[n, g] * (integer[n, k] - zero[n, g])
 *
 * A word has four integers plus 128, the first in its lowest bits. The view has a `min` (0 without zero points):
 * without one, groups of 32 would be multiplied as integers, with activations in 8 bits. */
#include <math.h>

#include "model/stored_internal.h"

enum { PACKED, SCALE, ZERO };

static bool takes(const fv_safetensors_entry *t, const fv_tensor_spec *e) {
    return t->n_dim == 2 && t->shape[1] == (e->shape[1] + 3) / 4;
}

static fv_status place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    const int64_t N = e->shape[0], K = e->shape[1];
    const fv_safetensors_entry *s = w->part[SCALE];
    FV_TRY(fv_stored_expect(w, PACKED, "I32", N, (K + 3) / 4));
    int64_t groups = s && s->n_dim == 2 && s->shape[1] > 0 ? s->shape[1] : 1;
    FV_TRY(fv_stored_expect(w, SCALE, NULL, N, groups));
    if (w->part[ZERO]) FV_TRY(fv_stored_expect(w, ZERO, "I32", (N + 3) / 4, groups));
    if (K % groups || (groups > 1 && K / groups % 16))
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "tensor '%s' in %s (w8a16): %lld columns in %lld groups; groups must be of a "
            "multiple of 16 columns",
            w->part[PACKED]->name, w->file, (long long)K, (long long)groups);
    return fv_stored_lay(w, e, arena,
                         &(fv_stored_layout){.dtype = FV_INT8,
                                             .group = groups > 1 ? (int32_t)(K / groups) : 0,
                                             .scale_type = fv_stored_scale_type(w, SCALE),
                                             .min = true});
}

static bool fill(const fv_stored_weight *w) {
    const fv_quant *q = w->quant;
    const size_t rows = (size_t)w->view.rows, K = (size_t)w->view.cols, G = (size_t)q->groups;
    const uint8_t *packed = w->part[PACKED]->data;
    float poison = 0.0f, *min = (float *)(uintptr_t)q->min;
    for (size_t n = 0; n < rows; n++) {
        int8_t *to = (int8_t *)w->view.data + n * q->row_bytes;
        const uint8_t *from = packed + n * ((K + 3) / 4 * 4);
        for (size_t k = 0; k < K; k++) to[k] = (int8_t)(from[k] ^ 0x80);
        for (size_t g = 0; g < G; g++) {
            float scale = fv_stored_copy_scale(w, w->part[SCALE], n * G + g, n * G + g);
            poison += scale * 0.0f;
            if (!w->part[ZERO]) continue;
            int zero = fv_stored_u8(w->part[ZERO], (n / 4 * G + g) * 4 + n % 4);
            min[n * G + g] = scale * (float)(zero - 128);
        }
    }
    return !isnan(poison);
}

const fv_stored_form fv_stored_w8a16 = {
    .name = "w8a16",
    .methods = 1 << FV_STORED_COMPRESSED,
    .part = {"weight_packed", "weight_scale", "weight_zero_point", "weight_shape"},
    .dtype = "I32",
    .takes = takes,
    .place = place,
    .fill = fill};
