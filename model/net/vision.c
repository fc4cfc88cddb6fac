/* The vision tower. Tiles of a batch are sequences of one ragged attention call, as prompts are in
 * the decoder. A patch convolution is a matrix product over unfolded patches. */
#include "model/net/vision.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "kernels/tier.h"
#include "model/net/vision_internal.h"

/* Number of tiles that go through the tower together: enough to fill the cores or a GPU, few enough
 * that their activations are small beside the weights. */
enum { TILES_AT_ONCE = 8 };

/* ---- the tower ------------------------------------------------------------------------- */

/* Ranges of rows, each of which attends to itself. */
typedef struct runs {
    int32_t n;
    fv_attn_seq *attn;      /* [n] */
    fv_kv_write_seq *write; /* [n] */
} runs;

typedef struct tower_scratch {
    fv_tensor x, h, q, k, v, o, m; /* m: FFN */
    fv_tensor gate, cos, sin;      /* with gated, with RoPE */
    fv_tensor features;            /* [n * visual tokens, feature width] */
    fv_tensor stacked;             /* rows of x that go to a deepstack connector */
    const int32_t *kept;           /* rows of x that are features, in the order of features */
    int32_t n_kept;
    fv_tensor patches; /* [n * P, 3 p p] unfolded pixels */
    fv_tensor one;     /* [1, 1] = 1 */
    fv_tensor factors; /* [1, d], with layer_scale */
    fv_buf kv;         /* keys and values of one layer */
    int32_t *order;    /* [P] raster index of each row's patch */
    int32_t n_window;  /* windows of a tile */
    int32_t *window;   /* [n_window] rows of each window */
    runs tiles, windows;
} tower_scratch;

/* Type of keys and values: that to which products round them anyway. */
static fv_dtype kv_dtype(const fv_vision *v) {
    if (v->be->compute == FV_COMPUTE_BF16) return FV_BF16;
    const fv_dtype of = v->w.layer[0].q.dtype;
    if (fv_backend_tier(v->be) == FV_TIER_EXACT || (of != FV_BF16 && of != FV_F16)) return FV_F32;
    return of;
}

fv_status fv_vision_linear(fv_vision *v, fv_tensor x, fv_tensor w, fv_tensor b, fv_tensor y,
                           bool accumulate) {
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{w, b, y, accumulate}}};
    return v->be->ops->linear(v->be, &a);
}

fv_status fv_vision_activate(fv_vision *v, fv_activation act, fv_tensor x) {
    fv_activate_args a = {.act = act, .x = x, .y = x};
    return v->be->ops->activate(v->be, &a);
}

/* Norm of a layer: RMSNorm or LayerNorm. */
static fv_status layer_norm(fv_vision *v, fv_tensor x, fv_tensor w, fv_tensor b, fv_tensor y) {
    fv_norm_args a = {
        .x = x, .w = w, .b = b, .y = y, .eps = v->cfg->ln_eps, .rms = v->cfg->rms_norm};
    return v->be->ops->norm(v->be, &a);
}

static size_t pixels_of(fv_layout_size size) { return 3 * (size_t)size.w * (size_t)size.h; }

/* Unfolds pixels [shown, 3, h, w] to patch rows, whose columns are in the kernel's order (channel,
 * frame, y, x). */
static void unfold(const fv_vision *v, fv_layout_size size, int32_t shown, const int32_t *order,
                   const float *pixels, float *out) {
    int32_t patch = v->cfg->patch, frames = v->cfg->two_frames ? 2 : 1;
    for (int32_t i = 0; i < fv_vision_patches(v); i++) {
        int32_t py = order[i] / v->cols, px = order[i] % v->cols;
        for (int32_t row = 0; row < 3 * frames * patch; row++, out += patch) {
            int32_t c = row / patch / frames, y = row % patch;
            int32_t frame = row / patch % frames % shown;
            memcpy(out,
                   pixels + (size_t)frame * pixels_of(size) +
                       ((size_t)c * (size_t)size.h + (size_t)(py * patch + y)) * (size_t)size.w +
                       (size_t)(px * patch),
                   (size_t)patch * sizeof *out);
        }
    }
}

