/* model/synth and `fovea synth`: checkpoints can be read back, values depend on seed and name
 * alone, and invalid options are refused before anything is written. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/client/command.h"
#include "common/file.h"
#include "model/checkpoint.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"
#include "text/tokenizer.h"

enum { PATH_CAP = 4096 };
static const char weights[] = "model.safetensors";

typedef struct dir {
    char path[PATH_CAP];
} dir;

static dir scratch(void) {
    dir d;
    scratch_dir(d.path, sizeof d.path);
    return d;
}

static dir made(fv_synth_options o) {
    dir d = scratch();
    o.dir = d.path;
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    return d;
}

static tensor_file *tensors(fv_synth_options o) {
    if (!o.shape && !o.config_file) o.shape = "tiny";
    dir d = made(o);
    return tensor_file_read(d.path, weights);
}

static bool has_file(const dir *d, const char *name) {
    char path[PATH_CAP];
    cr_assert_eq(fv_path_join(d->path, name, path, sizeof path), FV_OK);
    return fv_file_exists(path);
}

/* ---- values ---- */

/* The nearest multiple of 2^(e - bits) to x, ties to even, e being x's exponent or `least`. */
static double rounded(double x, int bits, int least) {
    int e;
    frexp(x, &e);
    if (e < least) e = least;
    double unit = ldexp(1, e - bits);
    return nearbyint(x / unit) * unit;
}

static double value_of(const char *dtype, const unsigned char *p, size_t i) {
    uint16_t h;
    float f;
    if (!strcmp(dtype, "F32")) {
        memcpy(&f, p + 4 * i, 4);
        return (double)f;
    }
    memcpy(&h, p + 2 * i, 2);
    if (!strcmp(dtype, "BF16")) {
        uint32_t u = (uint32_t)h << 16;
        memcpy(&f, &u, 4);
        return (double)f;
    }
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}

Test(synth, half_types_hold_the_rounded_values) {
    tensor_file *f = tensors((fv_synth_options){.dtype = FV_F32});
    tensor_file *b = tensors((fv_synth_options){.dtype = FV_BF16});
    tensor_file *h = tensors((fv_synth_options){.dtype = FV_F16});
    cr_assert(f->n == b->n && f->n == h->n);
    for (int32_t t = 0; t < f->n; t++) {
        cr_assert_str_eq(f->tensor[t].name, b->tensor[t].name);
        for (size_t i = 0; i < f->tensor[t].bytes / 4; i++) {
            double x = value_of("F32", f->tensor[t].data, i);
            cr_assert_eq(value_of("BF16", b->tensor[t].data, i), rounded(x, 8, -125), "%s[%zu]",
                         f->tensor[t].name, i);
            cr_assert_eq(value_of("F16", h->tensor[t].data, i), rounded(x, 11, -13), "%s[%zu]",
                         f->tensor[t].name, i);
        }
    }
    tensor_file_free(f);
    tensor_file_free(b);
    tensor_file_free(h);
}

Test(synth, values_have_the_mean_and_spread_of_their_role) {
    tensor_file *f = tensors((fv_synth_options){.dtype = FV_F32});
    const struct {
        const char *name;
        double mean, std;
    } want[] = {
        {"language_model.model.embed_tokens.weight", 0, 0.6},
        {"language_model.model.layers.0.self_attn.q_proj.weight", 0, 4 / sqrt(64)},
        {"language_model.model.layers.0.self_attn.k_proj.weight", 0, 1 / sqrt(64)},
        {"language_model.model.layers.2.mlp.down_proj.weight", 0, 1 / sqrt(160)},
        {"language_model.lm_head.weight", 0, 2 / sqrt(64)},
        {"vision_tower.vision_model.embeddings.patch_embedding.weight", 0, 1 / sqrt(3 * 14 * 14)},
        {"language_model.model.norm.weight", 1, 0.1},
        {"vision_tower.vision_model.encoder.layers.0.mlp.fc1.bias", 0, 0.05},
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        const file_tensor *t = tensor_file_find(f, want[k].name);
        size_t n = t->bytes / 4;
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n; i++) sum += value_of("F32", t->data, i);
        double mean = sum / (double)n;
        for (size_t i = 0; i < n; i++) squares += pow(value_of("F32", t->data, i) - mean, 2);
        double std = sqrt(squares / (double)n), error = want[k].std / sqrt((double)n);
        cr_assert_lt(fabs(mean - want[k].mean), 5 * error, "%s: mean %g", want[k].name, mean);
        cr_assert_lt(fabs(std - want[k].std), 4 * error, "%s: spread %g", want[k].name, std);
    }
    tensor_file_free(f);
}

