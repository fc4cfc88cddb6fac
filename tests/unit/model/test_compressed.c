/* Checkpoints with weights in integers: written, mapped, and damaged. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/convert.h"
#include "common/file.h"
#include "kernels/backends/open.h"
#include "model/checkpoint.h"
#include "model/compressed.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };

static fv_checkpoint *opened(const char *dir) {
    fv_checkpoint *ck = NULL;
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    return ck;
}

static void synth_tiny(char dir[PATH_CAP]) {
    fv_synth_options o = {.dir = dir, .shape = "tiny-gqa", .dtype = FV_BF16};
    fv_synth_report r;
    scratch_dir(dir, PATH_CAP);
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
}

static fv_checkpoint *quantized_in(const char *dir, const char *name) {
    fv_checkpoint *ck = opened(dir);
    const fv_weights *to;
    fv_backend be;
    cr_assert_eq(fv_weights_find(name, &to), FV_OK);
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 2}), FV_OK);
    cr_assert_eq(fv_checkpoint_quantize(ck, &be, to, NULL, NULL), FV_OK, "%s", fv_last_error());
    fv_backend_close(&be);
    return ck;
}

/* A tiny checkpoint, quantized in memory; with `absent` its head is tied, and that tensor is
 * missing. */
static fv_checkpoint *quantized_without(const char *name, const char *absent) {
    char dir[PATH_CAP], path[PATH_CAP];
    synth_tiny(dir);
    if (absent) {
        cr_assert_eq(fv_path_join(dir, "config.json", path, sizeof path), FV_OK);
        json_t *root = json_load_file(path, 0, NULL);
        json_object_set_new(root, "tie_word_embeddings", json_true());
        cr_assert_eq(json_dump_file(root, path, 0), 0);
        json_decref(root);
        tensor_file_without(dir, "model.safetensors", absent);
    }
    return quantized_in(dir, name);
}

static fv_checkpoint *quantized(const char *name) { return quantized_without(name, NULL); }

static void write_as(const fv_checkpoint *ck, const char *name, char dir[PATH_CAP]) {
    const fv_weights *to;
    uint64_t bytes;
    scratch_dir(dir, PATH_CAP);
    cr_assert_eq(fv_weights_find(name, &to), FV_OK);
    cr_assert_eq(fv_checkpoint_write(ck, to, dir, NULL, NULL, &bytes), FV_OK, "%s",
                 fv_last_error());
}

static void assert_same(const fv_tensor *a, const fv_tensor *b) {
    cr_assert(a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols);
    cr_assert_eq(!a->quant, !b->quant);
    size_t rows = (size_t)a->rows;
    if (!a->quant) {
        cr_assert_arr_eq(a->data, b->data, rows * (size_t)a->cols * fv_dtype_bytes(a->dtype));
        return;
    }
    const fv_quant *p = a->quant, *q = b->quant;
    cr_assert(p->groups == q->groups && p->scale_type == q->scale_type);
    cr_assert_eq(p->integers, q->integers);
    size_t row = a->dtype == FV_INT8 ? (size_t)a->cols : p->row_bytes;
    cr_assert_arr_eq(a->data, b->data, rows * row);
    cr_assert_arr_eq(p->scale, q->scale, rows * (size_t)p->groups * fv_dtype_bytes(p->scale_type));
}

/* Writes a checkpoint and maps it again; closes `made`. */
static void is_mapped_as_written(fv_checkpoint *made, const char *name) {
    char dir[PATH_CAP];
    write_as(made, name, dir);
    fv_checkpoint *read = opened(dir);
    cr_assert(fv_checkpoint_is_quantized(made) && fv_checkpoint_is_quantized(read));
    const fv_text_weights *a = fv_checkpoint_text(made), *b = fv_checkpoint_text(read);
    for (int l = 0; l < fv_checkpoint_config(made)->text.n_layer; l++) {
        const fv_tensor *x = &a->layer[l].attn_norm, *y = &b->layer[l].attn_norm;
        for (size_t t = 0; t < sizeof a->layer[l] / sizeof *x; t++)
            if (x[t].data) assert_same(&x[t], &y[t]);
    }
    assert_same(&a->head, &b->head);
    assert_same(&a->embed, &b->embed);
    cr_assert(b->layer[0].q.quant && b->head.quant && b->head.quant->group == 32);
    cr_assert_not(b->embed.quant);
    fv_checkpoint_close(made);
    fv_checkpoint_close(read);
}

