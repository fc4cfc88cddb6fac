/* CLIP vision tower and LLaVA projector. Images of a batch are sequences of one ragged
 * attention call, as prompts are in the decoder; a patch convolution is a matrix product over
 * unfolded patches. */
#include "model/net/vision.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "model/net/workspace.h"

struct fv_vision {
    fv_backend *be;
    const fv_vision_config *cfg;
    fv_vision_weights w;
    fv_projector_weights p;
    int32_t n_layer; /* layers that are run */
    fv_workspace ws;
    fv_arena host;
    atomic_ullong n_layer_run;
};

static int32_t tokens(const fv_vision *v) { /* rows per image inside the tower: CLS and patches */
    int32_t side = v->cfg->image / v->cfg->patch;
    return 1 + side * side;
}

/* ---- opening --------------------------------------------------------------------------- */

static fv_status load_tensors(fv_workspace *ws, const void *in, void *out, size_t bytes) {
    const fv_tensor *from = in;
    fv_tensor *to = out;
    for (size_t i = 0; i < bytes / sizeof *from; i++)
        FV_TRY(fv_workspace_weight(ws, &from[i], &to[i]));
    return FV_OK;
}

static fv_status load_weights(fv_vision *v, const fv_vision_weights *tower,
                              const fv_projector_weights *projector) {
    int32_t n_layer = v->n_layer;
    if (n_layer < v->cfg->n_layer) n_layer++; /* as far as it is there */
    v->w.layer = calloc((size_t)v->n_layer + 1, sizeof *v->w.layer);
    if (!v->w.layer) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    FV_TRY(fv_workspace_weight(&v->ws, &tower->cls, &v->w.cls));
    FV_TRY(fv_workspace_weight(&v->ws, &tower->patch, &v->w.patch));
    FV_TRY(fv_workspace_weight(&v->ws, &tower->position, &v->w.position));
    FV_TRY(fv_workspace_weight(&v->ws, &tower->pre_norm, &v->w.pre_norm));
    FV_TRY(fv_workspace_weight(&v->ws, &tower->pre_norm_bias, &v->w.pre_norm_bias));
    for (int32_t l = 0; l < n_layer; l++)
        FV_TRY(load_tensors(&v->ws, &tower->layer[l], &v->w.layer[l], sizeof *tower->layer));
    return load_tensors(&v->ws, projector, &v->p, sizeof *projector);
}

fv_status fv_vision_open(fv_backend *be, const fv_vision_config *cfg,
                         const fv_vision_weights *tower, const fv_projector_weights *projector,
                         fv_vision **out) {
    fv_vision *v = calloc(1, sizeof *v);
    if (!v) return FV_FAIL(FV_ENOMEM, "out of memory for the vision tower");
    *v = (fv_vision){.be = be, .cfg = cfg, .ws = {.be = be}};
    for (int32_t i = 0; i < cfg->n_feature_layer; i++)
        if (cfg->feature_layer[i] > v->n_layer) v->n_layer = cfg->feature_layer[i];
    fv_status st = load_weights(v, tower, projector);
    if (st != FV_OK) {
        fv_vision_close(v);
        return st;
    }
    *out = v;
    return FV_OK;
}

void fv_vision_close(fv_vision *v) {
    if (!v) return;
    fv_workspace_fini(&v->ws);
    fv_arena_fini(&v->host);
    free(v->w.layer);
    free(v);
}

/* ---- the tower ------------------------------------------------------------------------- */

typedef struct tower_scratch {
    fv_tensor x, h, q, k, v, o, m; /* m: FFN */
    fv_tensor features;            /* [n, tokens, feature width] */
    fv_tensor patches;             /* [n * P, 3 p p] */
    fv_tensor one;                 /* [1, 1] = 1 */
    fv_buf kv;                     /* keys and values of one layer */
    fv_attn_seq *attn;             /* [n] */
    fv_kv_write_seq *write;        /* [n] */
} tower_scratch;

