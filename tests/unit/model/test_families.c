/* model/families: defaults of each family, both spellings of its keys, its own names, and what does not
 * fit. Defaults are those that transformers 5.23's config classes print. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "model/families/tensor_specs.h"

static fv_model_config parse(const char *json) {
    fv_model_config cfg;
    cr_assert_eq(fv_config_parse(json, strlen(json), "config.json", &cfg), FV_OK, "%s: %s", json,
                 fv_last_error());
    return cfg;
}

static void refused(const char *json, fv_status want, const char *words) {
    fv_model_config cfg;
    fv_status st = fv_config_parse(json, strlen(json), "config.json", &cfg);
    cr_assert_eq(st, want, "%s gives %s (%s)", json, fv_status_name(st), fv_last_error());
    cr_assert_eq(strncmp(fv_last_error(), "config.json: ", 13), 0, "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static bool has(const fv_model_config *cfg, bool whole, const char *name) {
    fv_tensor_spec *spec;
    int32_t n;
    bool found = false;
    cr_assert_eq(fv_tensor_specs_build(cfg, whole, &spec, &n), FV_OK);
    for (int32_t i = 0; i < n; i++) found |= !strcmp(spec[i].name, name);
    free(spec);
    return found;
}

Test(families, llava_next_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"llava_next\",\"image_token_index\":7}");
    cr_assert_str_eq(c.family->name, "llava_next");
    cr_assert_eq(c.layout.family, FV_LAYOUT_LLAVA_NEXT);
    cr_assert(c.layout.tile == 336 && c.layout.patch == 14 && c.layout.merge == 1);
    cr_assert(c.vision.class_token && c.vision.pre_norm && !c.vision.keep_cls);
    cr_assert(c.vision.d_model == 1024 && c.vision.n_layer == 24 &&
              c.vision.feature_layer[0] == 23);
    cr_assert_eq(c.layout.n_pinpoint, 5);
    cr_assert(c.layout.pinpoint[0].h == 336 && c.layout.pinpoint[0].w == 672);
    cr_assert(c.layout.pinpoint[3].h == 1008 && c.layout.pinpoint[3].w == 336);
    cr_assert(has(&c, false, "newline"));
}

Test(families, llava_onevision_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"llava_onevision\"}");
    cr_assert_eq(c.image_token, 151646);
    cr_assert_str_eq(c.text.family, "qwen2");
    const fv_vision_config *v = &c.vision;
    cr_assert(!v->class_token && v->patch_bias && !v->pre_norm && !v->post_norm);
    cr_assert(v->d_model == 1152 && v->d_ffn == 4304 && v->n_layer == 26 && v->n_head == 16);
    cr_assert(v->act == FV_ACT_GELU_TANH && v->ln_eps == 1e-6F);
    cr_assert(v->image == 384 && v->patch == 14 && fv_vision_tokens(v) == 729);
    cr_assert(v->feature_layer[0] == 26 && !v->keep_cls);
    cr_assert(c.layout.n_pinpoint == 36 && c.layout.tiles_max == 9);
    cr_assert(c.layout.pinpoint[1].h == 384 && c.layout.pinpoint[1].w == 768);
    cr_assert(c.layout.pinpoint[35].h == 2304 && c.layout.pinpoint[35].w == 2304);
    cr_assert(has(&c, true, "vision.post_layernorm.bias"));
    cr_assert_not(has(&c, false, "vision.post_layernorm.bias"));
    cr_assert_not(has(&c, true, "vision.head.probe"));
}

Test(families, idefics3_and_smolvlm_have_their_defaults) {
    static const char *const types[] = {
        "{\"model_type\":\"idefics3\",\"image_token_id\":9,\"vision_config\":{\"patch_size\":16}}",
        "{\"model_type\":\"smolvlm\",\"image_token_id\":9,\"vision_config\":{\"patch_size\":16}}"};
    for (int i = 0; i < 2; i++) {
        fv_model_config c = parse(types[i]);
        const fv_vision_config *v = &c.vision;
        cr_assert_eq(c.layout.family, FV_LAYOUT_IDEFICS3);
        cr_assert(v->patch_bias && v->post_norm && v->bucket_position && !v->class_token);
        cr_assert(v->d_model == 1152 && v->d_ffn == 3072 && v->n_layer == 12 && v->n_head == 16);
        cr_assert(v->image == 224 && v->act == FV_ACT_GELU_TANH);
        cr_assert_eq(v->feature_layer[0], 12);
        cr_assert_eq(v->merge, 2);
        refused(i ? "{\"model_type\":\"smolvlm\"}" : "{\"model_type\":\"idefics3\"}", FV_EDATA,
                "is 128257, but the text model's 'vocab_size' is 32000");
        cr_assert_str_eq(c.text.family, "llama");
        cr_assert_eq(c.text.rms_eps, 1e-5F);
    }
}

#define INTERNVL(keys) "{\"model_type\":\"internvl\",\"image_token_id\":3" keys "}"

Test(families, internvl_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"internvl\"}");
    const fv_vision_config *v = &c.vision;
    cr_assert(c.image_token == 151667 && c.layout.family == FV_LAYOUT_INTERNVL);
    cr_assert_str_eq(c.text.family, "qwen2");
    cr_assert(c.text.tied_head, "tie_word_embeddings is true by default");
    cr_assert(v->d_model == 1024 && v->d_ffn == 4096 && v->n_layer == 24 && v->n_head == 16);
    cr_assert(v->image == 448 && v->patch == 14 && v->merge == 2 && fv_vision_tokens(v) == 256);
    cr_assert(v->act == FV_ACT_GELU && v->ln_eps == 1e-6F && v->feature_layer[0] == 24);
    cr_assert(v->class_token && !v->keep_cls && v->patch_bias && v->layer_scale);
    cr_assert_not(v->rms_norm || v->bias_qkv || v->qk_norm || v->post_norm || v->pre_norm);
    cr_assert(has(&c, false, "vision.encoder.layers.23.scale2"));
    cr_assert(has(&c, false, "projector.norm.bias"));
    cr_assert_not(has(&c, true, "vision.post_layernorm.weight"));
    cr_assert_not(has(&c, true, "vision.encoder.layers.0.self_attn.q_proj.bias"));
    cr_assert_not(has(&c, true, "vision.embeddings.mask_token"));
}

Test(families, internvl_has_keys_of_its_own) {
    fv_model_config c =
        parse(INTERNVL(",\"vision_config\":{\"norm_type\":\"rms_norm\",\"use_qk_norm\":true,"
                       "\"attention_bias\":true,"
                       "\"use_mean_pooling\":false,\"use_mask_token\":true,\"image_size\":[56,56]},"
                       "\"downsample_ratio\":0.25,\"tie_word_embeddings\":false"));
    const fv_vision_config *v = &c.vision;
    cr_assert(v->rms_norm && v->qk_norm && v->bias_qkv && v->post_norm && !c.text.tied_head);
    cr_assert(v->merge == 4 && fv_vision_tokens(v) == 1);
    cr_assert(has(&c, true, "vision.embeddings.mask_token"));
    cr_assert_not(has(&c, false, "vision.embeddings.mask_token"));
    cr_assert_not(has(&c, true, "vision.encoder.layers.0.layer_norm1.bias"));
    c = parse(INTERNVL(",\"vision_config\":{\"use_mean_pooling\":false},"
                       "\"vision_feature_layer\":-2"));
    cr_assert(!c.vision.post_norm && has(&c, true, "vision.post_layernorm.weight"));
    cr_assert_not(has(&c, false, "vision.post_layernorm.weight"));
}

Test(families, an_internvl_that_the_engine_has_not_is_refused) {
    refused(
        INTERNVL(",\"downsample_ratio\":0.3"), FV_EUNSUPPORTED,
        "key 'downsample_ratio' is 0.3; it must be 1 over a divisor of vision_config's image_size "
        "/ patch_size (32)");
    refused(INTERNVL(",\"downsample_ratio\":0"), FV_EUNSUPPORTED, "'downsample_ratio' is 0;");
    refused(INTERNVL(",\"downsample_ratio\":-1"), FV_EUNSUPPORTED, "'downsample_ratio' is -1;");
    refused(INTERNVL(",\"vision_feature_layer\":[-1]"), FV_EUNSUPPORTED,
            "key 'vision_feature_layer' is a list");
    refused(INTERNVL(",\"vision_feature_select_strategy\":\"full\""), FV_EUNSUPPORTED,
            "tiles have no place for it");
    refused(INTERNVL(",\"vision_config\":{\"norm_type\":\"batch_norm\"}"), FV_EUNSUPPORTED,
            "vision_config: key 'norm_type' is 'batch_norm'; layer_norm and rms_norm are possible");
    refused(INTERNVL(",\"vision_config\":{\"use_absolute_position_embeddings\":false}"),
            FV_EUNSUPPORTED, "vision_config: key 'use_absolute_position_embeddings' is false");
}

/* The fields of the published InternVL3-1B. */
#define INTERNVL_CHAT(keys)                                                                        \
    "{\"architectures\":[\"InternVLChatModel\"],\"model_type\":\"internvl_chat\","                 \
    "\"downsample_ratio\":0.5,\"dynamic_image_size\":true,\"force_image_size\":448,"               \
    "\"hidden_size\":896,\"image_fold\":null,\"max_dynamic_patch\":12,\"min_dynamic_patch\":1,"    \
    "\"pad2square\":false,\"ps_version\":\"v2\",\"select_layer\":-1,\"system_message\":null,"      \
    "\"template\":\"internvl2_5\",\"tie_word_embeddings\":false,\"use_backbone_lora\":0,"          \
    "\"use_llm_lora\":0,\"use_thumbnail\":true,"                                                   \
    "\"llm_config\":{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\","           \
    "\"bos_token_id\":151643,\"eos_token_id\":151643,\"hidden_act\":\"silu\","                     \
    "\"hidden_size\":896,\"intermediate_size\":4864,\"max_position_embeddings\":32768,"            \
    "\"max_window_layers\":70,\"moe_config\":null,\"num_attention_heads\":14,"                     \
    "\"num_hidden_layers\":24,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-06,"                   \
    "\"rope_scaling\":{\"factor\":2.0,\"rope_type\":\"dynamic\",\"type\":\"dynamic\"},"            \
    "\"rope_theta\":1000000.0,\"sliding_window\":null,\"use_sliding_window\":false,"               \
    "\"vocab_size\":151674},"                                                                      \
    "\"vision_config\":{\"architectures\":[\"InternVisionModel\"],\"hidden_act\":\"gelu\","        \
    "\"hidden_size\":1024,\"image_size\":448,\"intermediate_size\":4096,"                          \
    "\"layer_norm_eps\":1e-06,\"model_type\":\"intern_vit_6b\",\"norm_type\":\"layer_norm\","      \
    "\"num_attention_heads\":16,\"num_channels\":3,\"num_experts\":8,\"num_hidden_layers\":24,"    \
    "\"patch_size\":14,\"qk_normalization\":false,\"qkv_bias\":true,\"use_moe\":false}" keys "}"

