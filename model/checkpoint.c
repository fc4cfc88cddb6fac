/* Opens a checkpoint: configs, weight files, and a view of every tensor.
 *
 *   dir --> config.json ------------> fv_model_config --> manifest (names, shapes)
 *       --> *.safetensors --> shards --> find by canonical name --> check --> view
 *
 * Views borrow the mapped files, so opening a checkpoint of many gigabytes reads a few pages.
 * Only tensors whose bytes are not aligned to their element are copied: a header may have any
 * length. Opened once, then read by any thread. */
#include "model/checkpoint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state is on the stack: allocating it cannot fail */
#include <xxhash.h>

#include "common/arena.h"
#include "common/file.h"
#include "common/log.h"
#include "gguf/texts.h"
#include "model/calibration.h"
#include "model/compressed.h"
#include "model/families/tensor_specs.h"
#include "model/gguf_weights.h"
#include "model/shards.h"
#include "model/tower_directory.h"
#include "model/transpose.h"
#include "text/json.h"

enum { CONFIG_MAX = 1 << 20, FINGERPRINT_EDGE = 4096 };

typedef struct used_tensor {
    const fv_tensor_spec *expected;
    const fv_shard_tensor *found;
    fv_tensor view;
    fv_gguf_weight gguf;   /* filled by fv_checkpoint_load; data NULL: the view is complete, */
    fv_transposed experts; /* unless these have data, which loading or quantizing transposes */
} used_tensor;

struct fv_checkpoint {
    fv_arena arena;
    char *dir, *config_text;
    size_t config_bytes;
    fv_tower_directory tower_dir;
    fv_model_config cfg;
    fv_generation_config gen;
    fv_image_config image;
    fv_shards *shards;
    fv_shards *tower;         /* weights in tower_dir; NULL: `shards` has all */
    fv_tensor_spec *manifest; /* [n_manifest] */
    int32_t n_manifest;
    used_tensor *used; /* [n_used], in the manifest's order */
    int32_t n_used;
    size_t bytes;
    fv_text_weights text;
    fv_text_fused *fused; /* [layers] with `fused` */
    fv_vision_weights vision, video;
    fv_projector_weights projector;
    fv_calibration calibration;
    char uncalibrated[512];
    fv_latent *latent;
    char no_latent[512];
};

/* ---- configs --------------------------------------------------------------------------- */

static fv_status open_config(fv_checkpoint *ck, const char *dir) {
    char path[FV_CHECKPOINT_PATH], *text;
    FV_TRY(fv_checkpoint_file(dir, "config.json", CONFIG_MAX, path, &text, &ck->config_bytes));
    if (!text)
        return FV_FAIL(FV_ENOTFOUND, "%s does not exist; is '%s' a checkpoint directory?", path,
                       dir);
    fv_status st = fv_arena_strndup(&ck->arena, text, ck->config_bytes, &ck->config_text);
    free(text);
    FV_TRY(st);
    const fv_tower_directory *t = &ck->tower_dir;
    FV_TRY(fv_tower_directory_find(dir, ck->config_text, ck->config_bytes, &ck->arena,
                                   &ck->tower_dir));
    return fv_config_parse(t->path ? t->config : ck->config_text,
                           t->path ? t->bytes : ck->config_bytes, path, &ck->cfg);
}

