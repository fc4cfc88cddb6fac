/* model/config: defaults for keys missing from config.json, both spellings of every key that has
 * two, and each refusal with its message. */
#include <stdio.h>

#include "tests/unit/model/config_rig.h"

/* ---- defaults, as printed by transformers 5.23's config classes ---- */

Test(config, llama_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"llama\"}");
    const fv_text_config *t = &c.text;
    cr_assert_str_eq(c.family->name, "text");
    cr_assert_str_eq(t->family, "llama");
    cr_assert_not(c.has_vision);
    cr_assert_eq(t->vocab, 32000);
    cr_assert_eq(t->d_model, 4096);
    cr_assert_eq(t->d_ffn, 11008);
    cr_assert_eq(t->n_layer, 32);
    cr_assert_eq(t->n_head, 32);
    cr_assert_eq(t->n_kv, 32);
    cr_assert_eq(t->d_head, 128);
    cr_assert_eq(t->max_position, 2048);
    cr_assert_eq(t->rms_eps, 1e-6F);
    cr_assert_eq(t->act, FV_ACT_SILU);
    cr_assert_eq(t->rope.type, FV_ROPE_DEFAULT);
    cr_assert_eq(t->rope.theta, 10000.0);
    cr_assert_not(t->bias_qkv || t->bias_o || t->bias_mlp || t->tied_head);
    cr_assert_eq(t->bos, 1);
    cr_assert(c.n_eos == 1 && c.eos[0] == 2);
    cr_assert_eq(c.n_vocab_used, 32000);
    cr_assert_eq(c.image_token, -1);
    cr_assert_eq(fv_vision_tokens(&c.vision), 0);
}

Test(config, mistral_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"mistral\"}");
    cr_assert_eq(c.text.d_ffn, 14336);
    cr_assert_eq(c.text.n_kv, 8);
    cr_assert(c.text.max_position == 131072 && c.text.window == 4096 && c.text.slides[31]);
    cr_assert_eq(c.text.rms_eps, 1e-6F);
    cr_assert_not(c.text.bias_qkv);
    cr_assert_eq(c.eos[0], 2);
}

Test(config, qwen2_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"qwen2\"}");
    cr_assert_eq(c.text.vocab, 151936);
    cr_assert_eq(c.text.d_ffn, 22016);
    cr_assert_eq(c.text.n_kv, 32);
    cr_assert(c.text.max_position == 32768 && c.text.window == 0);
    cr_assert(c.text.bias_qkv);
    cr_assert_not(c.text.bias_o || c.text.bias_mlp);
    cr_assert_eq(c.text.bos, -1);
    cr_assert_eq(c.n_eos, 0);
}

Test(config, llava_has_its_defaults) {
    fv_model_config c = parse("{\"model_type\":\"llava\",\"image_token_index\":31999}");
    cr_assert_str_eq(c.family->name, "llava");
    cr_assert(c.has_vision);
    cr_assert_eq(c.text.d_model, 4096);
    cr_assert_eq(c.vision.d_model, 1024);
    cr_assert_eq(c.vision.d_ffn, 4096);
    cr_assert_eq(c.vision.n_layer, 24);
    cr_assert_eq(c.vision.n_head, 16);
    cr_assert_eq(c.vision.d_head, 64);
    cr_assert_eq(c.vision.image, 336);
    cr_assert_eq(c.vision.patch, 14);
    cr_assert_eq(c.vision.ln_eps, 1e-5F);
    cr_assert_eq(c.vision.act, FV_ACT_QUICK_GELU);
    cr_assert_eq(c.vision.n_feature_layer, 1);
    cr_assert_eq(c.vision.feature_layer[0], 23, "-2 of 25 hidden states");
    cr_assert_not(c.vision.keep_cls);
    cr_assert_eq(c.vision.projector_act, FV_ACT_GELU);
    cr_assert(c.vision.projector_bias);
    cr_assert_eq(fv_vision_tokens(&c.vision), 576);
}

Test(config, a_vision_config_has_clips_defaults) {
    fv_model_config c = parse(
        "{\"model_type\":\"llava\",\"image_token_index\":5,\"vision_config\":{\"patch_size\":16}}");
    cr_assert_eq(c.vision.d_model, 768);
    cr_assert_eq(c.vision.d_ffn, 3072);
    cr_assert_eq(c.vision.n_layer, 12);
    cr_assert_eq(c.vision.n_head, 12);
    cr_assert_eq(c.vision.image, 224);
    cr_assert_eq(c.vision.patch, 16);
    cr_assert_eq(fv_vision_tokens(&c.vision), 196);
}

