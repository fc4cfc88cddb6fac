#ifndef FOVEA_MODEL_STORED_INTERNAL_H
#define FOVEA_MODEL_STORED_INTERNAL_H

/* Types and helpers that the forms of model/stored.h share. Tensors in files have any alignment, so they are read by these
 * functions. */
#include <string.h>

#include "common/convert.h"
#include "model/stored.h"

typedef struct fv_stored_form {
    const char *name;
    unsigned methods; /* 1 << fv_stored_method of each that has it */
    const char
        *part[FV_STORED_PARTS]; /* names of the tensors behind "X."; the first has the integers */
    const char *dtype;          /* of the first part */
    /* Returns whether the first part is in this form and in no other with such a tensor; NULL: it is. */
    bool (*takes)(const fv_safetensors_entry *first, const fv_tensor_spec *e);
    fv_status (*place)(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena);
    bool (*fill)(const fv_stored_weight *w);
} fv_stored_form;

extern const fv_stored_form fv_stored_awq, fv_stored_gptq, fv_stored_fp8, fv_stored_w8a16,
    fv_stored_fp4, fv_stored_bnb4, fv_stored_bnb8;

/* Fails with FV_ENOTFOUND if part i is missing. */
fv_status fv_stored_need(const fv_stored_weight *w, int i);

/* Checks that part i is there and has this type (NULL: F32, F16 or BF16) and shape. */
fv_status fv_stored_expect(const fv_stored_weight *w, int i, const char *dtype, int64_t rows,
                           int64_t cols);

/* The parts of a view of integers. */
typedef struct fv_stored_layout {
    fv_dtype dtype; /* FV_INT4 or FV_INT8 */
    int32_t group;  /* columns per scale; 0: all */
    fv_dtype scale_type;
    bool zero, min;
    const float *table;
    const void *borrowed; /* integers in the file; NULL: they are repacked */
} fv_stored_layout;

/* Makes the view, with memory in the arena for all that is not borrowed. The group must divide K. */
fv_status fv_stored_lay(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena,
                        const fv_stored_layout *l);

/* The type of the scales in part i, which was checked by fv_stored_expect with NULL. */
fv_dtype fv_stored_scale_type(const fv_stored_weight *w, int i);

static inline uint32_t fv_stored_u32(const fv_safetensors_entry *t, size_t i) {
    uint32_t word;
    memcpy(&word, (const char *)t->data + 4 * i, sizeof word);
    return word;
}

static inline uint8_t fv_stored_u8(const fv_safetensors_entry *t, size_t i) {
    return ((const uint8_t *)t->data)[i];
}

/* Copies number i of scales of `type` to place `at` of the view's; returns it. */
static inline float fv_stored_copy_scale(const fv_stored_weight *w, const fv_safetensors_entry *t,
                                         size_t i, size_t at) {
    const size_t size = fv_dtype_bytes(w->quant->scale_type);
    char *to = (char *)(uintptr_t)w->quant->scale + at * size;
    memcpy(to, (const char *)t->data + i * size, size);
    return widened(to, w->quant->scale_type, 0);
}

/* Copies scales [groups, rows] of part i to the view's [rows, groups]. Returns false if one is not finite. */
bool fv_stored_turn_scales(const fv_stored_weight *w, int i);

#endif
