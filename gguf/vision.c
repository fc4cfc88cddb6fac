/* Makes the parts of config.json that describe a vision model's tower and connector, and
 * preprocessor_config.json, from the metadata of an mmproj file. Keys are those of llama.cpp's
 * tools/mtmd/clip.cpp; what that program knows without a key, from the kind of projector, is in the rows
 * of the table `towers`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/internal.h"
#include "gguf/vision.h"

typedef struct maker {
    const fv_gguf_set *s;
    const fv_gguf *g; /* the mmproj file */
    fv_gguf_json *m;
    json_t *root, *vision;      /* borrowed */
    double width, layers, side; /* of the tower; patches along an image's side */
} maker;

typedef struct tower {
    fv_gguf_projector kind;
    const char *name;       /* clip.projector_type */
    const char *model_type; /* of config.json */
    const char *text_type;  /* of text_config, if not as the architecture says */
    const char *image_token;
    const char *image_key;
    fv_status (*add)(const maker *k);     /* the family's own keys */
    fv_status (*process)(const maker *k); /* preprocessor_config.json, but mean and std */
    const char *const *texts;             /* architectures of the text models, up to NULL */
} tower;

static fv_status number(const maker *k, const char *key, fv_gguf_presence need, double *out) {
    return fv_gguf_number_of(k->g, "clip", key, need, out);
}

static void put(const maker *k, json_t *object, const char *key, double x) {
    fv_gguf_put(k->m, object, key, fv_gguf_json_number(x));
}

static fv_status flag(const fv_gguf *g, const char *key, bool *out) {
    *out = false;
    return fv_gguf_bool(g, key, out);
}

/* Adds the activation that a family's files may choose. */
static fv_status add_activation(const maker *k, const char *usual) {
    bool gelu, silu;
    FV_TRY(flag(k->g, "clip.use_gelu", &gelu));
    FV_TRY(flag(k->g, "clip.use_silu", &silu));
    fv_gguf_put(k->m, k->vision, "hidden_act", json_string(silu ? "silu" : gelu ? "gelu" : usual));
    return FV_OK;
}

static fv_status add_eps(const maker *k) {
    double eps = 1e-6;
    FV_TRY(number(k, "vision.attention.layer_norm_epsilon", FV_GGUF_OPTIONAL, &eps));
    put(k, k->vision, "layer_norm_eps", eps);
    return FV_OK;
}

/* ---- Qwen-VL --------------------------------------------------------------------------------- */

/* Writes the keys that the three towers share. The LayerNorms' epsilon is a constant of the classes; files
 * have the text model's in its place. */
static fv_status add_qwen(const maker *k) {
    double merge = 2, heads = 0;
    FV_TRY(number(k, "vision.spatial_merge_size", FV_GGUF_OPTIONAL, &merge));
    FV_TRY(number(k, "vision.attention.head_count", FV_GGUF_REQUIRED, &heads));
    put(k, k->vision, "depth", k->layers);
    put(k, k->vision, "num_heads", heads);
    put(k, k->vision, "spatial_merge_size", merge);
    put(k, k->vision, "temporal_patch_size", 2);
    fv_gguf_put(
        k->m, k->vision, "out_hidden_size",
        json_incref(json_object_get(json_object_get(k->root, "text_config"), "hidden_size")));
    int64_t video;
    FV_TRY(fv_gguf_token(k->s->model[0], "<|video_pad|>", &video));
    if (video >= 0) fv_gguf_put(k->m, k->root, "video_token_id", json_integer(video));
    return FV_OK;
}

/* Qwen2-VL's FFN is a multiple of the tower's width; the files' key has another number. */
static fv_status add_qwen2(const maker *k) {
    FV_TRY(add_qwen(k));
    double ffn = json_number_value(json_object_get(k->vision, "intermediate_size"));
    fv_gguf_put(k->m, k->vision, "embed_dim", fv_gguf_json_number(k->width));
    put(k, k->vision, "mlp_ratio", ffn / k->width);
    fv_gguf_put(k->m, k->vision, "hidden_size",
                json_incref(json_object_get(k->vision, "out_hidden_size")));
    return FV_OK;
}

