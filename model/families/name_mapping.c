/* Tensor names: from any name mapping to the canonical one, and back.
 *
 * Reading is one set of rules for all name mappings at once, because files mix them (trainers save
 * half a model in one and half in another); writing is a table. Pure text, any thread. */
#include "model/families/name_mapping.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    fv_tensor_names names;
} rows[FV_N_NAME_MAPPING] = {
    [FV_NAME_MAPPING_HUB] = {"hub",
                             {"language_model.model.", "language_model.lm_head.",
                              "vision_tower.vision_model.", "multi_modal_projector.", "linear_1.",
                              "linear_2.", "image_newline"}},
    [FV_NAME_MAPPING_V4_52] = {"v4.52",
                               {"model.language_model.", "lm_head.",
                                "model.vision_tower.vision_model.", "model.multi_modal_projector.",
                                "linear_1.", "linear_2.", "model.image_newline"}},
    [FV_NAME_MAPPING_V5_6] = {"v5.6",
                              {"model.language_model.", "lm_head.", "model.vision_tower.",
                               "model.multi_modal_projector.", "linear_1.", "linear_2.",
                               "model.image_newline"}},
    [FV_NAME_MAPPING_ORIGINAL] = {"original",
                                  {"model.", "lm_head.",
                                   "model.vision_tower.vision_tower.vision_model.",
                                   "model.mm_projector.", "0.", "2.", "model.image_newline"}},
    [FV_NAME_MAPPING_BASE] = {"base",
                              {"language_model.", "lm_head.", "vision_tower.vision_model.",
                               "multi_modal_projector.", "linear_1.", "linear_2.",
                               "image_newline"}},
    [FV_NAME_MAPPING_BARE] = {"bare",
                              {"", "lm_head.", "vision_tower.vision_model.",
                               "multi_modal_projector.", "linear_1.", "linear_2.",
                               "image_newline"}},
};

const char *fv_name_mapping_name(fv_name_mapping d) { return rows[d].name; }

fv_status fv_name_mapping_by_name(const char *name, fv_name_mapping *out) {
    for (int d = 0; d < FV_N_NAME_MAPPING; d++) {
        if (strcmp(name, rows[d].name) != 0) continue;
        *out = (fv_name_mapping)d;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL,
                   "dialect '%s' is unknown: hub, v4.52, v5.6, original, base and bare exist",
                   name);
}

/* Steps over `prefix` when *s starts with it. */
static bool skip(const char **s, const char *prefix) {
    size_t n = strlen(prefix);
    if (strncmp(*s, prefix, n) != 0) return false;
    *s += n;
    return true;
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

static bool starts_like_text(const char *s) {
    return skip(&s, "layers.") || skip(&s, "embed_tokens.") || skip(&s, "norm.");
}

static void put(char out[FV_TENSOR_NAME_MAX], const char *a, const char *b, const char *c) {
    if (snprintf(out, FV_TENSOR_NAME_MAX, "%s%s%s", a, b, c) < 0) out[0] = '\0';
}

bool fv_name_mapping_canonical(const char *key, char out[FV_TENSOR_NAME_MAX]) {
    if (ends_with(key, ".rotary_emb.inv_freq") || ends_with(key, ".position_ids")) return false;
    const char *s = key;
    skip(&s, "model.");
    if (skip(&s, "vision_tower.") || skip(&s, "vision_model.")) {
        skip(&s, "vision_tower.");
        skip(&s, "vision_model.");
        put(out, "vision.", s, "");
    } else if (skip(&s, "multi_modal_projector.") || skip(&s, "mm_projector.") ||
               skip(&s, "connector.modality_projection.")) {
        const char *linear = skip(&s, "0.") ? "linear_1." : skip(&s, "2.") ? "linear_2." : "";
        put(out, "projector.", linear, s);
    } else if (!strcmp(s, "image_newline")) {
        put(out, "newline", "", "");
    } else {
        if (skip(&s, "language_model.") || skip(&s, "text_model.")) skip(&s, "model.");
        if (skip(&s, "lm_head."))
            put(out, "lm_head.", s, "");
        else if (starts_like_text(s))
            put(out, "text.", s, "");
        else
            put(out, key, "", "");
    }
    return true;
}

void fv_name_mapping_key(fv_name_mapping d, const fv_tensor_names *own, const char *canonical,
                         char out[FV_TENSOR_NAME_MAX]) {
    const fv_tensor_names *r = own ? own : &rows[d].names;
    const char *s = canonical;
    if (skip(&s, "text."))
        put(out, r->text, s, "");
    else if (skip(&s, "lm_head."))
        put(out, r->head, s, "");
    else if (skip(&s, "vision."))
        put(out, r->tower, s, "");
    else if (skip(&s, "newline"))
        put(out, r->newline, s, "");
    else if (skip(&s, "projector.")) {
        const char *linear = skip(&s, "linear_1.")   ? r->linear_1
                             : skip(&s, "linear_2.") ? r->linear_2
                                                     : "";
        put(out, r->projector, linear, s);
    } else
        put(out, s, "", "");
}
