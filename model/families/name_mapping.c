/* Translates tensor names from any name mapping to the canonical one, and back.
 *
 * One set of rules reads all name mappings at once, because files mix them (trainers save half a
 * model in one mapping and half in another); a table writes them. Pure text, any thread. */
#include "model/families/name_mapping.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    fv_tensor_names names;
} rows[FV_N_NAME_MAPPING] = {
    [FV_NAME_MAPPING_HUB] = {"hub",
                             {"language_model.model.", "language_model.lm_head.",
                              "vision_tower.vision_model.", "multi_modal_projector.", "linear_1.",
                              "linear_2.", "image_newline", FV_TOWER_NAMES_CLIP}},
    [FV_NAME_MAPPING_V4_52] = {"v4.52",
                               {"model.language_model.", "lm_head.",
                                "model.vision_tower.vision_model.", "model.multi_modal_projector.",
                                "linear_1.", "linear_2.", "model.image_newline",
                                FV_TOWER_NAMES_CLIP}},
    [FV_NAME_MAPPING_V5_6] = {"v5.6",
                              {"model.language_model.", "lm_head.", "model.vision_tower.",
                               "model.multi_modal_projector.", "linear_1.", "linear_2.",
                               "model.image_newline", FV_TOWER_NAMES_CLIP}},
    [FV_NAME_MAPPING_ORIGINAL] = {"original",
                                  {"model.", "lm_head.",
                                   "model.vision_tower.vision_tower.vision_model.",
                                   "model.mm_projector.", "0.", "2.", "model.image_newline",
                                   FV_TOWER_NAMES_CLIP}},
    [FV_NAME_MAPPING_BASE] = {"base",
                              {"language_model.", "lm_head.", "vision_tower.vision_model.",
                               "multi_modal_projector.", "linear_1.", "linear_2.", "image_newline",
                               FV_TOWER_NAMES_CLIP}},
    [FV_NAME_MAPPING_BARE] = {"bare",
                              {"", "lm_head.", "vision_tower.vision_model.",
                               "multi_modal_projector.", "linear_1.", "linear_2.", "image_newline",
                               FV_TOWER_NAMES_CLIP}},
};

const char *fv_name_mapping_name(fv_name_mapping d) { return rows[d].name; }

fv_status fv_name_mapping_by_name(const char *name, fv_name_mapping *out) {
    for (int d = 0; d < FV_N_NAME_MAPPING; d++) {
        if (strcmp(name, rows[d].name) != 0) continue;
        *out = (fv_name_mapping)d;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL,
                   "unknown dialect '%s'; available: hub, v4.52, v5.6, original, base, bare", name);
}

/* Steps over `prefix` when *s starts with it. */
static bool skip(const char **s, const char *prefix) {
    size_t n = strlen(prefix);
    if (strncmp(*s, prefix, n) != 0) return false;
    *s += n;
    return true;
}

#define OF_GEMMA4(name) [FV_TOWER_NAMES_GEMMA4] = (name)
#define OF_CHAT(name) [FV_TOWER_NAMES_INTERNVL_CHAT] = (name)
#define OF_PADDLE(name) [FV_TOWER_NAMES_PADDLEOCR] = (name)
#define OF_UNIFIED(name) [FV_TOWER_NAMES_GEMMA4_UNIFIED] = (name)

/* Beginnings of names: inside a tower, after its layer number, or inside a connector. The first
 * match counts. */
