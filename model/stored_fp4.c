/* FP4 of compressed-tensors: two codes of E2M1 in a byte, the first in the low half.
 *
 *     MXFP4  X.weight_packed U8 [N, K/2]   X.weight_scale U8 [N, K/32], an exponent: 2^(scale - 127)
 *     NVFP4  X.weight_packed U8 [N, K/2]   X.weight_scale F8_E4M3 [N, K/16]   X.weight_global_scale F32 [1]
 *     number[n, k] = scale[n, g] * code,  for NVFP4  scale[n, g] / global * code
 *
 * MXFP4 is read where it lies in the file. Groups of 16 exist for codes of 8 bits only, so NVFP4's codes get a
 * byte each. Scales of activations are not used. */
#include <math.h>

#include "kernels/number_tables.h"
#include "model/stored_internal.h"

enum { PACKED, SCALE, GLOBAL };

static bool is_nvfp4(const fv_stored_weight *w) { return w->part[GLOBAL] != NULL; }

static fv_status check_global(const fv_stored_weight *w) {
    const fv_safetensors_entry *t = w->part[GLOBAL];
    if (strcmp(t->dtype, "F32") == 0 && t->bytes == sizeof(float)) return FV_OK;
    return FV_FAIL(FV_EDATA, "tensor '%s' in %s must be a single F32 (nvfp4)", t->name, w->file);
}

static fv_status place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    const int64_t N = e->shape[0], K = e->shape[1];
    const bool nv = is_nvfp4(w);
    const int32_t group = nv ? 16 : 32;
    if (K % group)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s (%s) has %lld columns, which are no multiple of %d",
                       w->part[PACKED]->name, w->file, w->form->name, (long long)K, group);
    FV_TRY(fv_stored_expect(w, PACKED, "U8", N, K / 2));
    FV_TRY(fv_stored_expect(w, SCALE, nv ? "F8_E4M3" : "U8", N, K / group));
    if (nv) FV_TRY(check_global(w));
    return fv_stored_lay(w, e, arena,
                         &(fv_stored_layout){.dtype = nv ? FV_INT8 : FV_INT4,
                                             .group = group,
                                             .scale_type = FV_F32,
                                             .table = nv ? fv_e2m1_bytes : fv_e2m1,
                                             .borrowed = nv ? NULL : w->part[PACKED]->data});
}

static float scale_at(const fv_stored_weight *w, size_t i, float global) {
    const uint8_t code = fv_stored_u8(w->part[SCALE], i);
    if (is_nvfp4(w)) return fv_e4m3[code] / global;
    return code == 255 ? NAN : ldexpf(1.0f, (int)code - 127);
}

static bool fill(const fv_stored_weight *w) {
    const size_t rows = (size_t)w->view.rows, K = (size_t)w->view.cols;
    const size_t scales = rows * (size_t)w->quant->groups;
    float poison = 0.0f, global = 1.0f, *scale = (float *)(uintptr_t)w->quant->scale;
    if (is_nvfp4(w)) memcpy(&global, w->part[GLOBAL]->data, sizeof global);
    for (size_t i = 0; i < scales; i++) poison += (scale[i] = scale_at(w, i, global)) * 0.0f;
    if (!is_nvfp4(w)) return !isnan(poison);
    for (size_t i = 0; i < rows * K; i++) {
        const uint8_t two = fv_stored_u8(w->part[PACKED], i / 2);
        ((uint8_t *)w->view.data)[i] = (uint8_t)(two >> i % 2 * 4 & 15);
    }
    return !isnan(poison);
}

const fv_stored_form fv_stored_fp4 = {
    .name = "fp4",
    .methods = 1 << FV_STORED_COMPRESSED,
    .part = {"weight_packed", "weight_scale", "weight_global_scale", "input_global_scale"},
    .dtype = "U8",
    .place = place,
    .fill = fill};