static fv_status open_generation(fv_checkpoint *ck, const char *dir) {
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

static fv_status open_image_config(fv_checkpoint *ck, const char *dir) {
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

/* ---- tensors --------------------------------------------------------------------------- */

/* "[32064, 4096]" */
static void print_shape(const int64_t *shape, int32_t n, char *out, size_t cap) {
    size_t at = (size_t)snprintf(out, cap, "[");
    for (int32_t i = 0; i < n && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < cap) snprintf(out + at, cap - at, "]");
}

static fv_status check_shape(const fv_shard_tensor *t, const fv_tensor_spec *e) {
    bool same = t->entry->n_dim == e->n_dim;
    for (int32_t i = 0; same && i < e->n_dim; i++) same = t->entry->shape[i] == e->shape[i];
    if (same) return FV_OK;
    char found[256], expected[128], keys[256];
    print_shape(t->entry->shape, t->entry->n_dim, found, sizeof found);
    print_shape(e->shape, e->n_dim, expected, sizeof expected);
    size_t at = 0;
    for (int32_t i = 0; i < e->n_dim && at < sizeof keys; i++)
        at +=
            (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i ? ", " : "", e->shape_keys[i]);
    return FV_FAIL(FV_EDATA, "tensor '%s' in %s has shape %s; %s is expected from config.json's %s",
                   t->entry->name, t->file, found, expected, keys);
}

static fv_status read_dtype(const fv_shard_tensor *t, fv_dtype *out) {
    if (fv_safetensors_dtype(t->entry->dtype, out)) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "tensor '%s' in %s has dtype %s; the engine reads F32, F16 and BF16",
                   t->entry->name, t->file, t->entry->dtype);
}

/* Checks t against e and makes its view; copies unaligned bytes. */
static fv_status make_view(fv_checkpoint *ck, const fv_shard_tensor *t, const fv_tensor_spec *e,
                           fv_tensor *out) {
    FV_TRY(check_shape(t, e));
    fv_dtype dtype;
    FV_TRY(read_dtype(t, &dtype));
    int32_t rows, cols;
    fv_tensor_specs_view(e, &rows, &cols);
    void *data = (void *)(uintptr_t)t->entry->data;
    if ((uintptr_t)data % fv_dtype_bytes(dtype)) {
        FV_TRY(fv_arena_alloc(&ck->arena, t->entry->bytes, &data));
        memcpy(data, t->entry->data, t->entry->bytes);
    }
    *out = fv_tensor_of(data, dtype, rows, cols);
    return FV_OK;
}

/* Sets transposed experts apart: the view's data is placed when they are transposed. */
static void set_experts_apart(used_tensor *u) {
    const int64_t *shape = u->expected->shape;
    if (u->expected->role != FV_ROLE_EXPERTS_TRANSPOSED) return;
    u->experts = (fv_transposed){.data = u->view.data,
                                 .dtype = u->view.dtype,
                                 .n = (int32_t)shape[0],
                                 .n_in = (int32_t)shape[1],
                                 .n_out = (int32_t)shape[2]};
    u->view.data = NULL;
}

/* ---- repacked weights ------------------------------------------------------------------ */

static bool is_experts(const fv_tensor_spec *e) {
    return e->role == FV_ROLE_EXPERTS || e->role == FV_ROLE_EXPERTS_TRANSPOSED;
}

static bool is_layer_weight(const fv_tensor_spec *e) {
    bool layer = e->part == FV_PART_TEXT_LAYER || e->part == FV_PART_TEXT_FUSED ||
                 e->part == FV_PART_RECURRENT_LAYER;
    return layer && (e->role == FV_ROLE_LINEAR || e->role == FV_ROLE_QUERY || is_experts(e));
}

/* Number of heads whose rows llama.cpp reordered in this weight; 0: rows are in order. */
static int32_t reordered_heads(const fv_checkpoint *ck, const fv_tensor_spec *e) {
    if (!fv_shards_gguf(ck->shards) || strcmp(ck->cfg.text.family, "llama") != 0) return 0;
    if (e->role == FV_ROLE_QUERY) return ck->cfg.text.n_head;
    return e->part == FV_PART_TEXT_LAYER && e->offset == offsetof(fv_text_layer, k)
               ? ck->cfg.text.n_kv
               : 0;
}

/* Allocates memory that fv_checkpoint_load fills; *repacked false: t is used as stored. */
static fv_status place_repacked(fv_checkpoint *ck, used_tensor *u, bool *repacked) {
    const fv_tensor_spec *e = u->expected;
    int32_t rows, cols, heads = reordered_heads(ck, e);
    bool blocks = fv_gguf_is_blocks(u->found->entry->dtype);
    fv_dtype dtype;
    *repacked = heads > 0 || blocks;
    if (!*repacked) return FV_OK;
    FV_TRY(check_shape(u->found, e));
    if (!blocks) FV_TRY(read_dtype(u->found, &dtype));
    fv_tensor_specs_view(e, &rows, &cols);
    u->gguf = (fv_gguf_weight){u->found->entry->dtype, u->found->entry->data, heads, {0}};
    FV_TRY(fv_gguf_place(&u->gguf, rows, cols, is_layer_weight(e), &ck->arena));
    u->view = u->gguf.view;
    return FV_OK;
}

/* Opens the tower's own directory only if the checkpoint has no weights of the tower. */
static fv_status open_weights(fv_checkpoint *ck) {
    FV_TRY(fv_shards_open(ck->dir, &ck->shards));
    if (!ck->tower_dir.path) return FV_OK;
    if (fv_shards_find(ck->shards, "vision.embeddings.patch_embedding.weight")) return FV_OK;
    return fv_shards_open(ck->tower_dir.path, &ck->tower);
}

static const fv_shard_tensor *find_tensor(const fv_checkpoint *ck, const char *name) {
    bool apart = ck->tower && strncmp(name, "vision.", 7) == 0;
    return fv_shards_find(apart ? ck->tower : ck->shards, name);
}

static fv_tensor *slot_of(fv_checkpoint *ck, const fv_tensor_spec *e) {
    char *base = NULL;
    switch (e->part) {
    case FV_PART_TEXT: base = (char *)&ck->text; break;
    case FV_PART_TEXT_LAYER: base = (char *)&ck->text.layer[e->layer]; break;
    case FV_PART_RECURRENT_LAYER: base = (char *)&ck->text.recurrent[e->layer]; break;
    case FV_PART_TEXT_FUSED: base = (char *)&ck->fused[e->layer]; break;
    case FV_PART_VISION: base = (char *)&ck->vision; break;
    case FV_PART_VISION_LAYER: base = (char *)&ck->vision.layer[e->layer]; break;
    case FV_PART_VIDEO: base = (char *)&ck->video; break;
    case FV_PART_VIDEO_LAYER: base = (char *)&ck->video.layer[e->layer]; break;
    case FV_PART_DEEPSTACK: base = (char *)&ck->vision.deepstack[e->layer]; break;
    case FV_PART_PROJECTOR: base = (char *)&ck->projector; break;
    case FV_PART_UNUSED: return NULL;
    }
    return (fv_tensor *)(void *)(base + e->offset);
}

static fv_status fail_missing(const fv_checkpoint *ck, const fv_tensor_spec *e) {
    char key[FV_TENSOR_NAME_MAX];
    const fv_tensor_names *own = ck->cfg.family->names;
    if (fv_shards_gguf(ck->shards)) {
        char hub[FV_TENSOR_NAME_MAX];
        fv_name_mapping_key(FV_NAME_MAPPING_ORIGINAL, own, e->name, hub);
        fv_gguf_own_name(hub, key);
    } else {
        fv_name_mapping_key(fv_shards_name_mapping(ck->shards, own), own, e->name, key);
    }
    if (e->role == FV_ROLE_HEAD)
        return FV_FAIL(FV_ENOTFOUND,
                       "%s: tensor '%s' is missing, and config.json does not tie it to the "
                       "embedding (tie_word_embeddings)",
                       ck->dir, key);
    return FV_FAIL(FV_ENOTFOUND, "%s: tensor '%s' is missing from the weights", ck->dir, key);
}

/* Ties head and embedding if either is absent; if both exist they are used as stored. */
static void tie_head(fv_checkpoint *ck) {
    if (!ck->cfg.text.tied_head) return;
    ck->cfg.text.tied_head = !ck->text.head.data || !ck->text.embed.data;
    if (!ck->text.head.data) ck->text.head = ck->text.embed;
    if (!ck->text.embed.data) ck->text.embed = ck->text.head;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const fv_tensor_spec *)a)->name, ((const fv_tensor_spec *)b)->name);
}

