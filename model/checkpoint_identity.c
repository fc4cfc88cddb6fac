/* Tells checkpoints apart, and damaged weights from sound ones. */
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state is on the stack: allocating it cannot fail */
#include <xxhash.h>

#include "model/checkpoint_internal.h"

enum { FINGERPRINT_EDGE = 4096 };

/* A whole file takes minutes to read: the ends of each tensor stand for it. */
static void add_ends(XXH64_state_t *state, const void *data, size_t bytes) {
    size_t edge = bytes < FINGERPRINT_EDGE ? bytes : FINGERPRINT_EDGE;
    XXH64_update(state, data, edge);
    XXH64_update(state, (const char *)data + bytes - edge, edge);
}

/* Adds what a quantized weight has beside its integers: scales, zero points, the order of columns. */
static void add_parts(XXH64_state_t *state, const fv_stored_weight *w) {
    for (int p = 1; w->form && p < FV_STORED_PARTS; p++) {
        if (!w->part[p]) continue;
        XXH64_update(state, w->part[p]->name, strlen(w->part[p]->name) + 1);
        add_ends(state, w->part[p]->data, w->part[p]->bytes);
    }
}

/* Adds the tensors of a GGUF file that follow t's rows in one weight; they have its size. */
static void add_joined(XXH64_state_t *state, const fv_shard_tensor *t) {
    for (int32_t i = 0; t->form && i < t->form->n_more; i++)
        add_ends(state, t->form->more[i], t->entry->bytes);
}

void fv_checkpoint_fingerprint(const fv_checkpoint *ck, char out[17]) {
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    XXH64_update(&state, ck->config_text, ck->config_bytes);
    XXH64_update(&state, ck->tower_dir.config, ck->tower_dir.bytes);
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor_spec *e = ck->used[i].expected;
        const fv_safetensors_entry *t = ck->used[i].found->entry;
        XXH64_update(&state, e->name, strlen(e->name) + 1);
        XXH64_update(&state, t->dtype, strlen(t->dtype) + 1);
        XXH64_update(&state, e->shape, (size_t)e->n_dim * sizeof *e->shape);
        add_ends(&state, t->data, t->bytes);
        add_parts(&state, &ck->used[i].stored);
        add_joined(&state, ck->used[i].found);
    }
    snprintf(out, 17, "%016llx", (unsigned long long)XXH64_digest(&state));
}

/* A value is not finite when all bits of its exponent are set. */
static bool finite16(const uint16_t *x, size_t n, uint16_t exponent) {
    unsigned hit = 0;
    for (size_t i = 0; i < n; i++) hit |= (x[i] & exponent) == exponent;
    return !hit;
}

static bool finite32(const uint32_t *x, size_t n) {
    const uint32_t exponent = 0x7F800000U;
    unsigned hit = 0;
    for (size_t i = 0; i < n; i++) hit |= (x[i] & exponent) == exponent;
    return !hit;
}

const char *fv_checkpoint_find_nonfinite(const fv_checkpoint *ck) {
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor *v = &ck->used[i].view;
        if (v->quant) continue;
        size_t n = (size_t)v->rows * (size_t)v->cols;
        const void *data = ck->used[i].experts.data ? ck->used[i].experts.data : v->data;
        bool fine = v->dtype == FV_F32    ? finite32(data, n)
                    : v->dtype == FV_BF16 ? finite16(data, n, 0x7F80U)
                                          : finite16(data, n, 0x7C00U);
        if (!fine) return ck->used[i].found->entry->name;
    }
    return NULL;
}
