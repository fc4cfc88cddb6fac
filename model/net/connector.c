/* The connector: maps features of the tower to embeddings of the text model. */
#include <assert.h>

#include "model/net/vision_internal.h"

size_t fv_connector_need(const fv_vision *v, int32_t rows) {
    if (v->cfg->connector == FV_CONNECTOR_LDP)
        return fv_workspace_need(FV_F32, rows * v->cfg->merge * v->cfg->merge, v->p.fc1.rows) +
               2 * fv_workspace_need(FV_F32, rows, v->p.fc1.rows);
    if (v->cfg->connector == FV_CONNECTOR_GLM)
        return 2 * fv_workspace_need(FV_F32, rows, v->cfg->d_text) +
               2 * fv_workspace_need(v->be->ops->act, rows, v->cfg->d_between);
    return fv_workspace_need(v->be->ops->act, rows, v->p.fc1.rows) +
           fv_workspace_need(FV_F32, rows, fv_vision_feature_width(v->cfg)) +
           fv_workspace_need(FV_F32, rows, v->cfg->d_model);
}

/* Averages features [n, merge^2 d], patches side by side, to [n, d]. */
static fv_status pool_features(fv_vision *v, fv_tensor *features) {
    fv_tensor f = *features, y = fv_workspace_cut(&v->ws, FV_F32, f.rows, v->mean.cols);
    fv_activate_args add = {.act = FV_ACT_NONE, .x = f, .gate = v->mean, .y = y};
    add.x.cols = y.cols;
    add.gate.rows = f.rows;
    add.gate.ld = 0;
    for (int32_t i = 0; i < v->cfg->merge * v->cfg->merge; i++) {
        add.x.data = (float *)f.data + (size_t)i * (size_t)y.cols;
        add.accumulate = i > 0;
        FV_TRY(v->be->ops->activate(v->be, &add));
    }
    *features = y;
    return FV_OK;
}

/* Norms features [n, w], each patch or each token by itself. */
static fv_status norm_features(fv_vision *v, const fv_projector_weights *p, fv_projector_norm by,
                               fv_tensor *features) {
    const fv_vision_config *c = v->cfg;
    fv_tensor f = *features;
    if (by == FV_PROJECTOR_NORM_NONE) return FV_OK;
    *features = fv_workspace_cut(&v->ws, FV_F32, f.rows, f.cols);
    fv_norm_args a = {.x = f,
                      .w = p->norm,
                      .b = p->norm_bias,
                      .y = *features,
                      .eps = c->projector_eps,
                      .rms = c->projector_rms};
    if (by == FV_PROJECTOR_NORM_PATCHES) {
        int32_t rows = f.rows * c->merge * c->merge;
        assert(f.ld == f.cols && c->n_feature_layer == 1);
        a.x = fv_tensor_of(f.data, FV_F32, rows, c->d_model);
        a.y = fv_tensor_of(features->data, FV_F32, rows, c->d_model);
    }
    return v->be->ops->norm(v->be, &a);
}

/* MobileVLM V2's PEG (arXiv 2402.03766): y = depthwise(z) + z for tokens z [n, d] of whole tiles, S
 * x S each. With kernel w, 1 added in its middle, and z = 0 outside of a tile:
 *     y[r, c] = b + sum of w[i, j] * z[r + i, c + j]      i, j in -1..1
 * Each weight multiplies a rectangle of a tile and adds it to the rectangle shifted by (i, j). */
static fv_status inject_positions(fv_vision *v, fv_tensor z, fv_tensor y) {
    const int32_t S = fv_vision_side(v->cfg) / v->cfg->merge, d = y.cols;
    assert(y.ld == d && z.ld == d && y.rows % (S * S) == 0);
    fv_activate_args a = {.act = FV_ACT_NONE, .x = v->p.peg_bias, .y = y};
    a.x.rows = y.rows;
    a.x.ld = 0;
    FV_TRY(v->be->ops->activate(v->be, &a));
    a.accumulate = true;
    for (int32_t tap = 0; tap < 9 * (y.rows / (S * S)); tap++) {
        int32_t tile = tap / 9, i = tap % 9 / 3 - 1, j = tap % 3 - 1;
        int32_t rows = S - (i != 0), cols = S - (j != 0);
        int32_t to = (i < 0) * S + (j < 0), from = to + i * S + j; /* tokens */
        a.x = fv_tensor_of((float *)z.data + (size_t)(tile * S * S + from) * (size_t)d, FV_F32,
                           rows, S * d);
        a.y = fv_tensor_of((float *)y.data + (size_t)(tile * S * S + to) * (size_t)d, FV_F32, rows,
                           S * d);
        a.gate = fv_tensor_rows(v->p.peg, tap % 9, 1);
        a.gate.rows = rows;
        a.gate.ld = 0;
        a.x.cols = a.y.cols = a.gate.cols = cols * d;
        FV_TRY(v->be->ops->activate(v->be, &a));
    }
    return FV_OK;
}

/* MobileVLM V2's LDPv2. The second linear layer is applied to the means of a token's patches: the
 * mean commutes with it. */