/* Whether a tensor is of a layer that predicts tokens further ahead. */
static bool predicts_ahead(const fv_text_config *t, const char *name) {
    int layer;
    if (t->recurrent.n && strncmp(name, "mtp.", 4) == 0) return true;
    return sscanf(name, "text.layers.%d.", &layer) == 1 && layer >= t->n_layer &&
           layer - t->n_layer < t->n_predict;
}

/* Refuses a tensor that config.json does not account for: the network would differ from the trained
 * one. */
static fv_status refuse_leftover(const fv_checkpoint *ck) {
    fv_tensor_spec *all, want;
    int32_t n;
    int32_t n_predict = 0; /* of layers that predict tokens further ahead */
    fv_status st = FV_OK;
    FV_TRY(fv_tensor_specs_build(&ck->cfg, true, &all, &n));
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int32_t i = 0; i < fv_shards_tensors(ck->shards) && st == FV_OK; i++) {
        const fv_shard_tensor *t = fv_shards_at(ck->shards, i);
        if (predicts_ahead(&ck->cfg.text, t->canonical)) {
            n_predict++;
            continue;
        }
        if (!fv_compressed_belongs(t->canonical, want.name)) strcpy(want.name, t->canonical);
        if (bsearch(&want, all, (size_t)n, sizeof *all, by_name)) continue;
        st = FV_FAIL(FV_EDATA,
                     "%s: tensor '%s' in %s is not one of the network that config.json describes: "
                     "is config.json the one that belongs to these weights?",
                     ck->dir, t->entry->name, t->file);
    }
    free(all);
    if (n_predict) FV_LOG(INFO, MODEL, "event=mtp tensors=%d use=none", n_predict);
    return st;
}

