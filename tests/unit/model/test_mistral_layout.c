/* Mistral's own layout: params.json, consolidated.safetensors and tekken.json are the checkpoint that transformers'
 * layout is, weight by weight; what params.json says beyond that is refused. tests/parity/mistral_live.py compares
 * answers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/params.h"
#include "gguf/texts.h"
#include "kernels/backends/open.h"
#include "model/checkpoint.h"
#include "model/inspect.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

static char hub[256], own[256];

static const char small3[] =
    "{\"dim\": 32, \"n_layers\": 2, \"hidden_dim\": 48, \"n_heads\": 4, \"n_kv_heads\": 2, "
    "\"head_dim\": 8, \"vocab_size\": 384, \"norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
    "\"max_seq_len\": 1024, \"vision_encoder\": {\"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"num_channels\": 3, \"image_size\": "
    "16, "
    "\"max_image_size\": 16, \"patch_size\": 4, \"rope_theta\": 10000.0, \"adapter_bias\": false, "
    "\"mm_projector_id\": \"patch_merge\", \"spatial_merge_size\": 2, "
    "\"add_pre_mm_projector_layer_norm\": true, \"image_token_id\": 343, "
    "\"image_break_token_id\": 12, \"image_end_token_id\": 13}}";

/* Rows of queries and keys so that neighbours are rotated together. */
static void reorder(file_tensor *t, size_t heads) {
    const size_t row = t->bytes / (size_t)t->shape[0], each = (size_t)t->shape[0] / heads;
    unsigned char *to = malloc(t->bytes);
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < each; i++) {
            const size_t from = i % 2 * (each / 2) + i / 2;
            memcpy(to + (h * each + i) * row, t->data + (h * each + from) * row, row);
        }
    free(t->data);
    t->data = to;
}

static void write_own(const char *name) {
    tensor_file *f = tensor_file_read(hub, "model.safetensors");
    for (int32_t i = 0; i < f->n; i++) {
        file_tensor *t = &f->tensor[i];
        char named[FV_GGUF_NAME_MAX];
        cr_assert(fv_params_own_name(t->name, named), "%s", t->name);
        const bool tower = strncmp(named, "vision_", 7) == 0;
        if (strstr(named, ".wq.")) reorder(t, tower ? 2 : 4);
        if (strstr(named, ".wk.")) reorder(t, 2);
        snprintf(t->name, sizeof t->name, "%s", named);
    }
    tensor_file_write(f, own, name, 0);
    tensor_file_free(f);
}

static void copy_file(const char *name) {
    char path[512], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", hub, name);
    cr_assert_eq(fv_file_read(path, 1 << 24, &text, &n), FV_OK, "%s", fv_last_error());
    write_text(own, name, text);
    free(text);
}

static void make(void) {
    fv_synth_report r;
    scratch_dir(hub, sizeof hub);
    scratch_dir(own, sizeof own);
    const fv_synth_options o = {.dir = hub,
                                .config_file = FOVEA_TEST_DATA "/golden/gguf/vision/mistral3.json",
                                .dtype = FV_BF16,
                                .force = true};
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    write_own("consolidated.safetensors");
    write_text(own, "params.json", small3);
    copy_file("tokenizer.json");
}

static fv_checkpoint *loaded(const char *from) {
    fv_checkpoint *ck = NULL;
    fv_backend be;
    cr_assert_eq(fv_checkpoint_open(from, &ck), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1}), FV_OK);
    cr_assert_eq(fv_checkpoint_load(ck, &be, NULL, NULL, NULL), FV_OK, "%s", fv_last_error());
    fv_backend_close(&be);
    return ck;
}

/* Structs of nothing but tensors. */
static void assert_same(const char *what, const void *a, const void *b, size_t bytes) {
    const fv_tensor *x = a, *y = b;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        cr_assert_eq(!x[i].data, !y[i].data, "%s: tensor %zu", what, i);
        if (!x[i].data) continue;
        cr_assert(x[i].rows == y[i].rows && x[i].cols == y[i].cols && x[i].dtype == y[i].dtype);
        cr_assert_eq(memcmp(x[i].data, y[i].data,
                            (size_t)x[i].rows * (size_t)x[i].cols * fv_dtype_bytes(x[i].dtype)),
                     0, "%s: tensor %zu", what, i);
    }
}

static void compare(void) {
    fv_checkpoint *a = loaded(hub), *b = loaded(own);
    const fv_model_config *x = fv_checkpoint_config(a), *y = fv_checkpoint_config(b);
    const fv_text_weights *v = fv_checkpoint_text(a), *w = fv_checkpoint_text(b);
    const fv_vision_weights *s = fv_checkpoint_vision(a), *t = fv_checkpoint_vision(b);
    cr_assert_str_eq(x->family->name, y->family->name);
    cr_assert_eq(x->image_token, y->image_token);
    cr_assert_eq(x->vision.act, y->vision.act);
    cr_assert_eq(x->vision.merge, y->vision.merge);
    cr_assert_eq(x->text.max_position, y->text.max_position);
    assert_same("embedding", &v->embed, &w->embed, sizeof v->embed);
    assert_same("head", &v->head, &w->head, sizeof v->head);
    for (int l = 0; l < 2; l++) assert_same("layer", &v->layer[l], &w->layer[l], sizeof *v->layer);
    for (int l = 0; l < 3; l++) assert_same("tower", &s->layer[l], &t->layer[l], sizeof *s->layer);
    assert_same("connector", fv_checkpoint_projector(a), fv_checkpoint_projector(b),
                sizeof(fv_projector_weights));
    fv_checkpoint_close(a);
    fv_checkpoint_close(b);
}

