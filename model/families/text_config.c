/* Parses the language model's part of config.json: Llama, Mistral, Ministral 3, Qwen2, Qwen3, Granite,
 * Phi-3, Gemma 3 and Gemma 4, the Qwen-VL families, which are Qwen2 and Qwen3 with M-RoPE, and Qwen3.5, most of
 * whose layers are recurrent.
 *
 * They share one decoder layer. They differ in defaults, in which biases and norms exist, and in
 * which layers slide. */
#include <math.h>
#include <string.h>

#include "model/families/keys.h"

enum {
    VOCAB_MAX = 1 << 22,
    HEAD_DIM_MAX = 1024,
    POSITION_MAX = 1 << 30,
    EXPERT_ROWS_MAX = 1 << 24,
    EXPERTS_APART_MAX = 1 << 15, /* of all layers, as each is three tensors */
};

typedef struct text_family {
    const char *name, *architecture;
    int32_t vocab, d_ffn, n_kv /* 0: as many as heads */, max_position, bos, eos;
    int32_t d_model, n_layer, n_head; /* 0: 4096, 32, 32 */
    int32_t d_head;                   /* 0: d_model / n_head */
    float rms_eps;                    /* 0: 1e-6 */
    double theta;                     /* 0: 10000 */
    int32_t section[3];               /* M-RoPE's sections, */
    bool interleaved;                 /* and whether they are interleaved */
    bool attention_bias;              /* the key exists in this family */
    bool bias_qkv, qk_norm;
    bool window_key; /* the window counts only with use_sliding_window */
    bool gemma;      /* norms, scales and two RoPEs as in Gemma 3 */
    bool gemma4;     /* heads of two sizes, norms and scales as in Gemma 4 */
    bool unified;    /* with the defaults of its 12B's class */
    bool recurrent;  /* layers, gates and partial RoPE as in Qwen3.5 */
    bool slides;     /* all layers slide where 'sliding_window' is a number */
    bool mlp_bias;   /* the key exists */
    bool ministral; /* queries are scaled by position, and RoPE is YaRN unless the file says else */
    bool granite;   /* has Granite's multipliers */
    bool fused;     /* tensors of q, k and v, and of gate and up, are one */
    bool use_bias;  /* the key exists, for all linear layers */
    bool glm;       /* norms, adjacent pairs and partial RoPE as in GLM-4.1V */
    bool glm_moe;   /* partial RoPE, a sigmoid router and a shared expert as in GLM-4.5V */
    int32_t n_expert, n_active, d_expert; /* of a mixture of experts; 0: the family has none */
    bool transposed;                      /* its matrices are [in, out] in files */
} text_family;

#define QWEN2_VL_TEXT                                                                              \
    .vocab = 152064, .d_ffn = 29568, .n_kv = 8, .max_position = 32768, .bos = 151643,              \
    .eos = 151645, .d_model = 8192, .n_layer = 80, .n_head = 64, .rms_eps = 1e-5F, .theta = 1e6,   \
    .section = {16, 24, 24}, .bias_qkv = true, .window_key = true

#define GEMMA4_TEXT                                                                                \
    .vocab = 262144, .d_ffn = 9216, .n_kv = 4, .bos = 2, .eos = 1, .d_model = 2304, .n_layer = 30, \
    .n_head = 8, .d_head = 256, .qk_norm = true, .gemma4 = true

