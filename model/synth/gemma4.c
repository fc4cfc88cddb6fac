/* Gemma 4's keys in a synthetic checkpoint. */
#include <string.h>

#include "model/synth/internal.h"

enum { POOL = 2, WINDOW = 40, POSITIONS = 512, TOKENS = 70, SHARERS = 2, INPUT = 32 };

void fv_synth_gemma4_types(json_t *t, json_int_t n) {
    json_t *types = json_array();
    for (json_int_t l = 0; l < n; l++)
        json_array_append_new(
            types, json_string(l % 2 == 0 && l + 1 < n ? "sliding_attention" : "full_attention"));
    json_object_set_new(t, "layer_types", types);
    json_int_t shared = json_integer_value(json_object_get(t, "num_kv_shared_layers"));
    if (shared == 0) return;
    if (shared > n - 2) shared = n > 2 ? n - 2 : 0; /* one layer of each type has keys */
    json_object_set_new(t, "num_kv_shared_layers", json_integer(shared));
}

/* The parts that only E2B and E4B have: further layers that share keys and values, with a wider FFN, and per-layer embeddings. */
void fv_synth_gemma4_small(json_t *t) {
    const json_int_t n = json_integer_value(json_object_get(t, "num_hidden_layers"));
    json_object_set_new(t, "use_bidirectional_attention", json_null());
    json_object_set_new(t, "hidden_size_per_layer_input", json_integer(INPUT));
    json_object_set(t, "vocab_size_per_layer_input", json_object_get(t, "vocab_size"));
    if (n < 2) return;
    json_object_set_new(t, "num_kv_shared_layers", json_integer(SHARERS));
    json_object_set_new(t, "use_double_wide_mlp", json_true());
    json_object_set_new(t, "num_hidden_layers", json_integer(n + SHARERS));
    fv_synth_gemma4_types(t, n + SHARERS);
}

/* Every second layer slides; full layers have heads twice as large, half as many of keys, and no
 * projection of values. */
void fv_synth_gemma4_text(json_t *t) {
    const json_int_t n_layer = json_integer_value(json_object_get(t, "num_hidden_layers"));
    const json_int_t d = json_integer_value(json_object_get(t, "head_dim"));
    const json_int_t n_kv = json_integer_value(json_object_get(t, "num_key_value_heads"));
    fv_synth_gemma4_types(t, n_layer);
    json_object_del(t, "hidden_act");
    json_object_del(t, "rope_theta");
    json_object_update_new(
        t, json_pack(
               "{s:I, s:I, s:b, s:i, s:f, s:s, s:i, s:s, s:{s:{s:s, s:f, s:f}, s:{s:s, s:f}}}",
               "global_head_dim", 2 * d, "num_global_key_value_heads", n_kv % 2 ? n_kv : n_kv / 2,
               "attention_k_eq_v", 1, "sliding_window", WINDOW, "final_logit_softcapping", 30.0,
               "use_bidirectional_attention", "vision", "hidden_size_per_layer_input", 0,
               "hidden_activation", "gelu_pytorch_tanh", "rope_parameters", "full_attention",
               "rope_type", "proportional", "partial_rotary_factor", 0.25, "rope_theta", 10000.0,
               "sliding_attention", "rope_type", "default", "rope_theta", 500.0));
}

json_t *fv_synth_gemma4_tower(const char *family, const fv_synth_tower *s) {
    if (!strcmp(family, "gemma4_unified"))
        return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gemma4_unified_vision",
                         "patch_size", s->patch, "pooling_kernel_size", POOL, "mm_embed_dim", s->d,
                         "output_proj_dims", s->d, "mm_posemb_size", POSITIONS);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b}", "model_type",
                     "gemma4_vision", "hidden_size", s->d, "intermediate_size", s->d_ffn,
                     "num_hidden_layers", s->n_layer, "num_attention_heads", s->n_head,
                     "num_key_value_heads", s->n_head, "head_dim", s->d / s->n_head, "patch_size",
                     s->patch, "pooling_kernel_size", POOL, "position_embedding_size", POSITIONS,
                     "standardize", 1, "use_clipped_linears", 1);
}

void fv_synth_gemma4_ids(int32_t image_token, json_t *json) {
    json_object_update_new(json, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "boi_token_id",
                                           image_token - 4, "eoi_token_id", image_token - 3,
                                           "boa_token_id", image_token - 2, "eoa_token_index",
                                           image_token - 1, "image_token_id", image_token,
                                           "video_token_id", image_token + 1));
}

/* transformers does not load the processor without one for sound. */
void fv_synth_gemma4_sound(const fv_model_config *cfg, bool nested, json_t *j) {
    char type[FV_SYNTH_CLASS_MAX];
    fv_synth_class(cfg, "AudioFeatureExtractor", type);
    json_t *to = nested ? json_object() : j;
    json_object_set_new(to, "feature_extractor_type", json_string(type));
    if (nested) json_object_set_new(j, "feature_extractor", to);
}

/* Keys of the image or video processor, in place of the usual normalization. */
void fv_synth_gemma4_processor(const fv_model_config *cfg, json_t *j) {
    json_object_update_new(
        j, json_pack("{s:b, s:[f,f,f], s:[f,f,f], s:i, s:i, s:i}", "do_normalize", 0, "image_mean",
                     0.0, 0.0, 0.0, "image_std", 1.0, 1.0, 1.0, "patch_size", cfg->vision.patch,
                     "pooling_kernel_size", cfg->vision.merge, "max_soft_tokens", TOKENS));
}