/* x += positions, in the memory of keys and values. */
static fv_status add_positions(fv_vision *v, int32_t n, tower_scratch *s) {
    fv_tensor rows = fv_tensor_of(s->kv.data, FV_F32, s->x.rows, s->x.cols);
    fv_activate_args add = {.act = FV_ACT_NONE, .x = rows, .y = s->x, .accumulate = true};
    FV_TRY(fv_vision_positions(v, s->order, n, rows));
    return v->be->ops->activate(v->be, &add);
}

/* x = [cls; patches W^T + b] + position, then the first LayerNorm. Position rows are written first
 * and the products added to them; CLS is added as the product of its column with 1. */
static fv_status embed(fv_vision *v, fv_layout_size size, int32_t frames, const float *pixels,
                       int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    fv_device *dev = v->be->device;
    int32_t P = fv_vision_patches(v), T = fv_vision_rows(v), width = fv_vision_patch_width(c), *ids;
    float *unfolded;
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)n * (size_t)P * (size_t)width, unfolded));
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)n * (size_t)T, ids));
    for (int32_t i = 0; i < n; i++) {
        const float *from = pixels + (size_t)(i * frames) * pixels_of(size);
        float *to = unfolded + (size_t)i * (size_t)P * (size_t)width;
        if (c->channels_last)
            fv_vision_unfold_last(v, size, s->order, from, to);
        else
            unfold(v, size, frames, s->order, from, to);
    }
    for (int32_t i = 0; v->position && i < n * T; i++) ids[i] = v->position[i % T];
    size_t bytes = (size_t)n * (size_t)P * (size_t)width * sizeof *unfolded;
    FV_TRY(dev->ops->copy_async(dev, s->patches.data, unfolded, bytes));
    if (c->position_axis)
        return fv_vision_embed_axes(v, s->patches, s->order,
                                    fv_tensor_of(s->kv.data, FV_F32, n * P, c->d_model), s->x);
    static const float one = 1;
    FV_TRY(dev->ops->copy_async(dev, s->one.data, &one, sizeof one));
    fv_index_select_args positions = {.table = v->w.position, .y = s->x, .ids = ids};
    if (v->position) FV_TRY(v->be->ops->index_select(v->be, &positions));
    if (v->grid && !c->norm_patches) FV_TRY(fv_vision_positions(v, s->order, n, s->x));
    fv_tensor cls = v->w.cls;
    cls.rows = cls.cols;
    cls.cols = cls.ld = 1;
    for (int32_t i = 0; i < n; i++) {
        fv_tensor x = fv_tensor_rows(s->x, i * T, T);
        if (c->class_token)
            FV_TRY(fv_vision_linear(v, s->one, cls, (fv_tensor){0}, fv_tensor_rows(x, 0, 1), true));
        FV_TRY(fv_vision_linear(v, fv_tensor_rows(s->patches, i * P, P), v->w.patch,
                                v->w.patch_bias, fv_tensor_rows(x, T - P, P),
                                v->position || (v->grid && !c->norm_patches)));
    }
    if (c->pre_norm) FV_TRY(layer_norm(v, s->x, v->w.pre_norm, v->w.pre_norm_bias, s->x));
    return v->grid && c->norm_patches ? add_positions(v, n, s) : FV_OK;
}

/* Full attention inside each run: one segment, nothing masked. */
static fv_status attend(fv_vision *v, const runs *r, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t h = 0; h < c->n_head; h++) r->write[i].tables[h].len = 0;
    fv_kv_write_args put = {.k = s->k,
                            .v = s->v,
                            .kv_dtype = kv_dtype(v),
                            .n_kv = c->n_head,
                            .d_head = c->d_head,
                            .n_seq = r->n,
                            .seqs = r->write};
    FV_TRY(v->be->ops->kv_write(v->be, &put));
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t h = 0; h < c->n_head; h++) r->write[i].tables[h].len = r->write[i].n_rows;
    fv_attn_args a = {.q = s->q,
                      .o = s->o,
                      .kv_dtype = kv_dtype(v),
                      .n_head = c->n_head,
                      .n_kv = c->n_head,
                      .d_head = c->d_head,
                      .n_seq = r->n,
                      .scale = c->head_norms ? 1.0f : 1.0f / sqrtf((float)c->d_head),
                      .seqs = r->attn};
    return v->be->ops->attention(v->be, &a);
}

