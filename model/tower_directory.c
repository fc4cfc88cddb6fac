/* Finds the directory of a tower and reads its config.json. */
#include "model/tower_directory.h"

#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/texts.h"
#include "model/families/families.h"
#include "text/json.h"

enum { CONFIG_MAX = 1 << 20 };

/* The tower's name in config.json; NULL: the tower is in the checkpoint, or there is none. */
static const char *named(const json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!type) type = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    const fv_family *family = type ? fv_family_find(fv_family_known_type(root, type)) : NULL;
    if (!family || !family->tower_apart || json_object_get(root, "vision_config")) return NULL;
    return json_string_value(json_object_get(root, "mm_vision_tower"));
}

/* Reads dir/name/config.json; *text stays NULL if it does not exist. */
static fv_status try_directory(const char *dir, const char *name, char path[FV_CHECKPOINT_PATH],
                               char **text, size_t *bytes) {
    char config[FV_CHECKPOINT_PATH];
    FV_TRY(fv_path_join(dir, name, path, FV_CHECKPOINT_PATH));
    return fv_checkpoint_file(path, "config.json", CONFIG_MAX, config, text, bytes);
}

static fv_status find(const char *dir, const char *tower, char path[FV_CHECKPOINT_PATH],
                      char **text, size_t *bytes) {
    char beside[FV_CHECKPOINT_PATH];
    const char *slash = strrchr(tower, '/'), *name = slash ? slash + 1 : tower;
    if (!*name || *name == '.')
        return FV_FAIL(FV_EDATA,
                       "%s/config.json: key 'mm_vision_tower' is '%s'; it must end with the name "
                       "of a directory",
                       dir, tower);
    FV_TRY(fv_path_join(dir, "..", beside, sizeof beside));
    FV_TRY(try_directory(dir, name, path, text, bytes));
    if (!*text) FV_TRY(try_directory(beside, name, path, text, bytes));
    if (*text) return FV_OK;
    return FV_FAIL(FV_ENOTFOUND,
                   "%s/config.json: key 'mm_vision_tower' is '%s', a checkpoint of its own, and "
                   "there is neither %s/%s nor %s/%s: make one of them, with that checkpoint's "
                   "config.json, preprocessor_config.json and, unless these weights hold the "
                   "tower, model.safetensors",
                   dir, tower, dir, name, beside, name);
}

/* Joins the checkpoint's config.json and the tower's; in a whole CLIP model's that is a member. */
static fv_status join(json_t *root, const char *path, const char *text, size_t bytes,
                      fv_arena *arena, fv_tower_directory *out) {
    char config[FV_CHECKPOINT_PATH], *joined = NULL, *kept;
    json_t *tower;
    FV_TRY(fv_path_join(path, "config.json", config, sizeof config));
    FV_TRY(fv_json_object(text, bytes, config, &tower));
    json_t *part = json_object_get(tower, "vision_config");
    json_object_set(root, "vision_config", part ? part : tower);
    json_decref(tower);
    joined = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!joined) return FV_FAIL(FV_ENOMEM, "no memory for %s", config);
    *out = (fv_tower_directory){.bytes = strlen(joined)};
    fv_status st = fv_arena_strndup(arena, joined, out->bytes, &kept);
    free(joined);
    FV_TRY(st);
    out->config = kept;
    FV_TRY(fv_arena_strndup(arena, path, strlen(path), &kept));
    out->path = kept;
    return FV_OK;
}

fv_status fv_tower_directory_find(const char *dir, const char *config, size_t n, fv_arena *arena,
                                  fv_tower_directory *out) {
    char path[FV_CHECKPOINT_PATH], *text = NULL;
    size_t bytes = 0;
    json_t *root;
    *out = (fv_tower_directory){0};
    FV_TRY(fv_path_join(dir, "config.json", path, sizeof path));
    FV_TRY(fv_json_object(config, n, path, &root));
    const char *tower = named(root);
    fv_status st = tower ? find(dir, tower, path, &text, &bytes) : FV_OK;
    if (st == FV_OK && text) st = join(root, path, text, bytes, arena, out);
    free(text);
    json_decref(root);
    return st;
}
