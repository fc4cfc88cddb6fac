/* Makes the keys of config.json that single families of text models have. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/internal.h"
#include "gguf/recurrent.h"

/* llama.cpp has no key for Gemma 3's scale of queries: it is that of a head, but in the largest model, of
 * 62 layers, of a head as wide as the model divided by its heads. */
static double query_scalar(const json_t *config) {
    double layers = json_number_value(json_object_get(config, "num_hidden_layers"));
    double width = json_number_value(json_object_get(config, "hidden_size"));
    double heads = json_number_value(json_object_get(config, "num_attention_heads"));
    const json_t *head = json_object_get(config, "head_dim");
    return layers == 62 || !head ? width / heads : json_number_value(head);
}

fv_status fv_gguf_gemma_config(const fv_gguf *g, fv_gguf_json *m) {
    static const char arch[] = "gemma3";
    double window = 0, local = 10000, pattern = 6, cap = 0;
    FV_TRY(fv_gguf_number_of(g, arch, "attention.sliding_window", FV_GGUF_OPTIONAL, &window));
    FV_TRY(fv_gguf_number_of(g, arch, "rope.freq_base_swa", FV_GGUF_OPTIONAL, &local));
    FV_TRY(
        fv_gguf_number_of(g, arch, "attention.sliding_window_pattern", FV_GGUF_OPTIONAL, &pattern));
    FV_TRY(fv_gguf_number_of(g, arch, "final_logit_softcapping", FV_GGUF_OPTIONAL, &cap));
    fv_gguf_put(m, m->root, "query_pre_attn_scalar", fv_gguf_json_number(query_scalar(m->root)));
    fv_gguf_put(m, m->root, "rope_local_base_freq", json_real(local));
    fv_gguf_put(m, m->root, "sliding_window",
                window > 0 ? fv_gguf_json_number(window) : json_null());
    fv_gguf_put(m, m->root, "sliding_window_pattern", fv_gguf_json_number(pattern));
    if (cap > 0) fv_gguf_put(m, m->root, "final_logit_softcapping", json_real(cap));
    if (!fv_gguf_has(g, "gemma3.rope.freq_base"))
        fv_gguf_put(m, m->root, "rope_theta", json_real(1e6));
    return FV_OK;
}

/* Adds M-RoPE's sections to RoPE's keys; llama.cpp has a fourth section, which is empty. */
fv_status fv_gguf_sections_config(const fv_gguf *g, const fv_gguf_architecture *a,
                                  fv_gguf_json *m) {
    char key[64];
    double *section = NULL;
    size_t n = 0;
    snprintf(key, sizeof key, "%s.rope.dimension_sections", a->name);
    FV_TRY(fv_gguf_numbers(g, key, &section, &n));
    if (n < 3 || (n > 3 && section[3] != 0)) {
        free(section);
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be three numbers, or three and a 0",
                       fv_gguf_where(g), key);
    }
    json_t *rope = json_object_get(m->root, "rope_scaling");
    if (!rope) {
        rope = json_pack("{s:s}", "rope_type", "default");
        fv_gguf_put(m, m->root, "rope_scaling", rope);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < 3; i++) fv_gguf_append(m, list, fv_gguf_json_number(section[i]));
    fv_gguf_put(m, rope, "mrope_section", list);
    free(section);
    return FV_OK;
}

/* Adds the layers' types, of which newer files have a list; without it every fourth has attention, or as the
 * older key says. */
static fv_status add_types(const fv_gguf *g, const char *arch, int32_t n_layer, fv_gguf_json *m) {
    char key[64];
    double interval = 4, *recurrent = NULL;
    size_t n = 0;
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", arch);
    FV_TRY(fv_gguf_numbers(g, key, &recurrent, &n));
    if (n < (size_t)n_layer) {
        free(recurrent);
        FV_TRY(fv_gguf_number_of(g, arch, "full_attention_interval", FV_GGUF_OPTIONAL, &interval));
        fv_gguf_put(m, m->root, "full_attention_interval", fv_gguf_json_number(interval));
        return FV_OK;
    }
    json_t *types = json_array();
    for (int32_t l = 0; l < n_layer; l++)
        fv_gguf_append(m, types,
                       json_string(recurrent[l] != 0 ? "linear_attention" : "full_attention"));
    fv_gguf_put(m, m->root, "layer_types", types);
    free(recurrent);
    return FV_OK;
}

/* Adds what recurrent layers have in place of heads. Layers that predict tokens further ahead come last, and
 * are not counted. */
