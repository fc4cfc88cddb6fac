/* The configuration files of a synthetic checkpoint.
 *
 * Shapes are a table; a config.json can replace its row. Either way the result goes through
 * fv_config_parse first, so everything that is written can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "model/families/keys.h"
#include "model/synth/internal.h"

enum {
    CONFIG_MAX = 1 << 20,
    BOS = 1,
    EOS = 2,
    SCALE = 2,
    TILES = 6,
    LEAST = 4,
    EXPERTS = 8,
    ACTIVE = 3,
    SPAN = 32, /* positions of Ministral 3's original context */
    MOST = 30,
    SPARE = 16, /* ids from the image token on, where config.json does not say where it is */
    SIDE = 4
};

typedef struct shape {
    const char *name;
    int32_t vocab, image_token, d_model, d_ffn, n_layer, n_head, n_kv, d_head, max_position;
    int32_t vision_d, vision_ffn, vision_layer, vision_head, image, patch;
} shape;

static const shape shapes[] = {
    {"llava-1.5-7b", 32064, 32000, 4096, 11008, 32, 32, 32, 128, 4096, 1024, 4096, 24, 16, 336, 14},
    {"llava-1.5-13b", 32064, 32000, 5120, 13824, 40, 40, 40, 128, 4096, 1024, 4096, 24, 16, 336,
     14},
    {"small", 32064, 32000, 1024, 2752, 32, 8, 8, 128, 4096, 512, 2048, 8, 8, 336, 14},
    {"nano", 2048, 2000, 256, 640, 12, 8, 8, 32, 4096, 192, 768, 6, 6, 168, 14},
    {"tiny", 512, 480, 64, 160, 3, 4, 4, 16, 1024, 32, 64, 3, 2, 56, 14},
    /* heads * head_dim may differ from hidden_size */
    {"tiny-gqa", 512, 480, 64, 160, 2, 4, 2, 32, 1024, 32, 64, 3, 2, 56, 14},
};
enum { N_SHAPE = sizeof shapes / sizeof *shapes };

static const shape *find_shape(const char *name) {
    for (int i = 0; i < N_SHAPE; i++)
        if (!strcmp(name, shapes[i].name)) return &shapes[i];
    return NULL;
}

/* M-RoPE's sections in the proportions 16, 24, 24 of 64 frequencies, or 24, 20, 20 if
 * interleaved. */
static void add_sections(const shape *s, const char *family, json_t *rope) {
    bool recurrent = !strncmp(family, "qwen3_5", 7), glm4v = !strncmp(family, "glm4v", 5);
    bool interleaved = recurrent || !strncmp(family, "qwen3_vl", 8);
    int32_t half = s->d_head / (recurrent || glm4v ? 4 : 2), hw = half * (interleaved ? 5 : 6) / 16;
    json_object_set_new(rope, "mrope_section", json_pack("[i,i,i]", half - 2 * hw, hw, hw));
    if (interleaved) json_object_set_new(rope, "mrope_interleaved", json_true());
}

enum { REPEAT = 3 }; /* two recurrent layers and one with attention */

/* Qwen3.5's keys: a shape's layers are those with attention, half of whose heads' dimensions are rotated. */
static void add_recurrent_keys(const shape *s, json_t *t, json_t *rope) {
    int32_t keys = s->n_head > 1 ? s->n_head / 2 : 1;
    json_object_set_new(t, "num_hidden_layers", json_integer(REPEAT * s->n_layer));
    json_object_set_new(t, "full_attention_interval", json_integer(REPEAT));
    json_object_set_new(t, "linear_conv_kernel_dim", json_integer(4));
    json_object_set_new(t, "linear_num_key_heads", json_integer(keys));
    json_object_set_new(t, "linear_num_value_heads", json_integer(2 * keys));
    json_object_set_new(t, "linear_key_head_dim", json_integer(s->d_head));
    json_object_set_new(t, "linear_value_head_dim", json_integer(2 * s->d_head));
    json_object_set_new(t, "attn_output_gate", json_true());
    if (json_object_get(t, "num_experts"))
        json_object_set_new(t, "shared_expert_intermediate_size", json_integer(s->d_ffn / 2));
    json_object_set_new(rope, "partial_rotary_factor", json_real(0.5));
}

/* Gemma 3's keys: every second layer slides, and has another RoPE. */
static void add_gemma_keys(const shape *s, bool v5, json_t *t) {
    json_object_del(t, "hidden_act");
    json_object_set_new(t, "hidden_activation", json_string("gelu_pytorch_tanh"));
    json_object_set_new(t, "query_pre_attn_scalar", json_integer(s->d_head + 3));
    json_object_set_new(t, "sliding_window", json_integer(40));
    json_object_set_new(t, "sliding_window_pattern", json_integer(2));
    json_object_set_new(t, "eos_token_id", json_integer(EOS));
    if (!v5) {
        json_object_set_new(t, "rope_local_base_freq", json_real(500.0));
        return;
    }
    json_object_set_new(t, "rope_parameters",
                        json_pack("{s:{s:s, s:f}, s:{s:s, s:f}}", "full_attention", "rope_type",
                                  "default", "rope_theta", 10000.0, "sliding_attention",
                                  "rope_type", "default", "rope_theta", 500.0));
}

