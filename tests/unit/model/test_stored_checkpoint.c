/* Checkpoints whose linear layers are in another program's form: opened, loaded, dequantized. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "common/file.h"
#include "kernels/backends/open.h"
#include "model/checkpoint.h"
#include "model/dequantize.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };

static uint32_t next_random(void) {
    static uint32_t state = 1;
    state = state * 1664525U + 1013904223U;
    return state >> 4 ^ state << 9;
}

static void put_random(tensor_file *f, const char *layer, const char *part, const char *dtype,
                       int64_t rows, int64_t cols) {
    char name[160];
    const int64_t shape[2] = {rows, cols};
    const size_t element = strcmp(dtype, "F16") == 0 ? 2 : 4;
    uint32_t *data = calloc((size_t)(rows * cols) + 1, 4);
    for (int64_t i = 0; i < rows * cols; i++)
        if (element == 4)
            data[i] = next_random();
        else
            ((uint16_t *)data)[i] = (uint16_t)(0x1800 + next_random() % 0x400);
    snprintf(name, sizeof name, "%s.%s", layer, part);
    tensor_file_add(f, name, dtype, 2, shape, data, (size_t)(rows * cols) * element);
    free(data);
}

/* Replaces a linear layer's weight by random tensors of AWQ. */
static void put_awq(tensor_file *f, const char *layer) {
    char name[160];
    snprintf(name, sizeof name, "%s.weight", layer);
    const file_tensor *t = tensor_file_find(f, name);
    const int64_t N = t->shape[0], K = t->shape[1];
    tensor_file_drop(f, name);
    put_random(f, layer, "qweight", "I32", K, N / 8);
    put_random(f, layer, "qzeros", "I32", K / 32, N / 8);
    put_random(f, layer, "scales", "F16", K / 32, N);
}

static void put_config(const char *dir, const char *quantization) {
    char path[PATH_CAP];
    cr_assert_eq(fv_path_join(dir, "config.json", path, sizeof path), FV_OK);
    json_t *root = json_load_file(path, 0, NULL);
    json_object_set_new(root, "quantization_config", json_loads(quantization, 0, NULL));
    cr_assert_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

/* A tiny checkpoint in f16, of which all linear layers of the text model's layers are AWQ's but for one. */
static void write_awq(char dir[PATH_CAP]) {
    static const char *const part[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                       "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj"};
    fv_synth_options o = {.shape = "tiny-gqa", .dtype = FV_F16};
    fv_synth_report r;
    scratch_dir(dir, PATH_CAP);
    o.dir = dir;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    tensor_file *f = tensor_file_read(dir, "model.safetensors");
    for (int l = 0;; l++) {
        char layer[128];
        bool more = false;
        snprintf(layer, sizeof layer, "language_model.model.layers.%d.self_attn.q_proj.weight", l);
        for (int32_t i = 0; i < f->n; i++) more = more || !strcmp(f->tensor[i].name, layer);
        if (!more) break;
        for (size_t p = 0; p < sizeof part / sizeof *part; p++) {
            snprintf(layer, sizeof layer, "language_model.model.layers.%d.%s", l, part[p]);
            put_awq(f, layer);
        }
    }
    tensor_file_write(f, dir, "model.safetensors", 0);
    tensor_file_free(f);
    put_config(dir, "{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemm\", "
                    "\"modules_to_not_convert\": [\"down_proj\"]}");
}

static fv_checkpoint *opened(const char *dir, fv_backend *be) {
    fv_checkpoint *ck = NULL;
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_backend_open(be, "cpu", &(fv_backend_options){.n_threads = 2}), FV_OK);
    cr_assert_eq(fv_checkpoint_load(ck, be, NULL, NULL, NULL), FV_OK, "%s", fv_last_error());
    return ck;
}

Test(stored_checkpoint, packed_weights_are_where_the_network_reads_them) {
    char dir[PATH_CAP];
    fv_backend be;
    write_awq(dir);
    fv_checkpoint *ck = opened(dir, &be);
    cr_assert(fv_checkpoint_is_quantized(ck));
    const fv_text_layer *l = &fv_checkpoint_text(ck)->layer[0];
    cr_assert(l->q.quant && l->q.dtype == FV_INT4 && l->q.quant->zero);
    cr_assert(l->up.quant && l->up.quant->scale_type == FV_F16 && l->up.quant->group == 32);
    cr_assert(!l->down.quant && l->down.dtype == FV_F16);
    cr_assert_null(fv_checkpoint_find_nonfinite(ck));
    fv_checkpoint_close(ck);
    fv_backend_close(&be);
}

