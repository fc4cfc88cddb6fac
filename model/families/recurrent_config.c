/* Parses the part of a language model's config.json that describes its recurrent layers: Qwen3.5's. */
#include <string.h>

#include "kernels/recurrent.h"
#include "model/families/keys.h"

enum { HEADS_STEP = 16, VALUE_MAX = 1024 };

/* Number of recurrent layers before the first with attention; -1: no layer has attention. */
static int32_t run_of(const json_t *types, int32_t interval, int32_t n_layer) {
    if (!types) return interval - 1;
    for (int32_t l = 0; l < n_layer; l++) {
        const char *name = json_string_value(json_array_get(types, (size_t)l));
        if (name && !strcmp(name, "full_attention")) return l;
    }
    return -1;
}

/* Checks that each layer of the file has the type that the pattern says. */
static fv_status check_types(const json_t *types, const char *where, int32_t n_layer, int32_t run) {
    for (int32_t l = 0; types && l < n_layer; l++) {
        const char *name = json_string_value(json_array_get(types, (size_t)l));
        const char *want = l % (run + 1) == run ? "full_attention" : "linear_attention";
        if (!name || strcmp(name, want) != 0)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: key 'layer_types': layer %d is '%s'; the layers must repeat %d of "
                           "linear_attention and one of full_attention",
                           where, l, name ? name : "", run);
    }
    return FV_OK;
}

static fv_status parse_pattern(const json_t *obj, const char *where, fv_text_config *t) {
    const json_t *types = fv_config_member(obj, "layer_types");
    int32_t interval = 4;
    FV_TRY(fv_json_i32(obj, "full_attention_interval", where, 1, FV_MAX_LAYERS, &interval));
    if (types && (!json_is_array(types) || json_array_size(types) != (size_t)t->n_layer))
        return FV_FAIL(FV_EDATA, "%s: key 'layer_types' must name the type of each of %d layers",
                       where, t->n_layer);
    int32_t run = run_of(types, interval, t->n_layer);
    if (run < 0 || t->n_layer % (run + 1))
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: key 'num_hidden_layers' is %d; every layer with linear attention must have "
            "one with full attention after it",
            where, t->n_layer);
    FV_TRY(check_types(types, where, t->n_layer, run));
    t->recurrent.n = run;
    t->n_layer /= run + 1;
    return FV_OK;
}

static fv_status check_heads(const char *where, const fv_recurrent_config *r) {
    if (r->n_value % r->n_key)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'linear_num_value_heads' (%d) is not a multiple of "
                       "'linear_num_key_heads' (%d)",
                       where, r->n_value, r->n_key);
    if (r->d_key % HEADS_STEP || r->d_value % HEADS_STEP)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: keys 'linear_key_head_dim' (%d) and 'linear_value_head_dim' (%d) must be "
            "multiples of %d",
            where, r->d_key, r->d_value, HEADS_STEP);
    return FV_OK;
}

fv_status fv_config_recurrent(const json_t *obj, const char *where, fv_text_config *t) {
    fv_recurrent_config *r = &t->recurrent;
    bool gate = true;
    *r = (fv_recurrent_config){.n_key = 16, .n_value = 32, .d_key = 128, .d_value = 128, .taps = 4};
    FV_TRY(fv_json_i32(obj, "linear_num_key_heads", where, 1, FV_CONFIG_HEADS_MAX, &r->n_key));
    FV_TRY(fv_json_i32(obj, "linear_num_value_heads", where, 1, FV_CONFIG_HEADS_MAX, &r->n_value));
    FV_TRY(fv_json_i32(obj, "linear_key_head_dim", where, 1, FV_DELTA_KEY_MAX, &r->d_key));
    FV_TRY(fv_json_i32(obj, "linear_value_head_dim", where, 1, VALUE_MAX, &r->d_value));
    FV_TRY(fv_json_i32(obj, "linear_conv_kernel_dim", where, 2, FV_CONV_TAPS_MAX, &r->taps));
    FV_TRY(check_heads(where, r));
    FV_TRY(fv_json_bool(obj, "attn_output_gate", where, &gate));
    if (!gate || t->act != FV_ACT_SILU)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'attn_output_gate' must be true, and 'hidden_act' silu, which the "
                       "convolution of recurrent layers uses too",
                       where);
    t->gated_attention = t->norm_plus_one = true;
    return parse_pattern(obj, where, t);
}