static bool same(const file_tensor *a, const file_tensor *b) {
    return a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
}

Test(synth, the_same_options_give_the_same_bytes) {
    tensor_file *a = tensors((fv_synth_options){.seed = 7}),
                *b = tensors((fv_synth_options){.seed = 7});
    for (int32_t i = 0; i < a->n; i++) cr_assert(same(&a->tensor[i], &b->tensor[i]));
    tensor_file_free(a);
    tensor_file_free(b);
}

Test(synth, another_seed_gives_other_values_everywhere) {
    tensor_file *a = tensors((fv_synth_options){.seed = 7}),
                *b = tensors((fv_synth_options){.seed = 8});
    for (int32_t i = 0; i < a->n; i++)
        cr_assert_not(same(&a->tensor[i], &b->tensor[i]), "%s", a->tensor[i].name);
    tensor_file_free(a);
    tensor_file_free(b);
}

Test(synth, tensors_of_one_shape_differ) {
    tensor_file *f = tensors((fv_synth_options){.seed = 0});
    for (int32_t i = 0; i < f->n; i++)
        for (int32_t k = 0; k < i; k++) cr_assert_not(same(&f->tensor[i], &f->tensor[k]));
    tensor_file_free(f);
}

/* Recorded once: a checkpoint identified by shape and seed must never change. */
Test(synth, values_never_change) {
    tensor_file *f = tensors((fv_synth_options){.dtype = FV_F32});
    const file_tensor *t = tensor_file_find(f, "language_model.model.layers.0.mlp.up_proj.weight");
    const uint32_t want[] = {0xBDF36687, 0xBDC86226, 0x3DF275C6, 0x3DA30E6C};
    cr_assert_eq(memcmp(t->data, want, sizeof want), 0, "%08x %08x %08x %08x",
                 ((uint32_t *)(void *)t->data)[0], ((uint32_t *)(void *)t->data)[1],
                 ((uint32_t *)(void *)t->data)[2], ((uint32_t *)(void *)t->data)[3]);
    tensor_file_free(f);
}

Test(synth, fewer_layers_are_the_first_ones) {
    tensor_file *a = tensors((fv_synth_options){.dtype = FV_BF16});
    tensor_file *b =
        tensors((fv_synth_options){.dtype = FV_BF16, .n_layer = 1, .n_vision_layer = 2});
    cr_assert_eq(a->n - b->n, 2 * 9 + 16);
    for (int32_t i = 0; i < b->n; i++)
        cr_assert(same(&b->tensor[i], tensor_file_find(a, b->tensor[i].name)));
    tensor_file_free(a);
    tensor_file_free(b);
}

Test(synth, shards_hold_all_tensors_once_in_about_equal_parts) {
    dir whole = made((fv_synth_options){.shape = "tiny", .dtype = FV_BF16});
    dir parts = made((fv_synth_options){.shape = "tiny", .dtype = FV_BF16, .n_shard = 4});
    cr_assert_not(has_file(&parts, weights));
    tensor_file *a = tensor_file_read(whole.path, weights);
    size_t total = 0, n = 0;
    for (int32_t i = 0; i < a->n; i++) total += a->tensor[i].bytes;
    for (int s = 1; s <= 4; s++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-00004.safetensors", s);
        tensor_file *b = tensor_file_read(parts.path, name);
        size_t bytes = 0;
        for (int32_t i = 0; i < b->n; i++) {
            cr_assert(same(&b->tensor[i], tensor_file_find(a, b->tensor[i].name)));
            bytes += b->tensor[i].bytes;
        }
        n += (size_t)b->n;
        cr_assert(bytes > total / 8 && bytes < total / 2, "%zu of %zu", bytes, total);
        tensor_file_free(b);
    }
    cr_assert_eq(n, (size_t)a->n);
    tensor_file_free(a);
}

