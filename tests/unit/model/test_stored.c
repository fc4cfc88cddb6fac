/* Weights in other programs' forms: the numbers that those programs read (tests/parity/stored_golden.py), and
 * broken tensors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "common/file.h"
#include "kernels/backends/open.h"
#include "model/dequantize.h"
#include "model/stored.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096, ROWS = 24, COLS = 192 };

/* The form of each layer of the golden file. */
static const char *const config[] = {
    "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemm\"}}",
    "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"desc_act\": true}}",
    "{\"quantization_config\": {\"quant_method\": \"gptq\", \"checkpoint_format\": \"gptq_v2\"}}",
    "{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
    "\"weight_block_size\": [8, 64]}}",
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}}",
    "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}",
};

typedef struct loaded {
    fv_shards *sh;
    fv_arena arena;
    fv_stored_config config;
    fv_tensor_spec e;
    fv_stored_weight w;
} loaded;

static fv_shards *shards_in(const char *dir) {
    fv_shards *sh;
    cr_assert_eq(fv_shards_open(dir, &sh), FV_OK, "%s", fv_last_error());
    return sh;
}

static fv_shards *golden(void) {
    char dir[PATH_CAP];
    cr_assert_eq(fv_path_join(FOVEA_TEST_DATA, "golden/stored", dir, sizeof dir), FV_OK);
    return shards_in(dir);
}

/* Finds and places a weight of `sh`, which it takes. */
static fv_status place(loaded *l, fv_shards *sh, int layer, const char *name) {
    *l = (loaded){.sh = sh, .e = {.n_dim = 2, .shape = {ROWS, COLS}}};
    const fv_shard_tensor *found;
    snprintf(l->e.name, sizeof l->e.name, "text.layers.%d.%s.weight", layer, name);
    cr_assert_eq(fv_stored_parse(config[layer], strlen(config[layer]), "config.json", &l->config),
                 FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_stored_find(&l->config, sh, &l->e, &l->w, &found), FV_OK, "%s",
                 fv_last_error());
    cr_assert(found && l->w.form, "%s", l->e.name);
    return fv_stored_place(&l->w, &l->e, &l->arena);
}

static void unload(loaded *l) {
    fv_arena_fini(&l->arena);
    fv_shards_close(l->sh);
}

/* x times the weight, with x the unit matrix: what products decode. */
static void multiply(const fv_tensor *w, float *y) {
    static float one[COLS * COLS];
    fv_backend be;
    for (int k = 0; k < COLS; k++) one[k * COLS + k] = 1;
    cr_assert_eq(fv_backend_open(&be, "cpu", NULL), FV_OK);
    fv_linear_args a = {.x = fv_tensor_of(one, FV_F32, COLS, COLS), .n_part = 1};
    a.part[0] = (fv_linear_part){.w = *w, .y = fv_tensor_of(y, FV_F32, COLS, ROWS)};
    cr_assert_eq(be.ops->linear(&be, &a), FV_OK);
    fv_backend_close(&be);
}

/* The numbers have the reference's bits, and products read them rounded to bf16. */
static void equals_reference(int layer, const char *name, fv_dtype type) {
    static uint16_t numbers[ROWS * COLS];
    static float y[COLS * ROWS];
    char key[FV_TENSOR_NAME_MAX];
    loaded l;
    cr_assert_eq(place(&l, golden(), layer, name), FV_OK, "%s", fv_last_error());
    cr_assert(fv_stored_fill(&l.w));
    snprintf(key, sizeof key, "expected.%d.%s", layer, name);
    const fv_shard_tensor *t = fv_shards_find(l.sh, key);
    cr_assert(t && strcmp(t->entry->dtype, type == FV_F16 ? "F16" : "BF16") == 0, "%s", key);
    fv_dequantize(&l.w.view, type, numbers);
    multiply(&l.w.view, y);
    for (int n = 0; n < ROWS; n++)
        for (int k = 0; k < COLS; k++) {
            float want = widened(t->entry->data, type, (size_t)(n * COLS + k));
            float got = widened(numbers, type, (size_t)(n * COLS + k));
            cr_assert(got == want, "%s [%d, %d]: %a, not %a", key, n, k, (double)got, (double)want);
            cr_assert_float_eq(y[k * ROWS + n], want, fabsf(want) * 0x1p-8f, "%s [%d, %d]", key, n,
                               k);
        }
    unload(&l);
}