/* Rows [row0, row0 + rows) of a weight. */
static fv_status rows_of(fv_checkpoint *ck, fv_tensor w, int32_t row0, int32_t rows,
                         fv_tensor *out) {
    fv_quant *quant = NULL;
    if (w.quant) FV_TRY(FV_ARENA_NEW(&ck->arena, 1, quant));
    *out = fv_weight_rows(w, row0, rows, quant);
    return FV_OK;
}

/* Makes q, k and v, gate and up of the fused tensors. */
static fv_status split_fused(fv_checkpoint *ck) {
    const fv_text_config *t = &ck->cfg.text;
    const int32_t q = t->n_head * t->d_head, kv = t->n_kv * t->d_head, m = t->d_ffn;
    for (int32_t l = 0; (t->fused || t->fused_ffn) && l < t->n_layer; l++) {
        const fv_text_fused *f = &ck->fused[l];
        fv_text_layer *w = &ck->text.layer[l];
        FV_TRY(rows_of(ck, f->gate_up, 0, m, &w->gate));
        FV_TRY(rows_of(ck, f->gate_up, m, m, &w->up));
        if (!t->fused) continue;
        FV_TRY(rows_of(ck, f->qkv, 0, q, &w->q));
        FV_TRY(rows_of(ck, f->qkv, q, kv, &w->k));
        FV_TRY(rows_of(ck, f->qkv, q + kv, kv, &w->v));
    }
    return FV_OK;
}

/* Bytes of the tensor in memory, or in the mapped file. */
static size_t bytes_of(const used_tensor *u) {
    return u->gguf.data ? fv_gguf_bytes(&u->gguf) : u->found->entry->bytes;
}

static fv_status open_tensors(fv_checkpoint *ck) {
    const fv_model_config *cfg = &ck->cfg;
    FV_TRY(fv_tensor_specs_build(cfg, false, &ck->manifest, &ck->n_manifest));
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_manifest, ck->used));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->text.n_layer, ck->text.layer));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->text.n_layer * cfg->text.recurrent.n, ck->text.recurrent));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->text.n_layer, ck->fused));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->vision.n_layer, ck->vision.layer));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->vision.n_deepstack, ck->vision.deepstack));
    if (cfg->video_tower) FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->vision.n_layer, ck->video.layer));
    fv_compressed compressed;
    FV_TRY(fv_compressed_parse(ck->config_text, ck->config_bytes, "config.json", &compressed));
    const fv_tensor_spec *absent_half = NULL; /* half of a tied pair */
    for (int32_t i = 0; i < ck->n_manifest; i++) {
        const fv_tensor_spec *e = &ck->manifest[i];
        const fv_shard_tensor *integers = fv_compressed_find(ck->shards, e);
        const fv_shard_tensor *t = integers ? integers : find_tensor(ck, e->name);
        bool in_pair = e->role == FV_ROLE_HEAD || !strcmp(e->name, "text.embed_tokens.weight");
        if (!t && e->optional) continue;
        if (!t) {
            if (!in_pair || !cfg->text.tied_head || absent_half) return fail_missing(ck, e);
            absent_half = e;
            continue;
        }
        used_tensor *u = &ck->used[ck->n_used];
        bool repacked;
        u->expected = e;
        u->found = t;
        FV_TRY(place_repacked(ck, u, &repacked));
        if (!repacked)
            FV_TRY(integers
                       ? fv_compressed_view(&compressed, &ck->arena, ck->shards, t, e, &u->view)
                       : make_view(ck, t, e, &u->view));
        set_experts_apart(u);
        ck->n_used++;
        ck->bytes += bytes_of(u);
        *slot_of(ck, e) = u->view;
    }
    tie_head(ck);
    FV_TRY(split_fused(ck));
    return refuse_leftover(ck);
}

/* ---- filling tensors in parallel ------------------------------------------------------- */

/* A tensor to fill or, with `to`, to quantize into `memory` as *as. */
typedef struct filled {
    used_tensor *u;
    const fv_weights *to;
    void *memory;
    fv_tensor *as;
    size_t at; /* offset in the allocation of all integers */
} filled;

