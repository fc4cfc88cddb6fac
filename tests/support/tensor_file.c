/* Editing of safetensors files for tests. Reads through the engine's parser, writes by itself. */
#include "tests/support/tensor_file.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "model/safetensors.h"

enum { PATH_CAP = 4096, HEADER_CAP = 1 << 20 };

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, fv_last_error());
    abort();
}

tensor_file *tensor_file_read(const char *dir, const char *name) {
    char path[PATH_CAP];
    must(fv_path_join(dir, name, path, sizeof path) == FV_OK, name);
    fv_file_map map;
    must(fv_file_map_open(path, &map) == FV_OK, path);
    fv_safetensors *st;
    must(fv_safetensors_parse(map.data, map.bytes, path, &st) == FV_OK, path);
    tensor_file *f = calloc(1, sizeof *f);
    must(f != NULL, path);
    for (int32_t i = 0; i < fv_safetensors_count(st); i++) {
        const fv_safetensors_entry *e = fv_safetensors_at(st, i);
        tensor_file_add(f, e->name, e->dtype, e->n_dim, e->shape, e->data, e->bytes);
    }
    fv_safetensors_free(st);
    fv_file_map_close(&map);
    return f;
}

void tensor_file_free(tensor_file *f) {
    for (int32_t i = 0; i < f->n; i++) free(f->tensor[i].data);
    free(f);
}

file_tensor *tensor_file_find(tensor_file *f, const char *name) {
    for (int32_t i = 0; i < f->n; i++)
        if (!strcmp(f->tensor[i].name, name)) return &f->tensor[i];
    fprintf(stderr, "the file has no tensor %s\n", name);
    abort();
}

void tensor_file_drop(tensor_file *f, const char *name) {
    file_tensor *t = tensor_file_find(f, name);
    free(t->data);
    f->n--;
    memmove(t, t + 1, (size_t)(&f->tensor[f->n] - t) * sizeof *t);
}

void tensor_file_add(tensor_file *f, const char *name, const char *dtype, int32_t n_dim,
                     const int64_t *shape, const void *data, size_t bytes) {
    must(f->n < (int32_t)(sizeof f->tensor / sizeof *f->tensor), "too many tensors");
    file_tensor *t = &f->tensor[f->n++];
    *t = (file_tensor){.n_dim = n_dim, .bytes = bytes};
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    for (int32_t i = 0; i < n_dim; i++) t->shape[i] = shape[i];
    t->data = malloc(bytes + 1);
    must(t->data != NULL, name);
    if (bytes) memcpy(t->data, data, bytes);
}

void tensor_file_write(const tensor_file *f, const char *dir, const char *name, int odd) {
    char path[PATH_CAP], *header = malloc(HEADER_CAP);
    must(header && fv_path_join(dir, name, path, sizeof path) == FV_OK, name);
    size_t n = (size_t)snprintf(header, HEADER_CAP, "{\"__metadata__\":{\"format\":\"pt\"}");
    size_t at = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const file_tensor *t = &f->tensor[i];
        n += (size_t)snprintf(header + n, HEADER_CAP - n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                              t->name, t->dtype);
        for (int32_t k = 0; k < t->n_dim; k++)
            n += (size_t)snprintf(header + n, HEADER_CAP - n, "%s%lld", k ? "," : "",
                                  (long long)t->shape[k]);
        n += (size_t)snprintf(header + n, HEADER_CAP - n, "],\"data_offsets\":[%zu,%zu]}", at,
                              at + t->bytes);
        at += t->bytes;
    }
    header[n++] = '}';
    while (n % 8 != (size_t)odd) header[n++] = ' ';
    FILE *out = fopen(path, "wb");
    must(out != NULL, path);
    for (int i = 0; i < 8; i++) fputc((int)(n >> 8 * i & 255), out);
    fwrite(header, 1, n, out);
    for (int32_t i = 0; i < f->n; i++) fwrite(f->tensor[i].data, 1, f->tensor[i].bytes, out);
    must(fclose(out) == 0, path);
    free(header);
}

void tensor_file_without(const char *dir, const char *name, const char *tensor) {
    tensor_file *f = tensor_file_read(dir, name);
    tensor_file_drop(f, tensor);
    tensor_file_write(f, dir, name, 0);
    tensor_file_free(f);
}

static char scratch[256][PATH_CAP];
static int n_scratch;

static int remove_entry(const char *path, const struct stat *sb, int type, struct FTW *where) {
    (void)sb, (void)type, (void)where;
    return remove(path);
}

static void remove_scratch(void) {
    while (n_scratch > 0) nftw(scratch[--n_scratch], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void scratch_dir(char *path, size_t cap) {
    must(fv_path_join(FOVEA_TEST_TMP, "scratch-XXXXXX", path, cap) == FV_OK, path);
    must(fv_dir_make(FOVEA_TEST_TMP) == FV_OK, path);
    must(mkdtemp(path) != NULL, path);
    must(n_scratch < (int)(sizeof scratch / sizeof *scratch), "too many scratch directories");
    if (n_scratch == 0) must(atexit(remove_scratch) == 0, path);
    snprintf(scratch[n_scratch++], PATH_CAP, "%s", path);
}

void write_text(const char *dir, const char *name, const char *text) {
    char path[PATH_CAP];
    must(fv_path_join(dir, name, path, sizeof path) == FV_OK, name);
    must(fv_file_write(path, text, strlen(text)) == FV_OK, path);
}
