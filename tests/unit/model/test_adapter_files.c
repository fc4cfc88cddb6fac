/* Adapters as PEFT saves them: opened, told apart, and refused by name. The file is that of golden/engine/lora_text_1. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "model/adapter.h"
#include "model/adapter_config.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

#define FOLDER FOVEA_TEST_DATA "/golden/engine/lora_text_1"
#define CONFIG "adapter_config.json"
#define TENSORS "adapter_model.safetensors"
#define LAYER "base_model.model.model.layers.0."

enum { PATH_CAP = 4096 };

typedef struct rig {
    fv_model_config cfg;
    fv_arena arena;
    char dir[PATH_CAP];
    json_t *config;
    tensor_file *file;
} rig;

static void open_rig(rig *r) {
    fv_synth_options o = {.config_file = FOLDER "/config.json"};
    *r = (rig){0};
    cr_assert_eq(fv_synth_config(&o, &r->cfg), FV_OK, "%s", fv_last_error());
    scratch_dir(r->dir, PATH_CAP);
    r->config = json_load_file(FOLDER "/adapter/" CONFIG, 0, NULL);
    r->file = tensor_file_read(FOLDER "/adapter", TENSORS);
    cr_assert(r->config && r->file->n > 4);
}

static void close_rig(rig *r) {
    fv_arena_fini(&r->arena);
    json_decref(r->config);
    tensor_file_free(r->file);
}

static void drop_all(rig *r) {
    while (r->file->n > 0) tensor_file_drop(r->file, r->file->tensor[0].name);
}

static fv_status open_adapter(rig *r, fv_adapter *out) {
    char path[PATH_CAP];
    cr_assert_eq(fv_path_join(r->dir, CONFIG, path, sizeof path), FV_OK);
    cr_assert_eq(json_dump_file(r->config, path, 0), 0);
    tensor_file_write(r->file, r->dir, TENSORS, 0);
    return fv_adapter_open(r->dir, &r->cfg, &r->arena, out);
}

static void expect_refused(rig *r, fv_status expected, const char *words) {
    fv_adapter x;
    fv_status st = open_adapter(r, &x);
    cr_expect_eq(st, expected, "%s: status %d", words, (int)st);
    if (st != FV_OK)
        cr_expect(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static file_tensor *first_b(rig *r) {
    for (int32_t i = 0; i < r->file->n; i++)
        if (strstr(r->file->tensor[i].name, LAYER) && strstr(r->file->tensor[i].name, "lora_B"))
            return &r->file->tensor[i];
    cr_assert_fail("no lora_B of layer 0");
    return NULL;
}

/* A module of rank 1 with these sizes; B is `value` everywhere. */
static void add_module(rig *r, const char *path, int32_t rows, int32_t cols, float value) {
    char name[256];
    float x[4096];
    for (int32_t i = 0; i < rows + cols; i++) x[i] = value;
    json_t *rank = json_object_get(r->config, "rank_pattern");
    json_object_set_new(rank, path, json_integer(1));
    json_t *targets = json_object_get(r->config, "target_modules");
    if (json_is_array(targets))
        json_array_append_new(targets,
                              json_string(strrchr(path, '.') ? strrchr(path, '.') + 1 : path));
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", path);
    tensor_file_add(r->file, name, "F32", 2, (const int64_t[]){1, cols}, x,
                    (size_t)cols * sizeof *x);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", path);
    tensor_file_add(r->file, name, "F32", 2, (const int64_t[]){rows, 1}, x,
                    (size_t)rows * sizeof *x);
}

/* ---- what is opened ------------------------------------------------------------------------ */

