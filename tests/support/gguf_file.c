#include "tests/support/gguf_file.h"

#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/gguf.h"

enum { ALIGNMENT = 32 };

static void put(gguf_part *p, const void *from, size_t n) {
    if (p->n + n > p->cap) {
        p->cap = 2 * (p->n + n);
        p->at = realloc(p->at, p->cap);
        if (!p->at) abort();
    }
    if (n) memcpy(p->at + p->n, from, n);
    p->n += n;
}

static void put_number(gguf_part *p, uint64_t x, size_t n) { put(p, &x, n); /* little-endian */ }

static void put_string(gguf_part *p, const char *s) {
    put_number(p, strlen(s), 8);
    put(p, s, strlen(s));
}

static void put_key(gguf_file *f, const char *key, uint32_t kind) {
    put_string(&f->keys, key);
    put_number(&f->keys, kind, 4);
    f->n_key++;
}

void gguf_put_text(gguf_file *f, const char *key, const char *value) {
    put_key(f, key, FV_GGUF_STRING);
    put_string(&f->keys, value);
}

void gguf_put_u32(gguf_file *f, const char *key, uint32_t value) {
    put_key(f, key, FV_GGUF_U32);
    put_number(&f->keys, value, 4);
}

void gguf_put_f32(gguf_file *f, const char *key, float value) {
    put_key(f, key, FV_GGUF_F32);
    put(&f->keys, &value, 4);
}

void gguf_put_bool(gguf_file *f, const char *key, int value) {
    put_key(f, key, FV_GGUF_BOOL);
    put_number(&f->keys, value != 0, 1);
}

void gguf_begin_list(gguf_file *f, const char *key, uint32_t kind, uint64_t n) {
    put_key(f, key, FV_GGUF_ARRAY);
    put_number(&f->keys, kind, 4);
    put_number(&f->keys, n, 8);
}

void gguf_add_text(gguf_file *f, const char *value) { put_string(&f->keys, value); }
void gguf_add_bytes(gguf_file *f, const void *value, size_t n) { put(&f->keys, value, n); }

static void pad(gguf_part *p, size_t before) {
    static const unsigned char zeros[ALIGNMENT];
    put(p, zeros, (ALIGNMENT - (before + p->n) % ALIGNMENT) % ALIGNMENT);
}

void gguf_put_tensor(gguf_file *f, const char *name, uint32_t type, int n_dim, const int64_t *sizes,
                     const void *data, size_t bytes) {
    pad(&f->data, 0);
    put_string(&f->tensors, name);
    put_number(&f->tensors, (uint64_t)n_dim, 4);
    for (int i = n_dim; i-- > 0;) put_number(&f->tensors, (uint64_t)sizes[i], 8);
    put_number(&f->tensors, type, 4);
    put_number(&f->tensors, f->data.n, 8);
    put(&f->data, data, bytes);
    f->n_tensor++;
}

unsigned char *gguf_end(gguf_file *f, size_t *bytes) {
    gguf_part all = {0};
    put(&all, "GGUF", 4);
    put_number(&all, 3, 4);
    put_number(&all, f->n_tensor, 8);
    put_number(&all, f->n_key, 8);
    put(&all, f->keys.at, f->keys.n);
    put(&all, f->tensors.at, f->tensors.n);
    pad(&all, 0);
    put(&all, f->data.at, f->data.n);
    free(f->keys.at);
    free(f->tensors.at);
    free(f->data.at);
    *f = (gguf_file){0};
    *bytes = all.n;
    return all.at;
}

void gguf_write(gguf_file *f, const char *path) {
    size_t n;
    unsigned char *bytes = gguf_end(f, &n);
    if (fv_file_write(path, bytes, n) != FV_OK) abort();
    free(bytes);
}