/* Norms each head of x [n, H D]. */
static fv_status norm_heads(fv_vision *v, fv_tensor x, fv_tensor w) {
    const fv_vision_config *c = v->cfg;
    fv_tensor heads = fv_tensor_of(x.data, x.dtype, x.rows * c->n_head, c->d_head);
    return layer_norm(v, heads, w, (fv_tensor){0}, heads);
}

static fv_status norm_queries_keys(fv_vision *v, const fv_vision_layer *w, tower_scratch *s) {
    if (v->cfg->qk_norm_heads) {
        FV_TRY(norm_heads(v, s->q, w->q_norm));
        return norm_heads(v, s->k, w->k_norm);
    }
    if (!v->cfg->qk_norm) return FV_OK;
    fv_norm_args q = {.x = s->q, .w = w->q_norm, .y = s->q, .eps = 1e-6F, .rms = true};
    fv_norm_args k = {.x = s->k, .w = w->k_norm, .y = s->k, .eps = 1e-6F, .rms = true};
    FV_TRY(v->be->ops->norm(v->be, &q));
    return v->be->ops->norm(v->be, &k);
}

/* cos and sin [n * T, D/2] of all patches; the angles in f32, as in transformers. */
static fv_status make_angles(fv_vision *v, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    fv_device *dev = v->be->device;
    int32_t T = fv_vision_rows(v), half = c->d_head / 2;
    float *cosine, *sine;
    if (c->rope == FV_TOWER_ROPE_NONE) return FV_OK;
    size_t count = (size_t)n * (size_t)T * (size_t)half;
    FV_TRY(FV_ARENA_NEW(&v->host, count, cosine));
    FV_TRY(FV_ARENA_NEW(&v->host, count, sine));
    for (int32_t k = 0; k < half; k++) {
        bool across = k >= half / 2;
        int32_t i = 4 * (across ? k - half / 2 : k);
        if (across && c->rope == FV_TOWER_ROPE_AXIAL) i += 2;
        float f = 1.0F / powf(c->rope_theta, (float)i / (float)c->d_head);
        for (int32_t r = 0; r < n * T; r++) {
            int32_t at = s->order[r % T];
            float angle = (float)(across ? at % v->cols : at / v->cols) * f;
            cosine[(size_t)r * (size_t)half + (size_t)k] = cosf(angle);
            sine[(size_t)r * (size_t)half + (size_t)k] = sinf(angle);
        }
    }
    FV_TRY(dev->ops->copy_async(dev, s->cos.data, cosine, count * sizeof *cosine));
    return dev->ops->copy_async(dev, s->sin.data, sine, count * sizeof *sine);
}

static fv_status turn(fv_vision *v, tower_scratch *s) {
    if (v->cfg->rope == FV_TOWER_ROPE_NONE) return FV_OK;
    fv_rope_args q = {.x = s->q, .cos = s->cos, .sin = s->sin, .n_head = v->cfg->n_head}, k = q;
    k.x = s->k;
    FV_TRY(v->be->ops->rope(v->be, &q));
    return v->be->ops->rope(v->be, &k);
}

/* m = act(fc1 h), or act(gate h) * fc1 h. */
static fv_status feed(fv_vision *v, const fv_vision_layer *w, tower_scratch *s) {
    if (!v->cfg->gated) {
        FV_TRY(fv_vision_linear(v, s->h, w->fc1, w->fc1_bias, s->m, false));
        return fv_vision_activate(v, v->cfg->act, s->m);
    }
    fv_linear_args both = {
        .x = s->h,
        .n_part = 2,
        .part = {{w->gate, w->gate_bias, s->gate, false}, {w->fc1, w->fc1_bias, s->m, false}}};
    fv_activate_args a = {.act = v->cfg->act, .x = s->gate, .gate = s->m, .y = s->m};
    if (v->cfg->clipped) {
        FV_TRY(fv_vision_linear_clipped(v, s->h, s->q, w->gate, &w->gate_clip, s->gate));
        FV_TRY(fv_vision_linear_clipped(v, s->h, s->q, w->fc1, &w->fc1_clip, s->m));
        return v->be->ops->activate(v->be, &a);
    }
    FV_TRY(v->be->ops->linear(v->be, &both));
    return v->be->ops->activate(v->be, &a);
}