Test(adapter_files, the_tensors_become_pairs_of_their_layers) {
    rig r;
    fv_adapter x;
    open_rig(&r);
    cr_assert_eq(open_adapter(&r, &x), FV_OK, "%s", fv_last_error());
    int32_t pairs = 0;
    size_t bytes = 0;
    for (int32_t l = 0; l < r.cfg.text.n_layer; l++)
        for (int32_t i = 0; i < FV_ADAPTER_PAIRS; i++) {
            const fv_adapter_pair *p = &x.layer[l].pair[i];
            if (!p->a.data) continue;
            cr_expect(p->a.rows == p->b.cols && p->a.dtype == FV_F32 && p->b.dtype == FV_F32);
            cr_expect_leq(p->a.rows, x.rank);
            bytes += sizeof(float) * (size_t)(p->a.rows * p->a.cols + p->b.rows * p->b.cols);
            pairs++;
        }
    cr_expect_eq(2 * pairs, r.file->n);
    cr_expect_eq(bytes, x.bytes);
    cr_expect_eq(strlen(x.digest), 64);
    close_rig(&r);
}

Test(adapter_files, b_has_the_scale_and_rslora_another_one) {
    rig r;
    fv_adapter plain, scaled;
    open_rig(&r);
    json_object_set_new(r.config, "rank_pattern", json_object());
    json_object_set_new(r.config, "alpha_pattern", json_object());
    json_object_set_new(r.config, "target_modules", json_pack("[s]", "q_proj"));
    json_object_set_new(r.config, "r", json_integer(4));
    json_object_set_new(r.config, "lora_alpha", json_integer(6));
    drop_all(&r);
    const fv_text_config *t = &r.cfg.text;
    int64_t a[] = {4, t->d_model}, b[] = {t->n_head * t->d_head, 4};
    float *many = malloc((size_t)(4 * (a[1] + b[0])) * sizeof *many);
    for (int64_t i = 0; i < 4 * (a[1] + b[0]); i++) many[i] = 1;
    tensor_file_add(r.file, LAYER "self_attn.q_proj.lora_A.weight", "F32", 2, a, many,
                    (size_t)(4 * a[1]) * sizeof *many);
    tensor_file_add(r.file, LAYER "self_attn.q_proj.lora_B.weight", "F32", 2, b, many,
                    (size_t)(4 * b[0]) * sizeof *many);
    for (int rs = 0; rs < 2; rs++) {
        fv_adapter *x = rs ? &scaled : &plain;
        json_object_set_new(r.config, "use_rslora", json_boolean(rs));
        cr_assert_eq(open_adapter(&r, x), FV_OK, "%s", fv_last_error());
        const fv_adapter_pair *p =
            &x->layer[0].pair[offsetof(fv_text_layer, q) / sizeof(fv_tensor)];
        cr_assert(p->b.data);
        cr_expect_float_eq(*(const float *)p->b.data, rs ? 6 / 2.0f : 6 / 4.0f, 1e-6);
        cr_expect_float_eq(*(const float *)p->a.data, 1, 1e-6);
    }
    cr_expect_str_neq(plain.digest, scaled.digest, "the config is part of the digest");
    free(many);
    close_rig(&r);
}

Test(adapter_files, the_digest_covers_every_byte_of_the_tensors) {
    rig r;
    fv_adapter a, b;
    open_rig(&r);
    cr_assert_eq(open_adapter(&r, &a), FV_OK);
    first_b(&r)->data[3] ^= 1;
    cr_assert_eq(open_adapter(&r, &b), FV_OK, "%s", fv_last_error());
    cr_expect_str_neq(a.digest, b.digest);
    close_rig(&r);
}

Test(adapter_files, two_names_of_one_layer_are_refused) {
    rig r;
    open_rig(&r);
    const fv_text_config *t = &r.cfg.text;
    drop_all(&r);
    add_module(&r, "model.layers.0.self_attn.q_proj", t->n_head * t->d_head, t->d_model, 1);
    fv_adapter x;
    cr_assert_eq(open_adapter(&r, &x), FV_OK, "%s", fv_last_error());
    add_module(&r, "model.language_model.layers.0.self_attn.q_proj", t->n_head * t->d_head,
               t->d_model, 2);
    expect_refused(&r, FV_EDATA, "another module with another name");
    close_rig(&r);
}

