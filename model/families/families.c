/* config.json -> fv_model_config.
 *
 * A config.json is a difference against the defaults of classes in transformers, so reading one
 * requires those defaults. The rows of this folder hold them; they were compared with the classes
 * of transformers 5, which agree with 4 for every key that is read. Renamed keys are read in both
 * spellings.
 *
 * A key that would change the result and is not supported is refused by name;
 * unknown keys (training settings, cache hints) are ignored. */
#include "model/families/families.h"

#include <stdio.h>
#include <string.h>

#include "model/families/keys.h"

#define FV_FAMILY(name) extern const fv_family fv_family_##name;
#include "model/families/families.def"

#define FV_FAMILY(name) &fv_family_##name,
static const fv_family *const families[] = {
#include "model/families/families.def"
};
enum { N_FAMILY = sizeof families / sizeof *families };

const fv_family fv_family_text = {.name = "text"};

const char *fv_family_names(void) {
#define FV_FAMILY(name) ", " #name
    static const char names[] =
#include "model/families/families.def"
        ;
    return names + 2;
}

const fv_family *fv_family_at(int32_t i) { return i < N_FAMILY ? families[i] : NULL; }

const fv_family *fv_family_find(const char *name) {
    for (int i = 0; i < N_FAMILY; i++)
        if (!strcmp(name, families[i]->name) || !strcmp(name, families[i]->architecture))
            return families[i];
    return NULL;
}

const char *fv_family_type(const fv_family *f) { return f->type ? f->type : f->name; }

/* The family of a file with f's model_type: another one where the tower is that one's. */
static const fv_family *family_of_tower(const fv_family *f, const json_t *root) {
    const json_t *type = json_object_get(json_object_get(root, "vision_config"), "model_type");
    const char *tower = json_string_value(type);
    for (int i = 0; tower && i < N_FAMILY; i++)
        if (families[i]->type && !strcmp(families[i]->type, f->name) &&
            !strcmp(families[i]->tower, tower))
            return families[i];
    return f;
}

/* image_token_index is the key of version 4, image_token_id its later name. */
static fv_status parse_image_token(const json_t *root, const char *where, fv_model_config *cfg) {
    int32_t index = -1, id = -1;
    FV_TRY(fv_json_i32(root, "image_token_index", where, 0, INT32_MAX, &index));
    FV_TRY(fv_json_i32(root, "image_token_id", where, 0, INT32_MAX, &id));
    if (index >= 0 && id >= 0 && index != id)
        return FV_FAIL(FV_EDATA, "%s: 'image_token_index' is %d but 'image_token_id' is %d", where,
                       index, id);
    cfg->image_token = id >= 0 ? id : index >= 0 ? index : cfg->family->image_token;
    const bool beyond = cfg->family->image_token == FV_IMAGE_TOKEN_BEYOND;
    if (cfg->image_token == FV_IMAGE_TOKEN_BEYOND) cfg->image_token = cfg->text.vocab;
    if (cfg->image_token >= cfg->text.vocab + beyond)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'image_token_index' is %d, but the text model's 'vocab_size' is %d",
                       where, cfg->image_token, cfg->text.vocab);
    return FV_OK;
}

/* Parses the text model and the tower of a multimodal family. */
static fv_status parse_halves(const json_t *root, const char *where, fv_model_config *cfg,
                              int32_t *eos_default) {
    char text_where[FV_CONFIG_WHERE_MAX], vision_where[FV_CONFIG_WHERE_MAX];
    const char *text_key = cfg->family->text_key ? cfg->family->text_key : "text_config";
    snprintf(text_where, sizeof text_where, "%s: %s", where, text_key);
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    const json_t *text = fv_config_member(root, text_key);
    const json_t *vision = fv_config_member(root, "vision_config");
    if ((text && !json_is_object(text)) || (vision && !json_is_object(vision)))
        return FV_FAIL(FV_EDATA, "%s: %s and vision_config must be objects", where, text_key);

    const char *type = cfg->family->text;
    FV_TRY(fv_json_str(text, "model_type", text_where, &type));
    if (!text && cfg->family->flat) text = root;
    const char *family = fv_config_text_family(type);
    if (!family)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: unsupported model_type '%s'; supported: the text models %s", text_where,
                       type, fv_config_text_families);
    FV_TRY(fv_config_text_parse(text, family, text_where, &cfg->text, eos_default));
    cfg->text.logits_divisor =
        0; /* a Granite alone divides its logits; with images transformers has
                                   * only its layers, and does not */
    if (!text && cfg->family->text_eps > 0) cfg->text.rms_eps = cfg->family->text_eps;
    FV_TRY(fv_config_tower_parse(vision, vision_where, cfg));

    /* True at either level ties: composite configs inherit the key from their text model. */
    cfg->text.tied_head = cfg->text.tied_head || cfg->family->tied;
    FV_TRY(fv_json_bool(root, "tie_word_embeddings", where, &cfg->text.tied_head));
    bool text_tied = false;
    FV_TRY(fv_json_bool(text, "tie_word_embeddings", text_where, &text_tied));
    cfg->text.tied_head = cfg->text.tied_head || text_tied;

    bool named = false;
    FV_TRY(fv_config_add_eos(root, where, cfg, &named));
    FV_TRY(fv_config_add_eos(text, text_where, cfg, &named));
    cfg->eos_is_default = !named;
    return FV_OK;
}

