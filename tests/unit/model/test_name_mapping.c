/* model/name mapping: one tensor, many names. */
#include <criterion/criterion.h>
#include <string.h>

#include "model/families/families.h"
#include "model/families/name_mapping.h"

static void is(const char *key, const char *canonical) {
    char out[FV_TENSOR_NAME_MAX] = "";
    cr_assert(fv_name_mapping_canonical(key, out), "%s is not known", key);
    cr_assert_str_eq(out, canonical);
}

static void is_unknown(const char *key) {
    char out[FV_TENSOR_NAME_MAX];
    cr_assert_not(fv_name_mapping_canonical(key, out), "%s becomes %s", key, out);
}

Test(name_mapping, text_tensors_have_one_canonical_name) {
    const char *want = "text.layers.31.self_attn.q_proj.weight";
    is("language_model.model.layers.31.self_attn.q_proj.weight", want);
    is("model.language_model.layers.31.self_attn.q_proj.weight", want);
    is("language_model.layers.31.self_attn.q_proj.weight", want);
    is("model.layers.31.self_attn.q_proj.weight", want);
    is("layers.31.self_attn.q_proj.weight", want);
    is("model.language_model.model.layers.31.self_attn.q_proj.weight", want);
    is("language_model.model.embed_tokens.weight", "text.embed_tokens.weight");
    is("model.norm.weight", "text.norm.weight");
}

Test(name_mapping, the_head_has_one_canonical_name) {
    is("lm_head.weight", "lm_head.weight");
    is("language_model.lm_head.weight", "lm_head.weight");
    is("model.language_model.lm_head.weight", "lm_head.weight");
}

Test(name_mapping, tower_and_projector_have_one_canonical_name) {
    is("vision_tower.vision_model.pre_layrnorm.bias", "vision.pre_layrnorm.bias");
    is("model.vision_tower.vision_model.pre_layrnorm.bias", "vision.pre_layrnorm.bias");
    is("model.vision_tower.pre_layrnorm.bias", "vision.pre_layrnorm.bias");
    is("vision_tower.pre_layrnorm.bias", "vision.pre_layrnorm.bias");
    is("model.vision_tower.vision_tower.vision_model.pre_layrnorm.bias",
       "vision.pre_layrnorm.bias");
    is("multi_modal_projector.linear_2.weight", "projector.linear_2.weight");
    is("model.multi_modal_projector.linear_2.weight", "projector.linear_2.weight");
    is("model.mm_projector.0.weight", "projector.linear_1.weight");
    is("model.mm_projector.2.bias", "projector.linear_2.bias");
}

