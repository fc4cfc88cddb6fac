/* Opens adapters: the tensors of adapter_model.safetensors become pairs of matrices of the layers that they adapt.
 *
 *   base_model.model.PATH.lora_A.weight --> PATH --> canonical name --> manifest --> layer and member of weights.h
 *
 * Matrices are copied as F32, with the scale in B. All are checked before any is used. */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "common/file.h"
#include "common/log.h"
#include "kv/cache/digest.h"
#include "model/adapter_config.h"
#include "model/families/keys.h"
#include "model/families/tensor_specs.h"
#include "model/safetensors.h"

enum { CONFIG_MAX = 1 << 20, MODULE_MAX = 256 };

static const char prefix[] = "base_model.model.";

/* An adapter that is being opened. */
typedef struct opening {
    const fv_model_config *cfg;
    fv_arena *arena;
    char where[FV_CONFIG_WHERE_MAX]; /* the file of tensors */
    char config_where[FV_CONFIG_WHERE_MAX];
    fv_adapter_config config;
    fv_safetensors *file;
    fv_tensor_spec *manifest; /* [n_manifest] sorted by name */
    int32_t n_manifest;
    fv_adapter *out;
    int32_t n_pair, n_idle; /* pairs used; pairs of other parts that add nothing */
} opening;

/* The two matrices of a module. */
typedef struct module {
    char path[MODULE_MAX];
    const fv_safetensors_entry *a, *b;
    fv_dtype a_type, b_type;
    int32_t rank;
    double scale;
} module;

/* ---- one module --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const fv_tensor_spec *)a)->name, ((const fv_tensor_spec *)b)->name);
}

/* Takes a tensor's name apart: *b tells lora_B from lora_A. */
static fv_status read_name(const opening *o, const char *name, char path[MODULE_MAX], bool *b) {
    static const char ends[2][sizeof ".lora_A.weight"] = {".lora_A.weight", ".lora_B.weight"};
    size_t n = strlen(name), end = sizeof ends[0] - 1, first = sizeof prefix - 1;
    if (strstr(name, ".lora_magnitude_vector"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: '%.200s' belongs to DoRA, which is not supported: merge the adapter "
                       "into the model (merge_and_unload() in PEFT) and serve that",
                       o->where, name);
    for (int i = 0; i < 2; i++) {
        if (strncmp(name, prefix, first) != 0 || n <= first + end ||
            strcmp(name + n - end, ends[i]) != 0)
            continue;
        if (n - first - end >= MODULE_MAX) break;
        memcpy(path, name + first, n - first - end);
        path[n - first - end] = '\0';
        *b = i == 1;
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: tensor '%.200s' is no matrix of a linear layer's adapter "
                   "(%s...lora_A.weight or lora_B.weight): merge the adapter into the model "
                   "(merge_and_unload() in PEFT) and serve that",
                   o->where, name, prefix);
}

static fv_status check_matrix(const opening *o, const fv_safetensors_entry *t, fv_dtype *dtype) {
    if (!fv_safetensors_dtype(t->dtype, dtype))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: tensor '%.200s' has dtype %s; an adapter has F32, F16 or BF16",
                       o->where, t->name, t->dtype);
    if (t->n_dim != 2 || t->shape[0] < 1 || t->shape[1] < 1 || t->shape[0] > INT32_MAX ||
        t->shape[1] > INT32_MAX)
        return FV_FAIL(FV_EDATA, "%s: tensor '%.200s' is not a matrix", o->where, t->name);
    return FV_OK;
}

