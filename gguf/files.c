/* Finds the files of a GGUF checkpoint. Any thread. */
#include "gguf/files.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

enum { LIST_MAX = 1024, PART_DIGITS = 5 };

static const char end[] = ".gguf", between[] = ".gguf+", hub_end[] = ".safetensors";

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n > m && strcmp(s + n - m, tail) == 0;
}

bool fv_gguf_is_file(const char *path) { return ends_with(path, end); }

size_t fv_gguf_model_bytes(const char *from) {
    const char *at = strstr(from, between);
    return at && fv_gguf_is_file(from) && !fv_file_exists(from) ? (size_t)(at - from) + strlen(end)
                                                                : strlen(from);
}

/* ---- split files ------------------------------------------------------------------------- */

/* Finds "-00002-of-00003.gguf" at the end of a path; *part and *n are 1 in other names. Returns where it
 * starts. */
static size_t parts_of(const char *path, int32_t *part, int32_t *n) {
    enum { LENGTH = 1 + PART_DIGITS + 4 + PART_DIGITS + 5 };
    size_t bytes = strlen(path), at = bytes - LENGTH;
    *part = *n = 1;
    if (bytes <= LENGTH) return bytes;
    const char *s = path + at;
    if (s[0] != '-' || strspn(s + 1, "0123456789") != PART_DIGITS ||
        strncmp(s + 1 + PART_DIGITS, "-of-", 4) != 0 ||
        strspn(s + 5 + PART_DIGITS, "0123456789") != PART_DIGITS)
        return bytes;
    *part = atoi(s + 1);
    *n = atoi(s + 5 + PART_DIGITS);
    return at;
}

static fv_status copy(const char *path, size_t n, char out[FV_CHECKPOINT_PATH]) {
    if (n >= FV_CHECKPOINT_PATH)
        return FV_FAIL(FV_EINVAL, "a path of %zu bytes is too long: '%.80s...'", n, path);
    memcpy(out, path, n);
    out[n] = '\0';
    return FV_OK;
}

fv_status fv_gguf_files_part(const fv_gguf_files *f, int32_t i, char path[FV_CHECKPOINT_PATH]) {
    int32_t part, n;
    size_t at = parts_of(f->model, &part, &n);
    if (n == 1) return copy(f->model, strlen(f->model), path);
    int bytes =
        snprintf(path, FV_CHECKPOINT_PATH, "%.*s-%05d-of-%05d.gguf", (int)at, f->model, i + 1, n);
    if (bytes < FV_CHECKPOINT_PATH) return FV_OK;
    return FV_FAIL(FV_EINVAL, "a path of %d bytes is too long: '%.80s...'", bytes, f->model);
}

/* Takes any file of a model as the model. */
static fv_status set_model(const char *path, size_t bytes, fv_gguf_files *out) {
    int32_t part;
    FV_TRY(copy(path, bytes, out->model));
    (void)parts_of(out->model, &part, &out->n);
    if (out->n >= 1 && out->n <= FV_GGUF_PARTS_MAX && part >= 1 && part <= out->n) {
        char first[FV_CHECKPOINT_PATH];
        FV_TRY(fv_gguf_files_part(out, 0, first));
        return copy(first, strlen(first), out->model);
    }
    return FV_FAIL(FV_EINVAL, "%s: the name says file %d of %d; 1 to %d of at most %d are possible",
                   out->model, part, out->n, out->n, FV_GGUF_PARTS_MAX);
}

/* ---- directories ------------------------------------------------------------------------- */

typedef struct candidates {
    int32_t n;
    char name[FV_CHECKPOINT_PATH]; /* of one of them */
    char list[LIST_MAX];           /* "a, b" */
} candidates;

static void add(candidates *f, const char *name) {
    size_t n = strlen(f->list);
    if (f->n++ == 0) snprintf(f->name, sizeof f->name, "%s", name);
    if (n + strlen(name) + 8 < LIST_MAX)
        snprintf(f->list + n, LIST_MAX - n, "%s%s", n ? ", " : "", name);
    else if (n + 6 < LIST_MAX && !strstr(f->list, ", ..."))
        strcat(f->list, ", ...");
}

/* llama.cpp's converter and everyone who publishes its files name them so. */
static bool is_mmproj(const char *name) {
    static const char word[] = "mmproj";
    for (; *name; name++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)name[i]) == word[i]) i++;
        if (!word[i]) return true;
    }
    return false;
}

/* The names in a directory, sorted. */
typedef struct names {
    char **name; /* [n] */
    size_t n, cap;
} names;