fv_status fv_gguf_recurrent_config(const fv_gguf *g, const fv_gguf_architecture *a,
                                   fv_gguf_json *m) {
    fv_gguf_recurrent r;
    double rotary = 0;
    FV_TRY(fv_gguf_recurrent_of(g, a->name, &r));
    FV_TRY(fv_gguf_number_of(g, a->name, "rope.dimension_count", FV_GGUF_REQUIRED, &rotary));
    FV_TRY(add_types(g, a->name, r.n_layer, m));
    double head = json_number_value(json_object_get(m->root, "head_dim"));
    if (!(head > 0))
        return FV_FAIL(FV_EDATA, "%s: key '%s.attention.key_length' is missing", fv_gguf_where(g),
                       a->name);
    fv_gguf_put(m, m->root, "partial_rotary_factor", json_real(rotary / head));
    fv_gguf_put(m, m->root, "num_hidden_layers", json_integer(r.n_layer));
    fv_gguf_put(m, m->root, "linear_num_key_heads", json_integer(r.n_key));
    fv_gguf_put(m, m->root, "linear_num_value_heads", json_integer(r.n_value));
    fv_gguf_put(m, m->root, "linear_key_head_dim", json_integer(r.d_key));
    fv_gguf_put(m, m->root, "linear_value_head_dim", json_integer(r.d_value));
    fv_gguf_put(m, m->root, "linear_conv_kernel_dim", json_integer(r.taps));
    return FV_OK;
}

fv_status fv_gguf_recurrent_of(const fv_gguf *g, const char *arch, fv_gguf_recurrent *out) {
    static const char *const keys[] = {"ssm.group_count", "ssm.time_step_rank", "ssm.state_size",
                                       "ssm.inner_size", "ssm.conv_kernel"};
    enum { N = sizeof keys / sizeof *keys, MOST = 1 << 20 };
    double x[N] = {0}, layers = 0, further = 0;
    FV_TRY(fv_gguf_number_of(g, arch, "block_count", FV_GGUF_REQUIRED, &layers));
    FV_TRY(fv_gguf_number_of(g, arch, "nextn_predict_layers", FV_GGUF_OPTIONAL, &further));
    for (int i = 0; i < N; i++) {
        FV_TRY(fv_gguf_number_of(g, arch, keys[i], FV_GGUF_REQUIRED, &x[i]));
        if (!(x[i] >= 1 && x[i] <= MOST))
            return FV_FAIL(FV_EDATA, "%s: key '%s.%s' is %g; 1 to %d are possible",
                           fv_gguf_where(g), arch, keys[i], x[i], MOST);
    }
    fv_gguf_recurrent r = {.n_key = (int32_t)x[0],
                           .n_value = (int32_t)x[1],
                           .d_key = (int32_t)x[2],
                           .d_value = (int32_t)(x[3] / (int32_t)x[1]),
                           .taps = (int32_t)x[4],
                           .n_layer = (int32_t)fmax(0, fmin(layers - further, MOST))};
    if ((int64_t)r.n_key * r.d_key > MOST)
        return FV_FAIL(FV_EDATA,
                       "%s: keys '%s.ssm.group_count' (%d) times 'ssm.state_size' (%d) must be at "
                       "most %d",
                       fv_gguf_where(g), arch, r.n_key, r.d_key, MOST);
    if (r.d_value < 1 || r.n_value % r.n_key)
        return FV_FAIL(FV_EDATA,
                       "%s: keys '%s.ssm.time_step_rank' (%d) and 'ssm.inner_size' (%g) must be "
                       "multiples of 'ssm.group_count' (%d) and of the first",
                       fv_gguf_where(g), arch, r.n_value, x[3], r.n_key);
    *out = r;
    return FV_OK;
}

fv_status fv_gguf_experts_config(const fv_gguf *g, const fv_gguf_architecture *a, fv_gguf_json *m) {
    static const struct {
        const char *own, *hub;
    } keys[] = {{"expert_count", "num_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double x = 0;
        bool needed = i < 3 || a->recurrent; /* Qwen3-VL has no shared expert */
        FV_TRY(fv_gguf_number_of(g, a->name, keys[i].own,
                                 needed ? FV_GGUF_REQUIRED : FV_GGUF_OPTIONAL, &x));
        if (needed) fv_gguf_put(m, m->root, keys[i].hub, fv_gguf_json_number(x));
    }
    return FV_OK;
}
