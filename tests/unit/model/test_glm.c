/* model/families/glm.c: config.json of GLM-4.1V, GLM-4.5V and GLM-OCR, as published and with other values, and
 * layers in the files that are not run. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "model/checkpoint.h"
#include "model/families/tensor_specs.h"
#include "model/synth/synth.h"
#include "tests/support/command.h"
#include "tests/support/tensor_file.h"

static fv_model_config parse(const char *json) {
    fv_model_config c;
    cr_assert_eq(fv_config_parse(json, strlen(json), "config.json", &c), FV_OK, "%s",
                 fv_last_error());
    return c;
}

static void refused(const char *json, fv_status want, const char *words) {
    fv_model_config c;
    cr_assert_eq(fv_config_parse(json, strlen(json), "config.json", &c), want, "%s: %s", json,
                 fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static int32_t count(const fv_model_config *c, const char *name) {
    fv_tensor_spec *spec;
    int32_t n, found = 0;
    cr_assert_eq(fv_tensor_specs_build(c, true, &spec, &n), FV_OK);
    for (int32_t i = 0; i < n; i++) found += strcmp(spec[i].name, name) == 0;
    free(spec);
    return found;
}

/* The published fields of GLM-4.1V-9B-Thinking. */
static const char glm_4_1v[] =
    "{\"architectures\":[\"Glm4vForConditionalGeneration\"],\"model_type\":\"glm4v\","
    "\"image_start_token_id\":151339,\"image_end_token_id\":151340,\"image_token_id\":151343,"
    "\"video_start_token_id\":151341,\"video_end_token_id\":151342,\"video_token_id\":151344,"
    "\"tie_word_embeddings\":false,\"text_config\":{\"attention_bias\":true,"
    "\"attention_dropout\":0.0,\"eos_token_id\":[151329,151336,151338,151348],"
    "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":13696,"
    "\"max_position_embeddings\":65536,\"model_type\":\"glm4v_text\",\"num_attention_heads\":32,"
    "\"num_hidden_layers\":40,\"num_key_value_heads\":2,\"pad_token_id\":151329,"
    "\"partial_rotary_factor\":0.5,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
    "\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[8,12,12]},\"vocab_size\":151552},"
    "\"vision_config\":{\"attention_bias\":false,\"depth\":24,\"hidden_act\":\"silu\","
    "\"hidden_size\":1536,\"image_size\":336,\"in_channels\":3,\"intermediate_size\":13696,"
    "\"model_type\":\"glm4v\",\"num_heads\":12,\"out_hidden_size\":4096,\"patch_size\":14,"
    "\"rms_norm_eps\":1e-05,\"spatial_merge_size\":2,\"temporal_patch_size\":2}}";

/* The published fields of GLM-OCR. */
static const char glm_ocr[] =
    "{\"architectures\":[\"GlmOcrForConditionalGeneration\"],\"model_type\":\"glm_ocr\","
    "\"text_config\":{\"model_type\":\"glm_ocr_text\",\"pad_token_id\":59246,"
    "\"vocab_size\":59392,\"eos_token_id\":[59246,59253],\"attention_bias\":false,"
    "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":1536,\"intermediate_size\":4608,"
    "\"max_position_embeddings\":131072,\"num_attention_heads\":16,\"num_hidden_layers\":16,"
    "\"num_nextn_predict_layers\":1,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"
    "\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_type\":\"default\","
    "\"mrope_section\":[16,24,24],\"partial_rotary_factor\":1.0,\"rope_theta\":10000},"
    "\"tie_word_embeddings\":false},\"vision_config\":{\"model_type\":\"glm_ocr_vision\","
    "\"hidden_size\":1024,\"depth\":24,\"num_heads\":16,\"attention_bias\":true,"
    "\"intermediate_size\":4096,\"hidden_act\":\"silu\",\"image_size\":336,\"patch_size\":14,"
    "\"spatial_merge_size\":2,\"temporal_patch_size\":2,\"out_hidden_size\":1536},"
    "\"image_token_id\":59280,\"video_token_id\":59281}";

