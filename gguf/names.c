/* Translates token_embd.weight <-> model.embed_tokens.weight, blk.0.attn_q.weight <->
 * model.layers.0.self_attn.q_proj.weight, and v.blk.0.attn_q.weight <-> a name of LLaVA's tower, by tables
 * of prefixes, before and after the layer's number. */
#include <stdio.h>
#include <string.h>

#include "gguf/texts.h"

enum { OWN = 0, HUB, N_SIDE };

#define TOWER "vision_tower.vision_model."
#define CONNECTOR "multi_modal_projector."

static const char *const fronts[][N_SIDE] = {
    {"token_embd.", "model.embed_tokens."},
    {"output_norm.", "model.norm."},
    {"output.", "lm_head."},
    {"v.patch_embd.", TOWER "embeddings.patch_embedding."},
    {"v.position_embd", TOWER "embeddings.position_embedding"},
    {"v.class_embd.weight", TOWER "embeddings.class_embedding"},
    {"v.class_embd", TOWER "embeddings.class_embedding"},
    {"v.pre_ln.", TOWER "pre_layrnorm."},
    {"v.post_ln.", TOWER "post_layernorm."},
    {"mm.0.", CONNECTOR "linear_1."},
    {"mm.1.", CONNECTOR "linear_1."},
    {"mm.2.", CONNECTOR "linear_2."},
    {"mm.model.mlp.0.", CONNECTOR "norm."},
    {"mm.model.mlp.1.", CONNECTOR "linear_1."},
    {"mm.model.mlp.3.", CONNECTOR "linear_2."},
    {"mm.model.fc.", CONNECTOR "proj."},
    {"mm.input_projection.", CONNECTOR "proj."},
    {"mm.soft_emb_norm.", CONNECTOR "norm."},
    {"mm.input_norm.", CONNECTOR "norm."},
    {"mm.patch_merger.", CONNECTOR "merger."},
};

/* The first of several rows with one name translates it. */
static const char *const text_parts[][N_SIDE] = {
    {"attn_norm.", "input_layernorm."},
    {"attn_q.", "self_attn.q_proj."},
    {"attn_k.", "self_attn.k_proj."},
    {"attn_v.", "self_attn.v_proj."},
    {"attn_output.", "self_attn.o_proj."},
    {"attn_q_norm.", "self_attn.q_norm."},
    {"attn_k_norm.", "self_attn.k_norm."},
    {"ffn_norm.", "post_attention_layernorm."},
    {"ffn_norm.", "pre_feedforward_layernorm."},
    {"post_attention_norm.", "post_attention_layernorm."},
    {"post_ffw_norm.", "post_feedforward_layernorm."},
    {"ffn_gate.", "mlp.gate_proj."},
    {"ffn_up.", "mlp.up_proj."},
    {"ffn_down.", "mlp.down_proj."},
    {"ffn_gate_inp.", "mlp.gate."},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj"},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj"},
    {"ffn_gate_inp_shexp.", "mlp.shared_expert_gate."},
    {"ffn_gate_shexp.", "mlp.shared_expert.gate_proj."},
    {"ffn_up_shexp.", "mlp.shared_expert.up_proj."},
    {"ffn_down_shexp.", "mlp.shared_expert.down_proj."},
    {"attn_qkv.", "linear_attn.in_proj_qkv."},
    {"attn_gate.", "linear_attn.in_proj_z."},
    {"ssm_alpha.", "linear_attn.in_proj_a."},
    {"ssm_beta.", "linear_attn.in_proj_b."},
    {"ssm_conv1d.", "linear_attn.conv1d."},
    {"ssm_a", "linear_attn.A_log"},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_norm.", "linear_attn.norm."},
    {"ssm_out.", "linear_attn.out_proj."},
};

static const char *const tower_parts[][N_SIDE] = {
    {"ln1.", "layer_norm1."},
    {"ln2.", "layer_norm2."},
    {"attn_q.", "self_attn.q_proj."},
    {"attn_k.", "self_attn.k_proj."},
    {"attn_v.", "self_attn.v_proj."},
    {"attn_q.", "self_attn.qkv."}, /* a file may have the three apart */
    {"attn_qkv.", "self_attn.qkv."},
    {"attn_out.", "self_attn.out_proj."},
    {"attn_q_norm.", "self_attn.q_norm."},
    {"attn_k_norm.", "self_attn.k_norm."},
    {"ffn_up.", "mlp.fc1."},
    {"ffn_down.", "mlp.fc2."},
    {"ffn_up.", "mlp.up_proj."},
    {"ffn_gate.", "mlp.gate_proj."},
    {"ffn_down.", "mlp.down_proj."},
    {"ls1.weight", "scale1"},
    {"ls2.weight", "scale2"},
};

static const char *const deepstack_parts[][N_SIDE] = {
    {"norm.", "norm."}, {"fc1.", "linear_fc1."}, {"fc2.", "linear_fc2."}};

#define ROWS(table) table, sizeof(table) / sizeof *(table)
static const struct {
    const char *before[N_SIDE];
    const char *const (*part)[N_SIDE];
    size_t n;
} layers[] = {{{"blk.", "model.layers."}, ROWS(text_parts)},
              {{"v.blk.", TOWER "encoder.layers."}, ROWS(tower_parts)},
              {{"v.deepstack.", "visual.deepstack_merger_list."}, ROWS(deepstack_parts)}};
enum { N_LAYERS = sizeof layers / sizeof *layers };

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
    for (int i = 0; i < N_LAYERS; i++) {
        size_t m = strlen(layers[i].before[from]);
        if (strncmp(name, layers[i].before[from], m) != 0) continue;
        size_t digits = strspn(name + m, "0123456789");
        if (digits < 1 || digits > 9 || name[m + digits] != '.') return false;
        snprintf(before, sizeof before, "%s%.*s", layers[i].before[!from], (int)digits + 1,
                 name + m);
        return rename_by(layers[i].part, layers[i].n, from, before, name + m + digits + 1, out);
    }
    return rename_by(ROWS(fronts), from, "", name, out);
}

bool fv_gguf_hub_name(const char *own, char out[FV_GGUF_NAME_MAX]) {
    return rename_from(OWN, own, out);
}

bool fv_gguf_own_name(const char *hub, char out[FV_GGUF_NAME_MAX]) {
    return rename_from(HUB, hub, out);
}