/* Of keys and values: products in bf16 would round them to it anyway. */
static fv_dtype kv_dtype(const fv_vision *v) {
    return v->be->compute == FV_COMPUTE_BF16 ? FV_BF16 : FV_F32;
}

static fv_status norm(fv_vision *v, fv_tensor x, fv_tensor w, fv_tensor b, fv_tensor y) {
    fv_norm_args a = {.x = x, .w = w, .b = b, .y = y, .eps = v->cfg->ln_eps};
    return v->be->ops->norm(v->be, &a);
}

static fv_status linear(fv_vision *v, fv_tensor x, fv_tensor w, fv_tensor b, fv_tensor y,
                        bool accumulate) {
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{w, b, y, accumulate}}};
    return v->be->ops->linear(v->be, &a);
}

static fv_status activate(fv_vision *v, fv_activation act, fv_tensor x) {
    fv_activate_args a = {.act = act, .x = x, .y = x};
    return v->be->ops->activate(v->be, &a);
}

/* Unfolds pixels [3, S, S] into patch rows, columns in the order (channel, y, x) of the kernel. */
static void unfold(const float *pixels, int32_t size, int32_t patch, float *out) {
    int32_t side = size / patch;
    for (int32_t py = 0; py < side; py++)
        for (int32_t px = 0; px < side; px++)
            for (int32_t c = 0; c < 3; c++)
                for (int32_t y = 0; y < patch; y++, out += patch)
                    memcpy(out,
                           pixels +
                               ((size_t)c * (size_t)size + (size_t)(py * patch + y)) *
                                   (size_t)size +
                               (size_t)(px * patch),
                           (size_t)patch * sizeof *out);
}

/* x = [cls; patches W^T] + position, then the first LayerNorm. Position rows are put first and
 * the products added to them; CLS is added as the product of its column with 1. */
static fv_status embed(fv_vision *v, const float *pixels, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    fv_device *dev = v->be->device;
    int32_t P = tokens(v) - 1, width = 3 * c->patch * c->patch, *ids;
    float *unfolded;
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)n * (size_t)P * (size_t)width, unfolded));
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)n * (size_t)(P + 1), ids));
    for (int32_t i = 0; i < n; i++)
        unfold(pixels + (size_t)i * 3 * (size_t)c->image * (size_t)c->image, c->image, c->patch,
               unfolded + (size_t)i * (size_t)P * (size_t)width);
    for (int32_t i = 0; i < n * (P + 1); i++) ids[i] = i % (P + 1);
    size_t bytes = (size_t)n * (size_t)P * (size_t)width * sizeof *unfolded;
    FV_TRY(dev->ops->copy_async(dev, s->patches.data, unfolded, bytes));
    static const float one = 1;
    FV_TRY(dev->ops->copy_async(dev, s->one.data, &one, sizeof one));
    fv_index_select_args positions = {.table = v->w.position, .y = s->x, .ids = ids};
    FV_TRY(v->be->ops->index_select(v->be, &positions));
    fv_tensor cls = v->w.cls;
    cls.rows = cls.cols;
    cls.cols = cls.ld = 1;
    for (int32_t i = 0; i < n; i++) {
        fv_tensor x = fv_tensor_rows(s->x, i * (P + 1), P + 1);
        FV_TRY(linear(v, s->one, cls, (fv_tensor){0}, fv_tensor_rows(x, 0, 1), true));
        FV_TRY(linear(v, fv_tensor_rows(s->patches, i * P, P), v->w.patch, (fv_tensor){0},
                      fv_tensor_rows(x, 1, P), true));
    }
    return norm(v, s->x, v->w.pre_norm, v->w.pre_norm_bias, s->x);
}

