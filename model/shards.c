/* Opens the weight files of a directory and indexes their tensors by canonical name.
 *
 * The table is made from the files' contents: a tensor that the index file's weight_map omits is
 * found, and one that it invents is reported. If several files have a tensor, weight_map names the
 * one to use: a partly retrained checkpoint is a file of the new tensors beside links to the
 * original files. Opened once, then read by any thread. */
#include "model/shards.h"

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/file.h"
#include "common/limits.h"
#include "gguf/params.h"
#include "gguf/texts.h"
#include "model/folder.h"
#include "text/json.h"

enum { PATH_CAP = 4096, INDEX_MAX = 64 << 20, FILES_MAX = 4096 };

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";
static const char own_name[] = "consolidated.safetensors";
static const char own_index_name[] = "consolidated.safetensors.index.json";

typedef struct shard {
    const char *name; /* in the arena */
    fv_file_map map;
    fv_safetensors *st;                /* NULL for a GGUF file, */
    fv_gguf *gguf;                     /* NULL for safetensors */
    const fv_safetensors_entry *entry; /* [n] */
    const fv_gguf_form *form;          /* [n] of a GGUF file */
    int32_t n;
} shard;

struct fv_shards {
    fv_arena arena;
    shard *file;             /* [n_file] */
    fv_shard_tensor *tensor; /* [n_tensor], by canonical name */
    json_t *weight_map;      /* of the index; NULL: no index */
    int32_t n_file, n_tensor;
    bool mistral; /* tensors have the names of Mistral's own layout */
};

static fv_status map_shard(fv_shards *sh, const char *path, const char *name, shard **out) {
    shard *s = &sh->file[sh->n_file];
    char *copy = NULL;
    FV_TRY(fv_arena_strndup(&sh->arena, name, strlen(name), &copy));
    s->name = copy;
    FV_TRY(fv_file_map_open(path, &s->map));
    sh->n_file++; /* close() unmaps it from here on */
    *out = s;
    return fv_file_is_pointer(s->map.data, s->map.bytes) ? fv_file_pointer_error(path) : FV_OK;
}

static fv_status open_shard(fv_shards *sh, const char *dir, const char *name) {
    char path[PATH_CAP];
    shard *s;
    FV_TRY(fv_path_join(dir, name, path, sizeof path));
    FV_TRY(map_shard(sh, path, name, &s));
    FV_TRY(fv_safetensors_parse(s->map.data, s->map.bytes, path, &s->st));
    s->entry = fv_safetensors_at(s->st, 0);
    s->n = fv_safetensors_count(s->st);
    return FV_OK;
}

static fv_status open_gguf(fv_shards *sh, const char *path) {
    shard *s;
    FV_TRY(map_shard(sh, path, path, &s));
    return fv_gguf_parse(s->map.data, s->map.bytes, path, &s->gguf);
}

static fv_status list_gguf(fv_shards *sh, bool mmproj) {
    const fv_gguf **all;
    FV_TRY(FV_ARENA_NEW(&sh->arena, sh->n_file, all));
    for (int32_t i = 0; i < sh->n_file; i++) all[i] = sh->file[i].gguf;
    const int32_t n = sh->n_file - mmproj;
    const fv_gguf_set set = {all, n, mmproj ? all[n] : NULL};
    for (int32_t i = 0; i < sh->n_file; i++) {
        shard *s = &sh->file[i];
        fv_safetensors_entry *entry;
        fv_gguf_form *form;
        FV_TRY(fv_gguf_tensors_list(&set, s->gguf, &sh->arena, &entry, &form, &s->n));
        s->entry = entry;
        s->form = form;
    }
    return FV_OK;
}

static fv_status fail_absent(const char *dir, const char *name, const char *index_path) {
    char get[PATH_CAP + 64];
    fv_folder_download(dir, get, sizeof get);
    return FV_FAIL(FV_ENOTFOUND, "%s names shard '%s', which is missing: %s fetches it", index_path,
                   name, get);
}

static fv_status open_gguf_files(fv_shards *sh, const fv_gguf_files *f) {
    char path[FV_CHECKPOINT_PATH];
    FV_TRY(FV_ARENA_NEW(&sh->arena, f->n + 1, sh->file));
    for (int32_t i = 0; i < f->n; i++) {
        FV_TRY(fv_gguf_files_part(f, i, path));
        FV_TRY(open_gguf(sh, path));
    }
    if (*f->mmproj) FV_TRY(open_gguf(sh, f->mmproj));
    return list_gguf(sh, *f->mmproj != '\0');
}

/* The shard of this name, opened when it is asked for first; `opened` has the places of all. */
static fv_status need_file(fv_shards *sh, json_t *opened, const char *dir, const char *name,
                           const char *index_path, const shard **out) {
    const json_t *known = json_object_get(opened, name);
    int32_t at = known ? (int32_t)json_integer_value(known) : sh->n_file;
    if (at == FILES_MAX)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: more than %d shards", index_path, FILES_MAX);
    if (!known) {
        fv_status st = open_shard(sh, dir, name);
        if (st == FV_ENOTFOUND) return fail_absent(dir, name, index_path);
        FV_TRY(st);
        if (json_object_set_new_nocheck(opened, name, json_integer(at)) != 0)
            return FV_FAIL(FV_ENOMEM, "%s: no memory", index_path);
    }
    *out = &sh->file[at];
    return FV_OK;
}