Test(config, null_means_absent) {
    fv_model_config c = parse(LLAVA("\"text_config_\":null,\"vision_feature_layer\":null,",
                                    ",\"vocab_size\":null,\"rope_scaling\":null,"
                                    "\"rope_parameters\":null,\"hidden_act\":null",
                                    ",\"hidden_act\":null"));
    cr_assert_eq(c.text.vocab, 32000);
    cr_assert_eq(c.vision.feature_layer[0], 11);
}

/* ---- effects of keys --------------------------------------------------------------------- */

Test(config, a_model_type_of_its_own_with_a_known_class_is_that_class) {
    fv_model_config c = parse("{\"model_type\":\"acme_7b\",\"architectures\":[\"AcmeModel\","
                              "\"MistralForCausalLM\"],\"hidden_size\":1024}");
    cr_assert_str_eq(c.text.family, "mistral");
    c = parse("{\"model_type\":\"llava\",\"architectures\":[\"AcmeVisionModel\"],"
              "\"image_token_index\":5}");
    cr_assert_str_eq(c.family->name, "llava");
    c = parse("{\"model_type\":\"acme_vl\",\"architectures\":[\"LlavaForConditionalGeneration\"],"
              "\"image_token_index\":5,\"vision_config\":{\"model_type\":\"pixtral\"},"
              "\"vision_feature_layer\":-1,\"vision_feature_select_strategy\":\"full\"}");
    cr_assert_str_eq(c.family->name, "pixtral");
}

Test(config, the_architecture_names_the_family_when_model_type_does_not) {
    cr_assert_str_eq(parse("{\"architectures\":[\"Qwen2ForCausalLM\"]}").text.family, "qwen2");
    cr_assert(parse("{\"architectures\":[\"LlavaForConditionalGeneration\"],"
                    "\"image_token_index\":1}")
                  .has_vision);
}

Test(config, the_image_token_has_two_keys) {
    cr_assert_eq(parse("{\"model_type\":\"llava\",\"image_token_id\":9}").image_token, 9);
    cr_assert_eq(parse("{\"model_type\":\"llava\",\"image_token_index\":9}").image_token, 9);
    cr_assert_eq(parse("{\"model_type\":\"llava\",\"image_token_index\":9,\"image_token_id\":9}")
                     .image_token,
                 9);
}

Test(config, feature_layers_count_from_either_end_and_may_be_a_list) {
    fv_model_config c = parse(TOP("\"vision_feature_layer\":0"));
    cr_assert_eq(c.vision.feature_layer[0], 0);
    c = parse(TOP("\"vision_feature_layer\":-13"));
    cr_assert_eq(c.vision.feature_layer[0], 0);
    c = parse(TOP("\"vision_feature_layer\":[-1, 12, 3]"));
    cr_assert_eq(c.vision.n_feature_layer, 3);
    cr_assert_eq(c.vision.feature_layer[0], 12);
    cr_assert_eq(c.vision.feature_layer[1], 12);
    cr_assert_eq(c.vision.feature_layer[2], 3);
}

Test(config, strategy_full_keeps_the_cls_row) {
    fv_model_config c = parse(TOP("\"vision_feature_select_strategy\":\"full\""));
    cr_assert(c.vision.keep_cls);
    cr_assert_eq(fv_vision_tokens(&c.vision), 50, "7 x 7 patches and CLS");
}

Test(config, the_head_is_tied_at_either_level) {
    cr_assert_not(parse(TEXT("\"tie_word_embeddings\":false")).text.tied_head);
    cr_assert(parse(TEXT("\"tie_word_embeddings\":true")).text.tied_head);
    cr_assert(parse(TOP("\"tie_word_embeddings\":true")).text.tied_head);
    cr_assert(parse(LLAVA("\"tie_word_embeddings\":false,", ",\"tie_word_embeddings\":true", ""))
                  .text.tied_head);
}

Test(config, biases_are_llamas_choice_only) {
    fv_model_config c = parse(TEXT("\"attention_bias\":true,\"mlp_bias\":true"));
    cr_assert(c.text.bias_qkv && c.text.bias_o && c.text.bias_mlp);
    c = parse(TEXT("\"model_type\":\"mistral\",\"num_key_value_heads\":2,\"attention_bias\":true,"
                   "\"mlp_bias\":true"));
    cr_assert_not(c.text.bias_qkv || c.text.bias_o || c.text.bias_mlp);
    cr_assert_not(parse(TOP("\"multimodal_projector_bias\":false")).vision.projector_bias);
}