static const text_family families[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .vocab = 32000,
     .d_ffn = 11008,
     .max_position = 2048,
     .bos = 1,
     .eos = 2,
     .attention_bias = true,
     .mlp_bias = true},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .vocab = 32000,
     .d_ffn = 14336,
     .n_kv = 8,
     .max_position = 131072,
     .bos = 1,
     .eos = 2},
    {.name = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .vocab = 131072,
     .d_ffn = 14336,
     .n_layer = 34,
     .n_kv = 8,
     .d_head = 128,
     .max_position = 262144,
     .rms_eps = 1e-5F,
     .bos = 1,
     .eos = 2,
     .slides = true,
     .ministral = true},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .vocab = 32000,
     .d_ffn = 11008,
     .max_position = 2048,
     .bos = 1,
     .eos = 2,
     .attention_bias = true,
     .mlp_bias = true,
     .granite = true},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .vocab = 32064,
     .d_model = 3072,
     .d_ffn = 8192,
     .max_position = 4096,
     .rms_eps = 1e-5F,
     .bos = 1,
     .eos = 32000,
     .slides = true,
     .fused = true},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .vocab = 151936,
     .d_ffn = 22016,
     .n_kv = 32,
     .max_position = 32768,
     .bos = -1,
     .eos = -1,
     .bias_qkv = true,
     .window_key = true},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .vocab = 151936,
     .d_ffn = 22016,
     .n_kv = 32,
     .max_position = 32768,
     .bos = -1,
     .eos = -1,
     .d_head = 128,
     .attention_bias = true,
     .qk_norm = true,
     .window_key = true},
    {.name = "qwen2_vl_text", .architecture = "Qwen2VLTextModel", QWEN2_VL_TEXT},
    {.name = "qwen2_5_vl_text", .architecture = "Qwen2_5_VLTextModel", QWEN2_VL_TEXT},
    {.name = "qwen3_vl_text",
     .architecture = "Qwen3VLTextModel",
     .vocab = 151936,
     .d_ffn = 22016,
     .n_kv = 32,
     .max_position = 128000,
     .bos = -1,
     .eos = -1,
     .d_head = 128,
     .theta = 5e5,
     .section = {24, 20, 20},
     .interleaved = true,
     .attention_bias = true,
     .qk_norm = true},
    {.name = "qwen3_vl_moe_text",
     .architecture = "Qwen3VLMoeTextModel",
     .vocab = 151936,
     .d_model = 2048,
     .d_ffn = 5632,
     .n_layer = 24,
     .n_head = 16,
     .n_kv = 16,
     .max_position = 128000,
     .bos = -1,
     .eos = -1,
     .theta = 5e5,
     .section = {24, 20, 20},
     .interleaved = true,
     .attention_bias = true,
     .qk_norm = true,
     .n_expert = 60,
     .n_active = 4,
     .d_expert = 1408,
     .transposed = true},
    {.name = "qwen3_5_text",
     .architecture = "Qwen3_5ForCausalLM",
     .vocab = 248320,
     .d_ffn = 12288,
     .n_kv = 4,
     .max_position = 32768,
     .bos = -1,
     .eos = -1,
     .n_head = 16,
     .d_head = 256,
     .section = {11, 11, 10},
     .interleaved = true,
     .attention_bias = true,
     .qk_norm = true,
     .recurrent = true},
    {.name = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .vocab = 248320,
     .d_ffn = 512,
     .n_kv = 2,
     .max_position = 32768,
     .bos = -1,
     .eos = -1,
     .d_model = 2048,
     .n_layer = 40,
     .n_head = 16,
     .d_head = 256,
     .section = {11, 11, 10},
     .interleaved = true,
     .attention_bias = true,
     .qk_norm = true,
     .recurrent = true,
     .n_expert = 256,
     .n_active = 8,
     .d_expert = 512},
    {.name = "paddleocr_vl_text",
     .architecture = "PaddleOCRTextModel",
     .vocab = 103424,
     .d_ffn = 3072,
     .n_kv = 2,
     .max_position = 131072,
     .bos = 1,
     .eos = 2,
     .d_model = 1024,
     .n_layer = 18,
     .n_head = 16,
     .d_head = 128,
     .rms_eps = 1e-5F,
     .theta = 5e5,
     .section = {16, 24, 24},
     .use_bias = true},
    {.name = "glm4v_text",
     .architecture = "Glm4vTextModel",
     .vocab = 151552,
     .d_ffn = 13696,
     .n_kv = 2,
     .max_position = 32768,
     .bos = -1,
     .eos = -1,
     .n_layer = 40,
     .rms_eps = 1e-5F,
     .section = {8, 12, 12},
     .bias_qkv = true,
     .glm = true},
    {.name = "glm4v_moe_text",
     .architecture = "Glm4vMoeTextModel",
     .vocab = 151424,
     .d_ffn = 10944,
     .n_kv = 8,
     .max_position = 65536,
     .bos = -1,
     .eos = -1,
     .n_layer = 46,
     .n_head = 96,
     .rms_eps = 1e-5F,
     .section = {8, 12, 12},
     .attention_bias = true,
     .glm_moe = true,
     .n_expert = 128,
     .n_active = 8,
     .d_expert = 1408},
    {.name = "glm_ocr_text",
     .architecture = "GlmOcrTextModel",
     .vocab = 59392,
     .d_ffn = 4096,
     .n_kv = 8,
     .max_position = 131072,
     .bos = -1,
     .eos = -1,
     .d_model = 1024,
     .n_layer = 16,
     .n_head = 16,
     .rms_eps = 1e-5F,
     .section = {8, 12, 12},
     .glm = true},
    {.name = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .vocab = 262208,
     .d_ffn = 9216,
     .n_kv = 4,
     .max_position = 131072,
     .bos = 2,
     .eos = 1,
     .d_model = 2304,
     .n_layer = 26,
     .n_head = 8,
     .d_head = 256,
     .theta = 1e6,
     .attention_bias = true,
     .qk_norm = true,
     .gemma = true},
    {GEMMA4_TEXT, .name = "gemma4_text", .architecture = "Gemma4ForCausalLM",
     .max_position = 131072},
    {GEMMA4_TEXT, .name = "gemma4_unified_text", .architecture = "Gemma4UnifiedForCausalLM",
     .max_position = 262144, .unified = true},
};
enum { N_FAMILY = sizeof families / sizeof *families };
const char fv_config_text_families[] =
    "llama, mistral, ministral3, granite, phi3, qwen2, qwen3, qwen2_vl_text, qwen2_5_vl_text, "
    "qwen3_vl_text, qwen3_vl_moe_text, qwen3_5_text, qwen3_5_moe_text, paddleocr_vl_text, "
    "glm4v_text, glm4v_moe_text, glm_ocr_text, "
    "gemma3_text, gemma4_text and gemma4_unified_text";

