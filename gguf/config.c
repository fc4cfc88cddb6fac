/* Makes config.json from metadata. Field names are those of the classes in transformers, keys those of
 * llama.cpp's gguf-py/gguf/constants.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/internal.h"

/* Values of general.architecture, and the model_type of the text model. Mistral's older files say
 * "llama". */
static const fv_gguf_architecture architectures[] = {
    {.name = "llama", .model_type = "llama"},
    {.name = "qwen2", .model_type = "qwen2"},
    {.name = "qwen3", .model_type = "qwen3"},
    {.name = "gemma3", .model_type = "gemma3_text", .gemma = true},
    {.name = "mistral3", .model_type = "llama"},
    {.name = "qwen2vl", .model_type = "qwen2_vl_text", .tower = true, .sections = true},
    {.name = "qwen3vl", .model_type = "qwen3_vl_text", .tower = true, .sections = true},
    {.name = "qwen3vlmoe",
     .model_type = "qwen3_vl_moe_text",
     .tower = true,
     .sections = true,
     .experts = true,
     .vision = "qwen3_vl_moe"},
    {.name = "qwen35",
     .model_type = "qwen3_5_text",
     .sections = true,
     .recurrent = true,
     .vision = "qwen3_5"},
    {.name = "qwen35moe",
     .model_type = "qwen3_5_moe_text",
     .sections = true,
     .recurrent = true,
     .experts = true,
     .vision = "qwen3_5_moe"},
};
enum { N_ARCHITECTURE = sizeof architectures / sizeof *architectures };

fv_status fv_gguf_architecture_of(const fv_gguf *g, const fv_gguf_architecture **out) {
    fv_gguf_string s = {"", 0};
    char names[256] = "";
    FV_TRY(fv_gguf_text(g, "general.architecture", &s));
    for (size_t i = 0; i < N_ARCHITECTURE; i++) {
        const char *name = architectures[i].name;
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", name);
        if (strlen(name) == s.n && memcmp(name, s.s, s.n) == 0) {
            *out = &architectures[i];
            return FV_OK;
        }
    }
    if (s.n == 4 && memcmp(s.s, "clip", 4) == 0)
        return FV_FAIL(FV_EINVAL,
                       "%s holds a vision tower (general.architecture is 'clip'): name the text "
                       "model's file as the checkpoint, and this one with --mmproj",
                       fv_gguf_where(g));
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: general.architecture is '%.*s'; GGUF files are read of %s: take the model's "
        "safetensors",
        fv_gguf_where(g), (int)(s.n < 80 ? s.n : 80), s.s, names);
}

fv_status fv_gguf_number_of(const fv_gguf *g, const char *arch, const char *key,
                            fv_gguf_presence need, double *out) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    if (need == FV_GGUF_REQUIRED && !fv_gguf_has(g, name))
        return FV_FAIL(FV_EDATA,
                       "%s: key '%s' is missing; the file is incomplete, or not a text model",
                       fv_gguf_where(g), name);
    return fv_gguf_number(g, name, out);
}

json_t *fv_gguf_json_number(double x) {
    return fabs(x) < 0x1p53 && floor(x) == x ? json_integer((json_int_t)x) : json_real(x);
}

static fv_status copy_sizes(const fv_gguf *g, const fv_gguf_architecture *a, fv_gguf_json *m) {
    const char *arch = a->name;
    const struct {
        const char *own, *hub;
        fv_gguf_presence need;
    } keys[] = {{"embedding_length", "hidden_size", FV_GGUF_REQUIRED},
                {"feed_forward_length", "intermediate_size",
                 a->experts ? FV_GGUF_OPTIONAL : FV_GGUF_REQUIRED},
                {"block_count", "num_hidden_layers", FV_GGUF_REQUIRED},
                {"attention.head_count", "num_attention_heads", FV_GGUF_REQUIRED},
                {"attention.head_count_kv", "num_key_value_heads", FV_GGUF_OPTIONAL},
                {"attention.key_length", "head_dim", FV_GGUF_OPTIONAL},
                {"context_length", "max_position_embeddings", FV_GGUF_REQUIRED},
                {"attention.layer_norm_rms_epsilon", "rms_norm_eps", FV_GGUF_REQUIRED},
                {"rope.freq_base", "rope_theta", FV_GGUF_OPTIONAL}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double x = NAN;
        FV_TRY(fv_gguf_number_of(g, arch, keys[i].own, keys[i].need, &x));
        if (!isnan(x)) fv_gguf_put(m, m->root, keys[i].hub, fv_gguf_json_number(x));
    }
    if (!json_object_get(m->root, "rope_theta"))
        fv_gguf_put(m, m->root, "rope_theta", json_real(10000));
    if (!json_object_get(m->root, "num_key_value_heads"))
        fv_gguf_put(m, m->root, "num_key_value_heads",
                    json_incref(json_object_get(m->root, "num_attention_heads")));
    return FV_OK;
}

