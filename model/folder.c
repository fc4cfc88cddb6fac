/* Lists a checkpoint's directory and explains one that cannot be opened. Any thread. */
#include "model/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "model/hub.h"

enum { FILES_MAX = 16384, POINTER_BYTES_MAX = 1024 };

/* ---- listing ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const fv_folder_file *)a)->name, ((const fv_folder_file *)b)->name);
}

static bool ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static bool is_pointer(const char *path) {
    char *text;
    size_t n;
    if (fv_file_read(path, POINTER_BYTES_MAX, &text, &n) != FV_OK) return false;
    bool pointer = fv_file_is_pointer(text, n);
    free(text);
    return pointer;
}

static fv_status look_at(fv_folder *f, const char *path, fv_folder_file *file) {
    struct stat s;
    char target[4096];
    if (stat(path, &s) == 0) {
        file->folder = S_ISDIR(s.st_mode);
        file->bytes = S_ISREG(s.st_mode) ? (uint64_t)s.st_size : 0;
        file->pointer = S_ISREG(s.st_mode) && s.st_size <= POINTER_BYTES_MAX && is_pointer(path);
        return FV_OK;
    }
    ssize_t n = readlink(path, target, sizeof target);
    if (n < 0) return FV_OK; /* it may have been removed just now */
    char *copy;
    FV_TRY(fv_arena_strndup(&f->arena, target, (size_t)n, &copy));
    file->target = copy;
    return FV_OK;
}

static fv_status add(fv_folder *f, const char *name) {
    char path[4096], *copy;
    if (f->n == FILES_MAX)
        return FV_FAIL(FV_EUNSUPPORTED, "%s has more than %d files; a checkpoint has a few",
                       f->path, FILES_MAX);
    FV_TRY(fv_path_join(f->path, name, path, sizeof path));
    FV_TRY(fv_arena_strndup(&f->arena, name, strlen(name), &copy));
    fv_folder_file *file = &f->file[f->n++];
    *file = (fv_folder_file){.name = copy};
    return look_at(f, path, file);
}

/* Counts the files of unfinished downloads in a directory; none if it cannot be read. */
static fv_status count_parts(fv_folder *f, const char *inner) {
    char path[4096];
    FV_TRY(fv_path_join(f->path, inner, path, sizeof path));
    DIR *d = opendir(path);
    fv_status st = FV_OK;
    for (const struct dirent *e; d && st == FV_OK && (e = readdir(d));) {
        if (!ends(e->d_name, ".incomplete") || f->n_part++ > 0) continue;
        char whole[4096 + 300], *copy = NULL;
        snprintf(whole, sizeof whole, "%s/%s", inner[0] == '.' && !inner[1] ? f->path : path,
                 e->d_name);
        st = fv_arena_strndup(&f->arena, whole, strlen(whole), &copy);
        f->part = copy;
    }
    if (d) closedir(d);
    return st;
}

static fv_status list(fv_folder *f, DIR *d) {
    FV_TRY(FV_ARENA_NEW(&f->arena, FILES_MAX, f->file));
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) FV_TRY(add(f, e->d_name));
    qsort(f->file, (size_t)f->n, sizeof *f->file, by_name);
    FV_TRY(count_parts(f, "."));
    FV_TRY(count_parts(f, ".cache/huggingface/download")); /* hf download --local-dir */
    return strstr(f->path, "/snapshots/") ? count_parts(f, "../../blobs") : FV_OK;
}

fv_status fv_folder_open(const char *dir, fv_folder *out) {
    fv_folder f = {0};
    char *copy;
    DIR *d = opendir(dir);
    if (!d)
        return FV_FAIL(errno == ENOENT ? FV_ENOTFOUND : FV_EIO,
                       "'%s' cannot be read as a checkpoint directory: %s", dir, strerror(errno));
    fv_status st = fv_arena_strndup(&f.arena, dir, strlen(dir), &copy);
    if (st == FV_OK) {
        f.path = copy;
        st = list(&f, d);
    }
    closedir(d);
    if (st == FV_OK)
        *out = f;
    else
        fv_folder_close(&f);
    return st;
}

void fv_folder_close(fv_folder *f) {
    fv_arena_fini(&f->arena);
    *f = (fv_folder){0};
}