Test(stored, awq_is_read_as_autoawq_reads_it) { equals_reference(0, "self_attn.q_proj", FV_F16); }

Test(stored, gptq_is_read_as_gptqmodel_reads_it) {
    equals_reference(1, "self_attn.q_proj", FV_F16);
    equals_reference(1, "self_attn.k_proj", FV_F16);
    equals_reference(1, "self_attn.v_proj", FV_F16);
    equals_reference(1, "mlp.gate_proj", FV_F16);
    equals_reference(2, "self_attn.q_proj", FV_F16);
    equals_reference(2, "self_attn.k_proj", FV_F16);
}

Test(stored, fp8_in_blocks_is_read_as_transformers_reads_it) {
    equals_reference(3, "self_attn.q_proj", FV_BF16);
    equals_reference(3, "self_attn.k_proj", FV_BF16);
    equals_reference(3, "self_attn.v_proj", FV_BF16);
}

Test(stored, fp8_w8a16_and_fp4_are_read_as_compressed_tensors_reads_them) {
    equals_reference(4, "self_attn.q_proj", FV_BF16);
    equals_reference(4, "self_attn.k_proj", FV_BF16);
    equals_reference(4, "self_attn.v_proj", FV_BF16);
    equals_reference(4, "mlp.gate_proj", FV_BF16);
    equals_reference(4, "mlp.up_proj", FV_BF16);
    equals_reference(4, "mlp.down_proj", FV_BF16);
    equals_reference(4, "self_attn.o_proj", FV_BF16);
}

Test(stored, four_and_eight_bits_are_read_as_bitsandbytes_reads_them) {
    equals_reference(5, "self_attn.q_proj", FV_BF16);
    equals_reference(5, "self_attn.k_proj", FV_BF16);
    equals_reference(5, "self_attn.v_proj", FV_BF16);
    equals_reference(5, "mlp.gate_proj", FV_BF16);
}

/* Only the columns that act-order has moved are multiplied in another order. */
Test(stored, columns_in_order_have_no_order) {
    loaded l;
    cr_assert_eq(place(&l, golden(), 1, "self_attn.q_proj"), FV_OK);
    cr_assert_null(l.w.view.quant->order);
    unload(&l);
    cr_assert_eq(place(&l, golden(), 1, "self_attn.k_proj"), FV_OK);
    cr_assert(l.w.view.quant->order);
    unload(&l);
}

/* ---- broken files ----------------------------------------------------------------------- */

typedef void change(tensor_file *f, const char *name);

/* A copy of the golden file, changed, with tensor `part` of a weight as the change's name. */
static fv_shards *changed(int layer, const char *module, const char *part, change *make) {
    char dir[PATH_CAP], to[PATH_CAP], name[256];
    cr_assert_eq(fv_path_join(FOVEA_TEST_DATA, "golden/stored", dir, sizeof dir), FV_OK);
    scratch_dir(to, sizeof to);
    tensor_file *f = tensor_file_read(dir, "model.safetensors");
    snprintf(name, sizeof name, "model.layers.%d.%s.%s", layer, module, part);
    make(f, name);
    tensor_file_write(f, to, "model.safetensors", 3);
    tensor_file_free(f);
    return shards_in(to);
}

static void refused(int layer, const char *module, const char *part, change *make, fv_status want,
                    const char *words) {
    loaded l;
    fv_status st = place(&l, changed(layer, module, part, make), layer, module);
    cr_assert_eq(st, want, "%s of %s: %s", part, module, st ? fv_last_error() : "placed");
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
    unload(&l);
}

static void narrow(tensor_file *f, const char *name) {
    tensor_file_find(f, name)->shape[1] /= 2;
    tensor_file_find(f, name)->bytes /= 2;
}

static void turn(tensor_file *f, const char *name) {
    file_tensor *t = tensor_file_find(f, name);
    int64_t rows = t->shape[0];
    t->shape[0] = t->shape[1];
    t->shape[1] = rows;
}

