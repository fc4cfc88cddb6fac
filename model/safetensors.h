#ifndef FOVEA_MODEL_SAFETENSORS_H
#define FOVEA_MODEL_SAFETENSORS_H

/* SAFETENSORS: one file: u64 LE header length, that many bytes of JSON
 * {name: {dtype, shape, data_offsets: [begin, end]}, "__metadata__": {...}}, then data.
 * Parsing trusts nothing: lengths, offsets (in the file, not overlapping, no holes),
 * shape x dtype = size, and alignment are checked before anything is borrowed. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/tensor.h"

enum { FV_SAFETENSORS_MAX_DIMS = 8 };

typedef struct fv_safetensors_entry {
    const char *name; /* borrowed from the file object */
    char dtype[12];   /* as written: "F32", "BF16", "F16", "I64", ... */
    int32_t n_dim;
    int64_t shape[FV_SAFETENSORS_MAX_DIMS];
    const void *data; /* borrowed from the bytes; not necessarily aligned */
    size_t bytes;
} fv_safetensors_entry;

typedef struct fv_safetensors fv_safetensors; /* opaque */

/* Parses `n` bytes. On success *out borrows `bytes`, which must outlive it. FV_EDATA with a message if
 * the file is inconsistent; never reads past n. `where` names the file. */
fv_status fv_safetensors_parse(const void *bytes, size_t n, const char *where,
                               fv_safetensors **out);
void fv_safetensors_free(fv_safetensors *st); /* NULL is fine */

int32_t fv_safetensors_count(const fv_safetensors *st);
const fv_safetensors_entry *fv_safetensors_at(const fv_safetensors *st,
                                              int32_t i); /* file order of names */
const fv_safetensors_entry *fv_safetensors_find(const fv_safetensors *st, const char *name);

/* Converts the name of a type that the engine computes with: "F32", "BF16", "F16"; false for others. */
bool fv_safetensors_dtype(const char *name, fv_dtype *out);

#endif
