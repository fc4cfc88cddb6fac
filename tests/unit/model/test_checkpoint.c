/* model/checkpoint: valid directories, and damaged ones. Each test writes a small synthetic
 * checkpoint, changes something, and opens it. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "model/checkpoint.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };
static const char weights[] = "model.safetensors";

typedef struct checkpoint {
    char dir[PATH_CAP];
} checkpoint;

static checkpoint made(fv_synth_options o) {
    checkpoint c;
    scratch_dir(c.dir, sizeof c.dir);
    o.dir = c.dir;
    if (!o.config_file && !o.shape) o.shape = "tiny-gqa";
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    return c;
}

static checkpoint tiny(void) { return made((fv_synth_options){.dtype = FV_BF16}); }

static fv_checkpoint *opened(const checkpoint *c) {
    fv_checkpoint *ck = NULL;
    cr_assert_eq(fv_checkpoint_open(c->dir, &ck), FV_OK, "%s", fv_last_error());
    return ck;
}

static void refused(const checkpoint *c, fv_status want, const char *words) {
    fv_checkpoint *ck = NULL;
    fv_status st = fv_checkpoint_open(c->dir, &ck);
    cr_assert_eq(st, want, "%s: %s", fv_status_name(st), fv_last_error());
    cr_assert_null(ck);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static void path_of(const checkpoint *c, const char *name, char path[PATH_CAP]) {
    cr_assert_eq(fv_path_join(c->dir, name, path, PATH_CAP), FV_OK);
}

static void remove_file(const checkpoint *c, const char *name) {
    char path[PATH_CAP];
    path_of(c, name, path);
    cr_assert_eq(unlink(path), 0, "%s", path);
}

static void rename_file(const checkpoint *c, const char *from, const char *to) {
    char a[PATH_CAP], b[PATH_CAP];
    path_of(c, from, a);
    path_of(c, to, b);
    cr_assert_eq(rename(a, b), 0);
}

/* Sets one key of a JSON file; part NULL = top level. */
static void set_json(const checkpoint *c, const char *name, const char *part, const char *key,
                     json_t *value) {
    char path[PATH_CAP];
    path_of(c, name, path);
    json_t *root = json_load_file(path, 0, NULL);
    cr_assert_not_null(root);
    json_object_set_new(part ? json_object_get(root, part) : root, key, value);
    cr_assert_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

/* ---- a tower in a directory of its own ---- */

static const char tower_name[] = "clip-vit-synthetic";

static checkpoint mobilevlm(void) {
    return made((fv_synth_options){.shape = "tiny", .family = "mobilevlm", .dtype = FV_BF16});
}

static checkpoint tower_of(const checkpoint *c) {
    checkpoint t;
    path_of(c, tower_name, t.dir);
    return t;
}

static void fingerprint_of(const checkpoint *c, char out[17]) {
    fv_checkpoint *ck = opened(c);
    fv_checkpoint_fingerprint(ck, out);
    fv_checkpoint_close(ck);
}

Test(checkpoint, a_tower_is_found_inside_of_the_checkpoint_and_beside_it) {
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

Test(checkpoint, the_config_of_a_tower_is_part_of_the_fingerprint) {
    checkpoint c = mobilevlm(), t = tower_of(&c);
    char first[17], second[17];
    fingerprint_of(&c, first);
    set_json(&t, "config.json", NULL, "hidden_act", json_string("gelu"));
    fingerprint_of(&c, second);
    cr_assert_str_neq(first, second);
}

/* Files of a whole CLIP model: the tower's config is a part, and there are other tensors. */
Test(checkpoint, a_tower_may_be_a_part_of_a_clip_model) {
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

Test(checkpoint, a_checkpoint_that_holds_its_tower_needs_no_weights_in_the_towers_directory) {
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

Test(checkpoint, the_name_of_a_tower_leads_to_no_other_place) {
    static const char *const names[] = {"..", "x/..", "", "openai/", "/etc/.hidden"};
    checkpoint c = mobilevlm();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        set_json(&c, "config.json", NULL, "mm_vision_tower", json_string(names[i]));
        refused(&c, FV_EDATA, "it must end with the name of a directory");
    }
}

/* ---- detection --------------------------------------------------------------------------- */

Test(checkpoint, every_view_has_its_shape) {
    checkpoint c = made((fv_synth_options){.shape = "tiny-gqa", .dtype = FV_F16});
    fv_checkpoint *ck = opened(&c);
    const fv_text_weights *t = fv_checkpoint_text(ck);
    const fv_text_layer *l = &t->layer[1];
    const struct {
        const fv_tensor *t;
        int32_t rows, cols;
    } want[] = {
        {&t->embed, 512, 64},  {&t->head, 512, 64}, {&t->norm, 1, 64}, {&l->attn_norm, 1, 64},
        {&l->q, 128, 64},      {&l->k, 64, 64},     {&l->v, 64, 64},   {&l->o, 64, 128},
        {&l->mlp_norm, 1, 64}, {&l->gate, 160, 64}, {&l->up, 160, 64}, {&l->down, 64, 160},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_assert_not_null(want[i].t->data, "%zu", i);
        cr_assert_eq(want[i].t->rows, want[i].rows, "%zu", i);
        cr_assert_eq(want[i].t->cols, want[i].cols, "%zu", i);
        cr_assert_eq(want[i].t->ld, want[i].cols);
        cr_assert_eq(want[i].t->dtype, FV_F16);
    }
    cr_assert_null(l->q_bias.data);
    cr_assert_null(l->gate_bias.data);
    const fv_vision_weights *v = fv_checkpoint_vision(ck);
    cr_assert(v->patch.rows == 32 && v->patch.cols == 3 * 14 * 14);
    cr_assert(v->position.rows == 17 && v->position.cols == 32);
    cr_assert(v->cls.rows == 1 && v->cls.cols == 32);
    cr_assert(v->layer[1].fc1.rows == 64 && v->layer[1].fc1.cols == 32);
    cr_assert_not_null(v->layer[1].fc2_bias.data);
    const fv_projector_weights *p = fv_checkpoint_projector(ck);
    cr_assert(p->fc1.rows == 64 && p->fc1.cols == 32 && p->fc2.rows == 64 && p->fc2.cols == 64);
    cr_assert_str_eq(fv_checkpoint_dir(ck), c.dir);
    fv_checkpoint_close(ck);
}

static bool same_tensor(const fv_tensor *a, const fv_tensor *b) {
    if (!a->data || !b->data) return a->data == b->data;
    return a->rows == b->rows && a->cols == b->cols && a->dtype == b->dtype &&
           !memcmp(a->data, b->data, (size_t)a->rows * (size_t)a->cols * fv_dtype_bytes(a->dtype));
}

static bool same_network(const fv_checkpoint *a, const fv_checkpoint *b) {
    const fv_model_config *cfg = fv_checkpoint_config(a);
    const fv_tensor *x = (const fv_tensor *)fv_checkpoint_text(a)->layer;
    const fv_tensor *y = (const fv_tensor *)fv_checkpoint_text(b)->layer;
    bool same = same_tensor(&fv_checkpoint_text(a)->embed, &fv_checkpoint_text(b)->embed) &&
                same_tensor(&fv_checkpoint_text(a)->head, &fv_checkpoint_text(b)->head) &&
                same_tensor(&fv_checkpoint_text(a)->norm, &fv_checkpoint_text(b)->norm);
    size_t n = sizeof(fv_text_layer) / sizeof *x * (size_t)cfg->text.n_layer;
    for (size_t i = 0; i < n; i++) same = same && same_tensor(&x[i], &y[i]);
    if (!cfg->has_vision) return same;
    x = (const fv_tensor *)fv_checkpoint_vision(a)->layer;
    y = (const fv_tensor *)fv_checkpoint_vision(b)->layer;
    n = sizeof(fv_vision_layer) / sizeof *x * (size_t)cfg->vision.feature_layer[0];
    for (size_t i = 0; i < n; i++) same = same && same_tensor(&x[i], &y[i]);
    x = &fv_checkpoint_vision(a)->cls;
    y = &fv_checkpoint_vision(b)->cls;
    for (size_t i = 0; i < 5; i++) same = same && same_tensor(&x[i], &y[i]);
    x = &fv_checkpoint_projector(a)->fc1;
    y = &fv_checkpoint_projector(b)->fc1;
    for (size_t i = 0; i < 4; i++) same = same && same_tensor(&x[i], &y[i]);
    return same;
}

Test(checkpoint, every_name_mapping_and_shard_count_is_the_same_network) {
    checkpoint hub = tiny();
    fv_checkpoint *a = opened(&hub);
    char fp_a[17], fp_b[17];
    fv_checkpoint_fingerprint(a, fp_a);
    const fv_name_mapping name_mappings[] = {FV_NAME_MAPPING_HUB, FV_NAME_MAPPING_V4_52,
                                             FV_NAME_MAPPING_V5_6, FV_NAME_MAPPING_ORIGINAL};
    for (size_t i = 0; i < 4; i++) {
        checkpoint other = made((fv_synth_options){
            .dtype = FV_BF16, .name_mapping = name_mappings[i], .n_shard = 1 + 3 * (int32_t)i});
        fv_checkpoint *b = opened(&other);
        cr_assert(same_network(a, b), "%s", fv_name_mapping_name(name_mappings[i]));
        fv_checkpoint_fingerprint(b, fp_b);
        cr_assert_str_eq(fp_a, fp_b);
        cr_assert_eq(fv_checkpoint_bytes(a), fv_checkpoint_bytes(b));
        fv_checkpoint_close(b);
    }
    fv_checkpoint_close(a);
}

Test(checkpoint, base_models_share_the_embedding_as_head) {
    const fv_name_mapping name_mappings[] = {FV_NAME_MAPPING_BASE, FV_NAME_MAPPING_BARE};
    for (size_t i = 0; i < 2; i++) {
        checkpoint c = made((fv_synth_options){.dtype = FV_BF16, .name_mapping = name_mappings[i]});
        fv_checkpoint *ck = opened(&c);
        cr_assert(fv_checkpoint_config(ck)->text.tied_head);
        cr_assert_eq(fv_checkpoint_text(ck)->head.data, fv_checkpoint_text(ck)->embed.data);
        fv_checkpoint_close(ck);
    }
}

Test(checkpoint, a_stored_head_wins_over_a_tied_one) {
    checkpoint c = tiny();
    set_json(&c, "config.json", NULL, "tie_word_embeddings", json_true());
    fv_checkpoint *ck = opened(&c);
    cr_assert_not(fv_checkpoint_config(ck)->text.tied_head);
    cr_assert_neq(fv_checkpoint_text(ck)->head.data, fv_checkpoint_text(ck)->embed.data);
    fv_checkpoint_close(ck);
}

Test(checkpoint, of_a_tied_pair_the_embedding_may_be_the_absent_one) {
    checkpoint c = tiny();
    set_json(&c, "config.json", NULL, "tie_word_embeddings", json_true());
    tensor_file_without(c.dir, weights, "language_model.model.embed_tokens.weight");
    fv_checkpoint *ck = opened(&c);
    cr_assert_not_null(fv_checkpoint_text(ck)->embed.data);
    cr_assert_eq(fv_checkpoint_text(ck)->head.data, fv_checkpoint_text(ck)->embed.data);
    fv_checkpoint_close(ck);
    tensor_file_without(c.dir, weights, "language_model.lm_head.weight");
    refused(&c, FV_ENOTFOUND, "'language_model.lm_head.weight' is missing");
}

Test(checkpoint, unused_tensors_may_be_absent) {
    checkpoint c = tiny();
    tensor_file_without(c.dir, weights, "vision_tower.vision_model.post_layernorm.weight");
    tensor_file_without(c.dir, weights, "vision_tower.vision_model.post_layernorm.bias");
    tensor_file_without(c.dir, weights,
                        "vision_tower.vision_model.encoder.layers.2.self_attn.q_proj.weight");
    fv_checkpoint_close(opened(&c));
}

static void add_tensor(const checkpoint *c, const char *name, const char *dtype) {
    tensor_file *f = tensor_file_read(c->dir, weights);
    const int64_t shape[] = {2};
    tensor_file_add(f, name, dtype, 1, shape, "0123456789abcdef", dtype[0] == 'I' ? 16 : 4);
    tensor_file_write(f, c->dir, weights, 0);
    tensor_file_free(f);
}

Test(checkpoint, buffers_of_any_dtype_are_ignored) {
    checkpoint c = tiny();
    add_tensor(&c, "vision_tower.vision_model.embeddings.position_ids", "I64");
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint, tensors_that_config_json_does_not_account_for_are_refused) {
    static const char *const names[] = {"image_newline",
                                        "language_model.model.layers.2.mlp.up_proj.weight",
                                        "language_model.model.layers.0.self_attn.q_proj.bias",
                                        "vision_tower.vision_model.head.probe", "qformer.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        checkpoint c = tiny();
        char words[256];
        snprintf(words, sizeof words, "tensor '%s' in model.safetensors is not one of the network",
                 names[i]);
        add_tensor(&c, names[i], "BF16");
        refused(&c, FV_EDATA, words);
        refused(&c, FV_EDATA, "is config.json the one that belongs to these weights?");
    }
}

Test(checkpoint, dtypes_may_be_mixed) {
    checkpoint c = tiny();
    tensor_file *f = tensor_file_read(c.dir, weights);
    tensor_file_drop(f, "language_model.model.norm.weight");
    float ones[64];
    for (int i = 0; i < 64; i++) ones[i] = 1;
    const int64_t shape[] = {64};
    tensor_file_add(f, "language_model.model.norm.weight", "F32", 1, shape, ones, sizeof ones);
    tensor_file_write(f, c.dir, weights, 0);
    tensor_file_free(f);
    fv_checkpoint *ck = opened(&c);
    cr_assert_eq(fv_checkpoint_text(ck)->norm.dtype, FV_F32);
    cr_assert_eq(((const float *)fv_checkpoint_text(ck)->norm.data)[63], 1.0F);
    cr_assert_eq(fv_checkpoint_text(ck)->embed.dtype, FV_BF16);
    fv_checkpoint_close(ck);
}

Test(checkpoint, tensors_that_are_not_aligned_are_copied) {
    checkpoint even = tiny(), odd = tiny();
    tensor_file *f = tensor_file_read(odd.dir, weights);
    tensor_file_write(f, odd.dir, weights, 3);
    tensor_file_free(f);
    fv_checkpoint *a = opened(&even), *b = opened(&odd);
    cr_assert_eq((uintptr_t)fv_checkpoint_text(b)->embed.data % 2, 0);
    cr_assert(same_network(a, b));
    char fp_a[17], fp_b[17];
    fv_checkpoint_fingerprint(a, fp_a);
    fv_checkpoint_fingerprint(b, fp_b);
    cr_assert_str_eq(fp_a, fp_b);
    fv_checkpoint_close(a);
    fv_checkpoint_close(b);
}

Test(checkpoint, a_text_model_alone_has_no_vision) {
    checkpoint home;
    scratch_dir(home.dir, sizeof home.dir);
    write_text(home.dir, "text.json",
               "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":96,"
               "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
               "\"vocab_size\":300}");
    char config[PATH_CAP];
    path_of(&home, "text.json", config);
    const fv_name_mapping name_mappings[] = {FV_NAME_MAPPING_HUB, FV_NAME_MAPPING_BARE};
    for (size_t i = 0; i < 2; i++) {
        checkpoint c = made((fv_synth_options){
            .config_file = config, .dtype = FV_F32, .name_mapping = name_mappings[i]});
        fv_checkpoint *ck = opened(&c);
        cr_assert_not(fv_checkpoint_config(ck)->has_vision);
        cr_assert_null(fv_checkpoint_vision(ck));
        cr_assert_null(fv_checkpoint_projector(ck));
        cr_assert_not_null(fv_checkpoint_text(ck)->layer[1].q_bias.data);
        cr_assert_null(fv_checkpoint_text(ck)->layer[1].o_bias.data);
        fv_checkpoint_close(ck);
    }
}

Test(checkpoint, generation_and_image_constants_are_read) {
    checkpoint c = tiny();
    write_text(c.dir, "generation_config.json", "{\"top_k\":7,\"eos_token_id\":[2,9]}");
    fv_checkpoint *ck = opened(&c);
    cr_assert_eq(fv_checkpoint_generation(ck)->top_k, 7);
    cr_assert_eq(fv_checkpoint_config(ck)->n_eos, 2);
    cr_assert_eq(fv_checkpoint_config(ck)->layout.shortest_edge, 56);
    fv_checkpoint_close(ck);
}

Test(checkpoint, a_nested_image_processor_wins_over_the_separate_file) {
    checkpoint c = tiny();
    write_text(c.dir, "preprocessor_config.json", "{\"resample\":1}");
    fv_checkpoint *ck = opened(&c);
    cr_assert_eq(fv_checkpoint_image(ck)->resample, 1, "processor_config.json has none nested");
    fv_checkpoint_close(ck);
    write_text(c.dir, "processor_config.json", "{\"image_processor\":{\"resample\":2}}");
    ck = opened(&c);
    cr_assert_eq(fv_checkpoint_image(ck)->resample, 2);
    fv_checkpoint_close(ck);
    remove_file(&c, "processor_config.json");
    remove_file(&c, "preprocessor_config.json");
    cr_assert_eq(fv_checkpoint_open(c.dir, &ck), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "neither preprocessor_config.json nor"), "%s",
              fv_last_error());
}

/* The attention weights of the tower layer after those that run. */
static bool asked(const char *name) {
    return strstr(name, "layer_norm1") || strstr(name, "q_proj") || strstr(name, "k_proj");
}

Test(checkpoint, only_used_tensors_count_as_bytes) {
    checkpoint c = made((fv_synth_options){.dtype = FV_F32});
    size_t sum = 0;
    tensor_file *f = tensor_file_read(c.dir, weights);
    for (int32_t i = 0; i < f->n; i++)
        if (!strstr(f->tensor[i].name, "post_layernorm") &&
            (!strstr(f->tensor[i].name, "encoder.layers.2.") || asked(f->tensor[i].name)))
            sum += f->tensor[i].bytes;
    tensor_file_free(f);
    fv_checkpoint *ck = opened(&c);
    cr_assert_eq(fv_checkpoint_bytes(ck), sum);
    fv_checkpoint_close(ck);
}

/* ---- fingerprint, NaN ---- */

static void fingerprint(const checkpoint *c, char out[17]) {
    fv_checkpoint *ck = opened(c);
    fv_checkpoint_fingerprint(ck, out);
    fv_checkpoint_close(ck);
}

Test(checkpoint, another_seed_or_config_is_another_fingerprint) {
    checkpoint a = made((fv_synth_options){.dtype = FV_BF16, .seed = 1});
    checkpoint b = made((fv_synth_options){.dtype = FV_BF16, .seed = 2});
    char fp_a[17], fp_b[17], fp_c[17];
    fingerprint(&a, fp_a);
    fingerprint(&b, fp_b);
    cr_assert_eq(strlen(fp_a), 16);
    cr_assert_eq(strspn(fp_a, "0123456789abcdef"), 16);
    cr_assert_str_neq(fp_a, fp_b);
    set_json(&b, "config.json", "text_config", "rope_theta", json_real(5));
    fingerprint(&b, fp_c);
    cr_assert_str_neq(fp_b, fp_c);
}

Test(checkpoint, a_changed_byte_at_the_edge_of_a_tensor_is_another_fingerprint) {
    checkpoint a = tiny();
    char before[17], after[17];
    fingerprint(&a, before);
    tensor_file *f = tensor_file_read(a.dir, weights);
    file_tensor *t = tensor_file_find(f, "language_model.model.layers.1.mlp.down_proj.weight");
    t->data[t->bytes - 1] ^= 0x40;
    tensor_file_write(f, a.dir, weights, 0);
    tensor_file_free(f);
    fingerprint(&a, after);
    cr_assert_str_neq(before, after);
}

static void poison(fv_dtype dtype, const void *value, size_t bytes) {
    checkpoint c = made((fv_synth_options){.dtype = dtype});
    fv_checkpoint *ck = opened(&c);
    cr_assert_null(fv_checkpoint_find_nonfinite(ck));
    fv_checkpoint_close(ck);
    tensor_file *f = tensor_file_read(c.dir, weights);
    const char *name = "vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias";
    file_tensor *t = tensor_file_find(f, name);
    memcpy(t->data + t->bytes - bytes, value, bytes);
    tensor_file_write(f, c.dir, weights, 0);
    tensor_file_free(f);
    ck = opened(&c);
    cr_assert_str_eq(fv_checkpoint_find_nonfinite(ck), name);
    fv_checkpoint_close(ck);
}

Test(checkpoint, nan_and_infinity_are_found_in_every_dtype) {
    const uint32_t f32[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001};
    const uint16_t bf16[] = {0x7F80, 0xFF80, 0x7FC0}, f16[] = {0x7C00, 0xFC00, 0x7E01};
    for (size_t i = 0; i < 4; i++) poison(FV_F32, &f32[i], 4);
    for (size_t i = 0; i < 3; i++) poison(FV_BF16, &bf16[i], 2);
    for (size_t i = 0; i < 3; i++) poison(FV_F16, &f16[i], 2);
}

/* ---- refusals ----------- */

Test(checkpoint, a_missing_directory_is_named) {
    checkpoint c = {"/nowhere/at all"};
    refused(&c, FV_ENOTFOUND,
            "'/nowhere/at all' cannot be read as a checkpoint directory: No such file");
}

Test(checkpoint, missing_weights_are_named) {
    checkpoint c = tiny();
    remove_file(&c, weights);
    refused(&c, FV_ENOTFOUND, "has neither model.safetensors nor model.safetensors.index.json");
}

Test(checkpoint, a_broken_config_is_named_by_its_path) {
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

Test(checkpoint, a_missing_tensor_is_named_as_the_file_would_name_it) {
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

Test(checkpoint, a_missing_head_says_that_it_is_not_tied) {
    checkpoint c = tiny();
    tensor_file_without(c.dir, weights, "language_model.lm_head.weight");
    refused(&c, FV_ENOTFOUND,
            "'language_model.lm_head.weight' is missing, and config.json does "
            "not tie it");
}

Test(checkpoint, a_wrong_shape_names_both_shapes_and_the_keys) {
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

Test(checkpoint, the_number_of_dimensions_counts) {
    checkpoint c = tiny();
    tensor_file *f = tensor_file_read(c.dir, weights);
    file_tensor *t = tensor_file_find(f, "language_model.model.norm.weight");
    t->n_dim = 2;
    t->shape[1] = 1;
    tensor_file_write(f, c.dir, weights, 0);
    tensor_file_free(f);
    refused(&c, FV_EDATA, "has shape [64, 1]; [64] is expected");
}

Test(checkpoint, a_used_tensor_of_another_dtype_is_named) {
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

Test(checkpoint, one_tensor_under_two_names_is_refused) {
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

Test(checkpoint, a_truncated_file_is_refused_wherever_it_is_cut) {
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

/* ---- shards ---- */

static const char shard_2[] = "model-00002-of-00003.safetensors";
static const char index_name[] = "model.safetensors.index.json";

static checkpoint sharded(void) { return made((fv_synth_options){.dtype = FV_BF16, .n_shard = 3}); }

Test(checkpoint, a_missing_shard_is_named) {
    checkpoint c = sharded();
    remove_file(&c, shard_2);
    refused(&c, FV_ENOTFOUND,
            "model.safetensors.index.json names shard "
            "'model-00002-of-00003.safetensors', which is missing");
}

Test(checkpoint, a_corrupt_shard_is_named) {
    checkpoint c = sharded();
    write_text(c.dir, shard_2, "not a safetensors file");
    refused(&c, FV_EDATA, "model-00002-of-00003.safetensors: ");
}

Test(checkpoint, a_tensor_that_is_not_in_its_shard_is_named) {
    checkpoint c = sharded();
    set_json(&c, index_name, "weight_map", "language_model.model.embed_tokens.weight",
             json_string(shard_2));
    refused(&c, FV_EDATA,
            "tensor 'language_model.model.embed_tokens.weight' is not in its shard "
            "'model-00002-of-00003.safetensors'");
}

/* The first tensor of the first shard, in zeros, into the second too. */
static const char *repeated(const checkpoint *c) {
    static char name[FV_TENSOR_NAME_MAX];
    tensor_file *one = tensor_file_read(c->dir, "model-00001-of-00003.safetensors");
    tensor_file *two = tensor_file_read(c->dir, shard_2);
    const file_tensor *t = &one->tensor[0];
    void *zeros = calloc(1, t->bytes);
    snprintf(name, sizeof name, "%s", t->name);
    tensor_file_add(two, t->name, t->dtype, t->n_dim, t->shape, zeros, t->bytes);
    tensor_file_write(two, c->dir, shard_2, 0);
    tensor_file_free(one);
    tensor_file_free(two);
    free(zeros);
    return name;
}

static void set_index(checkpoint *c, const char *name, const char *shard) {
    char path[PATH_CAP];
    path_of(c, index_name, path);
    json_t *root = json_load_file(path, 0, NULL), *map = json_object_get(root, "weight_map");
    if (shard)
        json_object_set_new(map, name, json_string(shard));
    else
        json_object_del(map, name);
    json_dump_file(root, path, 0);
    json_decref(root);
}

Test(checkpoint, of_a_tensor_in_two_shards_the_index_names_the_one_that_counts) {
    checkpoint c = sharded();
    char first[17], as_it_was[17], again[17];
    fv_checkpoint *ck = opened(&c);
    fv_checkpoint_fingerprint(ck, first);
    fv_checkpoint_close(ck);
    const char *name = repeated(&c);
    fv_checkpoint_fingerprint(ck = opened(&c), as_it_was);
    fv_checkpoint_close(ck);
    cr_assert_str_eq(as_it_was, first);
    set_index(&c, name, shard_2);
    fv_checkpoint_fingerprint(ck = opened(&c), again);
    fv_checkpoint_close(ck);
    cr_assert_str_neq(again, first);
}

Test(checkpoint, a_tensor_in_two_shards_that_the_index_forgets_is_named_with_both) {
    checkpoint c = sharded();
    set_index(&c, repeated(&c), NULL);
    refused(&c, FV_EDATA, "have the same canonical name");
    cr_assert_not_null(strstr(fv_last_error(), "model-00001-of-00003.safetensors"));
    cr_assert_not_null(strstr(fv_last_error(), shard_2));
}

Test(checkpoint, a_tensor_that_the_index_forgets_is_still_found) {
    checkpoint c = sharded();
    set_index(&c, "language_model.model.norm.weight", NULL);
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint, an_index_that_leaves_the_directory_is_refused) {
    checkpoint c = sharded();
    static const char *const names[] = {"../model.safetensors", "/etc/passwd", ""};
    for (size_t i = 0; i < 3; i++) {
        set_json(&c, index_name, "weight_map", "x", json_string(names[i]));
        refused(&c, FV_EDATA, "tensor 'x' must name a file in the same directory");
    }
    set_json(&c, index_name, "weight_map", "x", json_integer(1));
    refused(&c, FV_EDATA, "tensor 'x' must name a file");
}

Test(checkpoint, an_index_without_a_map_is_refused) {
    checkpoint c = sharded();
    write_text(c.dir, index_name, "{\"metadata\":{}}");
    refused(&c, FV_EDATA, "key 'weight_map' must be an object with tensors");
    write_text(c.dir, index_name, "{\"weight_map\":{}}");
    refused(&c, FV_EDATA, "key 'weight_map' must be an object with tensors");
    write_text(c.dir, index_name, "{\"weight_map\":");
    refused(&c, FV_EDATA, "index.json: not valid JSON");
}

Test(checkpoint, a_single_file_wins_over_an_index) {
    checkpoint c = sharded(), d = tiny();
    char from[PATH_CAP], to[PATH_CAP];
    path_of(&d, weights, from);
    path_of(&c, weights, to);
    cr_assert_eq(rename(from, to), 0);
    remove_file(&c, shard_2);
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint, shards_may_have_any_name) {
    checkpoint c = sharded();
    rename_file(&c, shard_2, "second part.bin");
    char path[PATH_CAP];
    path_of(&c, index_name, path);
    json_t *root = json_load_file(path, 0, NULL), *v;
    const char *key;
    json_object_foreach(json_object_get(root, "weight_map"), key,
                        v) if (!strcmp(json_string_value(v), shard_2))
        json_string_set(v, "second part.bin");
    json_dump_file(root, path, 0);
    json_decref(root);
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint, closing_nothing_is_fine) { fv_checkpoint_close(NULL); }
