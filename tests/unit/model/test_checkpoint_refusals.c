/* model/checkpoint: what is refused, with the names and sizes that help. */
#include "tests/unit/model/checkpoint_rig.h"

Test(checkpoint_refusals, a_missing_directory_is_named) {
    checkpoint c = {"/nowhere/at all"};
    refused(&c, FV_ENOTFOUND,
            "'/nowhere/at all' cannot be read as a checkpoint directory: No such file");
}

Test(checkpoint_refusals, missing_weights_are_named) {
    checkpoint c = tiny();
    remove_file(&c, weights);
    refused(&c, FV_ENOTFOUND, "has neither model.safetensors nor model.safetensors.index.json");
}

Test(checkpoint_refusals, a_broken_config_is_named_by_its_path) {
    checkpoint c = tiny();
    write_text(c.dir, "config.json", "{\"model_type\":\"llava\",");
    refused(&c, FV_EDATA, "/config.json: not valid JSON");
    checkpoint d = tiny();
    write_text(d.dir, "generation_config.json", "{\"top_p\":7}");
    refused(&d, FV_EDATA, "/generation_config.json: key 'top_p' is 7");
    checkpoint e = tiny();
    write_text(e.dir, "preprocessor_config.json", "{\"crop_size\":99}");
    refused(&e, FV_EUNSUPPORTED, "/preprocessor_config.json: key 'crop_size' is 99x99");
    write_text(e.dir, "processor_config.json", "{\"image_processor\":{\"crop_size\":98}}");
    refused(&e, FV_EUNSUPPORTED, "/processor_config.json: key 'crop_size' is 98x98");
    write_text(e.dir, "processor_config.json", "[]");
    refused(&e, FV_EDATA, "/processor_config.json: a JSON object is expected");
}

Test(checkpoint_refusals, a_missing_tensor_is_named_as_the_file_would_name_it) {
    static const struct {
        fv_name_mapping d;
        const char *name;
    } want[] = {
        {FV_NAME_MAPPING_HUB, "language_model.model.layers.1.mlp.up_proj.weight"},
        {FV_NAME_MAPPING_V4_52,
         "model.vision_tower.vision_model.encoder.layers.0.layer_norm1.bias"},
        {FV_NAME_MAPPING_V5_6, "model.vision_tower.encoder.layers.0.layer_norm1.bias"},
        {FV_NAME_MAPPING_ORIGINAL, "model.mm_projector.2.weight"},
        {FV_NAME_MAPPING_BASE, "language_model.layers.0.self_attn.o_proj.weight"},
        {FV_NAME_MAPPING_BARE, "norm.weight"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        checkpoint c = made((fv_synth_options){.dtype = FV_BF16, .name_mapping = want[i].d});
        tensor_file_without(c.dir, weights, want[i].name);
        char words[256];
        snprintf(words, sizeof words, "tensor '%s' is missing", want[i].name);
        refused(&c, FV_ENOTFOUND, words);
    }
}

Test(checkpoint_refusals, a_missing_head_says_that_it_is_not_tied) {
    checkpoint c = tiny();
    tensor_file_without(c.dir, weights, "language_model.lm_head.weight");
    refused(&c, FV_ENOTFOUND,
            "'language_model.lm_head.weight' is missing, and config.json does "
            "not tie it");
}

Test(checkpoint_refusals, a_wrong_shape_names_both_shapes_and_the_keys) {
    checkpoint c = tiny();
    set_json(&c, "config.json", "text_config", "intermediate_size", json_integer(161));
    refused(&c, FV_EDATA,
            "tensor 'language_model.model.layers.0.mlp.gate_proj.weight' in model.safetensors has "
            "shape [160, 64]; [161, 64] is expected from config.json's intermediate_size, "
            "hidden_size");
    checkpoint d = tiny();
    set_json(&d, "config.json", "vision_config", "image_size", json_integer(70));
    set_json(&d, "preprocessor_config.json", NULL, "crop_size", json_integer(70));
    refused(&d, FV_EDATA,
            "[17, 32]; [26, 32] is expected from config.json's "
            "vision_config.image_size / patch_size, vision_config.hidden_size");
    checkpoint e = tiny();
    set_json(&e, "config.json", "text_config", "num_key_value_heads", json_integer(1));
    refused(&e, FV_EDATA, "num_key_value_heads * head_dim");
}

Test(checkpoint_refusals, the_number_of_dimensions_counts) {
    checkpoint c = tiny();
    tensor_file *f = tensor_file_read(c.dir, weights);
    file_tensor *t = tensor_file_find(f, "language_model.model.norm.weight");
    t->n_dim = 2;
    t->shape[1] = 1;
    tensor_file_write(f, c.dir, weights, 0);
    tensor_file_free(f);
    refused(&c, FV_EDATA, "has shape [64, 1]; [64] is expected");
}

Test(checkpoint_refusals, a_used_tensor_of_another_dtype_is_named) {
    checkpoint c = tiny();
    tensor_file *f = tensor_file_read(c.dir, weights);
    strcpy(tensor_file_find(f, "multi_modal_projector.linear_1.bias")->dtype, "I16");
    tensor_file_write(f, c.dir, weights, 0);
    tensor_file_free(f);
    refused(&c, FV_EUNSUPPORTED,
            "tensor 'multi_modal_projector.linear_1.bias' in "
            "model.safetensors has dtype I16; the engine reads F32, F16 and "
            "BF16");
}

Test(checkpoint_refusals, one_tensor_under_two_names_is_refused) {
    checkpoint c = tiny();
    tensor_file *f = tensor_file_read(c.dir, weights);
    const file_tensor *t = tensor_file_find(f, "language_model.model.norm.weight");
    tensor_file_add(f, "model.language_model.norm.weight", t->dtype, t->n_dim, t->shape, t->data,
                    t->bytes);
    tensor_file_write(f, c.dir, weights, 0);
    tensor_file_free(f);
    refused(&c, FV_EDATA, "have the same canonical name");
    cr_assert_not_null(strstr(fv_last_error(), "'model.language_model.norm.weight'"));
    cr_assert_not_null(strstr(fv_last_error(), "'language_model.model.norm.weight'"));
}

Test(checkpoint_refusals, a_truncated_file_is_refused_wherever_it_is_cut) {
    checkpoint c = tiny();
    char path[PATH_CAP];
    path_of(&c, weights, path);
    fv_file_map map;
    cr_assert_eq(fv_file_map_open(path, &map), FV_OK);
    off_t whole = (off_t)map.bytes;
    fv_file_map_close(&map);
    const off_t cuts[] = {whole - 1, whole / 2, 100, 8, 7, 1, 0};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        cr_assert_eq(truncate(path, cuts[i]), 0);
        refused(&c, FV_EDATA, "model.safetensors: ");
    }
}