Test(families, internvl_s_original_layout_has_the_same_network) {
    fv_model_config c = parse(INTERNVL_CHAT(""));
    const fv_vision_config *v = &c.vision;
    cr_assert_str_eq(c.text.family, "qwen2");
    cr_assert(c.text.d_model == 896 && c.text.vocab == 151674 && c.text.rope.theta == 1e6);
    cr_assert(v->merge == 2 && fv_vision_tokens(v) == 256 && v->feature_layer[0] == 24);
    cr_assert(v->bias_qkv && v->fused_qkv && v->layer_scale && !v->qk_norm && !v->rms_norm);
    cr_assert(c.layout.tiles_min == 1 && c.layout.tiles_max == 12);
    cr_assert_eq(c.image_token, FV_IMAGE_TOKEN_NAMED);
    cr_assert_str_eq(c.chat, "internvl2_5");
    cr_assert_str_eq(c.chat_end, "<|im_end|>");
    cr_assert(has(&c, true, "vision.encoder.layers.23.self_attn.qkv.bias"));
    cr_assert(has(&c, true, "vision.encoder.layers.23.scale2"));
    cr_assert_not(has(&c, true, "vision.encoder.layers.0.self_attn.q_proj.weight"));
    cr_assert_not(has(&c, true, "vision.post_layernorm.weight"));
}

#define OLD_INTERNVL(keys) "{\"model_type\":\"internvl_chat\",\"llm_config\":{}," keys "}"