Test(config, kv_heads_default_to_heads) {
    cr_assert_eq(parse(TEXT("\"head_dim\":16")).text.n_kv, 4);
    cr_assert_eq(parse(TEXT("\"num_key_value_heads\":2")).text.n_kv, 2);
    cr_assert_eq(parse(TEXT("\"model_type\":\"mistral\",\"num_key_value_heads\":null")).text.n_kv,
                 4);
}

Test(config, head_dim_may_differ_from_width_over_heads) {
    fv_model_config c = parse(TEXT("\"head_dim\":40"));
    cr_assert_eq(c.text.d_head, 40);
    c = parse(LLAVA("", ",\"hidden_size_\":0,\"head_dim\":null", ""));
    cr_assert_eq(c.text.d_head, 16);
    cr_assert_eq(parse("{\"model_type\":\"llama\",\"hidden_size\":100,\"num_attention_heads\":3,"
                       "\"head_dim\":32}")
                     .text.d_head,
                 32);
}

/* The window, and how many layers slide: "99 of 32". */
static const char *slides(const char *text) {
    static char out[32];
    const fv_text_config t = parse(text).text;
    int n = 0;
    for (int32_t l = 0; l < t.n_layer; l++) n += t.slides[l];
    snprintf(out, sizeof out, "%d in %d", t.window, n);
    return out;
}

Test(config, layers_slide_where_that_is_on) {
#define MISTRAL "\"model_type\":\"mistral\",\"num_key_value_heads\":4,"
#define QWEN2 "\"model_type\":\"qwen2\",\"num_key_value_heads\":4,\"sliding_window\":99,"
#define USED QWEN2 "\"use_sliding_window\":true,\"num_hidden_layers\":3,"
    cr_assert_str_eq(slides(TEXT(MISTRAL "\"sliding_window\":null")), "0 in 0");
    cr_assert_str_eq(slides(TEXT(MISTRAL "\"sliding_window\":100")), "100 in 32");
    cr_assert_str_eq(slides(TEXT(MISTRAL "\"max_position_embeddings\":50")), "4096 in 32");
    cr_assert_eq(parse(TEXT(MISTRAL "\"sliding_window\":100")).text.max_position, 131072);
    cr_assert_str_eq(slides(TEXT(QWEN2 "\"use_sliding_window\":false")), "0 in 0");
    cr_assert_str_eq(slides(TEXT(QWEN2 "\"use_sliding_window\":true")), "99 in 4");
    cr_assert_str_eq(slides(TEXT(USED "\"max_window_layers\":1")), "99 in 2");
    cr_assert_str_eq(slides(TEXT(USED "\"max_window_layers\":3")), "0 in 0");
    cr_assert_str_eq(slides(TEXT(USED "\"max_window_layers\":3,\"layer_types\":[\"full_attention\","
                                      "\"sliding_attention\",\"full_attention\"]")),
                     "99 in 1");
    cr_assert_str_eq(slides(TEXT("\"sliding_window\":7")), "0 in 0", "llama has none");
    const fv_text_config mistral = parse(TEXT(MISTRAL "\"sliding_window\":100")).text;
    cr_assert_eq(fv_text_context(&mistral, false), 131072);
    cr_assert_eq(fv_text_context(&mistral, true), 100, "compressed tokens do not slide out");
}

Test(config, activations_have_several_names) {
    static const struct {
        const char *name;
        fv_activation act;
    } names[] = {{"silu", FV_ACT_SILU},          {"swish", FV_ACT_SILU},
                 {"gelu", FV_ACT_GELU},          {"gelu_pytorch_tanh", FV_ACT_GELU_TANH},
                 {"gelu_new", FV_ACT_GELU_TANH}, {"quick_gelu", FV_ACT_QUICK_GELU},
                 {"relu", FV_ACT_RELU}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char json[512];
        snprintf(
            json, sizeof json,
            "{\"model_type\":\"llava\",\"image_token_id\":1,\"projector_hidden_act\":\"%s\","
            "\"text_config\":{\"hidden_act\":\"%s\"},\"vision_config\":{\"hidden_act\":\"%s\"}}",
            names[i].name, names[i].name, names[i].name);
        fv_model_config c = parse(json);
        cr_assert_eq(c.text.act, names[i].act);
        cr_assert_eq(c.vision.act, names[i].act);
        cr_assert_eq(c.vision.projector_act, names[i].act);
    }
}