/* Keys that only some text models have. */
static void add_text_keys(const char *family, int32_t d_ffn, json_t *t, json_t *rope) {
    if (!strcmp(family, "mistral")) json_object_set_new(t, "sliding_window", json_null());
    if (!strcmp(family, "phi3")) json_object_set_new(t, "pad_token_id", json_integer(0));
    if (!strcmp(family, "glm4v_moe_text")) /* layer 0 has a dense FFN */
        json_object_update_new(
            t, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "n_routed_experts", EXPERTS,
                         "num_experts_per_tok", ACTIVE, "moe_intermediate_size", d_ffn / 4,
                         "n_shared_experts", 2, "first_k_dense_replace", 1, "n_group", EXPERTS / 2,
                         "topk_group", 2, "routed_scaling_factor", 1.5));
    else if (strstr(family, "_moe")) /* layer 1 has a dense FFN */
        json_object_update_new(t, json_pack("{s:i, s:i, s:i, s:i, s:[i]}", "num_experts", EXPERTS,
                                            "num_experts_per_tok", ACTIVE, "moe_intermediate_size",
                                            d_ffn / 4, "decoder_sparse_step", 1, "mlp_only_layers",
                                            1));
    if (!strcmp(family, "granite"))
        json_object_update_new(t, json_pack("{s:f, s:f, s:f, s:f}", "embedding_multiplier", 1.5,
                                            "attention_multiplier", 0.2, "residual_multiplier", 0.5,
                                            "logits_scaling", 2.0));
    if (!strcmp(family, "ministral3"))
        json_object_update_new(rope,
                               json_pack("{s:s, s:f, s:i, s:f, s:f, s:f, s:f, s:f}", "rope_type",
                                         "yarn", "factor", 4.0, "original_max_position_embeddings",
                                         SPAN, "beta_fast", 32.0, "beta_slow", 1.0, "mscale", 1.0,
                                         "mscale_all_dim", 1.0, "llama_4_scaling_beta", 0.1));
}

static json_t *text_json(const shape *s, const char *family, bool v5) {
    json_t *t = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:i, s:b}", "model_type", family,
        "vocab_size", s->vocab, "hidden_size", s->d_model, "intermediate_size", s->d_ffn,
        "num_hidden_layers", s->n_layer, "num_attention_heads", s->n_head, "num_key_value_heads",
        s->n_kv, "head_dim", s->d_head, "max_position_embeddings", s->max_position, "rms_norm_eps",
        1e-5, "hidden_act", "silu", "eos_token_id", EOS, "tie_word_embeddings", 0);
    if (!t) return NULL;
    /* Qwen's texts start without a bos token. */
    json_object_set_new(t, "bos_token_id",
                        strncmp(family, "qwen", 4) && strncmp(family, "glm", 3) ? json_integer(BOS)
                                                                                : json_null());
    bool recurrent = !strncmp(family, "qwen3_5", 7), glm = !strncmp(family, "glm", 3);
    bool sections = recurrent || glm || strstr(family, "_vl_");
    json_t *rope = json_pack("{s:s}", "rope_type", "default");
    if (sections) add_sections(s, family, rope);
    add_text_keys(family, s->d_ffn, t, rope);
    if (recurrent) add_recurrent_keys(s, t, rope);
    if (!strncmp(family, "glm4v", 5))
        json_object_set_new(rope, "partial_rotary_factor", json_real(0.5));
    bool plain = json_object_size(rope) == 1;
    json_object_set_new(v5 ? rope : t, "rope_theta", json_real(10000.0));
    if (v5 || !plain)
        json_object_set_new(t, v5 ? "rope_parameters" : "rope_scaling", rope);
    else
        json_decref(rope);
    if (!strcmp(family, "gemma3_text")) add_gemma_keys(s, v5, t);
    if (!strncmp(family, "gemma4", 6)) fv_synth_gemma4_text(t);
    return t;
}

/* PaddleOCR-VL's tower. */
static json_t *paddleocr_json(const shape *s) {
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:i}", "model_type",
                     "paddleocr_vl", "hidden_size", s->vision_d, "intermediate_size", s->vision_ffn,
                     "num_hidden_layers", s->vision_layer, "num_attention_heads", s->vision_head,
                     "image_size", SIDE * s->patch, "patch_size", s->patch, "hidden_act",
                     "gelu_pytorch_tanh", "layer_norm_eps", 1e-6, "spatial_merge_size", SCALE);
}

