/* model/families/gemma4.c, gemma4_text.c: Gemma 4's config.json and processor; model/net/heads_internal.h. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/families/tensor_specs.h"
#include "model/net/rope.h"

/* Fields as published for 31B; 12B's differ in type, sizes and vision_config. */
#define TEXT(type, keys)                                                                           \
    "{\"attention_bias\":false,\"attention_k_eq_v\":true,\"final_logit_softcapping\":30.0,"        \
    "\"global_head_dim\":512,\"head_dim\":256,\"hidden_activation\":\"gelu_pytorch_tanh\","        \
    "\"hidden_size\":5376,\"hidden_size_per_layer_input\":0,\"intermediate_size\":21504,"          \
    "\"max_position_embeddings\":262144,\"model_type\":\"" type "\",\"num_attention_heads\":32,"   \
    "\"num_global_key_value_heads\":4,\"num_hidden_layers\":60,\"num_key_value_heads\":16,"        \
    "\"num_kv_shared_layers\":0,\"pad_token_id\":0,\"rope_parameters\":{\"full_attention\":{"      \
    "\"partial_rotary_factor\":0.25,\"rope_theta\":1000000.0,\"rope_type\":\"proportional\"},"     \
    "\"sliding_attention\":{\"rope_theta\":10000.0,\"rope_type\":\"default\"}},"                   \
    "\"sliding_window\":1024,\"use_bidirectional_attention\":\"vision\","                          \
    "\"vocab_size\":262144" keys "}"
#define TOWER                                                                                      \
    "\"vision_config\":{\"head_dim\":72,\"hidden_size\":1152,\"intermediate_size\":4304,"          \
    "\"model_type\":\"gemma4_vision\",\"num_attention_heads\":16,\"num_hidden_layers\":27,"        \
    "\"num_key_value_heads\":16,\"patch_size\":16,\"pooling_kernel_size\":3,"                      \
    "\"position_embedding_size\":10240,\"standardize\":true"
#define MODEL(keys)                                                                                \
    "{\"model_type\":\"gemma4\",\"text_config\":" TEXT("gemma4_text", keys) "," TOWER "}}"

static fv_model_config parse(const char *json) {
    fv_model_config c;
    cr_assert_eq(fv_config_parse(json, strlen(json), "config.json", &c), FV_OK, "%s",
                 fv_last_error());
    return c;
}

static void refused(const char *json, fv_status st, const char *why) {
    fv_model_config c;
    cr_expect_eq(fv_config_parse(json, strlen(json), "config.json", &c), st);
    cr_expect(strstr(fv_last_error(), why), "%s", fv_last_error());
}

/* Shape of a tensor as text, "" if the network has none of this name. */
static const char *shape(const fv_model_config *c, const char *name) {
    static char text[64];
    fv_tensor_spec *spec;
    int32_t n;
    text[0] = '\0';
    cr_assert_eq(fv_tensor_specs_build(c, true, &spec, &n), FV_OK);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < spec[i].n_dim && !strcmp(spec[i].name, name); k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", k ? " " : "",
                     (int)spec[i].shape[k]);
    free(spec);
    return text;
}

Test(gemma4, layers_have_heads_of_two_sizes_and_the_store_one) {
    const fv_model_config c = parse(MODEL(""));
    const fv_text_config *t = &c.text;
    cr_assert(t->slide_d == 256 && t->slide_kv == 16 && t->full_kv == 4 && t->d_head == 512);
    cr_assert_eq(t->n_kv, 8, "two heads of a sliding layer side by side");
    cr_assert(t->slides[0] && t->slides[4] && !t->slides[5] && !t->slides[59] && t->window == 1024);
    cr_assert(t->image_whole && t->image_slides && t->tied_head && t->logits_cap == 30);
    cr_assert(t->value_is_key && t->value_norm && t->layer_scale && t->post_norms);
    cr_assert_not(t->norm_plus_one);
    cr_assert(t->rope.angles == 64 && t->rope_slides.beside == 2 && t->rope_slides.theta == 1e4);
    cr_assert_eq(fv_attention_scale(t), 1);
    cr_assert_str_eq(shape(&c, "text.layers.0.self_attn.q_proj.weight"), "8192 5376");
    cr_assert_str_eq(shape(&c, "text.layers.0.self_attn.v_proj.weight"), "4096 5376");
    cr_assert_str_eq(shape(&c, "text.layers.0.self_attn.k_norm.weight"), "256");
    cr_assert_str_eq(shape(&c, "text.layers.5.self_attn.q_proj.weight"), "16384 5376");
    cr_assert_str_eq(shape(&c, "text.layers.5.self_attn.k_proj.weight"), "2048 5376");
    cr_assert_str_eq(shape(&c, "text.layers.5.self_attn.v_proj.weight"), "");
    cr_assert_str_eq(shape(&c, "text.layers.5.self_attn.o_proj.weight"), "5376 16384");
    cr_assert_str_eq(shape(&c, "text.layers.5.layer_scalar"), "1");
    cr_assert_str_eq(shape(&c, "vision.embeddings.position_embedding.weight"), "2 10240 1152");
    cr_assert_str_eq(shape(&c, "vision.embeddings.patch_embedding.weight"), "1152 768");
    cr_assert_str_eq(shape(&c, "vision.std_scale"), "1152");
    cr_assert_str_eq(shape(&c, "projector.proj.weight"), "5376 1152");
}

