/* Any bytes as a tower's GGUF file, beside a model of each architecture: config.json and
 * preprocessor_config.json are made and parsed or refused, and tensors are listed, in whose bytes rows are then
 * repacked. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/texts.h"
#include "model/config.h"
#include "model/gguf_tensors.h"
#include "model/gguf_weights.h"
#include "tests/support/gguf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { N_MODEL = 5, N_TOKEN = 6, WIDTH = 32 };

static const char *const architectures[N_MODEL] = {"qwen2vl", "qwen3vl", "gemma3", "llama",
                                                   "qwen2"};
static volatile unsigned sum; /* reads that must not be optimised away */

static void put_sizes(gguf_file *f, const char *arch) {
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"embedding_length", WIDTH}, {"feed_forward_length", 48},
                 {"block_count", 6},          {"attention.head_count", 4},
                 {"context_length", 512},     {"attention.key_length", 8}};
    char key[64];
    gguf_put_text(f, "general.architecture", arch);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, sizes[i].key);
        gguf_put_u32(f, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(f, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", arch);
    gguf_begin_list(f, key, FV_GGUF_U32, 3);
    static const uint32_t sections[3] = {2, 1, 1};
    gguf_add_bytes(f, sections, sizeof sections);
}

/* A model without layers. */
static fv_gguf *make_model(const char *arch) {
    static const char *const tokens[N_TOKEN] = {"<|image_pad|>", "<|video_pad|>",
                                                "<image>",       "<image_soft_token>",
                                                "[IMG]",         "<IMG_CONTEXT>"};
    static const float embed[N_TOKEN * WIDTH];
    static const int64_t shape[] = {N_TOKEN, WIDTH};
    gguf_file f = {0};
    fv_gguf *g;
    size_t n;
    put_sizes(&f, arch);
    gguf_begin_list(&f, "tokenizer.ggml.tokens", FV_GGUF_STRING, N_TOKEN);
    for (int i = 0; i < N_TOKEN; i++) gguf_add_text(&f, tokens[i]);
    gguf_put_tensor(&f, "token_embd.weight", 0, 2, shape, embed, sizeof embed);
    unsigned char *bytes = gguf_end(&f, &n); /* kept for all inputs */
    if (fv_gguf_parse(bytes, n, "model", &g) != FV_OK) abort();
    return g;
}

static void read_config(const fv_gguf_set *set) {
    fv_model_config cfg;
    fv_image_config image;
    char *text;
    if (fv_gguf_make_text(set, "config.json", &text) != FV_OK) return;
    fv_status st = fv_config_parse(text, strlen(text), "config", &cfg);
    free(text);
    if (st != FV_OK || fv_gguf_make_text(set, "preprocessor_config.json", &text) != FV_OK) return;
    sum += fv_image_config_parse(text, strlen(text), "processor", &cfg.layout, &image);
    free(text);
}

static void read_entry(const fv_safetensors_entry *e, const fv_gguf_form *form, fv_arena *arena) {
    const uint8_t *p = e->data;
    fv_dtype dtype;
    bool numbers = fv_gguf_is_blocks(e->dtype) || fv_safetensors_dtype(e->dtype, &dtype);
    fv_gguf_weight w = {
        .type = e->dtype, .data = e->data, .n_more = form->n_more, .span = form->span};
    memcpy(w.more, form->more, sizeof w.more);
    sum += p[0] + (unsigned)p[e->bytes - 1];
    if (!form->n_more || !numbers || e->n_dim != 2) return;
    if (fv_gguf_place(&w, (int32_t)e->shape[0], (int32_t)e->shape[1], true, arena) != FV_OK)
        abort();
    sum += fv_gguf_fill(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static fv_gguf *models[N_MODEL];
    fv_gguf *g;
    fv_arena arena = {0};
    fv_safetensors_entry *entry;
    fv_gguf_form *form;
    int32_t n;
    for (int i = 0; i < N_MODEL && !models[i]; i++) models[i] = make_model(architectures[i]);
    if (fv_gguf_parse(data, bytes, "input", &g) != FV_OK) return 0;
    for (int i = 0; i < N_MODEL; i++)
        read_config(&(fv_gguf_set){(const fv_gguf *const *)&models[i], 1, g});
    const fv_gguf_set set = {(const fv_gguf *const *)models, 1, g};
    if (fv_gguf_tensors_list(&set, g, &arena, &entry, &form, &n) == FV_OK)
        for (int32_t i = 0; i < n; i++) read_entry(&entry[i], &form[i], &arena);
    fv_arena_fini(&arena);
    fv_gguf_free(g);
    return 0;
}