/* Refuses features that no supported text model has. */
static fv_status refuse_others(const fv_gguf *g, const fv_gguf_architecture *a,
                               const json_t *root) {
    const char *arch = a->name;
    double heads = json_number_value(json_object_get(root, "num_attention_heads"));
    double head = heads > 0 ? json_number_value(json_object_get(root, "hidden_size")) / heads : 0;
    double experts = 0;
    if (json_object_get(root, "head_dim"))
        head = json_number_value(json_object_get(root, "head_dim"));
    double turned = head, value = head;
    FV_TRY(fv_gguf_number_of(g, arch, "expert_count", FV_GGUF_OPTIONAL, &experts));
    FV_TRY(fv_gguf_number_of(g, arch, "rope.dimension_count", FV_GGUF_OPTIONAL, &turned));
    FV_TRY(fv_gguf_number_of(g, arch, "attention.value_length", FV_GGUF_OPTIONAL, &value));
    if ((experts > 0 && !a->experts) || (turned != head && !a->recurrent) || value != head)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a model with experts, with rotary embedding of a part of each head, or "
                       "with values of another width than keys is not supported",
                       fv_gguf_where(g));
    return FV_OK;
}

/* ---- rotary embedding ------------------------------------------------------------------ */

/* The divisor of frequency i of n in llama3's scaling (transformers, _compute_llama3_parameters), with
 * low_freq_factor 1 and high_freq_factor 4, as in all its models. */
static double llama3_divisor(int64_t i, int64_t n, double theta, double factor, double original) {
    double length = 2 * 3.14159265358979323846 * pow(theta, (double)i / (double)n);
    if (length < original / 4) return 1;
    if (length > original) return factor;
    double smooth = (original / length - 1) / 3;
    return 1 / ((1 - smooth) / factor + smooth);
}

/* Finds the parameters of llama3's scaling from the divisors: llama.cpp stores only these. */
static fv_status find_llama3(const fv_gguf *g, const fv_gguf_tensor *t, fv_gguf_json *m) {
    double theta = json_number_value(json_object_get(m->root, "rope_theta")), original = 8192;
    int64_t n = t->shape[0];
    float last = 0, f;
    bool same = t->n_dim == 1 && strcmp(t->type, "F32") == 0;
    if (same) memcpy(&last, (const char *)t->data + (n - 1) * 4, 4);
    for (int64_t i = 0; same && i < n; i++) {
        memcpy(&f, (const char *)t->data + i * 4, 4);
        double want = llama3_divisor(i, n, theta, (double)last, original);
        same = fabs((double)f - want) <= 1e-4 * want;
    }
    if (!same)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: tensor 'rope_freqs.weight' does not hold the factors of Llama 3.1 to "
                       "3.3: take the model's safetensors",
                       fv_gguf_where(g));
    fv_gguf_put(m, m->root, "rope_scaling",
                json_pack("{s:s, s:f, s:f, s:f, s:f}", "rope_type", "llama3", "factor",
                          (double)last, "low_freq_factor", 1.0, "high_freq_factor", 4.0,
                          "original_max_position_embeddings", original));
    return FV_OK;
}

/* Refuses YaRN parameters that are not read here and differ from the usual values. */
static fv_status refuse_unusual(const fv_gguf *g, const char *arch) {
    static const struct {
        const char *key;
        double usual;
    } all[] = {{"rope.scaling.attn_factor", 1},         {"rope.scaling.yarn_attn_factor", 1},
               {"rope.scaling.yarn_ext_factor", 1},     {"rope.scaling.yarn_beta_fast", 32},
               {"rope.scaling.yarn_log_multiplier", 0}, {"rope.scaling.yarn_beta_slow", 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double x = all[i].usual;
        FV_TRY(fv_gguf_number_of(g, arch, all[i].key, FV_GGUF_OPTIONAL, &x));
        if (x != all[i].usual)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: key '%s.%s' is %g; %g alone is supported: take the model's "
                           "safetensors",
                           fv_gguf_where(g), arch, all[i].key, x, all[i].usual);
    }
    return FV_OK;
}

