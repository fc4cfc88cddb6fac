/* Parses the language model's part of config.json: Llama, Mistral, Ministral 3, Qwen2, Qwen3, Granite,
 * Phi-3, Gemma 3 and Gemma 4, the Qwen-VL families, which are Qwen2 and Qwen3 with M-RoPE, and Qwen3.5, most of
 * whose layers are recurrent.
 *
 * They share one decoder layer. They differ in defaults, in which biases and norms exist, and in
 * which layers slide. */
#include <math.h>
#include <string.h>

#include "model/families/text_config_internal.h"

enum {
    VOCAB_MAX = 1 << 22,
    HEAD_DIM_MAX = 1024,
    POSITION_MAX = 1 << 30,
};

fv_status fv_config_positive(const char *key, double value, const char *where) {
    if (value > 0) return FV_OK;
    return FV_FAIL(FV_EDATA, "%s: key '%s' must be greater than 0", where, key);
}

/* Parses Gemma 3's own keys. */
static fv_status parse_gemma(const json_t *obj, const char *where, const fv_text_family *f,
                             fv_text_config *t) {
    bool both_ways = false;
    t->norm_plus_one = t->post_norms = t->two_ropes = true;
    t->embed_scale = (float)sqrt(t->d_model);
    t->query_scalar = 256;
    FV_TRY(fv_json_f32(obj, "query_pre_attn_scalar", where, &t->query_scalar));
    FV_TRY(fv_config_positive("query_pre_attn_scalar", (double)t->query_scalar, where));
    FV_TRY(fv_json_bool(obj, "use_bidirectional_attention", where, &both_ways));
    if (both_ways || fv_config_member(obj, "attn_logit_softcapping") ||
        fv_config_member(obj, "final_logit_softcapping"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'use_bidirectional_attention', 'attn_logit_softcapping' and "
                       "'final_logit_softcapping': the engine has none of the three",
                       where);
    FV_TRY(fv_config_rope_slides(obj, f, where, t, &t->rope_slides));
    if (t->rope.type != FV_ROPE_YARN && t->rope_slides.type != FV_ROPE_YARN) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'rope_type' is 'yarn', which %s is not", where,
                   f->name);
}

/* Parses Granite's multipliers; all are 1 in its class. */
static fv_status parse_granite(const json_t *obj, const char *where, fv_text_config *t) {
    const struct {
        const char *key;
        float *to;
    } keys[] = {{"embedding_multiplier", &t->embed_scale},
                {"attention_multiplier", &t->score_scale},
                {"residual_multiplier", &t->residual_scale},
                {"logits_scaling", &t->logits_divisor}};
    t->embed_images = true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        *keys[i].to = 1;
        FV_TRY(fv_json_f32(obj, keys[i].key, where, keys[i].to));
        FV_TRY(fv_config_positive(keys[i].key, (double)*keys[i].to, where));
    }
    return FV_OK;
}

/* Parses layer_types, which names the sliding layers. */
static fv_status typed_layers(const json_t *types, const char *where, fv_text_config *t) {
    if (!json_is_array(types) || json_array_size(types) != (size_t)t->n_layer)
        return FV_FAIL(FV_EDATA, "%s: key 'layer_types' must name the type of each of %d layers",
                       where, t->n_layer);
    for (int32_t l = 0; l < t->n_layer; l++) {
        const char *name = json_string_value(json_array_get(types, (size_t)l));
        t->slides[l] = name && !strcmp(name, "sliding_attention");
        if (!t->slides[l] && (!name || strcmp(name, "full_attention") != 0))
            return FV_FAIL(
                FV_EUNSUPPORTED,
                "%s: unsupported layer_types: layer %d is '%s'; supported: full_attention "
                "and sliding_attention",
                where, l, name ? name : "");
    }
    return FV_OK;
}

/* Gemma 3 slides in all layers but every sixth, Mistral in all, Ministral 3 and Phi-3 in all where
 * there is a window. Qwen2 and Qwen3, if sliding is
 * enabled, slide in the layers that layer_types names, or else in those from max_window_layers
 * on. */
static fv_status parse_window(const json_t *obj, const char *where, const fv_text_family *f,
                              fv_text_config *t) {
    bool typed = f->window_key || f->gemma, use = f->gemma || !strcmp(f->name, "mistral");
    if (f->slides) use = fv_config_member(obj, "sliding_window") != NULL;
    const json_t *types = typed ? fv_config_member(obj, "layer_types") : NULL;
    int32_t first = use ? 0 : f->n_layer ? f->n_layer : 28, window = 4096, pattern = 6;
    if (f->window_key) FV_TRY(fv_json_bool(obj, "use_sliding_window", where, &use));
    /* Absent means 4096, null means none. */
    if (!use || json_is_null(json_object_get(obj, "sliding_window"))) return FV_OK;
    FV_TRY(fv_json_i32(obj, "sliding_window", where, 1, INT32_MAX, &window));
    if (f->window_key) FV_TRY(fv_json_i32(obj, "max_window_layers", where, 0, INT32_MAX, &first));
    if (f->gemma) FV_TRY(fv_json_i32(obj, "sliding_window_pattern", where, 1, INT32_MAX, &pattern));
    for (int32_t l = first; l < t->n_layer; l++) t->slides[l] = !f->gemma || (l + 1) % pattern;
    if (types) FV_TRY(typed_layers(types, where, t));
    for (int32_t l = 0; l < t->n_layer; l++)
        if (t->slides[l]) t->window = window;
    return FV_OK;
}