Test(config, eos_ids_are_united) {
    fv_model_config c = parse(LLAVA("\"eos_token_id\":[7,8],", ",\"eos_token_id\":8", ""));
    cr_assert_eq(c.n_eos, 2);
    cr_assert(c.eos[0] == 7 && c.eos[1] == 8);
    cr_assert_not(c.eos_is_default);
    c = parse("{\"model_type\":\"llama\"}");
    cr_assert(c.eos_is_default);
}

Test(config, bos_may_be_absent) {
    cr_assert_eq(parse(TEXT("\"bos_token_id\":null")).text.bos, -1);
    cr_assert_eq(parse(TEXT("\"bos_token_id\":3")).text.bos, 3);
    cr_assert_eq(parse(TEXT("\"head_dim\":16")).text.bos, 1);
}

/* ---- refusals ---- */

Test(config, broken_json_is_refused) {
    static const wrong list[] = {
        {"", FV_EDATA, "not valid JSON"},
        {"{\"model_type\":", FV_EDATA, "not valid JSON"},
        {"[]", FV_EDATA, "a JSON object is expected"},
        {"{\"model_type\":\"llama\",\"model_type\":\"llava\"}", FV_EDATA, "duplicate"},
    };
    REFUSE_ALL(list);
}

Test(config, unsupported_families_are_named) {
    static const wrong list[] = {
        {"{}", FV_EDATA, "'model_type' and 'architectures' are missing"},
        {"{\"model_type\":7}", FV_EDATA, "key 'model_type' must be a string"},
        {"{\"model_type\":\"gemma\"}", FV_EUNSUPPORTED,
         "unsupported model_type 'gemma'; supported: llava, llava_next, "},
        {"{\"architectures\":[\"BertModel\"]}", FV_EUNSUPPORTED, "model_type 'BertModel'"},
        {TEXT("\"model_type\":\"gemma\""), FV_EUNSUPPORTED,
         "text_config: unsupported model_type 'gemma'; supported: the text models llama, mistral, "
         "ministral3, granite, phi3, qwen2, qwen3, qwen2_vl_text, qwen2_5_vl_text, qwen3_vl_text, "
         "qwen3_vl_moe_text, qwen3_5_text, qwen3_5_moe_text, paddleocr_vl_text, glm4v_text, "
         "glm4v_moe_text, glm_ocr_text, "
         "gemma3_text, gemma4_text and gemma4_unified_text"},
        {VISION("\"model_type\":\"siglip2_vision_model\""), FV_EUNSUPPORTED,
         "vision_config: unsupported model_type 'siglip2_vision_model'; supported: the towers "},
        {"{\"model_type\":\"llava\",\"mm_vision_tower\":\"x\"}", FV_EUNSUPPORTED,
         "original LLaVA layout"},
        {"{\"model_type\":\"llava\",\"text_config\":[]}", FV_EDATA, "must be objects"},
        {"{\"model_type\":\"llava\",\"vision_config\":3}", FV_EDATA, "must be objects"},
        {TOP("\"quantization_config\":{\"quant_method\":\"hqq\"}"), FV_EUNSUPPORTED, "hqq weights"},
        {TEXT("\"quantization_config\":{}"), FV_EUNSUPPORTED, "quantized weights"},
    };
    REFUSE_ALL(list);
}

