/* model/families/recurrent_config.c: Qwen3.5's config.json. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/families/tensor_specs.h"

static fv_status parse(const char *json, fv_model_config *out) {
    return fv_config_parse(json, strlen(json), "config.json", out);
}

/* The published fields of Qwen3.5-9B. */
static const char nine_b[] =
    "{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"model_type\":\"qwen3_5\","
    "\"image_token_id\":248056,\"video_token_id\":248057,\"tie_word_embeddings\":false,"
    "\"text_config\":{\"attention_bias\":false,\"attn_output_gate\":true,\"eos_token_id\":248044,"
    "\"full_attention_interval\":4,\"head_dim\":256,\"hidden_act\":\"silu\",\"hidden_size\":4096,"
    "\"intermediate_size\":12288,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,"
    "\"linear_num_key_heads\":16,\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,"
    "\"mamba_ssm_dtype\":\"float32\",\"max_position_embeddings\":262144,"
    "\"model_type\":\"qwen3_5_text\",\"mtp_num_hidden_layers\":1,\"num_attention_heads\":16,"
    "\"num_hidden_layers\":32,\"num_key_value_heads\":4,\"rms_norm_eps\":1e-06,"
    "\"vocab_size\":248320,\"rope_parameters\":{\"mrope_interleaved\":true,"
    "\"mrope_section\":[11,11,10],\"rope_type\":\"default\",\"rope_theta\":10000000,"
    "\"partial_rotary_factor\":0.25}},\"vision_config\":{\"deepstack_visual_indexes\":[],"
    "\"depth\":27,\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_size\":1152,\"in_channels\":3,"
    "\"intermediate_size\":4304,\"model_type\":\"qwen3_5\",\"num_heads\":16,"
    "\"num_position_embeddings\":2304,\"out_hidden_size\":4096,\"patch_size\":16,"
    "\"spatial_merge_size\":2,\"temporal_patch_size\":2}}";

static int32_t count(const fv_model_config *c, const char *name) {
    fv_tensor_spec *spec;
    int32_t n, found = 0;
    cr_assert_eq(fv_tensor_specs_build(c, true, &spec, &n), FV_OK);
    for (int32_t i = 0; i < n; i++) found += strcmp(spec[i].name, name) == 0;
    free(spec);
    return found;
}

Test(recurrent_config, a_layer_is_three_recurrent_ones_and_attention) {
    fv_model_config c;
    cr_assert_eq(parse(nine_b, &c), FV_OK, "%s", fv_last_error());
    const fv_recurrent_config *r = &c.text.recurrent;
    cr_assert(c.text.n_layer == 8 && r->n == 3 && r->n_key == 16 && r->n_value == 32);
    cr_assert(r->d_key == 128 && r->d_value == 128 && r->taps == 4);
    cr_assert(c.text.gated_attention && c.text.norm_plus_one && c.text.qk_norm);
    cr_assert(c.text.rope.rotary == 64 && c.text.rope.interleaved && c.text.rope.theta == 1e7);
    cr_assert_eq(fv_recurrent_width(r), 8192);
    cr_assert_eq(8 * fv_recurrent_state_bytes(r), (size_t)24 * 4 * (3 * 8192 + 32 * 128 * 128),
                 "50 MB");
    cr_assert(c.vision.n_deepstack == 0 && c.vision.position_side == 48);
    cr_assert(c.image_token == 248056 && c.video_token == 248057);
    cr_assert(count(&c, "text.layers.30.linear_attn.conv1d.weight") == 1 &&
              count(&c, "text.layers.31.self_attn.q_proj.weight") == 1 &&
              count(&c, "text.layers.31.linear_attn.A_log") == 0 &&
              count(&c, "text.layers.30.self_attn.q_proj.weight") == 0);
}

