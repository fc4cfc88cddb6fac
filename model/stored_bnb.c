/* bitsandbytes, in 4 and in 8 bits.
 *
 *     4 bits  X.weight U8 [N K / 2, 1]   X.weight.quant_map F32 [16]   X.weight.absmax F32 [N K / block]
 *             number = quant_map[code] * absmax, the first code of a byte in its high half
 *     with double quantization absmax is U8, and its number is
 *             nested_quant_map[absmax] * nested_absmax[of its block] + nested_offset
 *     8 bits  X.weight I8 [N, K]   X.SCB F32 [N]   number = integer * SCB / 127
 *
 * X.weight.quant_state.bitsandbytes__nf4 or __fp4 is JSON with the sizes of blocks and the offset. */
#include <math.h>

#include "model/stored_internal.h"
#include "text/json.h"

/* ---- 4 bits ----------------------------------------------------------------------------- */

enum { WEIGHT, ABSMAX, MAP, NESTED_ABSMAX, NESTED_MAP, STATE_NF4, STATE_FP4 };

/* The quant_state. */
typedef struct state {
    int32_t block, nested;
    float offset;
} state;

static fv_status parse_state(const fv_stored_weight *w, const fv_safetensors_entry *t, state *s) {
    json_t *root = NULL;
    *s = (state){.block = 64, .nested = 256};
    FV_TRY(fv_json_object(t->data, t->bytes, t->name, &root));
    fv_status st = fv_json_i32(root, "blocksize", t->name, 32, 1 << 20, &s->block);
    if (st == FV_OK) st = fv_json_i32(root, "nested_blocksize", t->name, 1, 1 << 20, &s->nested);
    if (st == FV_OK) st = fv_json_f32(root, "nested_offset", t->name, &s->offset);
    json_decref(root);
    if (st == FV_OK && (s->block % 32 || (int64_t)w->view.cols % s->block))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s (bitsandbytes): blocks of %d numbers; rows of %d must be "
                       "whole blocks of a multiple of 32: quantize the original checkpoint instead "
                       "(--weights int4)",
                       w->part[WEIGHT]->name, w->file, s->block, w->view.cols);
    return st;
}

static fv_status read_state(fv_stored_weight *w, const fv_tensor_spec *e, state *s) {
    const fv_safetensors_entry *t = w->part[w->part[STATE_FP4] ? STATE_FP4 : STATE_NF4];
    w->view.cols = (int32_t)e->shape[1];
    FV_TRY(fv_stored_need(w, w->part[STATE_FP4] ? STATE_FP4 : STATE_NF4));
    return parse_state(w, t, s);
}

static fv_status expect_vector(const fv_stored_weight *w, int i, const char *dtype, int64_t n) {
    FV_TRY(fv_stored_need(w, i));
    const fv_safetensors_entry *t = w->part[i];
    if (strcmp(t->dtype, dtype) == 0 && t->n_dim == 1 && t->shape[0] == n) return FV_OK;
    return FV_FAIL(FV_EDATA, "tensor '%s' in %s must be %s of shape [%lld] (bitsandbytes)", t->name,
                   w->file, dtype, (long long)n);
}

static bool is_double(const fv_stored_weight *w) { return w->part[NESTED_ABSMAX] != NULL; }

static fv_status place_int4(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    const int64_t N = e->shape[0], K = e->shape[1];
    state s;
    float *map;
    FV_TRY(read_state(w, e, &s));
    const int64_t blocks = N * K / s.block;
    FV_TRY(fv_stored_expect(w, WEIGHT, "U8", N * K / 2, 1));
    FV_TRY(expect_vector(w, MAP, "F32", 16));
    FV_TRY(expect_vector(w, ABSMAX, is_double(w) ? "U8" : "F32", blocks));
    if (is_double(w)) {
        FV_TRY(expect_vector(w, NESTED_ABSMAX, "F32", (blocks + s.nested - 1) / s.nested));
        FV_TRY(expect_vector(w, NESTED_MAP, "F32", 256));
    }
    FV_TRY(FV_ARENA_NEW(arena, 16, map));
    memcpy(map, w->part[MAP]->data, 16 * sizeof *map);
    return fv_stored_lay(
        w, e, arena,
        &(fv_stored_layout){
            .dtype = FV_INT4, .group = s.block, .scale_type = FV_F32, .table = map});
}

static float f32_at(const fv_safetensors_entry *t, size_t i) {
    float x;
    memcpy(&x, (const char *)t->data + i * sizeof x, sizeof x);
    return x;
}

static float absmax_at(const fv_stored_weight *w, const state *s, size_t i) {
    if (!is_double(w)) return f32_at(w->part[ABSMAX], i);
    float x = f32_at(w->part[NESTED_MAP], fv_stored_u8(w->part[ABSMAX], i));
    x = x * f32_at(w->part[NESTED_ABSMAX], i / (size_t)s->nested);
    return x + s->offset;
}

static bool fill_int4(const fv_stored_weight *w) {
    const size_t n = (size_t)w->view.rows * (size_t)w->view.cols / 2;
    const size_t blocks = (size_t)w->view.rows * (size_t)w->quant->groups;
    const uint8_t *from = w->part[WEIGHT]->data;
    float poison = 0.0f, *scale = (float *)(uintptr_t)w->quant->scale;
    state s;
    if (parse_state(w, w->part[w->part[STATE_FP4] ? STATE_FP4 : STATE_NF4], &s) != FV_OK)
        return false;
    for (int i = 0; i < 16; i++) poison += w->quant->table[i] * 0.0f;
    for (size_t i = 0; i < blocks; i++) poison += (scale[i] = absmax_at(w, &s, i)) * 0.0f;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)w->view.data)[i] = (uint8_t)(from[i] >> 4 | from[i] << 4);
    return !isnan(poison);
}

const fv_stored_form fv_stored_bnb4 = {.name = "bitsandbytes-4bit",
                                       .methods = 1 << FV_STORED_BNB,
                                       .part = {"weight", "weight.absmax", "weight.quant_map",
                                                "weight.nested_absmax", "weight.nested_quant_map",
                                                "weight.quant_state.bitsandbytes__nf4",
                                                "weight.quant_state.bitsandbytes__fp4"},
                                       .dtype = "U8",
                                       .place = place_int4,
                                       .fill = fill_int4};

/* ---- 8 bits ----------------------------------------------------------------------------- */

enum { SCB = 1 };

static fv_status place_int8(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    FV_TRY(fv_stored_expect(w, WEIGHT, "I8", e->shape[0], e->shape[1]));
    FV_TRY(expect_vector(w, SCB, "F32", e->shape[0]));
    return fv_stored_lay(w, e, arena,
                         &(fv_stored_layout){.dtype = FV_INT8,
                                             .scale_type = FV_F32,
                                             .min = e->shape[1] <= 32,
                                             .borrowed = w->part[WEIGHT]->data});
}

static bool fill_int8(const fv_stored_weight *w) {
    float poison = 0.0f, *scale = (float *)(uintptr_t)w->quant->scale;
    for (size_t n = 0; n < (size_t)w->view.rows; n++)
        poison += (scale[n] = f32_at(w->part[SCB], n) * (1.0f / 127.0f)) * 0.0f;
    return !isnan(poison);
}

const fv_stored_form fv_stored_bnb8 = {.name = "bitsandbytes-8bit",
                                       .methods = 1 << FV_STORED_BNB,
                                       .part = {"weight", "SCB", "weight_format"},
                                       .dtype = "I8",
                                       .place = place_int8,
                                       .fill = fill_int8};