Test(config, text_sizes_out_of_range_are_named) {
    static const wrong list[] = {
        {TEXT("\"vocab_size\":0"), FV_EDATA, "key 'vocab_size' is 0"},
        {TEXT("\"vocab_size\":99999999999"), FV_EDATA, "key 'vocab_size' is 99999999999"},
        {TEXT("\"vocab_size\":\"x\""), FV_EDATA, "key 'vocab_size' must be an integer"},
        {TEXT("\"intermediate_size\":-1"), FV_EDATA, "key 'intermediate_size' is -1"},
        {TEXT("\"intermediate_size\":2147483647"), FV_EDATA, "key 'intermediate_size'"},
        {TEXT("\"num_hidden_layers\":0"), FV_EDATA, "key 'num_hidden_layers' is 0"},
        {TEXT("\"num_hidden_layers\":257"), FV_EDATA, "it must be 1..256"},
        {TEXT("\"num_key_value_heads\":0"), FV_EDATA, "key 'num_key_value_heads' is 0"},
        {TEXT("\"num_key_value_heads\":3"), FV_EDATA,
         "not a multiple of 'num_key_value_heads' (3)"},
        {TEXT("\"head_dim\":7"), FV_EDATA, "key 'head_dim' (7) must be even"},
        {TEXT("\"head_dim\":5000"), FV_EDATA, "key 'head_dim' is 5000"},
        {TEXT("\"max_position_embeddings\":0"), FV_EDATA, "key 'max_position_embeddings' is 0"},
        {TEXT("\"rms_norm_eps\":-1"), FV_EDATA, "key 'rms_norm_eps' must be in [0, 1)"},
        {TEXT("\"rms_norm_eps\":1.5"), FV_EDATA, "key 'rms_norm_eps' must be in [0, 1)"},
        {TEXT("\"rms_norm_eps\":\"1e-5\""), FV_EDATA, "key 'rms_norm_eps' must be a number"},
        {TEXT("\"attention_bias\":1"), FV_EDATA, "key 'attention_bias' must be true or false"},
        {TEXT("\"hidden_act\":\"mish\""), FV_EUNSUPPORTED, "unsupported hidden_act 'mish'"},
        {TEXT("\"bos_token_id\":[1]"), FV_EDATA, "key 'bos_token_id' must be an integer"},
        {"{\"model_type\":\"llama\",\"hidden_size\":100,\"num_attention_heads\":3}", FV_EDATA,
         "key 'hidden_size' (100) cannot be split among 'num_attention_heads' (3)"},
        {"{\"model_type\":\"llama\",\"hidden_size\":4096,\"num_attention_heads\":2}", FV_EDATA,
         "key 'hidden_size' (4096) cannot be split"},
        {"{\"model_type\":\"qwen2\",\"num_attention_heads\":14}", FV_EDATA,
         "not a multiple of 'num_key_value_heads' (32)"},
        {TEXT("\"model_type\":\"qwen2\",\"num_key_value_heads\":4,\"use_sliding_window\":true,"
              "\"layer_types\":[\"full_attention\"]"),
         FV_EDATA, "must name the type of each of 32 layers"},
        {TEXT("\"model_type\":\"qwen2\",\"num_key_value_heads\":4,\"use_sliding_window\":true,"
              "\"num_hidden_layers\":1,\"layer_types\":[\"chunked_attention\"]"),
         FV_EUNSUPPORTED, "layer 0 is 'chunked_attention'"},
        {TEXT("\"model_type\":\"mistral\",\"num_key_value_heads\":4,\"sliding_window\":0"),
         FV_EDATA, "key 'sliding_window' is 0"},
    };
    REFUSE_ALL(list);
}

Test(config, granite_has_multipliers) {
    fv_text_config t = parse("{\"model_type\":\"granite\"}").text;
    cr_assert(t.embed_scale == 1 && t.score_scale == 1 && t.residual_scale == 1);
    cr_assert(t.logits_divisor == 1 && t.embed_images && !t.bias_mlp);
    t = parse("{\"model_type\":\"granite\",\"embedding_multiplier\":12,\"logits_scaling\":8.0,"
              "\"attention_multiplier\":0.015625,\"residual_multiplier\":0.22,\"mlp_bias\":true}")
            .text;
    cr_assert(t.embed_scale == 12 && t.score_scale == 0.015625F && t.residual_scale == 0.22F);
    cr_assert(t.logits_divisor == 8 && t.bias_mlp);
    static const wrong list[] = {{"{\"model_type\":\"granite\",\"logits_scaling\":0}", FV_EDATA,
                                  "key 'logits_scaling' must be greater than 0"}};
    REFUSE_ALL(list);
}

Test(config, phi_has_fused_tensors) {
    fv_text_config t = parse("{\"model_type\":\"phi3\",\"sliding_window\":2047}").text;
    cr_assert(t.fused && t.d_model == 3072 && t.d_ffn == 8192 && t.n_kv == 32 && t.d_head == 96);
    cr_assert(t.window == 2047 && t.slides[0] && t.rms_eps == 1e-5F);
    cr_assert(parse("{\"model_type\":\"phi3\"}").text.window == 0);
    static const wrong list[] = {
        {"{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.75}", FV_EUNSUPPORTED,
         "key 'partial_rotary_factor' is 0.75"},
        {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"longrope\"}}", FV_EUNSUPPORTED,
         "unsupported rope_type 'longrope'"}};
    REFUSE_ALL(list);
}