static void shorten(tensor_file *f, const char *name) {
    tensor_file_find(f, name)->shape[0] /= 2;
    tensor_file_find(f, name)->bytes /= 2;
}

static void repeat(tensor_file *f, const char *name) {
    memset(tensor_file_find(f, name)->data, 0, tensor_file_find(f, name)->bytes);
}

static void beyond(tensor_file *f, const char *name) {
    memset(tensor_file_find(f, name)->data, 0xff, 4);
}

Test(stored, what_is_missing_or_of_another_shape_is_named) {
    static const char q[] = "self_attn.q_proj";
    refused(0, q, "qzeros", tensor_file_drop, FV_ENOTFOUND, "q_proj.qzeros' of a quantized weight");
    refused(0, q, "scales", tensor_file_drop, FV_ENOTFOUND, "q_proj.scales' of a quantized weight");
    refused(0, q, "qweight", turn, FV_EDATA, "q_proj.qweight' in");
    refused(0, q, "qzeros", shorten, FV_EDATA, "must be I32 of shape [6, 3] (awq)");
    refused(1, q, "scales", narrow, FV_EDATA, "must be F32, BF16 or F16 of shape [6, 24] (gptq)");
    refused(1, q, "qweight", shorten, FV_EUNSUPPORTED, "weights of 4 and 8 bits are read");
    refused(1, q, "g_idx", shorten, FV_EDATA, "must be I32 of shape [192] (gptq)");
    refused(1, q, "g_idx", repeat, FV_EDATA, "once too often");
    refused(1, q, "g_idx", beyond, FV_EDATA, "once too often");
}

static void stretch(tensor_file *f, const char *name) {
    file_tensor *t = tensor_file_find(f, name);
    t->shape[0] = t->shape[0] * t->shape[1];
    t->shape[1] = 1;
}

static void unsay(tensor_file *f, const char *name) {
    memset(tensor_file_find(f, name)->data, ' ', 3);
}

Test(stored, what_is_wrong_with_scales_of_floats_is_named) {
    static const char q[] = "self_attn.q_proj";
    refused(3, q, "weight_scale_inv", tensor_file_drop, FV_ENOTFOUND,
            "of a quantized weight (fp8)");
    refused(3, q, "weight_scale_inv", stretch, FV_EDATA, "weight_block_size (8 x 64)");
    refused(4, q, "weight_scale", tensor_file_drop, FV_ENOTFOUND, "of a quantized weight (fp8)");
    refused(4, "mlp.up_proj", "weight_zero_point", stretch, FV_EDATA, "of shape [6, 6] (w8a16)");
    refused(4, "mlp.down_proj", "weight_scale", turn, FV_EDATA,
            "must be U8 of shape [24, 6] (fp4)");
    refused(4, "self_attn.o_proj", "weight_scale", stretch, FV_EDATA, "must be F8_E4M3 of shape");
    refused(5, q, "weight.absmax", tensor_file_drop, FV_ENOTFOUND, "q_proj.weight.absmax' of a");
    refused(5, q, "weight.quant_map", tensor_file_drop, FV_ENOTFOUND, "weight.quant_map' of a");
    refused(5, q, "weight.quant_state.bitsandbytes__nf4", tensor_file_drop, FV_ENOTFOUND,
            "quant_state.bitsandbytes__nf4' of a");
    refused(5, q, "weight.quant_state.bitsandbytes__nf4", unsay, FV_EDATA, "bitsandbytes__nf4");
    refused(5, "self_attn.k_proj", "weight.nested_quant_map", tensor_file_drop, FV_ENOTFOUND,
            "nested_quant_map' of a");
    refused(5, "mlp.gate_proj", "SCB", tensor_file_drop, FV_ENOTFOUND, "gate_proj.SCB' of a");
}

static void nan_code(tensor_file *f, const char *name) {
    tensor_file_find(f, name)->data[7] = 0xff;
}

static void nan_scale(tensor_file *f, const char *name) {
    memset(tensor_file_find(f, name)->data, 0xff, 4);
}