static fv_status add_qwen2_5(const maker *k) {
    double each = 0, window = 112;
    FV_TRY(add_qwen(k));
    FV_TRY(number(k, "vision.n_wa_pattern", FV_GGUF_REQUIRED, &each));
    FV_TRY(number(k, "vision.window_size", FV_GGUF_OPTIONAL, &window));
    if (!(each >= 0) || floor(each) != each)
        return FV_FAIL(FV_EDATA, "%s: key 'clip.vision.n_wa_pattern' must be a whole number",
                       fv_gguf_where(k->g));
    json_t *whole = json_array();
    fv_gguf_put(k->m, k->vision, "fullatt_block_indexes", whole);
    for (double i = 0; i < k->layers; i++)
        if (each == 0 || fmod(i + 1, each) == 0)
            fv_gguf_append(k->m, whole, fv_gguf_json_number(i));
    put(k, k->vision, "window_size", window);
    /* No key has it; all published models have 2, and their class 4. */
    put(k, k->vision, "tokens_per_second", 2);
    return FV_OK;
}

static fv_status add_qwen3(const maker *k) {
    const fv_gguf_tensor *position = fv_gguf_find(k->g, "v.position_embd.weight");
    double *deep = NULL;
    size_t n = 0;
    FV_TRY(add_qwen(k));
    put(k, k->vision, "num_position_embeddings",
        position ? (double)position->shape[0] : k->side * k->side);
    FV_TRY(fv_gguf_numbers(k->g, "clip.vision.is_deepstack_layers", &deep, &n));
    json_t *list = json_array();
    fv_gguf_put(k->m, k->vision, "deepstack_visual_indexes", list);
    for (size_t i = 0; i < n; i++)
        if (deep[i] != 0) fv_gguf_append(k->m, list, json_integer((json_int_t)i));
    free(deep);
    return FV_OK;
}

/* Writes the limits of an image's area: those that all published models have, unless files say others. */
static fv_status process_pixels(const maker *k, double least, double most) {
    FV_TRY(number(k, "vision.image_min_pixels", FV_GGUF_OPTIONAL, &least));
    FV_TRY(number(k, "vision.image_max_pixels", FV_GGUF_OPTIONAL, &most));
    json_t *size = json_object();
    put(k, size, "shortest_edge", least);
    put(k, size, "longest_edge", most);
    fv_gguf_put(k->m, k->m->root, "size", size);
    return FV_OK;
}

static fv_status process_qwen2(const maker *k) { return process_pixels(k, 3136, 12845056); }
static fv_status process_qwen3(const maker *k) { return process_pixels(k, 65536, 16777216); }

/* ---- SigLIP towers --------------------------------------------------------------------------- */

static fv_status add_gemma3(const maker *k) {
    double merge = 4;
    FV_TRY(number(k, "vision.projector.scale_factor", FV_GGUF_OPTIONAL, &merge));
    FV_TRY(add_eps(k));
    double side = merge > 0 ? floor(k->side / merge) : 0;
    put(k, k->root, "mm_tokens_per_image", side * side);
    fv_gguf_put(k->m, k->vision, "vision_use_head", json_false());
    return FV_OK;
}

static fv_status process_square(const maker *k) {
    double image = 0;
    FV_TRY(number(k, "vision.image_size", FV_GGUF_REQUIRED, &image));
    json_t *size = json_object();
    put(k, size, "height", image);
    put(k, size, "width", image);
    fv_gguf_put(k->m, k->m->root, "size", size);
    return FV_OK;
}

static fv_status add_idefics3(const maker *k) {
    double merge = 2;
    FV_TRY(number(k, "vision.projector.scale_factor", FV_GGUF_OPTIONAL, &merge));
    FV_TRY(add_eps(k));
    put(k, k->root, "scale_factor", merge);
    return FV_OK;
}

