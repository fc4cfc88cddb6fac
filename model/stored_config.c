/* Reads a quantization_config: the method, and what the tensors do not tell. */
#include <string.h>
#include <strings.h>

#include "model/stored.h"
#include "text/json.h"

#define INSTEAD "quantize the original checkpoint instead (--weights int4 or int8)"

static const char *string_of(const json_t *q, const char *key) {
    return json_string_value(json_object_get(q, key));
}

static fv_status fail_layout(const char *where, const char *method, const char *layout,
                             const char *known) {
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: quantization_config asks for the layout '%s' of %s; the engine reads %s: " INSTEAD,
        where, layout, method, known);
}

static fv_status parse_awq(const json_t *q, const char *where, fv_stored_config *out) {
    const char *version = string_of(q, "version");
    const json_t *bits = json_object_get(q, "bits");
    if (!version) version = string_of(q, "format");
    if (version && strcasecmp(version, "gemm") != 0)
        return fail_layout(where, "awq", version, "gemm");
    if (bits && json_integer_value(bits) != 4)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: quantization_config asks for awq with %d bits; the engine reads 4: " INSTEAD,
            where, (int)json_integer_value(bits));
    out->method = FV_STORED_AWQ;
    return FV_OK;
}

static fv_status parse_gptq(const json_t *q, const char *where, fv_stored_config *out) {
    const char *format = string_of(q, "checkpoint_format");
    if (!format) format = string_of(q, "format");
    if (!format) format = "gptq";
    const bool second = strcmp(format, "gptq_v2") == 0;
    if (!second && strcmp(format, "gptq") != 0)
        return fail_layout(where, "gptq", format, "gptq and gptq_v2");
    out->method = FV_STORED_GPTQ;
    out->zero_is_less_one = !second;
    return FV_OK;
}

/* AutoRound writes AWQ's or GPTQ's tensors, as packing_format says. */
static fv_status parse_auto_round(const json_t *q, const char *where, fv_stored_config *out) {
    const char *packing = string_of(q, "packing_format");
    if (packing && strstr(packing, "awq")) {
        out->method = FV_STORED_AWQ;
        return FV_OK;
    }
    if (!packing || !strstr(packing, "gptq"))
        return fail_layout(where, "auto-round", packing ? packing : "(none)",
                           "those with awq or gptq in their name");
    out->method = FV_STORED_GPTQ;
    out->zero_is_less_one = true;
    return FV_OK;
}

/* Reads two numbers, rows and columns, from an array. */
static fv_status parse_block(const json_t *block, const char *where, fv_stored_config *out) {
    for (size_t i = 0; i < 2; i++) {
        json_int_t n = json_integer_value(json_array_get(block, i));
        if (json_array_size(block) != 2 || n < 1 || n > 1 << 20)
            return FV_FAIL(FV_EDATA,
                           "%s: quantization_config: weight_block_size must be two numbers, rows "
                           "and columns",
                           where);
        out->block[i] = (int32_t)n;
    }
    return FV_OK;
}

static fv_status parse_fp8(const json_t *q, const char *where, fv_stored_config *out) {
    const char *format = string_of(q, "fmt");
    const json_t *block = json_object_get(q, "weight_block_size");
    if (format && strcmp(format, "e4m3") != 0) return fail_layout(where, "fp8", format, "e4m3");
    out->method = FV_STORED_FP8;
    return block && !json_is_null(block) ? parse_block(block, where, out) : FV_OK;
}

static fv_status parse_bnb(const json_t *q, const char *where, fv_stored_config *out) {
    (void)q, (void)where;
    out->method = FV_STORED_BNB;
    return FV_OK;
}

/* Reads the groups of which model/compressed.h reads none: weights in floating point, or in 8 bits with
 * activations in 16. */
static fv_status parse_compressed(const json_t *q, const char *where, fv_stored_config *out) {
    const char *key;
    json_t *group;
    out->method = FV_STORED_COMPRESSED;
    out->kv_cache = json_is_object(json_object_get(q, "kv_cache_scheme"));
    json_object_foreach(json_object_get(q, "config_groups"), key, group) {
        const json_t *w = json_object_get(group, "weights");
        const char *strategy = string_of(w, "strategy"), *order = string_of(w, "actorder");
        if (order && strcmp(order, "weight") != 0 && strcmp(order, "static") != 0)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: columns in the order of activations (actorder) are not "
                           "supported: " INSTEAD,
                           where);
        if (strategy && strcmp(strategy, "block") == 0)
            FV_TRY(parse_block(json_object_get(w, "block_structure"), where, out));
    }
    return FV_OK;
}

static const struct {
    const char *name;
    fv_status (*parse)(const json_t *q, const char *where, fv_stored_config *out);
} methods[] = {{"awq", parse_awq},
               {"gptq", parse_gptq},
               {"auto-round", parse_auto_round},
               {"fp8", parse_fp8},
               {"fbgemm_fp8", parse_fp8},
               {"bitsandbytes", parse_bnb},
               {"compressed-tensors", parse_compressed}};

static fv_status parse_method(const json_t *q, const char *where, fv_stored_config *out) {
    const char *name = string_of(q, "quant_method");
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (strcmp(name, methods[i].name) == 0) return methods[i].parse(q, where, out);
    return FV_OK; /* others were refused with the config (families/keys.c) */
}

fv_status fv_stored_parse(const char *config, size_t bytes, const char *where,
                          fv_stored_config *out) {
    json_t *root = NULL;
    *out = (fv_stored_config){0};
    FV_TRY(fv_json_object(config, bytes, where, &root));
    const json_t *q = json_object_get(root, "quantization_config");
    if (!q) q = json_object_get(json_object_get(root, "text_config"), "quantization_config");
    fv_status st = json_is_object(q) ? parse_method(q, where, out) : FV_OK;
    json_decref(root);
    return st;
}