Test(compressed, what_is_written_is_what_is_mapped) {
    static const char *const name[] = {"int8", "int4", "int4-128"};
    for (int i = 0; i < 3; i++) is_mapped_as_written(quantized(name[i]), name[i]);
}

/* Phi-3's tensors of q, k and v, and of gate and up, are written as one each. */
Test(compressed, fused_weights_are_written_fused) {
    static const char *const name[] = {"int8", "int4", "int4-128"};
    fv_synth_options o = {.shape = "tiny-gqa", .family = "phi3", .dtype = FV_BF16};
    char dir[PATH_CAP];
    fv_synth_report r;
    scratch_dir(dir, PATH_CAP);
    o.dir = dir;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    for (int i = 0; i < 3; i++) is_mapped_as_written(quantized_in(dir, name[i]), name[i]);
}

/* A group of the head is as wide as its rows, and has one scale for each, like the layers' int8. */
Test(compressed, what_is_written_of_a_narrow_model_is_what_is_mapped) {
    char dir[PATH_CAP], path[PATH_CAP], narrow[PATH_CAP];
    synth_tiny(dir);
    scratch_dir(narrow, sizeof narrow);
    cr_assert_eq(fv_path_join(dir, "config.json", path, sizeof path), FV_OK);
    json_t *root = json_load_file(path, 0, NULL);
    json_object_set_new(json_object_get(root, "text_config"), "hidden_size", json_integer(24));
    cr_assert_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    fv_synth_report r;
    fv_synth_options o = {.dir = narrow, .config_file = path, .dtype = FV_BF16};
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    is_mapped_as_written(quantized_in(narrow, "int8"), "int8");
    is_mapped_as_written(quantized_in(narrow, "int4"), "int4");
}

Test(compressed, of_a_tied_pair_the_embedding_stays_and_the_head_is_written) {
    is_mapped_as_written(quantized_without("int8", "language_model.lm_head.weight"), "int8");
    is_mapped_as_written(quantized_without("int4", "language_model.lm_head.weight"), "int4");
    is_mapped_as_written(quantized_without("int4", "language_model.model.embed_tokens.weight"),
                         "int4");
}

Test(compressed, what_is_quantized_is_not_quantized_again) {
    fv_checkpoint *ck = quantized("int8");
    char dir[PATH_CAP];
    write_as(ck, "int8", dir);
    fv_checkpoint *read = opened(dir);
    const fv_weights *to;
    fv_backend be;
    cr_assert_eq(fv_weights_find("int4", &to), FV_OK);
    cr_assert_eq(fv_backend_open(&be, "cpu", NULL), FV_OK);
    cr_assert_eq(fv_checkpoint_quantize(read, &be, to, NULL, NULL), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "is int8 already; leave out --weights int4"), "%s",
              fv_last_error());
    uint64_t bytes;
    cr_assert_eq(fv_checkpoint_write(read, to, dir, NULL, NULL, &bytes), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "is int8 already and is not written"), "%s", fv_last_error());
    fv_backend_close(&be);
    fv_checkpoint_close(read);
    fv_checkpoint_close(ck);
}

static void write_tiny(const char *from, const char *dir) {
    const fv_weights *to;
    uint64_t bytes;
    fv_checkpoint *ck = quantized_in(from, "int8");
    cr_assert_eq(fv_weights_find("int8", &to), FV_OK);
    cr_assert_eq(fv_checkpoint_write(ck, to, dir, NULL, NULL, &bytes), FV_OK, "%s",
                 fv_last_error());
    fv_checkpoint_close(ck);
    fv_checkpoint_close(opened(dir));
}

static void link_to(const char *to, const char *dir, const char *name) {
    char path[PATH_CAP];
    cr_assert_eq(fv_path_join(dir, name, path, sizeof path), FV_OK);
    cr_assert_eq(symlink(to, path), 0);
}