Test(stored_checkpoint, dequantized_weights_are_the_numbers_of_the_packed_ones) {
    char dir[PATH_CAP];
    fv_backend be, other;
    write_awq(dir);
    fv_checkpoint *ck = opened(dir, &be), *dense = opened(dir, &other);
    const size_t before = fv_checkpoint_bytes(dense);
    cr_assert_eq(fv_checkpoint_dequantize(dense, &other, NULL, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_not(fv_checkpoint_is_quantized(dense));
    cr_assert_gt(fv_checkpoint_bytes(dense), before);
    const fv_tensor *packed = &fv_checkpoint_text(ck)->layer[1].gate;
    const fv_tensor *w = &fv_checkpoint_text(dense)->layer[1].gate;
    cr_assert(!w->quant && w->dtype == FV_F16 && w->rows == packed->rows);
    size_t bytes = (size_t)w->rows * (size_t)w->cols * 2;
    void *want = malloc(bytes);
    fv_dequantize(packed, FV_F16, want);
    cr_assert_arr_eq(w->data, want, bytes);
    free(want);
    cr_assert_eq(fv_checkpoint_dequantize(dense, &other, NULL, NULL), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "leave out --weights dequantized"), "%s", fv_last_error());
    fv_checkpoint_close(ck);
    fv_checkpoint_close(dense);
    fv_backend_close(&be);
    fv_backend_close(&other);
}

/* Products in integers add what scale * (integer - 8) lacks of scale * (integer - zero). */
Test(stored_checkpoint, offsets_are_the_scales_times_8_less_the_zero_points) {
    char dir[PATH_CAP];
    fv_backend be;
    bool changed = false;
    write_awq(dir);
    fv_checkpoint *ck = opened(dir, &be);
    const size_t before = fv_checkpoint_bytes(ck);
    cr_assert_eq(fv_checkpoint_use_integers(ck, &be, &changed), FV_OK, "%s", fv_last_error());
    cr_assert(changed);
    cr_assert_gt(fv_checkpoint_bytes(ck), before);
    const fv_tensor *w = &fv_checkpoint_text(ck)->layer[1].up;
    const fv_quant *q = w->quant;
    cr_assert(q->integers && q->offset && q->zero && q->scale_type == FV_F16);
    for (size_t i = 0; i < (size_t)w->rows * (size_t)q->groups; i++) {
        float want = f32_of_f16(((const uint16_t *)q->scale)[i]) * (float)(8 - q->zero[i]);
        cr_assert_float_eq(q->offset[i], want, 0, "%zu: %g, not %g", i, (double)q->offset[i],
                           (double)want);
    }
    cr_assert_eq(fv_checkpoint_use_integers(ck, &be, &changed), FV_OK);
    cr_assert_not(changed);
    fv_checkpoint_close(ck);
    fv_backend_close(&be);
}

/* A tiny checkpoint with one matrix in FP8, in a block of 128 x 128 or less. */
static void write_fp8(char dir[PATH_CAP], const char *layer) {
    fv_synth_options o = {.shape = "tiny-gqa", .dtype = FV_BF16};
    fv_synth_report r;
    char name[160];
    const float scale = 0.01f;
    scratch_dir(dir, PATH_CAP);
    o.dir = dir;
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    tensor_file *f = tensor_file_read(dir, "model.safetensors");
    snprintf(name, sizeof name, "%s.weight", layer);
    const file_tensor *t = tensor_file_find(f, name);
    const int64_t shape[2] = {t->shape[0], t->shape[1]}, one[2] = {1, 1};
    const size_t n = (size_t)(shape[0] * shape[1]);
    uint8_t *codes = malloc(n);
    for (size_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)next_random();
        if ((codes[i] & 0x7f) == 0x7f) codes[i] = 0;
    }
    tensor_file_drop(f, name);
    tensor_file_add(f, name, "F8_E4M3", 2, shape, codes, n);
    snprintf(name, sizeof name, "%s.weight_scale_inv", layer);
    tensor_file_add(f, name, "F32", 2, one, &scale, sizeof scale);
    tensor_file_write(f, dir, "model.safetensors", 0);
    tensor_file_free(f);
    free(codes);
    put_config(dir, "{\"quant_method\": \"fp8\", \"weight_block_size\": [4096, 4096]}");
}