const char *fv_config_text_family(const char *name) {
    for (int i = 0; i < N_FAMILY; i++)
        if (!strcmp(name, families[i].name) || !strcmp(name, families[i].architecture))
            return families[i].name;
    return NULL;
}

static fv_status positive(const char *key, double value, const char *where) {
    if (value > 0) return FV_OK;
    return FV_FAIL(FV_EDATA, "%s: key '%s' must be greater than 0", where, key);
}

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
    FV_TRY(positive("original_max_position_embeddings", rope->original_max_position, where));
    if (!fv_config_member(p, "factor")) rope->factor = max_position / rope->original_max_position;
    if (rope->beta_fast == 0) rope->beta_fast = 32;
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (!fv_config_member(p, "attention_factor"))
        attention =
            mscale != 0 && mscale_all_dim != 0
                ? yarn_scale(rope->factor, mscale) / yarn_scale(rope->factor, mscale_all_dim)
                : yarn_scale(rope->factor, 1);
    rope->attention_factor = attention;
    FV_TRY(positive("factor", rope->factor, where));
    FV_TRY(positive("beta_fast", rope->beta_fast, where));
    FV_TRY(positive("beta_slow", rope->beta_slow, where));
    FV_TRY(positive("attention_factor", attention, where));
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
    return positive("factor", factor, where);
}

static fv_status parse_type(const json_t *obj, const json_t *p, const text_family *f,
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
    FV_TRY(positive("factor", rope->factor, where));
    if (rope->type == FV_ROPE_LINEAR) return FV_OK;

    rope->original_max_position = max_position;
    FV_TRY(fv_json_f64(p, "low_freq_factor", where, &rope->low_freq_factor));
    FV_TRY(fv_json_f64(p, "high_freq_factor", where, &rope->high_freq_factor));
    FV_TRY(fv_json_f64(p, "original_max_position_embeddings", where, &rope->original_max_position));
    FV_TRY(
        fv_json_f64(obj, "original_max_position_embeddings", where, &rope->original_max_position));
    FV_TRY(positive("low_freq_factor", rope->low_freq_factor, where));
    FV_TRY(positive("original_max_position_embeddings", rope->original_max_position, where));
    if (!(rope->high_freq_factor > rope->low_freq_factor))
        return FV_FAIL(FV_EDATA, "%s: key 'high_freq_factor' must be greater than low_freq_factor",
                       where);
    return FV_OK;
}

/* Parses M-RoPE's sections in the families that have them. */
static fv_status parse_sections(const json_t *p, const text_family *f, const char *where,
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
               : positive("original_max_position_embeddings", rope->query_span, where);
}