static fv_status process_idefics3(const maker *k) {
    double edge = 0, image = 0;
    FV_TRY(number(k, "vision.image_size", FV_GGUF_REQUIRED, &image));
    FV_TRY(number(k, "vision.preproc_image_size", FV_GGUF_OPTIONAL, &edge));
    if (!(edge > 0)) edge = 4 * image;
    json_t *size = json_object(), *tile = json_object();
    put(k, size, "longest_edge", edge);
    put(k, tile, "longest_edge", image);
    fv_gguf_put(k->m, k->m->root, "size", size);
    fv_gguf_put(k->m, k->m->root, "max_image_size", tile);
    return FV_OK;
}

/* ---- Pixtral, InternVL, LLaVA ---------------------------------------------------------------- */

static fv_status add_pixtral(const maker *k) {
    double merge = 1;
    FV_TRY(number(k, "vision.spatial_merge_size", FV_GGUF_OPTIONAL, &merge));
    FV_TRY(add_activation(k, "gelu"));
    fv_gguf_put(k->m, k->vision, "model_type", json_string("pixtral"));
    put(k, k->root, "vision_feature_layer", -1);
    fv_gguf_put(k->m, k->root, "vision_feature_select_strategy", json_string("full"));
    fv_gguf_put(k->m, k->root, "multimodal_projector_bias",
                json_boolean(fv_gguf_find(k->g, "mm.1.bias")));
    bool merger = fv_gguf_find(k->g, "mm.patch_merger.weight");
    fv_gguf_put(k->m, k->root, "model_type", json_string(merger ? "mistral3" : "llava"));
    if (merger) put(k, k->root, "spatial_merge_size", merge);
    return FV_OK;
}

static fv_status process_pixtral(const maker *k) {
    double image = 0;
    FV_TRY(number(k, "vision.image_size", FV_GGUF_REQUIRED, &image));
    json_t *size = json_object();
    put(k, size, "longest_edge", image);
    fv_gguf_put(k->m, k->m->root, "size", size);
    return FV_OK;
}

static fv_status add_internvl(const maker *k) {
    double merge = 2;
    FV_TRY(number(k, "vision.projector.scale_factor", FV_GGUF_OPTIONAL, &merge));
    FV_TRY(add_eps(k));
    FV_TRY(add_activation(k, "gelu"));
    if (merge > 0) fv_gguf_put(k->m, k->root, "downsample_ratio", json_real(1 / merge));
    put(k, k->root, "vision_feature_layer", -1);
    fv_gguf_put(k->m, k->vision, "norm_type",
                json_string(fv_gguf_find(k->g, "v.blk.0.ln1.bias") ? "layer_norm" : "rms_norm"));
    fv_gguf_put(k->m, k->vision, "attention_bias",
                json_boolean(fv_gguf_find(k->g, "v.blk.0.attn_q.bias")));
    fv_gguf_put(k->m, k->vision, "use_qk_norm",
                json_boolean(fv_gguf_find(k->g, "v.blk.0.attn_q_norm.weight")));
    fv_gguf_put(k->m, k->vision, "use_mean_pooling",
                json_boolean(!fv_gguf_find(k->g, "v.post_ln.weight")));
    return FV_OK;
}

static fv_status process_internvl(const maker *k) {
    double least = 1, most = 12;
    FV_TRY(number(k, "vision.preproc_min_tiles", FV_GGUF_OPTIONAL, &least));
    FV_TRY(number(k, "vision.preproc_max_tiles", FV_GGUF_OPTIONAL, &most));
    put(k, k->m->root, "min_patches", least);
    put(k, k->m->root, "max_patches", most);
    return process_square(k);
}

/* Adds the layers whose outputs are the features. Files without the key have no layers after it. */
static fv_status add_features(const maker *k) {
    double *layer = NULL;
    size_t n = 0;
    FV_TRY(fv_gguf_numbers(k->g, "clip.vision.feature_layer", &layer, &n));
    json_t *list = json_array();
    fv_gguf_put(k->m, k->root, "vision_feature_layer", list);
    for (size_t i = 0; i < n; i++) fv_gguf_append(k->m, list, fv_gguf_json_number(layer[i]));
    if (n == 0) fv_gguf_append(k->m, list, json_integer(-1));
    free(layer);
    return FV_OK;
}