const fv_folder_file *fv_folder_find(const fv_folder *f, const char *name) {
    const fv_folder_file want = {.name = name};
    return f->n ? bsearch(&want, f->file, (size_t)f->n, sizeof want, by_name) : NULL;
}

const fv_folder_file *fv_folder_ending(const fv_folder *f, const char *end, int32_t index) {
    for (int32_t i = 0; i < f->n; i++)
        if (ends(f->file[i].name, end) && index-- == 0) return &f->file[i];
    return NULL;
}

/* ---- shards ------------------------------------------------------------------------------- */

bool fv_folder_is_weights(const char *name) {
    return ends(name, ".safetensors") && name[0] != '.' && strncmp(name, "consolidated", 12) != 0 &&
           strncmp(name, "adapter", 7) != 0;
}

/* Reads "-00002-of-00005.safetensors" at the end of a name. */
static bool read_count(const char *name, int *at, int *of, int *digits) {
    const char *mark = strstr(name, "-of-");
    int read = 0;
    if (!mark || sscanf(mark, "-of-%d.safetensors%n", of, &read) != 1 || mark[read]) return false;
    const char *start = mark;
    while (start > name && start[-1] >= '0' && start[-1] <= '9') start--;
    *digits = (int)(mark - start);
    return *digits > 0 && *digits < 10 && sscanf(start, "%d", at) == 1 && *of > 0 &&
           *of <= FILES_MAX;
}

fv_status fv_folder_check_shards(const fv_folder *f) {
    for (int32_t i = 0; i < f->n; i++) {
        const char *name = f->file[i].name;
        int at, of, digits;
        if (!fv_folder_is_weights(name) || !read_count(name, &at, &of, &digits)) continue;
        const char *mark = strstr(name, "-of-");
        for (int k = 1; k <= of; k++) {
            char other[300], get[FV_HUB_PATH_MAX + 64];
            snprintf(other, sizeof other, "%.*s%0*d%s", (int)(mark - name) - digits, name, digits,
                     k, mark);
            const fv_folder_file *there = fv_folder_find(f, other);
            if (there && !there->target) continue;
            fv_folder_download(f->path, get, sizeof get);
            return FV_FAIL(FV_ENOTFOUND,
                           "%s/%s is missing: %s counts %d shards: %s fetches what is missing",
                           f->path, other, name, of, get);
        }
    }
    return FV_OK;
}

/* ---- explanations -------------------------------------------------------------------------- */

void fv_folder_download(const char *path, char *out, size_t cap) {
    char name[FV_HUB_PATH_MAX];
    const char *cache = strstr(path, "models--");
    fv_hub_name(path, name, sizeof name);
    if (cache && strstr(cache, "/snapshots/"))
        snprintf(out, cap, "`hf download %.200s`", name);
    else
        snprintf(out, cap, "`hf download ORG/NAME --local-dir %s`", path);
}

/* Faults that a directory has whatever is searched in it. */
static fv_status explain_any(const fv_folder *f, const char *name, const char *get) {
    const fv_folder_file *link = fv_folder_find(f, name);
    if (link && link->target)
        return FV_FAIL(FV_ENOTFOUND, "%s/%s is a link to %s, which is not there: %s fetches it",
                       f->path, name, link->target, get);
    if (f->n == 0)
        return FV_FAIL(FV_ENOTFOUND, "%s is empty: %s fetches a model into it", f->path, get);
    if (f->n_part > 0)
        return FV_FAIL(FV_ENOTFOUND,
                       "%s has no %s, and its download was not finished (%s): %s continues it",
                       f->path, name, f->part, get);
    return FV_OK;
}

static const char *inner_checkpoint(const fv_folder *f) {
    for (int32_t i = 0; i < f->n; i++) {
        char path[4096], inner[300];
        snprintf(inner, sizeof inner, "%s/config.json", f->file[i].name);
        if (f->file[i].folder && fv_path_join(f->path, inner, path, sizeof path) == FV_OK &&
            fv_file_exists(path))
            return f->file[i].name;
    }
    return NULL;
}

