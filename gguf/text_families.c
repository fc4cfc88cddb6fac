/* Makes the keys of config.json that single families of text models have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/internal.h"

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

fv_status fv_gguf_experts_config(const fv_gguf *g, const fv_gguf_architecture *a, fv_gguf_json *m) {
    static const struct {
        const char *own, *hub;
    } keys[] = {{"expert_count", "num_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double x = 0;
        FV_TRY(fv_gguf_number_of(g, a->name, keys[i].own, FV_GGUF_REQUIRED, &x));
        fv_gguf_put(m, m->root, keys[i].hub, fv_gguf_json_number(x));
    }
    return FV_OK;
}