Test(families, internvl_s_original_layout_has_other_defaults) {
    fv_model_config c = parse("{\"model_type\":\"internvl_chat\",\"use_thumbnail\":true,"
                              "\"ps_version\":\"v2\",\"llm_config\":{}}");
    const fv_vision_config *v = &c.vision;
    cr_assert(v->d_model == 3200 && v->n_layer == 48 && v->n_head == 25 && v->image == 224);
    cr_assert(v->rms_norm && v->qk_norm && !v->bias_qkv);
    cr_assert_not(has(&c, true, "vision.encoder.layers.0.self_attn.qkv.bias"));
    cr_assert(c.layout.tiles_max == 1, "dynamic_image_size is false by default");
    cr_assert_str_eq(c.chat, "");
    refused(OLD_INTERNVL("\"ps_version\":\"v1\""), FV_EUNSUPPORTED, "key 'ps_version' is 'v1'");
    refused(OLD_INTERNVL("\"ps_version\":\"v2\",\"pad2square\":true,\"use_thumbnail\":true"),
            FV_EUNSUPPORTED, "keys 'pad2square' and 'use_thumbnail' are true and true");
    refused(OLD_INTERNVL("\"ps_version\":\"v2\""), FV_EUNSUPPORTED, "are false and false");
    refused(OLD_INTERNVL("\"ps_version\":\"v2\",\"use_thumbnail\":true,\"force_image_size\":448"),
            FV_EUNSUPPORTED, "key 'force_image_size' is 448, but the tower's 'image_size' is 224");
    refused(OLD_INTERNVL("\"ps_version\":\"v2\",\"use_thumbnail\":true,\"select_layer\":49"),
            FV_EDATA, "select_layer");
    refused("{\"model_type\":\"internvl_chat\",\"llm_config\":{\"model_type\":\"internlm2\"}}",
            FV_EUNSUPPORTED, "llm_config: unsupported model_type 'internlm2'");
    refused("{\"model_type\":\"internvl_chat\",\"llm_config\":7}", FV_EDATA,
            "llm_config and vision_config must be");
}

