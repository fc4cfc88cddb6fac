/* Reads the configs of a checkpoint's directory. */
#include <stdlib.h>

#include "gguf/texts.h"
#include "model/checkpoint_internal.h"
#include "model/folder.h"
#include "text/json.h"

enum { CONFIG_MAX = 1 << 20 };

fv_status fv_checkpoint_read_config(fv_checkpoint *ck, const char *dir) {
    char path[FV_CHECKPOINT_PATH], *text;
    FV_TRY(fv_checkpoint_file(dir, "config.json", CONFIG_MAX, path, &text, &ck->config_bytes));
    if (!text) return fv_folder_no_config(dir);
    fv_status st = fv_stored_join_config(dir, &text, &ck->config_bytes);
    if (st == FV_OK) st = fv_arena_strndup(&ck->arena, text, ck->config_bytes, &ck->config_text);
    free(text);
    FV_TRY(st);
    const fv_tower_directory *t = &ck->tower_dir;
    FV_TRY(fv_tower_directory_find(dir, ck->config_text, ck->config_bytes, &ck->arena,
                                   &ck->tower_dir));
    FV_TRY(fv_config_parse(t->path ? t->config : ck->config_text,
                           t->path ? t->bytes : ck->config_bytes, path, &ck->cfg));
    fv_gguf_files gguf;
    FV_TRY(fv_gguf_files_find(dir, &gguf));
    if (gguf.n > 0) ck->cfg.text.experts_transposed = false; /* in no GGUF file */
    return FV_OK;
}

fv_status fv_checkpoint_read_generation(fv_checkpoint *ck, const char *dir) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t bytes;
    FV_TRY(fv_checkpoint_file(dir, "generation_config.json", CONFIG_MAX, path, &text, &bytes));
    fv_status st = fv_generation_parse(text, bytes, path, &ck->cfg, &ck->gen);
    free(text);
    return st;
}

/* Version 5 nests processors in processor_config.json; that one wins over the separate file of
 * version 4, as in transformers. */
static fv_status holds_processor(const char *text, size_t bytes, const char *path, const char *key,
                                 bool *holds) {
    *holds = false;
    if (!text) return FV_OK;
    json_t *root = NULL;
    FV_TRY(fv_json_object(text, bytes, path, &root));
    *holds = json_object_get(root, key) != NULL;
    json_decref(root);
    return FV_OK;
}

/* Reads the first of these files that exists: processor_config.json if it has `key`, `own`,
 * preprocessor_config.json. *text NULL: none exists. */
static fv_status read_processor(const char *dir, const char *key, const char *own,
                                char path[FV_CHECKPOINT_PATH], char **text, size_t *bytes) {
    const char *const files[] = {own, "preprocessor_config.json"};
    bool nested = false;
    FV_TRY(fv_checkpoint_file(dir, "processor_config.json", CONFIG_MAX, path, text, bytes));
    fv_status st = holds_processor(*text, *bytes, path, key, &nested);
    if (st == FV_OK && nested) return FV_OK;
    free(*text);
    *text = NULL;
    for (int i = 0; i < 2 && st == FV_OK && !*text; i++)
        if (files[i]) st = fv_checkpoint_file(dir, files[i], CONFIG_MAX, path, text, bytes);
    return st;
}

static fv_status open_video_config(fv_checkpoint *ck, const char *dir) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t bytes;
    FV_TRY(read_processor(dir, "video_processor", "video_preprocessor_config.json", path, &text,
                          &bytes));
    fv_status st = fv_video_config_parse(ck->cfg.family, text ? text : "{}", text ? bytes : 2, path,
                                         &ck->image, &ck->cfg.layout);
    free(text);
    return st;
}

fv_status fv_checkpoint_read_processors(fv_checkpoint *ck, const char *dir) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t bytes;
    FV_TRY(read_processor(dir, "image_processor", NULL, path, &text, &bytes));
    fv_status st = FV_OK;
    if (!text)
        st = FV_FAIL(FV_ENOTFOUND,
                     "%s has neither preprocessor_config.json nor an image processor in "
                     "processor_config.json, which say how images are resized and normalized",
                     dir);
    if (st == FV_OK) st = fv_image_config_parse(text, bytes, path, &ck->cfg.layout, &ck->image);
    free(text);
    if (st == FV_OK && ck->cfg.family->read_video) st = open_video_config(ck, dir);
    return st;
}
