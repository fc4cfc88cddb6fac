/* Any bytes as a GGUF file, parsed or refused: parsed tensors can be read and listed, weights are
 * repacked, and the files made from metadata can be parsed or are refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/texts.h"
#include "model/config.h"
#include "model/gguf_tensors.h"
#include "model/gguf_weights.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile unsigned sum; /* reads that must not be optimised away */

static void read_tensor(const fv_gguf_tensor *t) {
    char name[FV_GGUF_NAME_MAX];
    fv_arena arena = {0};
    fv_gguf_weight w = {.type = t->type, .data = t->data};
    const uint8_t *p = t->data;
    int64_t rows = t->n_dim == 2 ? t->shape[0] : 1;
    if (t->bytes) sum += p[0] + (unsigned)p[t->bytes - 1];
    if (fv_gguf_hub_name(t->name, name) && !fv_gguf_own_name(name, name)) abort();
    if (!fv_gguf_is_blocks(t->type) || t->n_dim > 2) return;
    for (int linear = 0; linear < 2; linear++) {
        if (fv_gguf_place(&w, (int32_t)rows, (int32_t)t->shape[t->n_dim - 1], linear, &arena) !=
            FV_OK)
            abort();
        sum += fv_gguf_fill(&w);
    }
    fv_arena_fini(&arena);
}

/* Lists tensors under their names on the Hub, and repacks those whose rows are in another order. */
static void read_list(const fv_gguf_set *set) {
    fv_arena arena = {0};
    fv_safetensors_entry *e;
    fv_gguf_form *f;
    int32_t n = 0;
    if (fv_gguf_tensors_list(set, set->model[0], &arena, &e, &f, &n) != FV_OK) n = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *p = e[i].data;
        fv_dtype dtype;
        fv_gguf_weight w = {.type = e[i].dtype,
                            .data = e[i].data,
                            .n_more = f[i].n_more,
                            .span = f[i].span,
                            .tiles = f[i].tiles};
        int64_t rows = e[i].n_dim == 3 ? e[i].shape[0] * e[i].shape[1] : e[i].shape[0];
        memcpy(w.more, f[i].more, sizeof w.more);
        if (e[i].bytes) sum += p[0] + (unsigned)p[e[i].bytes - 1];
        if (e[i].n_dim < 2 || e[i].n_dim > 3 || (!w.n_more && w.tiles.each <= 1)) continue;
        if (!fv_gguf_is_blocks(w.type) && !fv_safetensors_dtype(w.type, &dtype)) continue;
        if (fv_gguf_place(&w, (int32_t)rows, (int32_t)e[i].shape[e[i].n_dim - 1], true, &arena) ==
            FV_OK)
            sum += fv_gguf_fill(&w);
    }
    fv_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fv_gguf *g;
    fv_tokenizer *tok;
    fv_model_config cfg;
    char *text;
    if (fv_gguf_parse(data, bytes, "input", &g) != FV_OK) return 0;
    const fv_gguf_set set = {(const fv_gguf *const *)&g, 1, NULL};
    for (int32_t i = 0; i < fv_gguf_tensors(g); i++) read_tensor(fv_gguf_at(g, i));
    read_list(&set);
    if (fv_gguf_make_text(&set, "config.json", &text) == FV_OK) {
        sum += fv_config_parse(text, strlen(text), "input", &cfg);
        free(text);
    }
    if (fv_gguf_make_text(&set, "tokenizer.json", &text) == FV_OK) {
        if (fv_tokenizer_parse(text, strlen(text), "input", &tok) == FV_OK) fv_tokenizer_free(tok);
        free(text);
    }
    if (fv_gguf_make_text(&set, "tokenizer_config.json", &text) == FV_OK) free(text);
    fv_gguf_free(g);
    return 0;
}
