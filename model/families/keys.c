/* Keys of config.json that several families have. */
#include "model/families/keys.h"

#include <string.h>

const json_t *fv_config_member(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

fv_status fv_config_activation(const json_t *obj, const char *key, const char *where,
                               fv_activation *out) {
    static const struct {
        const char *name;
        fv_activation act;
    } known[] = {
        {"silu", FV_ACT_SILU},
        {"swish", FV_ACT_SILU},
        {"gelu", FV_ACT_GELU},
        {"gelu_python", FV_ACT_GELU},
        {"gelu_pytorch_tanh", FV_ACT_GELU_TANH},
        {"gelu_new", FV_ACT_GELU_TANH},
        {"gelu_fast", FV_ACT_GELU_TANH},
        {"quick_gelu", FV_ACT_QUICK_GELU},
        {"relu", FV_ACT_RELU},
    };
    const char *name = NULL;
    FV_TRY(fv_json_str(obj, key, where, &name));
    if (!name) return FV_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        *out = known[i].act;
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: unsupported %s '%s'; supported: silu, gelu, gelu_pytorch_tanh, "
                   "quick_gelu and relu",
                   where, key, name);
}

static fv_status add_eos(const json_t *v, const char *where, fv_model_config *cfg) {
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return FV_FAIL(FV_EDATA, "%s: key 'eos_token_id' must be a token id or a list of them",
                       where);
    int32_t id = (int32_t)json_integer_value(v);
    for (int32_t i = 0; i < cfg->n_eos; i++)
        if (cfg->eos[i] == id) return FV_OK;
    if (cfg->n_eos == FV_MAX_EOS)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: more than %d different ids in 'eos_token_id'", where,
                       FV_MAX_EOS);
    cfg->eos[cfg->n_eos++] = id;
    return FV_OK;
}

fv_status fv_config_add_eos(const json_t *obj, const char *where, fv_model_config *cfg,
                            bool *found) {
    const json_t *v = fv_config_member(obj, "eos_token_id");
    if (!v) return FV_OK;
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            FV_TRY(add_eos(json_array_get(v, i), where, cfg));
        *found = *found || json_array_size(v) > 0;
        return FV_OK;
    }
    *found = true;
    return add_eos(v, where, cfg);
}

fv_status fv_config_refuse_quantized(const json_t *obj, const char *where) {
    const json_t *q = fv_config_member(obj, "quantization_config");
    if (!q) return FV_OK;
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    /* model/compressed.h, model/stored.h */
    static const char *const known[] = {
        "compressed-tensors", "awq", "gptq", "auto-round", "fp8", "fbgemm_fp8", "bitsandbytes"};
    for (size_t i = 0; method && i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i]) == 0) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'quantization_config' asks for %s weights, which the engine does not "
                   "read: quantize the original checkpoint instead (--weights int4 or int8)",
                   where, method ? method : "quantized");
}