/* Fields as published for 26B-A4B. */
Test(gemma4, experts_are_beside_the_dense_ffn_of_every_layer) {
    const fv_model_config c = parse(MODEL(",\"enable_moe_block\":true,\"num_experts\":128,\"top_k_"
                                          "experts\":8,\"moe_intermediate_size\":"
                                          "704"));
    const fv_text_config *t = &c.text;
    cr_assert(t->dense_beside && t->sparse[0] && t->sparse[59] && !t->experts_transposed);
    cr_assert(t->n_expert == 128 && t->n_active == 8 && t->d_expert == 704);
    cr_assert_eq(fv_text_ffn_width(t, 3), 8 * 704 + 21504);
    cr_assert_str_eq(shape(&c, "text.layers.3.mlp.gate_proj.weight"), "21504 5376");
    cr_assert_str_eq(shape(&c, "text.layers.3.experts.gate_up_proj"), "128 1408 5376");
    cr_assert_str_eq(shape(&c, "text.layers.3.experts.down_proj"), "128 5376 704");
    cr_assert_str_eq(shape(&c, "text.layers.3.router.proj.weight"), "128 5376");
    cr_assert_str_eq(shape(&c, "text.layers.3.router.per_expert_scale"), "128");
    cr_assert_str_eq(shape(&c, "text.layers.3.mlp.gate.weight"), "");
}

/* Fields as published for E2B: the last 20 of 35 layers share. */
#define SMALL(keys)                                                                                \
    "{\"model_type\":\"gemma4\",\"text_config\":{\"model_type\":\"gemma4_text\",\"hidden_size\":"  \
    "1536,"                                                                                        \
    "\"intermediate_size\":6144,\"num_hidden_layers\":35,\"num_attention_heads\":8,"               \
    "\"num_key_value_heads\":1,\"head_dim\":256,\"global_head_dim\":512,"                          \
    "\"use_double_wide_mlp\":true,\"num_kv_shared_layers\":20,\"layer_types\":[" FIVES FIVES FIVES \
        FIVES FIVES FIVES SLIDES SLIDES SLIDES SLIDES "\"full_attention\"]" keys "}," TOWER        \
    ",\"use_clipped_linears\":true}}"
#define SLIDES "\"sliding_attention\","
#define FIVES SLIDES SLIDES SLIDES SLIDES "\"full_attention\","

Test(gemma4, layers_that_share_are_no_layers_of_the_store) {
    const fv_model_config c = parse(SMALL(""));
    const fv_text_config *t = &c.text;
    cr_assert(t->n_layer == 15 && t->n_sharer == 20 && fv_text_layers(t) == 35);
    cr_assert(t->d_head == 512 && t->n_kv == 1 && t->window == 512 && !t->image_whole);
    cr_assert_eq(fv_text_kv_layer(t, 7), 7);
    cr_assert_eq(fv_text_kv_layer(t, 15), 13, "the last that slides");
    cr_assert_eq(fv_text_kv_layer(t, 34), 14, "the last that does not");
    cr_assert_eq(fv_text_first_shared(t), 13);
    cr_assert_str_eq(shape(&c, "text.layers.14.self_attn.k_proj.weight"), "512 1536");
    cr_assert_str_eq(shape(&c, "text.layers.14.mlp.gate_proj.weight"), "6144 1536");
    cr_assert_str_eq(shape(&c, "text.layers.15.self_attn.q_proj.weight"), "2048 1536");
    cr_assert_str_eq(shape(&c, "text.layers.19.self_attn.q_proj.weight"), "4096 1536");
    cr_assert_str_eq(shape(&c, "text.layers.15.self_attn.k_proj.weight"), "");
    cr_assert_str_eq(shape(&c, "text.layers.15.self_attn.v_proj.weight"), "");
    cr_assert_str_eq(shape(&c, "text.layers.15.self_attn.k_norm.weight"), "");
    cr_assert_str_eq(shape(&c, "text.layers.15.mlp.down_proj.weight"), "1536 12288");
}