/* Version 4 has rope_theta beside rope_scaling {type or rope_type, ...}; version 5 has both in
 * rope_parameters, which may hold one object per kind of layer. */
static fv_status parse_rope(const json_t *obj, const text_family *f, const char *where,
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
    FV_TRY(positive("rope_theta", rope->theta, where));
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
static fv_status parse_rope_slides(const json_t *obj, const text_family *f, const char *where,
                                   const fv_text_config *t, fv_rope_config *rope) {
    const json_t *p =
        fv_config_member(fv_config_member(obj, "rope_parameters"), "sliding_attention");
    *rope = (fv_rope_config){.theta = 10000, .factor = 1};
    FV_TRY(fv_json_f64(obj, "rope_local_base_freq", where, &rope->theta));
    FV_TRY(fv_json_f64(p, "rope_theta", where, &rope->theta));
    FV_TRY(positive("rope_local_base_freq", rope->theta, where));
    return parse_type(obj, p, f, where, t->max_position, rope);
}

/* Parses Gemma 3's own keys. */
static fv_status parse_gemma(const json_t *obj, const char *where, const text_family *f,
                             fv_text_config *t) {
    bool both_ways = false;
    t->norm_plus_one = t->post_norms = t->two_ropes = true;
    t->embed_scale = (float)sqrt(t->d_model);
    t->query_scalar = 256;
    FV_TRY(fv_json_f32(obj, "query_pre_attn_scalar", where, &t->query_scalar));
    FV_TRY(positive("query_pre_attn_scalar", (double)t->query_scalar, where));
    FV_TRY(fv_json_bool(obj, "use_bidirectional_attention", where, &both_ways));
    if (both_ways || fv_config_member(obj, "attn_logit_softcapping") ||
        fv_config_member(obj, "final_logit_softcapping"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'use_bidirectional_attention', 'attn_logit_softcapping' and "
                       "'final_logit_softcapping': the engine has none of the three",
                       where);
    FV_TRY(parse_rope_slides(obj, f, where, t, &t->rope_slides));
    if (t->rope.type != FV_ROPE_YARN && t->rope_slides.type != FV_ROPE_YARN) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'rope_type' is 'yarn', which %s is not", where,
                   f->name);
}

/* Parses Granite's multipliers; all are 1 in its class. */
static fv_status parse_granite(const json_t *obj, const char *where, fv_text_config *t) {
    const struct {
        const char *key;
        float *to;
    } keys[] = {{"embedding_multiplier", &t->embed_scale},
                {"attention_multiplier", &t->score_scale},
                {"residual_multiplier", &t->residual_scale},
                {"logits_scaling", &t->logits_divisor}};
    t->embed_images = true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        *keys[i].to = 1;
        FV_TRY(fv_json_f32(obj, keys[i].key, where, keys[i].to));
        FV_TRY(positive(keys[i].key, (double)*keys[i].to, where));
    }
    return FV_OK;
}

/* Parses the sparse layers: every decoder_sparse_step-th, without those of mlp_only_layers. */
static fv_status parse_sparse(const json_t *obj, const char *where, fv_text_config *t) {
    const json_t *dense = fv_config_member(obj, "mlp_only_layers"), *item;
    int32_t step = 1;
    size_t i;
    FV_TRY(fv_json_i32(obj, "decoder_sparse_step", where, 1, INT32_MAX, &step));
    for (int32_t l = 0; l < t->n_layer; l++) t->sparse[l] = (l + 1) % step == 0;
    if (dense && !json_is_array(dense))
        return FV_FAIL(FV_EDATA, "%s: key 'mlp_only_layers' must be a list of layers", where);
    json_array_foreach(dense, i, item) {
        const json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item))
            return FV_FAIL(FV_EDATA, "%s: key 'mlp_only_layers' must hold integers", where);
        if (layer >= 0 && layer < t->n_layer) t->sparse[layer] = false;
    }
    return FV_OK;
}

/* Parses the shared expert of Qwen3.5, all of whose layers are sparse. */
static fv_status parse_shared(const json_t *obj, const char *where, fv_text_config *t) {
    t->shared_gated = true;
    t->d_shared = 512;
    for (int32_t l = 0; l < FV_MAX_LAYERS; l++) t->sparse[l] = true;
    FV_TRY(fv_json_i32(obj, "shared_expert_intermediate_size", where, 1, FV_CONFIG_FFN_MAX,
                       &t->d_shared));
    t->d_ffn = t->d_shared; /* no layer has another */
    return FV_OK;
}