static bool is_pixtral(fv_layout_family f) {
    return f == FV_LAYOUT_MISTRAL3 || f == FV_LAYOUT_LIGHTON_OCR;
}

static json_t *vision_json(const shape *s, const fv_family *f) {
    if (f->layout == FV_LAYOUT_PADDLEOCR_VL) return paddleocr_json(s);
    bool clip = !strcmp(f->tower, "clip_vision_model");
    if (f->layout == FV_LAYOUT_GEMMA4)
        return fv_synth_gemma4_tower(f->name,
                                     &(fv_synth_tower){s->vision_d, s->vision_ffn, s->vision_layer,
                                                       s->vision_head, s->patch});
    json_t *v = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f}", "model_type",
        f->own_tower ? f->name : f->tower, "hidden_size", s->vision_d, "intermediate_size",
        s->vision_ffn, "num_hidden_layers", s->vision_layer, "num_attention_heads", s->vision_head,
        "image_size", s->image, "patch_size", s->patch, "hidden_act",
        clip ? "quick_gelu" : "gelu_pytorch_tanh", "layer_norm_eps", clip ? 1e-5 : 1e-6);
    if (clip) json_object_set_new(v, "projection_dim", json_integer(s->vision_d));
    if (is_pixtral(f->layout)) {
        json_object_set_new(v, "hidden_act", json_string("silu"));
        json_object_set_new(v, "image_size", json_integer(4 * s->image));
        json_object_set_new(v, "head_dim", json_integer(s->vision_d / s->vision_head));
        json_object_set_new(v, "rope_theta", json_real(10000));
        json_object_del(v, "layer_norm_eps");
        return v;
    }
    if (!clip && !f->own_tower) json_object_set_new(v, "vision_use_head", json_false());
    if (f->text_key) { /* InternVL's original layout */
        json_object_set_new(v, "hidden_act", json_string("gelu"));
        json_object_update_new(v,
                               json_pack("{s:s, s:b, s:b, s:s}", "model_type", f->tower, "qkv_bias",
                                         1, "qk_normalization", 0, "norm_type", "layer_norm"));
        return v;
    }
    if (f->layout == FV_LAYOUT_INTERNVL) {
        json_object_set_new(v, "model_type", json_string(f->tower));
        json_object_set_new(v, "hidden_act", json_string("gelu"));
        json_object_set_new(v, "attention_bias", json_true());
        json_object_set_new(v, "image_size", json_pack("[i, i]", s->image, s->image));
        json_object_set_new(v, "patch_size", json_pack("[i, i]", s->patch, s->patch));
    }
    return v;
}

static bool is_qwen_vl(fv_layout_family f) {
    return f == FV_LAYOUT_QWEN_VL || f == FV_LAYOUT_QWEN3_VL || f == FV_LAYOUT_GLM4V;
}

/* The tower's keys in a Qwen-VL model; windows have 2 x 2 tokens. */
static json_t *qwen_vl_json(const shape *s, const fv_family *f) {
    json_t *v =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", f->tower, "depth",
                  s->vision_layer, "num_heads", s->vision_head, "in_channels", 3, "patch_size",
                  s->patch, "spatial_merge_size", SCALE, "temporal_patch_size", 2);
    if (!strcmp(f->name, "qwen2_vl")) {
        json_object_set_new(v, "embed_dim", json_integer(s->vision_d));
        json_object_set_new(v, "hidden_size", json_integer(s->d_model));
        json_object_set_new(v, "mlp_ratio", json_integer(s->vision_ffn / s->vision_d));
        json_object_set_new(v, "hidden_act", json_string("quick_gelu"));
        return v;
    }
    json_object_set_new(v, "hidden_size", json_integer(s->vision_d));
    json_object_set_new(v, "intermediate_size", json_integer(s->vision_ffn));
    json_object_set_new(v, "out_hidden_size", json_integer(s->d_model));
    if (f->layout == FV_LAYOUT_GLM4V) {
        json_object_update_new(v, json_pack("{s:s, s:i, s:b, s:f}", "hidden_act", "silu",
                                            "image_size", SIDE * s->patch, "attention_bias",
                                            !strcmp(f->name, "glm_ocr"), "rms_norm_eps", 1e-5));
        return v;
    }
    bool deepstack = strncmp(f->name, "qwen3_5", 7);
    if (f->layout == FV_LAYOUT_QWEN3_VL) {
        json_object_set_new(v, "hidden_act", json_string("gelu_pytorch_tanh"));
        json_object_set_new(v, "num_position_embeddings", json_integer(SIDE * SIDE));
        if (!deepstack) return v;
        json_object_set_new(v, "deepstack_visual_indexes",
                            s->n_layer > 2 ? json_pack("[i, i]", 0, 1) : json_pack("[i]", 1));
        return v;
    }
    json_object_set_new(v, "hidden_act", json_string("silu"));
    json_object_set_new(v, "window_size", json_integer(2 * SCALE * s->patch));
    json_object_set_new(v, "fullatt_block_indexes", json_pack("[i]", 1));
    return v;
}

