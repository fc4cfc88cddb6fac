/* Names of tensors in Mistral's own layout. */
#include <stdio.h>
#include <string.h>

#include "gguf/params.h"

typedef struct pair {
    const char *own, *hub;
} pair;

/* Beginnings of names; those of layers are followed by a number. */
static const pair heads[] = {
    {"tok_embeddings.", "language_model.model.embed_tokens."},
    {"norm.", "language_model.model.norm."},
    {"output.", "language_model.lm_head."},
    {"vision_encoder.patch_conv.", "vision_tower.patch_conv."},
    {"vision_encoder.ln_pre.", "vision_tower.ln_pre."},
    {"vision_language_adapter.w_in.", "multi_modal_projector.linear_1."},
    {"vision_language_adapter.w_out.", "multi_modal_projector.linear_2."},
    {"patch_merger.merging_layer.", "multi_modal_projector.patch_merger.merging_layer."},
    {"pre_mm_projector_norm.", "multi_modal_projector.norm."},
};
static const pair text_layer = {"layers.", "language_model.model.layers."};
static const pair tower_layer = {"vision_encoder.transformer.layers.",
                                 "vision_tower.transformer.layers."};

/* Ends of names, behind a layer's number. */
static const pair in_text[] = {
    {"attention_norm.", "input_layernorm."}, {"ffn_norm.", "post_attention_layernorm."},
    {"attention.wq.", "self_attn.q_proj."},  {"attention.wk.", "self_attn.k_proj."},
    {"attention.wv.", "self_attn.v_proj."},  {"attention.wo.", "self_attn.o_proj."},
    {"feed_forward.w1.", "mlp.gate_proj."},  {"feed_forward.w2.", "mlp.down_proj."},
    {"feed_forward.w3.", "mlp.up_proj."},
};
static const pair in_tower[] = {
    {"attention_norm.", "attention_norm."},
    {"ffn_norm.", "ffn_norm."},
    {"attention.wq.", "attention.q_proj."},
    {"attention.wk.", "attention.k_proj."},
    {"attention.wv.", "attention.v_proj."},
    {"attention.wo.", "attention.o_proj."},
    {"feed_forward.w1.", "feed_forward.gate_proj."},
    {"feed_forward.w2.", "feed_forward.down_proj."},
    {"feed_forward.w3.", "feed_forward.up_proj."},
};

static const char *side(const pair *p, bool own) { return own ? p->own : p->hub; }

static bool begins(const char *s, const char *head) { return strncmp(s, head, strlen(head)) == 0; }

/* Replaces the beginning of `rest`, found in the list; `head` and `digits` of the number come before it. */
static bool translate(const pair *list, size_t n, bool to_hub, const char *head, const char *number,
                      int digits, const char *rest, char out[FV_GGUF_NAME_MAX]) {
    for (size_t i = 0; i < n; i++) {
        const char *from = side(&list[i], to_hub);
        if (!begins(rest, from)) continue;
        return snprintf(out, FV_GGUF_NAME_MAX, "%s%.*s%s%s%s", head, digits, number,
                        digits ? "." : "", side(&list[i], !to_hub),
                        rest + strlen(from)) < FV_GGUF_NAME_MAX;
    }
    return false;
}

static bool in_layer(const pair *layer, const pair *list, size_t n, bool to_hub, const char *name,
                     char out[FV_GGUF_NAME_MAX]) {
    const char *number = name + strlen(side(layer, to_hub));
    const size_t digits = strspn(number, "0123456789");
    if (digits == 0 || digits > 9 || number[digits] != '.') return false;
    return translate(list, n, to_hub, side(layer, !to_hub), number, (int)digits,
                     number + digits + 1, out);
}

static bool rename_tensor(const char *name, bool to_hub, char out[FV_GGUF_NAME_MAX]) {
    const size_t n = sizeof in_text / sizeof *in_text;
    if (begins(name, side(&text_layer, to_hub)))
        return in_layer(&text_layer, in_text, n, to_hub, name, out);
    if (begins(name, side(&tower_layer, to_hub)))
        return in_layer(&tower_layer, in_tower, sizeof in_tower / sizeof *in_tower, to_hub, name,
                        out);
    return translate(heads, sizeof heads / sizeof *heads, to_hub, "", "", 0, name, out);
}

bool fv_params_hub_name(const char *own, char out[FV_GGUF_NAME_MAX]) {
    return rename_tensor(own, true, out);
}

bool fv_params_own_name(const char *hub, char out[FV_GGUF_NAME_MAX]) {
    return rename_tensor(hub, false, out);
}
