/* Parses the part of a language model's config.json that is Gemma 4's own: heads of two sizes, sliding
 * layers, RoPE, norms and scales. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/families/keys.h"

enum { HEAD_DIM_MAX = 1024, PATTERN = 6, EXPERT_ROWS_MAX = 1 << 24, INPUTS_MAX = 1 << 20 };

/* Which layers slide: those of layer_types, or all but every sixth. The last one never does. */
static fv_status parse_types(const json_t *obj, const char *where, fv_text_config *t) {
    const json_t *types = fv_config_member(obj, "layer_types");
    if (types && (!json_is_array(types) || json_array_size(types) != (size_t)t->n_layer))
        return FV_FAIL(FV_EDATA, "%s: key 'layer_types' must name the type of each of %d layers",
                       where, t->n_layer);
    for (int32_t l = 0; l < t->n_layer; l++) {
        const char *name = json_string_value(json_array_get(types, (size_t)l));
        t->slides[l] = types ? name && !strcmp(name, "sliding_attention") : (l + 1) % PATTERN != 0;
        if (types && !t->slides[l] && (!name || strcmp(name, "full_attention") != 0))
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: unsupported layer_types: layer %d is '%s'; supported: "
                           "full_attention and sliding_attention",
                           where, l, name ? name : "");
    }
    t->slides[t->n_layer - 1] = false;
    return FV_OK;
}

/* Reads the heads of full layers from per_layer_config, which has an object for each of them. */
static fv_status parse_layers(const json_t *layers, const char *where, fv_text_config *t) {
    bool first = true;
    if (!json_is_object(layers))
        return FV_FAIL(FV_EDATA, "%s: key 'per_layer_config' must be an object", where);
    for (int32_t l = 0; l < t->n_layer; l++) {
        char key[16];
        snprintf(key, sizeof key, "%d", l);
        const json_t *layer = fv_config_member(layers, key);
        int32_t d = t->slide_d, n_kv = t->slide_kv;
        FV_TRY(fv_json_i32(layer, "head_dim", where, 1, HEAD_DIM_MAX, &d));
        FV_TRY(fv_json_i32(layer, "num_key_value_heads", where, 1, FV_CONFIG_HEADS_MAX, &n_kv));
        if (!t->slides[l] && first) t->d_head = d, t->full_kv = n_kv, first = false;
        if (d == (t->slides[l] ? t->slide_d : t->d_head) &&
            n_kv == (t->slides[l] ? t->slide_kv : t->full_kv))
            continue;
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'per_layer_config': layer %d has %d heads of %d; sliding layers "
                       "must have those of the model, and full layers be alike",
                       where, l, n_kv, d);
    }
    return FV_OK;
}

/* Chooses the heads of the store (model/net/heads_internal.h): the fewest that both kinds of layers fit. */
static fv_status choose_heads(const char *where, fv_text_config *t) {
    const int32_t most = t->slide_d > 0 ? t->d_head / t->slide_d : 0, d = t->slide_d;
    const bool whole = d % 2 == 0 && t->d_head % d == 0 && t->n_head % t->full_kv == 0;
    for (int32_t n = t->full_kv; whole && n <= t->n_head; n += t->full_kv) {
        const bool beside = t->slide_kv % n == 0 && t->slide_kv / n <= most;
        if (t->n_head % n || !(beside || n % t->slide_kv == 0)) continue;
        t->n_kv = n;
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: %d query heads, %d KV heads of %d in sliding layers and %d of %d in full "
                   "ones: the engine wants the larger size to be a multiple of the smaller, and "
                   "heads that share out",
                   where, t->n_head, t->slide_kv, d, t->full_kv, t->d_head);
}

static fv_status parse_heads(const json_t *obj, const char *where, fv_text_config *t) {
    const json_t *layers = fv_config_member(obj, "per_layer_config");
    t->slide_d = t->d_head;
    t->slide_kv = t->full_kv = t->n_kv;
    t->d_head = 512;
    FV_TRY(fv_json_bool(obj, "attention_k_eq_v", where, &t->value_is_key));
    FV_TRY(fv_json_i32(obj, "global_head_dim", where, 1, HEAD_DIM_MAX, &t->d_head));
    if (t->value_is_key)
        FV_TRY(fv_json_i32(obj, "num_global_key_value_heads", where, 1, FV_CONFIG_HEADS_MAX,
                           &t->full_kv));
    if (layers) FV_TRY(parse_layers(layers, where, t));
    return choose_heads(where, t);
}

