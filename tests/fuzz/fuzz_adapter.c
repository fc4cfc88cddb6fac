/* Any bytes as an adapter: adapter_config.json, a NUL, adapter_model.safetensors. An accepted one has pairs that fit a small
 * network, with numbers that can be read. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "model/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char network[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 32, \"hidden_size\": 8, \"intermediate_size\": "
    "12, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"head_dim\": 4, \"max_position_embeddings\": 64}";

static volatile float sum; /* reads that must not be optimised away */

static void expect(bool holds) {
    if (!holds) abort();
}

static void read_all(fv_tensor t) {
    const float *x = t.data;
    for (int64_t i = 0; i < (int64_t)t.rows * t.cols; i++) {
        expect(isfinite(x[i]));
        sum += x[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fv_model_config cfg;
    fv_adapter x;
    fv_arena arena = {0};
    static bool quiet;
    if (!quiet) quiet = fv_log_configure("error") == FV_OK;
    expect(fv_config_parse(network, sizeof network - 1, "network", &cfg) == FV_OK);
    const uint8_t *nul = bytes ? memchr(data, 0, bytes) : NULL;
    size_t n = nul ? (size_t)(nul - data) : bytes;
    size_t rest = nul ? bytes - n - 1 : 0;
    void *tensors = malloc(rest + 1); /* of its own, so that reading past the end is seen */
    expect(tensors != NULL);
    if (rest) memcpy(tensors, nul + 1, rest);
    if (fv_adapter_parse("input", (const char *)data, n, tensors, rest, &cfg, &arena, &x) ==
        FV_OK) {
        free(tensors); /* an adapter borrows nothing of its file */
        tensors = NULL;
        expect(x.rank >= 1 && x.rank <= FV_ADAPTER_RANK_MAX && strlen(x.digest) == 64);
        for (int32_t l = 0; l < cfg.text.n_layer; l++)
            for (int32_t i = 0; i < FV_ADAPTER_PAIRS; i++) {
                const fv_adapter_pair *p = &x.layer[l].pair[i];
                expect(!p->a.data == !p->b.data);
                if (!p->a.data) continue;
                expect(p->a.rows == p->b.cols);
                read_all(p->a);
                read_all(p->b);
            }
    }
    free(tensors);
    fv_arena_fini(&arena);
    return 0;
}
