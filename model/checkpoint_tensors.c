/* Finds every tensor that the network needs and makes its view.
 *
 * Views borrow the mapped files, so opening a checkpoint of many gigabytes reads a few pages. Only
 * tensors whose bytes are not aligned to their element are copied: a header may have any length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "gguf/params.h"
#include "gguf/texts.h"
#include "model/checkpoint_internal.h"
#include "model/compressed.h"

enum { EXPERTS_APART_MAX = 1 << 15 }; /* of all layers, as each is three tensors */

/* "[32064, 4096]" */
static void print_shape(const int64_t *shape, int32_t n, char *out, size_t cap) {
    size_t at = (size_t)snprintf(out, cap, "[");
    for (int32_t i = 0; i < n && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < cap) snprintf(out + at, cap - at, "]");
}

/* Copies the sizes that are not 1. */
static int32_t drop_ones(const int64_t *shape, int32_t n, int64_t out[FV_SAFETENSORS_MAX_DIMS]) {
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (shape[i] != 1) out[kept++] = shape[i];
    return kept;
}

/* GGUF files may have sizes of 1 or not. */
static bool is_shape(const fv_shard_tensor *t, const fv_tensor_spec *e) {
    int64_t a[FV_SAFETENSORS_MAX_DIMS], b[FV_SAFETENSORS_MAX_DIMS];
    const int64_t *found = t->entry->shape, *expected = e->shape;
    int32_t n = t->entry->n_dim, m = e->n_dim;
    if (t->form) {
        n = drop_ones(found, n, a), m = drop_ones(expected, m, b);
        found = a, expected = b;
    }
    return n == m && memcmp(found, expected, (size_t)n * sizeof *found) == 0;
}

static fv_status check_shape(const fv_shard_tensor *t, const fv_tensor_spec *e) {
    if (is_shape(t, e)) return FV_OK;
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
    if ((uintptr_t)data % fv_dtype_bytes(dtype) && !ck->headers_only) {
        FV_TRY(fv_arena_alloc(&ck->arena, t->entry->bytes, &data));
        memcpy(data, t->entry->data, t->entry->bytes);
    }
    *out = fv_tensor_of(data, dtype, rows, cols);
    return FV_OK;
}

/* Sets transposed experts apart: the view's data is placed when they are transposed. */
static void set_experts_apart(fv_used_tensor *u) {
    const int64_t *shape = u->expected->shape;
    if (u->expected->role != FV_ROLE_EXPERTS_TRANSPOSED) return;
    u->experts = (fv_transposed){.data = u->view.data,
                                 .dtype = u->view.dtype,
                                 .n = (int32_t)shape[0],
                                 .n_in = (int32_t)shape[1],
                                 .n_out = (int32_t)shape[2]};
    u->view.data = NULL;
}

static bool is_experts(const fv_tensor_spec *e) {
    return e->role == FV_ROLE_EXPERTS || e->role == FV_ROLE_EXPERTS_TRANSPOSED;
}

bool fv_checkpoint_is_layer_weight(const fv_tensor_spec *e) {
    bool layer = e->part == FV_PART_TEXT_LAYER || e->part == FV_PART_TEXT_FUSED ||
                 e->part == FV_PART_TEXT_EXPERT || e->part == FV_PART_RECURRENT_LAYER;
    return layer && (e->role == FV_ROLE_LINEAR || e->role == FV_ROLE_QUERY || is_experts(e));
}

/* Number of heads whose rows llama.cpp reordered in this weight, or Mistral's layout has so; 0: rows are in order. */
static int32_t reordered_heads(const fv_checkpoint *ck, const fv_tensor_spec *e) {
    const bool mistral = fv_shards_mistral(ck->shards);
    if (!fv_shards_gguf(ck->shards) && !mistral) return 0;
    if (e->part == FV_PART_VISION_LAYER && ck->cfg.vision.rope == FV_TOWER_ROPE_AXIAL)
        return e->offset == offsetof(fv_vision_layer, q) ||
                       e->offset == offsetof(fv_vision_layer, k)
                   ? ck->cfg.vision.n_head
                   : 0;
    if (!mistral && strcmp(ck->cfg.text.family, "llama") != 0) return 0;
    if (e->role == FV_ROLE_QUERY) return ck->cfg.text.n_head;
    return e->part == FV_PART_TEXT_LAYER && e->offset == offsetof(fv_text_layer, k)
               ? ck->cfg.text.n_kv
               : 0;
}