/* Parses one kind of layer's RoPE. `proportional` gives the first part of a head's frequencies, which
 * count over the whole head, and 0 to the others. */
static fv_status parse_rope(const json_t *obj, const char *kind, const char *where, int32_t d_head,
                            fv_rope_config *rope) {
    const json_t *p = fv_config_member(obj, "rope_parameters");
    const bool full = !strcmp(kind, "full_attention");
    const char *type = p || !full ? "default" : "proportional";
    double partial = p ? 1 : 0.25;
    *rope = (fv_rope_config){.theta = full ? 1e6 : 1e4, .factor = 1};
    if (p && !json_is_object(p))
        return FV_FAIL(FV_EDATA, "%s: key 'rope_parameters' must be an object", where);
    p = fv_config_member(p, kind);
    FV_TRY(fv_json_str(p, "rope_type", where, &type));
    FV_TRY(fv_json_f64(p, "rope_theta", where, &rope->theta));
    FV_TRY(fv_json_f64(p, "partial_rotary_factor", where, &partial));
    const bool proportional = !strcmp(type, "proportional");
    if (proportional) FV_TRY(fv_json_f64(p, "factor", where, &rope->factor));
    if (!proportional && strcmp(type, "default") != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: unsupported rope_type '%s' of %s; supported: default and proportional",
                       where, type, kind);
    if (!(rope->theta > 0) || !(rope->factor > 0))
        return FV_FAIL(FV_EDATA, "%s: keys 'rope_theta' and 'factor' must be greater than 0",
                       where);
    if (rope->factor != 1) rope->type = FV_ROPE_LINEAR;
    if (!proportional) return FV_OK;
    rope->angles = partial > 0 && partial <= 1 ? (int32_t)floor(partial * d_head / 2) : 0;
    if (rope->angles > 0) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: key 'partial_rotary_factor' is %g; it must be above 0, at most 1, "
                   "and rotate a pair of a head's %d dimensions",
                   where, partial, d_head);
}

/* Refuses what other Gemma 4 models have, by name. */
static fv_status refuse_others(const json_t *obj, const char *where, bool unified) {
    int32_t shared = 0;
    bool bias = false;
    FV_TRY(fv_json_i32(obj, "num_kv_shared_layers", where, 0, FV_MAX_LAYERS, &shared));
    FV_TRY(fv_json_bool(obj, "attention_bias", where, &bias));
    if (shared && unified)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'num_kv_shared_layers' is %d; it must be 0 in a model without a "
                       "tower",
                       where, shared);
    if (bias)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'attention_bias' is true, which no Gemma 4 has",
                       where);
    return FV_OK;
}

static fv_status parse_images(const json_t *obj, const char *where, bool unified,
                              fv_text_config *t) {
    const bool null = json_is_null(json_object_get(obj, "use_bidirectional_attention"));
    const char *both_ways = unified && !null ? "vision" : "";
    FV_TRY(fv_json_str(obj, "use_bidirectional_attention", where, &both_ways));
    if (*both_ways && strcmp(both_ways, "vision") != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'use_bidirectional_attention' is '%s'; supported: null and "
                       "'vision'",
                       where, both_ways);
    t->image_whole = t->image_slides = *both_ways != 0;
    return FV_OK;
}

/* Parses the experts, which every layer has beside its FFN. */
static fv_status parse_experts(const json_t *obj, const char *where, fv_text_config *t) {
    FV_TRY(fv_json_bool(obj, "enable_moe_block", where, &t->dense_beside));
    if (!t->dense_beside) return FV_OK;
    FV_TRY(fv_json_i32(obj, "num_experts", where, 1, FV_EXPERTS_MAX, &t->n_expert));
    FV_TRY(fv_json_i32(obj, "top_k_experts", where, 1, FV_EXPERTS_MAX, &t->n_active));
    FV_TRY(fv_json_i32(obj, "moe_intermediate_size", where, 1, FV_CONFIG_WIDTH_MAX, &t->d_expert));
    for (int32_t l = 0; l < t->n_layer; l++) t->sparse[l] = true;
    const int64_t wide = t->d_model > 2 * t->d_expert ? t->d_model : 2 * t->d_expert;
    if (t->n_active < 1 || t->d_expert < 1 || t->n_active > t->n_expert)
        return FV_FAIL(FV_EDATA,
                       "%s: keys 'num_experts' (%d), 'top_k_experts' (%d) and "
                       "'moe_intermediate_size' (%d) must be given, and the second at most the "
                       "first",
                       where, t->n_expert, t->n_active, t->d_expert);
    if (t->n_expert * wide <= EXPERT_ROWS_MAX) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: %d experts of %d rows are more than %d in one tensor",
                   where, t->n_expert, (int32_t)wide, EXPERT_ROWS_MAX);
}

