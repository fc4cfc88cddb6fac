#ifndef FOVEA_MODEL_LATENT_LATENT_H
#define FOVEA_MODEL_LATENT_LATENT_H

/* LATENT DIRECTIONS of a checkpoint (kernels/latent.h), which `fovea calibrate --latent` writes
 * beside its weights in latent.bin. Layers are in groups of as many neighbours; a group's keys and
 * values, of all its layers side by side, share their coefficients.
 *
 *   file, little-endian:
 *     "FVLATENT"  u32 version  u32 layers  u32 KV heads  u32 D  u32 layers of a group  u32 R
 *     u32 items   char[17] fingerprint  char[9] KV dtype  char[9] compute mode  0
 *     f32 level [510]  error [9]                       level, in deviations, error and order as in latent.h
 *     per group:  f32 deviation [R]  offset [R]
 *     per layer, of keys, then of values:
 *                 f32 mean [W]  decode [R, W]  encode [W, R]            W = KV heads * D
 *     u64 XXH64 of all before
 *
 * Numbers depend on the KV dtype and the compute mode that it was measured with, so it is used with
 * these alone.
 *
 * Any thread; immutable once open. */
#include "common/status.h"
#include "kernels/latent.h"

enum { FV_LATENT_VERSION = 2 };

typedef struct fv_latent_info {
    int32_t n_layer, n_kv, d_head;
    int32_t n_group_layer; /* layers of a group; the last may have fewer */
    int32_t n_dir;         /* R */
    int32_t n_item;        /* that it was measured on */
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

/* The file's numbers, all F32, from the levels on: how many there are, and the first of group g's
 * deviations, and of the means of a layer's keys (0) or values (1). */
size_t fv_latent_numbers(const fv_latent_info *info);
size_t fv_latent_group_at(const fv_latent_info *info, int32_t group);
size_t fv_latent_layer_at(const fv_latent_info *info, int32_t layer, int kind);

/* Bytes of what attention reads of a layer (fv_latent_layer), aligned; one after the other in this order. */
typedef struct fv_latent_bytes_laid {
    size_t key, affine, sigma, value;
} fv_latent_bytes_laid;

fv_latent_bytes_laid fv_latent_laid(const fv_latent_info *info);

/* The file's bytes. Gives *out. */
fv_status fv_latent_encode(const fv_latent_info *info, const float *numbers, void **out,
                           size_t *bytes);

/* Of bytes, which it takes. FV_EDATA says what is wrong with them. */
fv_status fv_latent_decode(void *file, size_t n, const char *path, fv_latent **out);

/* Reads DIR/latent.bin. FV_ENOTFOUND: there is none. FV_EDATA says what is wrong with it, also when
 * it belongs to another checkpoint. */
fv_status fv_latent_open(const char *dir, const char *fingerprint, fv_latent **out);
void fv_latent_close(fv_latent *l); /* NULL is fine */

/* Writes DIR/latent.bin; it is replaced as a whole. */
fv_status fv_latent_save(const char *dir, const fv_latent_info *info, const float *numbers);

#endif