Test(families, lighton_ocr_is_mistral3_s_tower_with_its_own_names_and_sizes) {
    fv_model_config c = parse("{\"model_type\":\"lighton_ocr\",\"text_config\":{},"
                              "\"vision_config\":{\"model_type\":\"pixtral\",\"image_size\":1540,"
                              "\"patch_size\":14,\"head_dim\":64,\"rope_parameters\":{"
                              "\"rope_theta\":10000}}}");
    const fv_vision_config *v = &c.vision;
    cr_assert_str_eq(c.text.family, "qwen3");
    cr_assert(c.image_token == 151655 && c.layout.family == FV_LAYOUT_LIGHTON_OCR);
    cr_assert(v->merge == 2 && v->patch_merger && !v->projector_bias && c.text.tied_head);
    cr_assert(v->projector_act == FV_ACT_GELU && v->feature_layer[0] == v->n_layer);
    static const struct {
        const char *json;
        int32_t unit, edge; /* 0: refused */
    } files[] = {{"{\"patch_size\":{\"height\":14,\"width\":14},\"size\":{\"longest_edge\":1540}}",
                  14, 1540},
                 {"{\"patch_size\":28,\"size\":{\"longest_edge\":1540}}", 28, 1540},
                 {"{}", 16, 1024},
                 {"{\"patch_size\":{\"height\":14,\"width\":28}}", 0, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fv_layout_config l = c.layout;
        fv_image_config image;
        const fv_status st =
            fv_image_config_parse(files[i].json, strlen(files[i].json), "p.json", &l, &image);
        cr_assert_eq(st, files[i].unit ? FV_OK : FV_EUNSUPPORTED, "%s", files[i].json);
        if (st == FV_OK)
            cr_assert(l.shortest_edge == files[i].unit && l.resize.w == files[i].edge, "%s",
                      files[i].json);
    }
}

/* Shrunken, with the fields of MiMo-VL-7B: a Qwen2.5-VL whose text model has sizes of its own. */
Test(families, a_qwen2_5_vl_with_another_text_model_s_sizes_is_read) {
    fv_model_config c = parse(
        "{\"architectures\":[\"Qwen2_5_VLForConditionalGeneration\"],\"attention_bias\":true,"
        "\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id\":151645,"
        "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"image_token_id\":151655,"
        "\"initializer_range\":0.02,\"intermediate_size\":11008,"
        "\"max_position_embeddings\":128000,\"model_type\":\"qwen2_5_vl\","
        "\"num_attention_heads\":32,\"num_hidden_layers\":2,\"num_key_value_heads\":8,"
        "\"num_nextn_predict_layers\":1,\"rms_norm_eps\":1e-05,"
        "\"rope_scaling\":{\"mrope_section\":[16,24,24],\"type\":\"mrope\"},"
        "\"rope_theta\":640000,\"tie_word_embeddings\":false,\"use_sliding_window\":false,"
        "\"video_token_id\":151656,\"vision_start_token_id\":151652,\"vocab_size\":151680,"
        "\"vision_config\":{\"depth\":2,\"fullatt_block_indexes\":[7,15,23,31],"
        "\"hidden_act\":\"silu\",\"hidden_size\":1280,\"in_chans\":3,\"intermediate_size\":3456,"
        "\"model_type\":\"qwen2_5_vl\",\"num_heads\":16,\"out_hidden_size\":4096,"
        "\"patch_size\":14,\"spatial_merge_size\":2,\"spatial_patch_size\":14,"
        "\"temporal_patch_size\":2,\"tokens_per_second\":2,\"window_size\":112}}");
    cr_assert_str_eq(c.family->name, "qwen2_5_vl");
    cr_assert(c.text.d_head == 128 && c.text.n_kv == 8 && c.text.bias_qkv);
    cr_assert(c.text.rope.theta == 640000 && c.text.rope.section[1] == 24);
    cr_assert(c.text.vocab == 151680 && c.layout.tokens_per_second == 2);
}

/* Shrunken, with the fields of Granite-Docling-258M: Idefics3 with a small Llama. */
Test(families, granite_docling_258m_is_an_idefics3) {
    fv_model_config c = parse(
        "{\"architectures\":[\"Idefics3ForConditionalGeneration\"],\"model_type\":\"idefics3\","
        "\"image_token_id\":100270,\"scale_factor\":4,\"tie_word_embeddings\":false,"
        "\"text_config\":{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"attention_bias\":false,\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":576,"
        "\"intermediate_size\":1536,\"max_position_embeddings\":8192,\"mlp_bias\":false,"
        "\"num_attention_heads\":9,\"num_hidden_layers\":2,\"num_key_value_heads\":3,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":100000.0,"
        "\"vocab_size\":100352},"
        "\"vision_config\":{\"model_type\":\"idefics3_vision\",\"hidden_act\":"
        "\"gelu_pytorch_tanh\",\"hidden_size\":768,\"image_size\":512,"
        "\"intermediate_size\":3072,\"layer_norm_eps\":1e-06,\"max_image_size\":{"
        "\"longest_edge\":512},\"num_attention_heads\":12,\"num_channels\":3,"
        "\"num_hidden_layers\":2,\"patch_size\":16,\"size\":{\"longest_edge\":2048}}}");
    cr_assert_str_eq(c.family->name, "idefics3");
    cr_assert(c.image_token == 100270 && c.text.n_kv == 3 && c.text.d_head == 64);
    cr_assert(c.vision.merge == 4 && fv_vision_tokens(&c.vision) == 64);
}

/* The published fields of PaddleOCR-VL, text keys beside vision_config. */
Test(families, paddleocr_vl_as_published) {
    fv_model_config c = parse(
        "{\"architectures\":[\"PaddleOCRVLForConditionalGeneration\"],\"model_type\":"
        "\"paddleocr_vl\",\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":1024,"
        "\"image_token_id\":100295,\"intermediate_size\":3072,\"max_position_embeddings\":131072,"
        "\"num_attention_heads\":16,\"num_hidden_layers\":18,\"num_key_value_heads\":2,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"mrope_section\":[16,24,24],\"rope_type\":"
        "\"default\",\"type\":\"default\"},\"rope_theta\":500000,\"tie_word_embeddings\":false,"
        "\"use_bias\":false,\"video_token_id\":101307,\"vocab_size\":103424,\"vision_config\":{"
        "\"architectures\":[\"SiglipVisionModel\"],\"hidden_act\":\"gelu_pytorch_tanh\","
        "\"hidden_size\":1152,\"image_size\":384,\"intermediate_size\":4304,"
        "\"layer_norm_eps\":1e-06,\"model_type\":\"paddleocr_vl\",\"num_attention_heads\":16,"
        "\"num_channels\":3,\"num_hidden_layers\":27,\"patch_size\":14,"
        "\"spatial_merge_size\":2,\"temporal_patch_size\":2,\"tokens_per_second\":2}}");
    const fv_vision_config *v = &c.vision;
    cr_assert_str_eq(c.text.family, "paddleocr_vl_text");
    cr_assert(c.text.d_head == 128 && c.text.n_kv == 2 && c.text.rope.theta == 500000);
    cr_assert(!c.text.bias_qkv && !c.text.bias_mlp && c.text.rope.section[2] == 24);
    cr_assert(v->position_side == 27 && v->position_middle && v->merge == 2 && v->post_norm);
    cr_assert(v->d_head == 72 && v->projector_wide && !v->two_frames && !v->fused_qkv);
    cr_assert(has(&c, true, "vision.head.probe") && !has(&c, false, "vision.head.probe"));
    cr_assert(has(&c, true, "vision.embeddings.packing_position_embedding.weight"));
    fv_layout_config l = c.layout;
    fv_image_config image;
    const char json[] = "{\"image_processor_type\":\"PaddleOCRVLImageProcessor\",\"min_pixels\":"
                        "147384,\"max_pixels\":2822400,\"merge_size\":2,\"patch_size\":14,"
                        "\"temporal_patch_size\":1,\"image_mean\":[0.5,0.5,0.5]}";
    cr_assert_eq(fv_image_config_parse(json, strlen(json), "p.json", &l, &image), FV_OK, "%s",
                 fv_last_error());
    cr_assert(l.pixels_min == 147384 && l.pixels_max == 2822400);
}

#define MISTRAL3(keys) "{\"model_type\":\"mistral3\"," keys "}"

Test(families, mistral3_has_its_defaults) {
    fv_model_config c = parse(MISTRAL3("\"text_config\":{}"));
    const fv_vision_config *v = &c.vision;
    cr_assert(c.image_token == 10 && c.layout.family == FV_LAYOUT_MISTRAL3 && c.text.tied_head);
    cr_assert_str_eq(c.text.family, "mistral");
    cr_assert(v->image == 1540 && v->patch == 14 && v->merge == 2 && v->d_model == 1024);
    cr_assert(v->rms_norm && v->gated && v->any_size && v->pre_norm && v->patch_merger);
    cr_assert(v->rope == FV_TOWER_ROPE_AXIAL && v->rope_theta == 10000 && v->ln_eps == 1e-5F);
    cr_assert(!v->class_token && !v->bias_qkv && !v->bias_o && !v->bias_mlp && !v->projector_bias);
    cr_assert(v->projector_norm == FV_PROJECTOR_NORM_PATCHES && v->projector_eps == c.text.rms_eps);
    cr_assert_eq(fv_vision_tokens_of(v, 280, 56), 20);
    cr_assert(has(&c, false, "projector.merger.weight"));
    cr_assert(has(&c, false, "vision.encoder.layers.23.mlp.gate_proj.weight"));
    cr_assert_not(has(&c, true, "vision.pre_layrnorm.bias"));
    cr_assert_not(has(&c, true, "vision.embeddings.position_embedding.weight"));
    c = parse(MISTRAL3(
        "\"text_config\":{},\"vision_config\":{\"rope_parameters\":{\"rope_theta\":500.0}}"));
    cr_assert(c.vision.image == 1024 && c.vision.patch == 16 && c.vision.rope_theta == 500);
}

Test(families, pixtral_is_a_llava_with_its_tower) {
    static const char json[] =
        "{\"model_type\":\"llava\",\"image_token_index\":10,\"vision_feature_layer\":-1,"
        "\"vision_feature_select_strategy\":\"full\",\"text_config\":{\"model_type\":\"mistral\"},"
        "\"vision_config\":{\"model_type\":\"pixtral\"}}";
    fv_model_config c = parse(json);
    cr_assert_str_eq(c.family->name, "pixtral");
    cr_assert(c.layout.family == FV_LAYOUT_MISTRAL3 && c.vision.merge == 1 && c.image_token == 10);
    cr_assert(c.vision.projector_bias && c.vision.patch == 16 && c.vision.feature_layer[0] == 24);
    cr_assert_not(has(&c, true, "projector.merger.weight"));
    cr_assert(has(&c, false, "projector.linear_1.bias"));
    refused("{\"model_type\":\"llava\",\"image_token_id\":3,"
            "\"vision_config\":{\"model_type\":\"pixtral\"}}",
            FV_EUNSUPPORTED, "it must be 'full'");
}

Test(families, qwen3_vl_moe_has_experts) {
    static const char json[] =
        "{\"model_type\":\"qwen3_vl_moe\",\"text_config\":{\"num_hidden_layers\":6,"
        "\"hidden_size\":64,\"head_dim\":128,\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,9]%s}"
        ","
        "\"vision_config\":{\"out_hidden_size\":64}}";
    char text[1024];
    snprintf(text, sizeof text, json, "");
    fv_model_config c = parse(text);
    const fv_text_config *t = &c.text;
    cr_assert_str_eq(t->family, "qwen3_vl_moe_text");
    cr_assert(t->n_expert == 60 && t->n_active == 4 && t->d_expert == 1408 && t->qk_norm);
    cr_assert(t->experts_transposed && c.layout.family == FV_LAYOUT_QWEN3_VL);
    cr_assert(!t->sparse[0] && t->sparse[1] && !t->sparse[2] && !t->sparse[3] && t->sparse[5]);
    cr_assert(fv_text_ffn_width(t, 0) == 5632 && fv_text_ffn_width(t, 1) == 4 * 1408);
    cr_assert(has(&c, false, "text.layers.1.mlp.experts.gate_up_proj"));
    cr_assert_not(has(&c, false, "text.layers.1.mlp.gate_proj.weight"));
    cr_assert(has(&c, false, "text.layers.3.mlp.gate_proj.weight"));
    cr_assert_not(has(&c, false, "text.layers.3.mlp.gate.weight"));
    static const struct {
        const char *keys, *why;
    } wrong[] = {{",\"num_experts\":3", "'num_experts_per_tok' is 4, and 'num_experts' 3"},
                 {",\"num_experts\":2000", "key 'num_experts' is 2000"},
                 {",\"num_local_experts\":0", "key 'num_local_experts' is 0"}};
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, json, wrong[i].keys);
        refused(text, FV_EDATA, wrong[i].why);
    }
}

