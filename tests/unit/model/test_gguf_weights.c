/* Weights of GGUF files: blocks as gguf-py dequantizes them, and a checkpoint that is the same in
 * both formats. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "common/file.h"
#include "gguf/texts.h"
#include "kernels/backends/open.h"
#include "model/engine.h"
#include "model/gguf_weights.h"
#include "model/shards.h"
#include "model/synth/synth.h"
#include "tests/support/gguf_file.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096, ROWS = 4, COLS = 512 };

static void at_backend(fv_tensor w, float y[COLS * ROWS]) {
    static float one[COLS * COLS];
    fv_backend be;
    for (int k = 0; k < COLS; k++) one[k * COLS + k] = 1;
    fv_linear_args a = {.x = fv_tensor_of(one, FV_F32, COLS, COLS), .n_part = 1};
    a.part[0] = (fv_linear_part){.w = w, .y = fv_tensor_of(y, FV_F32, COLS, ROWS)};
    cr_assert_eq(fv_backend_open(&be, "cpu", NULL), FV_OK);
    cr_assert_eq(be.ops->linear(&be, &a), FV_OK, "%s", fv_last_error());
    fv_backend_close(&be);
}

/* Checks a weight times 1: rounded to bf16 where the product decodes to bf16; in integer products,
 * 1 is 127 * (1 / 127), rounded twice. */
static bool is_weight(float y, float want, const fv_quant *q, fv_dtype dtype) {
    bool integers = q->integers || (dtype == FV_INT8 && q->group <= 32 && !q->min);
    return integers ? fabsf(y - want) <= 0x1p-22f * fabsf(want)
                    : y == f32_of_bf16(bf16_of_f32(want));
}

/* Compares with gguf-py (tests/parity/gguf_golden.py), as integers in a product and as numbers. */
static void equals_reference(const char *type) {
    static float y[COLS * ROWS];
    char path[PATH_CAP], key[32];
    fv_shards *sh;
    fv_arena arena = {0};
    cr_assert_eq(fv_path_join(FOVEA_TEST_DATA, "golden/gguf/blocks.gguf", path, sizeof path),
                 FV_OK);
    cr_assert_eq(fv_shards_open(path, &sh), FV_OK, "%s", fv_last_error());
    snprintf(key, sizeof key, "expected.%s", type);
    const fv_shard_tensor *t = fv_shards_find(sh, type), *want = fv_shards_find(sh, key);
    cr_assert(t && want && strcmp(t->entry->dtype, type) == 0 && fv_gguf_is_blocks(type));
    fv_gguf_weight integers = {.type = type, .data = t->entry->data}, numbers = integers;
    cr_assert_eq(fv_gguf_place(&integers, ROWS, COLS, true, &arena), FV_OK);
    cr_assert_eq(fv_gguf_place(&numbers, ROWS, COLS, false, &arena), FV_OK);
    cr_assert(fv_gguf_fill(&integers) && fv_gguf_fill(&numbers));
    cr_assert(integers.view.quant && !numbers.view.quant);
    cr_assert_leq(fv_gguf_bytes(&integers), fv_gguf_bytes(&numbers));
    at_backend(integers.view, y);
    for (int n = 0; n < ROWS; n++)
        for (int k = 0; k < COLS; k++) {
            size_t i = (size_t)(n * COLS + k);
            float expected = ((const float *)want->entry->data)[i];
            cr_assert_eq(((uint16_t *)numbers.view.data)[i], bf16_of_f32(expected), "%s: %zu", type,
                         i);
            cr_assert(
                is_weight(y[k * ROWS + n], expected, integers.view.quant, integers.view.dtype),
                "%s: %zu", type, i);
        }
    fv_arena_fini(&arena);
    fv_shards_close(sh);
}