Test(glm, glm_4_1v_as_published) {
    const fv_model_config c = parse(glm_4_1v);
    const fv_text_config *t = &c.text;
    const fv_vision_config *v = &c.vision;
    cr_assert(t->d_head == 128 && t->rope.rotary == 64 && t->rope.adjacent && t->bias_qkv);
    cr_assert(t->rope.section[0] == 8 && t->rope.section[2] == 12 && !t->rope.interleaved);
    cr_assert(t->output_norms && t->fused_ffn && !t->fused && !t->post_norms && t->bos == -1);
    cr_assert(v->position_side == 24 && v->position_cubic && v->norm_patches && v->post_norm_rms);
    cr_assert(v->d_ffn == 4096 && v->d_between == 13696 && v->connector == FV_CONNECTOR_GLM);
    cr_assert(!v->bias_qkv && !v->bias_o && !v->bias_mlp && !v->qk_norm_heads);
    cr_assert(c.layout.family == FV_LAYOUT_GLM4V && c.layout.merge == 2 && c.n_eos == 4);
    cr_assert_eq(count(&c, "text.layers.39.mlp.gate_up_proj.weight"), 1);
    cr_assert_eq(count(&c, "text.layers.39.post_mlp_layernorm.weight"), 1);
    cr_assert_eq(count(&c, "text.layers.0.self_attn.qkv_proj.weight"), 0);
    cr_assert_eq(count(&c, "vision.downsample.bias"), 1);
    cr_assert_eq(count(&c, "vision.post_conv_layernorm.weight"), 1);
    cr_assert_eq(count(&c, "vision.embeddings.position_embedding.weight"), 1);
    cr_assert_eq(count(&c, "projector.post_projection_norm.bias"), 1);
    cr_assert_eq(count(&c, "projector.linear_1.weight"), 0);
    cr_assert_eq(count(&c, "vision.encoder.layers.0.self_attn.qkv.bias"), 0);
    cr_assert_eq(count(&c, "vision.post_layernorm.bias"), 0);
}

/* The published fields of GLM-4.5V. */
static const char glm_4_5v[] =
    "{\"architectures\":[\"Glm4vMoeForConditionalGeneration\"],\"model_type\":\"glm4v_moe\","
    "\"image_start_token_id\":151339,\"image_end_token_id\":151340,\"image_token_id\":151363,"
    "\"video_start_token_id\":151341,\"video_end_token_id\":151342,\"video_token_id\":151364,"
    "\"tie_word_embeddings\":false,\"text_config\":{\"pad_token_id\":151329,"
    "\"vocab_size\":151552,\"eos_token_id\":[151329,151336,151338],\"head_dim\":128,"
    "\"attention_bias\":true,\"attention_dropout\":0.0,\"first_k_dense_replace\":1,"
    "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":10944,"
    "\"max_position_embeddings\":65536,\"model_type\":\"glm4v_moe_text\","
    "\"moe_intermediate_size\":1408,\"n_group\":1,\"n_routed_experts\":128,"
    "\"n_shared_experts\":1,\"norm_topk_prob\":true,\"num_attention_heads\":96,"
    "\"num_experts_per_tok\":8,\"num_hidden_layers\":46,\"num_key_value_heads\":8,"
    "\"num_nextn_predict_layers\":0,\"partial_rotary_factor\":0.5,\"rms_norm_eps\":1e-05,"
    "\"rope_scaling\":{\"rope_type\":\"default\",\"mrope_section\":[8,12,12]},"
    "\"rope_theta\":10000.0,\"routed_scaling_factor\":1.0,\"topk_group\":1,"
    "\"use_cache\":true,\"use_qk_norm\":false},\"vision_config\":{\"attention_bias\":false,"
    "\"depth\":24,\"hidden_act\":\"silu\",\"hidden_size\":1536,\"image_size\":336,"
    "\"in_channels\":3,\"intermediate_size\":10944,\"model_type\":\"glm4v_moe\","
    "\"num_heads\":12,\"out_hidden_size\":4096,\"patch_size\":14,\"rms_norm_eps\":1e-05,"
    "\"spatial_merge_size\":2,\"temporal_patch_size\":2}}";

Test(glm, glm_4_5v_as_published) {
    const fv_model_config c = parse(glm_4_5v);
    const fv_text_config *t = &c.text;
    cr_assert(t->d_head == 128 && t->rope.rotary == 64 && !t->rope.adjacent && !t->qk_norm);
    cr_assert(t->bias_qkv && !t->bias_o && !t->output_norms && !t->fused_ffn && t->bos == -1);
    cr_assert(t->n_expert == 128 && t->n_active == 8 && t->d_expert == 1408 && t->d_shared == 1408);
    cr_assert(t->router.sigmoid && t->router.normed && t->router.scale == 1);
    cr_assert(!t->sparse[0] && t->sparse[1] && t->sparse[45] && t->experts_apart);
    cr_assert(c.image_token == 151363 && c.video_token == 151364 && c.n_eos == 3);
    cr_assert(c.vision.position_side == 24 && c.vision.d_between == 10944);
    cr_assert_eq(count(&c, "text.layers.0.mlp.gate_proj.weight"), 1);
    cr_assert_eq(count(&c, "text.layers.1.mlp.gate_proj.weight"), 0);
    cr_assert_eq(count(&c, "text.layers.45.mlp.experts.127.down_proj.weight"), 1);
    cr_assert_eq(count(&c, "text.layers.0.mlp.experts.0.down_proj.weight"), 0);
    cr_assert_eq(count(&c, "text.layers.1.mlp.gate.e_score_correction_bias"), 1);
    cr_assert_eq(count(&c, "text.layers.1.mlp.shared_experts.up_proj.weight"), 1);
    cr_assert_eq(count(&c, "text.layers.1.mlp.shared_expert_gate.weight"), 0);
    cr_assert_eq(count(&c, "text.layers.1.self_attn.o_proj.bias"), 0);
}