Test(families, a_mistral3_that_the_engine_has_not_is_refused) {
    refused(MISTRAL3("\"image_token_id\":3"), FV_EDATA, "key 'text_config' is missing");
    refused(MISTRAL3("\"text_config\":{},\"vision_config\":{\"head_dim\":32}"), FV_EUNSUPPORTED,
            "key 'head_dim' is 32 and 'hidden_size' / 'num_attention_heads' 64");
    refused(MISTRAL3("\"text_config\":{},\"vision_config\":{\"num_attention_heads\":512}"),
            FV_EUNSUPPORTED, "a multiple of 4 for RoPE by row and column");
    refused(MISTRAL3("\"text_config\":{},\"vision_config\":{\"rope_theta\":0}"), FV_EDATA,
            "'rope_theta' must be greater than 0");
    refused(MISTRAL3("\"text_config\":{},\"vision_feature_layer\":[-1,-2]"), FV_EUNSUPPORTED,
            "lists 2 layers; Mistral 3 reads one");
    refused(MISTRAL3("\"text_config\":{},\"vision_config\":{\"image_size\":20}"), FV_EDATA,
            "key 'spatial_merge_size' is 2: a token is larger");
    refused(MISTRAL3("\"text_config\":{},\"vision_config\":{\"model_type\":\"clip_vision_model\"}"),
            FV_EUNSUPPORTED, "supported: the tower of the family's own class alone");
    refused("{\"model_type\":\"llava\",\"image_token_id\":3,\"vision_config\":{\"model_type\":"
            "\"internvl_vision\"}}",
            FV_EUNSUPPORTED, "supported: the towers clip_vision_model and siglip_vision_model");
}

#define QWEN_VL(name, keys)                                                                        \
    "{\"model_type\":\"qwen2" name "_vl\",\"hidden_size\":3584,\"num_attention_heads\":28,"        \
    "\"num_key_value_heads\":4," keys "}"

Test(families, qwen_vl_has_its_defaults_and_its_text_models_keys_beside_vision_config) {
    fv_model_config c = parse(QWEN_VL("", "\"vision_config\":{\"embed_dim\":640,\"depth\":5}"));
    const fv_vision_config *v = &c.vision;
    cr_assert(c.image_token == 151655 && c.layout.family == FV_LAYOUT_QWEN_VL);
    cr_assert_str_eq(c.text.family, "qwen2_vl_text");
    cr_assert(c.text.d_model == 3584 && c.text.n_layer == 80 && v->d_text == 3584);
    cr_assert(v->d_model == 640 && v->d_ffn == 2560 && v->n_layer == 5 && v->patch == 14);
    cr_assert(v->merge == 2 && v->two_frames && v->any_size && !v->window && !v->rms_norm);
    cr_assert(v->rope == FV_TOWER_ROPE_HALVES && v->act == FV_ACT_QUICK_GELU);
    cr_assert_eq(fv_vision_tokens_of(v, 280, 56), 20);
    cr_assert(has(&c, true, "vision.encoder.layers.4.self_attn.qkv.bias"));
    cr_assert_not(has(&c, true, "vision.encoder.layers.4.self_attn.q_proj.weight"));
    c = parse(QWEN_VL("_5", "\"text_config\":{\"hidden_size\":96,\"num_attention_heads\":8,"
                            "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,2,2]}},"
                            "\"vision_config\":{\"hidden_size\":1280,\"out_hidden_size\":96}"));
    cr_assert(c.text.d_model == 96 && v->d_model == 1280 && v->d_ffn == 3420 && v->n_layer == 32);
    cr_assert(v->gated && v->rms_norm && v->projector_rms && v->window == 4);
    cr_assert(v->whole[7] && v->whole[31] && !v->whole[0] && !v->whole[30]);
    cr_assert(has(&c, false, "vision.encoder.layers.31.mlp.gate_proj.bias"));
    cr_assert_not(has(&c, false, "projector.norm.bias"));
    c = parse(QWEN_VL("_5", "\"vision_config\":{\"fullatt_block_indexes\":[2,99,-1]}"));
    cr_assert(v->whole[2] && !v->whole[7] && !v->whole[99]);
}

#define QWEN3_VL(keys)                                                                             \
    "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"num_hidden_layers\":4},\"vision_config\":{"   \
    "\"out_hidden_size\":4096," keys "}}"