/* Checks that every group has two experts whose scores are summed, and that the open groups have enough. */
static fv_status check_groups(const char *where, const fv_text_config *t) {
    const int32_t n = t->router.n_group, open = t->router.n_open;
    if (t->n_expert % n == 0 && t->n_expert / n >= 2 && open <= n &&
        t->n_expert / n * open >= t->n_active)
        return FV_OK;
    return FV_FAIL(
        FV_EDATA,
        "%s: keys 'n_group' (%d) and 'topk_group' (%d): %d experts must be groups of equal "
        "size, at least two each, and %d of them must be in 'topk_group' groups",
        where, n, open, t->n_expert, t->n_active);
}

/* Parses GLM-4.5's router, its shared expert, and the dense layers ahead of the sparse ones. */
static fv_status parse_glm_moe(const json_t *obj, const char *where, fv_text_config *t) {
    int32_t dense = 1, n_shared = 1;
    t->experts_apart = true;
    t->router =
        (fv_router_config){.sigmoid = true, .normed = true, .n_group = 1, .n_open = 1, .scale = 1};
    FV_TRY(fv_json_i32(obj, "first_k_dense_replace", where, 0, INT32_MAX, &dense));
    FV_TRY(fv_json_i32(obj, "n_shared_experts", where, 1, FV_EXPERTS_MAX, &n_shared));
    FV_TRY(fv_json_i32(obj, "n_group", where, 1, FV_EXPERTS_MAX, &t->router.n_group));
    FV_TRY(fv_json_i32(obj, "topk_group", where, 1, FV_EXPERTS_MAX, &t->router.n_open));
    FV_TRY(fv_json_bool(obj, "norm_topk_prob", where, &t->router.normed));
    FV_TRY(fv_json_f32(obj, "routed_scaling_factor", where, &t->router.scale));
    FV_TRY(positive("routed_scaling_factor", (double)t->router.scale, where));
    for (int32_t l = dense; l < t->n_layer; l++) t->sparse[l] = true;
    const int64_t shared = (int64_t)n_shared * t->d_expert;
    if (shared > FV_CONFIG_FFN_MAX)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: keys 'n_shared_experts' and 'moe_intermediate_size': a shared expert of "
            "width %lld; the most is %d",
            where, (long long)shared, FV_CONFIG_FFN_MAX);
    t->d_shared = (int32_t)shared;
    if (t->n_expert * t->n_layer > EXPERTS_APART_MAX)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: %d layers of 'n_routed_experts' %d have more than %d experts", where,
                       t->n_layer, t->n_expert, EXPERTS_APART_MAX);
    return check_groups(where, t);
}

static fv_status parse_experts(const json_t *obj, const char *where, const text_family *f,
                               fv_text_config *t) {
    t->n_expert = f->n_expert, t->n_active = f->n_active, t->d_expert = f->d_expert;
    t->experts_transposed = f->transposed;
    FV_TRY(fv_json_i32(obj, "num_local_experts", where, 1, FV_EXPERTS_MAX, &t->n_expert));
    FV_TRY(fv_json_i32(obj, f->glm_moe ? "n_routed_experts" : "num_experts", where, 1,
                       FV_EXPERTS_MAX, &t->n_expert));
    FV_TRY(fv_json_i32(obj, "num_experts_per_tok", where, 1, FV_EXPERTS_MAX, &t->n_active));
    FV_TRY(fv_json_i32(obj, "moe_intermediate_size", where, 1, FV_CONFIG_WIDTH_MAX, &t->d_expert));
    const int64_t rows =
        (int64_t)t->n_expert * (t->d_model > 2 * t->d_expert ? t->d_model : 2 * t->d_expert);
    if (t->n_active > t->n_expert)
        return FV_FAIL(FV_EDATA, "%s: key 'num_experts_per_tok' is %d, and '%s' %d", where,
                       t->n_active, f->glm_moe ? "n_routed_experts" : "num_experts", t->n_expert);
    if (rows > EXPERT_ROWS_MAX)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: %d experts of 'hidden_size' %d and 'moe_intermediate_size' %d have more "
            "than %d rows in one tensor",
            where, t->n_expert, t->d_model, t->d_expert, EXPERT_ROWS_MAX);
    if (f->recurrent) return parse_shared(obj, where, t);
    if (f->glm_moe) return parse_glm_moe(obj, where, t);
    return parse_sparse(obj, where, t);
}