static fv_status connect_ldp(fv_vision *v, const fv_projector_weights *p, fv_tensor f,
                             fv_tensor y) {
    const int32_t area = v->cfg->merge * v->cfg->merge, d = p->fc1.rows;
    assert(f.ld == f.cols && f.cols == area * v->cfg->d_model);
    fv_tensor patches = fv_tensor_of(f.data, FV_F32, f.rows * area, v->cfg->d_model);
    fv_tensor h = fv_workspace_cut(&v->ws, FV_F32, patches.rows, d);
    FV_TRY(fv_vision_linear(v, patches, p->fc1, p->fc1_bias, h, false));
    FV_TRY(fv_vision_activate(v, v->cfg->projector_act, h));
    h = fv_tensor_of(h.data, FV_F32, f.rows, area * d);
    FV_TRY(pool_features(v, &h));
    fv_tensor z = fv_workspace_cut(&v->ws, FV_F32, f.rows, d);
    FV_TRY(fv_vision_linear(v, h, p->fc2, p->fc2_bias, z, false));
    return inject_positions(v, z, y);
}

/* GLM's: with f the patches of a token side by side,
 *     g = GELU(LayerNorm((f Wm^T + bm) W1^T));   y = (act(g Wgate^T) * (g Wup^T)) W2^T */
static fv_status connect_glm(fv_vision *v, const fv_projector_weights *p, fv_tensor f,
                             fv_tensor y) {
    const int32_t n = f.rows, d = v->cfg->d_text, m = v->cfg->d_between;
    fv_tensor merged = fv_workspace_cut(&v->ws, FV_F32, n, d),
              g = fv_workspace_cut(&v->ws, FV_F32, n, d), none = {0};
    fv_tensor gate = fv_workspace_cut(&v->ws, v->be->ops->act, n, m),
              up = fv_workspace_cut(&v->ws, v->be->ops->act, n, m);
    fv_norm_args norm = {
        .x = g, .w = p->norm, .b = p->norm_bias, .y = g, .eps = v->cfg->projector_eps};
    fv_linear_args both = {
        .x = g, .n_part = 2, .part = {{p->gate, none, gate, false}, {p->up, none, up, false}}};
    fv_activate_args act = {.act = v->cfg->projector_act, .x = gate, .gate = up, .y = gate};
    FV_TRY(fv_vision_linear(v, f, p->merger, p->merger_bias, merged, false));
    FV_TRY(fv_vision_linear(v, merged, p->fc1, none, g, false));
    FV_TRY(v->be->ops->norm(v->be, &norm));
    FV_TRY(fv_vision_activate(v, FV_ACT_GELU, g));
    FV_TRY(v->be->ops->linear(v->be, &both));
    FV_TRY(v->be->ops->activate(v->be, &act));
    return fv_vision_linear(v, gate, p->fc2, none, y, false);
}

static fv_status connect_by(fv_vision *v, const fv_projector_weights *p, fv_projector_norm by,
                            fv_tensor features, fv_tensor y) {
    if (v->cfg->connector == FV_CONNECTOR_LDP) return connect_ldp(v, p, features, y);
    if (v->cfg->connector == FV_CONNECTOR_GLM) return connect_glm(v, p, features, y);
    fv_tensor h = fv_workspace_cut(&v->ws, v->be->ops->act, features.rows, p->fc1.rows);
    if (v->cfg->mean_pool || v->cfg->pool_patches) FV_TRY(pool_features(v, &features));
    if (v->cfg->standardize) FV_TRY(fv_vision_standardize(v, features));
    FV_TRY(norm_features(v, p, by, &features));
    if (v->cfg->patch_merger) {
        fv_tensor merged = fv_workspace_cut(&v->ws, FV_F32, features.rows, v->cfg->d_model);
        FV_TRY(fv_vision_linear(v, features, p->merger, (fv_tensor){0}, merged, false));
        features = merged;
    }
    if (v->cfg->connector == FV_CONNECTOR_LINEAR)
        return fv_vision_linear(v, features, p->fc1, p->fc1_bias, y, false);
    FV_TRY(fv_vision_linear(v, features, p->fc1, p->fc1_bias, h, false));
    FV_TRY(fv_vision_activate(v, v->cfg->projector_act, h));
    return fv_vision_linear(v, h, p->fc2, p->fc2_bias, y, false);
}

/* Columns of embeds: part 0 is the text model's input, part i the output of deepstack connector i -
 * 1. */
static fv_tensor part_of(const fv_vision *v, fv_tensor embeds, int32_t part) {
    embeds.cols = v->cfg->d_text;
    embeds.data = (float *)embeds.data + (size_t)(part * embeds.cols);
    return embeds;
}

fv_status fv_connect(fv_vision *v, fv_tensor features, fv_tensor y) {
    return connect_by(v, &v->p, v->cfg->projector_norm, features, part_of(v, y, 0));
}

fv_status fv_connect_deepstack(fv_vision *v, int32_t i, fv_tensor features, fv_tensor y) {
    return connect_by(v, &v->w.deepstack[i], FV_PROJECTOR_NORM_FEATURES, features,
                      part_of(v, y, i + 1));
}

fv_status fv_vision_project(fv_vision *v, fv_tensor features, fv_tensor embeds) {
    if (features.rows == 0) return FV_OK;
    FV_TRY(fv_workspace_reset(&v->ws, fv_connector_need(v, features.rows)));
    FV_TRY(fv_connect(v, features, embeds));
    return v->be->ops->sync(v->be);
}
