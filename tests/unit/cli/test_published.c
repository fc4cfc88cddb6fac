/* Published checkpoints by name (tests/golden/published.json, docs/SUPPORTED.md): the configs are read, the networks
 * have the published number of parameters, and shrunken ones with the same keys open and answer. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/local_internal.h"
#include "common/file.h"
#include "model/families/tensor_specs.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { LEAST = 40, N_TOKEN = 3 };

/* Keys whose values are sizes or ids, which the shrunken config has from a tiny one. */
static const char *const sizes[] = {"hidden_size",
                                    "intermediate_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "num_key_value_heads",
                                    "head_dim",
                                    "vocab_size",
                                    "max_position_embeddings",
                                    "depth",
                                    "embed_dim",
                                    "num_heads",
                                    "out_hidden_size",
                                    "patch_size",
                                    "image_size",
                                    "window_size",
                                    "fullatt_block_indexes",
                                    "deepstack_visual_indexes",
                                    "num_position_embeddings",
                                    "mrope_section",
                                    "partial_rotary_factor",
                                    "full_attention_interval",
                                    "num_experts",
                                    "n_routed_experts",
                                    "n_shared_experts",
                                    "n_group",
                                    "topk_group",
                                    "first_k_dense_replace",
                                    "num_experts_per_tok",
                                    "moe_intermediate_size",
                                    "linear_num_key_heads",
                                    "linear_num_value_heads",
                                    "linear_key_head_dim",
                                    "linear_value_head_dim",
                                    "layer_types",
                                    "max_window_layers",
                                    "image_grid_pinpoints",
                                    "image_seq_length",
                                    "mm_tokens_per_image",
                                    "sliding_window",
                                    "original_max_position_embeddings",
                                    "scale_factor",
                                    "projection_dim",
                                    "query_pre_attn_scalar",
                                    "sliding_window_pattern"};

static json_t *published(void) {
    json_error_t err;
    json_t *list = json_load_file(FOVEA_TEST_DATA "/golden/published.json", 0, &err);
    cr_assert(list, "line %d: %s", err.line, err.text);
    return list;
}

static const char *name_of(const json_t *row) {
    return json_string_value(json_object_get(row, "name"));
}

static void parse(const json_t *row, fv_model_config *out) {
    char *text = json_dumps(json_object_get(row, "config"), 0);
    cr_assert_eq(fv_config_parse(text, strlen(text), "config.json", out), FV_OK, "%s: %s",
                 name_of(row), fv_last_error());
    free(text);
}

/* Numbers of all tensors that the files have, in millions. */
static double count(const fv_model_config *c) {
    fv_tensor_spec *e;
    int32_t n;
    double sum = 0;
    cr_assert_eq(fv_tensor_specs_build(c, true, &e, &n), FV_OK);
    for (int32_t i = 0; i < n; i++) {
        double numbers = 1;
        for (int32_t d = 0; d < e[i].n_dim; d++) numbers *= (double)e[i].shape[d];
        if (e[i].role != FV_ROLE_HEAD || !c->text.tied_head) sum += numbers;
    }
    free(e);
    return sum * 1e-6;
}

Test(published, configs_are_read_and_have_the_published_number_of_parameters) {
    json_t *list = published();
    const json_t *row;
    size_t i;
    cr_assert_geq(json_array_size(list), LEAST);
    json_array_foreach(list, i, row) {
        fv_model_config c;
        const json_t *millions = json_object_get(row, "millions");
        parse(row, &c);
        double found = count(&c), expected = json_number_value(millions);
        cr_expect(!json_is_number(millions) || fabs(found - expected) < 0.005 * expected,
                  "%s: %.0f million parameters, published %.0f", name_of(row), found, expected);
    }
    json_decref(list);
}

Test(published, the_page_names_each_of_them) {
    char *page;
    size_t n, i;
    const json_t *row;
    json_t *list = published();
    cr_assert_eq(fv_file_read(FOVEA_TEST_DATA "/../docs/SUPPORTED.md", 1 << 20, &page, &n), FV_OK,
                 "%s", fv_last_error());
    json_array_foreach(list, i, row) cr_expect(strstr(page, name_of(row)), "%s", name_of(row));
    free(page);
    json_decref(list);
}