/* Two tiles side by side, one above the other, and 2 x 2: [height, width]. */
static json_t *pinpoints_json(int32_t tile) {
    int32_t two = 2 * tile;
    return json_pack("[[i,i],[i,i],[i,i],[i,i]]", tile, tile, tile, two, two, tile, two, two);
}

/* MobileVLM's keys as published: LLaVA's original names. */
static json_t *mobilevlm_json(const shape *s) {
    return json_pack("{s:s, s:s, s:i, s:i, s:s, s:b, s:b, s:s}", "vision_tower_type", "clip",
                     "mm_projector_type", "ldpnetv2", "mm_hidden_size", s->vision_d,
                     "mm_vision_select_layer", -2, "mm_vision_select_feature", "patch",
                     "mm_use_im_start_end", 0, "mm_use_im_patch_token", 0, "image_aspect_ratio",
                     "pad");
}

/* InternVL's keys in its original layout. */
static json_t *internvl_chat_json(const shape *s) {
    return json_pack("{s:f, s:i, s:b, s:b, s:b, s:i, s:i, s:s, s:i, s:s}", "downsample_ratio",
                     1.0 / SCALE, "force_image_size", s->image, "dynamic_image_size", 1,
                     "use_thumbnail", 1, "pad2square", 0, "min_dynamic_patch", 1,
                     "max_dynamic_patch", TILES, "ps_version", "v2", "select_layer", -1, "template",
                     "internvl2_5");
}

/* Adds keys that only some families have. */
static void add_family_keys(const shape *s, const fv_family *f, json_t *json) {
    int32_t side = s->image / s->patch;
    if (f->layout == FV_LAYOUT_IDEFICS3) {
        json_object_set_new(json, "image_token_id", json_integer(s->image_token));
        json_object_set_new(json, "scale_factor", json_integer(SCALE));
        return;
    }
    if (is_qwen_vl(f->layout)) {
        json_object_set_new(json, "vision_start_token_id", json_integer(s->image_token - 2));
        json_object_set_new(json, "vision_end_token_id", json_integer(s->image_token - 1));
        json_object_set_new(json, "image_token_id", json_integer(s->image_token));
        json_object_set_new(json, "video_token_id", json_integer(s->image_token + 1));
        return;
    }
    if (f->layout == FV_LAYOUT_GEMMA4) {
        fv_synth_gemma4_ids(s->image_token, json);
        if (!strcmp(f->name, "gemma4")) fv_synth_gemma4_small(json_object_get(json, "text_config"));
        return;
    }
    if (f->tower_apart) {
        json_object_update_new(json, mobilevlm_json(s));
        return;
    }
    if (f->text_key) {
        json_object_update_new(json, internvl_chat_json(s));
        return;
    }
    if (f->layout == FV_LAYOUT_PADDLEOCR_VL) {
        json_object_set_new(json, "image_token_id", json_integer(s->image_token));
        json_object_set_new(json, "vision_start_token_id", json_integer(s->image_token - 2));
        json_object_set_new(json, "vision_end_token_id", json_integer(s->image_token - 1));
        return;
    }
    if (f->layout == FV_LAYOUT_LIGHTON_OCR) {
        json_object_set_new(json, "image_token_id", json_integer(s->image_token));
        json_object_set_new(json, "spatial_merge_size", json_integer(SCALE));
        return;
    }
    if (f->layout == FV_LAYOUT_GEMMA3) {
        json_object_set_new(json, "boi_token_index", json_integer(s->image_token - 2));
        json_object_set_new(json, "eoi_token_index", json_integer(s->image_token - 1));
        json_object_set_new(json, "image_token_index", json_integer(s->image_token));
        json_object_set_new(json, "mm_tokens_per_image",
                            json_integer(side / SCALE * (side / SCALE)));
        return;
    }
    bool internvl = f->layout == FV_LAYOUT_INTERNVL;
    json_object_set_new(json, internvl ? "image_token_id" : "image_token_index",
                        json_integer(s->image_token));
    json_object_set_new(json, "projector_hidden_act", json_string("gelu"));
    bool pixtral = f->layout == FV_LAYOUT_MISTRAL3 && f->type; /* without a class token to drop */
    json_object_set_new(json, "vision_feature_select_strategy",
                        json_string(pixtral ? "full" : f->strategy));
    json_object_set_new(json, "vision_feature_layer", json_integer(f->feature_layer));
    if (f->layout == FV_LAYOUT_MISTRAL3 && !pixtral) {
        json_object_del(json, "vision_feature_select_strategy");
        json_object_set_new(json, "multimodal_projector_bias", json_false());
        json_object_set_new(json, "spatial_merge_size", json_integer(SCALE));
        return;
    }
    if (internvl) {
        json_object_set_new(json, "downsample_ratio", json_real(1.0 / SCALE));
        json_object_set_new(json, "image_seq_length", json_integer(side / SCALE * (side / SCALE)));
        return;
    }
    json_object_set_new(json, "multimodal_projector_bias", json_true());
    if (!strcmp(f->name, "video_llava"))
        json_object_set_new(json, "video_token_index", json_integer(s->image_token + 1));
    if (f->layout != FV_LAYOUT_LLAVA_ONEVISION && !pixtral)
        json_object_set_new(json, "image_seq_length", json_integer(side * side));
    if (f->layout != FV_LAYOUT_LLAVA && !pixtral)
        json_object_set_new(json, "image_grid_pinpoints", pinpoints_json(s->image));
    if (f->layout == FV_LAYOUT_LLAVA_ONEVISION) {
        json_object_set_new(json, "video_token_index", json_integer(s->image_token + 1));
        json_object_set_new(json, "vision_aspect_ratio", json_string("anyres_max_9"));
    }
}