Test(gemma4, each_layer_has_an_embedding_of_its_own) {
    const fv_model_config c = parse(SMALL(""));
    cr_assert_eq(c.text.d_input, 256);
    cr_assert_str_eq(shape(&c, "text.embed_tokens_per_layer.weight"), "262144 8960");
    cr_assert_str_eq(shape(&c, "text.per_layer_model_projection.weight"), "8960 1536");
    cr_assert_str_eq(shape(&c, "text.per_layer_projection_norm.weight"), "256");
    cr_assert_str_eq(shape(&c, "text.layers.34.per_layer_input_gate.weight"), "256 1536");
    cr_assert_str_eq(shape(&c, "text.layers.34.per_layer_projection.weight"), "1536 256");
    cr_assert_str_eq(shape(&c, "text.layers.34.post_per_layer_input_norm.weight"), "1536");
    cr_assert(c.vision.clipped);
    refused(SMALL(",\"vocab_size_per_layer_input\":99"), FV_EUNSUPPORTED,
            "'vocab_size_per_layer_input' (99)");
}

Test(gemma4, names_of_bounds_have_no_level_of_a_linear_layer) {
    static const char *const names[][2] = {
        {"vision.encoder.layers.3.self_attn.out_proj.input_min",
         "model.vision_tower.encoder.layers.3.self_attn.o_proj.input_min"},
        {"vision.encoder.layers.3.self_attn.out_proj.weight",
         "model.vision_tower.encoder.layers.3.self_attn.o_proj.linear.weight"},
        {"vision.encoder.layers.0.mlp.up_proj.output_max",
         "model.vision_tower.encoder.layers.0.mlp.up_proj.output_max"},
        {"text.embed_tokens_per_layer.weight",
         "model.language_model.embed_tokens_per_layer.weight"}};
    const fv_model_config c = parse(SMALL(""));
    char out[FV_TENSOR_NAME_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fv_name_mapping_key(FV_NAME_MAPPING_HUB, c.family->names, names[i][0], out);
        cr_expect_str_eq(out, names[i][1]);
        cr_expect(fv_name_mapping_canonical(names[i][1], out));
        cr_expect_str_eq(out, names[i][0]);
    }
}

Test(gemma4, heads_of_full_layers_may_be_in_a_list_of_layers) {
    static const char json[] =
        "{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":8,\"hidden_size_per_layer_input\":0,"
        "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"per_layer_config\":{\"%d\":{"
        "\"head_dim\":16,\"num_key_value_heads\":1}}}";
    char text[512];
    snprintf(text, sizeof text, json, 1);
    const fv_model_config c = parse(text);
    cr_assert(c.text.d_head == 16 && c.text.full_kv == 1 && c.text.slide_kv == 2);
    cr_assert(c.text.n_kv == 1 && !c.text.image_whole && c.text.window == 512);
    snprintf(text, sizeof text, json, 0);
    refused(text, FV_EUNSUPPORTED, "layer 0 has 1 heads of 16");
}

Test(gemma4, twelve_b_has_a_matrix_in_place_of_a_tower) {
    const fv_model_config c = parse("{\"model_type\":\"gemma4_unified\",\"text_config\":" TEXT(
        "gemma4_unified_text", "") ",\"vision_config\":{\"mm_embed_dim\":3840,\"patch_size\":16}}");
    const fv_vision_config *v = &c.vision;
    cr_assert(v->n_layer == 0 && v->patch == 48 && v->merge == 1 && v->patch_norms);
    cr_assert(v->position_axis == 1120 && v->ln_eps == 1e-5F && v->projector_eps == 1e-6F);
    cr_assert_str_eq(shape(&c, "vision.embeddings.position_embedding.weight"), "1120 2 3840");
    cr_assert_str_eq(shape(&c, "vision.patch_ln1.weight"), "6912");
    cr_assert_str_eq(shape(&c, "vision.embeddings.patch_embedding.weight"), "3840 6912");
}

