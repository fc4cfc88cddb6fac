/* Expands the tables of tensors for one config. */
#include <stdio.h>
#include <stdlib.h>

#include "model/families/tensor_specs_internal.h"

typedef struct builder {
    const fv_model_config *cfg;
    bool whole;
    fv_tensor_spec *entry;
    int32_t n;
} builder;

static void add(builder *b, fv_spec_rows rows, fv_tensor_part part, int32_t layer,
                const char *prefix) {
    for (size_t i = 0; i < rows.n; i++) {
        const fv_spec_row *r = &rows.row[i];
        if (!fv_spec_exists(b->cfg, b->whole, r->when, layer)) continue;
        fv_tensor_spec *e = &b->entry[b->n++];
        *e = (fv_tensor_spec){.role = r->role, .part = part, .layer = layer, .offset = r->offset};
        snprintf(e->name, sizeof e->name, "%s%s", prefix, r->name);
        while (e->n_dim < FV_TENSOR_SPECS_MAX_DIMS && r->dims[e->n_dim]) {
            e->shape[e->n_dim] =
                fv_spec_size(b->cfg, r->dims[e->n_dim], layer, &e->shape_keys[e->n_dim]);
            e->n_dim++;
        }
    }
}

/* Number of tower layers that run: the last feature layer's index. */
static int32_t vision_layers(const fv_model_config *cfg) {
    int32_t last = 0;
    for (int32_t i = 0; i < cfg->vision.n_feature_layer; i++)
        if (cfg->vision.feature_layer[i] > last) last = cfg->vision.feature_layer[i];
    return last;
}

/* Adds the tower for videos, without the layer that only captures need. */
static void add_video_tower(builder *b, int32_t run) {
    char prefix[64];
    add(b, fv_specs_vision_front, FV_PART_VIDEO, 0, "video.");
    for (int32_t i = 0; i < (b->whole ? b->cfg->vision.n_layer : run); i++) {
        snprintf(prefix, sizeof prefix, "video.encoder.layers.%d.", i);
        add(b, fv_specs_vision_layer, i < run ? FV_PART_VIDEO_LAYER : FV_PART_UNUSED, i, prefix);
    }
    add(b, fv_specs_vision_back, FV_PART_UNUSED, 0, "video.");
}

static void build_vision(builder *b) {
    const fv_model_config *cfg = b->cfg;
    char prefix[64];
    add(b, fv_specs_connector, FV_PART_PROJECTOR, 0, "projector.");
    add(b, fv_specs_standard, FV_PART_PROJECTOR, 0, "vision.");
    add(b, fv_specs_newline, FV_PART_PROJECTOR, 0, "");
    for (int32_t i = 0; i < cfg->vision.n_deepstack; i++) {
        snprintf(prefix, sizeof prefix, "deepstack.%d.", i);
        add(b, fv_specs_deepstack, FV_PART_DEEPSTACK, i, prefix);
    }
    add(b, fv_specs_vision_front, FV_PART_VISION, 0, "vision.");
    if (cfg->vision.connector == FV_CONNECTOR_GLM) {
        add(b, fv_specs_glm_connector, FV_PART_PROJECTOR, 0, "projector.");
        add(b, fv_specs_glm_merger, FV_PART_PROJECTOR, 0, "vision.");
    }
    int32_t run = vision_layers(cfg);
    for (int32_t i = 0; i < (b->whole ? cfg->vision.n_layer : run); i++) {
        snprintf(prefix, sizeof prefix, "vision.encoder.layers.%d.", i);
        add(b, fv_specs_vision_layer, i < run ? FV_PART_VISION_LAYER : FV_PART_UNUSED, i, prefix);
    }
    if (!b->whole && run < cfg->vision.n_layer && cfg->vision.class_token) {
        int32_t from = b->n;
        snprintf(prefix, sizeof prefix, "vision.encoder.layers.%d.", run);
        add(b, (fv_spec_rows){fv_specs_vision_layer.row, FV_SPECS_ASKED}, FV_PART_VISION_LAYER, run,
            prefix);
        for (int32_t i = from; i < b->n; i++) b->entry[i].optional = true;
    }
    add(b, fv_specs_vision_back, FV_PART_UNUSED, 0, "vision.");
    if (cfg->video_tower) add_video_tower(b, run);
}