typedef struct filling {
    filled *tensor; /* [n] */
    int32_t n;
    atomic_int done, bad; /* bad: a tensor with values that are not finite; -1: none */
    atomic_bool no_memory;
    fv_checkpoint_progress *progress;
    void *user;
} filling;

/* Transposes experts, into their view or, with `to`, quantized. */
static bool fill_experts(filling *f, const filled *t) {
    const fv_transposed *from = &t->u->experts;
    if (!t->to) {
        fv_transpose_rows(from, 0, t->u->view.rows, t->u->view.data);
        return true;
    }
    fv_status st = fv_transpose_quantize(from, t->to, t->memory, t->as);
    if (st == FV_ENOMEM) atomic_store(&f->no_memory, true);
    return st != FV_EDATA;
}

static bool fill_tensor(filling *f, const filled *t) {
    if (t->u->experts.data && !(t->to && t->u->view.data)) return fill_experts(f, t);
    return t->to ? fv_quantize(&t->u->view, t->to, t->memory, t->as) : fv_gguf_fill(&t->u->gguf);
}

static void fill_one(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    filling *f = arg;
    const filled *t = &f->tensor[i];
    (void)be;
    if (!fill_tensor(f, t)) atomic_store(&f->bad, i);
    int done = atomic_fetch_add(&f->done, 1) + 1;
    if (slot == 0 && f->progress) f->progress(f->user, done, f->n); /* slot 0: the caller */
}

static fv_status fill_all(filling *f, fv_backend *be) {
    FV_TRY(fv_backend_each(be, f->n, fill_one, f));
    int bad = atomic_load(&f->bad);
    if (atomic_load(&f->no_memory)) return FV_FAIL(FV_ENOMEM, "no memory to quantize experts");
    if (bad < 0) return FV_OK;
    const filled *t = &f->tensor[bad];
    return FV_FAIL(FV_EDATA, "tensor '%s' in %s holds NaN or infinity%s", t->u->found->entry->name,
                   t->u->found->file,
                   t->to ? " and cannot be quantized" : "; is the download damaged?");
}

/* Allocates transposed experts. */
static fv_status place_experts(fv_checkpoint *ck, used_tensor *u) {
    FV_TRY(fv_arena_alloc(&ck->arena, u->found->entry->bytes, &u->view.data));
    *slot_of(ck, u->expected) = u->view;
    return FV_OK;
}

fv_status fv_checkpoint_load(fv_checkpoint *ck, fv_backend *be, const fv_weights *next,
                             fv_checkpoint_progress *progress, void *user) {
    filling f = {.bad = -1, .progress = progress, .user = user};
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, f.tensor));
    for (int32_t i = 0; i < ck->n_used; i++) {
        used_tensor *u = &ck->used[i];
        bool experts = u->experts.data && !next;
        if (experts) FV_TRY(place_experts(ck, u));
        if (u->gguf.data || experts) f.tensor[f.n++] = (filled){.u = u};
    }
    return fill_all(&f, be);
}

static void add_integers(fv_checkpoint *ck, filling *q, used_tensor *u, const fv_weights *to,
                         fv_tensor *as) {
    q->tensor[q->n++] = (filled){.u = u, .to = to, .as = as};
    ck->bytes += fv_quantize_bytes(&u->view, to);
}

/* Allocates the integers of all tensors at once, large enough for huge pages (common/pages.h). */
static fv_status lay_integers(fv_checkpoint *ck, filling *q) {
    enum { ALIGN = 64 };
    size_t all = 0;
    void *memory;
    for (int32_t i = 0; i < q->n; i++) {
        filled *t = &q->tensor[i];
        t->at = all;
        all += (fv_quantize_bytes(&t->u->view, t->to) + ALIGN - 1) / ALIGN * ALIGN;
    }
    FV_TRY(fv_arena_alloc(&ck->arena, all, &memory));
    for (int32_t i = 0; i < q->n; i++) q->tensor[i].memory = (char *)memory + q->tensor[i].at;
    return FV_OK;
}

/* Quantizes the head; if it is the embedding too, a copy, as the embedding stays. */
static void add_head(fv_checkpoint *ck, filling *q) {
    const fv_text_weights *w = &ck->text;
    for (int32_t i = 0; i < ck->n_used && !w->head.quant; i++) {
        used_tensor *u = &ck->used[i];
        if (u->view.data != w->head.data) continue;
        if (w->head.data != w->embed.data) ck->bytes -= bytes_of(u);
        add_integers(ck, q, u, &fv_weights_head, &ck->text.head);
        return;
    }
}