/* MobileVLM's image has 24 x 24 patches, and its image token is not in the vocabulary. */
static shape fit_shape(shape s, const fv_family *f) {
    if (!f->tower_apart) return s;
    s.patch = s.image / 24;
    s.image = 24 * s.patch;
    s.vocab = s.image_token;
    return s;
}

static json_t *vision_family_json(const shape *of, const fv_family *f, const char *text, bool v5) {
    const shape fitted = fit_shape(*of, f), *s = &fitted;
    bool qwen_vl = is_qwen_vl(f->layout);
    json_t *text_config = text_json(s, text, v5);
    json_t *vision = qwen_vl ? qwen_vl_json(s, f) : vision_json(s, f);
    json_t *json =
        json_pack("{s:[s], s:s, s:o, s:o, s:b}", "architectures", f->architecture, "model_type",
                  fv_family_type(f), f->text_key ? f->text_key : "text_config", text_config,
                  "vision_config", vision, "tie_word_embeddings", 0);
    if (json) add_family_keys(s, f, json);
    if (json && f->flat && (!v5 || f->tower_apart)) { /* as in files of that time */
        json_object_update_missing(json, text_config);
        json_object_del(json, "text_config");
    }
    return json;
}

static fv_status config_from_file(const char *path, json_t **out) {
    char *text = NULL;
    size_t bytes = 0;
    FV_TRY(fv_file_read(path, CONFIG_MAX, &text, &bytes));
    fv_status st = fv_json_object(text, bytes, path, out);
    free(text);
    return st;
}

static fv_status refuse_family(const char *name, const char *text_family) {
    if (fv_config_text_family(name))
        return FV_FAIL(FV_EINVAL,
                       "family '%s' is a text model alone, with text family '%s' given: "
                       "remove one of the two",
                       name, text_family);
    return FV_FAIL(FV_EINVAL, "unknown family '%s'; available: %s and the text models %s", name,
                   fv_family_names(), fv_config_text_families);
}

static fv_status config_from_shape(const fv_synth_options *opt, json_t **out) {
    const shape *s = opt->shape ? find_shape(opt->shape) : NULL;
    if (!s)
        return FV_FAIL(FV_EINVAL, "unknown shape '%s'; available: %s", opt->shape ? opt->shape : "",
                       "llava-1.5-7b, llava-1.5-13b, small, nano, tiny, tiny-gqa");
    const char *name = opt->family ? opt->family : "llava";
    const fv_family *f = fv_family_find(name);
    if (!f && fv_config_text_family(name) && !opt->text_family) {
        *out = text_json(s, fv_config_text_family(name), opt->config_v5);
        return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "no memory for config.json");
    }
    if (!f) return refuse_family(name, opt->text_family);
    const char *text = opt->text_family ? opt->text_family : f->text;
    if (!fv_config_text_family(text))
        return FV_FAIL(FV_EINVAL, "unknown text family '%s'; available: %s", text,
                       fv_config_text_families);
    *out = vision_family_json(s, f, text, opt->config_v5);
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "no memory for config.json");
}

/* The object in `json` with the keys of the text model or the tower; NULL if it has only defaults
 * or does not exist. */