Test(stored, codes_that_are_not_finite_are_refused) {
    static const struct {
        int layer;
        const char *module, *part;
    } of[] = {{3, "self_attn.q_proj", "weight"},    {3, "self_attn.v_proj", "weight_scale_inv"},
              {4, "mlp.down_proj", "weight_scale"}, {4, "self_attn.o_proj", "weight_scale"},
              {4, "mlp.up_proj", "weight_scale"},   {5, "self_attn.q_proj", "weight.absmax"},
              {5, "mlp.gate_proj", "SCB"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        loaded l;
        change *make = i < 4 ? nan_code : nan_scale;
        cr_assert_eq(place(&l, changed(of[i].layer, of[i].module, of[i].part, make), of[i].layer,
                           of[i].module),
                     FV_OK, "%s", fv_last_error());
        cr_assert_not(fv_stored_fill(&l.w), "%s", of[i].part);
        unload(&l);
    }
}

static void poison(tensor_file *f, const char *name) {
    const uint16_t inf = 0x7c00;
    memcpy(tensor_file_find(f, name)->data + 4, &inf, sizeof inf);
}

Test(stored, scales_that_are_not_finite_are_refused) {
    loaded l;
    for (int layer = 0; layer < 2; layer++) {
        cr_assert_eq(place(&l, changed(layer, "self_attn.q_proj", "scales", poison), layer,
                           "self_attn.q_proj"),
                     FV_OK);
        cr_assert_not(fv_stored_fill(&l.w));
        unload(&l);
    }
}

static void parse_refused(const char *text, const char *words) {
    fv_stored_config c;
    cr_assert_eq(fv_stored_parse(text, strlen(text), "config.json", &c), FV_EUNSUPPORTED, "%s",
                 text);
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
    cr_assert(strstr(fv_last_error(), "--weights int4"), "%s", fv_last_error());
}

Test(stored, other_layouts_are_refused_by_name) {
#define QUANTIZED(q) "{\"quantization_config\": {" q "}}"
    parse_refused(QUANTIZED("\"quant_method\": \"awq\", \"version\": \"gemv_fast\""),
                  "layout 'gemv_fast' of awq; the engine reads gemm");
    parse_refused(QUANTIZED("\"quant_method\": \"awq\", \"bits\": 3"), "awq with 3 bits");
    parse_refused(QUANTIZED("\"quant_method\": \"gptq\", \"checkpoint_format\": \"marlin\""),
                  "layout 'marlin' of gptq");
    parse_refused(QUANTIZED("\"quant_method\": \"fp8\", \"fmt\": \"e5m2\""),
                  "layout 'e5m2' of fp8");
    parse_refused(QUANTIZED("\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": "
                            "{\"weights\": {\"actorder\": \"group\"}}}"),
                  "actorder");
    parse_refused(QUANTIZED("\"quant_method\": \"auto-round\""), "layout '(none)' of auto-round");
}

static bool is_unused(const fv_stored_config *c, const char *name, const void *data) {
    fv_safetensors_entry e = {.name = name, .data = data, .bytes = 4};
    fv_shard_tensor t = {.entry = &e};
    snprintf(t.canonical, sizeof t.canonical, "text.layers.0.self_attn.%s", name);
    return fv_stored_is_unused(c, &t);
}

Test(stored, tensors_without_effect_are_left_out) {
    static const char text[] = QUANTIZED("\"quant_method\": \"compressed-tensors\", "
                                         "\"kv_cache_scheme\": {\"num_bits\": 8}");
    const uint8_t zeros[4] = {0}, some[4] = {0, 0, 0x80, 0x3f};
    fv_stored_config c = {0}, gptq = {.method = FV_STORED_GPTQ};
    cr_assert_not(is_unused(&c, "k_scale", some));
    cr_assert_eq(fv_stored_parse(text, strlen(text), "config.json", &c), FV_OK);
    cr_assert(is_unused(&c, "k_scale", some));
    cr_assert_not(is_unused(&c, "q_proj.weight", some));
    cr_assert_not(is_unused(&c, "o_proj.bias", zeros));
    cr_assert(is_unused(&gptq, "o_proj.bias", zeros));
    cr_assert_not(is_unused(&gptq, "o_proj.bias", some));
}