Test(families, qwen3_vl_has_its_defaults_and_connectors_of_deepstack) {
    fv_model_config c = parse(QWEN3_VL("\"depth\":27"));
    const fv_vision_config *v = &c.vision;
    cr_assert_str_eq(c.text.family, "qwen3_vl_text");
    cr_assert(v->d_model == 1152 && v->d_ffn == 4304 && v->patch == 16 && v->position_side == 48);
    cr_assert(v->n_deepstack == 3 && v->deepstack[0] == 9 && v->deepstack[2] == 25);
    cr_assert_eq(fv_vision_embed_width(v), 4 * 4096);
    cr_assert(v->patch_bias && !v->rms_norm && !v->gated && !v->window && !c.pooling_head);
    cr_assert(has(&c, false, "deepstack.2.linear_2.bias"));
    cr_assert(has(&c, false, "vision.embeddings.position_embedding.weight"));
    cr_assert_not(has(&c, true, "deepstack.3.norm.weight"));
    refused(QWEN3_VL("\"num_position_embeddings\":8"), FV_EUNSUPPORTED, "is 8, which is no square");
    refused(QWEN3_VL("\"deepstack_visual_indexes\":[0,1,2,3]"), FV_EUNSUPPORTED,
            "lists 4 layers; at most 8 are possible, and fewer than the text model has (4)");
    refused(QWEN3_VL("\"deepstack_visual_indexes\":[3,1]"), FV_EUNSUPPORTED, "ascending");
    refused(QWEN3_VL("\"deepstack_visual_indexes\":[99]"), FV_EUNSUPPORTED, "layers of the tower");
    refused(QWEN3_VL("\"deepstack_visual_indexes\":7"), FV_EUNSUPPORTED, "must be a list");
}

Test(families, a_qwen_vl_that_the_engine_has_not_is_refused) {
    refused(QWEN_VL("", "\"vision_config\":{\"hidden_size\":64}"), FV_EDATA,
            "'hidden_size' is 64, but the text model's 'hidden_size' is 3584");
    refused(QWEN_VL("", "\"vision_config\":{\"temporal_patch_size\":4}"), FV_EUNSUPPORTED,
            "key 'temporal_patch_size' is 4; it must be 2 frames");
    refused(QWEN_VL("", "\"vision_config\":{\"in_channels\":1}"), FV_EUNSUPPORTED,
            "key 'in_channels' is 1; it must be 3");
    refused(QWEN_VL("", "\"vision_config\":{\"embed_dim\":36,\"num_heads\":6}"), FV_EUNSUPPORTED,
            "a head has 6 dimensions");
    refused(QWEN_VL("", "\"vision_config\":{\"embed_dim\":36,\"num_heads\":5}"), FV_EDATA,
            "key 'embed_dim' (36) is not a multiple of 'num_heads' (5)");
    refused(QWEN_VL("", "\"vision_config\":{\"embed_dim\":131072,\"mlp_ratio\":64}"), FV_EDATA,
            "'embed_dim' * 'mlp_ratio' are more than 1048576");
    refused(QWEN_VL("_5", "\"vision_config\":{\"window_size\":27}"), FV_EDATA,
            "key 'window_size' is 27, less than a token of 28 pixels");
    refused(QWEN_VL("_5", "\"vision_config\":{\"fullatt_block_indexes\":7}"), FV_EDATA,
            "key 'fullatt_block_indexes' must be a list");
    refused(QWEN_VL("_5", "\"vision_config\":{\"fullatt_block_indexes\":[1.5]}"), FV_EDATA,
            "must hold integers");
    refused(QWEN_VL("_5", "\"vision_config\":{\"rope_parameters\":{\"rope_theta\":0}}"), FV_EDATA,
            "'rope_theta' must be greater than 0");
}

Test(families, a_vision_config_takes_the_defaults_of_its_own_class) {
    fv_model_config c =
        parse("{\"model_type\":\"llava_onevision\",\"image_token_id\":3,\"vision_config\":{}}");
    cr_assert(c.vision.d_model == 768 && c.vision.patch == 16 && c.vision.n_layer == 12);
    cr_assert(has(&c, true, "vision.head.probe"), "vision_use_head is true by default");
    cr_assert_not(has(&c, false, "vision.head.probe"));
    c = parse("{\"model_type\":\"llava\",\"image_token_id\":3,\"vision_feature_select_strategy\":"
              "\"full\",\"vision_config\":{\"model_type\":\"siglip_vision_model\","
              "\"vision_use_head\":false}}");
    cr_assert(c.vision.patch_bias && !c.vision.keep_cls);
    cr_assert_eq(fv_vision_tokens(&c.vision), 14 * 14);
    cr_assert_not(has(&c, true, "vision.head.probe"));
    c = parse("{\"model_type\":\"idefics3\",\"image_token_id\":3,\"vision_config\":{"
              "\"model_type\":\"idefics3\",\"image_size\":512,\"patch_size\":16},"
              "\"scale_factor\":4,\"text_config\":{\"model_type\":\"qwen2\"}}");
    cr_assert_eq(fv_vision_tokens(&c.vision), 64, "SmolVLM-256M's tile");
    cr_assert_eq(fv_vision_feature_width(&c.vision), 16 * 1152);
    cr_assert_eq(c.text.rms_eps, 1e-6F, "1e-5 is of an absent text_config");
}

Test(families, invalid_tiles_are_named) {
#define NEXT(keys) "{\"model_type\":\"llava_next\",\"image_token_id\":3," keys "}"
#define ONE(keys) "{\"model_type\":\"llava_onevision\",\"image_token_id\":3," keys "}"
    refused(NEXT("\"image_grid_pinpoints\":[]"), FV_EDATA, "must be a list of 1..64 sizes");
    refused(NEXT("\"image_grid_pinpoints\":\"(1x1),...,(6x6)\""), FV_EDATA, "must be a list");
    refused(NEXT("\"image_grid_pinpoints\":[[336]]"), FV_EDATA, "pairs of height and width");
    refused(NEXT("\"image_grid_pinpoints\":[[336,0]]"), FV_EDATA, "pairs of height and width");
    refused(NEXT("\"image_grid_pinpoints\":[[336,9999999]]"), FV_EDATA, "pairs of height");
    refused(NEXT("\"vision_feature_select_strategy\":\"full\""), FV_EUNSUPPORTED,
            "tiles have no place for it: it must be 'default'");
    refused(ONE("\"vision_feature_select_strategy\":\"default\""), FV_EUNSUPPORTED,
            "the vision tower has none: it must be 'full'");
    refused(ONE("\"vision_aspect_ratio\":\"anyres\""), FV_EUNSUPPORTED,
            "key 'vision_aspect_ratio' is 'anyres'; anyres_max_1 to anyres_max_256 are possible");
    refused(ONE("\"vision_aspect_ratio\":\"anyres_max_9x\""), FV_EUNSUPPORTED, "anyres_max_9x");
    refused(ONE("\"vision_aspect_ratio\":\"anyres_max_0\""), FV_EUNSUPPORTED, "anyres_max_0");
    refused("{\"model_type\":\"smolvlm\",\"image_token_id\":3,\"scale_factor\":3}", FV_EDATA,
            "key 'scale_factor' (3) does not divide vision_config's image_size / patch_size (7)");
}