#define MOE(keys) "{\"model_type\":\"glm4v_moe\",\"text_config\":{\"head_dim\":128," keys "}}"

Test(glm, defaults_of_the_experts_are_those_of_the_class) {
    const fv_model_config c = parse(MOE("\"vocab_size\":151552"));
    const fv_text_config *t = &c.text;
    cr_assert_str_eq(t->family, "glm4v_moe_text");
    cr_assert(t->n_layer == 46 && t->n_head == 96 && t->d_ffn == 10944 && t->rope.rotary == 64);
    cr_assert(t->n_expert == 128 && t->n_active == 8 && t->d_shared == 1408 && t->bias_qkv);
}

Test(glm, experts_that_do_not_fit_are_named) {
    refused(MOE("\"n_group\":3"), FV_EDATA, "'n_group' (3)");
    refused(MOE("\"n_group\":128"), FV_EDATA, "at least two each");
    refused(MOE("\"n_group\":32,\"topk_group\":1"), FV_EDATA, "8 of them must be");
    refused(MOE("\"n_group\":2,\"topk_group\":3"), FV_EDATA, "'topk_group' (3)");
    refused(MOE("\"num_experts_per_tok\":129"), FV_EDATA, "'n_routed_experts' 128");
    refused(MOE("\"routed_scaling_factor\":0"), FV_EDATA, "routed_scaling_factor");
    refused(MOE("\"n_shared_experts\":1024,\"moe_intermediate_size\":8192"), FV_EUNSUPPORTED,
            "shared expert of width 8388608");
    refused(MOE("\"n_routed_experts\":1024,\"num_hidden_layers\":33"), FV_EUNSUPPORTED,
            "more than 32768 experts");
    refused("{\"model_type\":\"glm4v_moe\"}", FV_EDATA, "cannot be split");
}

Test(glm, glm_ocr_as_published) {
    const fv_model_config c = parse(glm_ocr);
    const fv_vision_config *v = &c.vision;
    cr_assert(c.text.d_head == 128 && c.text.rope.rotary == 0 && c.text.rope.adjacent);
    cr_assert(!c.text.bias_qkv && c.text.n_predict == 1 && c.text.rope.section[1] == 24);
    cr_assert(v->bias_qkv && v->bias_o && v->bias_mlp && v->qk_norm_heads && !v->norm_patches);
    cr_assert(v->position_side == 0 && v->d_ffn == 4096 && v->d_between == 3 * 1536);
    cr_assert_eq(count(&c, "vision.encoder.layers.23.self_attn.q_norm.weight"), 1);
    cr_assert_eq(count(&c, "vision.encoder.layers.23.mlp.down_proj.bias"), 1);
    cr_assert_eq(count(&c, "vision.embeddings.position_embedding.weight"), 0);
    cr_assert_eq(count(&c, "text.layers.16.input_layernorm.weight"), 0);
}

Test(glm, defaults_are_those_of_the_classes) {
    const fv_model_config c =
        parse("{\"model_type\":\"glm46v\",\"text_config\":{\"partial_rotary_factor\":0.5}}");
    cr_assert_str_eq(c.text.family, "glm4v_text");
    cr_assert(c.image_token == 151343 && c.video_token == 151344 && c.text.n_layer == 40);
    cr_assert(c.text.rope.rotary == 64 && c.text.n_kv == 2);
}

Test(glm, what_does_not_fit_is_named) {
    refused("{\"model_type\":\"glm4v\",\"text_config\":{\"partial_rotary_factor\":0.5},\"vision_"
            "config\":{\"out_hidden_size\":8}}",
            FV_EDATA, "key 'out_hidden_size' is 8, but the text model's 'hidden_size' is 4096");
    refused("{\"model_type\":\"glm4v\",\"text_config\":{\"partial_rotary_factor\":0.5},\"vision_"
            "config\":{\"in_channels\":1}}",
            FV_EUNSUPPORTED, "key 'in_channels' is 1");
    refused("{\"model_type\":\"glm4v\",\"text_config\":{\"partial_rotary_factor\":0.5},\"vision_"
            "config\":{\"rms_norm_eps\":2}}",
            FV_EDATA, "rms_norm_eps");
    refused("{\"model_type\":\"glm4v\",\"text_config\":{\"partial_rotary_factor\":0.5},\"vision_"
            "config\":{\"num_heads\":256}}",
            FV_EUNSUPPORTED, "RoPE by row and column");
    refused("{\"model_type\":\"glm4v\"}", FV_EDATA, "'mrope_section' is absent");
    refused("{\"model_type\":\"glm4v\",\"text_config\":{\"partial_rotary_factor\":2}}",
            FV_EUNSUPPORTED, "partial_rotary_factor");
    refused(
        "{\"model_type\":\"glm4v\",\"text_config\":{\"rope_parameters\":{\"mrope_section\":[1,2,"
        "3]}}}",
        FV_EDATA, "mrope_section");
    refused("{\"model_type\":\"glm4v\",\"text_config\":{\"model_type\":\"glm5v_text\"}}",
            FV_EUNSUPPORTED, "unsupported model_type 'glm5v_text'");
}