Test(stored_checkpoint, weights_in_fp8_are_quantized_to_integers_on_request) {
    char dir[PATH_CAP];
    fv_backend be, other;
    const fv_weights *to;
    write_fp8(dir, "language_model.model.layers.0.mlp.up_proj");
    fv_checkpoint *ck = opened(dir, &be), *as_is = opened(dir, &other);
    cr_assert_eq(fv_weights_find("int8", &to), FV_OK);
    cr_assert_eq(fv_checkpoint_quantize(ck, &be, to, NULL, NULL), FV_OK, "%s", fv_last_error());
    const fv_tensor *w = &fv_checkpoint_text(ck)->layer[0].up;
    const fv_tensor *from = &fv_checkpoint_text(as_is)->layer[0].up;
    cr_assert(w->dtype == FV_INT8 && !w->quant->table && from->quant->table);
    const size_t n = (size_t)w->rows * (size_t)w->cols;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    fv_dequantize(w, FV_F32, a);
    fv_dequantize(from, FV_F32, b);
    for (size_t i = 0; i < n; i++) {
        const float half = ((const float *)w->quant->scale)[i / (size_t)w->cols] * 0.51f;
        cr_assert_float_eq(a[i], b[i], half, "%zu: %g, not %g", i, (double)a[i], (double)b[i]);
    }
    free(a);
    free(b);
    fv_checkpoint_close(ck);
    fv_checkpoint_close(as_is);
    fv_backend_close(&be);
    fv_backend_close(&other);
}

/* Workers with one fingerprint continue with each other's keys and values. */
Test(stored_checkpoint, other_scales_or_zeros_are_another_checkpoint) {
    static const char *const part[] = {"", "scales", "qzeros"};
    char dir[PATH_CAP], print[3][17];
    write_awq(dir);
    for (int i = 0; i < 3; i++) {
        char name[160];
        fv_checkpoint *ck;
        tensor_file *f = tensor_file_read(dir, "model.safetensors");
        snprintf(name, sizeof name, "language_model.model.layers.0.mlp.up_proj.%s", part[i]);
        if (i) tensor_file_find(f, name)->data[0] ^= 1;
        tensor_file_write(f, dir, "model.safetensors", 0);
        tensor_file_free(f);
        cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
        fv_checkpoint_fingerprint(ck, print[i]);
        fv_checkpoint_close(ck);
    }
    cr_expect_str_neq(print[0], print[1]);
    cr_expect_str_neq(print[1], print[2]);
}

Test(stored_checkpoint, quantized_weights_are_not_quantized_again) {
    char dir[PATH_CAP];
    fv_backend be;
    const fv_weights *to;
    write_awq(dir);
    fv_checkpoint *ck = opened(dir, &be);
    cr_assert_eq(fv_weights_find("int4", &to), FV_OK);
    cr_assert_eq(fv_checkpoint_quantize(ck, &be, to, NULL, NULL), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "is int4 already; leave out --weights int4"), "%s",
              fv_last_error());
    fv_checkpoint_close(ck);
    fv_backend_close(&be);
}

/* AutoAWQ's and AutoGPTQ's first folders. */
Test(stored_checkpoint, a_config_beside_the_config_is_read) {
    char dir[PATH_CAP], path[PATH_CAP];
    fv_checkpoint *ck;
    fv_backend be;
    write_awq(dir);
    cr_assert_eq(fv_path_join(dir, "config.json", path, sizeof path), FV_OK);
    json_t *root = json_load_file(path, 0, NULL);
    json_object_del(root, "quantization_config");
    cr_assert_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    cr_assert_neq(fv_checkpoint_open(dir, &ck), FV_OK);
    write_text(dir, "quant_config.json",
               "{\"zero_point\": true, \"q_group_size\": 32, \"w_bit\": 4, \"version\": \"GEMM\"}");
    ck = opened(dir, &be);
    cr_assert(fv_checkpoint_text(ck)->layer[0].q.quant);
    fv_checkpoint_close(ck);
    fv_backend_close(&be);
    write_text(dir, "quantize_config.json", "{\"bits\": 4, \"checkpoint_format\": \"marlin\"}");
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "layout 'marlin' of gptq"), "%s", fv_last_error());
    write_text(dir, "quantize_config.json", "{\"bits\": ");
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "quantize_config.json"), "%s", fv_last_error());
}

Test(stored_checkpoint, a_quantized_embedding_is_refused) {
    static const char embed[] = "language_model.model.embed_tokens";
    char dir[PATH_CAP];
    fv_checkpoint *ck;
    write_awq(dir);
    tensor_file *f = tensor_file_read(dir, "model.safetensors");
    put_awq(f, embed);
    tensor_file_write(f, dir, "model.safetensors", 0);
    tensor_file_free(f);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "the engine reads this one as numbers"), "%s",
              fv_last_error());
}
