/* model/checkpoint: a tower in a directory of its own. */
#include "tests/unit/model/checkpoint_rig.h"

static const char tower_name[] = "clip-vit-synthetic";

static checkpoint mobilevlm(void) {
    return made((fv_synth_options){.shape = "tiny", .family = "mobilevlm", .dtype = FV_BF16});
}

static checkpoint tower_of(const checkpoint *c) {
    checkpoint t;
    path_of(c, tower_name, t.dir);
    return t;
}

Test(checkpoint_tower, a_tower_is_found_inside_of_the_checkpoint_and_beside_it) {
    checkpoint c = mobilevlm();
    char first[17], second[17], beside[PATH_CAP];
    fv_checkpoint *ck = opened(&c);
    cr_assert(fv_checkpoint_vision(ck)->patch.data && fv_checkpoint_projector(ck)->peg.cols == 9);
    cr_assert(fv_checkpoint_config(ck)->vision.d_model == 32);
    fv_checkpoint_close(ck);
    fingerprint_of(&c, first);
    path_of(&c, "../clip-of-its-own", beside);
    set_json(&c, "config.json", NULL, "mm_vision_tower", json_string("/elsewhere/clip-of-its-own"));
    refused(&c, FV_ENOTFOUND, "clip-of-its-own', a checkpoint of its own, and there is neither");
    refused(&c, FV_ENOTFOUND, "preprocessor_config.json and, unless these weights hold the tower");
    cr_assert_eq(rename(tower_of(&c).dir, beside), 0);
    fingerprint_of(&c, second);
    cr_assert_str_neq(first, second, "config.json differs");
    cr_assert_eq(rename(beside, tower_of(&c).dir), 0);
}

Test(checkpoint_tower, the_config_of_a_tower_is_part_of_the_fingerprint) {
    checkpoint c = mobilevlm(), t = tower_of(&c);
    char first[17], second[17];
    fingerprint_of(&c, first);
    set_json(&t, "config.json", NULL, "hidden_act", json_string("gelu"));
    fingerprint_of(&c, second);
    cr_assert_str_neq(first, second);
}

/* Files of a whole CLIP model: the tower's config is a part, and there are other tensors. */
Test(checkpoint_tower, a_tower_may_be_a_part_of_a_clip_model) {
    checkpoint c = mobilevlm(), t = tower_of(&c);
    char path[PATH_CAP];
    path_of(&t, "config.json", path);
    json_t *config = json_load_file(path, 0, NULL);
    json_t *whole = json_pack("{s:s, s:o}", "model_type", "clip", "vision_config", config);
    cr_assert_eq(json_dump_file(whole, path, 0), 0);
    json_decref(whole);
    tensor_file *f = tensor_file_read(t.dir, weights);
    const int64_t one = 1;
    const float scale = 4;
    tensor_file_add(f, "logit_scale", "F32", 0, &one, &scale, sizeof scale);
    tensor_file_add(f, "text_model.final_layer_norm.bias", "F32", 1, &one, &scale, sizeof scale);
    tensor_file_write(f, t.dir, weights, 0);
    tensor_file_free(f);
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint_tower, a_checkpoint_that_holds_its_tower_needs_no_weights_in_the_towers_directory) {
    checkpoint c = mobilevlm(), t = tower_of(&c);
    tensor_file *own = tensor_file_read(c.dir, weights), *f = tensor_file_read(t.dir, weights);
    for (int32_t i = 0; i < f->n; i++) {
        const file_tensor *x = &f->tensor[i];
        char name[sizeof x->name];
        snprintf(name, sizeof name, "model.vision_tower.vision_tower.%.80s", x->name);
        tensor_file_add(own, name, x->dtype, x->n_dim, x->shape, x->data, x->bytes);
    }
    remove_file(&t, weights);
    refused(&c, FV_ENOTFOUND, "clip-vit-synthetic has neither model.safetensors nor");
    tensor_file_write(own, c.dir, weights, 0);
    tensor_file_free(own);
    tensor_file_free(f);
    fv_checkpoint *ck = opened(&c);
    cr_assert(fv_checkpoint_vision(ck)->patch.data);
    fv_checkpoint_close(ck);
    remove_file(&t, "preprocessor_config.json");
    refused(&c, FV_ENOTFOUND, "preprocessor_config.json");
}

Test(checkpoint_tower, the_name_of_a_tower_leads_to_no_other_place) {
    static const char *const names[] = {"..", "x/..", "", "openai/", "/etc/.hidden"};
    checkpoint c = mobilevlm();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        set_json(&c, "config.json", NULL, "mm_vision_tower", json_string(names[i]));
        refused(&c, FV_EDATA, "it must end with the name of a directory");
    }
}
