/* Reads the files of a checkpoint by name. Any thread. */
#include "gguf/texts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "gguf/internal.h"
#include "gguf/params.h"

fv_status fv_gguf_make_text(const fv_gguf_set *s, const char *name, char **text) {
    static const struct {
        const char *name;
        fv_status (*make)(const fv_gguf_set *s, fv_gguf_json *m);
    } all[] = {{"config.json", fv_gguf_config},
               {"tokenizer.json", fv_gguf_tokenizer},
               {"tokenizer_config.json", fv_gguf_tokenizer_config},
               {"preprocessor_config.json", fv_gguf_processor}};
    *text = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name) != 0) continue;
        fv_gguf_json m = {.root = json_object()};
        fv_status st = all[i].make(s, &m);
        bool made = json_object_size(m.root) > 0; /* no tower: no processor's file */
        if (st == FV_OK && (m.lost || (made && !(*text = json_dumps(m.root, JSON_COMPACT)))))
            st = FV_FAIL(FV_ENOMEM, "%s: out of memory for its metadata",
                         fv_gguf_where(s->model[0]));
        json_decref(m.root);
        return st;
    }
    return FV_OK;
}

typedef struct opened {
    fv_file_map *map; /* [n] */
    fv_gguf **g;
    int32_t n, mapped;
} opened;

static fv_status open_one(opened *o, const char *path) {
    fv_file_map *map = &o->map[o->n];
    FV_TRY(fv_file_map_open(path, map));
    o->mapped = o->n + 1;
    if (fv_file_is_pointer(map->data, map->bytes)) return fv_file_pointer_error(path);
    FV_TRY(fv_gguf_parse(map->data, map->bytes, path, &o->g[o->n]));
    o->n++;
    return FV_OK;
}

static fv_status open_all(const fv_gguf_files *f, opened *o) {
    char path[FV_CHECKPOINT_PATH];
    for (int32_t i = 0; i < f->n; i++) {
        FV_TRY(fv_gguf_files_part(f, i, path));
        FV_TRY(open_one(o, path));
    }
    return *f->mmproj ? open_one(o, f->mmproj) : FV_OK;
}

static fv_status text_of_files(const fv_gguf_files *f, const char *name, char **text,
                               size_t *bytes) {
    size_t most = (size_t)f->n + 1;
    opened o = {.map = calloc(most, sizeof *o.map), .g = calloc(most, sizeof(fv_gguf *))};
    fv_status st = o.map && o.g ? open_all(f, &o) : FV_FAIL(FV_ENOMEM, "%s: no memory", f->model);
    const fv_gguf_set set = {(const fv_gguf *const *)o.g, f->n,
                             o.g && *f->mmproj ? o.g[f->n] : NULL};
    if (st == FV_OK) st = fv_gguf_make_text(&set, name, text);
    if (st == FV_OK) *bytes = *text ? strlen(*text) : 0;
    for (int32_t i = 0; i < o.n; i++) fv_gguf_free(o.g[i]);
    for (int32_t i = 0; i < o.mapped; i++) fv_file_map_close(&o.map[i]);
    free(o.map);
    free(o.g);
    return st;
}

/* A link that leads nowhere is a fault: a file that may be absent was meant to be there. */
static fv_status check_link(const char *path) {
    char target[FV_CHECKPOINT_PATH];
    ssize_t n = readlink(path, target, sizeof target);
    if (n < 0) return FV_OK;
    return FV_FAIL(FV_ENOTFOUND,
                   "%s is a link to %.*s, which is not there: download the file again, or copy "
                   "what the link leads to (cp -L)",
                   path, (int)n, target);
}

/* A file that a directory in Mistral's own layout has under another name is made. */
static fv_status make_absent(const char *dir, const char *name, char path[FV_CHECKPOINT_PATH],
                             char **text, size_t *bytes) {
    FV_TRY(check_link(path));
    FV_TRY(fv_params_make_text(dir, name, text));
    if (!*text) return FV_OK;
    *bytes = strlen(*text);
    return fv_path_join(dir, strstr(name, ".jinja") ? "tekken.json" : "params.json", path,
                        FV_CHECKPOINT_PATH);
}

fv_status fv_checkpoint_file(const char *from, const char *name, size_t most,
                             char path[FV_CHECKPOINT_PATH], char **text, size_t *bytes) {
    fv_gguf_files files;
    *text = NULL;
    *bytes = 0;
    FV_TRY(fv_gguf_files_find(from, &files));
    if (files.n > 0) {
        if (snprintf(path, FV_CHECKPOINT_PATH, "%.3900s, its metadata as %s", files.model, name) <
            0)
            path[0] = '\0';
        return text_of_files(&files, name, text, bytes);
    }
    FV_TRY(fv_path_join(from, name, path, FV_CHECKPOINT_PATH));
    if (!fv_file_exists(path)) return make_absent(from, name, path, text, bytes);
    FV_TRY(fv_file_read(path, most, text, bytes));
    if (!fv_file_is_pointer(*text, *bytes)) return FV_OK;
    free(*text);
    *text = NULL;
    *bytes = 0;
    return fv_file_pointer_error(path);
}