static void free_names(names *f) {
    for (size_t i = 0; i < f->n; i++) free(f->name[i]);
    free(f->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool put_name(names *f, const char *name) {
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 32;
        char **more = realloc(f->name, cap * sizeof(char *));
        if (!more) return false;
        f->name = more;
        f->cap = cap;
    }
    f->name[f->n] = strdup(name);
    return f->name[f->n] && ++f->n;
}

/* A directory that cannot be read has no names; whoever opens a file of it says why. */
static fv_status read_names(const char *dir, names *f) {
    DIR *d = opendir(dir);
    bool good = true;
    for (struct dirent *e; d && good && (e = readdir(d));) good = put_name(f, e->d_name);
    if (d) closedir(d);
    if (!good) return FV_FAIL(FV_ENOMEM, "%s: out of memory for names of files", dir);
    if (f->n) qsort(f->name, f->n, sizeof(char *), by_name);
    return FV_OK;
}

/* Lists the models and mmproj files of a directory; *is_gguf: whether it is one of GGUF files. */
static fv_status list(const char *dir, candidates *models, candidates *mmproj, bool *is_gguf) {
    names f = {0};
    bool hub = false;
    int32_t part, n;
    fv_status st = read_names(dir, &f);
    for (size_t i = 0; i < f.n && st == FV_OK; i++) {
        const char *name = f.name[i];
        hub = hub || ends_with(name, hub_end);
        (void)parts_of(name, &part, &n);
        if (fv_gguf_is_file(name) && part == 1) add(is_mmproj(name) ? mmproj : models, name);
    }
    free_names(&f);
    *is_gguf = !hub && models->n + mmproj->n > 0;
    return st;
}

static fv_status choose_model(const char *dir, const candidates *models, fv_gguf_files *out) {
    char path[FV_CHECKPOINT_PATH];
    if (models->n == 0)
        return FV_FAIL(
            FV_ENOTFOUND,
            "%s has an mmproj file, with the tower alone, and no GGUF file of the model: "
            "it must stand beside it",
            dir);
    if (models->n > 1)
        return FV_FAIL(
            FV_EINVAL,
            "%s has %d GGUF models (%s): name one by its path, and the tower's file with "
            "--mmproj FILE if it is a vision model",
            dir, models->n, models->list);
    FV_TRY(fv_path_join(dir, models->name, path, sizeof path));
    return set_model(path, strlen(path), out);
}

static fv_status choose_mmproj(const char *dir, const candidates *mmproj, fv_gguf_files *out) {
    if (mmproj->n == 0) return FV_OK;
    if (mmproj->n == 1) return fv_path_join(dir, mmproj->name, out->mmproj, sizeof out->mmproj);
    return FV_FAIL(FV_EINVAL, "%s has %d mmproj files (%s): choose one with --mmproj FILE", dir,
                   mmproj->n, mmproj->list);
}

static fv_status find_in(const char *dir, bool paired, fv_gguf_files *out) {
    candidates models = {0}, mmproj = {0};
    bool is_gguf;
    FV_TRY(list(dir, &models, &mmproj, &is_gguf));
    if (!is_gguf) return FV_OK;
    FV_TRY(choose_model(dir, &models, out));
    return paired ? FV_OK : choose_mmproj(dir, &mmproj, out);
}

/* ---- checkpoints ------------------------------------------------------------------------- */

fv_status fv_gguf_files_find(const char *from, fv_gguf_files *out) {
    fv_gguf_files f = {0};
    size_t model = fv_gguf_model_bytes(from), bytes = strlen(from);
    if (model < bytes) FV_TRY(copy(from + model + 1, bytes - model - 1, f.mmproj));
    if (fv_gguf_is_file(from))
        FV_TRY(set_model(from, model, &f));
    else
        FV_TRY(find_in(from, false, &f));
    *out = f;
    return FV_OK;
}

fv_status fv_gguf_name_pair(const char *model, const char *mmproj, char out[FV_CHECKPOINT_PATH]) {
    fv_gguf_files f = {0};
    if (fv_gguf_is_file(model))
        FV_TRY(set_model(model, fv_gguf_model_bytes(model), &f)); /* of a pair, its model */
    else
        FV_TRY(find_in(model, true, &f));
    if (f.n == 0)
        return FV_FAIL(FV_EINVAL,
                       "--mmproj: '%s' is not a GGUF file, nor a directory of GGUF files", model);
    if (!fv_gguf_is_file(mmproj))
        return FV_FAIL(FV_EINVAL, "--mmproj: '%s' is not a GGUF file", mmproj);
    if (snprintf(out, FV_CHECKPOINT_PATH, "%s+%s", f.model, mmproj) < FV_CHECKPOINT_PATH)
        return FV_OK;
    return FV_FAIL(FV_EINVAL, "the paths of %s and %s are too long", model, mmproj);
}

const fv_gguf_tensor *fv_gguf_set_find(const fv_gguf_set *s, const char *name) {
    const fv_gguf_tensor *t = NULL;
    for (int32_t i = 0; i < s->n && !t; i++) t = fv_gguf_find(s->model[i], name);
    return t;
}
