/* Writes adapters with random numbers. */
#include "tests/support/adapter_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint.h"
#include "tests/support/tensor_file.h"

static float draw(uint64_t *state) { /* uniform in [-1, 1) */
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 11) * 0x1p-52 - 1);
}

static void add(tensor_file *f, const char *name, int32_t rows, int32_t cols, uint64_t *state) {
    size_t n = (size_t)rows * (size_t)cols;
    float *x = malloc(n * sizeof *x);
    if (!x) abort();
    for (size_t i = 0; i < n; i++) x[i] = draw(state) / sqrtf((float)cols);
    tensor_file_add(f, name, "F32", 2, (const int64_t[]){rows, cols}, x, n * sizeof *x);
    free(x);
}

static void add_module(tensor_file *f, int32_t layer, const char *module, int32_t rows,
                       int32_t cols, int32_t rank, uint64_t *state) {
    static const char form[] = "base_model.model.model.language_model.layers.%d.%s.lora_%c.weight";
    char name[128];
    snprintf(name, sizeof name, form, layer, module, 'A');
    add(f, name, rank, cols, state);
    snprintf(name, sizeof name, form, layer, module, 'B');
    add(f, name, rows, rank, state);
}

void adapter_write(const char *dir, const char *checkpoint, uint64_t seed) {
    char config[256];
    fv_checkpoint *ck;
    uint64_t state = seed;
    const int32_t rank = 2 + (int32_t)(seed % 3);
    tensor_file *f = calloc(1, sizeof *f);
    if (!f || fv_checkpoint_open(checkpoint, &ck) != FV_OK) abort();
    const fv_text_config *t = &fv_checkpoint_config(ck)->text;
    for (int32_t l = 0; l < t->n_layer; l++) {
        add_module(f, l, "self_attn.q_proj", t->n_head * t->d_head, t->d_model, rank, &state);
        add_module(f, l, "self_attn.v_proj", t->n_kv * t->d_head, t->d_model, rank, &state);
        add_module(f, l, "mlp.down_proj", t->d_model, t->d_ffn, rank, &state);
    }
    tensor_file_write(f, dir, "adapter_model.safetensors", 0);
    tensor_file_free(f);
    fv_checkpoint_close(ck);
    snprintf(config, sizeof config,
             "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": %d, \"target_modules\": "
             "[\"q_proj\", \"v_proj\", \"down_proj\"]}",
             rank, 2 * rank);
    write_text(dir, "adapter_config.json", config);
}
