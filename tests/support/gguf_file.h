#ifndef FOVEA_TESTS_SUPPORT_GGUF_FILE_H
#define FOVEA_TESTS_SUPPORT_GGUF_FILE_H

/* Writes GGUF files of version 3, piece by piece. Functions abort on failure. */
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_part {
    unsigned char *at;
    size_t n, cap;
} gguf_part;

typedef struct gguf_file {
    gguf_part keys, tensors, data;
    uint64_t n_key, n_tensor;
} gguf_file; /* {0} is an empty file */

void gguf_put_text(gguf_file *f, const char *key, const char *value);
void gguf_put_u32(gguf_file *f, const char *key, uint32_t value);
void gguf_put_f32(gguf_file *f, const char *key, float value);
void gguf_put_bool(gguf_file *f, const char *key, int value);
/* Lists, value by value. */
void gguf_begin_list(gguf_file *f, const char *key, uint32_t kind, uint64_t n);
void gguf_add_text(gguf_file *f, const char *value);
void gguf_add_bytes(gguf_file *f, const void *value, size_t n);

/* sizes [n_dim], innermost last; type: its number in the format. */
void gguf_put_tensor(gguf_file *f, const char *name, uint32_t type, int n_dim, const int64_t *sizes,
                     const void *data, size_t bytes);

/* The whole file (free it), or written to `path`; f is {0} then. */
unsigned char *gguf_end(gguf_file *f, size_t *bytes);
void gguf_write(gguf_file *f, const char *path);

#endif