/* Gives the memory of a weight back whose tensors have been checked. */
static void drop_data(fv_checkpoint *ck, fv_stored_weight *w) {
    w->view.data = NULL;
    w->view.quant = w->quant = NULL;
    ck->stored.order = NULL; /* was in it */
    ck->stored.n_order = 0;
    fv_arena_reset(&ck->scratch);
}

/* Allocates memory that fv_checkpoint_load fills; *repacked false: t is used as stored. */
static fv_status place_repacked(fv_checkpoint *ck, fv_used_tensor *u, bool *repacked) {
    const fv_tensor_spec *e = u->expected;
    int32_t rows, cols, heads = reordered_heads(ck, e);
    bool blocks = fv_gguf_is_blocks(u->found->entry->dtype);
    const fv_gguf_form *form = u->found->form;
    fv_dtype dtype;
    if (u->stored.form) {
        *repacked = true;
        FV_TRY(fv_stored_place(&u->stored, e, ck->headers_only ? &ck->scratch : &ck->arena));
        if (ck->headers_only) drop_data(ck, &u->stored);
        u->view = u->stored.view;
        return FV_OK;
    }
    *repacked = heads > 0 || blocks || (form && (form->n_more || form->tiles.each > 1));
    if (!*repacked) return FV_OK;
    FV_TRY(check_shape(u->found, e));
    if (!blocks) FV_TRY(read_dtype(u->found, &dtype));
    fv_tensor_specs_view(e, &rows, &cols);
    u->view = fv_tensor_of(NULL, FV_BF16, rows, cols);
    if (ck->headers_only) return FV_OK;
    u->gguf = (fv_gguf_weight){
        .type = u->found->entry->dtype, .data = u->found->entry->data, .heads = heads};
    if (form) {
        memcpy(u->gguf.more, form->more, sizeof form->more);
        u->gguf.n_more = form->n_more, u->gguf.span = form->span;
        u->gguf.tiles = form->tiles;
    }
    FV_TRY(fv_gguf_place(&u->gguf, rows, cols, fv_checkpoint_is_layer_weight(e), &ck->arena));
    u->view = u->gguf.view;
    return FV_OK;
}

/* Opens the tower's own directory only if the checkpoint has no weights of the tower. */
fv_status fv_checkpoint_open_weights(fv_checkpoint *ck) {
    FV_TRY(fv_shards_open(ck->dir, &ck->shards));
    if (!ck->tower_dir.path) return FV_OK;
    if (fv_shards_find(ck->shards, "vision.embeddings.patch_embedding.weight")) return FV_OK;
    return fv_shards_open(ck->tower_dir.path, &ck->tower);
}

static const fv_shard_tensor *find_tensor(const fv_checkpoint *ck, const char *name) {
    bool apart = ck->tower && strncmp(name, "vision.", 7) == 0;
    return fv_shards_find(apart ? ck->tower : ck->shards, name);
}