/* x = x + norm(y W^T); a clipped y is overwritten. */
static fv_status add_normed(fv_vision *v, fv_tensor y, fv_tensor w, const fv_vision_clip *clip,
                            fv_tensor by, tower_scratch *s) {
    fv_activate_args add = {.act = FV_ACT_NONE, .x = s->h, .y = s->x, .accumulate = true};
    if (v->cfg->clipped)
        FV_TRY(fv_vision_linear_clipped(v, y, y, w, clip, s->h));
    else
        FV_TRY(fv_vision_linear(v, y, w, (fv_tensor){0}, s->h, false));
    FV_TRY(layer_norm(v, s->h, by, (fv_tensor){0}, s->h));
    return v->be->ops->activate(v->be, &add);
}

/* x = x + factors * (y W^T + b) */
static fv_status add_to_x(fv_vision *v, fv_tensor y, fv_tensor w, fv_tensor b, fv_tensor factors,
                          tower_scratch *s) {
    if (!v->cfg->layer_scale) return fv_vision_linear(v, y, w, b, s->x, true);
    int32_t row = 0;
    fv_index_select_args widen = {.table = factors, .y = s->factors, .ids = &row};
    fv_activate_args add = {
        .act = FV_ACT_NONE, .x = s->h, .gate = s->factors, .y = s->x, .accumulate = true};
    add.gate.rows = s->h.rows;
    add.gate.ld = 0;
    FV_TRY(fv_vision_linear(v, y, w, b, s->h, false));
    FV_TRY(v->be->ops->index_select(v->be, &widen));
    return v->be->ops->activate(v->be, &add);
}

/* Makes queries, keys and values of s->h. */
static fv_status project(fv_vision *v, const fv_vision_layer *w, tower_scratch *s) {
    fv_linear_args in = {.x = s->h,
                         .n_part = 3,
                         .part = {{w->q, w->q_bias, s->q, false},
                                  {w->k, w->k_bias, s->k, false},
                                  {w->v, w->v_bias, s->v, false}}};
    if (!v->cfg->clipped) return v->be->ops->linear(v->be, &in);
    FV_TRY(fv_vision_linear_clipped(v, s->h, s->o, w->q, &w->q_clip, s->q));
    FV_TRY(fv_vision_linear_clipped(v, s->h, s->o, w->k, &w->k_clip, s->k));
    return fv_vision_linear_clipped(v, s->h, s->o, w->v, &w->v_clip, s->v);
}

static fv_status layer(fv_vision *v, int32_t l, tower_scratch *s) {
    const fv_vision_layer *w = &v->w.layer[l];
    bool windows = v->cfg->window && !v->cfg->whole[l];
    FV_TRY(layer_norm(v, s->x, w->norm1, w->norm1_bias, s->h));
    FV_TRY(project(v, w, s));
    FV_TRY(norm_queries_keys(v, w, s));
    if (v->cfg->head_norms) FV_TRY(fv_vision_heads(v, w, &s->q, &s->k, s->v, &s->o, &s->h));
    FV_TRY(turn(v, s));
    FV_TRY(attend(v, windows ? &s->windows : &s->tiles, s));
    if (v->cfg->post_norms)
        FV_TRY(add_normed(v, s->o, w->o, &w->o_clip, w->attn_post_norm, s));
    else
        FV_TRY(add_to_x(v, s->o, w->o, w->o_bias, w->scale1, s));
    FV_TRY(layer_norm(v, s->x, w->norm2, w->norm2_bias, s->h));
    FV_TRY(feed(v, w, s));
    if (v->cfg->post_norms) return add_normed(v, s->m, w->fc2, &w->fc2_clip, w->mlp_post_norm, s);
    return add_to_x(v, s->m, w->fc2, w->fc2_bias, w->scale2, s);
}