static fv_status prepare(fv_checkpoint *ck, const fv_weights *to, filling *q) {
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used + 1, q->tensor));
    add_head(ck, q); /* first: it takes longest */
    for (int32_t i = 0; i < ck->n_used; i++) {
        used_tensor *u = &ck->used[i];
        if (!is_layer_weight(u->expected)) continue;
        if (u->view.quant)
            return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is %s already; leave out --weights %s",
                           ck->dir, u->found->entry->name, fv_dtype_name(u->view.dtype), to->name);
        if (to->dtype == FV_INT8 && u->view.cols > FV_INT8_MAX_K)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: tensor '%s' has %d columns, and products in int8 are exact up to "
                           "%d; use --weights int4",
                           ck->dir, u->found->entry->name, u->view.cols, FV_INT8_MAX_K);
        ck->bytes -= bytes_of(u);
        add_integers(ck, q, u, to, slot_of(ck, u->expected));
    }
    return lay_integers(ck, q);
}

fv_status fv_checkpoint_quantize(fv_checkpoint *ck, fv_backend *be, const fv_weights *to,
                                 fv_checkpoint_progress *progress, void *user) {
    filling q = {.bad = -1, .progress = progress, .user = user};
    FV_TRY(prepare(ck, to, &q));
    FV_TRY(fill_all(&q, be));
    return split_fused(ck);
}

static const fv_tensor *in_use(const fv_checkpoint *ck, const used_tensor *u) {
    const fv_tensor *t = slot_of((fv_checkpoint *)(uintptr_t)ck, u->expected);
    return t ? t : &u->view;
}

bool fv_checkpoint_is_quantized(const fv_checkpoint *ck) {
    for (int32_t i = 0; i < ck->n_used; i++)
        if (in_use(ck, &ck->used[i])->quant) return true;
    return false;
}

/* Half of a former tied pair that has no tensor in the files yet. */
static fv_compressed_weight absent_half(const fv_checkpoint *ck, char name[FV_TENSOR_NAME_MAX]) {
    const fv_tensor_names *own = ck->cfg.family->names;
    bool has_head = false;
    for (int32_t i = 0; i < ck->n_used; i++)
        has_head = has_head || ck->used[i].expected->role == FV_ROLE_HEAD;
    fv_name_mapping_key(fv_shards_name_mapping(ck->shards, own), own,
                        has_head ? "text.embed_tokens.weight" : "lm_head.weight", name);
    return (fv_compressed_weight){NULL, has_head ? ck->text.embed : ck->text.head, name};
}

fv_status fv_checkpoint_write(const fv_checkpoint *ck, const fv_weights *as, const char *dir,
                              fv_checkpoint_progress *progress, void *user, uint64_t *bytes) {
    for (int32_t i = 0; i < ck->n_used; i++)
        if (ck->used[i].view.quant)
            return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is %s already and is not written anew",
                           ck->dir, ck->used[i].found->entry->name,
                           fv_dtype_name(ck->used[i].view.dtype));
    if (ck->cfg.text.n_expert)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a mixture of experts is not written in integers; serve it with "
                       "--weights %s, which quantizes the experts as they are read",
                       ck->dir, as->name);
    fv_compressed_weight *w = calloc((size_t)ck->n_used + 1, sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "no memory for a list of weights");
    fv_compressed_job job = {.from = ck->dir,
                             .dir = dir,
                             .config = ck->config_text,
                             .config_bytes = ck->config_bytes,
                             .shards = ck->shards,
                             .to = as,
                             .quantized = w,
                             .on_tensor = progress,
                             .user = user};
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor *t = in_use(ck, &ck->used[i]);
        if (t->quant) w[job.n++] = (fv_compressed_weight){ck->used[i].found, *t, NULL};
    }
    char name[FV_TENSOR_NAME_MAX];
    if (ck->cfg.text.tied_head && ck->text.head.quant) w[job.n++] = absent_half(ck, name);
    fv_status st = fv_compressed_write(&job, bytes);
    free(w);
    return st;
}

/* ---- the whole checkpoint -------------------------------------------------------------- */

