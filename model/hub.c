/* Looks into the Hugging Face cache by its documented layout. Its Python library is not needed. */
#include "model/hub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/files.h"
#include "model/folder.h"
#include "text/json.h"

enum { COMMIT_MAX = 128, INDEX_MAX = 64 << 20, MISSING_MAX = 600 };

static const char index_name[] = "model.safetensors.index.json";

static fv_status join(const char *dir, const char *name, char out[FV_HUB_PATH_MAX]) {
    return fv_path_join(dir, name, out, FV_HUB_PATH_MAX);
}

static fv_status copy(const char *path, char out[FV_HUB_PATH_MAX]) {
    int n = snprintf(out, FV_HUB_PATH_MAX, "%s", path);
    return n < FV_HUB_PATH_MAX ? FV_OK
                               : FV_FAIL(FV_EINVAL, "the path '%.100s...' is too long", path);
}

static bool is_in(const char *dir, const char *name) {
    char path[FV_HUB_PATH_MAX];
    return join(dir, name, path) == FV_OK && fv_file_exists(path);
}

/* ---- the cache --------------------------------------------------------------------------- */

static bool is_set(const char *text) { return text && *text; }

static fv_status expand(const fv_hub_places *p, const char *path, char out[FV_HUB_PATH_MAX]) {
    bool at_home = path[0] == '~' && (path[1] == '/' || path[1] == '\0');
    if (!at_home) return copy(path, out);
    if (!is_set(p->home))
        return FV_FAIL(FV_EINVAL, "the Hugging Face cache is not known: set HF_HOME, or HOME");
    return path[1] ? join(p->home, path + 2, out) : copy(p->home, out);
}

static fv_status find_cache(const fv_hub_places *p, char out[FV_HUB_PATH_MAX]) {
    char base[FV_HUB_PATH_MAX];
    const char *rest = "hub";
    if (is_set(p->hub_cache)) return expand(p, p->hub_cache, out);
    if (is_set(p->hf_home)) {
        FV_TRY(expand(p, p->hf_home, base));
    } else if (is_set(p->cache_home)) {
        FV_TRY(expand(p, p->cache_home, base));
        rest = "huggingface/hub";
    } else {
        FV_TRY(expand(p, "~", base));
        rest = ".cache/huggingface/hub";
    }
    return join(base, rest, out);
}

/* A part of a name on the Hub: letters, digits, '-', '_' and '.', with a letter, digit or '_' first. */
static bool is_part(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_' &&
            (i == 0 || (text[i] != '-' && text[i] != '.')))
            return false;
    return n > 0 && n <= FV_HUB_NAME_MAX;
}

static bool is_name(const char *model) {
    const char *slash = strchr(model, '/');
    if (strstr(model, "--") || strstr(model, "..")) return false;
    return slash ? is_part(model, (size_t)(slash - model)) && is_part(slash + 1, strlen(slash + 1))
                 : is_part(model, strlen(model));
}

/* The model's folder: "models--ORG--NAME". */
static fv_status folder_of(const char *hub, const char *model, char out[FV_HUB_PATH_MAX]) {
    char name[2 * FV_HUB_NAME_MAX + 16];
    const char *slash = strchr(model, '/');
    if (slash)
        snprintf(name, sizeof name, "models--%.*s--%s", (int)(slash - model), model, slash + 1);
    else
        snprintf(name, sizeof name, "models--%s", model);
    return join(hub, name, out);
}

static fv_status not_downloaded(const char *model, const char *hub) {
    return FV_FAIL(
        FV_ENOTFOUND,
        "%s is neither a directory nor in the Hugging Face cache at %s: `hf download %s` "
        "fetches it; if the cache is elsewhere, set HF_HOME",
        model, hub, model);
}

/* The commit that refs/main names, as a folder. */
static fv_status find_snapshot(const char *model, const char *hub, char out[FV_HUB_PATH_MAX]) {
    char folder[FV_HUB_PATH_MAX], path[FV_HUB_PATH_MAX], name[COMMIT_MAX + 16], *commit;
    size_t n;
    FV_TRY(folder_of(hub, model, folder));
    FV_TRY(join(folder, "refs/main", path));
    if (fv_file_read(path, COMMIT_MAX, &commit, &n) != FV_OK)
        return fv_file_exists(path) || fv_file_exists(folder)
                   ? FV_FAIL(FV_ENOTFOUND,
                             "%s has no refs/main that can be read: `hf download %s` fetches the "
                             "model's main branch",
                             folder, model)
                   : not_downloaded(model, hub);
    commit[strcspn(commit, " \r\n")] = '\0';
    bool named = is_part(commit, strlen(commit));
    snprintf(name, sizeof name, "snapshots/%s", commit);
    free(commit);
    if (!named) return FV_FAIL(FV_EDATA, "%s does not name a commit", path);
    FV_TRY(join(folder, name, out));
    if (fv_file_exists(out)) return FV_OK;
    return FV_FAIL(FV_ENOTFOUND,
                   "%s, which refs/main names, is not there: `hf download %s` fetches it", out,
                   model);
}

/* ---- what a snapshot lacks ----------------------------------------------------------------- */

/* Adds a name to "a, b". Many shards may be missing; as many as fit are named. */
static void add_missing(char missing[MISSING_MAX], const char *name) {
    size_t n = strlen(missing);
    if (strstr(missing, name)) return;
    if (n + strlen(name) + 8 < MISSING_MAX)
        snprintf(missing + n, MISSING_MAX - n, "%s%s", n ? ", " : "", name);
    else if (n + 6 < MISSING_MAX && !strstr(missing, ", ..."))
        strcpy(missing + n, ", ...");
}