Test(adapter_files, modules_of_the_tower_that_add_nothing_are_left_out) {
    rig r;
    fv_adapter x;
    open_rig(&r);
    add_module(&r, "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj", 8, 8, 0);
    cr_expect_eq(open_adapter(&r, &x), FV_OK, "%s", fv_last_error());
    close_rig(&r);
}

/* ---- names of modules ----------------------------------------------------------------------- */

static void expect_module(const char *json, const char *module, int32_t rank, double scale) {
    fv_adapter_config c;
    int32_t r;
    double s;
    cr_assert_eq(fv_adapter_config_parse(json, strlen(json), "test", &c), FV_OK, "%s",
                 fv_last_error());
    cr_assert_eq(fv_adapter_config_module(&c, "test", module, &r, &s), FV_OK, "%s",
                 fv_last_error());
    cr_expect_eq(r, rank, "%s: rank %d", module, r);
    cr_expect_float_eq(s, scale, 1e-9, "%s: scale %g", module, s);
    fv_adapter_config_free(&c);
}

Test(adapter_files, patterns_name_modules_as_in_peft) {
    static const char json[] =
        "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":16,\"target_modules\":[\"q_proj\"],"
        "\"rank_pattern\":{\"layers.1.self_attn.q_proj\":4,\"q_proj\":2,\"^model.k_proj\":3,"
        "\"layers\\\\.[2-4]\\\\.(mlp|ffn)\\\\.up\":6},"
        "\"alpha_pattern\":{\"self_attn.v_proj\":5}}";
    expect_module(json, "model.layers.1.self_attn.q_proj", 4, 16.0 / 4);
    expect_module(json, "model.layers.11.self_attn.q_proj", 2, 16.0 / 2);
    expect_module(json, "q_proj", 2, 8);
    expect_module(json, "model.layers.0.self_attn.xq_proj", 8, 2);
    expect_module(json, "model.layers.0.self_attn.v_proj", 8, 5.0 / 8);
    expect_module(json, "model.k_proj", 3, 16.0 / 3);
    expect_module(json, "a.model.k_proj", 8, 2);
    expect_module(json, "model.layers.3.mlp.up", 6, 16.0 / 6);
    expect_module(json, "model.layers.5.mlp.up", 8, 2);
    expect_module(json, "model.layers.3.mlp.upper", 8, 2);
}

/* ---- what is refused ------------------------------------------------------------------------ */

