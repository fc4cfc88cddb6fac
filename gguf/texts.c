/* Reads the files of a checkpoint by name. Any thread. */
#include "gguf/texts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "gguf/internal.h"

fv_status fv_gguf_make_text(const fv_gguf *g, const char *name, char **text) {
    static const struct {
        const char *name;
        fv_status (*make)(const fv_gguf *g, fv_gguf_json *m);
    } all[] = {{"config.json", fv_gguf_config},
               {"tokenizer.json", fv_gguf_tokenizer},
               {"tokenizer_config.json", fv_gguf_tokenizer_config}};
    *text = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name) != 0) continue;
        fv_gguf_json m = {.root = json_object()};
        fv_status st = all[i].make(g, &m);
        if (st == FV_OK && (m.lost || !(*text = json_dumps(m.root, JSON_COMPACT))))
            st = FV_FAIL(FV_ENOMEM, "%s: out of memory for its metadata", fv_gguf_where(g));
        json_decref(m.root);
        return st;
    }
    return FV_OK;
}

static fv_status text_of_file(const char *from, const char *name, char **text, size_t *bytes) {
    fv_file_map map;
    fv_gguf *g = NULL;
    FV_TRY(fv_file_map_open(from, &map));
    fv_status st = fv_file_is_pointer(map.data, map.bytes)
                       ? fv_file_pointer_error(from)
                       : fv_gguf_parse(map.data, map.bytes, from, &g);
    if (st == FV_OK) st = fv_gguf_make_text(g, name, text);
    if (st == FV_OK) *bytes = *text ? strlen(*text) : 0;
    fv_gguf_free(g);
    fv_file_map_close(&map);
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

fv_status fv_checkpoint_file(const char *from, const char *name, size_t most,
                             char path[FV_CHECKPOINT_PATH], char **text, size_t *bytes) {
    *text = NULL;
    *bytes = 0;
    if (fv_gguf_is_file(from)) {
        snprintf(path, FV_CHECKPOINT_PATH, "%s, its metadata as %s", from, name);
        return text_of_file(from, name, text, bytes);
    }
    FV_TRY(fv_path_join(from, name, path, FV_CHECKPOINT_PATH));
    if (!fv_file_exists(path)) return check_link(path);
    FV_TRY(fv_file_read(path, most, text, bytes));
    if (!fv_file_is_pointer(*text, *bytes)) return FV_OK;
    free(*text);
    *text = NULL;
    *bytes = 0;
    return fv_file_pointer_error(path);
}
