/* model/dialect: one tensor, many names. */
#include <criterion/criterion.h>
#include <string.h>

#include "model/dialect.h"

static void is(const char *key, const char *canonical) {
    char out[FV_TENSOR_NAME_MAX] = "";
    cr_assert(fv_dialect_canonical(key, out), "%s is not known", key);
    cr_assert_str_eq(out, canonical);
}

static void is_unknown(const char *key) {
    char out[FV_TENSOR_NAME_MAX];
    cr_assert_not(fv_dialect_canonical(key, out), "%s becomes %s", key, out);
}

Test(dialect, text_tensors_have_one_canonical_name) {
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

Test(dialect, the_head_has_one_canonical_name) {
    is("lm_head.weight", "lm_head.weight");
    is("language_model.lm_head.weight", "lm_head.weight");
    is("model.language_model.lm_head.weight", "lm_head.weight");
}

Test(dialect, tower_and_projector_have_one_canonical_name) {
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

Test(dialect, buffers_and_strangers_are_unknown) {
    is_unknown("language_model.model.layers.0.self_attn.rotary_emb.inv_freq");
    is_unknown("vision_tower.vision_model.embeddings.position_ids");
    is_unknown("image_newline");
    is_unknown("model.image_newline");
    is_unknown("normal.weight");
    is_unknown("");
    is_unknown("model.");
}

Test(dialect, a_name_that_is_too_long_is_unknown) {
    char key[400];
    memset(key, 'x', sizeof key);
    memcpy(key, "vision_tower.", 13);
    key[sizeof key - 1] = '\0';
    is_unknown(key);
    memcpy(key, "model.layers.", 13);
    is_unknown(key);
}

Test(dialect, what_a_dialect_writes_reads_back) {
    static const char *const names[] = {
        "text.embed_tokens.weight",
        "text.layers.0.mlp.up_proj.weight",
        "text.norm.weight",
        "lm_head.weight",
        "vision.embeddings.class_embedding",
        "vision.encoder.layers.7.mlp.fc1.bias",
        "projector.linear_1.weight",
        "projector.linear_2.bias",
    };
    for (int d = 0; d < FV_N_DIALECT; d++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char key[FV_TENSOR_NAME_MAX];
            fv_dialect_key((fv_dialect)d, names[i], key);
            is(key, names[i]);
        }
}

Test(dialect, keys_are_those_that_files_have) {
    static const struct {
        fv_dialect d;
        const char *text, *head, *vision, *projector;
    } want[] = {
        {FV_DIALECT_HUB, "language_model.model.norm.weight", "language_model.lm_head.weight",
         "vision_tower.vision_model.pre_layrnorm.bias", "multi_modal_projector.linear_1.bias"},
        {FV_DIALECT_V4_52, "model.language_model.norm.weight", "lm_head.weight",
         "model.vision_tower.vision_model.pre_layrnorm.bias",
         "model.multi_modal_projector.linear_1.bias"},
        {FV_DIALECT_V5_6, "model.language_model.norm.weight", "lm_head.weight",
         "model.vision_tower.pre_layrnorm.bias", "model.multi_modal_projector.linear_1.bias"},
        {FV_DIALECT_ORIGINAL, "model.norm.weight", "lm_head.weight",
         "model.vision_tower.vision_tower.vision_model.pre_layrnorm.bias",
         "model.mm_projector.0.bias"},
        {FV_DIALECT_BASE, "language_model.norm.weight", "lm_head.weight",
         "vision_tower.vision_model.pre_layrnorm.bias", "multi_modal_projector.linear_1.bias"},
        {FV_DIALECT_BARE, "norm.weight", "lm_head.weight",
         "vision_tower.vision_model.pre_layrnorm.bias", "multi_modal_projector.linear_1.bias"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char key[FV_TENSOR_NAME_MAX];
        fv_dialect_key(want[i].d, "text.norm.weight", key);
        cr_assert_str_eq(key, want[i].text);
        fv_dialect_key(want[i].d, "lm_head.weight", key);
        cr_assert_str_eq(key, want[i].head);
        fv_dialect_key(want[i].d, "vision.pre_layrnorm.bias", key);
        cr_assert_str_eq(key, want[i].vision);
        fv_dialect_key(want[i].d, "projector.linear_1.bias", key);
        cr_assert_str_eq(key, want[i].projector);
    }
}

Test(dialect, names_of_dialects_go_both_ways) {
    for (int d = 0; d < FV_N_DIALECT; d++) {
        fv_dialect back;
        cr_assert_eq(fv_dialect_by_name(fv_dialect_name((fv_dialect)d), &back), FV_OK);
        cr_assert_eq(back, (fv_dialect)d);
    }
    fv_dialect none;
    cr_assert_eq(fv_dialect_by_name("v3", &none), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "dialect 'v3' is unknown: hub, v4.52"));
}