/* Parses layer_types, which names the sliding layers. */
static fv_status typed_layers(const json_t *types, const char *where, fv_text_config *t) {
    if (!json_is_array(types) || json_array_size(types) != (size_t)t->n_layer)
        return FV_FAIL(FV_EDATA, "%s: key 'layer_types' must name the type of each of %d layers",
                       where, t->n_layer);
    for (int32_t l = 0; l < t->n_layer; l++) {
        const char *name = json_string_value(json_array_get(types, (size_t)l));
        t->slides[l] = name && !strcmp(name, "sliding_attention");
        if (!t->slides[l] && (!name || strcmp(name, "full_attention") != 0))
            return FV_FAIL(
                FV_EUNSUPPORTED,
                "%s: unsupported layer_types: layer %d is '%s'; supported: full_attention "
                "and sliding_attention",
                where, l, name ? name : "");
    }
    return FV_OK;
}

/* Gemma 3 slides in all layers but every sixth, Mistral in all, Ministral 3 and Phi-3 in all where
 * there is a window. Qwen2 and Qwen3, if sliding is
 * enabled, slide in the layers that layer_types names, or else in those from max_window_layers
 * on. */
static fv_status parse_window(const json_t *obj, const char *where, const text_family *f,
                              fv_text_config *t) {
    bool typed = f->window_key || f->gemma, use = f->gemma || !strcmp(f->name, "mistral");
    if (f->slides) use = fv_config_member(obj, "sliding_window") != NULL;
    const json_t *types = typed ? fv_config_member(obj, "layer_types") : NULL;
    int32_t first = use ? 0 : f->n_layer ? f->n_layer : 28, window = 4096, pattern = 6;
    if (f->window_key) FV_TRY(fv_json_bool(obj, "use_sliding_window", where, &use));
    /* Absent means 4096, null means none. */
    if (!use || json_is_null(json_object_get(obj, "sliding_window"))) return FV_OK;
    FV_TRY(fv_json_i32(obj, "sliding_window", where, 1, INT32_MAX, &window));
    if (f->window_key) FV_TRY(fv_json_i32(obj, "max_window_layers", where, 0, INT32_MAX, &first));
    if (f->gemma) FV_TRY(fv_json_i32(obj, "sliding_window_pattern", where, 1, INT32_MAX, &pattern));
    for (int32_t l = first; l < t->n_layer; l++) t->slides[l] = !f->gemma || (l + 1) % pattern;
    if (types) FV_TRY(typed_layers(types, where, t));
    for (int32_t l = 0; l < t->n_layer; l++)
        if (t->slides[l]) t->window = window;
    return FV_OK;
}

static fv_status parse_heads(const json_t *obj, const char *where, int32_t n_kv_default,
                             fv_text_config *t) {
    FV_TRY(fv_json_i32(obj, "num_attention_heads", where, 1, FV_CONFIG_HEADS_MAX, &t->n_head));
    bool kv_null = json_is_null(json_object_get(obj, "num_key_value_heads"));
    t->n_kv = kv_null || n_kv_default == 0 ? t->n_head : n_kv_default;
    FV_TRY(fv_json_i32(obj, "num_key_value_heads", where, 1, FV_CONFIG_HEADS_MAX, &t->n_kv));
    if (t->n_head % t->n_kv)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'num_attention_heads' (%d) is not a multiple of "
                       "'num_key_value_heads' (%d)",
                       where, t->n_head, t->n_kv);
    FV_TRY(fv_json_i32(obj, "head_dim", where, 1, HEAD_DIM_MAX, &t->d_head));
    if (t->d_head == 0) {
        if (t->d_model % t->n_head || t->d_model / t->n_head > HEAD_DIM_MAX)
            return FV_FAIL(FV_EDATA,
                           "%s: key 'hidden_size' (%d) cannot be split among 'num_attention_heads' "
                           "(%d)",
                           where, t->d_model, t->n_head);
        t->d_head = t->d_model / t->n_head;
    }
    if (t->d_head % 2)
        return FV_FAIL(FV_EDATA, "%s: key 'head_dim' (%d) must be even: RoPE rotates pairs", where,
                       t->d_head);
    return FV_OK;
}