/* ---- text models ---------------------------------------------------------------------------- */

Test(families, qwen3_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"qwen3\"}");
    const fv_text_config *t = &c.text;
    cr_assert(t->vocab == 151936 && t->d_model == 4096 && t->d_ffn == 22016 && t->n_kv == 32);
    cr_assert(t->d_head == 128 && t->qk_norm && !t->bias_qkv && !t->bias_o);
    cr_assert(t->max_position == 32768 && t->bos == -1 && c.n_eos == 0);
    cr_assert(has(&c, false, "text.layers.0.self_attn.q_norm.weight"));
    c = parse("{\"model_type\":\"qwen3\",\"hidden_size\":96,\"attention_bias\":true}");
    cr_assert(c.text.d_head == 128 && c.text.bias_qkv && c.text.bias_o);
    c = parse("{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"max_window_layers\":4}");
    cr_assert(c.text.window == 4096 && !c.text.slides[3] && c.text.slides[4]);
}

#define GEMMA(keys) "{\"model_type\":\"gemma3_text\"" keys "}"

Test(families, gemma3_text_has_its_defaults) {
    fv_model_config c = parse(GEMMA(""));
    const fv_text_config *t = &c.text;
    cr_assert(t->vocab == 262208 && t->d_model == 2304 && t->d_ffn == 9216 && t->n_layer == 26);
    cr_assert(t->n_head == 8 && t->n_kv == 4 && t->d_head == 256 && t->max_position == 131072);
    cr_assert(t->bos == 2 && c.n_eos == 1 && c.eos[0] == 1 && t->tied_head && t->qk_norm);
    cr_assert(t->act == FV_ACT_GELU_TANH && t->norm_plus_one && t->post_norms && t->two_ropes);
    cr_assert(t->embed_scale == 48.0F && t->query_scalar == 256.0F && t->rms_eps == 1e-6F);
    cr_assert(t->rope.theta == 1e6 && t->rope_slides.theta == 1e4 && t->window == 4096);
    for (int32_t l = 0; l < 26; l++) cr_assert_eq(t->slides[l], l % 6 != 5);
    cr_assert(has(&c, false, "text.layers.0.pre_feedforward_layernorm.weight"));
    c = parse(GEMMA(",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},"
                    "\"rope_local_base_freq\":500,\"sliding_window_pattern\":2"));
    cr_assert(c.text.rope.type == FV_ROPE_LINEAR && c.text.rope.factor == 8);
    cr_assert(c.text.rope_slides.type == FV_ROPE_DEFAULT && c.text.rope_slides.theta == 500);
    cr_assert(c.text.slides[0] && !c.text.slides[1]);
    c = parse(GEMMA(",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":9.0},"
                    "\"sliding_attention\":{\"rope_theta\":7.0}}"));
    cr_assert(c.text.rope.theta == 9 && c.text.rope_slides.theta == 7);
    refused(GEMMA(",\"final_logit_softcapping\":30.0"), FV_EUNSUPPORTED, "final_logit_softcapping");
    refused(GEMMA(",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2}"), FV_EUNSUPPORTED,
            "which gemma3_text is not");
    refused(GEMMA(",\"query_pre_attn_scalar\":0"), FV_EDATA, "query_pre_attn_scalar");
}

Test(families, video_llava_is_llava_with_a_second_tower) {
    fv_model_config c = parse("{\"model_type\":\"video_llava\",\"image_token_index\":7}");
    cr_assert(c.layout.family == FV_LAYOUT_LLAVA && c.layout.tile == 224 && c.layout.patch == 14);
    cr_assert(c.image_token == 7 && c.vision.feature_layer[0] == 23 && !c.vision.keep_cls);
    cr_assert(c.vision.projector_bias && c.vision.class_token && !c.text.tied_head);
    cr_assert(c.video_tower && c.layout.video_class && c.video_token == 32001);
    cr_assert(fv_vision_config_of(&c, true).keep_cls && !fv_vision_config_of(&c, false).keep_cls);
    cr_assert(has(&c, true, "video.encoder.layers.23.mlp.fc2.weight"));
    cr_assert(has(&c, false, "video.encoder.layers.22.mlp.fc2.weight"));
    cr_assert_not(has(&c, false, "video.encoder.layers.23.mlp.fc2.weight"), "it is not run");
    refused("{\"model_type\":\"video_llava\",\"image_token_index\":7,\"video_token_index\":7}",
            FV_EDATA, "are both 7");
    static const char *const names[][2] = {
        {"image_tower.vision_model.post_layernorm.bias", "vision.post_layernorm.bias"},
        {"video_tower.vision_model.post_layernorm.bias", "video.post_layernorm.bias"}};
    for (int i = 0; i < 2; i++) {
        char name[FV_TENSOR_NAME_MAX];
        cr_assert(fv_name_mapping_canonical(names[i][0], name));
        cr_assert_str_eq(name, names[i][1]);
        fv_name_mapping_key(FV_NAME_MAPPING_HUB, c.family->names, names[i][1], name);
        cr_assert_str_eq(name, names[i][0]);
    }
}

#define MOBILEVLM(keys)                                                                            \
    "{\"model_type\":\"mobilevlm\",\"mm_vision_tower\":\"x/clip\",\"image_aspect_ratio\":\"pad\"," \
    "\"mm_projector_type\":\"ldpnetv2\",\"hidden_size\":2048" keys "}"

Test(families, mobilevlm_has_its_defaults) {
    fv_model_config c = parse(MOBILEVLM(""));
    const fv_vision_config *v = &c.vision;
    cr_assert(c.layout.family == FV_LAYOUT_LLAVA && c.layout.tile == 336 && c.layout.pad_square);
    cr_assert(v->merge == 2 && c.layout.merge == 2 && fv_vision_tokens(v) == 144);
    cr_assert(v->connector == FV_CONNECTOR_LDP && v->projector_act == FV_ACT_GELU);
    cr_assert(v->n_feature_layer == 1 && v->feature_layer[0] == 23 && !v->keep_cls);
    cr_assert(c.image_token == 32000 && c.text.vocab == 32000, "no token of the vocabulary");
    cr_assert(c.text.d_model == 2048 && c.text.d_ffn == 11008 && !c.text.tied_head);
    cr_assert(has(&c, false, "projector.peg.weight") && has(&c, false, "projector.linear_2.bias"));
    cr_assert_eq(parse(MOBILEVLM(",\"image_token_index\":7")).image_token, 7);
    c = parse(MOBILEVLM(",\"vision_config\":{\"image_size\":72,\"patch_size\":2},"
                        "\"mm_vision_select_layer\":3"));
    cr_assert(c.vision.merge == 3 && c.vision.feature_layer[0] == 3);
}