/* Finds the other matrix, checks both against each other and the config. */
static fv_status complete(const opening *o, module *m) {
    char name[MODULE_MAX + 64];
    FV_TRY(
        fv_adapter_config_targets(&o->config, m->path)
            ? FV_OK
            : FV_FAIL(FV_EDATA,
                      "%s: module '%.200s' is not among 'target_modules' of adapter_config.json: "
                      "do both files belong to one adapter?",
                      o->where, m->path));
    snprintf(name, sizeof name, "%s%s.lora_B.weight", prefix, m->path);
    m->b = fv_safetensors_find(o->file, name);
    if (!m->b) return FV_FAIL(FV_EDATA, "%s: tensor '%.250s' is missing", o->where, name);
    FV_TRY(check_matrix(o, m->a, &m->a_type));
    FV_TRY(check_matrix(o, m->b, &m->b_type));
    FV_TRY(fv_adapter_config_module(&o->config, o->config_where, m->path, &m->rank, &m->scale));
    if (m->a->shape[0] == m->rank && m->b->shape[1] == m->rank) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: the matrices of '%.200s' have ranks %lld and %lld; adapter_config.json "
                   "says %d",
                   o->where, m->path, (long long)m->a->shape[0], (long long)m->b->shape[1],
                   m->rank);
}

/* Copies a matrix as F32, times `scale`; refuses numbers that are not finite. */
static fv_status copy_matrix(opening *o, const fv_safetensors_entry *t, fv_dtype dtype,
                             double scale, fv_tensor *out) {
    float *y;
    size_t n = (size_t)t->shape[0] * (size_t)t->shape[1];
    bool finite = true;
    FV_TRY(FV_ARENA_NEW(o->arena, n, y));
    for (size_t i = 0; i < n; i++) { /* the file's bytes may be unaligned */
        char one[sizeof(float)];
        memcpy(one, (const char *)t->data + i * fv_dtype_bytes(dtype), fv_dtype_bytes(dtype));
        y[i] = (float)((double)widened(one, dtype, 0) * scale);
        finite &= isfinite(y[i]) != 0;
    }
    if (!finite)
        return FV_FAIL(FV_EDATA, "%s: tensor '%.200s' has a number that is not finite", o->where,
                       t->name);
    *out = fv_tensor_of(y, FV_F32, (int32_t)t->shape[0], (int32_t)t->shape[1]);
    o->out->bytes += n * sizeof *y;
    return FV_OK;
}

/* ---- its place ---------------------------------------------------------------------------- */

static bool all_zero(const fv_safetensors_entry *t) {
    const unsigned char *p = t->data;
    unsigned any = 0;
    for (size_t i = 0; i < t->bytes; i++) any |= p[i];
    return !any;
}

static bool adaptable(const fv_tensor_spec *e) {
    return e->role == FV_ROLE_LINEAR || e->role == FV_ROLE_QUERY ||
           (e->role == FV_ROLE_EXACT && e->n_dim == 2);
}

/* A module of the tower, the connector, the head or the experts: fine if it adds nothing, as when it was frozen. */
static fv_status refuse(opening *o, const module *m, const char *canonical) {
    bool head = strncmp(canonical, "lm_head.", 8) == 0;
    bool experts = strstr(canonical, ".experts.") || strstr(canonical, ".mlp.gate.");
    bool seeing = strncmp(canonical, "vision.", 7) == 0 || strncmp(canonical, "video.", 6) == 0 ||
                  strncmp(canonical, "projector.", 10) == 0;
    const char *part = head                                ? "the output head"
                       : experts                           ? "the experts"
                       : seeing                            ? "the vision tower or its connector"
                       : strstr(canonical, "embed_tokens") ? "the embedding"
                       : strstr(canonical, "per_layer_model")
                           ? "the projection of all layers' embeddings"
                           : NULL;
    if (!part)
        return FV_FAIL(
            FV_EDATA,
            "%s: module '%.200s' is no linear layer of this model's text model: does the "
            "adapter belong to this model?",
            o->where, m->path);
    if (all_zero(m->b)) {
        o->n_idle++;
        return FV_OK;
    }
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: module '%.200s' is in %s, and only linear layers of the text model's layers "
        "are adapted: merge the adapter into the model (merge_and_unload() in PEFT) and "
        "serve that",
        o->where, m->path, part);
}

static fv_status check_sizes(const opening *o, const module *m, int64_t rows, int64_t cols) {
    if (m->a->shape[1] == cols && m->b->shape[0] == rows) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: the adapter of '%.200s' maps %lld numbers to %lld; the model's layer maps "
                   "%lld to %lld: does the adapter belong to this model?",
                   o->where, m->path, (long long)m->a->shape[1], (long long)m->b->shape[0],
                   (long long)cols, (long long)rows);
}

