#ifndef FOVEA_TESTS_SUPPORT_TENSOR_FILE_H
#define FOVEA_TESTS_SUPPORT_TENSOR_FILE_H

/* A safetensors file taken apart, so that a test can change it and write it back. Functions abort
 * on failure. */
#include <stddef.h>
#include <stdint.h>

typedef struct file_tensor {
    char name[128], dtype[12];
    int32_t n_dim;
    int64_t shape[8];
    unsigned char *data; /* [bytes], owned */
    size_t bytes;
} file_tensor;

typedef struct tensor_file {
    file_tensor tensor[1024];
    int32_t n;
} tensor_file;

tensor_file *tensor_file_read(const char *dir, const char *name);
void tensor_file_free(tensor_file *f);

file_tensor *tensor_file_find(tensor_file *f, const char *name);
void tensor_file_drop(tensor_file *f, const char *name);
/* A new tensor after the others; data is copied. */
void tensor_file_add(tensor_file *f, const char *name, const char *dtype, int32_t n_dim,
                     const int64_t *shape, const void *data, size_t bytes);

/* Writes <dir>/<name>; the header's length is `odd` more than a multiple of 8. */
void tensor_file_write(const tensor_file *f, const char *dir, const char *name, int odd);

/* Reads, drops one tensor, writes. */
void tensor_file_without(const char *dir, const char *name, const char *tensor);

/* An empty directory of its own under FOVEA_TEST_TMP, removed with its contents when the test's
 * process succeeds. */
void scratch_dir(char *path, size_t cap);

/* Writes text as <dir>/<name>. */
void write_text(const char *dir, const char *name, const char *text);

#endif