static json_t *half_of(json_t *json, const char *part) {
    const char *type = json_string_value(json_object_get(json, "model_type"));
    const fv_family *f = type ? fv_family_find(type) : NULL;
    bool text = !strcmp(part, "text_config");
    json_t *half = json_object_get(json, text && f && f->text_key ? f->text_key : part);
    if (json_is_object(half)) return half;
    bool text_only = !type || fv_config_text_family(type) || (f && f->flat);
    return text_only && text ? json : NULL;
}

/* With recurrent layers, n counts those with attention. */
static fv_status set_layers(json_t *json, const char *part, int32_t n) {
    if (n == 0) return FV_OK;
    json_t *half = half_of(json, part);
    if (!half) return FV_FAIL(FV_EINVAL, "the config file has no %s to set layers in", part);
    const char *type = json_string_value(json_object_get(half, "model_type"));
    if (type && !strncmp(type, "gemma4", 6) && !strcmp(part, "text_config"))
        fv_synth_gemma4_types(half, n);
    const char *key = json_object_get(half, "depth") ? "depth" : "num_hidden_layers";
    json_int_t repeat = json_integer_value(json_object_get(half, "full_attention_interval"));
    json_object_set_new(half, key,
                        json_integer(n * (repeat > 1 && repeat <= FV_MAX_LAYERS ? repeat : 1)));
    return FV_OK;
}

/* Applies the options to a config from either source. */
static fv_status apply_options(const fv_synth_options *opt, json_t *json) {
    static const char *const dtypes[] = {
        [FV_F32] = "float32", [FV_BF16] = "bfloat16", [FV_F16] = "float16"};
    FV_TRY(set_layers(json, "text_config", opt->n_layer));
    FV_TRY(set_layers(json, "vision_config", opt->n_vision_layer));
    if (opt->name_mapping == FV_NAME_MAPPING_BASE || opt->name_mapping == FV_NAME_MAPPING_BARE)
        json_object_set_new(json, "tie_word_embeddings", json_true());
    json_object_del(json, "torch_dtype");
    json_object_del(json, "dtype");
    json_object_set_new(json, opt->config_v5 ? "dtype" : "torch_dtype",
                        json_string(dtypes[opt->dtype]));
    return FV_OK;
}

static fv_status parse_back(const json_t *json, const char *where, fv_model_config *cfg) {
    char *text = json_dumps(json, 0);
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory for config.json");
    fv_status st = fv_config_parse(text, strlen(text), where, cfg);
    free(text);
    return st;
}

static fv_status check_vocab(const fv_model_config *cfg) {
    int32_t room = fv_synth_text_ids(cfg);
    if (room > FV_SYNTH_RESERVED_IDS) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "%s leaves %d ids to text: a synthetic tokenizer needs %d for its special and "
                   "byte tokens",
                   cfg->has_vision ? "image_token_index" : "vocab_size", room,
                   FV_SYNTH_RESERVED_IDS + 1);
}

fv_status fv_synth_config_make(const fv_synth_options *opt, json_t **json, fv_model_config *cfg) {
    if (!opt->shape == !opt->config_file)
        return FV_FAIL(FV_EINVAL, "either a shape or a config file must be given");
    if (opt->config_file && (opt->text_family || opt->family))
        return FV_FAIL(FV_EINVAL, "the %sfamily comes from the config file: remove it",
                       opt->family ? "" : "text ");
    json_t *made = NULL;
    if (opt->config_file)
        FV_TRY(config_from_file(opt->config_file, &made));
    else
        FV_TRY(config_from_shape(opt, &made));
    fv_status st = apply_options(opt, made);
    if (st == FV_OK) st = parse_back(made, opt->config_file ? opt->config_file : opt->shape, cfg);
    if (st == FV_OK && cfg->image_token == FV_IMAGE_TOKEN_NAMED)
        cfg->image_token = cfg->text.vocab - SPARE;
    if (st == FV_OK) st = check_vocab(cfg);
    if (st == FV_OK)
        *json = made;
    else
        json_decref(made);
    return st;
}

fv_status fv_synth_config(const fv_synth_options *opt, fv_model_config *out) {
    json_t *json;
    FV_TRY(fv_synth_config_make(opt, &json, out));
    json_decref(json);
    return FV_OK;
}

/* Sets the sizes of Qwen-VL's images and frames. */
static void set_areas(const fv_model_config *cfg, json_t *j) {
    int32_t token = cfg->vision.image * cfg->vision.image; /* pixels of a token */
    json_object_set_new(
        j, "size",
        json_pack("{s:i, s:i}", "shortest_edge", LEAST * token, "longest_edge", MOST * token));
    json_object_set_new(j, "patch_size", json_integer(cfg->vision.patch));
    json_object_set_new(j, "merge_size", json_integer(cfg->vision.merge));
    json_object_set_new(j, "temporal_patch_size", json_integer(cfg->vision.two_frames ? 2 : 1));
}

