/* Translates token_embd.weight <-> model.embed_tokens.weight, blk.0.attn_q.weight <->
 * model.layers.0.self_attn.q_proj.weight, by a table of prefixes, before and after the layer's number. */
#include <stdio.h>
#include <string.h>

#include "gguf/texts.h"

enum { OWN = 0, HUB, N_SIDE };

static const char *const layers[N_SIDE] = {"blk.", "model.layers."};

static const char *const fronts[][N_SIDE] = {{"token_embd.", "model.embed_tokens."},
                                             {"output_norm.", "model.norm."},
                                             {"output.", "lm_head."}};

static const char *const parts[][N_SIDE] = {
    {"attn_norm.", "input_layernorm."},    {"attn_q.", "self_attn.q_proj."},
    {"attn_k.", "self_attn.k_proj."},      {"attn_v.", "self_attn.v_proj."},
    {"attn_output.", "self_attn.o_proj."}, {"attn_q_norm.", "self_attn.q_norm."},
    {"attn_k_norm.", "self_attn.k_norm."}, {"ffn_norm.", "post_attention_layernorm."},
    {"ffn_gate.", "mlp.gate_proj."},       {"ffn_up.", "mlp.up_proj."},
    {"ffn_down.", "mlp.down_proj."}};

static bool rename_by(const char *const table[][N_SIDE], size_t n, int from, const char *before,
                      const char *name, char out[FV_GGUF_NAME_MAX]) {
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(table[i][from]);
        if (strncmp(name, table[i][from], m) != 0) continue;
        return snprintf(out, FV_GGUF_NAME_MAX, "%s%s%s", before, table[i][!from], name + m) <
               FV_GGUF_NAME_MAX;
    }
    return false;
}

static bool rename_from(int from, const char *name, char out[FV_GGUF_NAME_MAX]) {
    char before[FV_GGUF_NAME_MAX];
    size_t m = strlen(layers[from]);
    if (strncmp(name, layers[from], m) != 0)
        return rename_by(fronts, sizeof fronts / sizeof *fronts, from, "", name, out);
    size_t digits = strspn(name + m, "0123456789");
    if (digits < 1 || digits > 9 || name[m + digits] != '.') return false;
    snprintf(before, sizeof before, "%s%.*s", layers[!from], (int)digits + 1, name + m);
    return rename_by(parts, sizeof parts / sizeof *parts, from, before, name + m + digits + 1, out);
}

bool fv_gguf_hub_name(const char *own, char out[FV_GGUF_NAME_MAX]) {
    return rename_from(OWN, own, out);
}

bool fv_gguf_own_name(const char *hub, char out[FV_GGUF_NAME_MAX]) {
    return rename_from(HUB, hub, out);
}