Test(synth, a_shard_per_tensor_is_the_limit) {
    dir d = scratch();
    fv_synth_options o = {.dir = d.path, .shape = "tiny", .n_layer = 1, .n_vision_layer = 1};
    fv_synth_report r;
    o.n_shard = 1;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK);
    o.force = true;
    o.n_shard = r.n_tensor;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    cr_assert_eq(r.n_file, r.n_tensor);
    fv_checkpoint *ck;
    cr_assert_eq(fv_checkpoint_open(d.path, &ck), FV_OK, "%s", fv_last_error());
    fv_checkpoint_close(ck);
    o.n_shard = r.n_tensor + 1;
    cr_assert_eq(fv_synth_write(&o, &r), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "are too many"));
}

/* ---- configs ---- */

Test(synth, every_small_shape_and_family_opens_in_both_key_forms) {
    static const char *const shapes[] = {"tiny", "tiny-gqa", "nano"};
    static const char *const families[] = {"llama", "mistral", "qwen2"};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++)
            for (int v5 = 0; v5 < 2; v5++) {
                dir d = made((fv_synth_options){.shape = shapes[i],
                                                .text_family = families[k],
                                                .dtype = FV_BF16,
                                                .n_layer = 2,
                                                .config_v5 = v5 == 1});
                fv_checkpoint *ck;
                cr_assert_eq(fv_checkpoint_open(d.path, &ck), FV_OK, "%s", fv_last_error());
                const fv_model_config *cfg = fv_checkpoint_config(ck);
                cr_assert_str_eq(cfg->text.family, families[k]);
                cr_assert_eq(cfg->text.n_layer, 2);
                cr_assert_eq(cfg->text.bias_qkv, k == 2);
                cr_assert_eq(cfg->text.bos, k == 2 ? -1 : 1);
                cr_assert(cfg->n_eos == 1 && cfg->eos[0] == 2);
                cr_assert_geq(cfg->text.max_position, 1024);
                cr_assert_eq(cfg->layout.shortest_edge, cfg->vision.image);
                cr_assert_eq(has_file(&d, "preprocessor_config.json"), v5 == 0);
                fv_checkpoint_close(ck);
            }
}