/* Full attention inside each image: one segment, nothing masked. */
static fv_status attend(fv_vision *v, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    for (int32_t i = 0; i < n; i++)
        for (int32_t h = 0; h < c->n_head; h++) s->write[i].tables[h].len = 0;
    fv_kv_write_args put = {.k = s->k,
                            .v = s->v,
                            .kv_dtype = kv_dtype(v),
                            .n_kv = c->n_head,
                            .d_head = c->d_head,
                            .n_seq = n,
                            .seqs = s->write};
    FV_TRY(v->be->ops->kv_write(v->be, &put));
    for (int32_t i = 0; i < n; i++)
        for (int32_t h = 0; h < c->n_head; h++) s->write[i].tables[h].len = tokens(v);
    fv_attn_args a = {.q = s->q,
                      .o = s->o,
                      .kv_dtype = kv_dtype(v),
                      .n_head = c->n_head,
                      .n_kv = c->n_head,
                      .d_head = c->d_head,
                      .n_seq = n,
                      .scale = 1.0f / sqrtf((float)c->d_head),
                      .seqs = s->attn};
    return v->be->ops->attention(v->be, &a);
}

static fv_status layer(fv_vision *v, const fv_vision_layer *w, int32_t n, tower_scratch *s) {
    FV_TRY(norm(v, s->x, w->norm1, w->norm1_bias, s->h));
    fv_linear_args in = {.x = s->h,
                         .n_part = 3,
                         .part = {{w->q, w->q_bias, s->q, false},
                                  {w->k, w->k_bias, s->k, false},
                                  {w->v, w->v_bias, s->v, false}}};
    FV_TRY(v->be->ops->linear(v->be, &in));
    FV_TRY(attend(v, n, s));
    FV_TRY(linear(v, s->o, w->o, w->o_bias, s->x, true));
    FV_TRY(norm(v, s->x, w->norm2, w->norm2_bias, s->h));
    FV_TRY(linear(v, s->h, w->fc1, w->fc1_bias, s->m, false));
    FV_TRY(activate(v, v->cfg->act, s->m));
    return linear(v, s->m, w->fc2, w->fc2_bias, s->x, true);
}

/* Hidden state `index` is now in x: copy it to its columns of the features. */
static fv_status take_features(fv_vision *v, int32_t index, const tower_scratch *s) {
    fv_device *dev = v->be->device;
    int32_t d = v->cfg->d_model;
    for (int32_t f = 0; f < v->cfg->n_feature_layer; f++) {
        if (v->cfg->feature_layer[f] != index) continue;
        for (int32_t r = 0; r < s->x.rows; r++)
            FV_TRY(dev->ops->copy_async(
                dev,
                (float *)s->features.data + (size_t)r * (size_t)s->features.ld + (size_t)(f * d),
                (const float *)s->x.data + (size_t)r * (size_t)d, (size_t)d * sizeof(float)));
    }
    return FV_OK;
}

/* ---- a layer's attention ----------------------------------------------------------------- */

/* Queries and keys of a layer that is not run. */
static fv_status ask_layer(fv_vision *v, const fv_vision_layer *w, tower_scratch *s) {
    if (!w->q.data || !w->k.data || !w->norm1.data)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "this policy asks for the attention of a layer of the vision tower that the "
                       "checkpoint does not have");
    fv_linear_args in = {.x = s->h,
                         .n_part = 2,
                         .part = {{w->q, w->q_bias, s->q, false}, {w->k, w->k_bias, s->k, false}}};
    FV_TRY(norm(v, s->x, w->norm1, w->norm1_bias, s->h));
    return v->be->ops->linear(v->be, &in);
}

/* Rows ids[n] of x to the host as F32, by way of `room`. */
static fv_status bring_rows(fv_vision *v, fv_tensor x, const int32_t *ids, int32_t n, float *room,
                            float *to) {
    fv_device *dev = v->be->device;
    fv_index_select_args pick = {
        .table = x, .y = fv_tensor_of(room, FV_F32, n, x.cols), .ids = ids};
    FV_TRY(v->be->ops->index_select(v->be, &pick));
    return dev->ops->copy_async(dev, to, room, (size_t)n * (size_t)x.cols * sizeof *to);
}