/* ---- shrunken -------------------------------------------------------------------------------- */

static bool is_size(const char *key) {
    if (strstr(key, "_token_i")) return true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(key, sizes[i])) return true;
    return false;
}

/* The member of the tiny config that has the sizes of `key`; versions of transformers name RoPE's differently. */
static const json_t *part_of(const json_t *tiny, const char *key) {
    const json_t *part = json_object_get(tiny, key);
    if (!part && !strcmp(key, "rope_scaling")) part = json_object_get(tiny, "rope_parameters");
    if (!part && !strcmp(key, "rope_parameters")) part = json_object_get(tiny, "rope_scaling");
    return part;
}

/* Takes sizes from `tiny`; a size that it leaves out goes. */
static void shrink(json_t *config, const json_t *tiny) {
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(config, next, key, v) {
        if (json_is_object(v))
            shrink(v, part_of(tiny, key));
        else if (is_size(key))
            json_object_del(config, key);
    }
    json_object_foreach((json_t *)(uintptr_t)tiny, key, v) {
        if (is_size(key)) json_object_set(config, key, v);
    }
}

static char dir[256];

/* The config of a tiny network of the same family. */
static json_t *tiny_of(const fv_model_config *c, bool nested) {
    char path[400];
    fv_synth_report made;
    const bool vision = c->has_vision;
    scratch_dir(dir, sizeof dir);
    const fv_synth_options o = {.dir = dir,
                                .shape = c->text.n_kv < c->text.n_head ? "tiny-gqa" : "tiny",
                                .family = vision ? c->family->name : c->text.family,
                                .text_family = vision ? c->text.family : NULL,
                                .config_v5 = nested,
                                .force = true};
    cr_assert_eq(fv_synth_write(&o, &made), FV_OK, "%s", fv_last_error());
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config = json_load_file(path, 0, NULL);
    cr_assert(config);
    return config;
}

static void answer(const char *name, bool vision) {
    fv_local *local;
    const fv_local_options opt = {.checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1};
    uint8_t rgb[3 * 40 * 60];
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)(i * 37);
    const fv_image image = {.rgb = rgb, .w = 60, .h = 40};
    const fv_ask ask = {.n_image = vision,
                        .images = &image,
                        .question = "What is it?",
                        .sampling = fv_sampling_default(),
                        .max_tokens = N_TOKEN,
                        .ignore_eos = true};
    const fv_ask_hooks hooks = {0};
    fv_report report = {0};
    cr_assert_eq(fv_local_open(&opt, &local), FV_OK, "%s: %s", name, fv_last_error());
    cr_assert_eq(fv_local_ask(local, &ask, &hooks, &report), FV_OK, "%s: %s", name,
                 fv_last_error());
    fv_report_free(&report);
    fv_local_close(local);
}

Test(published, shrunken_networks_with_the_published_keys_answer, .timeout = 600) {
    json_t *list = published();
    const json_t *row;
    size_t i;
    json_array_foreach(list, i, row) {
        fv_model_config c;
        fv_synth_report made;
        char path[400];
        json_t *config = json_deep_copy(json_object_get(row, "config"));
        parse(row, &c);
        json_t *tiny = tiny_of(&c, json_object_get(config, "text_config") != NULL);
        shrink(config, tiny);
        snprintf(path, sizeof path, "%s.json", dir);
        cr_assert_eq(json_dump_file(config, path, 0), 0);
        const fv_synth_options o = {
            .dir = dir, .config_file = path, .dtype = FV_BF16, .force = true};
        cr_assert_eq(fv_synth_write(&o, &made), FV_OK, "%s: %s", name_of(row), fv_last_error());
        cr_assert_eq(remove(path), 0);
        answer(name_of(row), c.has_vision);
        json_decref(tiny);
        json_decref(config);
    }
    json_decref(list);
}
