/* Parses RoPE's keys of a text model. */
#include <math.h>
#include <string.h>

#include "model/families/text_config_internal.h"

/* mscale of YaRN's attention factor (arXiv 2309.00071, equation 22). */
static double yarn_scale(double factor, double by) {
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

/* As in transformers, keys that are null or 0 get their defaults. */
static fv_status parse_yarn(const json_t *obj, const json_t *p, const char *where,
                            int32_t max_position, fv_rope_config *rope) {
    double mscale = 0, mscale_all_dim = 0, attention = 0;
    *rope = (fv_rope_config){.type = FV_ROPE_YARN,
                             .theta = rope->theta,
                             .original_max_position = max_position,
                             .truncate = true};
    FV_TRY(fv_json_f64(p, "factor", where, &rope->factor));
    FV_TRY(fv_json_f64(p, "original_max_position_embeddings", where, &rope->original_max_position));
    FV_TRY(
        fv_json_f64(obj, "original_max_position_embeddings", where, &rope->original_max_position));
    FV_TRY(fv_json_f64(p, "beta_fast", where, &rope->beta_fast));
    FV_TRY(fv_json_f64(p, "beta_slow", where, &rope->beta_slow));
    FV_TRY(fv_json_bool(p, "truncate", where, &rope->truncate));
    FV_TRY(fv_json_f64(p, "mscale", where, &mscale));
    FV_TRY(fv_json_f64(p, "mscale_all_dim", where, &mscale_all_dim));
    FV_TRY(fv_json_f64(p, "attention_factor", where, &attention));
    FV_TRY(
        fv_config_positive("original_max_position_embeddings", rope->original_max_position, where));
    if (!fv_config_member(p, "factor")) rope->factor = max_position / rope->original_max_position;
    if (rope->beta_fast == 0) rope->beta_fast = 32;
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (!fv_config_member(p, "attention_factor"))
        attention =
            mscale != 0 && mscale_all_dim != 0
                ? yarn_scale(rope->factor, mscale) / yarn_scale(rope->factor, mscale_all_dim)
                : yarn_scale(rope->factor, 1);
    rope->attention_factor = attention;
    FV_TRY(fv_config_positive("factor", rope->factor, where));
    FV_TRY(fv_config_positive("beta_fast", rope->beta_fast, where));
    FV_TRY(fv_config_positive("beta_slow", rope->beta_slow, where));
    FV_TRY(fv_config_positive("attention_factor", attention, where));
    if (rope->theta == 1)
        return FV_FAIL(FV_EDATA, "%s: key 'rope_theta' must not be 1 with rope_type yarn", where);
    return FV_OK;
}

/* Dynamic NTK scaling raises the base for sequences longer than max_position_embeddings,
 *     theta' = theta (factor L / max - (factor - 1))^(D / (D - 2))
 * and keeps theta up to that length, L = max. fv_text_context allows no longer sequence, so the
 * type changes nothing; InternVL 2.5 and 3 have it. */
static fv_status check_dynamic(const json_t *p, const char *where) {
    double factor = 0;
    FV_TRY(fv_json_f64(p, "factor", where, &factor));
    return fv_config_positive("factor", factor, where);
}

static fv_status parse_type(const json_t *obj, const json_t *p, const fv_text_family *f,
                            const char *where, int32_t max_position, fv_rope_config *rope) {
    const char *type = "default";
    FV_TRY(fv_json_str(p, "type", where, &type));
    FV_TRY(fv_json_str(p, "rope_type", where, &type));
    if (!strcmp(type, "default") || (f->section[0] && !strcmp(type, "mrope"))) return FV_OK;
    if (!strcmp(type, "dynamic")) return check_dynamic(p, where);
    if (!strcmp(type, "linear"))
        rope->type = FV_ROPE_LINEAR;
    else if (!strcmp(type, "llama3"))
        rope->type = FV_ROPE_LLAMA3;
    else if (!strcmp(type, "yarn"))
        rope->type = FV_ROPE_YARN;
    else
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: unsupported rope_type '%s'; supported: default, dynamic, linear, llama3 and "
            "yarn",
            where, type);
    if (rope->type == FV_ROPE_YARN) return parse_yarn(obj, p, where, max_position, rope);
    rope->factor = 0; /* 0 is refused below: the key is required */
    FV_TRY(fv_json_f64(p, "factor", where, &rope->factor));
    FV_TRY(fv_config_positive("factor", rope->factor, where));
    if (rope->type == FV_ROPE_LINEAR) return FV_OK;

    rope->original_max_position = max_position;
    FV_TRY(fv_json_f64(p, "low_freq_factor", where, &rope->low_freq_factor));
    FV_TRY(fv_json_f64(p, "high_freq_factor", where, &rope->high_freq_factor));
    FV_TRY(fv_json_f64(p, "original_max_position_embeddings", where, &rope->original_max_position));
    FV_TRY(
        fv_json_f64(obj, "original_max_position_embeddings", where, &rope->original_max_position));
    FV_TRY(fv_config_positive("low_freq_factor", rope->low_freq_factor, where));
    FV_TRY(
        fv_config_positive("original_max_position_embeddings", rope->original_max_position, where));
    if (!(rope->high_freq_factor > rope->low_freq_factor))
        return FV_FAIL(FV_EDATA, "%s: key 'high_freq_factor' must be greater than low_freq_factor",
                       where);
    return FV_OK;
}