Test(synth, every_family_is_written_as_it_is_read) {
    static const char *const families[] = {
        "llava",        "llava_next",   "llava_onevision", "idefics3",    "smolvlm",
        "internvl",     "mistral3",     "qwen2_vl",        "qwen2_5_vl",  "qwen3_vl",
        "llama",        "mistral",      "qwen2",           "qwen3",       "granite",
        "phi3",         "ministral3",   "qwen3_vl_moe",    "pixtral",     "qwen3_5",
        "qwen3_5_moe",  "shieldgemma2", "internvl_chat",   "glm4v",       "glm46v",
        "glm_ocr",      "gemma4",       "gemma4_unified",  "gemma4_text", "lighton_ocr",
        "paddleocr_vl", "glm4v_moe"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (int v5 = 0; v5 < 2; v5++) {
            dir d = made((fv_synth_options){
                .shape = "tiny", .family = families[i], .dtype = FV_BF16, .config_v5 = v5 == 1});
            fv_checkpoint *ck;
            cr_assert_eq(fv_checkpoint_open(d.path, &ck), FV_OK, "%s: %s", families[i],
                         fv_last_error());
            const fv_model_config *cfg = fv_checkpoint_config(ck);
            cr_assert_str_eq(cfg->has_vision ? cfg->family->name : cfg->text.family, families[i]);
            cr_assert_eq(has_file(&d, "chat_template.jinja"), cfg->has_vision);
            fv_checkpoint_close(ck);
        }
}

Test(synth, the_real_shapes_are_those_of_llava) {
    static const struct {
        const char *name;
        int32_t d, m, n;
    } want[] = {{"llava-1.5-7b", 4096, 11008, 32}, {"llava-1.5-13b", 5120, 13824, 40}};
    for (size_t i = 0; i < 2; i++) {
        /* No disk for gigabytes in a unit test: one shard too many stops it before the weights. */
        dir d = scratch();
        fv_synth_options o = {.dir = d.path, .shape = want[i].name, .n_shard = 1000};
        fv_synth_report r;
        cr_assert_eq(fv_synth_write(&o, &r), FV_EINVAL);
        char path[PATH_CAP], *text;
        size_t n;
        cr_assert_eq(fv_path_join(d.path, "config.json", path, sizeof path), FV_OK);
        cr_assert_eq(fv_file_read(path, 1 << 20, &text, &n), FV_OK, "%s", fv_last_error());
        fv_model_config cfg;
        cr_assert_eq(fv_config_parse(text, n, path, &cfg), FV_OK);
        free(text);
        cr_assert_eq(cfg.text.d_model, want[i].d);
        cr_assert_eq(cfg.text.d_ffn, want[i].m);
        cr_assert_eq(cfg.text.n_layer, want[i].n);
        cr_assert_eq(cfg.text.d_head, 128);
        cr_assert_eq(cfg.text.n_kv, cfg.text.n_head);
        cr_assert(cfg.text.vocab == 32064 && cfg.image_token == 32000);
        cr_assert(cfg.vision.d_model == 1024 && cfg.vision.n_layer == 24);
        cr_assert_eq(fv_vision_tokens(&cfg.vision), 576);
    }
}

Test(synth, a_config_file_stands_in_for_a_shape) {
    dir home = scratch();
    write_text(home.path, "c.json",
               "{\"model_type\":\"llava\",\"image_token_index\":300,\"torch_dtype\":\"float64\","
               "\"vision_feature_layer\":[-1,1],\"vision_feature_select_strategy\":\"full\","
               "\"multimodal_projector_bias\":false,"
               "\"text_config\":{\"vocab_size\":301,\"hidden_size\":48,\"intermediate_size\":20,"
               "\"num_hidden_layers\":1,\"num_attention_heads\":3,\"attention_bias\":true},"
               "\"vision_config\":{\"hidden_size\":24,\"intermediate_size\":40,"
               "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"image_size\":30,"
               "\"patch_size\":10}}");
    char path[PATH_CAP];
    cr_assert_eq(fv_path_join(home.path, "c.json", path, sizeof path), FV_OK);
    dir d = made((fv_synth_options){.config_file = path, .n_vision_layer = 3});
    fv_checkpoint *ck;
    cr_assert_eq(fv_checkpoint_open(d.path, &ck), FV_OK, "%s", fv_last_error());
    const fv_model_config *cfg = fv_checkpoint_config(ck);
    cr_assert_eq(cfg->vision.n_layer, 3);
    cr_assert(cfg->vision.n_feature_layer == 2 && cfg->vision.feature_layer[0] == 3);
    cr_assert_eq(fv_checkpoint_projector(ck)->fc1.cols, 48);
    cr_assert_null(fv_checkpoint_projector(ck)->fc1_bias.data);
    cr_assert_not_null(fv_checkpoint_text(ck)->layer[0].o_bias.data);
    cr_assert_eq(cfg->layout.tile, 30);
    fv_checkpoint_close(ck);
}

/* ---- tokenizer ---- */

Test(synth, the_tokenizer_names_every_id_up_to_the_padding) {
    static const char *const shapes[] = {"tiny", "nano", "small"};
    for (size_t i = 0; i < 3; i++) {
        dir d = scratch();
        /* the tokenizer is written before the weights, which these options stop */
        fv_synth_options o = {.dir = d.path, .shape = shapes[i], .n_shard = 1000};
        fv_synth_report r;
        cr_assert_eq(fv_synth_write(&o, &r), FV_EINVAL);
        fv_tokenizer *tok;
        cr_assert_eq(fv_tokenizer_open(d.path, &tok), FV_OK, "%s", fv_last_error());
        int32_t image = fv_tokenizer_id(tok, "<image>");
        cr_assert_eq(image, i == 0 ? 480 : i == 1 ? 2000 : 32000);
        cr_assert_eq(fv_tokenizer_vocab(tok), image + 2);
        cr_assert_eq(fv_tokenizer_id(tok, "<pad>"), image + 1);
        cr_assert(fv_tokenizer_is_special(tok, image));
        for (int32_t id = 0; id < image + 2; id++) {
            char *text;
            size_t n;
            cr_assert_eq(fv_tokenizer_decode(tok, &id, 1, false, &text, &n), FV_OK, "id %d", id);
            free(text);
        }
        fv_tokenizer_free(tok);
    }
}

Test(synth, text_survives_the_tokenizer) {
    dir d = made((fv_synth_options){.shape = "tiny"});
    fv_tokenizer *tok;
    cr_assert_eq(fv_tokenizer_open(d.path, &tok), FV_OK, "%s", fv_last_error());
    const char *text = "USER: <image>\nwhat is there? \xE7\x8C\xAB \xF0\x9F\x90\x88 ASSISTANT:";
    int32_t *ids, n;
    cr_assert_eq(fv_tokenizer_encode(tok, text, strlen(text), true, &ids, &n), FV_OK);
    cr_assert_eq(ids[0], 1, "<s>");
    int32_t images = 0;
    for (int32_t i = 0; i < n; i++) images += ids[i] == 480;
    cr_assert_eq(images, 1);
    cr_assert_lt(n, (int32_t)strlen(text), "merges shorten it");
    char *back;
    size_t bytes;
    cr_assert_eq(fv_tokenizer_decode(tok, ids + 1, n - 1, false, &back, &bytes), FV_OK);
    cr_assert_str_eq(back,
                     "USER: <image> \nwhat is there? \xE7\x8C\xAB \xF0\x9F\x90\x88 ASSISTANT:",
                     "text after an added token gets a space, as in Llama's tokenizer: '%s'", back);
    free(back);
    free(ids);
    fv_tokenizer_free(tok);
}

/* ---- refusals ---- */

static void refuse(fv_synth_options o, fv_status want, const char *words) {
    dir d = scratch();
    o.dir = d.path;
    fv_synth_report r = {.n_file = -7};
    cr_assert_eq(fv_synth_write(&o, &r), want, "%s", fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
    cr_assert_eq(r.n_file, -7);
    cr_assert_not(has_file(&d, "config.json"), "something was written");
}

Test(synth, invalid_options_are_refused_before_anything_is_written) {
    dir home = scratch();
    char small_vocab[PATH_CAP], default_parts[PATH_CAP];
    write_text(home.path, "small.json",
               "{\"model_type\":\"llava\",\"image_token_index\":259,"
               "\"vision_config\":{\"num_hidden_layers\":1}}");
    write_text(home.path, "default.json", "{\"model_type\":\"llava\",\"image_token_index\":31999}");
    cr_assert_eq(fv_path_join(home.path, "small.json", small_vocab, PATH_CAP), FV_OK);
    cr_assert_eq(fv_path_join(home.path, "default.json", default_parts, PATH_CAP), FV_OK);
    refuse((fv_synth_options){.n_layer = 1}, FV_EINVAL, "either a shape or a config file");
    refuse((fv_synth_options){.shape = "tiny", .config_file = small_vocab}, FV_EINVAL, "either");
    refuse((fv_synth_options){.shape = "huge"}, FV_EINVAL,
           "unknown shape 'huge'; available: llava-1.5-7b");
    refuse((fv_synth_options){.shape = "tiny", .text_family = "gemma"}, FV_EINVAL,
           "unknown text family 'gemma'");
    refuse((fv_synth_options){.shape = "tiny", .family = "gemma"}, FV_EINVAL,
           "unknown family 'gemma'; available: llava, llava_next, ");
    refuse((fv_synth_options){.shape = "tiny", .family = "qwen3", .text_family = "llama"},
           FV_EINVAL, "family 'qwen3' is a text model alone");
    refuse((fv_synth_options){.config_file = small_vocab, .text_family = "llama"}, FV_EINVAL,
           "the text family comes from the config file");
    refuse((fv_synth_options){.config_file = small_vocab, .family = "llava"}, FV_EINVAL,
           "the family comes from the config file");
    refuse((fv_synth_options){.config_file = small_vocab}, FV_EINVAL,
           "image_token_index leaves 259 ids to text: a synthetic tokenizer needs 260");
    refuse((fv_synth_options){.config_file = default_parts, .n_layer = 1}, FV_EINVAL,
           "no text_config to set layers in");
    refuse((fv_synth_options){.config_file = default_parts, .n_vision_layer = 1}, FV_EINVAL,
           "no vision_config to set layers in");
    refuse((fv_synth_options){.config_file = "/nowhere.json"}, FV_ENOTFOUND, "/nowhere.json");
    refuse((fv_synth_options){.shape = "tiny", .n_layer = 300}, FV_EDATA, "num_hidden_layers");
}

Test(synth, a_directory_that_is_not_empty_is_left_alone) {
    dir d = scratch();
    write_text(d.path, "notes.txt", "mine");
    fv_synth_options o = {.dir = d.path, .shape = "tiny"};
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "is not empty"));
    cr_assert_not(has_file(&d, "config.json"));
}