Test(config, invalid_vision_keys_are_named) {
    static const wrong list[] = {
        {VISION("\"num_hidden_layers\":0"), FV_EDATA,
         "vision_config: key 'num_hidden_layers' is 0"},
        {VISION("\"intermediate_size\":0"), FV_EDATA, "key 'intermediate_size' is 0"},
        {VISION("\"image_size\":31"), FV_EDATA,
         "key 'image_size' (31) is less than 'patch_size' (32)"},
        {VISION("\"image_size\":[224,192]"), FV_EUNSUPPORTED, "key 'image_size' is not square"},
        {VISION("\"image_size\":[224]"), FV_EDATA, "key 'image_size' must be an integer or two"},
        {VISION("\"image_size\":[0,0]"), FV_EDATA, "key 'image_size' is 0"},
        {VISION("\"image_size\":99999"), FV_EDATA, "key 'image_size' is 99999"},
        {VISION("\"patch_size\":0"), FV_EDATA, "key 'patch_size' is 0"},
        {VISION("\"num_channels\":4"), FV_EUNSUPPORTED, "key 'num_channels' is 4"},
        {VISION("\"layer_norm_eps\":-1"), FV_EDATA, "key 'layer_norm_eps' must be in [0, 1)"},
        {VISION("\"hidden_act\":\"gelu_10\""), FV_EUNSUPPORTED, "unsupported hidden_act 'gelu_10'"},
        {"{\"model_type\":\"llava\",\"image_token_id\":1,"
         "\"vision_config\":{\"hidden_size\":30,\"num_attention_heads\":4}}",
         FV_EDATA, "key 'hidden_size' (30) is not a multiple of 'num_attention_heads' (4)"},
    };
    REFUSE_ALL(list);
    cr_assert_eq(parse(VISION("\"image_size\":[64,64]")).vision.image, 64);
}

Test(config, invalid_llava_keys_are_named) {
    static const wrong list[] = {
        {TOP("\"vision_feature_layer\":13"), FV_EDATA,
         "key 'vision_feature_layer' holds 13; the tower of 12 layers has 13 hidden states"},
        {TOP("\"vision_feature_layer\":-14"), FV_EDATA, "holds -14"},
        {TOP("\"vision_feature_layer\":9223372036854775807"), FV_EDATA, "holds 92233720368547758"},
        {TOP("\"vision_feature_layer\":[]"), FV_EUNSUPPORTED, "lists 0 layers"},
        {TOP("\"vision_feature_layer\":[1,1,1,1,1,1,1,1,1]"), FV_EUNSUPPORTED, "lists 9 layers"},
        {TOP("\"vision_feature_layer\":[null]"), FV_EDATA, "must be an integer or a list"},
        {TOP("\"vision_feature_layer\":\"-2\""), FV_EDATA, "must be an integer or a list"},
        {TOP("\"vision_feature_select_strategy\":\"cls\""), FV_EUNSUPPORTED,
         "key 'vision_feature_select_strategy' is 'cls'"},
        {TOP("\"projector_hidden_act\":\"tanh\""), FV_EUNSUPPORTED,
         "unsupported projector_hidden_act 'tanh'"},
        {TOP("\"multimodal_projector_bias\":0"), FV_EDATA, "must be true or false"},
        {TOP("\"tie_word_embeddings\":\"yes\""), FV_EDATA, "key 'tie_word_embeddings'"},
        {TOP("\"image_token_id\":6"), FV_EDATA,
         "'image_token_index' is 5 but 'image_token_id' is 6"},
        {TEXT("\"vocab_size\":5"), FV_EDATA,
         "key 'image_token_index' is 5, but the text model's 'vocab_size' is 5"},
        {"{\"model_type\":\"llava\"}", FV_EDATA, "key 'image_token_index' is 32000"},
        {"{\"model_type\":\"llava\",\"image_token_id\":-200}", FV_EDATA,
         "'image_token_id' is -200"},
        {TOP("\"eos_token_id\":-1"), FV_EDATA, "key 'eos_token_id' must be a token id"},
        {TOP("\"eos_token_id\":[\"2\"]"), FV_EDATA, "key 'eos_token_id' must be a token id"},
        {TOP("\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"), FV_EUNSUPPORTED,
         "more than 16 different ids"},
    };
    REFUSE_ALL(list);
}
