/* model/config: defaults for keys missing from config.json, both spellings of every key that has
 * two, and each refusal with its message. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"

static fv_model_config parse(const char *json) {
    fv_model_config cfg;
    cr_assert_eq(fv_config_parse(json, strlen(json), "config.json", &cfg), FV_OK, "%s: %s", json,
                 fv_last_error());
    return cfg;
}

typedef struct wrong {
    const char *json;
    fv_status st;
    const char *words;
} wrong;

static void refuse(const wrong *w) {
    fv_model_config cfg = {.n_eos = -7};
    fv_status st = fv_config_parse(w->json, strlen(w->json), "config.json", &cfg);
    cr_assert_eq(st, w->st, "%s gives %s (%s)", w->json, fv_status_name(st), fv_last_error());
    cr_assert_eq(strncmp(fv_last_error(), "config.json: ", 13), 0, "%s", fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), w->words), "'%s' lacks '%s'", fv_last_error(),
                       w->words);
    cr_assert_eq(cfg.n_eos, -7, "the output was touched");
}

#define REFUSE_ALL(list)                                                                           \
    for (size_t i_ = 0; i_ < sizeof(list) / sizeof *(list); i_++) refuse(&(list)[i_])

/* A LLaVA with `keys` added to its top level, its text or its vision part. */
#define LLAVA(top, text, vision)                                                                   \
    "{\"model_type\":\"llava\",\"image_token_index\":5," top                                       \
    "\"text_config\":{\"hidden_size\":64,\"num_attention_heads\":4" text                           \
    "},\"vision_config\":{\"hidden_size\":32,\"num_attention_heads\":2" vision "}}"
#define TOP(k) LLAVA(k ",", "", "")
#define TEXT(k) LLAVA("", "," k, "")
#define VISION(k) LLAVA("", "", "," k)

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

Test(config, rope_is_read_in_both_spellings) {
    cr_assert_eq(parse(TEXT("\"rope_theta\":5e5")).text.rope.theta, 5e5);
    cr_assert_eq(parse(TEXT("\"rope_parameters\":{\"rope_theta\":7000}")).text.rope.theta, 7000.0);
    cr_assert_eq(parse(TEXT("\"rope_theta\":1,\"rope_parameters\":{\"rope_theta\":7000,"
                            "\"rope_type\":\"default\"}"))
                     .text.rope.theta,
                 7000.0);
    cr_assert_eq(
        parse(TEXT("\"rope_parameters\":{\"full_attention\":{\"rope_theta\":9}}")).text.rope.theta,
        9.0);
}

Test(config, linear_rope_has_a_factor) {
    fv_rope_config r =
        parse(TEXT("\"rope_theta\":5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"))
            .text.rope;
    cr_assert_eq(r.type, FV_ROPE_LINEAR);
    cr_assert_eq(r.factor, 4.0);
    cr_assert_eq(r.theta, 5.0);
    r = parse(TEXT("\"rope_scaling\":{\"type\":\"default\",\"rope_type\":\"linear\","
                   "\"factor\":2.5}"))
            .text.rope;
    cr_assert_eq(r.factor, 2.5, "rope_type wins over type");
}

Test(config, dynamic_rope_is_plain_within_the_context) {
    fv_rope_config r =
        parse(TEXT("\"rope_theta\":5,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}"))
            .text.rope;
    cr_assert_eq(r.type, FV_ROPE_DEFAULT);
    cr_assert_eq(r.factor, 1.0);
    cr_assert_eq(r.theta, 5.0);
    r = parse(TEXT("\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2,\"rope_theta\":7}"))
            .text.rope;
    cr_assert_eq(r.type, FV_ROPE_DEFAULT);
    cr_assert_eq(r.theta, 7.0);
}