Test(gguf_weights, blocks_are_what_gguf_py_dequantizes) {
    static const char *const types[] = {"Q4_0",   "Q4_1",   "Q5_0",    "Q5_1",  "Q8_0",
                                        "Q4_K",   "Q5_K",   "Q6_K",    "Q2_K",  "Q3_K",
                                        "IQ4_NL", "IQ4_XS", "IQ3_XXS", "IQ3_S", "MXFP4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) equals_reference(types[i]);
    cr_assert(!fv_gguf_is_blocks("F16"));
}

/* Six heads of 64 columns after 128 others, pairs of which share one of three: in the file they are apart.
 * Rows are tested with whole checkpoints (test_gguf_vision.c). */
static void restores_columns(const char *type, bool linear) {
    static const int from[] = {0, 3, 1, 4, 2, 5};
    static float y[COLS * ROWS];
    char path[PATH_CAP];
    fv_shards *sh;
    fv_arena arena = {0};
    cr_assert_eq(fv_path_join(FOVEA_TEST_DATA, "golden/gguf/blocks.gguf", path, sizeof path),
                 FV_OK);
    cr_assert_eq(fv_shards_open(path, &sh), FV_OK, "%s", fv_last_error());
    const fv_shard_tensor *t = fv_shards_find(sh, type);
    fv_gguf_weight plain = {.type = type, .data = t->entry->data}, tiled = plain;
    tiled.tiles = (fv_gguf_tiles){.n = 3, .each = 2, .width = 64, .first = 128, .columns = true};
    cr_assert_eq(fv_gguf_place(&plain, ROWS, COLS, linear, &arena), FV_OK);
    cr_assert_eq(fv_gguf_place(&tiled, ROWS, COLS, linear, &arena), FV_OK);
    cr_assert(fv_gguf_fill(&plain) && fv_gguf_fill(&tiled));
    static float z[COLS * ROWS];
    at_backend(plain.view, y);
    at_backend(tiled.view, z);
    for (int n = 0; n < ROWS; n++)
        for (int k = 0; k < COLS; k++) {
            int head = k < 128 ? -1 : (k - 128) / 64;
            int at = head >= 0 ? 128 + from[head] * 64 + k % 64 : k;
            cr_assert_eq(z[k * ROWS + n], y[at * ROWS + n], "%s: %d, %d", type, n, k);
        }
    fv_arena_fini(&arena);
    fv_shards_close(sh);
}

Test(gguf_weights, columns_of_heads_are_restored_to_their_order) {
    static const char *const types[] = {"Q4_0", "Q8_0", "Q4_K", "Q6_K", "Q2_K", "IQ4_XS"};
    fv_arena arena = {0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        restores_columns(types[i], true);
        restores_columns(types[i], false);
    }
    fv_gguf_weight w = {.type = "Q4_K", .tiles = {3, 2, 16, 0, true}};
    cr_assert_eq(fv_gguf_place(&w, 1, 256, true, &arena), FV_EUNSUPPORTED);
    fv_arena_fini(&arena);
}

Test(gguf_weights, scales_that_are_not_finite_are_found) {
    fv_arena arena = {0};
    uint8_t block[34] = {0x00, 0x7c}; /* infinity */
    fv_gguf_weight w = {.type = "Q8_0", .data = block};
    cr_assert_eq(fv_gguf_place(&w, 1, 32, true, &arena), FV_OK);
    cr_assert(!fv_gguf_fill(&w));
    block[1] = 0x3c;
    cr_assert(fv_gguf_fill(&w));
    fv_arena_fini(&arena);
}

/* ---- whole checkpoints ----------------------------------------------------------------- */

static void synth(const char *family, fv_dtype dtype, char dir[PATH_CAP]) {
    scratch_dir(dir, PATH_CAP);
    fv_synth_options o = {.dir = dir, .shape = "tiny-gqa", .family = family, .dtype = dtype};
    fv_synth_report r;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
}

/* Permutes the rows of queries and keys as llama.cpp's converter does. */
static void permute(const file_tensor *t, int32_t heads, char *to) {
    size_t row = t->bytes / (size_t)t->shape[0], D = (size_t)(t->shape[0] / heads);
    for (size_t r = 0; r < (size_t)t->shape[0]; r++) {
        size_t i = r % D, from = r - i + (i % 2 ? D / 2 : 0) + i / 2;
        memcpy(to + r * row, t->data + from * row, row);
    }
}

/* Writes a minimal tokenizer for fv_engine_open. */
static void put_tokenizer(gguf_file *f) {
    static const int32_t type[] = {2, 1};
    static const float score[] = {0, 0};
    gguf_put_text(f, "tokenizer.ggml.model", "llama");
    gguf_begin_list(f, "tokenizer.ggml.tokens", FV_GGUF_STRING, 2);
    gguf_add_text(f, "<unk>");
    gguf_add_text(f, "a");
    gguf_begin_list(f, "tokenizer.ggml.token_type", FV_GGUF_I32, 2);
    gguf_add_bytes(f, type, sizeof type);
    gguf_begin_list(f, "tokenizer.ggml.scores", FV_GGUF_F32, 2);
    gguf_add_bytes(f, score, sizeof score);
}

/* The checkpoint in `dir` as dir/model.gguf; without the tensor `leave_out`. */
static void convert(const char *dir, const char *arch, const char *leave_out, char path[PATH_CAP]) {
    static const char *const keys[][2] = {{"embedding_length", "hidden_size"},
                                          {"feed_forward_length", "intermediate_size"},
                                          {"block_count", "num_hidden_layers"},
                                          {"attention.head_count", "num_attention_heads"},
                                          {"attention.head_count_kv", "num_key_value_heads"},
                                          {"attention.key_length", "head_dim"},
                                          {"context_length", "max_position_embeddings"}};
    gguf_file f = {0};
    char name[FV_GGUF_NAME_MAX];
    cr_assert_eq(fv_path_join(dir, "config.json", path, PATH_CAP), FV_OK);
    json_t *config = json_load_file(path, 0, NULL);
    gguf_put_text(&f, "general.architecture", arch);
    put_tokenizer(&f);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(config, keys[i][1]);
        snprintf(name, sizeof name, "%s.%s", arch, keys[i][0]);
        if (json_is_integer(v)) gguf_put_u32(&f, name, (uint32_t)json_integer_value(v));
    }
    const json_t *eps = json_object_get(config, "rms_norm_eps");
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(&f, name, eps ? (float)json_number_value(eps) : 1e-6f);
    int32_t heads = (int32_t)json_integer_value(json_object_get(config, "num_attention_heads"));
    int32_t kv = (int32_t)json_integer_value(json_object_get(config, "num_key_value_heads"));
    json_decref(config);
    tensor_file *file = tensor_file_read(dir, "model.safetensors");
    for (int32_t i = 0; i < file->n; i++) {
        file_tensor *t = &file->tensor[i];
        if (!fv_gguf_own_name(t->name, name) || (leave_out && strcmp(name, leave_out) == 0))
            continue;
        char *copy = malloc(t->bytes);
        memcpy(copy, t->data, t->bytes);
        if (strcmp(arch, "llama") == 0 && strstr(name, "attn_q.weight")) permute(t, heads, copy);
        if (strcmp(arch, "llama") == 0 && strstr(name, "attn_k.weight")) permute(t, kv, copy);
        uint32_t type = strcmp(t->dtype, "F32") == 0 ? 0 : strcmp(t->dtype, "F16") == 0 ? 1 : 30;
        gguf_put_tensor(&f, name, type, t->n_dim, t->shape, copy, t->bytes);
        free(copy);
    }
    tensor_file_free(file);
    cr_assert_eq(fv_path_join(dir, "model.gguf", path, PATH_CAP), FV_OK);
    gguf_write(&f, path);
}

