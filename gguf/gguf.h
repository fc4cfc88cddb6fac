#ifndef FOVEA_GGUF_GGUF_H
#define FOVEA_GGUF_GGUF_H

/* One GGUF file, as llama.cpp writes it (version 2 or 3, little-endian): metadata, a table of
 * tensors, their data.
 *
 *   "GGUF" u32 version u64 tensors u64 keys
 *   keys:    string key, u32 type, value      string: u64 length, bytes; array: u32 type, u64 n, values
 *   tensors: string name, u32 dimensions, u64 sizes (innermost first), u32 type, u64 offset
 *   data, at a multiple of general.alignment
 *
 * Parsing trusts no field: lengths and offsets are checked against the file's size. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { FV_GGUF_NAME_MAX = 128, FV_GGUF_DIMS = 4 };

typedef enum fv_gguf_kind {
    FV_GGUF_U8 = 0,
    FV_GGUF_I8,
    FV_GGUF_U16,
    FV_GGUF_I16,
    FV_GGUF_U32,
    FV_GGUF_I32,
    FV_GGUF_F32,
    FV_GGUF_BOOL,
    FV_GGUF_STRING,
    FV_GGUF_ARRAY,
    FV_GGUF_U64,
    FV_GGUF_I64,
    FV_GGUF_F64,
    FV_GGUF_N_KIND
} fv_gguf_kind;

typedef struct fv_gguf_string { /* not NUL-terminated */
    const char *s;
    size_t n;
} fv_gguf_string;

typedef struct fv_gguf_tensor {
    const char *name;
    const char *type; /* "F32", "Q4_K", ... */
    int32_t n_dim;
    int64_t shape[FV_GGUF_DIMS]; /* innermost last */
    const void *data;            /* borrowed from the bytes */
    size_t bytes;
} fv_gguf_tensor;

typedef struct fv_gguf fv_gguf; /* opaque */

/* Whether a path names a GGUF file, by its suffix. */
bool fv_gguf_is_file(const char *path);

/* Parses n bytes, which must outlive *out. FV_EDATA for a damaged file, FV_EUNSUPPORTED for a version or a
 * tensor type that is not supported; both messages name the remedy. `where` names the file; copied. */
fv_status fv_gguf_parse(const void *bytes, size_t n, const char *where, fv_gguf **out);
void fv_gguf_free(fv_gguf *g); /* NULL is fine */
const char *fv_gguf_where(const fv_gguf *g);

int32_t fv_gguf_tensors(const fv_gguf *g);
const fv_gguf_tensor *fv_gguf_at(const fv_gguf *g, int32_t i);
const fv_gguf_tensor *fv_gguf_find(const fv_gguf *g, const char *name); /* NULL: none */

/* Values of the metadata. An absent key leaves *out unchanged; a key of another kind is FV_EDATA. */
bool fv_gguf_has(const fv_gguf *g, const char *key);
fv_status fv_gguf_number(const fv_gguf *g, const char *key, double *out); /* any kind of number */
fv_status fv_gguf_integer(const fv_gguf *g, const char *key, int64_t *out);
fv_status fv_gguf_bool(const fv_gguf *g, const char *key, bool *out);
fv_status fv_gguf_text(const fv_gguf *g, const char *key, fv_gguf_string *out);
/* Arrays of strings, or of numbers of one kind, booleans being 0 and 1; free *out. */
fv_status fv_gguf_strings(const fv_gguf *g, const char *key, fv_gguf_string **out, size_t *n);
fv_status fv_gguf_numbers(const fv_gguf *g, const char *key, double **out, size_t *n);

#endif