static fv_status open_all(fv_checkpoint *ck, const char *dir) {
    FV_TRY(fv_arena_strndup(&ck->arena, dir, strlen(dir), &ck->dir));
    FV_TRY(open_config(ck, dir));
    FV_TRY(open_generation(ck, dir));
    if (ck->cfg.has_vision)
        FV_TRY(open_image_config(ck, ck->tower_dir.path ? ck->tower_dir.path : dir));
    FV_TRY(open_weights(ck));
    FV_TRY(open_tensors(ck));
    FV_LOG(INFO, MODEL, "checkpoint=%s dialect=%s files=%d tensors=%d extra=%d bytes=%zu", dir,
           fv_shards_gguf(ck->shards)
               ? "gguf"
               : fv_name_mapping_name(fv_shards_name_mapping(ck->shards, ck->cfg.family->names)),
           fv_shards_files(ck->shards), ck->n_used, fv_shards_tensors(ck->shards) - ck->n_used,
           ck->bytes);
    fv_shards_populate(ck->shards);
    if (ck->tower) fv_shards_populate(ck->tower);
    return FV_OK;
}

/* An unusable calibration is ignored with a warning: a policy that needs it is
 * refused, and everything else runs. */
static void read_calibration(fv_checkpoint *ck) {
    char fingerprint[17];
    fv_checkpoint_fingerprint(ck, fingerprint);
    fv_status st =
        fv_calibration_read(ck->dir, fingerprint, ck->cfg.text.n_layer, &ck->calibration);
    if (st == FV_OK || st == FV_ENOTFOUND) return;
    snprintf(ck->uncalibrated, sizeof ck->uncalibrated, "%s", fv_last_error());
    FV_LOG(WARN, MODEL, "event=not-calibrated reason=\"%s\"", ck->uncalibrated);
}

/* Ignores unusable latent directions likewise. */
static void read_latent(fv_checkpoint *ck) {
    char fingerprint[17];
    const fv_text_config *t = &ck->cfg.text;
    fv_checkpoint_fingerprint(ck, fingerprint);
    fv_status st = fv_latent_open(ck->dir, fingerprint, &ck->latent);
    if (st == FV_OK && (ck->latent->info.n_layer != t->n_layer ||
                        ck->latent->info.n_kv != t->n_kv || ck->latent->info.d_head != t->d_head)) {
        st = FV_FAIL(FV_EDATA,
                     "%s/latent.bin does not match the checkpoint's layers, KV heads or head size: "
                     "run `fovea calibrate --latent` again",
                     ck->dir);
        fv_latent_close(ck->latent);
        ck->latent = NULL;
    }
    if (st == FV_OK || st == FV_ENOTFOUND) return;
    snprintf(ck->no_latent, sizeof ck->no_latent, "%s", fv_last_error());
    FV_LOG(WARN, MODEL, "event=no-latent-directions reason=\"%s\"", ck->no_latent);
}

fv_status fv_checkpoint_open(const char *from, fv_checkpoint **out) {
    fv_checkpoint *ck = calloc(1, sizeof(*ck));
    if (!ck) return FV_FAIL(FV_ENOMEM, "%s: no memory", from);
    fv_status st = open_all(ck, from);
    if (st == FV_OK) read_calibration(ck);
    if (st == FV_OK) read_latent(ck);
    if (st == FV_OK)
        *out = ck;
    else
        fv_checkpoint_close(ck);
    return st;
}

void fv_checkpoint_close(fv_checkpoint *ck) {
    if (!ck) return;
    fv_latent_close(ck->latent);
    fv_shards_close(ck->shards);
    fv_shards_close(ck->tower);
    free(ck->manifest);
    fv_arena_fini(&ck->arena);
    free(ck);
}

/* ---- contents -------------------------------------------------------------------------- */