Test(name_mapping, families_with_names_of_their_own_have_the_same_canonical_names) {
    is("model.vision_model.post_layernorm.bias", "vision.post_layernorm.bias");
    is("model.connector.modality_projection.proj.weight", "projector.proj.weight");
    is("model.text_model.layers.0.mlp.up_proj.weight", "text.layers.0.mlp.up_proj.weight");
    is("model.vision_tower.embeddings.cls_token", "vision.embeddings.class_embedding");
    is("vision_tower.encoder.layer.12.attention.projection_layer.bias",
       "vision.encoder.layers.12.self_attn.out_proj.bias");
    is("vision_tower.encoder.layer.3.attention.q_norm.weight",
       "vision.encoder.layers.3.self_attn.q_norm.weight");
    is("vision_tower.encoder.layer.3.lambda_2", "vision.encoder.layers.3.scale2");
    is("multi_modal_projector.layer_norm.weight", "projector.norm.weight");
    is("vision_model.embeddings.position_embedding", "vision.embeddings.position_embedding.weight");
    is("vision_model.embeddings.class_embedding", "vision.embeddings.class_embedding");
    is("vision_model.encoder.layers.12.attn.qkv.bias",
       "vision.encoder.layers.12.self_attn.qkv.bias");
    is("vision_model.encoder.layers.12.norm2.weight",
       "vision.encoder.layers.12.layer_norm2.weight");
    is("vision_model.encoder.layers.3.ls1", "vision.encoder.layers.3.scale1");
    is("mlp1.0.bias", "projector.norm.bias");
    is("model.vision_encoder.ln_pre.weight", "vision.pre_layrnorm.weight");
    is("model.vision_projection.patch_merger.merging_layer.weight", "projector.merger.weight");
    is("model.vision_projection.linear_2.weight", "projector.linear_2.weight");
    is("model.visual.downsample.bias", "vision.downsample.bias");
    is("model.visual.merger.post_projection_norm.weight", "projector.post_projection_norm.weight");
    is("model.visual.post_conv_layernorm.weight", "vision.post_conv_layernorm.weight");
    is("mlp1.1.weight", "projector.linear_1.weight");
    is("mlp1.3.bias", "projector.linear_2.bias");
    is("vision_tower.transformer.layers.7.feed_forward.up_proj.weight",
       "vision.encoder.layers.7.mlp.up_proj.weight");
    is("model.vision_tower.ln_pre.weight", "vision.pre_layrnorm.weight");
    is("multi_modal_projector.patch_merger.merging_layer.weight", "projector.merger.weight");
    is("visual.patch_embed.proj.weight", "vision.embeddings.patch_embedding.weight");
    is("model.visual.blocks.31.norm2.bias", "vision.encoder.layers.31.layer_norm2.bias");
    is("visual.blocks.0.attn.qkv.weight", "vision.encoder.layers.0.self_attn.qkv.weight");
    is("model.visual.blocks.0.attn.proj.bias", "vision.encoder.layers.0.self_attn.out_proj.bias");
    is("visual.blocks.5.mlp.gate_proj.weight", "vision.encoder.layers.5.mlp.gate_proj.weight");
    is("model.visual.pos_embed.weight", "vision.embeddings.position_embedding.weight");
    is("model.visual.blocks.2.mlp.linear_fc2.bias", "vision.encoder.layers.2.mlp.fc2.bias");
    is("model.visual.merger.linear_fc1.weight", "projector.linear_1.weight");
    is("model.visual.deepstack_merger_list.1.norm.bias", "deepstack.1.norm.bias");
    is("visual.deepstack_merger_list.2.linear_fc2.weight", "deepstack.2.linear_2.weight");
    is("visual.merger.ln_q.weight", "projector.norm.weight");
    is("model.visual.merger.mlp.0.weight", "projector.linear_1.weight");
    is("visual.merger.mlp.2.bias", "projector.linear_2.bias");
    is("model.language_model.layers.3.mlp.up_proj.weight", "text.layers.3.mlp.up_proj.weight");
    is("model.mm_projector.mlp.mlp.2.bias", "projector.linear_2.bias");
    is("model.mm_projector.peg.peg.0.weight", "projector.peg.weight");
    is("image_newline", "newline");
    is("model.image_newline", "newline");
}

Test(name_mapping, buffers_are_no_tensors_and_strangers_keep_their_names) {
    is_unknown("language_model.model.layers.0.self_attn.rotary_emb.inv_freq");
    is_unknown("vision_tower.vision_model.embeddings.position_ids");
    is("normal.weight", "normal.weight");
    is("", "");
    is("model.", "model.");
}

Test(name_mapping, a_name_that_is_too_long_is_cut) {
    char key[400], out[FV_TENSOR_NAME_MAX];
    memset(key, 'x', sizeof key);
    memcpy(key, "vision_tower.", 13);
    key[sizeof key - 1] = '\0';
    cr_assert(fv_name_mapping_canonical(key, out));
    cr_assert_eq(strlen(out), FV_TENSOR_NAME_MAX - 1);
}

Test(name_mapping, what_a_name_mapping_writes_reads_back) {
    static const char *const names[] = {
        "text.embed_tokens.weight",
        "text.layers.0.mlp.up_proj.weight",
        "text.norm.weight",
        "lm_head.weight",
        "vision.embeddings.class_embedding",
        "vision.encoder.layers.7.mlp.fc1.bias",
        "projector.linear_1.weight",
        "projector.linear_2.bias",
        "newline",
    };
    for (int d = 0; d < FV_N_NAME_MAPPING; d++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char key[FV_TENSOR_NAME_MAX];
            fv_name_mapping_key((fv_name_mapping)d, NULL, names[i], key);
            is(key, names[i]);
        }
}