static fv_checkpoint *loaded(const char *from) {
    fv_checkpoint *ck = NULL;
    fv_backend be;
    cr_assert_eq(fv_checkpoint_open(from, &ck), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 2}), FV_OK);
    cr_assert_eq(fv_checkpoint_load(ck, &be, NULL, NULL, NULL), FV_OK, "%s", fv_last_error());
    fv_backend_close(&be);
    return ck;
}

static void assert_same(const fv_tensor *a, const fv_tensor *b) {
    cr_assert(!a->data == !b->data && a->rows == b->rows && a->cols == b->cols);
    if (!a->data) return;
    cr_assert_eq(a->dtype, b->dtype);
    cr_assert_arr_eq(a->data, b->data,
                     (size_t)a->rows * (size_t)a->cols * fv_dtype_bytes(a->dtype));
}

static void same_checkpoint(const char *family, fv_dtype dtype) {
    char dir[PATH_CAP], path[PATH_CAP];
    synth(family, dtype, dir);
    convert(dir, family, NULL, path);
    fv_checkpoint *a = loaded(dir), *b = loaded(path);
    const fv_text_config *x = &fv_checkpoint_config(a)->text, *y = &fv_checkpoint_config(b)->text;
    cr_assert(x->n_layer == y->n_layer && x->d_head == y->d_head && x->n_kv == y->n_kv);
    cr_assert(x->rms_eps == y->rms_eps && x->max_position == y->max_position);
    cr_assert(!fv_checkpoint_is_quantized(b));
    cr_assert_eq(fv_checkpoint_bytes(a), fv_checkpoint_bytes(b));
    const fv_text_weights *v = fv_checkpoint_text(a), *w = fv_checkpoint_text(b);
    assert_same(&v->embed, &w->embed);
    assert_same(&v->head, &w->head);
    assert_same(&v->norm, &w->norm);
    for (int l = 0; l < x->n_layer; l++) {
        const fv_tensor *p = &v->layer[l].attn_norm, *q = &w->layer[l].attn_norm;
        for (size_t t = 0; t < sizeof v->layer[l] / sizeof *p; t++) assert_same(&p[t], &q[t]);
    }
    fv_checkpoint_close(a);
    fv_checkpoint_close(b);
}