static fv_status add_rope(const fv_gguf *g, const char *arch, fv_gguf_json *m) {
    const fv_gguf_tensor *freqs = fv_gguf_find(g, "rope_freqs.weight");
    char key[64], type[16];
    fv_gguf_string s = {"none", 4};
    double factor = 1, original = 0;
    FV_TRY(refuse_unusual(g, arch));
    /* like llama.cpp: a factor without a type is linear, and so is the older key */
    FV_TRY(fv_gguf_number_of(g, arch, "rope.scale_linear", FV_GGUF_OPTIONAL, &factor));
    FV_TRY(fv_gguf_number_of(g, arch, "rope.scaling.factor", FV_GGUF_OPTIONAL, &factor));
    if (factor != 1) s = (fv_gguf_string){"linear", 6};
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    FV_TRY(fv_gguf_text(g, key, &s));
    if (s.n == 4 && memcmp(s.s, "none", 4) == 0) return freqs ? find_llama3(g, freqs, m) : FV_OK;
    if (factor == 1)
        FV_TRY(fv_gguf_number_of(g, arch, "rope.scaling.factor", FV_GGUF_REQUIRED, &factor));
    FV_TRY(fv_gguf_number_of(g, arch, "rope.scaling.original_context_length", FV_GGUF_OPTIONAL,
                             &original));
    snprintf(type, sizeof type, "%.*s", (int)(s.n < sizeof type ? s.n : 0), s.s);
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", type, "factor", factor);
    if (original > 0)
        fv_gguf_put(m, scaling, "original_max_position_embeddings", json_real(original));
    fv_gguf_put(m, m->root, "rope_scaling", scaling);
    return FV_OK;
}

/* ---- the file -------------------------------------------------------------------------- */

/* Adds the ids of tokens that end a sequence or a turn. */
static fv_status add_ends(const fv_gguf *g, fv_gguf_json *m) {
    static const char *const keys[] = {"eos", "eot", "eom"};
    json_t *list = json_array();
    fv_gguf_put(m, m->root, "eos_token_id", list);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        int64_t id = -1;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        FV_TRY(fv_gguf_integer(g, key, &id));
        if (id >= 0) fv_gguf_append(m, list, json_integer(id));
    }
    int64_t bos = -1;
    FV_TRY(fv_gguf_integer(g, "tokenizer.ggml.bos_token_id", &bos));
    fv_gguf_put(m, m->root, "bos_token_id", bos >= 0 ? json_integer(bos) : json_null());
    return FV_OK;
}

/* Checks that the files are all parts of one model, in order. */
static fv_status check_parts(const fv_gguf_set *s) {
    for (int32_t i = 0; i < s->n; i++) {
        int64_t n = 1, at = i;
        FV_TRY(fv_gguf_integer(s->model[i], "split.count", &n));
        FV_TRY(fv_gguf_integer(s->model[i], "split.no", &at));
        if (n <= 1 && s->n == 1) return FV_OK;
        if (n != s->n || at != i)
            return FV_FAIL(
                FV_EDATA,
                "%s is file %lld of %lld by its metadata, and %d of %d by its name: give "
                "the files of one model the names that they were published with, "
                "NAME-00001-of-%05lld.gguf and so on",
                fv_gguf_where(s->model[i]), (long long)at + 1, (long long)n, i + 1, s->n,
                (long long)n);
    }
    return FV_OK;
}

/* The number of rows of the embedding, which a split model has in any of its files. */
static fv_status add_vocab(const fv_gguf_set *s, fv_gguf_json *m) {
    const fv_gguf_tensor *embed = fv_gguf_set_find(s, "token_embd.weight");
    if (!embed)
        return FV_FAIL(FV_ENOTFOUND,
                       "%s: tensor 'token_embd.weight' is missing; the file is incomplete, or not "
                       "a text model",
                       fv_gguf_where(s->model[0]));
    fv_gguf_put(m, m->root, "vocab_size", json_integer(embed->shape[0]));
    fv_gguf_put(m, m->root, "tie_word_embeddings",
                json_boolean(!fv_gguf_set_find(s, "output.weight")));
    return FV_OK;
}

fv_status fv_gguf_config(const fv_gguf_set *s, fv_gguf_json *m) {
    const fv_gguf *g = s->model[0];
    const fv_gguf_architecture *a = NULL;
    FV_TRY(fv_gguf_architecture_of(g, &a));
    FV_TRY(check_parts(s));
    fv_gguf_put(m, m->root, "model_type", json_string(a->model_type));
    FV_TRY(add_vocab(s, m));
    FV_TRY(copy_sizes(g, a, m));
    FV_TRY(refuse_others(g, a, m->root));
    FV_TRY(add_rope(g, a->name, m));
    if (a->gemma) FV_TRY(fv_gguf_gemma_config(g, m));
    if (a->sections) FV_TRY(fv_gguf_sections_config(g, a, m));
    if (a->recurrent) FV_TRY(fv_gguf_recurrent_config(g, a, m));
    if (a->experts) FV_TRY(fv_gguf_experts_config(g, a, m));
    FV_TRY(add_ends(g, m));
    if (s->mmproj) return fv_gguf_vision_config(s, a, m);
    if (!a->tower) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "%s: general.architecture is '%s', a vision model, whose tower is in a file of "
                   "its own: give it with --mmproj FILE, or put it beside the model and name their "
                   "directory",
                   fv_gguf_where(g), a->name);
}
