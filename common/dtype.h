#ifndef FOVEA_COMMON_DTYPE_H
#define FOVEA_COMMON_DTYPE_H

/* The types of stored numbers. */
#include <stddef.h>

typedef enum fv_dtype {
    FV_F32 = 0,
    FV_BF16,
    FV_F16,
    FV_N_DTYPE,
    FV_INT8, /* only for weights of linear, on the CPU; fv_quant (kernels/tensor.h) says how to decode the integers */
    FV_INT4,
} fv_dtype;

/* Bytes of an element; not for FV_INT4. */
static inline size_t fv_dtype_bytes(fv_dtype t) { return t == FV_F32 ? 4 : t == FV_INT8 ? 1 : 2; }

/* "f32", "bf16", "f16", "int8", "int4": as in options and reports. */
static inline const char *fv_dtype_name(fv_dtype t) {
    switch (t) {
    case FV_F32: return "f32";
    case FV_BF16: return "bf16";
    case FV_INT8: return "int8";
    case FV_INT4: return "int4";
    default: return "f16";
    }
}

#endif