Test(gguf_weights, a_converted_checkpoint_is_the_same_one) {
    same_checkpoint("llama", FV_BF16);
    same_checkpoint("llama", FV_F32);
    same_checkpoint("qwen2", FV_F16);
    same_checkpoint("qwen3", FV_BF16);
}

Test(gguf_weights, an_engine_opens_with_all_weights) {
    char dir[PATH_CAP], path[PATH_CAP];
    fv_engine e;
    synth("llama", FV_BF16, dir);
    convert(dir, "llama", NULL, path);
    cr_assert_eq(fv_engine_open(&(fv_engine_options){.checkpoint = path, .backend = "cpu"}, &e),
                 FV_OK, "%s", fv_last_error());
    fv_checkpoint *ck = loaded(dir);
    assert_same(&fv_checkpoint_text(ck)->layer[1].q, &fv_checkpoint_text(e.ck)->layer[1].q);
    cr_assert(e.be.compute == FV_COMPUTE_BF16 && e.n_vocab == 2);
    fv_engine_close(&e);
    fv_checkpoint_close(ck);
}

/* llama's queries and keys are copied to restore their row order; that must not bypass the
 * check. */
Test(gguf_weights, integers_are_no_weights) {
    char dir[PATH_CAP], path[PATH_CAP], *text;
    size_t bytes;
    fv_checkpoint *ck;
    synth("llama", FV_BF16, dir);
    convert(dir, "llama", NULL, path);
    cr_assert_eq(fv_file_read(path, 1 << 24, &text, &bytes), FV_OK);
    static const char name[] = "blk.1.attn_k.weight";
    char *at = memmem(text, bytes, name, sizeof name - 1);
    cr_assert(at);
    at += sizeof name - 1 + 4 + 2 * 8; /* to the tensor's type, after its sizes */
    cr_assert_eq(*at, 30);
    for (*at = 24; *at < 29; ++*at) { /* I8, I16, I32, I64, F64 */
        cr_assert_eq(fv_file_write(path, text, bytes), FV_OK);
        cr_assert_neq(fv_checkpoint_open(path, &ck), FV_OK);
        cr_assert(strstr(fv_last_error(), "the engine reads F32") ||
                      strstr(fv_last_error(), "ends after the file"),
                  "%s", fv_last_error());
    }
    free(text);
}

Test(gguf_weights, a_missing_tensor_is_named_as_in_the_file) {
    char dir[PATH_CAP], path[PATH_CAP];
    fv_checkpoint *ck;
    synth("llama", FV_BF16, dir);
    convert(dir, "llama", "blk.1.ffn_up.weight", path);
    cr_assert_eq(fv_checkpoint_open(path, &ck), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "model.gguf: tensor 'blk.1.ffn_up.weight' is missing"), "%s",
              fv_last_error());
}

/* The directory of a GGUF file is that file; another kind of weights beside it goes first. */
Test(gguf_weights, a_directory_of_a_gguf_file_is_that_file) {
    char dir[PATH_CAP], path[PATH_CAP];
    fv_checkpoint *ck;
    synth("llama", FV_BF16, dir);
    convert(dir, "llama", NULL, path);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    fv_checkpoint_close(ck);
    static const char *const others[] = {"model.safetensors", "config.json",
                                         "generation_config.json"};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fv_path_join(dir, others[i], path, sizeof path), FV_OK);
        cr_assert_eq(remove(path), 0);
    }
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    fv_checkpoint_close(ck);
    write_text(dir, "other-Q8_0.gguf", "");
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "has 2 GGUF models ("), "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), "name one by its path"), "%s", fv_last_error());
}

Test(gguf_weights, a_directory_without_weights_says_what_is_read) {
    char dir[PATH_CAP], path[PATH_CAP];
    fv_checkpoint *ck;
    synth("llama", FV_BF16, dir);
    cr_assert_eq(fv_path_join(dir, "model.safetensors", path, sizeof path), FV_OK);
    cr_assert_eq(remove(path), 0);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "nor a GGUF file: "), "%s", fv_last_error());
}