Test(compressed, what_is_no_file_of_a_checkpoint_is_not_copied) {
    char from[PATH_CAP], dir[PATH_CAP], path[PATH_CAP];
    synth_tiny(from);
    scratch_dir(dir, sizeof dir);
    link_to(".", from, "folder");
    link_to("nowhere", from, "dangling");
    cr_assert_eq(fv_path_join(from, "pipe", path, sizeof path), FV_OK);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(fv_path_join(from, "tf_model.h5", path, sizeof path), FV_OK);
    write_text(from, "tf_model.h5", "large");
    cr_assert_eq(truncate(path, 1 << 30), 0); /* sparse */
    write_tiny(from, dir);
    cr_assert_eq(fv_path_join(dir, "tf_model.h5", path, sizeof path), FV_OK);
    cr_assert_not(fv_file_exists(path));
    cr_assert_eq(fv_path_join(dir, "tokenizer.json", path, sizeof path), FV_OK);
    cr_assert(fv_file_exists(path));
}

Test(compressed, what_a_link_leads_to_is_not_written_over) {
    char from[PATH_CAP], dir[PATH_CAP], path[PATH_CAP];
    synth_tiny(from);
    scratch_dir(dir, sizeof dir);
    cr_assert_eq(fv_path_join(from, "config.json", path, sizeof path), FV_OK);
    fv_file_stamp before = fv_file_stamp_of(path);
    link_to(path, dir, "config.json");
    write_tiny(from, dir);
    fv_file_stamp after = fv_file_stamp_of(path);
    cr_assert(fv_file_stamp_equal(&before, &after));
}

/* A reader between the two writes would mix two checkpoints. */
Test(compressed, a_directory_whose_files_could_not_be_written_is_no_checkpoint) {
    char from[PATH_CAP], dir[PATH_CAP], path[PATH_CAP];
    const fv_weights *to;
    uint64_t bytes;
    fv_checkpoint *out = NULL;
    synth_tiny(from);
    scratch_dir(dir, sizeof dir);
    write_tiny(from, dir);
    cr_assert_eq(fv_path_join(dir, "tokenizer.json", path, sizeof path), FV_OK);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    fv_checkpoint *ck = quantized_in(from, "int8");
    cr_assert_eq(fv_weights_find("int8", &to), FV_OK);
    cr_assert_neq(fv_checkpoint_write(ck, to, dir, NULL, NULL, &bytes), FV_OK);
    fv_checkpoint_close(ck);
    cr_assert_eq(fv_checkpoint_open(dir, &out), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "config.json does not exist"), "%s", fv_last_error());
}

/* A checkpoint quantized as `name`, with a value of config group `in` in its config.json changed,
 * is refused with `words`. */