Test(name_mapping, keys_are_those_that_files_have) {
    static const struct {
        fv_name_mapping d;
        const char *text, *head, *vision, *projector;
    } want[] = {
        {FV_NAME_MAPPING_HUB, "language_model.model.norm.weight", "language_model.lm_head.weight",
         "vision_tower.vision_model.pre_layrnorm.bias", "multi_modal_projector.linear_1.bias"},
        {FV_NAME_MAPPING_V4_52, "model.language_model.norm.weight", "lm_head.weight",
         "model.vision_tower.vision_model.pre_layrnorm.bias",
         "model.multi_modal_projector.linear_1.bias"},
        {FV_NAME_MAPPING_V5_6, "model.language_model.norm.weight", "lm_head.weight",
         "model.vision_tower.pre_layrnorm.bias", "model.multi_modal_projector.linear_1.bias"},
        {FV_NAME_MAPPING_ORIGINAL, "model.norm.weight", "lm_head.weight",
         "model.vision_tower.vision_tower.vision_model.pre_layrnorm.bias",
         "model.mm_projector.0.bias"},
        {FV_NAME_MAPPING_BASE, "language_model.norm.weight", "lm_head.weight",
         "vision_tower.vision_model.pre_layrnorm.bias", "multi_modal_projector.linear_1.bias"},
        {FV_NAME_MAPPING_BARE, "norm.weight", "lm_head.weight",
         "vision_tower.vision_model.pre_layrnorm.bias", "multi_modal_projector.linear_1.bias"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char key[FV_TENSOR_NAME_MAX];
        fv_name_mapping_key(want[i].d, NULL, "text.norm.weight", key);
        cr_assert_str_eq(key, want[i].text);
        fv_name_mapping_key(want[i].d, NULL, "lm_head.weight", key);
        cr_assert_str_eq(key, want[i].head);
        fv_name_mapping_key(want[i].d, NULL, "vision.pre_layrnorm.bias", key);
        cr_assert_str_eq(key, want[i].vision);
        fv_name_mapping_key(want[i].d, NULL, "projector.linear_1.bias", key);
        cr_assert_str_eq(key, want[i].projector);
    }
}

Test(name_mapping, names_of_name_mappings_go_both_ways) {
    for (int d = 0; d < FV_N_NAME_MAPPING; d++) {
        fv_name_mapping back;
        cr_assert_eq(fv_name_mapping_by_name(fv_name_mapping_name((fv_name_mapping)d), &back),
                     FV_OK);
        cr_assert_eq(back, (fv_name_mapping)d);
    }
    fv_name_mapping none;
    cr_assert_eq(fv_name_mapping_by_name("v3", &none), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "unknown dialect 'v3'; available: hub, v4.52"));
}

static void is_written(const fv_tensor_names *names, const char *canonical, const char *key) {
    char out[FV_TENSOR_NAME_MAX];
    fv_name_mapping_key(FV_NAME_MAPPING_HUB, names, canonical, out);
    cr_assert_str_eq(out, key);
    is(key, canonical);
}

Test(name_mapping, families_with_names_of_their_own_are_written_so) {
    const fv_tensor_names *chat = fv_family_find("internvl_chat")->names,
                          *glm = fv_family_find("glm_ocr")->names,
                          *paddle = fv_family_find("paddleocr_vl")->names,
                          *lighton = fv_family_find("lighton_ocr")->names;
    is_written(chat, "vision.encoder.layers.2.layer_norm1.bias",
               "vision_model.encoder.layers.2.norm1.bias");
    is_written(chat, "vision.encoder.layers.2.self_attn.qkv.weight",
               "vision_model.encoder.layers.2.attn.qkv.weight");
    is_written(chat, "vision.encoder.layers.2.self_attn.out_proj.weight",
               "vision_model.encoder.layers.2.attn.proj.weight");
    is_written(chat, "vision.encoder.layers.2.scale2", "vision_model.encoder.layers.2.ls2");
    is_written(chat, "vision.embeddings.position_embedding.weight",
               "vision_model.embeddings.position_embedding");
    is_written(chat, "projector.norm.weight", "mlp1.0.weight");
    is_written(chat, "projector.linear_2.bias", "mlp1.3.bias");
    is_written(glm, "vision.encoder.layers.0.self_attn.q_norm.weight",
               "model.visual.blocks.0.attn.q_norm.weight");
    is_written(glm, "projector.post_projection_norm.bias",
               "model.visual.merger.post_projection_norm.bias");
    is_written(lighton, "projector.norm.weight", "model.vision_projection.norm.weight");
    is_written(lighton, "vision.encoder.layers.0.layer_norm2.weight",
               "model.vision_encoder.transformer.layers.0.ffn_norm.weight");
    is_written(paddle, "projector.norm.bias", "model.projector.pre_norm.bias");
    is_written(paddle, "vision.encoder.layers.0.self_attn.q_proj.weight",
               "model.visual.vision_model.encoder.layers.0.self_attn.q_proj.weight");
    is("mlp_AR.linear_1.weight", "projector.linear_1.weight");
    is("visual.vision_model.head.probe", "vision.head.probe");
}
