/* Reads weights in the format of compressed-tensors. Writing is in compressed_write.c. */
#include "model/compressed.h"

#include <stdio.h>
#include <string.h>

#include "common/convert.h"
#include "text/json.h"

/* ---- config.json ----------------------------------------------------------------------- */

static bool is(const json_t *o, const char *key, const char *value) {
    const char *found = json_string_value(json_object_get(o, key));
    return found && strcmp(found, value) == 0;
}

/* Returns whether activations are int8 with a scale per 32. */
static bool is_groups_of_32(const json_t *x) {
    return json_integer_value(json_object_get(x, "num_bits")) == 8 && is(x, "type", "int") &&
           json_is_true(json_object_get(x, "symmetric")) &&
           json_is_true(json_object_get(x, "dynamic")) && is(x, "strategy", "group") &&
           json_integer_value(json_object_get(x, "group_size")) == 32;
}

static fv_status parse_int8(const json_t *group, const char *where, fv_compressed *out) {
    const json_t *w = json_object_get(group, "weights"), *x;
    x = json_object_get(group, "input_activations");
    bool channel = is(w, "strategy", "channel");
    bool groups =
        is(w, "strategy", "group") && json_integer_value(json_object_get(w, "group_size")) == 32;
    if (!json_is_true(json_object_get(w, "symmetric")) || (!channel && !groups))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: weights of 8 bits must be symmetric with a scale per channel or per "
                       "group of 32 columns",
                       where);
    if (groups) {
        if (!is_groups_of_32(x))
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: with weights of 8 bits in groups, activations must have 8, "
                           "symmetric and dynamic per group of 32",
                           where);
        out->int8_groups = true;
        return FV_OK;
    }
    if (!json_is_object(x) || json_integer_value(json_object_get(x, "num_bits")) != 8 ||
        !json_is_true(json_object_get(x, "dynamic")) || !is(x, "strategy", "token") ||
        !json_is_true(json_object_get(x, "symmetric")))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: with weights of 8 bits, activations must have 8, symmetric and dynamic "
                       "per token (W8A8)",
                       where);
    out->int8 = true;
    return FV_OK;
}

static fv_status parse_int4(const json_t *group, const char *where, fv_compressed *out) {
    const json_t *w = json_object_get(group, "weights");
    json_int_t size = json_integer_value(json_object_get(w, "group_size"));
    const json_t *order = json_object_get(w, "actorder");
    bool channel = is(w, "strategy", "channel");
    const json_t *x = json_object_get(group, "input_activations");
    out->integers = json_is_object(x);
    if (out->integers && !(json_is_true(json_object_get(w, "symmetric")) && is_groups_of_32(x)))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: with weights of 4 bits, activations must have 16, or 8, symmetric and "
                       "dynamic per group of 32, where the weights are symmetric too",
                       where);
    if (!channel && (!is(w, "strategy", "group") || size < 32 || size > 1 << 20 || size % 32))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: weights of 4 bits need a scale per channel or per group of a multiple "
                       "of 32 columns",
                       where);
    if (order && !json_is_null(order) && !is(w, "actorder", "weight") &&
        !is(w, "actorder", "static"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: columns in the order of activations (actorder) are not supported",
                       where);
    out->group = channel ? -1 : (int32_t)size;
    out->zero = json_is_false(json_object_get(w, "symmetric"));
    return FV_OK;
}

/* Returns whether the group's weights are in a form of model/stored.h: FP8, FP4 or W8A16. */
static bool is_stored(const json_t *group, json_int_t bits) {
    const json_t *w = json_object_get(group, "weights");
    if (is(w, "type", "float")) return bits == 8 || bits == 4;
    return bits == 8 && is(w, "type", "int") &&
           !json_is_object(json_object_get(group, "input_activations"));
}

static fv_status parse_group(const json_t *group, const char *where, fv_compressed *out) {
    const json_t *w = json_object_get(group, "weights");
    json_int_t bits = json_integer_value(json_object_get(w, "num_bits"));
    if (is_stored(group, bits)) return FV_OK;
    bool again = bits == 4                    ? out->group != 0
                 : is(w, "strategy", "group") ? out->int8_groups
                                              : out->int8;
    if (!is(w, "type", "int") || (bits != 8 && bits != 4) || again)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: quantization_config must have one group of int weights with 8 bits, "
                       "with 8 bits in groups, with 4 bits, or one of each",
                       where);
    if (json_is_object(json_object_get(group, "output_activations")))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: quantized outputs (output_activations) are not supported", where);
    return bits == 8 ? parse_int8(group, where, out) : parse_int4(group, where, out);
}