static fv_status add_missing_shards(const char *dir, char missing[MISSING_MAX]) {
    char path[FV_HUB_PATH_MAX], *text;
    size_t n;
    json_t *index;
    const char *tensor;
    json_t *file;
    FV_TRY(join(dir, index_name, path));
    FV_TRY(fv_file_read(path, INDEX_MAX, &text, &n));
    fv_status st = fv_json_object(text, n, path, &index);
    free(text);
    FV_TRY(st);
    json_object_foreach(json_object_get(index, "weight_map"), tensor, file) {
        const char *name = json_string_value(file);
        if (name && !is_in(dir, name)) add_missing(missing, name);
    }
    json_decref(index);
    return FV_OK;
}

/* Replaces a snapshot of one GGUF file by that file; one of a model and its tower stays a directory. */
static fv_status take_gguf(const char *model, char dir[FV_HUB_PATH_MAX], bool *taken) {
    fv_gguf_files f;
    if (fv_gguf_files_find(dir, &f) != FV_OK) return fv_fail_prefix(FV_EINVAL, "%s", model);
    *taken = f.n > 0;
    return f.n == 1 && !*f.mmproj ? copy(f.model, dir) : FV_OK;
}

static bool has_tokenizer(const char *dir) {
    return is_in(dir, "tokenizer.json") || is_in(dir, "tokenizer.model") ||
           is_in(dir, "tekken.json") || (is_in(dir, "vocab.json") && is_in(dir, "merges.txt"));
}

/* Whether there are weights, or files that opening the folder explains (model/folder.h). */
static bool has_weights(const char *dir) {
    fv_folder f;
    if (fv_folder_open(dir, &f) != FV_OK) return false;
    bool found = fv_folder_ending(&f, ".bin", 0) != NULL;
    for (int32_t i = 0; i < f.n && !found; i++)
        found = !f.file[i].target && (fv_folder_is_weights(f.file[i].name) ||
                                      !strncmp(f.file[i].name, "consolidated", 12));
    fv_folder_close(&f);
    return found;
}

/* Interrupted downloads leave snapshots without some of their files. */
static fv_status check_snapshot(const char *model, char dir[FV_HUB_PATH_MAX]) {
    char missing[MISSING_MAX] = "";
    bool taken = false;
    FV_TRY(take_gguf(model, dir, &taken));
    if (taken) return FV_OK;
    if (!is_in(dir, "config.json") && !is_in(dir, "params.json"))
        add_missing(missing, "config.json");
    if (!has_tokenizer(dir)) add_missing(missing, "tokenizer.json");
    if (is_in(dir, index_name))
        FV_TRY(add_missing_shards(dir, missing));
    else if (!has_weights(dir))
        add_missing(missing, "model.safetensors");
    if (!*missing) return FV_OK;
    return FV_FAIL(FV_ENOTFOUND, "%s lacks %s in %s: `hf download %s` fetches what is missing",
                   model, missing, dir, model);
}

fv_status fv_hub_locate(const fv_hub_places *p, const char *model, char out[FV_HUB_PATH_MAX]) {
    char hub[FV_HUB_PATH_MAX];
    if (fv_file_exists(model) || fv_gguf_model_bytes(model) < strlen(model))
        return copy(model, out);
    if (!is_name(model))
        return FV_FAIL(
            FV_ENOTFOUND,
            "there is no directory '%s': name a checkpoint's directory, a GGUF file, or a "
            "model as on the Hugging Face Hub, ORG/NAME",
            model);
    FV_TRY(find_cache(p, hub));
    return find_snapshot(model, hub, out);
}

fv_status fv_hub_find(const fv_hub_places *p, const char *model, char out[FV_HUB_PATH_MAX]) {
    FV_TRY(fv_hub_locate(p, model, out));
    return fv_file_exists(model) ? FV_OK : check_snapshot(model, out);
}

/* ---- names ------------------------------------------------------------------------------- */

/* Finds ORG/NAME in ".../models--ORG--NAME/snapshots/COMMIT[/FILE]". */
static bool name_in_cache(const char *path, char *out, size_t cap) {
    const char *snapshots = strstr(path, "/snapshots/"), *start = snapshots;
    if (!snapshots) return false;
    while (start > path && start[-1] != '/') start--;
    if (strncmp(start, "models--", 8) != 0) return false;
    start += 8;
    const char *dashes = strstr(start, "--");
    if (dashes && dashes < snapshots)
        snprintf(out, cap, "%.*s/%.*s", (int)(dashes - start), start, (int)(snapshots - dashes - 2),
                 dashes + 2);
    else
        snprintf(out, cap, "%.*s", (int)(snapshots - start), start);
    return true;
}

static void last_part(const char *path, char *out, size_t cap) {
    size_t end = strlen(path), start;
    while (end > 1 && path[end - 1] == '/') end--;
    for (start = end; start > 0 && path[start - 1] != '/'; start--) {
    }
    snprintf(out, cap, "%.*s", (int)(end - start), path + start);
}

/* A checkpoint of two files has the model's name (gguf/files.h). */
void fv_hub_name(const char *from, char *out, size_t cap) {
    char path[FV_HUB_PATH_MAX];
    snprintf(path, sizeof path, "%.*s", (int)fv_gguf_model_bytes(from), from);
    if (!name_in_cache(path, out, cap)) last_part(path, out, cap);
    if (strcmp(out, ".") != 0 && strcmp(out, "..") != 0) return;
    char *whole = realpath(path, NULL); /* "." says nothing */
    if (whole && !name_in_cache(whole, out, cap)) last_part(whole, out, cap);
    free(whole);
}