Test(mistral_layout, a_folder_is_the_same_checkpoint_as_in_the_usual_layout) {
    fv_inspection in;
    make();
    compare();
    cr_assert_eq(fv_inspect(own, &in), FV_OK, "%s", fv_last_error());
    cr_assert(in.can_serve, "%s", in.n_fault ? in.fault[0].what : "");
    fv_inspection_free(&in);
}

Test(mistral_layout, weights_may_be_in_several_files_with_an_index) {
    char from[512], to[512];
    make();
    snprintf(from, sizeof from, "%s/consolidated.safetensors", own);
    snprintf(to, sizeof to, "%s/consolidated-00001-of-00001.safetensors", own);
    cr_assert_eq(rename(from, to), 0);
    write_text(own, "consolidated.safetensors.index.json",
               "{\"weight_map\": {\"norm.weight\": \"consolidated-00001-of-00001.safetensors\"}}");
    compare();
}

Test(mistral_layout, the_usual_files_go_first_and_config_json_goes_with_own_names) {
    make();
    copy_file("config.json");
    copy_file("preprocessor_config.json");
    write_text(own, "params.json", "{\"dim\": 7}");
    compare(); /* config.json says more than params.json */
    write_text(own, "params.json", small3);
    tensor_file *f = tensor_file_read(hub, "model.safetensors");
    tensor_file_write(f, own, "model.safetensors", 0);
    tensor_file_free(f);
    write_text(own, "consolidated.safetensors", "not read");
    compare();
}

static void refused(const char *params, fv_status st, const char *words) {
    fv_checkpoint *ck;
    write_text(own, "params.json", params);
    cr_assert_eq(fv_checkpoint_open(own, &ck), st, "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), "params.json"), "%s", fv_last_error());
}

Test(mistral_layout, what_params_json_says_beyond_that_is_refused_by_name) {
    static const struct {
        const char *member, *words;
    } more[] = {{"\"moe\": {\"num_experts\": 8}", "key 'moe'"},
                {"\"quantization\": {\"qformat_weight\": \"fp8_e4m3\"}", "key 'quantization'"},
                {"\"model_type\": \"mamba\"", "'mamba'"},
                {"\"sliding_window\": [32768, 4096]", "key 'sliding_window'"},
                {"\"yarn\": {\"factor\": 2}", "without 'llama_4_scaling'"},
                {"\"yarn\": {\"factor\": 2, \"rest\": 1}", "key 'rest'"}};
    char params[2048];
    make();
    refused("[]", FV_EDATA, "is no JSON object");
    refused("{}", FV_EDATA, "key 'dim' is missing");
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(params, sizeof params, "{%s, %s", more[i].member, small3 + 1);
        refused(params, FV_EUNSUPPORTED, more[i].words);
    }
    snprintf(params, sizeof params, "%s", small3);
    memcpy(strstr(params, "patch_merge"), "patch_mixer", 11);
    refused(params, FV_EUNSUPPORTED, "'patch_mixer'");
}

Test(mistral_layout, a_missing_tensor_has_its_own_name) {
    fv_checkpoint *ck;
    make();
    tensor_file_without(own, "consolidated.safetensors", "layers.1.feed_forward.w2.weight");
    cr_assert_eq(fv_checkpoint_open(own, &ck), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "'layers.1.feed_forward.w2.weight'"), "%s", fv_last_error());
}

Test(mistral_layout, names_are_translated_both_ways) {
    static const char *const names[][2] = {
        {"layers.10.attention.wo.weight", "language_model.model.layers.10.self_attn.o_proj.weight"},
        {"vision_encoder.transformer.layers.3.feed_forward.w1.weight",
         "vision_tower.transformer.layers.3.feed_forward.gate_proj.weight"},
        {"patch_merger.merging_layer.weight",
         "multi_modal_projector.patch_merger.merging_layer.weight"},
        {"vision_language_adapter.w_in.bias", "multi_modal_projector.linear_1.bias"}};
    char out[FV_GGUF_NAME_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_assert(fv_params_hub_name(names[i][0], out));
        cr_assert_str_eq(out, names[i][1]);
        cr_assert(fv_params_own_name(names[i][1], out));
        cr_assert_str_eq(out, names[i][0]);
    }
    cr_assert(!fv_params_hub_name("layers.x.attention.wo.weight", out));
    cr_assert(!fv_params_hub_name("layers.1", out));
    cr_assert(!fv_params_hub_name("layers.0123456789.attention.wo.weight", out));
    cr_assert(!fv_params_hub_name("embed_tokens.weight", out));
}

/* The template of a folder that has no other, by its vocabulary. */
static void renders(const char *tekken, const char *want) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t n;
    write_text(own, "tekken.json", tekken);
    cr_assert_eq(fv_checkpoint_file(own, "chat_template.jinja", 1 << 20, path, &text, &n), FV_OK);
    cr_assert_not_null(text);
    cr_assert(strstr(text, want), "%s", text);
    free(text);
}

Test(mistral_layout, a_folder_without_a_template_gets_one_by_its_vocabulary) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t n;
    make();
    renders("{\"special_tokens\": [\"[SYSTEM_PROMPT]\"]}", "[/SYSTEM_PROMPT]");
    renders("{\"special_tokens\": []}", "loop.last");
    write_text(own, "tokenizer_config.json", "{}");
    cr_assert_eq(fv_checkpoint_file(own, "chat_template.jinja", 1 << 20, path, &text, &n), FV_OK);
    cr_assert_null(text);
}