Test(adapter_files, keys_that_change_the_result_are_refused_by_name) {
    static const struct {
        const char *key, *value, *words;
        fv_status status;
    } cases[] = {
        {"use_dora", "true", "'use_dora'", FV_EUNSUPPORTED},
        {"modules_to_save", "[\"lm_head\"]", "'modules_to_save'", FV_EUNSUPPORTED},
        {"trainable_token_indices", "[1]", "'trainable_token_indices'", FV_EUNSUPPORTED},
        {"target_parameters", "[\"x\"]", "experts", FV_EUNSUPPORTED},
        {"lora_bias", "true", "'lora_bias'", FV_EUNSUPPORTED},
        {"layer_replication", "[[0, 1]]", "'layer_replication'", FV_EUNSUPPORTED},
        {"alora_invocation_tokens", "[5]", "'alora_invocation_tokens'", FV_EUNSUPPORTED},
        {"bias", "\"all\"", "'bias' is all", FV_EUNSUPPORTED},
        {"init_lora_weights", "\"pissa\"", "path_initial_model_for_weight_conversion",
         FV_EUNSUPPORTED},
        {"peft_type", "\"IA3\"", "only LORA", FV_EUNSUPPORTED},
        {"of_the_future", "{\"a\": 1}", "'of_the_future' is not known", FV_EUNSUPPORTED},
        {"r", "0", "'r' must be", FV_EDATA},
        {"r", "8.5", "'r' must be", FV_EDATA},
        {"lora_alpha", "\"x\"", "'lora_alpha' must be", FV_EDATA},
        {"use_rslora", "3", "use_rslora", FV_EDATA},
        {"target_modules", "[]", "'target_modules'", FV_EDATA},
        {"target_modules", "[\"no_proj\"]", "is not among 'target_modules'", FV_EDATA},
        {"rank_pattern", "{\"(?=x)\": 3}", "cannot be evaluated", FV_EUNSUPPORTED},
        {"rank_pattern", "{\".*\": 3}", "adapter_config.json says 3", FV_EDATA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        open_rig(&r);
        json_object_set_new(r.config, cases[i].key,
                            json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        expect_refused(&r, cases[i].status, cases[i].words);
        close_rig(&r);
    }
}

Test(adapter_files, keys_without_an_effect_are_taken) {
    rig r;
    fv_adapter x;
    open_rig(&r);
    json_object_set_new(r.config, "of_the_future", json_false());
    json_object_set_new(r.config, "fan_in_fan_out", json_true());
    json_object_set_new(r.config, "init_lora_weights", json_string("gaussian"));
    cr_expect_eq(open_adapter(&r, &x), FV_OK, "%s", fv_last_error());
    close_rig(&r);
}

Test(adapter_files, modules_outside_of_the_text_model_are_refused_by_name) {
    static const struct {
        const char *path, *words;
    } cases[] = {
        {"model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj", "the vision tower"},
        {"model.multi_modal_projector.linear_1", "the vision tower or its connector"},
        {"lm_head", "the output head"},
        {"model.embed_tokens", "the embedding"},
        {"model.layers.0.mlp.experts.3.up_proj", "the experts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        open_rig(&r);
        add_module(&r, cases[i].path, 8, 8, 1);
        expect_refused(&r, FV_EUNSUPPORTED, cases[i].words);
        close_rig(&r);
    }
}

Test(adapter_files, tensors_that_do_not_fit_are_refused) {
    rig r;
    char name[128];

    open_rig(&r);
    add_module(&r, "model.layers.0.self_attn.w_proj", 8, 8, 1);
    expect_refused(&r, FV_EDATA, "does the adapter belong to this model?");
    close_rig(&r);

    open_rig(&r);
    first_b(&r)->shape[0]--;
    first_b(&r)->bytes = (size_t)(first_b(&r)->shape[0] * first_b(&r)->shape[1]) * sizeof(float);
    expect_refused(&r, FV_EDATA, "the model's layer maps");
    close_rig(&r);

    open_rig(&r);
    snprintf(name, sizeof name, "%s", first_b(&r)->name);
    tensor_file_drop(r.file, name);
    expect_refused(&r, FV_EDATA, "is missing");
    close_rig(&r);

    open_rig(&r);
    snprintf(name, sizeof name, "%s", first_b(&r)->name);
    *strstr(name, "lora_B") = '\0';
    strcat(name, "lora_A.weight");
    tensor_file_drop(r.file, name);
    expect_refused(&r, FV_EDATA, "lora_A.weight' is missing");
    close_rig(&r);

    open_rig(&r);
    memcpy(first_b(&r)->data, &(float){NAN}, sizeof(float));
    expect_refused(&r, FV_EDATA, "not finite");
    close_rig(&r);

    open_rig(&r);
    strcpy(first_b(&r)->dtype, "I32");
    expect_refused(&r, FV_EUNSUPPORTED, "dtype I32");
    close_rig(&r);

    open_rig(&r);
    tensor_file_add(r.file, LAYER "self_attn.q_proj.lora_magnitude_vector", "F32", 1,
                    (const int64_t[]){1}, &(float){1}, sizeof(float));
    expect_refused(&r, FV_EUNSUPPORTED, "DoRA");
    close_rig(&r);

    open_rig(&r);
    tensor_file_add(r.file, "base_model.model.model.embed_tokens.lora_embedding_A", "F32", 1,
                    (const int64_t[]){1}, &(float){1}, sizeof(float));
    expect_refused(&r, FV_EUNSUPPORTED, "is no matrix of a linear layer's adapter");
    close_rig(&r);

    open_rig(&r);
    drop_all(&r);
    expect_refused(&r, FV_EDATA, "changes no linear layer");
    close_rig(&r);
}

Test(adapter_files, a_directory_that_lacks_files_is_named_with_what_to_do) {
    rig r;
    fv_adapter x;
    open_rig(&r);
    cr_expect_eq(fv_adapter_open(r.dir, &r.cfg, &r.arena, &x), FV_ENOTFOUND);
    cr_expect(strstr(fv_last_error(), "adapter_model.safetensors is missing"));
    write_text(r.dir, "adapter_model.bin", "");
    cr_expect_eq(fv_adapter_open(r.dir, &r.cfg, &r.arena, &x), FV_EUNSUPPORTED);
    cr_expect(strstr(fv_last_error(), "save_pretrained()"));
    write_text(r.dir, TENSORS,
               "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    cr_expect_eq(fv_adapter_open(r.dir, &r.cfg, &r.arena, &x), FV_EDATA);
    cr_expect(strstr(fv_last_error(), "git"), "%s", fv_last_error());
    tensor_file_write(r.file, r.dir, TENSORS, 0);
    cr_expect_eq(fv_adapter_open(r.dir, &r.cfg, &r.arena, &x), FV_ENOTFOUND);
    cr_expect(strstr(fv_last_error(), CONFIG), "%s", fv_last_error());
    close_rig(&r);
}

/* ---- several -------------------------------------------------------------------------------- */

Test(adapter_files, specs_are_name_and_directory) {
    rig r;
    fv_adapters all;
    fv_adapter x;
    char same[PATH_CAP + 8], other[PATH_CAP + 8];
    open_rig(&r);
    cr_assert_eq(open_adapter(&r, &x), FV_OK);
    snprintf(same, sizeof same, "a=%s", r.dir);
    snprintf(other, sizeof other, "b=%s", r.dir);
    static const char *const wrong[] = {"", "a", "=dir", "a=", "a b=dir", "a@b=dir"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(fv_adapters_open(&wrong[i], 1, &r.cfg, &r.arena, &all), FV_EINVAL);
        cr_expect(strstr(fv_last_error(), "NAME=DIR"), "%s", fv_last_error());
    }
    const char *twice[] = {same, same}, *two[] = {same, other}, *reversed[] = {other, same};
    cr_expect_eq(fv_adapters_open(twice, 2, &r.cfg, &r.arena, &all), FV_EINVAL);
    cr_expect(strstr(fv_last_error(), "given twice"), "%s", fv_last_error());
    char prints[3][17];
    cr_assert_eq(fv_adapters_open(two, 2, &r.cfg, &r.arena, &all), FV_OK);
    cr_expect_str_eq(fv_adapters_named(&all, "b")->digest, x.digest);
    cr_expect_str_eq(fv_adapters_with(&all, x.digest)->name, "a");
    cr_expect_null(fv_adapters_named(&all, "c"));
    cr_expect_eq(fv_adapters_bytes(&all), 2 * x.bytes);
    cr_assert_eq(fv_adapters_fingerprint(&all, prints[0]), FV_OK);
    cr_assert_eq(fv_adapters_open(reversed, 2, &r.cfg, &r.arena, &all), FV_OK);
    cr_assert_eq(fv_adapters_fingerprint(&all, prints[1]), FV_OK);
    cr_assert_eq(fv_adapters_open(two, 1, &r.cfg, &r.arena, &all), FV_OK);
    cr_assert_eq(fv_adapters_fingerprint(&all, prints[2]), FV_OK);
    cr_expect_str_eq(prints[0], prints[1], "the order does not matter");
    cr_expect_str_neq(prints[0], prints[2]);
    close_rig(&r);
}