static void refused_in(const char *in, const char *name, const char *path_in_config,
                       const char *value, const char *words) {
    char dir[PATH_CAP], path[PATH_CAP];
    fv_checkpoint *ck = quantized(name), *out = NULL;
    write_as(ck, name, dir);
    fv_checkpoint_close(ck);
    cr_assert_eq(fv_path_join(dir, "config.json", path, sizeof path), FV_OK);
    json_t *root = json_load_file(path, 0, NULL);
    json_t *at = json_object_get(root, "quantization_config");
    json_t *group = json_object_get(json_object_get(at, "config_groups"), in);
    const char *dot = strchr(path_in_config, '.');
    if (dot) {
        char part[32];
        snprintf(part, sizeof part, "%.*s", (int)(dot - path_in_config), path_in_config);
        at = json_object_get(group, part);
    } else if (strstr(path_in_config, "put_activations")) {
        at = group;
    }
    json_object_set_new(at, dot ? dot + 1 : path_in_config,
                        json_loads(value, JSON_DECODE_ANY, NULL));
    cr_assert_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    cr_assert_neq(fv_checkpoint_open(dir, &out), FV_OK);
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static void refused(const char *name, const char *path_in_config, const char *value,
                    const char *words) {
    refused_in("group_0", name, path_in_config, value, words);
}

Test(compressed, other_schemes_of_the_head_are_refused_by_name) {
    refused_in("group_1", "int4", "weights.group_size", "64", "group of 32 columns");
    refused_in("group_1", "int4", "input_activations.strategy", "\"token\"", "per group of 32");
    refused_in("group_1", "int8", "weights.symmetric", "false", "must be symmetric");
    refused_in("group_1", "int8", "weights.strategy", "\"channel\"", "one of each");
}

Test(compressed, other_schemes_are_refused_by_name) {
    refused("int8", "transform_config",
            "{\"config_groups\": {\"R4\": {\"apply\": [{\"location\": \"weight_input\"}, "
            "{\"location\": "
            "\"input\"}]}}}",
            "transform_config");
    refused("int8", "quant_method", "\"hqq\"", "asks for hqq weights");
    refused("int8", "input_activations", "null", "must be F32, BF16 or F16 of shape");
    refused("int8", "output_activations", "{\"num_bits\": 8}", "output_activations");
    refused("int8", "input_activations.dynamic", "false", "dynamic per token");
    refused("int8", "weights.strategy", "\"tensor\"", "a scale per channel");
    refused("int8", "weights.num_bits", "3", "8 bits in groups, with 4 bits");
    refused("int8", "weights.type", "\"float\"", "must be F32, BF16 or F16 of shape");
    refused("int8", "config_groups", "{}", "no quantization_config for 8 bits");
    refused("int4", "config_groups", "{}", "no quantization_config for 4 bits");
    refused("int4", "weights.group_size", "24", "a multiple of 32 columns");
    refused("int4", "weights.group_size", "64", "must be F32, BF16 or F16 of shape");
    refused("int4", "weights.actorder", "\"group\"", "actorder");
    refused("int4", "weights.symmetric", "false", "where the weights are symmetric too");
    refused("int4", "input_activations.strategy", "\"token\"", "dynamic per group of 32");
    refused("int4", "input_activations.group_size", "64", "dynamic per group of 32");
}

/* Embedding rows are looked up and widened: integers would be read as 16-bit floats. */
Test(compressed, an_embedding_of_integers_is_refused) {
    static const char name[] = "language_model.model.embed_tokens.weight";
    char dir[PATH_CAP];
    fv_checkpoint *ck = quantized("int8"), *out = NULL;
    write_as(ck, "int8", dir);
    fv_checkpoint_close(ck);
    tensor_file *f = tensor_file_read(dir, "model.safetensors");
    const file_tensor *was = tensor_file_find(f, name);
    int64_t shape[2] = {was->shape[0], was->shape[1]}, one[2] = {shape[0], 1};
    void *zeros = calloc((size_t)(shape[0] * shape[1]), 4);
    tensor_file_drop(f, name);
    tensor_file_add(f, name, "I8", 2, shape, zeros, (size_t)(shape[0] * shape[1]));
    tensor_file_add(f, "language_model.model.embed_tokens.weight_scale", "F32", 2, one, zeros,
                    (size_t)shape[0] * 4);
    tensor_file_write(f, dir, "model.safetensors", 0);
    tensor_file_free(f);
    free(zeros);
    cr_assert_eq(fv_checkpoint_open(dir, &out), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "has dtype I8"), "%s", fv_last_error());
}

/* ---- what compressed-tensors has packed, as it reads it (tests/parity/compressed_golden.py) --- */

enum { GOLDEN_ROWS = 24, GOLDEN_COLS = 96 };

static fv_shards *golden(void) {
    char dir[PATH_CAP];
    fv_shards *sh;
    cr_assert_eq(fv_path_join(FOVEA_TEST_DATA, "golden/compressed", dir, sizeof dir), FV_OK);
    cr_assert_eq(fv_shards_open(dir, &sh), FV_OK, "%s", fv_last_error());
    return sh;
}

static fv_tensor_spec golden_weight(const char *name) {
    fv_tensor_spec e = {.n_dim = 2, .shape = {GOLDEN_ROWS, GOLDEN_COLS}};
    snprintf(e.name, sizeof e.name, "text.layers.0.%s.weight", name);
    return e;
}

/* Multiplies weights by 1: exact in bf16 where the product decodes to bf16; in integer products, 1
 * is 127 * (1 / 127), rounded twice, and so is a weight. */