static const struct part {
    const char *canonical, *own[FV_N_TOWER_NAMES]; /* NULL: no such part, or the canonical name */
} parts[] = {
    {"embeddings.position_embedding.weight",
     {OF_GEMMA4("patch_embedder.position_embedding_table")}},
    {"embeddings.position_embedding.weight", {OF_UNIFIED("pos_embedding")}},
    {"embeddings.patch_embedding.", {OF_GEMMA4("patch_embedder.input_proj.")}},
    {"embeddings.patch_embedding.", {OF_UNIFIED("patch_dense.")}},
    {"encoder.layers.", {OF_GEMMA4("encoder.layers.")}},
    {"layer_norm1.", {OF_GEMMA4("input_layernorm.")}},
    {"attn_post_norm.", {OF_GEMMA4("post_attention_layernorm.")}},
    {"layer_norm2.", {OF_GEMMA4("pre_feedforward_layernorm.")}},
    {"mlp_post_norm.", {OF_GEMMA4("post_feedforward_layernorm.")}},
    /* bounds of clipped linear layers, which have no level `linear` */
    {"self_attn.q_proj.input_", {OF_GEMMA4("self_attn.q_proj.input_")}},
    {"self_attn.q_proj.output_", {OF_GEMMA4("self_attn.q_proj.output_")}},
    {"self_attn.k_proj.input_", {OF_GEMMA4("self_attn.k_proj.input_")}},
    {"self_attn.k_proj.output_", {OF_GEMMA4("self_attn.k_proj.output_")}},
    {"self_attn.v_proj.input_", {OF_GEMMA4("self_attn.v_proj.input_")}},
    {"self_attn.v_proj.output_", {OF_GEMMA4("self_attn.v_proj.output_")}},
    {"self_attn.out_proj.input_", {OF_GEMMA4("self_attn.o_proj.input_")}},
    {"self_attn.out_proj.output_", {OF_GEMMA4("self_attn.o_proj.output_")}},
    {"mlp.gate_proj.input_", {OF_GEMMA4("mlp.gate_proj.input_")}},
    {"mlp.gate_proj.output_", {OF_GEMMA4("mlp.gate_proj.output_")}},
    {"mlp.up_proj.input_", {OF_GEMMA4("mlp.up_proj.input_")}},
    {"mlp.up_proj.output_", {OF_GEMMA4("mlp.up_proj.output_")}},
    {"mlp.down_proj.input_", {OF_GEMMA4("mlp.down_proj.input_")}},
    {"mlp.down_proj.output_", {OF_GEMMA4("mlp.down_proj.output_")}},
    {"self_attn.q_proj.", {OF_GEMMA4("self_attn.q_proj.linear.")}},
    {"self_attn.k_proj.", {OF_GEMMA4("self_attn.k_proj.linear.")}},
    {"self_attn.v_proj.", {OF_GEMMA4("self_attn.v_proj.linear.")}},
    {"self_attn.out_proj.", {OF_GEMMA4("self_attn.o_proj.linear.")}},
    {"mlp.gate_proj.", {OF_GEMMA4("mlp.gate_proj.linear.")}},
    {"mlp.up_proj.", {OF_GEMMA4("mlp.up_proj.linear.")}},
    {"mlp.down_proj.", {OF_GEMMA4("mlp.down_proj.linear.")}},
    {"proj.weight",
     {OF_GEMMA4("embedding_projection.weight"), OF_UNIFIED("embedding_projection.weight")}},
    {"embeddings.class_embedding", {NULL, "embeddings.cls_token"}},
    {"embeddings.position_embedding.weight",
     {"embeddings.position_embedding.weight", "embeddings.position_embeddings", NULL, NULL,
      "pos_embed.weight", OF_CHAT("embeddings.position_embedding")}},
    {"embeddings.patch_embedding.",
     {NULL, "embeddings.patch_embeddings.projection.", "patch_conv.", "patch_embed.proj.",
      "patch_embed.proj."}},
    {"pre_layrnorm.", {NULL, NULL, "ln_pre."}},
    {"post_layernorm.", {NULL, "layernorm."}},
    {"encoder.layers.",
     {NULL, "encoder.layer.", "transformer.layers.", "blocks.", "blocks.",
      OF_CHAT("encoder.layers.")}},
    {"layer_norm1.",
     {NULL, "layernorm_before.", "attention_norm.", "norm1.", "norm1.", OF_CHAT("norm1.")}},
    {"layer_norm2.",
     {NULL, "layernorm_after.", "ffn_norm.", "norm2.", "norm2.", OF_CHAT("norm2.")}},
    {"self_attn.out_proj.",
     {NULL, "attention.projection_layer.", "attention.o_proj.", "attn.proj.", "attn.proj.",
      OF_CHAT("attn.proj.")}},
    {"self_attn.", {NULL, "attention.", "attention.", "attn.", "attn.", OF_CHAT("attn.")}},
    {"mlp.fc1.", {NULL, NULL, NULL, NULL, "mlp.linear_fc1."}},
    {"mlp.fc2.", {NULL, NULL, NULL, NULL, "mlp.linear_fc2."}},
    {"mlp.", {NULL, NULL, "feed_forward."}},
    {"scale1", {NULL, "lambda_1", OF_CHAT("ls1")}},
    {"scale2", {NULL, "lambda_2", OF_CHAT("ls2")}},
    {"norm.",
     {NULL, "layer_norm.", "norm.", "ln_q.", "norm.", "mm_soft_emb_norm.", OF_CHAT("0."),
      OF_PADDLE("pre_norm.")}},
    {"proj.weight", {NULL, NULL, NULL, NULL, NULL, "mm_input_projection_weight"}},
    {"merger.", {NULL, NULL, "patch_merger.merging_layer."}},
    {"peg.", {NULL, NULL, NULL, NULL, NULL, NULL, NULL, "peg.peg.0."}},
};
enum { N_PART = sizeof parts / sizeof *parts };