/* Orders patches by row: raster order, or window by window and token by token inside a window. */
static fv_status make_order(fv_vision *v, tower_scratch *s) {
    int32_t r = v->cfg->merge, cols = v->cols / r, rows = v->rows / r, side = v->cfg->window, n = 0;
    FV_TRY(FV_ARENA_NEW(&v->host, fv_vision_patches(v), s->order));
    for (int32_t i = 0; i < fv_vision_patches(v); i++) s->order[i] = i;
    if (side == 0) return FV_OK;
    FV_TRY(
        FV_ARENA_NEW(&v->host, (cols + side - 1) / side * ((rows + side - 1) / side), s->window));
    for (int32_t top = 0; top < rows; top += side)
        for (int32_t left = 0, before; left < cols; left += side) {
            before = n;
            for (int32_t y = top; y < top + side && y < rows; y++)
                for (int32_t x = left; x < left + side && x < cols; x++)
                    for (int32_t i = 0; i < r * r; i++)
                        s->order[n++] = (y * r + i / r) * v->cols + x * r + i % r;
            s->window[s->n_window++] = n - before;
        }
    return FV_OK;
}

/* Which rows of x are features, in the order of the tokens: each token's merge x merge patches in
 * raster order, after the class row, if that is kept. */
static fv_status choose_rows(fv_vision *v, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    int32_t r = c->merge, cols = v->cols / r, T = fv_vision_rows(v),
            n_patch = cols * (v->rows / r) * r * r;
    int32_t *row, *row_of; /* row of each patch, by raster index */
    s->n_kept = n * (n_patch + c->keep_cls);
    FV_TRY(FV_ARENA_NEW(&v->host, s->n_kept, row));
    FV_TRY(FV_ARENA_NEW(&v->host, fv_vision_patches(v), row_of));
    for (int32_t i = 0; i < fv_vision_patches(v); i++) row_of[s->order[i]] = i;
    s->kept = row;
    for (int32_t t = 0; t < n; t++) {
        if (c->keep_cls) *row++ = t * T;
        for (int32_t i = 0; i < n_patch; i++) {
            int32_t token = i / (r * r), inside = i % (r * r);
            int32_t y = token / cols * r + inside / r, x = token % cols * r + inside % r;
            *row++ = t * T + c->class_token + row_of[y * v->cols + x];
        }
    }
    return FV_OK;
}

/* Copies hidden state `index`, which is now in x, to its columns of the features. */
static fv_status take_features(fv_vision *v, int32_t index, const tower_scratch *s) {
    int32_t d = v->cfg->d_model, n_feature = v->cfg->n_feature_layer;
    fv_tensor y = fv_tensor_of(s->features.data, FV_F32, s->n_kept, d * n_feature);
    y.cols = d;
    for (int32_t f = 0; f < n_feature; f++) {
        if (v->cfg->feature_layer[f] != index) continue;
        fv_index_select_args a = {.table = s->x, .y = y, .ids = s->kept};
        a.y.data = (float *)y.data + (size_t)(f * d);
        FV_TRY(v->be->ops->index_select(v->be, &a));
    }
    return FV_OK;
}

/* ---- a layer's attention ----------------------------------------------------------------- */

/* Computes queries and keys of a layer that is not run. */
static fv_status ask_layer(fv_vision *v, const fv_vision_layer *w, tower_scratch *s) {
    if (!w->q.data || !w->k.data || !w->norm1.data)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "this policy needs the attention of a layer of the vision tower that the "
                       "checkpoint lacks: choose another condense method");
    fv_linear_args in = {.x = s->h,
                         .n_part = 2,
                         .part = {{w->q, w->q_bias, s->q, false}, {w->k, w->k_bias, s->k, false}}};
    FV_TRY(layer_norm(v, s->x, w->norm1, w->norm1_bias, s->h));
    FV_TRY(v->be->ops->linear(v->be, &in));
    return norm_queries_keys(v, w, s);
}

/* Copies rows ids[n] of x to the host as F32, through `buffer`. */
static fv_status bring_rows(fv_vision *v, fv_tensor x, const int32_t *ids, int32_t n, float *buffer,
                            float *to) {
    fv_device *dev = v->be->device;
    fv_index_select_args pick = {
        .table = x, .y = fv_tensor_of(buffer, FV_F32, n, x.cols), .ids = ids};
    FV_TRY(v->be->ops->index_select(v->be, &pick));
    return dev->ops->copy_async(dev, to, buffer, (size_t)n * (size_t)x.cols * sizeof *to);
}