static fv_status add_llava(const maker *k) {
    fv_gguf_string merge = {"flat", 4};
    bool has = fv_gguf_find(k->g, "v.class_embd") || fv_gguf_find(k->g, "v.class_embd.weight");
    FV_TRY(fv_gguf_text(k->g, "clip.vision.mm_patch_merge_type", &merge));
    if (merge.n >= 7 && memcmp(merge.s, "spatial", 7) == 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s is of LLaVA-NeXT (clip.vision.mm_patch_merge_type is '%.*s'), whose "
                       "tiles are not read from GGUF files: take the model's safetensors",
                       fv_gguf_where(k->g), (int)(merge.n < 80 ? merge.n : 80), merge.s);
    if (fv_gguf_find(k->g, "mm.1.weight") || !fv_gguf_find(k->g, "mm.2.weight"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: its connector is not LLaVA's, of two linear layers ('mm.0.weight' and "
                       "'mm.2.weight')",
                       fv_gguf_where(k->g));
    FV_TRY(add_eps(k));
    FV_TRY(add_activation(k, "quick_gelu"));
    FV_TRY(add_features(k));
    fv_gguf_put(k->m, k->vision, "model_type",
                json_string(has ? "clip_vision_model" : "siglip_vision_model"));
    if (!has) {
        fv_gguf_put(k->m, k->vision, "vision_use_head", json_false());
        fv_gguf_put(k->m, k->vision, "hidden_act", json_string("gelu_pytorch_tanh"));
    }
    fv_gguf_put(k->m, k->root, "vision_feature_select_strategy",
                json_string(has ? "default" : "full"));
    return FV_OK;
}

/* Images are cropped to the tower's square, as llava-hf's files say, unless the file asks for padding, as
 * the original's do. */
static fv_status process_llava(const maker *k) {
    fv_gguf_string aspect = {"", 0};
    double image = 0;
    FV_TRY(number(k, "vision.image_size", FV_GGUF_REQUIRED, &image));
    FV_TRY(fv_gguf_text(k->g, "clip.vision.image_aspect_ratio", &aspect));
    json_t *size = json_object();
    put(k, size, "shortest_edge", image);
    fv_gguf_put(k->m, k->m->root, "size", size);
    if (aspect.n == 3 && memcmp(aspect.s, "pad", 3) == 0)
        fv_gguf_put(k->m, k->m->root, "image_aspect_ratio", json_string("pad"));
    return FV_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *const of_qwen2vl[] = {"qwen2vl", NULL};
static const char *const of_qwen3vl[] = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", NULL};
static const char *const of_gemma3[] = {"gemma3", NULL};
static const char *const of_llama[] = {"llama", NULL};
static const char *const of_mistral[] = {"llama", "mistral3", NULL};
static const char *const of_any[] = {"llama", "qwen2", "qwen3", NULL};

#define INDEX "image_token_index"
static const tower towers[] = {
    {FV_GGUF_QWEN_VL, "qwen2vl_merger", "qwen2_vl", NULL, "<|image_pad|>", "image_token_id",
     add_qwen2, process_qwen2, of_qwen2vl},
    {FV_GGUF_QWEN_VL, "qwen2.5vl_merger", "qwen2_5_vl", "qwen2_5_vl_text", "<|image_pad|>",
     "image_token_id", add_qwen2_5, process_qwen2, of_qwen2vl},
    {FV_GGUF_QWEN_VL, "qwen3vl_merger", "qwen3_vl", NULL, "<|image_pad|>", "image_token_id",
     add_qwen3, process_qwen3, of_qwen3vl},
    {FV_GGUF_GEMMA3, "gemma3", "gemma3", NULL, "<image_soft_token>", INDEX, add_gemma3,
     process_square, of_gemma3},
    {FV_GGUF_IDEFICS3, "idefics3", "idefics3", NULL, "<image>", "image_token_id", add_idefics3,
     process_idefics3, of_llama},
    {FV_GGUF_PIXTRAL, "pixtral", "mistral3", NULL, "[IMG]", INDEX, add_pixtral, process_pixtral,
     of_mistral},
    {FV_GGUF_INTERNVL, "internvl", "internvl", NULL, "<IMG_CONTEXT>", "image_token_id",
     add_internvl, process_internvl, of_any},
    {FV_GGUF_LLAVA, "mlp", "llava", NULL, "<image>", INDEX, add_llava, process_llava, of_any},
};
enum { N_TOWER = sizeof towers / sizeof *towers };

static bool is(fv_gguf_string s, const char *name) {
    return strlen(name) == s.n && memcmp(name, s.s, s.n) == 0;
}

static fv_status refuse_projector(const fv_gguf *g, fv_gguf_string s) {
    char names[256] = "";
    for (size_t i = 0; i < N_TOWER; i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", towers[i].name);
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: clip.projector_type is '%.*s'; mmproj files are read with %s: take the "
                   "model's safetensors",
                   fv_gguf_where(g), (int)(s.n < 80 ? s.n : 80), s.s, names);
}

static fv_status find_tower(const fv_gguf *g, const tower **out) {
    fv_gguf_string s = {"mlp", 3}, arch = {"", 0};
    bool vision = true;
    FV_TRY(fv_gguf_text(g, "general.architecture", &arch));
    if (!is(arch, "clip"))
        return FV_FAIL(FV_EINVAL,
                       "--mmproj: %s is no vision tower: general.architecture is '%.*s', not "
                       "'clip'",
                       fv_gguf_where(g), (int)(arch.n < 80 ? arch.n : 80), arch.s);
    FV_TRY(fv_gguf_bool(g, "clip.has_vision_encoder", &vision));
    FV_TRY(fv_gguf_text(g, "clip.projector_type", &s));
    FV_TRY(fv_gguf_text(g, "clip.vision.projector_type", &s));
    if (!vision)
        return FV_FAIL(FV_EUNSUPPORTED, "%s has no vision tower, but one for sound",
                       fv_gguf_where(g));
    for (size_t i = 0; i < N_TOWER; i++)
        if (is(s, towers[i].name)) {
            *out = &towers[i];
            return FV_OK;
        }
    return refuse_projector(g, s);
}

fv_status fv_gguf_projector_of(const fv_gguf *g, fv_gguf_projector *out) {
    const tower *t;
    FV_TRY(find_tower(g, &t));
    *out = t->kind;
    return FV_OK;
}

static fv_status check_pair(const maker *k, const tower *t, const fv_gguf_architecture *a,
                            const json_t *text) {
    double width = json_number_value(json_object_get(text, "hidden_size")), made = width;
    bool fits = false;
    for (int i = 0; t->texts[i]; i++) fits = fits || !strcmp(t->texts[i], a->name);
    if (!fits)
        return FV_FAIL(FV_EINVAL,
                       "%s and %s do not belong together: the first has the projector '%s', the "
                       "second is a %s model",
                       fv_gguf_where(k->g), fv_gguf_where(k->s->model[0]), t->name, a->name);
    if (t->kind != FV_GGUF_LLAVA)
        FV_TRY(number(k, "vision.projection_dim", FV_GGUF_OPTIONAL, &made));
    if (made == width) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "%s and %s do not belong together: the first makes tokens of width %g "
                   "(clip.vision.projection_dim), the second is %g wide",
                   fv_gguf_where(k->g), fv_gguf_where(k->s->model[0]), made, width);
}

/* Rows of the first layer's FFN: files of Qwen2-VL have another number as its width. The oldest files
 * have the names of its two matrices exchanged. */
static double ffn_of(const maker *k) {
    double rows = 0;
    const fv_gguf_tensor *up = fv_gguf_find(k->g, "v.blk.0.ffn_up.weight");
    const fv_gguf_tensor *down = fv_gguf_find(k->g, "v.blk.0.ffn_down.weight");
    if (up) rows = (double)up->shape[0];
    if (up && down && fv_gguf_is_swapped(up, (int64_t)k->width)) rows = (double)down->shape[0];
    return rows;
}

bool fv_gguf_is_swapped(const fv_gguf_tensor *up, int64_t width) {
    return up->n_dim == 2 && up->shape[0] == width && up->shape[1] != width;
}

static fv_status add_sizes(maker *k) {
    double heads = 0, image = 0, patch = 0, ffn = 0;
    FV_TRY(number(k, "vision.embedding_length", FV_GGUF_REQUIRED, &k->width));
    FV_TRY(number(k, "vision.block_count", FV_GGUF_REQUIRED, &k->layers));
    FV_TRY(number(k, "vision.attention.head_count", FV_GGUF_REQUIRED, &heads));
    FV_TRY(number(k, "vision.image_size", FV_GGUF_REQUIRED, &image));
    FV_TRY(number(k, "vision.patch_size", FV_GGUF_REQUIRED, &patch));
    FV_TRY(number(k, "vision.feed_forward_length", FV_GGUF_OPTIONAL, &ffn));
    if (!(patch >= 1 && image >= patch && k->width >= 1 && k->layers >= 1 && k->layers <= 4096))
        return FV_FAIL(FV_EDATA,
                       "%s: keys 'clip.vision.image_size' (%g), 'patch_size' (%g), "
                       "'embedding_length' (%g) and 'block_count' (%g) describe no tower",
                       fv_gguf_where(k->g), image, patch, k->width, k->layers);
    if (ffn_of(k) > 0) ffn = ffn_of(k);
    k->side = floor(image / patch);
    put(k, k->vision, "hidden_size", k->width);
    put(k, k->vision, "intermediate_size", ffn);
    put(k, k->vision, "num_hidden_layers", k->layers);
    put(k, k->vision, "num_attention_heads", heads);
    put(k, k->vision, "image_size", image);
    put(k, k->vision, "patch_size", patch);
    return FV_OK;
}

static fv_status add_image_token(const maker *k, const tower *t) {
    int64_t id;
    FV_TRY(fv_gguf_token(k->s->model[0], t->image_token, &id));
    if (id < 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s has no token '%s', which stands for an image: convert the model again "
                       "with llama.cpp's convert_hf_to_gguf.py, or take its safetensors",
                       fv_gguf_where(k->s->model[0]), t->image_token);
    fv_gguf_put(k->m, k->root, t->image_key, json_integer(id));
    return FV_OK;
}

fv_status fv_gguf_vision_config(const fv_gguf_set *s, const fv_gguf_architecture *a,
                                fv_gguf_json *m) {
    const tower *t;
    FV_TRY(find_tower(s->mmproj, &t));
    maker k = {.s = s, .g = s->mmproj, .m = m, .root = json_object(), .vision = json_object()};
    json_t *text = m->root;
    m->root = k.root;
    if (t->text_type) fv_gguf_put(m, text, "model_type", json_string(t->text_type));
    fv_gguf_put(m, k.root, "model_type", json_string(a->vision ? a->vision : t->model_type));
    fv_gguf_put(m, k.root, "tie_word_embeddings",
                json_incref(json_object_get(text, "tie_word_embeddings")));
    fv_gguf_put(m, k.root, "text_config", text);
    fv_gguf_put(m, k.root, "vision_config", k.vision);
    FV_TRY(check_pair(&k, t, a, text));
    FV_TRY(add_sizes(&k));
    FV_TRY(add_image_token(&k, t));
    return t->add(&k);
}

/* ---- preprocessor_config.json ---------------------------------------------------------------- */

static fv_status add_channels(const maker *k, const char *own, const char *hub) {
    double *x = NULL;
    size_t n = 0;
    FV_TRY(fv_gguf_numbers(k->g, own, &x, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < 3; i++) fv_gguf_append(k->m, list, json_real(x[i]));
    free(x);
    fv_gguf_put(k->m, k->m->root, hub, list);
    if (n == 3) return FV_OK;
    return FV_FAIL(FV_EDATA, "%s: key '%s' must be three numbers", fv_gguf_where(k->g), own);
}

fv_status fv_gguf_processor(const fv_gguf_set *s, fv_gguf_json *m) {
    const tower *t;
    if (!s->mmproj) return FV_OK;
    FV_TRY(find_tower(s->mmproj, &t));
    maker k = {.s = s, .g = s->mmproj, .m = m};
    FV_TRY(add_channels(&k, "clip.vision.image_mean", "image_mean"));
    FV_TRY(add_channels(&k, "clip.vision.image_std", "image_std"));
    return t->process(&k);
}