/* Adds the experts of a layer whose name begins with `prefix`, where files have each by itself; `at`: its place in
 * fv_text_weights.expert. */
static void add_experts(builder *b, int32_t layer, int32_t at, const char *prefix) {
    const fv_text_config *t = &b->cfg->text;
    char first[96];
    for (int32_t e = 0; t->experts_apart && t->sparse[layer] && e < t->n_expert; e++) {
        snprintf(first, sizeof first, "%s%s.%d.", prefix, fv_tensor_specs_experts(t), e);
        add(b, fv_specs_text_expert, FV_PART_TEXT_EXPERT, at * t->n_expert + e, first);
    }
}

const char *fv_tensor_specs_experts(const fv_text_config *t) {
    return t->dense_beside ? "experts" : "mlp.experts";
}

fv_status fv_tensor_specs_build(const fv_model_config *cfg, bool whole, fv_tensor_spec **out,
                                int32_t *n) {
    enum { OTHERS = 40 + 6 * FV_MAX_DEEPSTACK };
    builder b = {.cfg = cfg, .whole = whole};
    int32_t towers = cfg->video_tower ? 2 : 1;
    int32_t run = cfg->text.recurrent.n,
            n_layer = cfg->text.n_layer * (run + 1) + cfg->text.n_sharer; /* of the file */
    int32_t most = towers * OTHERS + FV_SPECS_PER_LAYER * (n_layer + towers * cfg->vision.n_layer);
    if (cfg->text.experts_apart) most += n_layer * cfg->text.n_expert * FV_SPECS_PER_EXPERT;
    b.entry = calloc((size_t)most, sizeof(*b.entry));
    if (!b.entry) return FV_FAIL(FV_ENOMEM, "no memory for a list of %d tensors", most);
    char prefix[64];
    add(&b, fv_specs_text_front, FV_PART_TEXT, 0, "text.");
    for (int32_t i = 0; i < n_layer; i++) {
        int32_t layer = i / (run + 1), in = i % (run + 1);
        snprintf(prefix, sizeof prefix, "text.layers.%d.", i);
        if (in < run) {
            add(&b, fv_specs_text_recurrent, FV_PART_RECURRENT_LAYER, layer * run + in, prefix);
            add(&b, fv_specs_text_ffn, FV_PART_RECURRENT_LAYER, layer * run + in, prefix);
            add_experts(&b, layer, cfg->text.n_layer + layer * run + in, prefix);
        } else {
            add(&b, fv_specs_text_attention, FV_PART_TEXT_LAYER, layer, prefix);
            add(&b, fv_specs_text_ffn, FV_PART_TEXT_LAYER, layer, prefix);
            add(&b, fv_specs_text_fused, FV_PART_TEXT_FUSED, layer, prefix);
            add_experts(&b, layer, layer, prefix);
        }
    }
    add(&b, fv_specs_text_back, FV_PART_TEXT, 0, "text.");
    add(&b, fv_specs_text_head, FV_PART_TEXT, 0, "lm_head.");
    if (cfg->has_vision) build_vision(&b);
    *out = b.entry;
    *n = b.n;
    return FV_OK;
}

void fv_tensor_specs_view(const fv_tensor_spec *e, int32_t *rows, int32_t *cols) {
    /* An embedding's last dimension is one row; in a kernel all dimensions but the first are. */
    int32_t last = e->role == FV_ROLE_EMBEDDING ? e->n_dim - 1 : e->n_dim > 1;
    int64_t r = 1, c = 1;
    if (e->role == FV_ROLE_EXPERTS || e->role == FV_ROLE_EXPERTS_TRANSPOSED) {
        bool transposed = e->role == FV_ROLE_EXPERTS_TRANSPOSED;
        *rows = (int32_t)(e->shape[0] * e->shape[transposed ? 2 : 1]);
        *cols = (int32_t)e->shape[transposed ? 1 : 2];
        return;
    }
    for (int32_t i = 0; i < e->n_dim; i++) *(i < last ? &r : &c) *= e->shape[i];
    *rows = (int32_t)r;
    *cols = (int32_t)c;
}