Test(synth, force_replaces_an_earlier_checkpoint_and_nothing_else) {
    dir d = scratch();
    fv_synth_options o = {.dir = d.path, .shape = "tiny", .n_shard = 3};
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK);
    write_text(d.path, "notes.txt", "mine");
    o.n_shard = 1;
    o.force = true;
    o.config_v5 = true;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    cr_assert(has_file(&d, "notes.txt"));
    cr_assert(has_file(&d, weights));
    cr_assert_not(has_file(&d, "model.safetensors.index.json"));
    cr_assert_not(has_file(&d, "model-00001-of-00003.safetensors"));
    cr_assert_not(has_file(&d, "preprocessor_config.json"));
}

Test(synth, a_file_in_the_way_is_reported) {
    dir d = scratch();
    write_text(d.path, "taken", "");
    char path[PATH_CAP];
    cr_assert_eq(fv_path_join(d.path, "taken", path, sizeof path), FV_OK);
    fv_synth_options o = {.dir = path, .shape = "tiny"};
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_EIO);
    cr_assert_not_null(strstr(fv_last_error(), "taken"));
}

/* ---- the command ---- */

#define RUN(...)                                                                                   \
    fv_cli_run(&fv_cli_synth, (int)(sizeof((char *[]){"synth", __VA_ARGS__}) / sizeof(char *)),    \
               (char *[]){"synth", __VA_ARGS__, NULL})