const fv_model_config *fv_checkpoint_config(const fv_checkpoint *ck) { return &ck->cfg; }
fv_status fv_checkpoint_set_tokens(fv_checkpoint *ck, int32_t id, int32_t eos) {
    fv_model_config *cfg = &ck->cfg;
    bool known = eos < 0 || cfg->n_eos == FV_MAX_EOS;
    if (id >= ck->cfg.text.vocab)
        return FV_FAIL(FV_EDATA,
                       "%s: tokenizer.json has the token of an image as id %d, but the text "
                       "model's 'vocab_size' is %d",
                       ck->dir, id, ck->cfg.text.vocab);
    cfg->image_token = id;
    for (int32_t i = 0; i < cfg->n_eos; i++) known = known || cfg->eos[i] == eos;
    if (!known) cfg->eos[cfg->n_eos++] = eos;
    return FV_OK;
}
const fv_generation_config *fv_checkpoint_generation(const fv_checkpoint *ck) { return &ck->gen; }
const fv_image_config *fv_checkpoint_image(const fv_checkpoint *ck) { return &ck->image; }
const fv_text_weights *fv_checkpoint_text(const fv_checkpoint *ck) { return &ck->text; }
const fv_vision_weights *fv_checkpoint_vision(const fv_checkpoint *ck) {
    return ck->cfg.has_vision ? &ck->vision : NULL;
}
const fv_vision_weights *fv_checkpoint_video(const fv_checkpoint *ck) {
    return ck->cfg.video_tower ? &ck->video : NULL;
}
const fv_projector_weights *fv_checkpoint_projector(const fv_checkpoint *ck) {
    return ck->cfg.has_vision ? &ck->projector : NULL;
}
const char *fv_checkpoint_dir(const fv_checkpoint *ck) { return ck->dir; }
const int32_t *fv_checkpoint_blocks(const fv_checkpoint *ck) {
    return ck->calibration.blocks.n_layer ? ck->calibration.blocks.source_layer : NULL;
}
const double *fv_checkpoint_thresholds(const fv_checkpoint *ck) {
    return ck->calibration.has_thresholds ? ck->calibration.thresholds : NULL;
}
int32_t fv_checkpoint_withdraw(const fv_checkpoint *ck) { return ck->calibration.withdraw; }
const fv_schedule *fv_checkpoint_schedules(const fv_checkpoint *ck, int32_t *n) {
    *n = ck->calibration.n_fitted;
    return ck->calibration.fitted;
}
const char *fv_checkpoint_uncalibrated(const fv_checkpoint *ck) {
    return ck->uncalibrated[0] ? ck->uncalibrated : NULL;
}
const fv_latent *fv_checkpoint_latent(const fv_checkpoint *ck, const char *dtype,
                                      const char *compute, const char **why) {
    const fv_latent *l = ck->latent;
    *why = ck->no_latent[0] ? ck->no_latent
                            : "the checkpoint has no latent directions: run `fovea calibrate "
                              "--latent`";
    if (!l) return NULL;
    if (strcmp(l->info.dtype, dtype) == 0 && strcmp(l->info.compute, compute) == 0) return l;
    *why =
        "the checkpoint's latent directions were measured with another KV dtype or compute mode: "
        "run `fovea calibrate --latent` with these";
    return NULL;
}
size_t fv_checkpoint_bytes(const fv_checkpoint *ck) { return ck->bytes; }

void fv_checkpoint_fingerprint(const fv_checkpoint *ck, char out[17]) {
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    XXH64_update(&state, ck->config_text, ck->config_bytes);
    XXH64_update(&state, ck->tower_dir.config, ck->tower_dir.bytes);
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor_spec *e = ck->used[i].expected;
        const fv_safetensors_entry *t = ck->used[i].found->entry;
        XXH64_update(&state, e->name, strlen(e->name) + 1);
        XXH64_update(&state, t->dtype, strlen(t->dtype) + 1);
        XXH64_update(&state, e->shape, (size_t)e->n_dim * sizeof *e->shape);
        size_t edge = t->bytes < FINGERPRINT_EDGE ? t->bytes : FINGERPRINT_EDGE;
        XXH64_update(&state, t->data, edge);
        XXH64_update(&state, (const char *)t->data + t->bytes - edge, edge);
    }
    snprintf(out, 17, "%016llx", (unsigned long long)XXH64_digest(&state));
}

/* A value is not finite when all bits of its exponent are set. */
static bool finite16(const uint16_t *x, size_t n, uint16_t exponent) {
    unsigned hit = 0;
    for (size_t i = 0; i < n; i++) hit |= (x[i] & exponent) == exponent;
    return !hit;
}

static bool finite32(const uint32_t *x, size_t n) {
    const uint32_t exponent = 0x7F800000U;
    unsigned hit = 0;
    for (size_t i = 0; i < n; i++) hit |= (x[i] & exponent) == exponent;
    return !hit;
}

const char *fv_checkpoint_find_nonfinite(const fv_checkpoint *ck) {
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor *v = &ck->used[i].view;
        if (v->quant) continue;
        size_t n = (size_t)v->rows * (size_t)v->cols;
        const void *data = ck->used[i].experts.data ? ck->used[i].experts.data : v->data;
        bool fine = v->dtype == FV_F32    ? finite32(data, n)
                    : v->dtype == FV_BF16 ? finite16(data, n, 0x7F80U)
                                          : finite16(data, n, 0x7C00U);
        if (!fine) return ck->used[i].found->entry->name;
    }
    return NULL;
}