/* Returns whether activations are rotated: such rotations are part of the network and not in its
 * weights. */
static bool rotates_activations(const json_t *transform) {
    const char *key;
    json_t *group, *apply;
    size_t i;
    json_object_foreach(json_object_get(transform, "config_groups"), key, group)
        json_array_foreach(json_object_get(group, "apply"), i, apply) {
        const char *place = json_string_value(json_object_get(apply, "location"));
        if (!place || strncmp(place, "weight_", 7) != 0) return true;
    }
    return false;
}

static fv_status parse_config(const json_t *q, const char *where, fv_compressed *out) {
    const char *key;
    json_t *group;
    if (rotates_activations(json_object_get(q, "transform_config")))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: activations that are rotated (transform_config) are not supported",
                       where);
    json_object_foreach(json_object_get(q, "config_groups"), key, group)
        FV_TRY(parse_group(group, where, out));
    return FV_OK;
}

fv_status fv_compressed_parse(const char *text, size_t bytes, const char *where,
                              fv_compressed *out) {
    json_t *root = NULL;
    *out = (fv_compressed){0};
    FV_TRY(fv_json_object(text, bytes, where, &root));
    const json_t *q = json_object_get(root, "quantization_config");
    fv_status st = json_is_object(q) ? parse_config(q, where, out) : FV_OK;
    json_decref(root);
    return st;
}

/* ---- tensors --------------------------------------------------------------------------- */

static const fv_shard_tensor *find_with(const fv_shards *sh, const char *weight, const char *end) {
    char name[FV_TENSOR_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s%s", weight, end);
    return fv_shards_find(sh, name);
}

const fv_shard_tensor *fv_compressed_find(const fv_shards *sh, const fv_tensor_spec *e) {
    if (e->n_dim != 2 || e->role == FV_ROLE_EMBEDDING) return NULL; /* its rows are looked up */
    const fv_shard_tensor *t = fv_shards_find(sh, e->name);
    if (t) return strcmp(t->entry->dtype, "I8") == 0 ? t : NULL;
    return find_with(sh, e->name, "_packed");
}

bool fv_compressed_belongs(const char *canonical, char weight[FV_TENSOR_NAME_MAX]) {
    static const char *const end[] = {"_scale", "_zero_point", "_packed", "_shape"};
    size_t n = strlen(canonical);
    for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
        size_t m = strlen(end[i]);
        if (n <= m + 7 || strcmp(canonical + n - m, end[i]) != 0) continue;
        if (strncmp(canonical + n - m - 7, ".weight", 7) != 0) continue;
        snprintf(weight, FV_TENSOR_NAME_MAX, "%.*s", (int)(n - m), canonical);
        return true;
    }
    return false;
}

static fv_status check(const fv_shard_tensor *t, const char *dtype, int64_t rows, int64_t cols) {
    if ((!dtype || strcmp(t->entry->dtype, dtype) == 0) && t->entry->n_dim == 2 &&
        t->entry->shape[0] == rows && t->entry->shape[1] == cols)
        return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "tensor '%s' in %s must be %s of shape [%lld, %lld]; the file may be incomplete",
                   t->entry->name, t->file, dtype ? dtype : "F32, BF16 or F16", (long long)rows,
                   (long long)cols);
}

/* The missing tensor is named as in the file, after the tensor of the weight's integers. */
static fv_status fail_missing(const fv_shard_tensor *integers, const char *end) {
    const char *name = integers->entry->name, *packed = strstr(name, "_packed");
    size_t n = packed ? (size_t)(packed - name) : strlen(name);
    return FV_FAIL(FV_ENOTFOUND, "tensor '%.*s%s' of a quantized weight is missing", (int)n, name,
                   end);
}

