/* Any bytes as a safetensors file: parsed or refused, and every tensor it gives can be read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile unsigned sum; /* reads that must not be optimised away */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fv_safetensors *st = NULL;
    if (fv_safetensors_parse(data, bytes, "input", &st) != FV_OK) return 0;
    size_t covered = 0;
    for (int32_t i = 0; i < fv_safetensors_count(st); i++) {
        const fv_safetensors_entry *e = fv_safetensors_at(st, i);
        const uint8_t *p = e->data;
        if (fv_safetensors_find(st, e->name) != e) abort();
        if (e->n_dim < 0 || e->n_dim > FV_SAFETENSORS_MAX_DIMS) abort();
        for (int32_t k = 0; k < e->n_dim; k++)
            if (e->shape[k] < 0) abort();
        if (e->bytes) sum += p[0] + (unsigned)p[e->bytes - 1];
        covered += e->bytes;
    }
    if (covered > bytes) abort();
    fv_safetensors_free(st);
    return 0;
}