/* Sets a pair of a layer to A and rows of B. False: it is set already, by a module with another name for the layer. */
static bool put(fv_adapter_layer *layer, size_t offset, const fv_adapter_pair *p, int32_t row0,
                int32_t rows) {
    fv_adapter_pair *at = &layer->pair[offset / sizeof(fv_tensor)];
    const bool unset = !at->a.data;
    *at = (fv_adapter_pair){p->a, fv_tensor_rows(p->b, row0, rows)};
    return unset;
}

/* A fused tensor's rows are those of q, k and v, or of gate and up. */
static bool put_fused(const opening *o, const fv_tensor_spec *e, const fv_adapter_pair *p) {
    const fv_text_config *t = &o->cfg->text;
    const int32_t q = t->n_head * t->d_head, kv = t->n_kv * t->d_head, m = t->d_ffn;
    fv_adapter_layer *layer = &o->out->layer[e->layer];
    if (e->offset == offsetof(fv_text_fused, qkv))
        return put(layer, offsetof(fv_text_layer, q), p, 0, q) &&
               put(layer, offsetof(fv_text_layer, k), p, q, kv) &&
               put(layer, offsetof(fv_text_layer, v), p, q + kv, kv);
    return put(layer, offsetof(fv_text_layer, gate), p, 0, m) &&
           put(layer, offsetof(fv_text_layer, up), p, m, m);
}

static fv_status place(opening *o, module *m) {
    fv_tensor_spec want;
    char key[MODULE_MAX + 8];
    snprintf(key, sizeof key, "%s.weight", m->path);
    (void)fv_name_mapping_canonical(key, want.name);
    const fv_tensor_spec *e =
        bsearch(&want, o->manifest, (size_t)o->n_manifest, sizeof *o->manifest, by_name);
    bool layer = e && (e->part == FV_PART_TEXT_LAYER || e->part == FV_PART_TEXT_FUSED ||
                       e->part == FV_PART_RECURRENT_LAYER);
    if (!layer || !adaptable(e)) return refuse(o, m, want.name);
    fv_adapter_pair p;
    FV_TRY(check_sizes(o, m, e->shape[0], e->shape[1]));
    FV_TRY(copy_matrix(o, m->a, m->a_type, 1, &p.a));
    FV_TRY(copy_matrix(o, m->b, m->b_type, m->scale, &p.b));
    fv_adapter_layer *one = e->part == FV_PART_RECURRENT_LAYER ? &o->out->recurrent[e->layer]
                                                               : &o->out->layer[e->layer];
    if (!(e->part == FV_PART_TEXT_FUSED ? put_fused(o, e, &p)
                                        : put(one, e->offset, &p, 0, p.b.rows)))
        return FV_FAIL(FV_EDATA,
                       "%s: module '%.200s' adapts a layer that another module with another name "
                       "adapts too: leave one of them out",
                       o->where, m->path);
    if (m->rank > o->out->rank) o->out->rank = m->rank;
    o->n_pair++;
    return FV_OK;
}

/* ---- one adapter -------------------------------------------------------------------------- */

static fv_status place_all(opening *o) {
    for (int32_t i = 0; i < fv_safetensors_count(o->file); i++) {
        const fv_safetensors_entry *t = fv_safetensors_at(o->file, i);
        char other[MODULE_MAX + 64];
        module m = {.a = t};
        bool b;
        FV_TRY(read_name(o, t->name, m.path, &b));
        if (!b) {
            FV_TRY(complete(o, &m));
            FV_TRY(place(o, &m));
            continue;
        }
        snprintf(other, sizeof other, "%s%s.lora_A.weight", prefix, m.path);
        if (!fv_safetensors_find(o->file, other))
            return FV_FAIL(FV_EDATA, "%s: tensor '%.250s' is missing", o->where, other);
    }
    if (o->n_pair == 0)
        return FV_FAIL(FV_EDATA, "%s: the adapter changes no linear layer of the text model",
                       o->where);
    return FV_OK;
}