static fv_status explain_config(const fv_folder *f) {
    char get[FV_HUB_PATH_MAX + 64];
    const fv_folder_file *gguf = fv_folder_ending(f, ".gguf", 0);
    const char *inner = inner_checkpoint(f);
    fv_folder_download(f->path, get, sizeof get);
    if (fv_folder_find(f, "snapshots") && fv_folder_find(f, "refs"))
        return FV_FAIL(FV_ENOTFOUND,
                       "%s is a model's folder in the Hugging Face cache: name the model as "
                       "ORG/NAME, or the folder in %s/snapshots",
                       f->path, f->path);
    FV_TRY(explain_any(f, "config.json", get));
    if (fv_folder_find(f, "adapter_config.json"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s/adapter_config.json without config.json: it is an adapter, not a model: "
                       "name the checkpoint of its base model "
                       "(base_model_name_or_path in adapter_config.json), and this folder with "
                       "--adapter NAME=DIR",
                       f->path);
    if (gguf)
        return FV_FAIL(FV_ENOTFOUND,
                       "%s has no config.json, but GGUF files: name one by its path, such as %s/%s",
                       f->path, f->path, gguf->name);
    if (fv_folder_find(f, "model_index.json"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s/model_index.json is of a diffusers pipeline, which makes images; a "
                       "vision-language model has config.json",
                       f->path);
    if (inner)
        return FV_FAIL(FV_ENOTFOUND, "%s has no config.json: the checkpoint may be %s/%s", f->path,
                       f->path, inner);
    return FV_FAIL(FV_ENOTFOUND,
                   "%s/config.json does not exist; is '%s' a checkpoint directory? %s fetches a "
                   "model with it",
                   f->path, f->path, get);
}

fv_status fv_folder_no_config(const char *dir) {
    fv_folder f;
    FV_TRY(fv_folder_open(dir, &f));
    fv_status st = explain_config(&f);
    fv_folder_close(&f);
    return st;
}

/* The class that converts a checkpoint, by the text of its config.json. */
static const char *auto_class(const char *dir) {
    char path[4096], *text;
    size_t n;
    if (fv_path_join(dir, "config.json", path, sizeof path) != FV_OK ||
        fv_file_read(path, 1 << 20, &text, &n) != FV_OK)
        return "AutoModelForImageTextToText";
    bool causal = strstr(text, "ForCausalLM") && !strstr(text, "vision_config");
    free(text);
    return causal ? "AutoModelForCausalLM" : "AutoModelForImageTextToText";
}

static fv_status fail_other_format(const fv_folder *f, const char *name, const char *from) {
    const char *class = auto_class(f->path);
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s/%s: weights in this format are not read; convert them to safetensors, where "
                   "the file is trusted, with python3 -c \"from transformers import %s as M; "
                   "M.from_pretrained('%s', dtype='auto'%s).save_pretrained('%s')\"",
                   f->path, name, class, f->path, from, f->path);
}

static fv_status explain_weights(const fv_folder *f) {
    static const struct {
        const char *name, *from;
    } others[] = {{"pytorch_model.bin", ""},
                  {"pytorch_model.bin.index.json", ""},
                  {"tf_model.h5", ", from_tf=True"},
                  {"flax_model.msgpack", ", from_flax=True"}};
    char get[FV_HUB_PATH_MAX + 64];
    const fv_folder_file *gguf = fv_folder_ending(f, ".gguf", 0);
    fv_folder_download(f->path, get, sizeof get);
    FV_TRY(explain_any(f, "model.safetensors", get));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (fv_folder_find(f, others[i].name))
            return fail_other_format(f, others[i].name, others[i].from);
    if (fv_folder_find(f, "adapter_model.safetensors"))
        return FV_FAIL(FV_ENOTFOUND,
                       "%s has an adapter (adapter_model.safetensors) and no weights of the model: "
                       "%s fetches them, with the name of the adapter's base model",
                       f->path, get);
    if (gguf)
        return FV_FAIL(FV_ENOTFOUND,
                       "%s has no safetensors, but GGUF files: name one by its path, such as %s/%s",
                       f->path, f->path, gguf->name);
    return FV_FAIL(FV_ENOTFOUND,
                   "%s has neither model.safetensors nor model.safetensors.index.json nor other "
                   "safetensors, nor a GGUF file: %s fetches the weights",
                   f->path, get);
}

fv_status fv_folder_no_weights(const char *dir) {
    fv_folder f;
    FV_TRY(fv_folder_open(dir, &f));
    fv_status st = explain_weights(&f);
    fv_folder_close(&f);
    return st;
}