/* Reads the scales [rows, groups] of `e`: as stored, or widened to f32 in the arena. */
static fv_status read_scales(fv_arena *arena, const fv_shards *sh, const fv_shard_tensor *integers,
                             const fv_tensor_spec *e, int64_t groups, bool widen, fv_quant *q) {
    const fv_shard_tensor *t = find_with(sh, e->name, "_scale");
    if (!t) return fail_missing(integers, "_scale");
    FV_TRY(check(t, NULL, e->shape[0], groups));
    size_t n = (size_t)e->shape[0] * (size_t)groups;
    if (!fv_safetensors_dtype(t->entry->dtype, &q->scale_type))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s has dtype %s; F32, F16 and BF16 are read", t->entry->name,
                       t->file, t->entry->dtype);
    q->scale = t->entry->data;
    size_t element = fv_dtype_bytes(q->scale_type);
    bool aligned = (uintptr_t)q->scale % element == 0;
    if (aligned && (!widen || q->scale_type == FV_F32)) return FV_OK;
    void *copy;
    FV_TRY(fv_arena_array(arena, n, element, &copy));
    memcpy(copy, t->entry->data, n * element);
    q->scale = copy;
    if (!widen || q->scale_type == FV_F32) return FV_OK;
    float *wide;
    FV_TRY(FV_ARENA_NEW(arena, n, wide));
    widen_row(copy, q->scale_type, n, wide);
    q->scale = wide;
    q->scale_type = FV_F32;
    return FV_OK;
}

/* Reads zero points: an I32 holds those of eight rows, the first in its lowest bits. */
static fv_status read_zeros(fv_arena *arena, const fv_shards *sh, const fv_shard_tensor *integers,
                            const fv_tensor_spec *e, int64_t groups, fv_quant *q) {
    const fv_shard_tensor *t = find_with(sh, e->name, "_zero_point");
    uint8_t *zero;
    if (!t) return fail_missing(integers, "_zero_point");
    FV_TRY(check(t, "I32", (e->shape[0] + 7) / 8, groups));
    FV_TRY(fv_arena_array(arena, (size_t)e->shape[0], (size_t)groups, (void **)&zero));
    const uint8_t *from = t->entry->data;
    for (int64_t n = 0; n < e->shape[0]; n++)
        for (int64_t g = 0; g < groups; g++)
            zero[n * groups + g] = from[(n / 8 * groups + g) * 4 + n % 8 / 2] >> (n % 2 * 4) & 15;
    q->zero = zero;
    return FV_OK;
}

/* Returns whether the int8 weight e has groups. If files have both kinds, the shape of its scales
 * tells; a weight with a single group has one scale too, and must then be the head
 * (compressed_write.c). */
static bool in_groups(const fv_compressed *c, const fv_shards *sh, const fv_tensor_spec *e) {
    const fv_shard_tensor *t = find_with(sh, e->name, "_scale");
    if (!c->int8 || !c->int8_groups) return !c->int8;
    if (e->shape[1] <= 32) return e->role == FV_ROLE_HEAD;
    return t && t->entry->n_dim == 2 && t->entry->shape[1] > 1;
}

fv_status fv_compressed_view(const fv_compressed *c, fv_arena *arena, const fv_shards *sh,
                             const fv_shard_tensor *t, const fv_tensor_spec *e, fv_tensor *out) {
    bool int8 = strcmp(t->entry->dtype, "I8") == 0;
    int64_t rows = e->shape[0], cols = e->shape[1];
    fv_quant *q;
    if (int8 ? !c->int8 && !c->int8_groups : !c->group)
        return FV_FAIL(FV_EDATA,
                       "tensor '%s' in %s is quantized, and config.json has no quantization_config "
                       "for %d bits",
                       t->entry->name, t->file, int8 ? 8 : 4);
    FV_TRY(FV_ARENA_NEW(arena, 1, q));
    FV_TRY(check(t, int8 ? "I8" : "I32", rows, int8 ? cols : (cols + 7) / 8));
    q->groups = 1;
    if (!int8) {
        q->group = c->group < 0 ? (int32_t)(cols + 31) / 32 * 32 : c->group;
        q->groups = (int32_t)((cols + q->group - 1) / q->group);
        q->row_bytes = (size_t)(cols + 7) / 8 * 4;
        q->integers = c->integers;
    } else if (in_groups(c, sh, e)) {
        q->group = 32;
        q->groups = (int32_t)((cols + 31) / 32);
        q->row_bytes = (size_t)cols;
    } else if (cols > 65536) {
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s has %lld columns; products in int8 are exact up to 65536",
                       t->entry->name, t->file, (long long)cols);
    }
    FV_TRY(read_scales(arena, sh, t, e, q->groups, int8 && !q->group, q));
    if (!int8 && c->zero) FV_TRY(read_zeros(arena, sh, t, e, q->groups, q));
    *out = fv_tensor_of((void *)(uintptr_t)t->entry->data, int8 ? FV_INT8 : FV_INT4, (int32_t)rows,
                        (int32_t)cols);
    out->quant = q;
    return FV_OK;
}