Test(recurrent_config, a_text_model_alone_has_the_defaults_of_its_class) {
    fv_model_config c;
    cr_assert_eq(parse("{\"model_type\":\"qwen3_5_text\"}", &c), FV_OK, "%s", fv_last_error());
    cr_assert(c.text.n_layer == 8 && c.text.recurrent.n == 3 && c.text.rope.rotary == 64);
    cr_assert_eq(parse("{\"model_type\":\"qwen3_5_text\",\"num_hidden_layers\":6,\"layer_types\":["
                       "\"linear_attention\",\"full_attention\",\"linear_attention\","
                       "\"full_attention\",\"linear_attention\",\"full_attention\"]}",
                       &c),
                 FV_OK, "%s", fv_last_error());
    cr_assert(c.text.n_layer == 3 && c.text.recurrent.n == 1);
}

Test(recurrent_config, experts_are_in_every_layer_beside_a_shared_one) {
    fv_model_config c;
    cr_assert_eq(parse("{\"model_type\":\"qwen3_5_moe_text\",\"mlp_only_layers\":[1]}", &c), FV_OK,
                 "%s", fv_last_error());
    cr_assert(c.text.n_layer == 10 && c.text.recurrent.n == 3 && c.text.d_shared == 512);
    cr_assert(c.text.n_expert == 256 && c.text.n_active == 8 && c.text.d_ffn == 512);
    cr_assert_eq(fv_text_ffn_width(&c.text, 9), 9 * 512);
    cr_assert(count(&c, "text.layers.0.mlp.experts.down_proj") == 1 &&
              count(&c, "text.layers.39.mlp.shared_expert_gate.weight") == 1 &&
              count(&c, "text.layers.38.mlp.gate.weight") == 1 &&
              count(&c, "text.layers.1.mlp.up_proj.weight") == 0);
    cr_assert_eq(
        parse("{\"model_type\":\"qwen3_5_moe_text\",\"shared_expert_intermediate_size\":0}", &c),
        FV_EDATA);
}

Test(recurrent_config, what_the_engine_does_not_run_is_named) {
    static const char *const wrong[][2] = {
        {"\"num_hidden_layers\":7", "every layer with linear attention must have one"},
        {"\"num_hidden_layers\":2,\"layer_types\":[\"linear_attention\",\"linear_attention\"]",
         "every layer with linear attention must have one"},
        {"\"num_hidden_layers\":4,\"layer_types\":[\"linear_attention\",\"full_attention\","
         "\"full_attention\",\"full_attention\"]",
         "layer 2 is 'full_attention'"},
        {"\"layer_types\":[\"full_attention\"]", "type of each of 32 layers"},
        {"\"layer_types\":7", "type of each of 32 layers"},
        {"\"linear_num_value_heads\":24", "not a multiple of 'linear_num_key_heads' (16)"},
        {"\"linear_key_head_dim\":120", "must be multiples of 16"},
        {"\"linear_value_head_dim\":8", "must be multiples of 16"},
        {"\"linear_key_head_dim\":512", "'linear_key_head_dim'"},
        {"\"linear_conv_kernel_dim\":1", "'linear_conv_kernel_dim'"},
        {"\"attn_output_gate\":false", "'attn_output_gate' must be true"},
        {"\"hidden_act\":\"gelu\"", "'hidden_act' silu"},
        {"\"partial_rotary_factor\":0.3", "76 of 256 dimensions; it must be 1 / n"},
        {"\"partial_rotary_factor\":0", "it must be 1 / n"},
        {"\"partial_rotary_factor\":1e300", "it must be 1 / n"},
        {"\"rope_parameters\":{\"mrope_section\":[40,44,44]}", "with the sum 32"},
        {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2}", "needs whole heads"}};
    fv_model_config c;
    char json[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(json, sizeof json, "{\"model_type\":\"qwen3_5_text\",%s}", wrong[i][0]);
        cr_assert_neq(parse(json, &c), FV_OK, "%s", json);
        cr_assert(strstr(fv_last_error(), wrong[i][1]), "%s", fv_last_error());
    }
}