fv_status fv_config_text_parse(const json_t *obj, const char *family, const char *where,
                               fv_text_config *out, int32_t *eos_default) {
    const text_family *f = families;
    while (strcmp(f->name, family) != 0) f++; /* the name is from fv_config_text_family */
    fv_text_config t = {.vocab = f->vocab,
                        .d_model = f->d_model ? f->d_model : 4096,
                        .d_ffn = f->d_ffn,
                        .n_layer = f->n_layer ? f->n_layer : 32,
                        .n_head = f->n_head ? f->n_head : 32,
                        .d_head = f->d_head,
                        .qk_norm = f->qk_norm,
                        .max_position = f->max_position,
                        .rms_eps = f->rms_eps > 0 ? f->rms_eps : 1e-6F,
                        .act = f->gemma || f->gemma4 ? FV_ACT_GELU_TANH : FV_ACT_SILU,
                        .tied_head = f->gemma || f->gemma4,
                        .fused = f->fused,
                        .bos = f->bos};
    strcpy(t.family, f->name);
    FV_TRY(fv_config_refuse_quantized(obj, where));
    FV_TRY(fv_json_i32(obj, "vocab_size", where, 1, VOCAB_MAX, &t.vocab));
    FV_TRY(fv_json_i32(obj, "hidden_size", where, 1, FV_CONFIG_WIDTH_MAX, &t.d_model));
    FV_TRY(fv_json_i32(obj, "intermediate_size", where, 1, FV_CONFIG_FFN_MAX, &t.d_ffn));
    FV_TRY(fv_json_i32(obj, "num_hidden_layers", where, 1, FV_MAX_LAYERS, &t.n_layer));
    FV_TRY(parse_heads(obj, where, f->n_kv, &t));
    FV_TRY(fv_json_i32(obj, "max_position_embeddings", where, 1, POSITION_MAX, &t.max_position));
    FV_TRY(fv_json_f32(obj, "rms_norm_eps", where, &t.rms_eps));
    if (!(t.rms_eps >= 0 && t.rms_eps < 1))
        return FV_FAIL(FV_EDATA, "%s: key 'rms_norm_eps' must be in [0, 1)", where);
    const char *act = f->gemma || f->gemma4 ? "hidden_activation" : "hidden_act";
    FV_TRY(fv_config_activation(obj, act, where, &t.act));
    if (f->gemma4) {
        FV_TRY(fv_config_gemma4(obj, where, f->unified, &t));
    } else {
        FV_TRY(parse_rope(obj, f, where, &t, &t.rope));
        FV_TRY(parse_window(obj, where, f, &t));
    }
    if (f->gemma) FV_TRY(parse_gemma(obj, where, f, &t));
    if (f->recurrent) FV_TRY(fv_config_recurrent(obj, where, &t));
    if (f->n_expert) FV_TRY(parse_experts(obj, where, f, &t));
    if (f->granite) FV_TRY(parse_granite(obj, where, &t));
    t.output_norms = t.fused_ffn = f->glm;
    if (f->glm || f->glm_moe)
        FV_TRY(fv_json_i32(obj, "num_nextn_predict_layers", where, 0, FV_MAX_LAYERS, &t.n_predict));

    bool attention_bias = f->glm_moe, mlp_bias = false;
    if (f->attention_bias) FV_TRY(fv_json_bool(obj, "attention_bias", where, &attention_bias));
    if (f->mlp_bias) FV_TRY(fv_json_bool(obj, "mlp_bias", where, &mlp_bias));
    if (f->use_bias) {
        FV_TRY(fv_json_bool(obj, "use_bias", where, &attention_bias));
        mlp_bias = attention_bias;
    }
    t.bias_qkv = attention_bias || f->bias_qkv;
    t.bias_o = attention_bias && !f->glm_moe;
    t.bias_mlp = mlp_bias;
    FV_TRY(fv_json_bool(obj, "tie_word_embeddings", where, &t.tied_head));
    if (json_is_null(json_object_get(obj, "bos_token_id"))) t.bos = -1;
    FV_TRY(fv_json_i32(obj, "bos_token_id", where, -1, INT32_MAX, &t.bos));
    *eos_default = f->eos;
    *out = t;
    return FV_OK;
}
