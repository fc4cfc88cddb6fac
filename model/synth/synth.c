/* Writes a synthetic checkpoint directory; the parts are in synth_*.c. One thread. */
#include "model/synth/synth.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "model/synth/internal.h"

enum { PATH_CAP = 4096 };

fv_status fv_synth_write_json(const char *dir, const char *name, json_t *json) {
    /* 15 digits preserve every decimal number. */
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(json);
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory to write %s", name);
    char path[PATH_CAP];
    fv_status st = fv_path_join(dir, name, path, sizeof path);
    if (st == FV_OK) st = fv_file_write(path, text, strlen(text));
    free(text);
    return st;
}

/* Returns whether the file belongs to a checkpoint: files of an earlier one must not stay beside
 * the new ones. */
static bool is_checkpoint_file(const char *name) {
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "preprocessor_config.json",
                                        "video_preprocessor_config.json",
                                        "processor_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "chat_template.jinja",
                                        "model.safetensors.index.json",
                                        "chat_template.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    size_t n = strlen(name), tail = strlen(".safetensors");
    return n > tail && !strncmp(name, "model", 5) && !strcmp(name + n - tail, ".safetensors");
}

/* Makes the directory; with `force`, removes checkpoint files from an existing one. */
static fv_status prepare_dir(const char *dir, bool force) {
    FV_TRY(fv_dir_make(dir));
    DIR *d = opendir(dir);
    if (!d) return FV_FAIL(FV_EIO, "cannot read folder %s: %s", dir, strerror(errno));
    fv_status st = FV_OK;
    for (struct dirent *e = readdir(d); e && st == FV_OK; e = readdir(d)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char path[PATH_CAP];
        if (!force)
            st = FV_FAIL(FV_EINVAL, "folder %s is not empty; choose another, or --force", dir);
        else if (is_checkpoint_file(e->d_name) &&
                 (st = fv_path_join(dir, e->d_name, path, sizeof path)) == FV_OK &&
                 unlink(path) != 0)
            st = FV_FAIL(FV_EIO, "cannot remove %s: %s", path, strerror(errno));
    }
    closedir(d);
    return st;
}

/* Moves the tower's config from the model's config.json into a directory of its own. */
static fv_status write_tower_config(const fv_synth_options *opt, json_t *json,
                                    char tower[PATH_CAP]) {
    FV_TRY(fv_path_join(opt->dir, FV_SYNTH_TOWER, tower, PATH_CAP));
    FV_TRY(prepare_dir(tower, opt->force));
    json_t *config = json_incref(json_object_get(json, "vision_config"));
    json_object_del(json, "vision_config");
    json_object_set_new(json, "mm_vision_tower", json_string("openai/" FV_SYNTH_TOWER));
    return fv_synth_write_json(tower, "config.json", config);
}

static fv_status write_parts(const fv_synth_options *opt, json_t *json, const fv_model_config *cfg,
                             fv_synth_report *out) {
    char path[PATH_CAP], *tower = cfg->family->tower_apart ? path : NULL;
    FV_TRY(prepare_dir(opt->dir, opt->force));
    if (tower) FV_TRY(write_tower_config(opt, json, path));
    FV_TRY(fv_synth_write_json(opt->dir, "config.json", json_incref(json)));
    FV_TRY(fv_synth_write_side_configs(opt, tower, cfg));
    FV_TRY(fv_synth_write_tokenizer(opt->dir, cfg));
    return fv_synth_write_weights(opt, tower, cfg, out);
}

fv_status fv_synth_write(const fv_synth_options *opt, fv_synth_report *out) {
    json_t *json = NULL;
    fv_model_config cfg;
    FV_TRY(fv_synth_config_make(opt, &json, &cfg)); /* everything is checked before any write */
    fv_status st = write_parts(opt, json, &cfg, out);
    json_decref(json);
    return st;
}