/* preprocessor_config.json, as the family's class writes it. */
static json_t *image_processor_json(const fv_model_config *cfg) {
    int32_t side = cfg->vision.image;
    bool idefics = cfg->layout.family == FV_LAYOUT_IDEFICS3,
         clip = cfg->vision.class_token || cfg->vision.any_size;
    bool internvl = cfg->layout.family == FV_LAYOUT_INTERNVL,
         pixtral = is_pixtral(cfg->layout.family);
    int32_t patch = cfg->vision.patch;
    double half = 0.5;
    json_t *j = json_pack("{s:b, s:b, s:b, s:b, s:i, s:f, s:[f,f,f], s:[f,f,f]}", "do_resize", 1,
                          "do_rescale", 1, "do_normalize", 1, "do_convert_rgb", 1, "resample",
                          idefics ? 1 : 3, "rescale_factor", 0.00392156862745098, "image_mean",
                          clip ? 0.48145466 : half, clip ? 0.4578275 : half,
                          clip ? 0.40821073 : half, "image_std", clip ? 0.26862954 : half,
                          clip ? 0.26130258 : half, clip ? 0.27577711 : half);
    char type[FV_SYNTH_CLASS_MAX];
    fv_synth_class(cfg, "ImageProcessor", type);
    json_object_set_new(j, "image_processor_type", json_string(type));
    if (idefics) {
        json_object_set_new(j, "size", json_pack("{s:i}", "longest_edge", 4 * side));
        json_object_set_new(j, "max_image_size", json_pack("{s:i}", "longest_edge", side));
        json_object_set_new(j, "do_image_splitting", json_true());
        json_object_set_new(j, "do_pad", json_true());
    } else if (pixtral) {
        json_object_set_new(j, "size", json_pack("{s:i}", "longest_edge", side));
        json_object_set_new(j, "patch_size",
                            json_pack("{s:i, s:i}", "height", patch, "width", patch));
    } else if (is_qwen_vl(cfg->layout.family) || cfg->layout.family == FV_LAYOUT_PADDLEOCR_VL) {
        set_areas(cfg, j);
    } else if (cfg->layout.family == FV_LAYOUT_GEMMA4) {
        fv_synth_gemma4_processor(cfg, j);
    } else if (cfg->layout.family == FV_LAYOUT_GEMMA3) {
        json_object_set_new(j, "resample", json_integer(2));
        json_object_set_new(j, "size", json_pack("{s:i, s:i}", "height", side, "width", side));
        json_object_set_new(j, "do_pan_and_scan", json_null());
    } else if (cfg->family->text_key) {
        json_object_update_new(
            j, json_pack("{s:i, s:i, s:b}", "size", side, "crop_size", side, "do_center_crop", 1));
    } else if (internvl) {
        json_object_set_new(j, "size", json_pack("{s:i, s:i}", "height", side, "width", side));
        json_object_set_new(j, "crop_to_patches", json_false());
        json_object_set_new(j, "min_patches", json_integer(1));
        json_object_set_new(j, "max_patches", json_integer(TILES));
    } else if (clip || cfg->layout.family == FV_LAYOUT_LLAVA_NEXT) {
        json_object_set_new(j, "do_center_crop", json_true());
        json_object_set_new(j, "size", json_pack("{s:i}", "shortest_edge", side));
        json_object_set_new(j, "crop_size", json_pack("{s:i, s:i}", "height", side, "width", side));
    } else {
        json_object_set_new(j, "do_center_crop", json_false());
        json_object_set_new(j, "size", json_pack("{s:i, s:i}", "height", side, "width", side));
    }
    if (cfg->layout.n_pinpoint == 0) return j;
    json_t *list = json_array();
    for (int32_t i = 0; i < cfg->layout.n_pinpoint; i++)
        json_array_append_new(
            list, json_pack("[i, i]", cfg->layout.pinpoint[i].h, cfg->layout.pinpoint[i].w));
    json_object_set_new(j, "image_grid_pinpoints", list);
    json_object_set_new(j, "do_pad", json_true());
    return j;
}

/* transformers does not load the processor without a video processor. */
static json_t *video_json(const fv_model_config *cfg) {
    char type[FV_SYNTH_CLASS_MAX];
    fv_synth_class(cfg, "VideoProcessor", type);
    json_t *j = json_pack("{s:s}", "video_processor_type", type);
    if (is_qwen_vl(cfg->layout.family)) set_areas(cfg, j);
    if (cfg->layout.family == FV_LAYOUT_GEMMA4) fv_synth_gemma4_processor(cfg, j);
    if (!cfg->layout.video_class) return j;
    int32_t side = cfg->vision.image;
    json_object_set_new(j, "size", json_pack("{s:i}", "shortest_edge", side));
    json_object_set_new(j, "crop_size", json_pack("{s:i, s:i}", "height", side, "width", side));
    return j;
}

