#ifndef FOVEA_MODEL_LATENT_LATENT_H
#define FOVEA_MODEL_LATENT_LATENT_H

/* LATENT DIRECTIONS of a checkpoint (packed/latent.h), which `fovea calibrate --latent` writes
 * beside its weights in latent.bin. Layers form groups of consecutive layers; the keys and values
 * of a group's layers share their coefficients.
 *
 *   file, little-endian:
 *     "FVLATENT"  u32 version  u32 layers  u32 KV heads  u32 D  u32 layers of a group  u32 R
 *     u32 items   char[17] fingerprint  char[9] KV dtype  char[9] compute mode  0
 *     f32 level [510]  error [9]                       level, in deviations, error and order as in latent.h
 *     per group:  f32 deviation [R]  offset [R]
 *     per layer, for keys, then for values:
 *                 f32 mean [W]  decode [R, W]  encode [W, R]            W = KV heads * D
 *     u64 XXH64 of the bytes before it
 *
 * Directions depend on the KV dtype and compute mode that they were measured with, and are used
 * only with these.
 *
 * Any thread; immutable once open. */
#include "common/status.h"
#include "packed/latent.h"

enum { FV_LATENT_VERSION = 2 };

typedef struct fv_latent_info {
    int32_t n_layer, n_kv, d_head;
    int32_t n_group_layer; /* layers per group; the last may have fewer */
    int32_t n_dir;         /* R */
    int32_t n_item;        /* items measured */
    char fingerprint[17], dtype[9], compute[9];
} fv_latent_info;

typedef struct fv_latent {
    fv_latent_info info;
    uint64_t checksum;
    const fv_latent_layer *layer; /* [n_layer] */
    float error[FV_LATENT_BITS + 1];
    int8_t level[FV_LATENT_LEVELS];
    const uint32_t *steps; /* [groups, FV_LATENT_STEPS] fv_latent_steps */
    int32_t n_group;
    /* private */
    void *file, *memory;
} fv_latent;

/* Layout of the file's numbers, all F32, from the levels on: their count; the index of group g's
 * first deviation; and the index of the first mean of a layer's keys (0) or values (1). */
size_t fv_latent_numbers(const fv_latent_info *info);
size_t fv_latent_group_at(const fv_latent_info *info, int32_t group);
size_t fv_latent_layer_at(const fv_latent_info *info, int32_t layer, int kind);

/* Aligned sizes of the parts that attention reads of a layer (fv_latent_layer), which are in this
 * order. */
typedef struct fv_latent_bytes_laid {
    size_t key, affine, sigma, value;
} fv_latent_bytes_laid;

fv_latent_bytes_laid fv_latent_layout(const fv_latent_info *info);

/* Makes the file's bytes. Gives *out. */
fv_status fv_latent_encode(const fv_latent_info *info, const float *numbers, void **out,
                           size_t *bytes);

/* Parses bytes, which it takes. FV_EDATA says what is wrong with them. */
fv_status fv_latent_decode(void *file, size_t n, const char *path, fv_latent **out);

/* Reads DIR/latent.bin. FV_ENOTFOUND: no file. FV_EDATA: the file is broken or belongs to another
 * checkpoint. */
fv_status fv_latent_open(const char *dir, const char *fingerprint, fv_latent **out);
void fv_latent_close(fv_latent *l); /* NULL is fine */

/* Writes DIR/latent.bin, replacing it atomically. */
fv_status fv_latent_save(const char *dir, const fv_latent_info *info, const float *numbers);

#endif