Test(config, llama3_rope_has_four_constants) {
    fv_rope_config r = parse(TEXT("\"max_position_embeddings\":131072,\"rope_scaling\":{"
                                  "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                                  "\"high_freq_factor\":4,"
                                  "\"original_max_position_embeddings\":8192}"))
                           .text.rope;
    cr_assert_eq(r.type, FV_ROPE_LLAMA3);
    cr_assert_eq(r.factor, 8.0);
    cr_assert_eq(r.low_freq_factor, 1.0);
    cr_assert_eq(r.high_freq_factor, 4.0);
    cr_assert_eq(r.original_max_position, 8192.0);
    r = parse(TEXT("\"max_position_embeddings\":4096,\"rope_parameters\":{"
                   "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                   "\"high_freq_factor\":4}"))
            .text.rope;
    cr_assert_eq(r.original_max_position, 4096.0, "defaults to max_position_embeddings");
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

Test(config, ministral_scales_queries_by_position) {
    fv_text_config t = parse("{\"model_type\":\"ministral3\"}").text;
    cr_assert(t.n_layer == 34 && t.n_kv == 8 && t.d_head == 128 && t.max_position == 262144);
    cr_assert(t.rope.type == FV_ROPE_YARN && t.rope.factor == 16 && t.rope.attention_factor == 1);
    cr_assert(t.rope.query_beta == 0.1 && t.rope.query_span == 16384 && t.window == 0);
    t = parse("{\"model_type\":\"ministral3\",\"sliding_window\":40,\"rope_parameters\":{"
              "\"rope_type\":\"default\",\"llama_4_scaling_beta\":0.5,"
              "\"original_max_position_embeddings\":64}}")
            .text;
    cr_assert(t.rope.type == FV_ROPE_DEFAULT && t.rope.query_beta == 0.5 &&
              t.rope.query_span == 64);
    cr_assert(t.window == 40 && t.slides[33]);
    static const wrong list[] = {
        {"{\"model_type\":\"ministral3\",\"rope_parameters\":{\"llama_4_scaling_beta\":-1}}",
         FV_EDATA, "key 'llama_4_scaling_beta' must not be negative"},
        {"{\"model_type\":\"ministral3\",\"rope_parameters\":{\"llama_4_scaling_beta\":1}}",
         FV_EDATA, "key 'original_max_position_embeddings' must be greater than 0"}};
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

/* The text models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, as their files have them. */
Test(config, mrope_has_sections) {
    static const char *const qwen2[] = {"qwen2_vl_text", "qwen2_5_vl_text"};
    char json[512];
    for (int i = 0; i < 2; i++) {
        snprintf(json, sizeof json,
                 "{\"model_type\":\"%s\",\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":"
                 "[16,22,26]}}",
                 qwen2[i]);
        fv_text_config t = parse(json).text;
        cr_assert(t.rope.section[0] == 16 && t.rope.section[1] == 22 && t.rope.section[2] == 26);
        cr_assert(t.rope.type == FV_ROPE_DEFAULT && !t.rope.interleaved && t.bias_qkv);
        cr_assert(t.rope.theta == 1e6 && t.rms_eps == 1e-5F && t.d_model == 8192);
        cr_assert(t.n_layer == 80 && t.n_head == 64 && t.n_kv == 8 && t.d_head == 128);
    }
    fv_text_config t = parse("{\"model_type\":\"qwen3_vl_text\"}").text;
    cr_assert(t.rope.section[0] == 24 && t.rope.section[1] == 20 && t.rope.section[2] == 20);
    cr_assert(t.rope.interleaved && t.qk_norm && t.rope.theta == 5e5 && t.max_position == 128000);
    t = parse("{\"model_type\":\"qwen3_vl_text\",\"rope_parameters\":{\"rope_type\":\"yarn\","
              "\"factor\":2,\"mrope_interleaved\":true,\"mrope_section\":[22,21,21]}}")
            .text;
    cr_assert(t.rope.type == FV_ROPE_YARN && t.rope.section[1] == 21 && t.rope.factor == 2);
    t = parse(TEXT("\"model_type\":\"qwen2\",\"num_key_value_heads\":4,\"rope_scaling\":{\"rope_"
                   "type\":\"default\","
                   "\"mrope_section\":[2,3,3]}"))
            .text;
    cr_assert_eq(t.rope.section[0], 0, "transformers' Qwen2 reads none");
}

#define MROPE(family, keys)                                                                        \
    "{\"model_type\":\"" family "_vl_text\",\"rope_scaling\":{\"rope_type\":\"default\"," keys "}" \
    "}"

Test(config, sections_that_do_not_fit_are_refused) {
    static const wrong list[] = {
        {MROPE("qwen2", "\"mrope_section\":[16,24,25]"), FV_EDATA,
         "key 'mrope_section' must be three numbers above 0 with the sum 64, half of head_dim"},
        {MROPE("qwen2", "\"mrope_section\":[64]"), FV_EDATA, "'mrope_section'"},
        {MROPE("qwen2", "\"mrope_section\":[16,16,16,16]"), FV_EDATA, "'mrope_section'"},
        {MROPE("qwen2", "\"mrope_section\":[0,32,32]"), FV_EDATA, "'mrope_section'"},
        {MROPE("qwen2", "\"mrope_section\":[-16,40,40]"), FV_EDATA, "'mrope_section'"},
        {MROPE("qwen2", "\"mrope_section\":[\"16\",24,24]"), FV_EDATA, "'mrope_section'"},
        {MROPE("qwen2", "\"mrope_section\":7"), FV_EDATA, "'mrope_section'"},
        {MROPE("qwen3", "\"mrope_section\":[20,22,22]"), FV_EDATA, "at most a third of it"},
        {MROPE("qwen3", "\"mrope_interleaved\":false"), FV_EUNSUPPORTED,
         "key 'mrope_interleaved' is false, which qwen3_vl_text is not"},
        {MROPE("qwen2", "\"mrope_interleaved\":true"), FV_EUNSUPPORTED, "'mrope_interleaved'"},
        {MROPE("qwen2", "\"mrope_interleaved\":3"), FV_EDATA, "'mrope_interleaved'"},
        {"{\"model_type\":\"qwen2_vl_text\",\"head_dim\":64}", FV_EDATA,
         "key 'mrope_section' is absent; it must be three numbers above 0 with the sum 32"},
        {TEXT("\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,3,3]}"), FV_EUNSUPPORTED,
         "rope_type 'mrope'"}};
    REFUSE_ALL(list);
}

Test(config, unsupported_rope_is_named) {
    static const wrong list[] = {
        {TEXT("\"rope_parameters\":{\"rope_type\":\"longrope\"}"), FV_EUNSUPPORTED,
         "unsupported rope_type 'longrope'; supported: default, dynamic, linear, llama3 and yarn"},
        {TEXT("\"rope_scaling\":{\"type\":\"dynamic\"}"), FV_EDATA, "key 'factor' must be greater"},
        {TEXT("\"rope_scaling\":{\"type\":\"linear\"}"), FV_EDATA, "key 'factor' must be greater"},
        {TEXT("\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1}"), FV_EDATA, "key 'factor'"},
        {TEXT("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}"), FV_EDATA,
         "key 'low_freq_factor' must be greater than 0"},
        {TEXT("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
              "\"high_freq_factor\":4}"),
         FV_EDATA, "key 'high_freq_factor' must be greater than low_freq_factor"},
        {TEXT("\"rope_theta\":0"), FV_EDATA, "key 'rope_theta' must be greater than 0"},
        {TEXT("\"rope_scaling\":5"), FV_EDATA, "rope_scaling and rope_parameters must be objects"},
        {TEXT("\"rope_parameters\":[]"), FV_EDATA, "must be objects"},
        {TEXT("\"partial_rotary_factor\":0.5"), FV_EUNSUPPORTED,
         "key 'partial_rotary_factor' is 0.5"},
        {TEXT("\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{}}"),
         FV_EUNSUPPORTED, "are supported for gemma3 only"},
    };
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

/* ---- generation_config.json ---- */

static fv_generation_config generation(const char *json, fv_model_config *cfg) {
    fv_generation_config g;
    cr_assert_eq(fv_generation_parse(json, strlen(json), "gen.json", cfg, &g), FV_OK, "%s",
                 fv_last_error());
    return g;
}

Test(config, without_generation_config_answers_are_greedy) {
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    fv_generation_config g = generation("", &cfg);
    cr_assert_not(g.do_sample);
    cr_assert_eq(g.temperature, 1.0F);
    cr_assert_eq(g.top_p, 1.0F);
    cr_assert_eq(g.top_k, 50);
    cr_assert_eq(g.repetition_penalty, 1.0F);
    cr_assert(cfg.n_eos == 1 && cfg.eos[0] == 2);
}

Test(config, sampling_defaults_are_read) {
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    fv_generation_config g = generation("{\"do_sample\":true,\"temperature\":0.2,\"top_p\":0.7,"
                                        "\"top_k\":0,\"repetition_penalty\":1.1}",
                                        &cfg);
    cr_assert(g.do_sample);
    cr_assert_eq(g.temperature, 0.2F);
    cr_assert_eq(g.top_p, 0.7F);
    cr_assert_eq(g.top_k, 0);
    cr_assert_eq(g.repetition_penalty, 1.1F);
}

Test(config, generation_adds_its_eos_ids) {
    fv_model_config cfg = parse(TOP("\"eos_token_id\":7"));
    generation("{\"eos_token_id\":[7,9]}", &cfg);
    cr_assert(cfg.n_eos == 2 && cfg.eos[0] == 7 && cfg.eos[1] == 9);
}

Test(config, generation_replaces_an_eos_that_was_only_a_default) {
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    generation("{\"eos_token_id\":[128001,128009]}", &cfg);
    cr_assert(cfg.n_eos == 2 && cfg.eos[0] == 128001 && cfg.eos[1] == 128009);
    cfg = parse("{\"model_type\":\"llama\"}");
    generation("{\"eos_token_id\":null}", &cfg);
    cr_assert(cfg.n_eos == 1 && cfg.eos[0] == 2);
}

Test(config, invalid_generation_values_are_named) {
    static const wrong list[] = {
        {"{", FV_EDATA, "not valid JSON"},
        {"{\"do_sample\":1}", FV_EDATA, "key 'do_sample' must be true or false"},
        {"{\"do_sample\":true,\"temperature\":0}", FV_EDATA, "key 'temperature' is 0"},
        {"{\"temperature\":-1}", FV_EDATA, "key 'temperature' is -1"},
        {"{\"top_p\":0}", FV_EDATA, "key 'top_p' is 0"},
        {"{\"top_p\":1.5}", FV_EDATA, "key 'top_p' is 1.5"},
        {"{\"top_k\":-1}", FV_EDATA, "key 'top_k' is -1"},
        {"{\"repetition_penalty\":0}", FV_EDATA, "key 'repetition_penalty' is 0"},
        {"{\"eos_token_id\":\"x\"}", FV_EDATA, "key 'eos_token_id'"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
        fv_generation_config g = {.top_k = -7};
        cr_assert_eq(fv_generation_parse(list[i].json, strlen(list[i].json), "gen.json", &cfg, &g),
                     list[i].st, "%s", list[i].json);
        cr_assert_not_null(strstr(fv_last_error(), list[i].words), "%s", fv_last_error());
        cr_assert_not_null(strstr(fv_last_error(), "gen.json: "));
        cr_assert_eq(g.top_k, -7);
        cr_assert(cfg.n_eos == 1 && cfg.eos[0] == 2, "the config was touched");
    }
    fv_model_config cfg = parse("{\"model_type\":\"llama\"}");
    cr_assert_eq(generation("{\"temperature\":0}", &cfg).temperature, 0.0F,
                 "0 with greedy is fine");
}

/* ---- preprocessor_config.json ---- */

/* The image configuration that a file makes for a tower of 336 pixels. */
typedef struct prepared {
    fv_layout_config layout;
    fv_image_config c;
} prepared;

static fv_layout_config tower_336(void) {
    return (fv_layout_config){.family = FV_LAYOUT_LLAVA, .tile = 336, .patch = 14, .merge = 1};
}

static prepared image(const char *json) {
    prepared p = {.layout = tower_336()};
    cr_assert_eq(fv_image_config_parse(json, strlen(json), "pre.json", &p.layout, &p.c), FV_OK,
                 "%s: %s", json, fv_last_error());
    cr_assert_eq(fv_layout_check(&p.layout), FV_OK, "%s: %s", json, fv_last_error());
    return p;
}

Test(config, without_a_file_images_are_prepared_as_clip_does_at_the_towers_size) {
    prepared p = image("");
    cr_assert(p.c.do_rescale && p.c.do_normalize && p.c.do_convert_rgb);
    cr_assert_eq(p.layout.shortest_edge, 336);
    cr_assert_eq(p.c.resample, 3);
    cr_assert_eq(p.c.rescale_factor, 0.00392156862745098);
    cr_assert_eq(p.c.mean[0], 0.48145466F);
    cr_assert_eq(p.c.std[2], 0.27577711F);
    cr_assert_not(p.layout.pad_square);
}

Test(config, sizes_come_in_all_their_forms) {
    static const char *const same[] = {
        "{\"size\":336,\"crop_size\":336}",
        "{\"size\":{\"shortest_edge\":336},\"crop_size\":{\"height\":336,\"width\":336}}",
        "{\"image_processor\":{\"size\":{\"shortest_edge\":336}}}",
        "{\"feature_extractor_type\":\"CLIPFeatureExtractor\",\"size\":336}",
        "{\"image_processor_type\":\"CLIPImageProcessorFast\"}",
        "{\"image_processor_type\":\"LlavaImageProcessorPil\",\"do_pad\":false}",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        cr_assert_eq(image(same[i]).layout.shortest_edge, 336, "%s", same[i]);
    fv_layout_config l =
        image("{\"size\":{\"height\":336,\"width\":336},\"do_center_crop\":false}").layout;
    cr_assert(l.shortest_edge == 0 && l.resize.h == 336 && l.resize.w == 336);
    cr_assert_eq(image("{\"size\":{\"shortest_edge\":400}}").layout.shortest_edge, 400);
    l = image("{\"do_resize\":false}").layout;
    cr_assert(l.shortest_edge == 0 && l.resize.h == 0, "the middle, as it is");
}

Test(config, padding_to_a_square_has_two_spellings) {
    cr_assert(image("{\"image_aspect_ratio\":\"pad\"}").layout.pad_square);
    cr_assert(image("{\"image_processor_type\":\"LlavaImageProcessor\",\"do_pad\":true}")
                  .layout.pad_square);
    cr_assert_not(image("{\"image_processor_type\":\"CLIPImageProcessor\",\"do_pad\":true}")
                      .layout.pad_square);
    cr_assert(image("{\"image_aspect_ratio\":\"pad\",\"do_center_crop\":false}").layout.pad_square);
}

/* ---- of the families with tiles ---- */

static fv_layout_config tiles_of(fv_layout_family family) {
    return (fv_layout_config){.family = family,
                              .tile = 336,
                              .patch = 14,
                              .merge = 1,
                              .tiles_max = 9,
                              .n_pinpoint = 2,
                              .pinpoint = {{336, 672}, {672, 336}}};
}

static prepared image_of(fv_layout_family family, const char *json) {
    prepared p = {.layout = tiles_of(family)};
    cr_assert_eq(fv_image_config_parse(json, strlen(json), "pre.json", &p.layout, &p.c), FV_OK,
                 "%s: %s", json, fv_last_error());
    return p;
}

Test(config, tiles_of_llava_next_and_onevision_are_of_the_towers_size) {
    static const struct {
        fv_layout_family family;
        const char *json;
    } list[] = {
        {FV_LAYOUT_LLAVA_NEXT, "{}"},
        {FV_LAYOUT_LLAVA_NEXT, "{\"image_processor_type\":\"LlavaNextImageProcessorFast\",\"size\":"
                               "{\"shortest_edge\":336},"
                               "\"crop_size\":{\"height\":336,\"width\":336},\"do_pad\":true,"
                               "\"image_grid_pinpoints\":[[672,336],[336,672]]}"},
        {FV_LAYOUT_LLAVA_ONEVISION,
         "{\"image_processor\":{\"image_processor_type\":\"LlavaOnevisionImageProcessorPil\","
         "\"size\":{\"height\":336,\"width\":336},\"crop_size\":null,\"do_center_crop\":null}}"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fv_layout_config before = tiles_of(list[i].family);
        prepared p = image_of(list[i].family, list[i].json);
        cr_assert_eq(memcmp(&p.layout, &before, sizeof before), 0, "%s", list[i].json);
        cr_assert(p.c.resample == 3 && p.c.mean[0] == 0.48145466F);
    }
}

Test(config, idefics3_and_smolvlm_have_a_longest_edge_and_may_split) {
    prepared p = image_of(FV_LAYOUT_IDEFICS3, "{}");
    cr_assert(p.layout.longest_edge == 1344 && p.layout.split);
    cr_assert(p.c.resample == 1 && p.c.mean[1] == 0.5F && p.c.std[2] == 0.5F);
    p = image_of(
        FV_LAYOUT_IDEFICS3,
        "{\"image_processor_type\":\"SmolVLMImageProcessor\",\"size\":{\"longest_edge\":2048},"
        "\"max_image_size\":{\"longest_edge\":336},\"do_image_splitting\":false,"
        "\"resample\":3,\"image_mean\":0.25}");
    cr_assert(p.layout.longest_edge == 2048 && !p.layout.split);
    cr_assert(p.c.resample == 3 && p.c.mean[2] == 0.25F);
    p = image_of(FV_LAYOUT_IDEFICS3, "{\"image_processor_type\":\"Idefics3ImageProcessorFast\"}");
    cr_assert(p.layout.split);
}

Test(config, mistral3_is_scaled_down_to_an_edge_or_a_box) {
    prepared p = image_of(FV_LAYOUT_MISTRAL3, "{}");
    cr_assert(p.layout.resize.w == 1024 && p.layout.resize.h == 1024 && p.c.resample == 3);
    p = image_of(FV_LAYOUT_MISTRAL3, "{\"image_processor_type\":\"PixtralImageProcessorFast\","
                                     "\"size\":{\"longest_edge\":1540},\"patch_size\":14}");
    cr_assert(p.layout.resize.w == 1540 && p.layout.resize.h == 1540);
    p = image_of(FV_LAYOUT_MISTRAL3, "{\"size\":{\"height\":60,\"width\":90}}");
    cr_assert(p.layout.resize.w == 90 && p.layout.resize.h == 60);
}

Test(config, qwen_vl_is_scaled_to_areas_under_either_of_their_names) {
    prepared p = image_of(FV_LAYOUT_QWEN_VL, "{}");
    cr_assert(p.layout.pixels_min == 3136 && p.layout.pixels_max == 1003520 && p.c.resample == 3);
    p = image_of(FV_LAYOUT_QWEN_VL, "{\"image_processor_type\":\"Qwen2VLImageProcessorFast\","
                                    "\"size\":{\"shortest_edge\":9,\"longest_edge\":70}}");
    cr_assert(p.layout.pixels_min == 9 && p.layout.pixels_max == 70);
    p = image_of(FV_LAYOUT_QWEN_VL,
                 "{\"size\":{\"max_pixels\":12845056,\"min_pixels\":3136},\"min_pixels\":3136,"
                 "\"max_pixels\":12845056,\"temporal_patch_size\":2}");
    cr_assert(p.layout.pixels_min == 3136 && p.layout.pixels_max == 12845056);
}

Test(config, internvl_has_a_range_of_tiles_whatever_crop_to_patches_says) {
    prepared p = image_of(FV_LAYOUT_INTERNVL,
                          "{\"image_processor_type\":\"GotOcr2ImageProcessorFast\",\"size\":{"
                          "\"height\":336,\"width\":336},\"crop_to_patches\":false}");
    cr_assert(p.layout.tiles_min == 1 && p.layout.tiles_max == 12 && p.c.resample == 3);
    p = image_of(FV_LAYOUT_INTERNVL, "{\"size\":{\"height\":336,\"width\":336},\"min_patches\":2,"
                                     "\"max_patches\":6}");
    cr_assert(p.layout.tiles_min == 2 && p.layout.tiles_max == 6);
}

Test(config, preprocessing_with_tiles_that_cannot_be_is_named) {
    static const struct {
        fv_layout_family family;
        wrong w;
    } list[] = {
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_processor_type\":\"CLIPImageProcessor\"}", FV_EDATA,
          "'CLIPImageProcessor', but config.json is of a llava_next model"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"size\":{\"shortest_edge\":224}}", FV_EUNSUPPORTED,
          "keys 'size' and 'crop_size' are 224x224 and 336x336, but tiles are of the vision "
          "tower's "
          "336x336"}},
        {FV_LAYOUT_LLAVA_NEXT, {"{\"crop_size\":224}", FV_EUNSUPPORTED, "336x336 and 224x224"}},
        {FV_LAYOUT_LLAVA_ONEVISION,
         {"{\"size\":{\"height\":336,\"width\":384}}", FV_EUNSUPPORTED, "336x384"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":[[336,672],[672,336]]}", FV_EDATA,
          "'image_grid_pinpoints' is not the list of config.json: make them the same"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":[[672,336]]}", FV_EDATA, "'image_grid_pinpoints'"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":{\"a\":1}}", FV_EDATA, "'image_grid_pinpoints'"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":[[672],7]}", FV_EDATA, "'image_grid_pinpoints'"}},
        {FV_LAYOUT_IDEFICS3,
         {"{\"size\":{\"height\":3,\"width\":3}}", FV_EUNSUPPORTED,
          "key 'size' must be {\"longest_edge\"}"}},
        {FV_LAYOUT_IDEFICS3,
         {"{\"max_image_size\":{\"longest_edge\":364}}", FV_EUNSUPPORTED,
          "key 'max_image_size' is 364, but tiles are of the vision tower's 336"}},
        {FV_LAYOUT_IDEFICS3, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_INTERNVL,
         {"{}", FV_EUNSUPPORTED, "key 'size' must be {\"height\": 336, \"width\": 336}"}},
        {FV_LAYOUT_MISTRAL3, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_MISTRAL3,
         {"{\"size\":{\"longest_edge\":9000}}", FV_EDATA, "key 'longest_edge' is 9000"}},
        {FV_LAYOUT_QWEN_VL, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_QWEN_VL,
         {"{\"patch_size\":9}", FV_EUNSUPPORTED, "'patch_size' is 9; it must be"}},
        {FV_LAYOUT_QWEN_VL,
         {"{\"size\":{\"longest_edge\":9}}", FV_EUNSUPPORTED, "key 'size' must be {\"shortest"}},
        {FV_LAYOUT_QWEN_VL, {"{\"min_pixels\":0}", FV_EDATA, "key 'min_pixels' is 0"}},
        {FV_LAYOUT_INTERNVL, {"{\"size\":336}", FV_EUNSUPPORTED, "key 'size' must be"}},
        {FV_LAYOUT_INTERNVL, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_INTERNVL, {"{\"max_patches\":0}", FV_EDATA, "'max_patches' is 0"}},
        {FV_LAYOUT_INTERNVL,
         {"{\"size\":{\"height\":336,\"width\":336},\"min_patches\":9,\"max_patches\":3}", FV_EDATA,
          "pre.json: images are cut into 9 to 3 tiles"}},
        {FV_LAYOUT_IDEFICS3,
         {"{\"size\":{\"longest_edge\":0}}", FV_EDATA,
          "key 'longest_edge' is 0; it must be 1..8192"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const wrong *w = &list[i].w;
        fv_layout_config layout = tiles_of(list[i].family);
        fv_image_config c;
        cr_assert_eq(fv_image_config_parse(w->json, strlen(w->json), "pre.json", &layout, &c),
                     w->st, "%s", w->json);
        cr_assert_not_null(strstr(fv_last_error(), w->words), "'%s' lacks '%s'", fv_last_error(),
                           w->words);
    }
    fv_layout_config odd = tiles_of(FV_LAYOUT_LLAVA_NEXT);
    fv_image_config c;
    odd.pinpoint[1].w = 700;
    cr_assert_eq(fv_image_config_parse("", 0, "pre.json", &odd, &c), FV_EDATA);
    cr_assert_not_null(strstr(fv_last_error(), "pre.json: images may be fitted to 700 x 336"), "%s",
                       fv_last_error());
}

/* ---- values ---- */

Test(config, means_may_be_one_number) {
    fv_image_config c = image("{\"image_mean\":0.5,\"image_std\":[0.5,0.25,1]}").c;
    cr_assert(c.mean[0] == 0.5F && c.mean[2] == 0.5F && c.std[1] == 0.25F);
}

Test(config, invalid_preprocessing_is_named) {
    static const wrong list[] = {
        {"nul", FV_EDATA, "not valid JSON"},
        {"{\"image_processor\":[]}", FV_EDATA, "key 'image_processor' must be an object"},
        {"{\"image_processor_type\":\"SiglipImageProcessor\"}", FV_EUNSUPPORTED,
         "unsupported image_processor_type 'SiglipImageProcessor'"},
        {"{\"image_processor_type\":\"LlavaNextImageProcessorFast\"}", FV_EDATA,
         "'LlavaNextImageProcessorFast', but config.json is of a llava model"},
        {"{\"image_processor_type\":\"CLIPImageProcessorSlow\"}", FV_EUNSUPPORTED, "Slow"},
        {"{\"size\":{\"longest_edge\":336}}", FV_EUNSUPPORTED, "key 'size' must be a number"},
        {"{\"size\":{\"height\":336}}", FV_EUNSUPPORTED, "key 'size' must be a number"},
        {"{\"size\":{\"shortest_edge\":336,\"longest_edge\":672}}", FV_EUNSUPPORTED, "key 'size'"},
        {"{\"size\":0}", FV_EDATA, "key 'size' is 0"},
        {"{\"size\":{\"shortest_edge\":99999}}", FV_EDATA, "key 'shortest_edge' is 99999"},
        {"{\"crop_size\":224}", FV_EUNSUPPORTED,
         "key 'crop_size' is 224x224, but the vision tower needs 336x336"},
        {"{\"crop_size\":{\"shortest_edge\":336}}", FV_EUNSUPPORTED, "key 'crop_size' must be"},
        {"{\"do_center_crop\":false}", FV_EUNSUPPORTED, "without 'do_center_crop'"},
        {"{\"do_center_crop\":false,\"size\":{\"height\":336,\"width\":300}}", FV_EUNSUPPORTED,
         "must give the vision tower's 336x336"},
        {"{\"do_center_crop\":false,\"do_resize\":false}", FV_EUNSUPPORTED, "keys 'do_resize'"},
        {"{\"resample\":4}", FV_EUNSUPPORTED, "key 'resample' is 4"},
        {"{\"resample\":\"bicubic\"}", FV_EDATA, "key 'resample' must be an integer"},
        {"{\"image_mean\":[0.5,0.5]}", FV_EDATA, "key 'image_mean' must be three numbers"},
        {"{\"image_std\":[1,\"x\",1]}", FV_EDATA, "key 'image_std' must be three numbers"},
        {"{\"image_std\":[1,1e39,1]}", FV_EDATA, "key 'image_std' must be three numbers"},
        {"{\"image_std\":[1,0,1]}", FV_EDATA, "key 'image_std' holds 0"},
        {"{\"image_aspect_ratio\":\"anyres\"}", FV_EUNSUPPORTED, "'anyres'"},
        {"{\"do_rescale\":\"no\"}", FV_EDATA, "key 'do_rescale' must be true or false"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fv_layout_config layout = tower_336(), before = layout;
        fv_image_config c = {.resample = -7};
        fv_status st =
            fv_image_config_parse(list[i].json, strlen(list[i].json), "pre.json", &layout, &c);
        cr_assert_eq(st, list[i].st, "%s gives %s", list[i].json, fv_status_name(st));
        cr_assert_not_null(strstr(fv_last_error(), list[i].words), "'%s' lacks '%s'",
                           fv_last_error(), list[i].words);
        cr_assert_eq(c.resample, -7);
        cr_assert_eq(memcmp(&layout, &before, sizeof layout), 0);
    }
}