static void append(char out[FV_TENSOR_NAME_MAX], const char *s, size_t n) {
    size_t free = FV_TENSOR_NAME_MAX - 1 - strlen(out);
    strncat(out, s, n < free ? n : free);
}

/* Renames a beginning of *s: from any tower's name to the canonical one, or from that to the name
 * in `inside`. */
static void rename_part(const char **s, bool to_canonical, fv_tower_names inside,
                        char out[FV_TENSOR_NAME_MAX]) {
    for (int i = 0; i < N_PART; i++)
        for (int t = 0; t < FV_N_TOWER_NAMES; t++) {
            const char *own = parts[i].own[t], *canonical = parts[i].canonical;
            if (!own || (!to_canonical && t != (int)inside)) continue;
            if (!skip(s, to_canonical ? own : canonical)) continue;
            append(out, to_canonical ? canonical : own, FV_TENSOR_NAME_MAX);
            return;
        }
}

/* Writes `first`, then s, a name inside of a tower or connector, renamed. */
static void put_inside(const char *first, const char *s, bool to_canonical, fv_tower_names inside,
                       char out[FV_TENSOR_NAME_MAX]) {
    out[0] = '\0';
    append(out, first, FV_TENSOR_NAME_MAX);
    rename_part(&s, to_canonical, inside, out);
    size_t n = strspn(s, "0123456789"); /* the layer number */
    if (n > 0 && s[n] == '.') {
        append(out, s, n + 1);
        s += n + 1;
        rename_part(&s, to_canonical, inside, out);
    }
    append(out, s, FV_TENSOR_NAME_MAX);
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

static bool starts_like_text(const char *s) {
    return skip(&s, "layers.") || skip(&s, "embed_tokens.") || skip(&s, "norm.") ||
           skip(&s, "embed_tokens_per_layer.") || skip(&s, "per_layer_model_projection.") ||
           skip(&s, "per_layer_projection_norm.");
}

static void put(char out[FV_TENSOR_NAME_MAX], const char *a, const char *b, const char *c) {
    if (snprintf(out, FV_TENSOR_NAME_MAX, "%s%s%s", a, b, c) < 0) out[0] = '\0';
}

/* Writes `first`, then a number and a name, with its beginning `from` replaced by `to`. */
static void put_numbered(const char *first, const char *s, const char *from, const char *to,
                         char out[FV_TENSOR_NAME_MAX]) {
    size_t n = strcspn(s, ".");
    out[0] = '\0';
    append(out, first, FV_TENSOR_NAME_MAX);
    append(out, s, s[n] ? n + 1 : n);
    s += s[n] ? n + 1 : n;
    if (skip(&s, from)) append(out, to, FV_TENSOR_NAME_MAX);
    append(out, s, FV_TENSOR_NAME_MAX);
}

bool fv_name_mapping_canonical(const char *key, char out[FV_TENSOR_NAME_MAX]) {
    if (ends_with(key, ".rotary_emb.inv_freq") || ends_with(key, ".position_ids")) return false;
    const char *s = key;
    skip(&s, "model.");
    bool merger = skip(&s, "visual.merger.");
    if (skip(&s, "visual.deepstack_merger_list.")) {
        put_numbered("deepstack.", s, "linear_fc", "linear_", out);
    } else if (skip(&s, "video_tower.")) {
        skip(&s, "vision_model.");
        put_inside("video.", s, true, FV_TOWER_NAMES_CLIP, out);
    } else if (!merger && (skip(&s, "vision_tower.") || skip(&s, "image_tower.") ||
                           skip(&s, "vision_model.") || skip(&s, "vision_encoder.") ||
                           skip(&s, "visual.") || skip(&s, "vision_embedder."))) {
        skip(&s, "vision_tower.");
        skip(&s, "vision_model.");
        put_inside("vision.", s, true, FV_TOWER_NAMES_CLIP, out);
    } else if (skip(&s, "mlp1.")) { /* InternVL's original layout */
        const char *linear = skip(&s, "1.") ? "linear_1." : skip(&s, "3.") ? "linear_2." : NULL;
        if (linear)
            put(out, "projector.", linear, s);
        else
            put_inside("projector.", s, true, FV_TOWER_NAMES_INTERNVL_CHAT, out);
    } else if (merger || skip(&s, "multi_modal_projector.") || skip(&s, "vision_projection.") ||
               skip(&s, "projector.") || skip(&s, "mlp_AR.") || skip(&s, "mm_projector.") ||
               skip(&s, "connector.modality_projection.") || skip(&s, "embed_vision.")) {
        while (skip(&s, "mlp.")) continue;
        const char *linear = skip(&s, "0.") || skip(&s, "linear_fc1.")   ? "linear_1."
                             : skip(&s, "2.") || skip(&s, "linear_fc2.") ? "linear_2."
                                                                         : NULL;
        if (linear)
            put(out, "projector.", linear, s);
        else
            put_inside("projector.", s, true, FV_TOWER_NAMES_CLIP, out);
    } else if (!strcmp(s, "image_newline")) {
        put(out, "newline", "", "");
    } else {
        if (skip(&s, "language_model.") || skip(&s, "text_model.")) skip(&s, "model.");
        if (skip(&s, "lm_head."))
            put(out, "lm_head.", s, "");
        else if (starts_like_text(s))
            put(out, "text.", s, "");
        else
            put(out, key, "", "");
    }
    return true;
}

/* Writes a tower's name, for towers other than CLIP's and SigLIP's without their extra level.
 * `called` replaces vision_tower in models with two towers. */
static void put_tower(const char *tower, const char *called, const char *s, fv_tower_names inside,
                      char out[FV_TENSOR_NAME_MAX]) {
    char first[FV_TENSOR_NAME_MAX];
    size_t n = strlen(tower);
    const char *at = inside == FV_TOWER_NAMES_VIDEO_LLAVA ? strstr(tower, "vision_tower") : NULL;
    if (at) {
        snprintf(first, sizeof first, "%.*s%s%s", (int)(at - tower), tower, called,
                 at + strlen("vision_tower"));
        put_inside(first, s, false, inside, out);
        return;
    }
    if (inside != FV_TOWER_NAMES_CLIP && inside != FV_TOWER_NAMES_GEMMA &&
        inside != FV_TOWER_NAMES_MOBILEVLM && inside != FV_TOWER_NAMES_INTERNVL_CHAT &&
        inside != FV_TOWER_NAMES_PADDLEOCR && ends_with(tower, "vision_model."))
        n -= strlen("vision_model.");
    snprintf(first, sizeof first, "%.*s", (int)n, tower);
    put_inside(first, s, false, inside, out);
}

void fv_name_mapping_key(fv_name_mapping d, const fv_tensor_names *own, const char *canonical,
                         char out[FV_TENSOR_NAME_MAX]) {
    const fv_tensor_names *r = own && own->text ? own : &rows[d].names;
    fv_tower_names inside = own ? own->inside : FV_TOWER_NAMES_CLIP;
    const char *s = canonical;
    if (skip(&s, "text."))
        put(out, r->text, s, "");
    else if (skip(&s, "lm_head."))
        put(out, r->head, s, "");
    else if (skip(&s, "vision."))
        put_tower(r->tower, "image_tower", s, inside, out);
    else if (skip(&s, "video."))
        put_tower(r->tower, "video_tower", s, inside, out);
    else if (skip(&s, "deepstack.")) {
        char first[FV_TENSOR_NAME_MAX];
        put(first, r->tower, "deepstack_merger_list.", "");
        put_numbered(first, s, "linear_", "linear_fc", out);
    } else if (skip(&s, "newline"))
        put(out, r->newline, s, "");
    else if (skip(&s, "projector.")) {
        const char *linear = skip(&s, "linear_1.")   ? r->linear_1
                             : skip(&s, "linear_2.") ? r->linear_2
                                                     : NULL;
        if (linear)
            put(out, r->projector, linear, s);
        else
            put_inside(r->projector, s, false, inside, out);
    } else
        put(out, s, "", "");
}