static fv_status open_parts(opening *o, const void *tensors, size_t n_tensor, const char *text,
                            size_t n_text) {
    const fv_text_config *t = &o->cfg->text;
    FV_TRY(fv_adapter_config_parse(text, n_text, o->config_where, &o->config));
    FV_TRY(fv_safetensors_parse(tensors, n_tensor, o->where, &o->file));
    FV_TRY(fv_tensor_specs_build(o->cfg, false, &o->manifest, &o->n_manifest));
    qsort(o->manifest, (size_t)o->n_manifest, sizeof *o->manifest, by_name);
    FV_TRY(FV_ARENA_NEW(o->arena, fv_text_layers(t), o->out->layer));
    FV_TRY(FV_ARENA_NEW(o->arena, t->n_layer * t->recurrent.n, o->out->recurrent));
    return place_all(o);
}

static void print_hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static fv_status digest_files(const void *tensors, size_t n_tensor, const char *text, size_t n_text,
                              char out[FV_ADAPTER_DIGEST_MAX]) {
    uint8_t bytes[FV_DIGEST_BYTES];
    fv_digest d;
    fv_digest_begin(&d, "fovea adapter v1");
    fv_digest_bytes(&d, text, n_text);
    fv_digest_bytes(&d, tensors, n_tensor);
    FV_TRY(fv_digest_end(&d, bytes));
    print_hex(bytes, sizeof bytes, out);
    return FV_OK;
}

fv_status fv_adapter_parse(const char *where, const char *text, size_t n_text, const void *tensors,
                           size_t n_tensor, const fv_model_config *cfg, fv_arena *arena,
                           fv_adapter *out) {
    fv_adapter made = {0};
    opening o = {.cfg = cfg, .arena = arena, .out = &made};
    snprintf(o.where, sizeof o.where, "%s/adapter_model.safetensors", where);
    snprintf(o.config_where, sizeof o.config_where, "%s/adapter_config.json", where);
    fv_status st = open_parts(&o, tensors, n_tensor, text, n_text);
    if (st == FV_OK) st = digest_files(tensors, n_tensor, text, n_text, made.digest);
    if (o.n_idle && st == FV_OK)
        FV_LOG(INFO, MODEL, "adapter=%s event=adds-nothing modules=%d outside=text-model", where,
               o.n_idle);
    free(o.manifest);
    fv_safetensors_free(o.file);
    fv_adapter_config_free(&o.config);
    if (st == FV_OK) *out = made;
    return st;
}

/* Says what a directory without adapter_model.safetensors has instead. */
static fv_status fail_missing(const char *dir) {
    char bin[FV_CONFIG_WHERE_MAX];
    FV_TRY(fv_path_join(dir, "adapter_model.bin", bin, sizeof bin));
    if (fv_file_exists(bin))
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: the adapter is a pickle, which is not read: load it in PEFT and save it "
            "with save_pretrained(), which writes adapter_model.safetensors",
            bin);
    return FV_FAIL(FV_ENOTFOUND,
                   "%s: adapter_model.safetensors is missing: name the directory that PEFT's "
                   "save_pretrained() has written",
                   dir);
}

fv_status fv_adapter_open(const char *dir, const fv_model_config *cfg, fv_arena *arena,
                          fv_adapter *out) {
    char path[FV_CONFIG_WHERE_MAX], *text = NULL;
    size_t n_text;
    fv_file_map map = {0};
    FV_TRY(fv_path_join(dir, "adapter_model.safetensors", path, sizeof path));
    if (!fv_file_exists(path)) return fail_missing(dir);
    FV_TRY(fv_file_map_open(path, &map));
    fv_status st = fv_file_is_pointer(map.data, map.bytes) ? fv_file_pointer_error(path) : FV_OK;
    if (st == FV_OK) st = fv_path_join(dir, "adapter_config.json", path, sizeof path);
    if (st == FV_OK) st = fv_file_read(path, CONFIG_MAX, &text, &n_text);
    if (st == FV_OK) st = fv_adapter_parse(dir, text, n_text, map.data, map.bytes, cfg, arena, out);
    free(text);
    fv_file_map_close(&map);
    return st;
}