Test(glm, only_sizes_by_their_edges_are_limits) {
    static const struct {
        const char *json;
        int32_t least, most; /* 0: refused */
    } files[] = {{"{\"image_processor_type\":\"Glm46VImageProcessor\",\"size\":{\"shortest_edge\":"
                  "12544,\"longest_edge\":9633792},\"patch_size\":14,\"merge_size\":2}",
                  12544, 9633792},
                 {"{}", 112 * 112, 28 * 28 * 15000},
                 {"{\"min_pixels\":1,\"max_pixels\":2}", 112 * 112, 28 * 28 * 15000},
                 {"{\"size\":{\"min_pixels\":1,\"max_pixels\":2}}", 0, 0},
                 {"{\"patch_size\":16}", 0, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fv_layout_config l = {.family = FV_LAYOUT_GLM4V, .tile = 28, .patch = 14, .merge = 2};
        fv_image_config image;
        const fv_status st =
            fv_image_config_parse(files[i].json, strlen(files[i].json), "p.json", &l, &image);
        cr_assert_eq(st, files[i].most ? FV_OK : FV_EUNSUPPORTED, "%s", files[i].json);
        if (st == FV_OK)
            cr_assert(l.pixels_min == files[i].least && l.pixels_max == files[i].most, "%s",
                      files[i].json);
    }
}

/* A layer after the last is of no use, if config.json says that it predicts further ahead. */
Test(glm, layers_that_predict_further_ahead_are_left_alone) {
    static command_result r;
    char dir[256];
    fv_synth_report made;
    fv_checkpoint *ck;
    scratch_dir(dir, sizeof dir);
    cr_assert_eq(fv_synth_write(
                     &(fv_synth_options){.dir = dir, .shape = "tiny", .family = "glm_ocr"}, &made),
                 FV_OK, "%s", fv_last_error());
    command_run(&r,
                "sed -i '0,/\"num_hidden_layers\": *3/s//\"num_hidden_layers\":2/' "
                "'%s/config.json'",
                dir);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "layers.2."), "%s", fv_last_error());
    command_run(&r,
                "sed -i 's/\"num_hidden_layers\":2/\"num_nextn_predict_layers\":1,&/' "
                "'%s/config.json'",
                dir);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_checkpoint_config(ck)->text.n_layer, 2);
    fv_checkpoint_close(ck);
}

/* Each expert is a tensor of the file, used where it lies, or quantized by itself; the router stays exact. */
Test(glm, experts_lie_in_the_files_or_are_quantized) {
    char dir[256];
    fv_synth_report made;
    fv_checkpoint *ck;
    fv_backend be;
    const fv_weights *to;
    scratch_dir(dir, sizeof dir);
    const fv_synth_options o = {.dir = dir, .shape = "tiny", .family = "glm4v_moe"};
    cr_assert_eq(fv_synth_write(&o, &made), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 2}), FV_OK);
    cr_assert_eq(fv_weights_find("int8", &to), FV_OK);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    const fv_text_weights *w = fv_checkpoint_text(ck);
    const fv_text_layer *l = &w->layer[1];
    const int32_t E = fv_checkpoint_config(ck)->text.n_expert;
    const fv_text_expert *last = &w->expert[2 * E - 1];
    cr_assert(!w->expert[E - 1].gate.data, "layer 0 is dense");
    cr_assert(last->gate.data && last->up.data && last->down.data && !last->gate.quant);
    cr_assert(!l->experts_in.data && l->router.data && l->router_bias.cols == E && l->gate.data);
    cr_assert_eq(fv_checkpoint_load(ck, &be, to, NULL, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_checkpoint_quantize(ck, &be, to, NULL, NULL), FV_OK, "%s", fv_last_error());
    cr_assert(last->gate.quant && last->up.quant && last->down.quant && l->gate.quant);
    cr_assert(!l->router.quant && !l->router_bias.quant);
    fv_checkpoint_close(ck);
    fv_backend_close(&be);
}
