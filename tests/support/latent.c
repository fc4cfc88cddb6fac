/* Directions along single numbers, and even levels. */
#include "tests/support/latent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint.h"

fv_latent_info latent_info(int32_t n_layer, int32_t n_kv, int32_t d_head, const char *fingerprint,
                           const char *dtype, const char *compute) {
    fv_latent_info i = {.n_layer = n_layer,
                        .n_kv = n_kv,
                        .d_head = d_head,
                        .n_group_layer = LATENT_LAYERS < n_layer ? LATENT_LAYERS : n_layer,
                        .n_dir = LATENT_RANK,
                        .n_item = 1};
    if (i.n_dir > 2 * n_kv * d_head) i.n_dir = 2 * n_kv * d_head;
    snprintf(i.fingerprint, sizeof i.fingerprint, "%s", fingerprint);
    snprintf(i.dtype, sizeof i.dtype, "%s", dtype);
    snprintf(i.compute, sizeof i.compute, "%s", compute);
    return i;
}

static void put_levels(float *level) {
    for (int b = 1; b <= FV_LATENT_BITS; b++)
        for (int k = 0; k < 1 << b; k++)
            *level++ = rintf(64 * ((2 * (float)k + 1) / (float)(1 << b) - 1)) / 32;
    for (int b = 0; b <= FV_LATENT_BITS; b++) *level++ = 1.0f / (float)(1 << 2 * b);
}

float *latent_numbers(const fv_latent_info *i) {
    int32_t W = i->n_kv * i->d_head, R = i->n_dir;
    float *x = calloc(fv_latent_numbers(i), sizeof *x);
    if (!x) abort();
    put_levels(x);
    for (int32_t g = 0; g * i->n_group_layer < i->n_layer; g++) {
        int32_t first = g * i->n_group_layer, last = first + i->n_group_layer;
        int32_t n = 2 * ((last < i->n_layer ? last : i->n_layer) - first);
        for (int32_t r = 0; r < R; r++) {
            int32_t part = r % n, column = r / n * 5 % W;
            float *mean = x + fv_latent_layer_at(i, first + part / 2, part % 2);
            x[fv_latent_group_at(i, g) + (size_t)r] = 1.0f - 0.01f * (float)r;
            mean[W + r * W + column] = 1;         /* decode */
            mean[W + R * W + column * R + r] = 1; /* encode */
            mean[(column + 1) % W] = 0.05f;
        }
        for (int32_t p = 0; p < n; p++) { /* the mean's coefficients */
            const float *mean = x + fv_latent_layer_at(i, first + p / 2, p % 2);
            for (int32_t r = 0; r < R; r++)
                for (int32_t c = 0; c < W; c++)
                    x[fv_latent_group_at(i, g) + (size_t)(R + r)] +=
                        mean[c] * mean[W + R * W + c * R + r];
        }
    }
    return x;
}

static void must(fv_status st) {
    if (st == FV_OK) return;
    fprintf(stderr, "latent: %s\n", fv_last_error());
    abort();
}

fv_latent *latent_open(const fv_latent_info *info) {
    float *numbers = latent_numbers(info);
    fv_latent *l;
    void *file;
    size_t n;
    must(fv_latent_encode(info, numbers, &file, &n));
    must(fv_latent_decode(file, n, "latent.bin", &l));
    free(numbers);
    return l;
}

void latent_write(const char *dir) {
    char fingerprint[17];
    fv_checkpoint *ck;
    must(fv_checkpoint_open(dir, &ck));
    const fv_text_config *t = &fv_checkpoint_config(ck)->text;
    fv_checkpoint_fingerprint(ck, fingerprint);
    fv_latent_info info = latent_info(t->n_layer, t->n_kv, t->d_head, fingerprint, "f32", "f32");
    fv_checkpoint_close(ck);
    float *numbers = latent_numbers(&info);
    must(fv_latent_save(dir, &info, numbers));
    free(numbers);
}