/* Copies q and k of the layer that ran last to the host. */
static fv_status take_capture(fv_vision *v, int32_t n, const tower_scratch *s,
                              const fv_vision_capture *capture) {
    int32_t rows = n * fv_vision_rows(v), *ids, *cls;
    float *buffer = s->kv.data; /* free: the layer no longer needs it */
    FV_TRY(FV_ARENA_NEW(&v->host, rows, ids));
    FV_TRY(FV_ARENA_NEW(&v->host, n, cls));
    for (int32_t r = 0; r < rows; r++) ids[r] = r;
    for (int32_t i = 0; i < n; i++) cls[i] = i * fv_vision_rows(v);
    FV_TRY(bring_rows(v, s->k, ids, rows, buffer, capture->k));
    return bring_rows(v, s->q, cls, n, buffer + (size_t)rows * (size_t)s->k.cols, capture->q);
}

/* ---- scratch --------------------------------------------------------------------------- */

/* Makes n runs, the i-th with n_rows[i % n_each] rows, and block tables for each head that point
 * into one buffer of keys and values. */
static fv_status make_runs(fv_vision *v, const tower_scratch *s, int32_t n, const int32_t *n_rows,
                           int32_t n_each, runs *out) {
    const fv_vision_config *c = v->cfg;
    int32_t T = fv_vision_rows(v), row0 = 0;
    size_t row = (size_t)c->d_head * fv_dtype_bytes(kv_dtype(v));
    char *base = s->kv.data;
    out->n = n;
    FV_TRY(FV_ARENA_NEW(&v->host, n, out->attn));
    FV_TRY(FV_ARENA_NEW(&v->host, n, out->write));
    uint8_t *seg;
    int32_t *slot;
    FV_TRY(FV_ARENA_NEW(&v->host, T, seg));
    FV_TRY(FV_ARENA_NEW(&v->host, T, slot));
    for (int32_t r = 0; r < T; r++) slot[r] = r;
    for (int32_t i = 0; i < n; i++) {
        fv_block_table *tables;
        int32_t rows = n_rows[i % n_each], n_block = (rows + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
        FV_TRY(FV_ARENA_NEW(&v->host, c->n_head, tables));
        for (int32_t h = 0; h < c->n_head; h++, base += 2 * (size_t)rows * row) {
            FV_TRY(FV_ARENA_NEW(&v->host, n_block, tables[h].block));
            for (int32_t b = 0; b < n_block; b++) {
                char *k = base + (size_t)b * FV_KV_BLOCK * row;
                tables[h].block[b] = (fv_kv_block){k, k + (size_t)rows * row};
            }
        }
        out->attn[i] = (fv_attn_seq){.row0 = row0, .n_rows = rows, .n_seg = 1, .tables = tables};
        out->write[i] = (fv_kv_write_seq){
            .row0 = row0, .n_rows = rows, .n_seg = 1, .tables = tables, .seg = seg, .slot = slot};
        row0 += rows;
    }
    return FV_OK;
}

static fv_status make_scratch(fv_vision *v, int32_t n, tower_scratch *s) {
    const fv_vision_config *c = v->cfg;
    fv_dtype act = v->be->ops->act;
    int32_t T = fv_vision_rows(v), P = fv_vision_patches(v), rows = n * T, d = c->d_model;
    int32_t width = fv_vision_patch_width(c),
            out = n * (v->rows / c->merge * (v->cols / c->merge) + c->keep_cls);
    size_t kv_bytes = 2 * (size_t)rows * (size_t)d * sizeof(float);
    FV_TRY(fv_workspace_reset(
        &v->ws, fv_workspace_need(FV_F32, rows, d) + 5 * fv_workspace_need(act, rows, d) +
                    2 * fv_workspace_need(act, rows, c->d_ffn) +
                    2 * fv_workspace_need(FV_F32, rows, c->d_head / 2) +
                    2 * fv_workspace_need(FV_F32, out, fv_vision_feature_width(c)) +
                    fv_workspace_need(FV_F32, n * P, width) + fv_workspace_need(FV_F32, 1, 1) +
                    fv_workspace_need(FV_F32, 1, d) +
                    (size_t)(1 + c->n_deepstack) * fv_connector_need(v, out) +
                    fv_workspace_need(FV_F32, 2 * rows, d)));
    s->x = fv_workspace_cut(&v->ws, FV_F32, rows, d);
    s->h = fv_workspace_cut(&v->ws, act, rows, d);
    s->q = fv_workspace_cut(&v->ws, act, rows, d);
    s->k = fv_workspace_cut(&v->ws, act, rows, d);
    s->v = fv_workspace_cut(&v->ws, act, rows, d);
    s->o = fv_workspace_cut(&v->ws, act, rows, d);
    s->m = fv_workspace_cut(&v->ws, act, rows, c->d_ffn);
    s->gate = fv_workspace_cut(&v->ws, act, rows, c->d_ffn);
    s->cos = fv_workspace_cut(&v->ws, FV_F32, rows, c->d_head / 2);
    s->sin = fv_workspace_cut(&v->ws, FV_F32, rows, c->d_head / 2);
    s->features = fv_workspace_cut(&v->ws, FV_F32, out, fv_vision_feature_width(c));
    s->stacked =
        fv_workspace_cut(&v->ws, FV_F32, c->n_deepstack ? out : 0, fv_vision_feature_width(c));
    s->patches = fv_workspace_cut(&v->ws, FV_F32, n * P, width);
    s->one = fv_workspace_cut(&v->ws, FV_F32, 1, 1);
    s->factors = fv_workspace_cut(&v->ws, FV_F32, 1, d);
    s->kv = (fv_buf){.data = fv_workspace_cut(&v->ws, FV_F32, 2 * rows, d).data, .bytes = kv_bytes};
    FV_TRY(make_order(v, s));
    FV_TRY(choose_rows(v, n, s));
    FV_TRY(make_runs(v, s, n, &T, 1, &s->tiles));
    return make_runs(v, s, n * s->n_window, s->window, s->n_window, &s->windows);
}

/* Runs the deepstack connector of hidden state `index`, which is now in x. */
static fv_status take_deepstack(fv_vision *v, int32_t index, const tower_scratch *s,
                                fv_tensor embeds) {
    for (int32_t i = 0; embeds.data && i < v->cfg->n_deepstack; i++) {
        if (v->cfg->deepstack[i] != index) continue;
        fv_index_select_args rows = {
            .table = s->x,
            .y = fv_tensor_of(s->stacked.data, FV_F32, s->n_kept, v->cfg->d_model),
            .ids = s->kept};
        FV_TRY(v->be->ops->index_select(v->be, &rows));
        FV_TRY(fv_connect_deepstack(v, i, s->stacked, embeds));
    }
    return FV_OK;
}

static fv_status give_features(fv_vision *v, const tower_scratch *s, const fv_vision_out *out) {
    fv_device *dev = v->be->device;
    fv_tensor f = s->features;
    if (out->features.data)
        FV_TRY(dev->ops->copy_async(dev, out->features.data, f.data,
                                    (size_t)f.rows * (size_t)f.ld * sizeof(float)));
    if (out->embeds.data) FV_TRY(fv_connect(v, f, out->embeds));
    return v->be->ops->sync(v->be);
}

/* ---- the whole tower ------------------------------------------------------------------- */

/* Captures layer l, which ran last. */
static fv_status take_captures(fv_vision *v, int32_t l, int32_t n, const tower_scratch *s,
                               const fv_vision_out *out) {
    for (int32_t i = 0; i < out->n_capture; i++)
        if (out->capture[i].layer == l) FV_TRY(take_capture(v, n, s, &out->capture[i]));
    return FV_OK;
}

static bool wants_next(const fv_vision *v, const fv_vision_out *out) {
    bool wants = false;
    for (int32_t i = 0; i < out->n_capture; i++)
        wants = wants || out->capture[i].layer == v->n_layer;
    return wants;
}

static fv_status last_norm(fv_vision *v, fv_tensor x) {
    fv_norm_args a = {.x = x,
                      .w = v->w.post_norm,
                      .b = v->w.post_norm_bias,
                      .y = x,
                      .eps = v->cfg->ln_eps,
                      .rms = v->cfg->post_norm_rms};
    return v->be->ops->norm(v->be, &a);
}

static fv_status run_layers(fv_vision *v, int32_t n, tower_scratch *s, const fv_vision_out *out) {
    for (int32_t l = 0; l < v->n_layer; l++) {
        FV_TRY(layer(v, l, s));
        if (v->cfg->post_norm && l + 1 == v->cfg->n_layer) FV_TRY(last_norm(v, s->x));
        FV_TRY(take_features(v, l + 1, s));
        FV_TRY(take_deepstack(v, l + 1, s, out->embeds));
        FV_TRY(take_captures(v, l, n, s, out));
        atomic_fetch_add_explicit(&v->n_layer_run, 1, memory_order_relaxed);
        if (v->between) v->between(v->user);
    }
    if (!wants_next(v, out)) return FV_OK;
    FV_TRY(ask_layer(v, &v->w.layer[v->n_layer], s));
    return take_captures(v, v->n_layer, n, s, out);
}

int32_t fv_vision_layers(const fv_vision *v) { return v->n_layer; }

void fv_vision_between(fv_vision *v, void (*between)(void *user), void *user) {
    v->between = between;
    v->user = user;
}

static fv_status encode(fv_vision *v, fv_layout_size size, int32_t frames, const float *pixels,
                        int32_t n, const fv_vision_out *out) {
    tower_scratch s = {0};
    fv_arena_reset(&v->host);
    FV_TRY(make_scratch(v, n, &s));
    FV_TRY(make_angles(v, n, &s));
    FV_TRY(embed(v, size, frames, pixels, n, &s));
    FV_TRY(take_features(v, 0, &s));
    FV_TRY(run_layers(v, n, &s, out));
    return give_features(v, &s, out);
}

fv_status fv_vision_encode(fv_vision *v, const float *pixels, int32_t n, const fv_vision_out *out) {
    return fv_vision_encode_sized(v, (fv_layout_size){v->cfg->image, v->cfg->image}, 1, pixels, n,
                                  out);
}

fv_status fv_vision_encode_sized(fv_vision *v, fv_layout_size size, int32_t frames,
                                 const float *pixels, int32_t n, const fv_vision_out *out) {
    int32_t per_tile = fv_vision_tokens_of(v->cfg, size.w, size.h);
    size_t d = (size_t)v->cfg->d_model;
    assert(v->cfg->any_size || (size.w == v->cfg->image && size.h == v->cfg->image));
    assert(!out->embeds.data || out->embeds.rows == n * per_tile);
    v->cols = size.w / v->cfg->patch;
    v->rows = size.h / v->cfg->patch;
    assert(out->n_capture <= FV_VISION_CAPTURES_MAX);
    if (out->n_capture && !v->cfg->class_token)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "this policy asks for the attention of the vision tower's class token, and "
                       "this checkpoint's tower has none");
    for (int32_t at = 0, now; at < n; at += now) {
        now = n - at < TILES_AT_ONCE ? n - at : TILES_AT_ONCE;
        fv_vision_out part = *out;
        fv_vision_capture capture[FV_VISION_CAPTURES_MAX];
        int32_t row0 = at * per_tile, rows = now * per_tile;
        if (out->features.data) part.features = fv_tensor_rows(out->features, row0, rows);
        if (out->embeds.data) part.embeds = fv_tensor_rows(out->embeds, row0, rows);
        for (int32_t i = 0; i < out->n_capture; i++) {
            capture[i] = out->capture[i];
            assert(capture[i].layer >= 0 && capture[i].layer <= v->n_layer);
            capture[i].q += (size_t)at * d;
            capture[i].k += (size_t)at * (size_t)fv_vision_rows(v) * d;
        }
        part.capture = capture;
        FV_TRY(
            encode(v, size, frames, pixels + (size_t)(at * frames) * pixels_of(size), now, &part));
    }
    return FV_OK;
}

uint64_t fv_vision_layers_run(const fv_vision *v) {
    return atomic_load_explicit(&v->n_layer_run, memory_order_relaxed);
}