static fv_status parse_heads(const json_t *obj, const char *where, int32_t n_kv_default,
                             fv_text_config *t) {
    FV_TRY(fv_json_i32(obj, "num_attention_heads", where, 1, FV_CONFIG_HEADS_MAX, &t->n_head));
    bool kv_null = json_is_null(json_object_get(obj, "num_key_value_heads"));
    t->n_kv = kv_null || n_kv_default == 0 ? t->n_head : n_kv_default;
    FV_TRY(fv_json_i32(obj, "num_key_value_heads", where, 1, FV_CONFIG_HEADS_MAX, &t->n_kv));
    if (t->n_head % t->n_kv)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'num_attention_heads' (%d) is not a multiple of "
                       "'num_key_value_heads' (%d)",
                       where, t->n_head, t->n_kv);
    FV_TRY(fv_json_i32(obj, "head_dim", where, 1, HEAD_DIM_MAX, &t->d_head));
    if (t->d_head == 0) {
        if (t->d_model % t->n_head || t->d_model / t->n_head > HEAD_DIM_MAX)
            return FV_FAIL(FV_EDATA,
                           "%s: key 'hidden_size' (%d) cannot be split among 'num_attention_heads' "
                           "(%d)",
                           where, t->d_model, t->n_head);
        t->d_head = t->d_model / t->n_head;
    }
    if (t->d_head % 2)
        return FV_FAIL(FV_EDATA, "%s: key 'head_dim' (%d) must be even: RoPE rotates pairs", where,
                       t->d_head);
    return FV_OK;
}

fv_status fv_config_text_parse(const json_t *obj, const char *family, const char *where,
                               fv_text_config *out, int32_t *eos_default) {
    const fv_text_family *f = fv_text_family_of(family);
    fv_text_config t = {.vocab = f->vocab,
                        .d_model = f->d_model ? f->d_model : 4096,
                        .d_ffn = f->d_ffn,
                        .n_layer = f->n_layer ? f->n_layer : 32,
                        .n_head = f->n_head ? f->n_head : 32,
                        .d_head = f->d_head,
                        .qk_norm = f->qk_norm,
                        .max_position = f->max_position,
                        .rms_eps = f->rms_eps > 0 ? f->rms_eps : 1e-6F,
                        .act = f->gemma || f->gemma4 ? FV_ACT_GELU_TANH : FV_ACT_SILU,
                        .tied_head = f->gemma || f->gemma4,
                        .fused = f->fused,
                        .bos = f->bos};
    strcpy(t.family, f->name);
    FV_TRY(fv_config_refuse_quantized(obj, where));
    FV_TRY(fv_json_i32(obj, "vocab_size", where, 1, VOCAB_MAX, &t.vocab));
    FV_TRY(fv_json_i32(obj, "hidden_size", where, 1, FV_CONFIG_WIDTH_MAX, &t.d_model));
    FV_TRY(fv_json_i32(obj, "intermediate_size", where, 1, FV_CONFIG_FFN_MAX, &t.d_ffn));
    FV_TRY(fv_json_i32(obj, "num_hidden_layers", where, 1, FV_MAX_LAYERS, &t.n_layer));
    FV_TRY(parse_heads(obj, where, f->n_kv, &t));
    FV_TRY(fv_json_i32(obj, "max_position_embeddings", where, 1, POSITION_MAX, &t.max_position));
    FV_TRY(fv_json_f32(obj, "rms_norm_eps", where, &t.rms_eps));
    if (!(t.rms_eps >= 0 && t.rms_eps < 1))
        return FV_FAIL(FV_EDATA, "%s: key 'rms_norm_eps' must be in [0, 1)", where);
    const char *act = f->gemma || f->gemma4 ? "hidden_activation" : "hidden_act";
    FV_TRY(fv_config_activation(obj, act, where, &t.act));
    if (f->gemma4) {
        FV_TRY(fv_config_gemma4(obj, where, f->unified, &t));
    } else {
        FV_TRY(fv_config_rope(obj, f, where, &t, &t.rope));
        FV_TRY(parse_window(obj, where, f, &t));
    }
    if (f->gemma) FV_TRY(parse_gemma(obj, where, f, &t));
    if (f->recurrent) FV_TRY(fv_config_recurrent(obj, where, &t));
    if (f->n_expert) FV_TRY(fv_config_experts(obj, where, f, &t));
    if (f->granite) FV_TRY(parse_granite(obj, where, &t));
    t.output_norms = t.fused_ffn = f->glm;
    if (f->glm || f->glm_moe)
        FV_TRY(fv_json_i32(obj, "num_nextn_predict_layers", where, 0, FV_MAX_LAYERS, &t.n_predict));

    bool attention_bias = f->glm_moe, mlp_bias = false;
    if (f->attention_bias) FV_TRY(fv_json_bool(obj, "attention_bias", where, &attention_bias));
    if (f->mlp_bias) FV_TRY(fv_json_bool(obj, "mlp_bias", where, &mlp_bias));
    if (f->use_bias) {
        FV_TRY(fv_json_bool(obj, "use_bias", where, &attention_bias));
        mlp_bias = attention_bias;
    }
    t.bias_qkv = attention_bias || f->bias_qkv;
    t.bias_o = attention_bias && !f->glm_moe;
    t.bias_mlp = mlp_bias;
    FV_TRY(fv_json_bool(obj, "tie_word_embeddings", where, &t.tied_head));
    if (json_is_null(json_object_get(obj, "bos_token_id"))) t.bos = -1;
    FV_TRY(fv_json_i32(obj, "bos_token_id", where, -1, INT32_MAX, &t.bos));
    *eos_default = f->eos;
    *out = t;
    return FV_OK;
}