/* Takes the last layers out of n_layer that use the keys and values of earlier ones. */
static fv_status parse_shared(const json_t *obj, const char *where, fv_text_config *t) {
    int32_t n = 0;
    FV_TRY(fv_json_i32(obj, "num_kv_shared_layers", where, 0, FV_MAX_LAYERS, &n));
    FV_TRY(fv_json_bool(obj, "use_double_wide_mlp", where, &t->sharer_wide));
    if (n == 0) return FV_OK;
    if (n >= t->n_layer)
        return FV_FAIL(FV_EDATA, "%s: key 'num_kv_shared_layers' is %d of %d layers", where, n,
                       t->n_layer);
    t->n_layer -= n;
    t->n_sharer = n;
    for (int32_t l = t->n_layer; l < fv_text_layers(t); l++)
        if (t->slides[fv_text_kv_layer(t, l)] != t->slides[l])
            return FV_FAIL(FV_EDATA,
                           "%s: key 'num_kv_shared_layers': layer %d %s, and none of the %d layers "
                           "with keys and values does",
                           where, l, t->slides[l] ? "slides" : "sees everything", t->n_layer);
    if (!t->image_whole) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'use_bidirectional_attention' is 'vision', which needs "
                   "'num_kv_shared_layers' to be 0",
                   where);
}

/* Parses the per-layer embeddings. */
static fv_status parse_inputs(const json_t *obj, const char *where, fv_text_config *t) {
    int32_t vocab = 262144;
    t->d_input = 256;
    FV_TRY(fv_json_i32(obj, "hidden_size_per_layer_input", where, 0, FV_CONFIG_WIDTH_MAX,
                       &t->d_input));
    if (t->d_input == 0) return FV_OK;
    FV_TRY(fv_json_i32(obj, "vocab_size_per_layer_input", where, 1, INT32_MAX, &vocab));
    if (vocab != t->vocab)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'vocab_size_per_layer_input' (%d) and 'vocab_size' (%d) must be "
                       "equal",
                       where, vocab, t->vocab);
    if ((int64_t)fv_text_layers(t) * t->d_input <= INPUTS_MAX) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: per-layer embeddings of %d numbers are too long", where,
                   t->d_input);
}

fv_status fv_config_gemma4(const json_t *obj, const char *where, bool unified, fv_text_config *t) {
    int32_t window = unified ? 1024 : 512;
    FV_TRY(refuse_others(obj, where, unified));
    FV_TRY(parse_types(obj, where, t));
    FV_TRY(parse_heads(obj, where, t));
    FV_TRY(parse_rope(obj, "full_attention", where, t->d_head, &t->rope));
    FV_TRY(parse_rope(obj, "sliding_attention", where, t->slide_d, &t->rope_slides));
    FV_TRY(parse_images(obj, where, unified, t));
    if (!unified) FV_TRY(parse_experts(obj, where, t));
    if (!unified) FV_TRY(parse_inputs(obj, where, t));
    FV_TRY(fv_json_i32(obj, "sliding_window", where, 1, INT32_MAX, &window));
    FV_TRY(fv_json_f32(obj, "final_logit_softcapping", where, &t->logits_cap));
    if (!(t->logits_cap >= 0))
        return FV_FAIL(FV_EDATA, "%s: key 'final_logit_softcapping' must not be negative", where);
    for (int32_t l = 0; l < t->n_layer; l++)
        if (t->slides[l]) t->window = window;
    if (!unified) FV_TRY(parse_shared(obj, where, t));
    t->rope_slides.beside = t->d_head / t->slide_d;
    t->two_ropes = t->post_norms = t->value_norm = t->layer_scale = true;
    t->embed_scale = (float)sqrt(t->d_model);
    t->score_scale = 1;
    return FV_OK;
}
