#ifndef FOVEA_MODEL_GGUF_FORMATS_H
#define FOVEA_MODEL_GGUF_FORMATS_H

/* The forms of blocks in GGUF files (ggml's quants, and gguf-py's), unpacked to integers with scales. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/dtype.h"

enum { FV_GGUF_BLOCK_MAX = 256, FV_GGUF_GROUPS_MAX = 16 };

/* An unpacked block. */
typedef struct fv_gguf_block {
    uint8_t q[FV_GGUF_BLOCK_MAX]; /* signed in int8 formats */
    float scale[FV_GGUF_GROUPS_MAX], min[FV_GGUF_GROUPS_MAX];
} fv_gguf_block;

typedef struct fv_gguf_format {
    const char *type;
    size_t n, bytes, group; /* numbers per block, bytes per block, numbers per scale */
    fv_dtype dtype, scale;  /* scale: a type that holds every scale exactly */
    bool min;
    void (*open)(const uint8_t *from, fv_gguf_block *b);
} fv_gguf_format;

/* The format with this name, "Q4_K"; NULL: it is none of blocks. */
const fv_gguf_format *fv_gguf_format_of(const char *type);

/* Unpack blocks whose integers are looked up in tables (gguf_tables.c). */
void fv_gguf_open_iq4_nl(const uint8_t *from, fv_gguf_block *b);
void fv_gguf_open_iq4_xs(const uint8_t *from, fv_gguf_block *b);
void fv_gguf_open_iq3_xxs(const uint8_t *from, fv_gguf_block *b);
void fv_gguf_open_iq3_s(const uint8_t *from, fv_gguf_block *b);
void fv_gguf_open_mxfp4(const uint8_t *from, fv_gguf_block *b);

#endif