/* Parses M-RoPE's sections in the families that have them. */
static fv_status parse_sections(const json_t *p, const fv_text_family *f, const char *where,
                                int32_t d_head, fv_rope_config *rope) {
    const json_t *list = fv_config_member(p, "mrope_section");
    bool interleaved = f->interleaved, whole = !list || json_array_size(list) == 3;
    int32_t *section = rope->section, half = (rope->rotary ? rope->rotary : d_head) / 2;
    if (f->section[0] == 0) return FV_OK;
    FV_TRY(fv_json_bool(p, "mrope_interleaved", where, &interleaved));
    if (interleaved != f->interleaved)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'mrope_interleaved' is %s, which %s is not", where,
                       interleaved ? "true" : "false", f->name);
    rope->interleaved = interleaved;
    for (int i = 0; i < 3; i++) {
        json_int_t n = list ? json_integer_value(json_array_get(list, (size_t)i)) : f->section[i];
        whole = whole && n > 0 && n <= half;
        section[i] = whole ? (int32_t)n : 0;
        /* its last frequency must exist */
        whole = whole && (!interleaved || i == 0 || i + 3 * (section[i] - 1) < half);
    }
    if (whole && section[0] + section[1] + section[2] == half) return FV_OK;
    return FV_FAIL(
        FV_EDATA,
        "%s: key 'mrope_section'%s must be three numbers above 0 with the sum %d, half of %s%s",
        where, list ? "" : " is absent; it", half,
        rope->rotary ? "what RoPE rotates of a head" : "head_dim",
        interleaved ? ", the last two at most a third of it" : "");
}

/* Sets how many dimensions of a head are rotated: a whole fraction of it, so that a head consists of
 * runs of half as many (model/net/recurrent_internal.h). */
static fv_status set_rotary(const char *where, double partial, int32_t d_head,
                            fv_rope_config *rope) {
    int32_t rotary = partial > 0 && partial <= 1 ? (int32_t)(d_head * partial) : 0;
    if (rotary < 2 || rotary % 2 || (d_head % rotary && !rope->adjacent))
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: key 'partial_rotary_factor' is %g: %d of %d dimensions; it must be 1 / n, "
            "with an even number of dimensions",
            where, partial, rotary, d_head);
    rope->rotary = rotary < d_head ? rotary : 0;
    return FV_OK;
}

/* Parses Ministral 3's scale of queries. Without RoPE's keys the class has YaRN for 16 times 16 384
 * positions, whose attention factor is 1. */
