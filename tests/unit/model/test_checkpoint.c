/* model/checkpoint: valid directories, and damaged ones. Each test writes a small synthetic
 * checkpoint, changes something, and opens it. */
#include "tests/unit/model/checkpoint_rig.h"

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

Test(checkpoint, another_seed_or_config_is_another_fingerprint) {
    checkpoint a = made((fv_synth_options){.dtype = FV_BF16, .seed = 1});
    checkpoint b = made((fv_synth_options){.dtype = FV_BF16, .seed = 2});
    char fp_a[17], fp_b[17], fp_c[17];
    fingerprint_of(&a, fp_a);
    fingerprint_of(&b, fp_b);
    cr_assert_eq(strlen(fp_a), 16);
    cr_assert_eq(strspn(fp_a, "0123456789abcdef"), 16);
    cr_assert_str_neq(fp_a, fp_b);
    set_json(&b, "config.json", "text_config", "rope_theta", json_real(5));
    fingerprint_of(&b, fp_c);
    cr_assert_str_neq(fp_b, fp_c);
}

Test(checkpoint, a_changed_byte_at_the_edge_of_a_tensor_is_another_fingerprint) {
    checkpoint a = tiny();
    char before[17], after[17];
    fingerprint_of(&a, before);
    tensor_file *f = tensor_file_read(a.dir, weights);
    file_tensor *t = tensor_file_find(f, "language_model.model.layers.1.mlp.down_proj.weight");
    t->data[t->bytes - 1] ^= 0x40;
    tensor_file_write(f, a.dir, weights, 0);
    tensor_file_free(f);
    fingerprint_of(&a, after);
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

Test(checkpoint, closing_nothing_is_fine) { fv_checkpoint_close(NULL); }