Test(synth, the_command_says_what_it_wrote, .init = cr_redirect_stdout) {
    dir d = scratch();
    char dest[PATH_CAP], line[2 * PATH_CAP];
    cr_assert_eq(fv_path_join(d.path, "new/folder", dest, sizeof dest), FV_OK);
    cr_assert_eq(RUN("--shape", "tiny", "--dtype", "f32", "--shards", "2", "--dialect", "v5.6",
                     "--layers", "1", "--seed=9", "--out", dest),
                 0, "%s", fv_last_error());
    fflush(stdout);
    snprintf(line, sizeof line, "wrote %s: 71 tensors, 657024 bytes, 2 weight files\n", dest);
    cr_assert_stdout_eq_str(line);
}

Test(synth, the_command_tells_wrong_usage_from_failure, .init = cr_redirect_stderr) {
    dir d = scratch();
    char *out = d.path;
    cr_assert_eq(RUN("--shape", "tiny"), 2);
    cr_assert_eq(RUN("--out", out), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "--config", "c.json"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "--dtype", "fp8"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "--dialect", "v3"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "--key-form", "v6"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "--layers", "-1"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "--nonsense"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "tiny", "word"), 2);
    cr_assert_eq(RUN("--out", out, "--shape", "huge"), 2);
    cr_assert_eq(RUN("--out", out, "--config", "/nowhere.json"), 1);
    cr_assert_eq(rmdir(out), 0, "nothing was written");
}

Test(synth, the_command_has_help, .init = cr_redirect_stdout) { cr_assert_eq(RUN("--help"), 0); }