static fv_status open_each(fv_shards *sh, json_t *opened, const char *dir, json_t *map,
                           const char *index_path) {
    const char *key;
    json_t *v;
    json_object_foreach(map, key, v) {
        const char *name = json_string_value(v);
        const shard *s = NULL;
        if (!name || !*name || strchr(name, '/'))
            return FV_FAIL(FV_EDATA, "%s: tensor '%s' must name a file in the same directory",
                           index_path, key);
        FV_TRY(need_file(sh, opened, dir, name, index_path, &s));
        if (!fv_safetensors_find(s->st, key))
            return FV_FAIL(FV_EDATA, "%s: tensor '%s' is not in its shard '%s'", index_path, key,
                           name);
    }
    return FV_OK;
}

/* Opens every shard that weight_map names once; every tensor must be in its shard. */
static fv_status open_mapped(fv_shards *sh, const char *dir, json_t *map, const char *index_path) {
    size_t most = json_object_size(map);
    if (most > FILES_MAX) most = FILES_MAX;
    FV_TRY(FV_ARENA_NEW(&sh->arena, most, sh->file));
    json_t *opened = json_object();
    if (!opened) return FV_FAIL(FV_ENOMEM, "%s: no memory", index_path);
    fv_status st = open_each(sh, opened, dir, map, index_path);
    json_decref(opened);
    return st;
}

static fv_status open_index(fv_shards *sh, const char *dir, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    FV_TRY(fv_file_read(path, INDEX_MAX, &text, &bytes));
    json_t *root = NULL;
    fv_status st = fv_json_object(text, bytes, path, &root);
    free(text);
    FV_TRY(st);
    json_t *map = json_object_get(root, "weight_map");
    if (json_object_size(map) == 0)
        st = FV_FAIL(FV_EDATA, "%s: key 'weight_map' must be an object with tensors", path);
    else
        st = open_mapped(sh, dir, sh->weight_map = json_incref(map), path);
    json_decref(root);
    return st;
}

static fv_status open_single(fv_shards *sh, const char *dir, const char *name) {
    FV_TRY(FV_ARENA_NEW(&sh->arena, 1, sh->file));
    return open_shard(sh, dir, name);
}

/* Opens the weights of a folder that has them under Mistral's own names alone. */
static fv_status open_mistral(fv_shards *sh, const char *dir) {
    char path[PATH_CAP];
    FV_TRY(fv_path_join(dir, own_name, path, sizeof path));
    if (fv_file_exists(path)) return open_single(sh, dir, own_name);
    FV_TRY(fv_path_join(dir, own_index_name, path, sizeof path));
    return fv_file_exists(path) ? open_index(sh, dir, path) : fv_folder_no_weights(dir);
}

/* The names say the order of rows, too: a file of this name can be a copy under the usual ones. */
static bool has_own_names(const fv_shards *sh) {
    for (int32_t i = 0; i < sh->n_file; i++)
        if (sh->file[i].st && fv_safetensors_find(sh->file[i].st, "tok_embeddings.weight"))
            return true;
    return false;
}

/* Opens all safetensors of a folder that has neither of the usual names. */
static fv_status open_unnamed(fv_shards *sh, const char *dir) {
    fv_folder f;
    FV_TRY(fv_folder_open(dir, &f));
    fv_status st = fv_folder_check_shards(&f);
    if (st == FV_OK) st = FV_ARENA_NEW(&sh->arena, f.n, sh->file);
    for (int32_t i = 0; i < f.n && st == FV_OK; i++)
        if (fv_folder_is_weights(f.file[i].name)) st = open_shard(sh, dir, f.file[i].name);
    fv_folder_close(&f);
    FV_TRY(st);
    return sh->n_file ? FV_OK : open_mistral(sh, dir);
}

static fv_status open_files(fv_shards *sh, const char *dir) {
    char path[PATH_CAP];
    fv_gguf_files gguf;
    FV_TRY(fv_gguf_files_find(dir, &gguf));
    if (gguf.n > 0) return open_gguf_files(sh, &gguf);
    FV_TRY(fv_path_join(dir, single_name, path, sizeof path));
    if (fv_file_exists(path)) return open_single(sh, dir, single_name);
    FV_TRY(fv_path_join(dir, index_name, path, sizeof path));
    if (fv_file_exists(path)) return open_index(sh, dir, path);
    return open_unnamed(sh, dir);
}

static int by_canonical(const void *a, const void *b) {
    return strcmp(((const fv_shard_tensor *)a)->canonical, ((const fv_shard_tensor *)b)->canonical);
}