static void equals_reference(const char *name, fv_compressed c) {
    static float one[GOLDEN_COLS * GOLDEN_COLS], y[GOLDEN_COLS * GOLDEN_ROWS];
    char key[FV_TENSOR_NAME_MAX];
    fv_shards *sh = golden();
    fv_arena arena = {0};
    fv_tensor w;
    fv_backend be;
    fv_tensor_spec e = golden_weight(name);
    snprintf(key, sizeof key, "expected.%s", name);
    const fv_shard_tensor *t = fv_compressed_find(sh, &e), *want = fv_shards_find(sh, key);
    cr_assert(t && want);
    cr_assert_eq(fv_compressed_view(&c, &arena, sh, t, &e, &w), FV_OK, "%s", fv_last_error());
    for (int k = 0; k < GOLDEN_COLS; k++) one[k * GOLDEN_COLS + k] = 1;
    fv_linear_args a = {.x = fv_tensor_of(one, FV_F32, GOLDEN_COLS, GOLDEN_COLS), .n_part = 1};
    a.part[0] = (fv_linear_part){.w = w, .y = fv_tensor_of(y, FV_F32, GOLDEN_COLS, GOLDEN_ROWS)};
    cr_assert_eq(fv_backend_open(&be, "cpu", NULL), FV_OK);
    cr_assert_eq(be.ops->linear(&be, &a), FV_OK);
    for (int n = 0; n < GOLDEN_ROWS; n++)
        for (int k = 0; k < GOLDEN_COLS; k++) {
            size_t i = (size_t)(n * GOLDEN_COLS + k);
            float got = y[k * GOLDEN_ROWS + n];
            if (w.dtype == FV_INT4) {
                float x = f32_of_bf16(((const uint16_t *)want->entry->data)[i]);
                cr_assert_float_eq(got, x, c.integers ? fabsf(x) * 0x1.1p-8f : 0);
                continue;
            }
            double x = (double)((const float *)want->entry->data)[i];
            cr_assert_float_eq((double)got, x, fabs(x) * 4e-7); /* x is quantized to 127 / 127 */
        }
    fv_backend_close(&be);
    fv_arena_fini(&arena);
    fv_shards_close(sh);
}

Test(compressed, weights_are_those_that_compressed_tensors_reads) {
    equals_reference("self_attn.q_proj", (fv_compressed){.group = 32});
    equals_reference("self_attn.q_proj", (fv_compressed){.group = 32, .integers = true});
    equals_reference("self_attn.k_proj", (fv_compressed){.group = 32, .zero = true});
    equals_reference("self_attn.v_proj", (fv_compressed){.group = -1});
    equals_reference("self_attn.v_proj", (fv_compressed){.group = -1, .integers = true});
    equals_reference("mlp.gate_proj", (fv_compressed){.int8 = true});
}

Test(compressed, scales_that_are_missing_are_named_as_in_the_file) {
    static const char weight[] = "language_model.model.layers.0.mlp.up_proj.weight_scale";
    static const char *const types[] = {"int8", "int4"};
    for (int i = 0; i < 2; i++) {
        char dir[PATH_CAP], words[256];
        fv_checkpoint *ck = quantized(types[i]), *out = NULL;
        write_as(ck, types[i], dir);
        fv_checkpoint_close(ck);
        tensor_file_without(dir, "model.safetensors", weight);
        snprintf(words, sizeof words, "tensor '%s' of a quantized weight is missing", weight);
        cr_assert_eq(fv_checkpoint_open(dir, &out), FV_ENOTFOUND);
        cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
    }
}

Test(compressed, zero_points_that_are_missing_are_named) {
    fv_shards *sh = golden();
    fv_arena arena = {0};
    fv_tensor w;
    fv_tensor_spec e = golden_weight("self_attn.q_proj");
    fv_compressed c = {.group = 32, .zero = true};
    const fv_shard_tensor *t = fv_compressed_find(sh, &e);
    cr_assert_eq(fv_compressed_view(&c, &arena, sh, t, &e, &w), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "weight_zero_point' of a quantized"), "%s", fv_last_error());
    fv_arena_fini(&arena);
    fv_shards_close(sh);
}