/* What the layer that was run last left in q and k. */
static fv_status take_capture(fv_vision *v, int32_t n, const tower_scratch *s,
                              const fv_vision_capture *capture) {
    int32_t rows = n * tokens(v), *ids, *cls;
    float *room = s->kv.data; /* that layer has done with it */
    FV_TRY(FV_ARENA_NEW(&v->host, rows, ids));
    FV_TRY(FV_ARENA_NEW(&v->host, n, cls));
    for (int32_t r = 0; r < rows; r++) ids[r] = r;
    for (int32_t i = 0; i < n; i++) cls[i] = i * tokens(v);
    FV_TRY(bring_rows(v, s->k, ids, rows, room, capture->k));
    return bring_rows(v, s->q, cls, n, room + (size_t)rows * (size_t)s->k.cols, capture->q);
}

/* ---- scratch --------------------------------------------------------------------------- */

/* Runs of every (image, head): blocks that point into one buffer of keys and values. */
static fv_status make_runs(fv_vision *v, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    int32_t T = tokens(v), n_block = (T + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    size_t row = (size_t)c->d_head * fv_dtype_bytes(kv_dtype(v));
    char *base = s->kv.data;
    FV_TRY(FV_ARENA_NEW(&v->host, n, s->attn));
    FV_TRY(FV_ARENA_NEW(&v->host, n, s->write));
    uint8_t *seg;
    int32_t *slot;
    FV_TRY(FV_ARENA_NEW(&v->host, T, seg));
    FV_TRY(FV_ARENA_NEW(&v->host, T, slot));
    for (int32_t r = 0; r < T; r++) slot[r] = r;
    for (int32_t i = 0; i < n; i++) {
        fv_block_table *runs;
        FV_TRY(FV_ARENA_NEW(&v->host, c->n_head, runs));
        for (int32_t h = 0; h < c->n_head; h++, base += 2 * (size_t)T * row) {
            FV_TRY(FV_ARENA_NEW(&v->host, n_block, runs[h].block));
            for (int32_t b = 0; b < n_block; b++) {
                char *k = base + (size_t)b * FV_KV_BLOCK * row;
                runs[h].block[b] = (fv_kv_block){k, k + (size_t)T * row};
            }
        }
        s->attn[i] = (fv_attn_seq){.row0 = i * T, .n_rows = T, .n_seg = 1, .tables = runs};
        s->write[i] = (fv_kv_write_seq){
            .row0 = i * T, .n_rows = T, .n_seg = 1, .tables = runs, .seg = seg, .slot = slot};
    }
    return FV_OK;
}

static fv_status make_scratch(fv_vision *v, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    fv_dtype act = v->be->ops->act;
    int32_t T = tokens(v), rows = n * T, d = c->d_model, width = 3 * c->patch * c->patch;
    int32_t fw = fv_vision_feature_width(v->cfg);
    size_t kv_bytes = 2 * (size_t)rows * (size_t)d * sizeof(float);
    FV_TRY(fv_workspace_reset(
        &v->ws, fv_workspace_need(FV_F32, rows, d) + 5 * fv_workspace_need(act, rows, d) +
                    fv_workspace_need(act, rows, c->d_ffn) + fv_workspace_need(FV_F32, rows, fw) +
                    fv_workspace_need(FV_F32, n * (T - 1), width) +
                    fv_workspace_need(FV_F32, 1, 1) + fv_workspace_need(act, rows, v->cfg->d_text) +
                    fv_workspace_need(FV_F32, 2 * rows, d)));
    s->x = fv_workspace_cut(&v->ws, FV_F32, rows, d);
    s->h = fv_workspace_cut(&v->ws, act, rows, d);
    s->q = fv_workspace_cut(&v->ws, act, rows, d);
    s->k = fv_workspace_cut(&v->ws, act, rows, d);
    s->v = fv_workspace_cut(&v->ws, act, rows, d);
    s->o = fv_workspace_cut(&v->ws, act, rows, d);
    s->m = fv_workspace_cut(&v->ws, act, rows, c->d_ffn);
    s->features = fv_workspace_cut(&v->ws, FV_F32, rows, fw);
    s->patches = fv_workspace_cut(&v->ws, FV_F32, n * (T - 1), width);
    s->one = fv_workspace_cut(&v->ws, FV_F32, 1, 1);
    s->kv = (fv_buf){.data = fv_workspace_cut(&v->ws, FV_F32, 2 * rows, d).data, .bytes = kv_bytes};
    return make_runs(v, n, s);
}

/* ---- the projector --------------------------------------------------------------------- */

static fv_status project(fv_vision *v, fv_tensor features, fv_tensor h, fv_tensor y) {
    FV_TRY(linear(v, features, v->p.fc1, v->p.fc1_bias, h, false));
    FV_TRY(activate(v, v->cfg->projector_act, h));
    return linear(v, h, v->p.fc2, v->p.fc2_bias, y, false);
}

/* Features of all images, without the class rows where they do not count. */
static fv_status give_features(fv_vision *v, int32_t n, const tower_scratch *s,
                               const fv_vision_out *out) {
    int32_t skip = v->cfg->keep_cls ? 0 : 1, T = tokens(v), kept = T - skip;
    fv_device *dev = v->be->device;
    fv_tensor h = fv_workspace_cut(&v->ws, v->be->ops->act, kept, v->cfg->d_text);
    for (int32_t i = 0; i < n; i++) {
        fv_tensor f = fv_tensor_rows(s->features, i * T + skip, kept);
        if (out->features.data)
            FV_TRY(dev->ops->copy_async(dev, fv_tensor_rows(out->features, i * kept, kept).data,
                                        f.data, (size_t)kept * (size_t)f.ld * sizeof(float)));
        if (out->embeds.data) FV_TRY(project(v, f, h, fv_tensor_rows(out->embeds, i * kept, kept)));
    }
    return v->be->ops->sync(v->be);
}

static fv_status run_layers(fv_vision *v, int32_t n, tower_scratch *s,
                            const fv_vision_capture *capture) {
    for (int32_t l = 0; l < v->n_layer; l++) {
        FV_TRY(layer(v, &v->w.layer[l], n, s));
        FV_TRY(take_features(v, l + 1, s));
        if (capture && capture->layer == l) FV_TRY(take_capture(v, n, s, capture));
        atomic_fetch_add_explicit(&v->n_layer_run, 1, memory_order_relaxed);
    }
    if (!capture || capture->layer < v->n_layer) return FV_OK;
    FV_TRY(ask_layer(v, &v->w.layer[v->n_layer], s));
    return take_capture(v, n, s, capture);
}

int32_t fv_vision_layers(const fv_vision *v) { return v->n_layer; }

fv_status fv_vision_encode(fv_vision *v, const float *pixels, int32_t n, const fv_vision_out *out) {
    assert(!out->embeds.data || out->embeds.rows == n * fv_vision_tokens(v->cfg));
    assert(!out->capture || (out->capture->layer >= 0 && out->capture->layer <= v->n_layer));
    if (n == 0) return FV_OK;
    fv_arena_reset(&v->host);
    tower_scratch s;
    FV_TRY(make_scratch(v, n, &s));
    FV_TRY(embed(v, pixels, n, &s));
    FV_TRY(take_features(v, 0, &s));
    FV_TRY(run_layers(v, n, &s, out->capture));
    return give_features(v, n, &s, out);
}

fv_status fv_vision_project(fv_vision *v, fv_tensor features, fv_tensor embeds) {
    fv_dtype act = v->be->ops->act;
    int32_t n = features.rows, d = v->cfg->d_text;
    if (n == 0) return FV_OK;
    FV_TRY(fv_workspace_reset(&v->ws, fv_workspace_need(act, n, d)));
    FV_TRY(project(v, features, fv_workspace_cut(&v->ws, act, n, d), embeds));
    return v->be->ops->sync(v->be);
}

uint64_t fv_vision_layers_run(const fv_vision *v) {
    return atomic_load_explicit(&v->n_layer_run, memory_order_relaxed);
}