/* processor_config.json without the image processor. */
static json_t *processor_json(const fv_model_config *cfg) {
    char type[FV_SYNTH_CLASS_MAX];
    fv_synth_class(cfg, "Processor", type);
    const char *strategy = cfg->vision.keep_cls || !cfg->vision.class_token ? "full" : "default";
    char ratio[32];
    int32_t n = fv_vision_tokens(&cfg->vision);
    switch (cfg->layout.family) {
    case FV_LAYOUT_IDEFICS3:
        return json_pack("{s:s, s:i}", "processor_class", type, "image_seq_len", n);
    case FV_LAYOUT_GEMMA3:
    case FV_LAYOUT_INTERNVL:
        return json_pack("{s:s, s:i}", "processor_class", type, "image_seq_length", n);
    case FV_LAYOUT_LIGHTON_OCR:
        return json_pack("{s:s, s:i, s:i}", "processor_class", type, "patch_size",
                         cfg->vision.patch, "spatial_merge_size", cfg->vision.merge);
    case FV_LAYOUT_MISTRAL3:
        return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "processor_class", type, "patch_size",
                         cfg->vision.patch, "spatial_merge_size", cfg->vision.merge, "image_token",
                         "[IMG]", "image_break_token", "[IMG_BREAK]", "image_end_token",
                         "[IMG_END]");
    case FV_LAYOUT_QWEN_VL:
    case FV_LAYOUT_GLM4V:
    case FV_LAYOUT_PADDLEOCR_VL:
    case FV_LAYOUT_QWEN3_VL:
    case FV_LAYOUT_GEMMA4: return json_pack("{s:s}", "processor_class", type);
    case FV_LAYOUT_LLAVA_ONEVISION:
        snprintf(ratio, sizeof ratio, "anyres_max_%d", cfg->layout.tiles_max);
        return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "processor_class", type, "image_token",
                         "<image>", "video_token", "<video>", "num_image_tokens", n,
                         "vision_feature_select_strategy", strategy, "vision_aspect_ratio", ratio);
    default:
        return json_pack("{s:s, s:s, s:i, s:i, s:s}", "processor_class", type, "image_token",
                         "<image>", "patch_size", cfg->vision.patch, "num_additional_image_tokens",
                         cfg->vision.class_token ? 1 : 0, "vision_feature_select_strategy",
                         strategy);
    }
}

fv_status fv_synth_write_side_configs(const fv_synth_options *opt, const char *tower,
                                      const fv_model_config *cfg) {
    json_t *eos = json_array();
    for (int32_t i = 0; i < cfg->n_eos; i++) json_array_append_new(eos, json_integer(cfg->eos[i]));
    if (cfg->n_eos == 0) json_array_append_new(eos, json_integer(EOS));
    json_t *gen = json_pack("{s:o}", "eos_token_id", eos);
    if (cfg->text.bos >= 0) json_object_set_new(gen, "bos_token_id", json_integer(cfg->text.bos));
    int32_t pad = fv_synth_pad_id(cfg);
    if (pad >= 0) json_object_set_new(gen, "pad_token_id", json_integer(pad));
    FV_TRY(fv_synth_write_json(opt->dir, "generation_config.json", gen));
    if (!cfg->has_vision) return FV_OK;
    if (tower)
        return fv_synth_write_json(tower, "preprocessor_config.json", image_processor_json(cfg));

    json_t *processor = processor_json(cfg);
    const bool sound = cfg->layout.family == FV_LAYOUT_GEMMA4;
    if (sound && opt->config_v5) fv_synth_gemma4_sound(cfg, true, processor);
    if (opt->config_v5) {
        json_object_set_new(processor, "image_processor", image_processor_json(cfg));
        if (fv_synth_form_of(cfg)->reads_video)
            json_object_set_new(processor, "video_processor", video_json(cfg));
    }
    FV_TRY(fv_synth_write_json(opt->dir, "processor_config.json", processor));
    if (opt->config_v5) return FV_OK;
    if (cfg->layout.family == FV_LAYOUT_QWEN3_VL ||
        cfg->layout.family == FV_LAYOUT_GLM4V) /* other families use the images' file */
        FV_TRY(fv_synth_write_json(opt->dir, "video_preprocessor_config.json", video_json(cfg)));
    json_t *image = image_processor_json(cfg);
    if (sound) fv_synth_gemma4_sound(cfg, false, image);
    char type[FV_SYNTH_CLASS_MAX];
    fv_synth_class(cfg, "Processor", type);
    json_object_set_new(image, "processor_class", json_string(type));
    return fv_synth_write_json(opt->dir, "preprocessor_config.json", image);
}