/* Refuses MODEL with `from` replaced by `to`. */
static void refused_with(const char *from, const char *to, fv_status st, const char *why) {
    static const char json[] = MODEL("");
    char text[2 * sizeof json];
    const char *at = strstr(json, from);
    cr_assert(at, "%s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    refused(text, st, why);
}

Test(gemma4, what_the_engine_lacks_is_refused_by_name) {
    refused(MODEL(",\"enable_moe_block\":true"), FV_EDATA, "'top_k_experts' (0)");
    refused_with("kv_shared_layers\":0", "kv_shared_layers\":18", FV_EUNSUPPORTED,
                 "'use_bidirectional_attention' is 'vision'");
    refused_with("kv_shared_layers\":0", "kv_shared_layers\":60", FV_EDATA, "is 60 of 60 layers");
    refused_with("kv_shared_layers\":0", "kv_shared_layers\":56", FV_EDATA,
                 "layer 5 sees everything, and none of the 4 layers");
    refused_with("\"vision\"", "\"all\"", FV_EUNSUPPORTED, "'all'");
    refused_with(":512", ":384", FV_EUNSUPPORTED, "a multiple of the smaller");
    refused_with("num_global_key_value_heads\":4", "num_global_key_value_heads\":3",
                 FV_EUNSUPPORTED, "heads that share out");
    refused_with("\"proportional\"", "\"yarn\"", FV_EUNSUPPORTED,
                 "unsupported rope_type 'yarn' of full_attention");
    refused_with("softcapping\":30.0", "softcapping\":-1", FV_EDATA, "'final_logit_softcapping'");
    refused_with("\"head_dim\":72", "\"head_dim\":64", FV_EUNSUPPORTED,
                 "'head_dim' a multiple of 4");
}

Test(gemma4, the_frequencies_of_a_head_are_those_of_each_head_in_it) {
    const fv_text_config t = parse(MODEL("")).text;
    fv_rope full, slides;
    fv_rope_init(&full, &t.rope, t.d_head);
    fv_rope_init(&slides, &t.rope_slides, t.d_head);
    cr_assert(full.half == 256 && full.freq[63] > 0 && full.freq[64] == 0 && full.freq[255] == 0);
    cr_assert_float_eq(full.freq[32], 1 / powf(1e6F, 64.0F / 512), 1e-6);
    for (int i = 0; i < 128; i++) cr_assert_eq(slides.freq[i], slides.freq[i + 128]);
    cr_assert_float_eq(slides.freq[64], 1 / powf(1e4F, 0.5F), 1e-6);
}

/* Width, height, max_soft_tokens; the sizes that transformers gives. */
Test(gemma4, images_keep_their_aspect_ratio_within_a_number_of_tokens) {
    static const int32_t sizes[][5] = {
        {640, 480, 280, 912, 672},   {480, 640, 280, 672, 912},   {1, 1, 70, 384, 384},
        {4000, 30, 280, 9264, 48},   {30, 4000, 1120, 96, 18528}, {1920, 1080, 1120, 2112, 1200},
        {97, 1000, 70, 96, 1248},    {5000, 20, 70, 3360, 48},    {3333, 17, 140, 6720, 48},
        {800, 800, 560, 1104, 1104},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int32_t *s = sizes[i];
        fv_layout_config c = parse(MODEL("")).layout;
        fv_image_config image;
        fv_layout l;
        char json[64];
        snprintf(json, sizeof json, "{\"max_soft_tokens\":%d}", s[2]);
        cr_assert_eq(fv_image_config_parse(json, strlen(json), "p.json", &c, &image), FV_OK, "%s",
                     fv_last_error());
        cr_assert(!image.do_normalize && image.do_rescale && image.resample == 3);
        cr_assert_eq(fv_layout_image(&c, s[0], s[1], 1, &l), FV_OK, "%s", fv_last_error());
        cr_expect(l.tile.w == s[3] && l.tile.h == s[4], "%d x %d: %d x %d", s[0], s[1], l.tile.w,
                  l.tile.h);
        cr_expect_eq(l.n_visual, s[3] / 48 * (s[4] / 48));
        cr_expect_leq(l.n_visual, fv_layout_tokens_max(&c, 1));
        char text[FV_LAYOUT_TEXT_MAX];
        cr_assert_eq(fv_layout_text(&c, &l, "<|image|>", text), FV_OK);
        cr_assert_str_eq(text, "<|image><|image|><image|>");
    }
}

Test(gemma4, a_processor_of_other_tokens_is_refused) {
    static const char *const files[][2] = {
        {"{\"max_soft_tokens\":100}", "it must be 70, 140, 280, 560 or 1120"},
        {"{\"patch_size\":14}", "make tokens of another size than config.json, 48 pixels"}};
    for (int i = 0; i < 2; i++) {
        fv_layout_config c = parse(MODEL("")).layout;
        fv_image_config image;
        cr_assert_neq(fv_image_config_parse(files[i][0], strlen(files[i][0]), "p.json", &c, &image),
                      FV_OK);
        cr_assert(strstr(fv_last_error(), files[i][1]), "%s", fv_last_error());
    }
}