static fv_status parse_query_scale(const json_t *p, const char *where, fv_rope_config *rope) {
    if (!p) {
        *rope = (fv_rope_config){.type = FV_ROPE_YARN,
                                 .theta = 1e6,
                                 .factor = 16,
                                 .original_max_position = 16384,
                                 .beta_fast = 32,
                                 .beta_slow = 1,
                                 .attention_factor = 1,
                                 .truncate = true,
                                 .query_beta = 0.1,
                                 .query_span = 16384};
        return FV_OK;
    }
    FV_TRY(fv_json_f64(p, "llama_4_scaling_beta", where, &rope->query_beta));
    FV_TRY(fv_json_f64(p, "original_max_position_embeddings", where, &rope->query_span));
    if (!(rope->query_beta >= 0))
        return FV_FAIL(FV_EDATA, "%s: key 'llama_4_scaling_beta' must not be negative", where);
    return rope->query_beta == 0
               ? FV_OK
               : fv_config_positive("original_max_position_embeddings", rope->query_span, where);
}

/* Version 4 has rope_theta beside rope_scaling {type or rope_type, ...}; version 5 has both in
 * rope_parameters, which may hold one object per kind of layer. */
fv_status fv_config_rope(const json_t *obj, const fv_text_family *f, const char *where,
                         const fv_text_config *t, fv_rope_config *rope) {
    *rope = (fv_rope_config){.theta = f->theta > 0 ? f->theta : 10000, .factor = 1};
    const json_t *scaling = fv_config_member(obj, "rope_scaling");
    const json_t *p = fv_config_member(obj, "rope_parameters");
    if ((scaling && !json_is_object(scaling)) || (p && !json_is_object(p)))
        return FV_FAIL(FV_EDATA, "%s: rope_scaling and rope_parameters must be objects", where);
    if (json_object_size(scaling) > 0) p = scaling;
    if (fv_config_member(p, "sliding_attention") && !f->gemma)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: rope_parameters per layer type are supported for gemma3 only", where);
    const json_t *full = fv_config_member(p, "full_attention");
    if (full) p = full;

    FV_TRY(fv_json_f64(obj, "rope_theta", where, &rope->theta));
    FV_TRY(fv_json_f64(p, "rope_theta", where, &rope->theta));
    FV_TRY(fv_config_positive("rope_theta", rope->theta, where));
    const bool parts = f->recurrent || f->glm || f->glm_moe; /* of a head may be rotated */
    double partial = f->recurrent ? 0.25 : f->glm_moe ? 0.5 : 1;
    FV_TRY(fv_json_f64(obj, "partial_rotary_factor", where, &partial));
    FV_TRY(fv_json_f64(p, "partial_rotary_factor", where, &partial));
    rope->adjacent = f->glm;
    if (parts) FV_TRY(set_rotary(where, partial, t->d_head, rope));
    if (partial != 1 && !parts)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'partial_rotary_factor' is %g; only 1 is possible",
                       where, partial);

    int32_t rotary = rope->rotary;
    FV_TRY(parse_type(obj, p, f, where, t->max_position, rope));
    if (rotary && rope->type == FV_ROPE_YARN)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'rope_type' is 'yarn', which needs whole heads to be rotated",
                       where);
    if (f->ministral) FV_TRY(parse_query_scale(p, where, rope));
    return parse_sections(p, f, where, t->d_head, rope);
}

/* Parses the RoPE of sliding layers: version 4 has a key for its base, version 5 an object. */
fv_status fv_config_rope_slides(const json_t *obj, const fv_text_family *f, const char *where,
                                const fv_text_config *t, fv_rope_config *rope) {
    const json_t *p =
        fv_config_member(fv_config_member(obj, "rope_parameters"), "sliding_attention");
    *rope = (fv_rope_config){.theta = 10000, .factor = 1};
    FV_TRY(fv_json_f64(obj, "rope_local_base_freq", where, &rope->theta));
    FV_TRY(fv_json_f64(p, "rope_theta", where, &rope->theta));
    FV_TRY(fv_config_positive("rope_local_base_freq", rope->theta, where));
    return parse_type(obj, p, f, where, t->max_position, rope);
}