fv_tensor *fv_checkpoint_slot(fv_checkpoint *ck, const fv_tensor_spec *e) {
    char *base = NULL;
    switch (e->part) {
    case FV_PART_TEXT: base = (char *)&ck->text; break;
    case FV_PART_TEXT_LAYER: base = (char *)&ck->text.layer[e->layer]; break;
    case FV_PART_RECURRENT_LAYER: base = (char *)&ck->text.recurrent[e->layer]; break;
    case FV_PART_TEXT_EXPERT: base = (char *)&ck->text.expert[e->layer]; break;
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
        bool text = strncmp(e->name, "text.", 5) == 0 || strncmp(e->name, "lm_head.", 8) == 0;
        fv_name_mapping_key(text ? FV_NAME_MAPPING_ORIGINAL : FV_NAME_MAPPING_HUB, NULL, e->name,
                            hub);
        if (!fv_gguf_own_name(hub, key)) snprintf(key, sizeof key, "%.127s", hub);
    } else if (fv_shards_mistral(ck->shards)) {
        char hub[FV_TENSOR_NAME_MAX];
        fv_name_mapping_key(FV_NAME_MAPPING_HUB, own, e->name, hub);
        if (!fv_params_own_name(hub, key)) snprintf(key, sizeof key, "%.127s", hub);
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
    return sscanf(name, "text.layers.%9d.", &layer) == 1 && layer >= t->n_layer &&
           layer - t->n_layer < t->n_predict;
}

/* Whether a tensor is of Gemma 4's tower or connector for sound, which is not read. */
static bool is_of_sound(const fv_text_config *t, const char *name) {
    return t->slide_d > 0 &&
           (!strncmp(name, "model.audio_tower.", 18) || !strncmp(name, "model.embed_audio.", 18));
}

/* Whether a tensor would make keys or values in a layer that uses those of another: files have them, and
 * nothing reads them. */
static bool is_of_sharer(const fv_text_config *t, const char *name) {
    static const char *const unused[] = {"k_proj.weight", "v_proj.weight", "k_norm.weight",
                                         "v_norm.weight"};
    int layer, n = 0;
    if (sscanf(name, "text.layers.%9d.self_attn.%n", &layer, &n) != 1 || n == 0) return false;
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (!strcmp(name + n, unused[i])) return layer >= t->n_layer && layer < fv_text_layers(t);
    return false;
}

/* Refuses a tensor that config.json does not account for: the network would differ from the trained
 * one. */
static fv_status refuse_leftover(const fv_checkpoint *ck) {
    fv_tensor_spec *all, want;
    int32_t n;
    int32_t n_predict = 0; /* of layers that predict tokens further ahead */
    int32_t n_sound = 0;
    fv_status st = FV_OK;
    FV_TRY(fv_tensor_specs_build(&ck->cfg, true, &all, &n));
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int32_t i = 0; i < fv_shards_tensors(ck->shards) && st == FV_OK; i++) {
        const fv_shard_tensor *t = fv_shards_at(ck->shards, i);
        if (predicts_ahead(&ck->cfg.text, t->canonical)) {
            n_predict++;
            continue;
        }
        if (is_of_sharer(&ck->cfg.text, t->canonical)) continue;
        if (is_of_sound(&ck->cfg.text, t->canonical)) {
            n_sound++;
            continue;
        }
        if (!fv_compressed_belongs(t->canonical, want.name) &&
            !fv_stored_belongs(&ck->stored, t->canonical, want.name))
            strcpy(want.name, t->canonical);
        if (bsearch(&want, all, (size_t)n, sizeof *all, by_name)) continue;
        if (fv_stored_is_unused(&ck->stored, t)) continue;
        st = FV_FAIL(FV_EDATA,
                     "%s: tensor '%s' in %s is not one of the network that config.json describes: "
                     "is config.json the one that belongs to these weights?",
                     ck->dir, t->entry->name, t->file);
    }
    free(all);
    if (n_sound) FV_LOG(INFO, MODEL, "event=sound tensors=%d use=none", n_sound);
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
fv_status fv_checkpoint_split_fused(fv_checkpoint *ck) {
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
size_t fv_checkpoint_tensor_bytes(const fv_used_tensor *u) {
    if (u->stored.form) return u->stored.bytes;
    return u->gguf.data ? fv_gguf_bytes(&u->gguf) : u->found->entry->bytes;
}

/* Says in which forms weights are stored, one line each. */
static void log_stored(const fv_checkpoint *ck) {
    if (ck->stored.kv_cache)
        FV_LOG(WARN, MODEL,
               "event=kv-cache-scheme use=none reason=\"keys and values are stored as --kv-dtype "
               "says, not quantized as the checkpoint's kv_cache_scheme asks\"");
    for (int32_t i = 0; i < ck->n_used; i++) {
        const struct fv_stored_form *form = ck->used[i].stored.form;
        int32_t n = 0, first = i;
        size_t bytes = 0;
        for (int32_t j = 0; form && j < ck->n_used; j++) {
            if (ck->used[j].stored.form != form) continue;
            if (j < first) first = j;
            if (first < i) break; /* said before */
            bytes += ck->used[j].stored.bytes;
            n++;
        }
        if (form && first == i)
            FV_LOG(INFO, MODEL, "event=quantized form=%s weights=%d bytes=%zu",
                   fv_stored_name(&ck->used[i].stored), n, bytes);
    }
}

/* Finds out whether files have each expert's matrices by themselves: those of quantized mixtures do, also where the
 * original has all experts of a layer together. */
static fv_status find_experts(fv_checkpoint *ck) {
    fv_text_config *t = &ck->cfg.text;
    const int32_t run = t->recurrent.n, n_layer = t->n_layer * (run + 1);
    char prefix[FV_TENSOR_NAME_MAX];
    int32_t layer = 0;
    if (t->n_expert == 0 || t->experts_apart) return FV_OK;
    while (layer < t->n_layer && !t->sparse[layer]) layer++;
    int n = snprintf(prefix, sizeof prefix, "text.layers.%d.%s.0.", layer * (run + 1) + run,
                     fv_tensor_specs_experts(t));
    for (int32_t i = 0; i < fv_shards_tensors(ck->shards) && !t->experts_apart; i++)
        t->experts_apart = !strncmp(fv_shards_at(ck->shards, i)->canonical, prefix, (size_t)n);
    if (!t->experts_apart) return FV_OK;
    t->experts_transposed = false;
    if ((int64_t)n_layer * t->n_expert <= EXPERTS_APART_MAX) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: %d layers of %d experts, each with tensors of its own, are more than %d",
                   ck->dir, n_layer, t->n_expert, EXPERTS_APART_MAX);
}

fv_status fv_checkpoint_open_tensors(fv_checkpoint *ck) {
    const fv_model_config *cfg = &ck->cfg;
    FV_TRY(find_experts(ck));
    FV_TRY(fv_tensor_specs_build(cfg, false, &ck->manifest, &ck->n_manifest));
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_manifest, ck->used));
    FV_TRY(FV_ARENA_NEW(&ck->arena, fv_text_layers(&cfg->text), ck->text.layer));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->text.n_layer * cfg->text.recurrent.n, ck->text.recurrent));
    if (cfg->text.experts_apart)
        FV_TRY(FV_ARENA_NEW(&ck->arena,
                            cfg->text.n_layer * (cfg->text.recurrent.n + 1) * cfg->text.n_expert,
                            ck->text.expert));
    FV_TRY(FV_ARENA_NEW(&ck->arena, fv_text_layers(&cfg->text), ck->fused));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->vision.n_layer, ck->vision.layer));
    FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->vision.n_deepstack, ck->vision.deepstack));
    if (cfg->video_tower) FV_TRY(FV_ARENA_NEW(&ck->arena, cfg->vision.n_layer, ck->video.layer));
    fv_compressed compressed;
    FV_TRY(fv_compressed_parse(ck->config_text, ck->config_bytes, "config.json", &compressed));
    FV_TRY(fv_stored_parse(ck->config_text, ck->config_bytes, "config.json", &ck->stored));
    const fv_tensor_spec *absent_half = NULL; /* half of a tied pair */
    for (int32_t i = 0; i < ck->n_manifest; i++) {
        const fv_tensor_spec *e = &ck->manifest[i];
        fv_used_tensor *u = &ck->used[ck->n_used];
        const fv_shard_tensor *integers;
        FV_TRY(fv_stored_find(&ck->stored, ck->shards, e, &u->stored, &integers));
        if (!integers) integers = fv_compressed_find(ck->shards, e);
        const fv_shard_tensor *t = integers ? integers : find_tensor(ck, e->name);
        bool in_pair = e->role == FV_ROLE_HEAD || !strcmp(e->name, "text.embed_tokens.weight");
        if (!t && e->optional) continue;
        if (!t) {
            if (!in_pair || !cfg->text.tied_head || absent_half) return fail_missing(ck, e);
            absent_half = e;
            continue;
        }
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
        if (e->part == FV_PART_TEXT && e->offset == offsetof(fv_text_weights, input_table))
            ck->bytes_table = fv_checkpoint_tensor_bytes(u);
        else
            ck->bytes += fv_checkpoint_tensor_bytes(u);
        *fv_checkpoint_slot(ck, e) = u->view;
    }
    tie_head(ck);
    log_stored(ck);
    if (!ck->headers_only) FV_TRY(fv_checkpoint_split_fused(ck));
    return refuse_leftover(ck);
}