fv_vision_config fv_vision_config_of(const fv_model_config *cfg, bool video) {
    fv_vision_config c = cfg->vision;
    c.keep_cls = c.keep_cls || (video && cfg->video_tower);
    return c;
}

static fv_status parse_vision(const json_t *root, const char *where, fv_model_config *cfg,
                              int32_t *eos_default) {
    if (fv_config_member(root, "mm_vision_tower") && !cfg->family->tower_apart)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: this is the original LLaVA layout (key 'mm_vision_tower'); convert it "
                       "to the transformers layout first",
                       where);
    FV_TRY(parse_halves(root, where, cfg, eos_default));
    FV_TRY(parse_image_token(root, where, cfg));
    cfg->has_vision = true;
    cfg->video_token = -1; /* unless the family has one */
    cfg->tower_norm = true;
    cfg->vision.d_text = cfg->text.d_model;
    FV_TRY(cfg->family->parse(root, where, cfg));
    cfg->layout.family = cfg->family->layout;
    cfg->layout.tile = cfg->vision.image;
    cfg->layout.patch = cfg->vision.patch;
    cfg->layout.merge = cfg->vision.merge;
    cfg->layout.class_token = cfg->vision.keep_cls;
    cfg->layout.tower_class = cfg->vision.class_token;
    return FV_OK;
}

static fv_status parse_text_alone(const json_t *root, const char *family, const char *where,
                                  fv_model_config *cfg, int32_t *eos_default) {
    FV_TRY(fv_config_text_parse(root, family, where, &cfg->text, eos_default));
    bool named = false;
    FV_TRY(fv_config_add_eos(root, where, cfg, &named));
    cfg->eos_is_default = !named;
    cfg->image_token = cfg->video_token = -1;
    cfg->family = &fv_family_text;
    return FV_OK;
}

static fv_status refuse_type(const char *type, const char *where) {
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: unsupported model_type '%s'; supported: %s and the text models %s", where,
                   type, fv_family_names(), fv_config_text_families);
}

const char *fv_family_known_type(const json_t *root, const char *type) {
    const json_t *item;
    size_t i;
    if (fv_family_find(type) || fv_config_text_family(type)) return type;
    json_array_foreach(json_object_get(root, "architectures"), i, item) {
        const char *class = json_string_value(item);
        if (class && (fv_family_find(class) || fv_config_text_family(class))) return class;
    }
    return type;
}

static fv_status parse_root(const json_t *root, const char *where, fv_model_config *cfg) {
    FV_TRY(fv_config_refuse_quantized(root, where));
    const char *type = NULL;
    FV_TRY(fv_json_str(root, "model_type", where, &type));
    if (!type) /* hand-written files may name only the class */
        type = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    if (!type) return FV_FAIL(FV_EDATA, "%s: 'model_type' and 'architectures' are missing", where);
    type = fv_family_known_type(root, type);
    int32_t eos_default = -1;
    const char *text = fv_config_text_family(type);
    cfg->family = fv_family_find(type);
    if (cfg->family) cfg->family = family_of_tower(cfg->family, root);
    if (cfg->family)
        FV_TRY(parse_vision(root, where, cfg, &eos_default));
    else if (text)
        FV_TRY(parse_text_alone(root, text, where, cfg, &eos_default));
    else
        return refuse_type(type, where);
    if (cfg->eos_is_default && eos_default >= 0) cfg->eos[cfg->n_eos++] = eos_default;
    cfg->n_vocab_used = cfg->text.vocab;
    return FV_OK;
}

fv_status fv_config_parse(const char *json, size_t n, const char *where, fv_model_config *out) {
    json_t *root = NULL;
    FV_TRY(fv_json_object(json, n, where, &root));
    fv_model_config cfg = {0};
    fv_status st = parse_root(root, where, &cfg);
    json_decref(root);
    if (st == FV_OK) *out = cfg;
    return st;
}