Test(families, a_mobilevlm_that_the_engine_has_not_is_refused) {
    refused("{\"model_type\":\"mobilevlm\",\"mm_projector_type\":\"ldpnet\"}", FV_EUNSUPPORTED,
            "key 'mm_projector_type' is 'ldpnet'; MobileVLM V2 has 'ldpnetv2'");
    refused(MOBILEVLM(",\"mm_vision_select_feature\":\"cls_patch\""), FV_EUNSUPPORTED,
            "key 'mm_vision_select_feature' is 'cls_patch'");
    refused(MOBILEVLM(",\"mm_use_im_start_end\":true"), FV_EUNSUPPORTED, "'mm_use_im_start_end'");
    refused(MOBILEVLM(",\"image_token_index\":32001"), FV_EDATA, "'vocab_size' is 32000");
    refused(MOBILEVLM(",\"mm_hidden_size\":9"), FV_EDATA, "but the vision tower has 1024");
    refused(MOBILEVLM(",\"mm_vision_select_layer\":25"), FV_EDATA, "'mm_vision_select_layer'");
    refused(MOBILEVLM(",\"vision_tower_type\":\"dino\""), FV_EUNSUPPORTED, "'vision_tower_type'");
    refused("{\"model_type\":\"mobilevlm\",\"mm_projector_type\":\"ldpnetv2\","
            "\"image_aspect_ratio\":\"anyres\"}",
            FV_EUNSUPPORTED, "'pad' and 'square' are possible");
    refused(MOBILEVLM(",\"vision_config\":{\"image_size\":224,\"patch_size\":14}"), FV_EUNSUPPORTED,
            "give 16 patches a side; a multiple of 12 from 24 on is possible");
}

#define GEMMA3(keys)                                                                               \
    "{\"model_type\":\"gemma3\",\"vision_config\":{\"image_size\":56,\"patch_size\":14,"           \
    "\"vision_use_head\":false}" keys "}"

Test(families, gemma3_has_its_defaults) {
    fv_model_config c = parse(GEMMA3(",\"mm_tokens_per_image\":4"));
    const fv_vision_config *v = &c.vision;
    cr_assert(c.layout.family == FV_LAYOUT_GEMMA3 && c.layout.tile == 56 && c.layout.merge == 2);
    cr_assert(v->post_norm && v->mean_pool && v->connector == FV_CONNECTOR_LINEAR);
    cr_assert(v->projector_rms && v->projector_eps == 1e-6F && v->d_text == 2304);
    cr_assert(v->n_feature_layer == 1 && v->feature_layer[0] == v->n_layer);
    cr_assert(c.text.image_whole && c.image_token == 262144 && c.text.tied_head);
    cr_assert(has(&c, true, "vision.post_layernorm.weight") &&
              has(&c, true, "projector.proj.weight"));
    cr_assert_not(has(&c, true, "vision.head.probe"));
    refused(GEMMA3(""), FV_EUNSUPPORTED, "key 'mm_tokens_per_image' is 256; it must be the square");
    refused(GEMMA3(",\"mm_tokens_per_image\":3"), FV_EUNSUPPORTED, "a divisor of");
}

Test(families, gemma3_has_no_pan_and_scan_and_the_towers_size) {
    static const char *const files[][2] = {
        {"{\"size\":{\"height\":56,\"width\":56},\"do_pan_and_scan\":true}", "pan and scan"},
        {"{\"size\":{\"height\":64,\"width\":56}}", "the vision tower's"},
        {"{}", "the vision tower's"}};
    const fv_layout_config gemma = {
        .family = FV_LAYOUT_GEMMA3, .tile = 56, .patch = 14, .merge = 2};
    fv_layout_config l = gemma;
    fv_image_config image;
    const char *file = "{\"size\":{\"height\":56,\"width\":56},\"do_pan_and_scan\":null}";
    cr_assert_eq(fv_image_config_parse(file, strlen(file), "p.json", &l, &image), FV_OK);
    cr_assert(image.resample == 2 && image.mean[0] == 0.5F);
    for (int i = 0; i < 3; i++) {
        l = gemma;
        cr_assert_eq(fv_image_config_parse(files[i][0], strlen(files[i][0]), "p.json", &l, &image),
                     FV_EUNSUPPORTED);
        cr_assert(strstr(fv_last_error(), files[i][1]), "%s", fv_last_error());
    }
}

#define YARN(keys)                                                                                 \
    "{\"model_type\":\"qwen2\",\"max_position_embeddings\":131072,\"rope_scaling\":{"              \
    "\"rope_type\":\"yarn\"" keys "}}"

Test(families, yarn_has_the_attention_factor_of_its_keys) {
    fv_rope_config r =
        parse(YARN(",\"factor\":4,\"original_max_position_embeddings\":32768")).text.rope;
    cr_assert_eq(r.type, FV_ROPE_YARN);
    cr_assert(r.factor == 4 && r.original_max_position == 32768 && r.truncate);
    cr_assert(r.beta_fast == 32 && r.beta_slow == 1);
    cr_assert_float_eq(r.attention_factor, 0.1 * log(4) + 1, 1e-12);
    r = parse(YARN(",\"original_max_position_embeddings\":65536")).text.rope;
    cr_assert_eq(r.factor, 2, "the ratio of the lengths");
    r = parse(YARN(",\"factor\":8,\"mscale\":1,\"mscale_all_dim\":0.5")).text.rope;
    cr_assert_float_eq(r.attention_factor, (0.1 * log(8) + 1) / (0.05 * log(8) + 1), 1e-12);
    cr_assert_eq(r.original_max_position, 131072);
    r = parse(YARN(",\"factor\":8,\"attention_factor\":1.5,\"beta_fast\":16,\"truncate\":false"))
            .text.rope;
    cr_assert(r.attention_factor == 1.5 && r.beta_fast == 16 && !r.truncate);
    refused(YARN(",\"factor\":-1"), FV_EDATA, "key 'factor' must be greater than 0");
    refused(YARN(",\"factor\":2,\"attention_factor\":0"), FV_EDATA, "key 'attention_factor'");
    refused(YARN(",\"factor\":2,\"beta_slow\":-3"), FV_EDATA, "key 'beta_slow'");
    refused(YARN(",\"factor\":\"2\""), FV_EDATA, "key 'factor'");
}
