/* model/config: RoPE, its kinds and its refusals. */
#include <stdio.h>

#include "tests/unit/model/config_rig.h"

Test(config_rope, rope_is_read_in_both_spellings) {
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

Test(config_rope, linear_rope_has_a_factor) {
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

Test(config_rope, dynamic_rope_is_plain_within_the_context) {
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

Test(config_rope, llama3_rope_has_four_constants) {
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

Test(config_rope, ministral_scales_queries_by_position) {
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

/* The text models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, as their files have them. */
Test(config_rope, mrope_has_sections) {
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

Test(config_rope, sections_that_do_not_fit_are_refused) {
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

Test(config_rope, unsupported_rope_is_named) {
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