/* Returns false if the tensor is no weight. */
static bool canonical(const fv_shards *sh, const shard *s, int32_t i,
                      char out[FV_TENSOR_NAME_MAX]) {
    char hub[FV_GGUF_NAME_MAX];
    const char *name = s->form ? s->form[i].hub : s->entry[i].name;
    if (sh->mistral && fv_params_hub_name(name, hub)) name = hub;
    return *name && fv_name_mapping_canonical(name, out);
}

/* Returns whether weight_map says that the tensor is in another file. */
static bool is_elsewhere(const fv_shards *sh, const shard *s, const char *name) {
    const char *file = json_string_value(json_object_get(sh->weight_map, name));
    return file && strcmp(file, s->name) != 0;
}

static fv_status index_tensors(fv_shards *sh) {
    int32_t most = 0;
    for (int32_t f = 0; f < sh->n_file; f++) most += sh->file[f].n;
    FV_TRY(FV_ARENA_NEW(&sh->arena, most, sh->tensor));
    for (int32_t f = 0; f < sh->n_file; f++) {
        const shard *s = &sh->file[f];
        for (int32_t i = 0; i < s->n; i++) {
            if (is_elsewhere(sh, s, s->entry[i].name)) continue;
            fv_shard_tensor *t = &sh->tensor[sh->n_tensor];
            t->entry = &s->entry[i];
            t->file = s->name;
            t->form = s->form ? &s->form[i] : NULL;
            if (canonical(sh, s, i, t->canonical)) sh->n_tensor++;
        }
    }
    qsort(sh->tensor, (size_t)sh->n_tensor, sizeof(*sh->tensor), by_canonical);
    for (int32_t i = 1; i < sh->n_tensor; i++) {
        const fv_shard_tensor *a = &sh->tensor[i - 1], *b = &sh->tensor[i];
        if (!strcmp(a->canonical, b->canonical))
            return FV_FAIL(FV_EDATA,
                           "tensor '%s' in %s and tensor '%s' in %s have the same canonical name",
                           a->entry->name, a->file, b->entry->name, b->file);
    }
    return FV_OK;
}

fv_status fv_shards_open(const char *from, fv_shards **out) {
    fv_shards *sh = calloc(1, sizeof(*sh));
    if (!sh) return FV_FAIL(FV_ENOMEM, "%s: no memory", from);
    fv_status st;
    FV_TRY_GOTO(open_files(sh, from), st, fail);
    sh->mistral = has_own_names(sh);
    FV_TRY_GOTO(index_tensors(sh), st, fail);
    json_decref(sh->weight_map);
    sh->weight_map = NULL;
    *out = sh;
    return FV_OK;
fail:
    fv_shards_close(sh);
    return st;
}

void fv_shards_close(fv_shards *sh) {
    if (!sh) return;
    for (int32_t i = 0; i < sh->n_file; i++) {
        fv_safetensors_free(sh->file[i].st);
        fv_gguf_free(sh->file[i].gguf);
        fv_file_map_close(&sh->file[i].map);
    }
    json_decref(sh->weight_map);
    fv_arena_fini(&sh->arena);
    free(sh);
}

void fv_shards_populate(const fv_shards *sh) {
    size_t bytes = 0;
    for (int32_t i = 0; i < sh->n_file; i++) bytes += sh->file[i].map.bytes;
    if (bytes > fv_memory_limit()) return;
    for (int32_t i = 0; i < sh->n_file; i++) fv_file_map_populate(&sh->file[i].map);
}

const fv_shard_tensor *fv_shards_find(const fv_shards *sh, const char *canonical) {
    fv_shard_tensor want;
    if (strlen(canonical) >= sizeof want.canonical) return NULL;
    strcpy(want.canonical, canonical);
    return bsearch(&want, sh->tensor, (size_t)sh->n_tensor, sizeof(*sh->tensor), by_canonical);
}

int32_t fv_shards_tensors(const fv_shards *sh) { return sh->n_tensor; }
const fv_shard_tensor *fv_shards_at(const fv_shards *sh, int32_t i) { return &sh->tensor[i]; }
bool fv_shards_gguf(const fv_shards *sh) { return sh->file[0].gguf != NULL; }
bool fv_shards_mistral(const fv_shards *sh) { return sh->mistral; }
int32_t fv_shards_files(const fv_shards *sh) { return sh->n_file; }

fv_name_mapping fv_shards_name_mapping(const fv_shards *sh, const fv_tensor_names *own) {
    fv_name_mapping best = FV_NAME_MAPPING_HUB;
    int32_t best_hits = -1;
    for (int d = 0; d < FV_N_NAME_MAPPING; d++) {
        int32_t hits = 0;
        for (int32_t i = 0; i < sh->n_tensor; i++) {
            char key[FV_TENSOR_NAME_MAX];
            fv_name_mapping_key((fv_name_mapping)d, own, sh->tensor[i].canonical, key);
            hits += !strcmp(key, sh->tensor[i].entry->name);
        }
        if (hits > best_hits) {
            best = (fv_name_mapping)d;
            best_hits = hits;
        }
    }
    return best;
}
