#ifndef FOVEA_MODEL_NET_CONFIG_H
#define FOVEA_MODEL_NET_CONFIG_H

/* Shapes and constants of the network. The decoder and the vision tower are opened with these;
 * model/families reads them from config.json.
 *
 * Letters: N layers, H query heads, Hkv KV heads, D head dim, d model width, m FFN width. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum { FV_EXPERTS_MAX = 1024 };
enum { FV_MAX_LAYERS = 256, FV_MAX_FEATURE_LAYERS = 8, FV_MAX_DEEPSTACK = 8 };

typedef enum fv_rope_type {
    FV_ROPE_DEFAULT = 0,
    FV_ROPE_LINEAR,
    FV_ROPE_LLAMA3,
    FV_ROPE_YARN
} fv_rope_type;

typedef struct fv_rope_config {
    fv_rope_type type;
    double theta;
    double factor;                            /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_max_position;             /* llama3, yarn */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn: queries and keys are longer by it */
    bool truncate;                            /* yarn: the ramp is between whole numbers */
    /* Ministral 3: the query of position p is multiplied by 1 + query_beta ln(1 + floor(p /
     * query_span)); query_beta 0: by 1. */
    double query_beta, query_span;
    /* Only the first `rotary` dimensions of a head are rotated (0: all). Heads are stored with the
     * pairs of rotated dimensions i and i + D/2, so that the others are pairs of frequency 0. */
    int32_t rotary;
    int32_t
        angles; /* only the first `angles` frequencies are not 0 (Gemma 4's `proportional`); 0: all */
    int32_t
        beside; /* heads of D / beside dimensions that lie side by side in one (heads_internal.h); 0: 1 */
    /* Files pair adjacent dimensions 2i and 2i + 1 (GLM). Queries and keys are rearranged when they
     * are projected: a head's even dimensions, then its odd ones. */
    bool adjacent;
    /* M-RoPE: how many of the frequencies each coordinate of a position rotates, contiguous or
     * interleaved. All 0: positions have one coordinate. */
    int32_t section[3];
    bool interleaved;
} fv_rope_config;

/* Recurrent layers (Gated DeltaNet, arXiv 2412.06464): they keep a state of fixed size in place of
 * keys and values (kernels/recurrent.h). A model that has them repeats a pattern of `n` recurrent
 * layers and one with attention. A LAYER of the network, of stores, plans and policies is one such
 * pattern: it has the keys and values of its attention, and the states of the layers before. */
typedef struct fv_recurrent_config {
    int32_t n;              /* recurrent layers ahead of each layer's attention; 0: none */
    int32_t n_key, n_value; /* heads of queries and keys; of values */
    int32_t d_key, d_value; /* numbers of a head */
    int32_t taps;           /* of the convolution: a token and those before it */
} fv_recurrent_config;

/* How the logits r of a router choose experts and weigh them: by the logits themselves, with the softmax
 * over those chosen, or (GLM-4.5, arXiv 2508.06471) by sigmoids s = sigmoid(r): the highest s + bias are
 * chosen, inside of the n_open best of n_group groups of experts, and their weights are s times `scale`,
 * first divided by their sum if `normed`. n_group up to 1: there are no groups. */
typedef struct fv_router_config {
    bool sigmoid, normed;
    int32_t n_group, n_open;
    float scale;
} fv_router_config;

typedef struct fv_text_config {
    char family[24]; /* "llama", "mistral", "qwen2" ... (model/families/text_config.c) */
    int32_t vocab, d_model, d_ffn, n_layer, n_head, n_kv, d_head;
    int32_t max_position; /* longest context */
    /* Sliding-window attention (Mistral 7B, arXiv 2310.06825): in layers that slide, the token at
     * position i sees those at i - window + 1 .. i; 0: no layer slides. */
    int32_t window;
    bool slides[FV_MAX_LAYERS];
    float rms_eps;
    bool bias_qkv, bias_o, bias_mlp;
    bool qk_norm;   /* RMSNorm of each head's query and key, before RoPE */
    bool tied_head; /* lm_head shares embed_tokens */
    fv_activation act;
    fv_rope_config rope;
    fv_rope_config rope_slides; /* with two_ropes, the RoPE of sliding layers */
    bool two_ropes;
    /* Gemma 3 (arXiv 2503.19786): norms multiply by 1 + w (norm_plus_one); the outputs of attention
     * and FFN are normed too (post_norms); text embeddings are multiplied by embed_scale (0: 1),
     * scores by query_scalar^-1/2 (0: D^-1/2); tokens of an image see the whole image
     * (image_whole). */
    bool norm_plus_one, post_norms;
    bool output_norms; /* outputs are normed too, under GLM's names */
    float embed_scale, query_scalar;
    bool image_whole;
    /* Granite: scores are multiplied by score_scale (0: query_scalar^-1/2), the outputs of attention
     * and FFN by residual_scale (0: 1), and logits are divided by logits_divisor (0: 1). embed_images:
     * embed_scale is that of image tokens too. */
    float score_scale, residual_scale, logits_divisor;
    bool embed_images;
    bool fused;     /* files have q, k and v in one tensor, and gate and up in another (Phi-3) */
    bool fused_ffn; /* files have gate and up in one tensor (GLM) */
    int32_t
        n_predict; /* layers after the last that predict tokens further ahead: in files, unused */
    /* A mixture of experts (arXiv 1701.06538) takes the place of the FFN in layers of `sparse`: of
     * n_expert FFNs of width d_expert a token goes through the n_active that `router` chooses
     * (model/net/experts.h). 0: no layer is sparse. */
    int32_t n_expert, n_active, d_expert;
    fv_router_config router;
    bool sparse[FV_MAX_LAYERS];
    bool experts_transposed; /* files have the experts' matrices as [in, out] */
    bool experts_apart;      /* files have each expert's matrices as tensors of their own */
    bool dense_beside; /* sparse layers have a dense FFN too; both outputs are normed and summed */
    /* Every token of a sparse layer also goes through a FFN of this width (0: there is none), whose
     * output, with shared_gated, is multiplied by the sigmoid of a number of its own. */
    int32_t d_shared;
    bool shared_gated;
    fv_recurrent_config recurrent;
    /* Gemma 4: a head of a sliding layer has slide_d dimensions, and its keys and values have slide_kv
     * heads; in the other layers d_head and full_kv. n_kv and d_head are those of the store, which has
     * rows of one shape (heads_internal.h). slide_d 0: all layers have these. */
    int32_t slide_d, slide_kv, full_kv;
    bool value_is_key; /* full layers have one projection for keys and values */
    /* Gemma 4 E2B and E4B: the n_sharer layers after the last one have no keys and values. They attend to
     * those of the last layer before them that slides as they do (fv_text_kv_layer). n_layer does not
     * count them, so stores, plans, policies and hand-offs know nothing of them; `slides` and the weights
     * go on with them. sharer_wide: their FFN has twice the width. */
    int32_t n_sharer;
    bool sharer_wide;
    /* Width of a layer's own embedding of each token, which is added to the layer's output
     * (model/net/layer_inputs.h); 0: none. */
    int32_t d_input;
    bool value_norm;  /* RMSNorm of each head's value, without factors */
    bool layer_scale; /* a layer's output is multiplied by a number of the layer */
    /* Ids of tokens that stand for images, videos and sound, as text: they have the embedding of `pad`. */
    int32_t n_holder, holder[3], pad;
    bool image_slides; /* with image_whole: in sliding layers only, inside of the window */
    float logits_cap;  /* logits x are c tanh(x / c); 0: x */
    bool
        gated_attention; /* attention's output is multiplied by the sigmoid of a gate; q has both */
    int32_t bos;         /* -1: none */
} fv_text_config;

/* Number of layers that have weights: with those that share keys and values. */
static inline int32_t fv_text_layers(const fv_text_config *c) { return c->n_layer + c->n_sharer; }

/* The layer whose keys and values a layer attends to: itself, unless it shares. */
static inline int32_t fv_text_kv_layer(const fv_text_config *c, int32_t layer) {
    int32_t l = layer < c->n_layer ? layer : c->n_layer - 1;
    while (l > 0 && c->slides[l] != c->slides[layer]) l--;
    return l;
}

/* The first layer whose keys and values others share; n_layer: there is none. */
static inline int32_t fv_text_first_shared(const fv_text_config *c) {
    int32_t first = c->n_layer;
    for (int32_t l = c->n_layer; l < fv_text_layers(c); l++)
        if (fv_text_kv_layer(c, l) < first) first = fv_text_kv_layer(c, l);
    return first;
}

/* Width of the dense FFN of a layer. */
static inline int32_t fv_text_dense_width(const fv_text_config *c, int32_t layer) {
    return layer >= c->n_layer && c->sharer_wide ? 2 * c->d_ffn : c->d_ffn;
}

/* Number of columns of the recurrent layers' queries, keys and values together. */
static inline int32_t fv_recurrent_width(const fv_recurrent_config *r) {
    return 2 * r->n_key * r->d_key + r->n_value * r->d_value;
}

/* Numbers of a recurrent layer's state: of the convolution, and of the delta rule. */
static inline size_t fv_recurrent_conv_state(const fv_recurrent_config *r) {
    return r->n ? (size_t)(r->taps - 1) * (size_t)fv_recurrent_width(r) : 0;
}

static inline size_t fv_recurrent_rule_state(const fv_recurrent_config *r) {
    return (size_t)r->n_value * (size_t)r->d_key * (size_t)r->d_value;
}

/* Bytes of a sequence's states in one layer of the network. */
static inline size_t fv_recurrent_state_bytes(const fv_recurrent_config *r) {
    return (size_t)r->n * (fv_recurrent_conv_state(r) + fv_recurrent_rule_state(r)) * sizeof(float);
}

/* Index of a layer's RoPE: 0 `rope`, 1 `rope_slides`. */
static inline int32_t fv_text_rope(const fv_text_config *c, int32_t layer) {
    return c->two_ropes && c->slides[layer];
}

/* Index of the RoPE of a layer's queries: that of its keys, or 1 where queries are scaled. */
static inline int32_t fv_text_query_rope(const fv_text_config *c, int32_t layer) {
    return c->rope.query_beta != 0 ? 1 : fv_text_rope(c, layer);
}

/* Number of RoPEs: keys' and queries' of all layers. */
static inline int32_t fv_text_ropes(const fv_text_config *c) {
    return c->two_ropes || c->rope.query_beta != 0 ? 2 : 1;
}

/* Width of the gated FFN that a token passes in a layer: that of all its active experts together in
 * a sparse one. */
static inline int64_t fv_text_ffn_width(const fv_text_config *c, int32_t layer) {
    if (!c->sparse[layer]) return fv_text_dense_width(c, layer);
    return (int64_t)c->n_active * c->d_expert + c->d_shared + (c->dense_beside ? c->d_ffn : 0);
}

/* Longest context of a conversation. With compressed layers it is at most the sliding window:
 * compressed tokens cannot be masked one by one as they slide out. */
static inline int32_t fv_text_context(const fv_text_config *c, bool compressed) {
    bool capped = compressed && c->window > 0 && c->window < c->max_position;
    return capped ? c->window : c->max_position;
}

/* Maps features of the tower to embeddings of the text model. */
typedef enum fv_connector {
    FV_CONNECTOR_MLP = 0, /* two linear layers with an activation between */
    FV_CONNECTOR_LINEAR,  /* one linear layer */
    FV_CONNECTOR_GLM, /* a convolution over a token's patches, a linear layer, LayerNorm, GELU, and a
                           * gated FFN */
    FV_CONNECTOR_LDP, /* MobileVLM V2: the first and the activation on patches, the mean of a token's
                       * patches, the second, a depthwise convolution over the tokens of a tile */
} fv_connector;

/* RoPE in a vision tower, by the row and column of a patch. Angle i of D / 2:
 *     AXIAL   i < D/4: row theta^(-4i / D);   then, with i - D/4: column theta^(-(4i + 2) / D)
 *     HALVES  the same, but column theta^(-4i / D) */
typedef enum fv_tower_rope {
    FV_TOWER_ROPE_NONE = 0,
    FV_TOWER_ROPE_AXIAL,  /* Pixtral */
    FV_TOWER_ROPE_HALVES, /* Qwen2-VL, and Gemma 4, whose heads are rearranged for it */
} fv_tower_rope;

/* Norm ahead of a connector. */
typedef enum fv_projector_norm {
    FV_PROJECTOR_NORM_NONE = 0,
    FV_PROJECTOR_NORM_FEATURES, /* over all features of a token */
    FV_PROJECTOR_NORM_PATCHES,  /* of each patch */
} fv_projector_norm;

/* A vision tower (CLIP, SigLIP, InternViT, Pixtral, Qwen-VL's), features of some of its layers, and
 * a connector. */
typedef struct fv_vision_config {
    int32_t d_model, d_ffn, n_layer, n_head, d_head;
    int32_t image, patch; /* pixels; the rest of an image's side after whole patches is not read */
    float ln_eps;
    fv_activation act;
    bool class_token;     /* a row of its own ahead of the patches */
    bool patch_bias;      /* the patch convolution has a bias */
    bool bucket_position; /* rows of the position table by bucketed coordinates (vision.h) */
    bool pre_norm;        /* LayerNorm ahead of the first layer */
    bool norm_patches;    /* that norm is of the patches alone: positions are added after it */
    bool post_norm;       /* LayerNorm after the last, */
    bool post_norm_rms;   /* or RMSNorm */
    bool rms_norm;        /* norms of the layers are RMSNorm */
    bool bias_qkv, bias_o, bias_mlp;
    bool fused_qkv;  /* files have q, k and v in one tensor */
    bool gated;      /* down(act(gate x) * up x) in place of fc2(act(fc1 x)) */
    bool any_size;   /* tiles have any number of patches; there is no table of positions */
    bool two_frames; /* a patch spans two frames; an image counts as two equal frames */
    /* Side of an attention window in tokens, from the upper left corner on: patches attend within
     * their window, except in layers of `whole`, where they attend to all. 0: no windows. */
    int32_t window;
    bool whole[FV_MAX_LAYERS];
    int32_t position_side; /* side of the grid of positions in the table, which is interpolated for
                            * a tile's patches; 0: no such grid */
    bool position_cubic;   /* bicubically, between the middles of patches (GLM), */
    bool position_middle;  /* or bilinearly, also between the middles (PaddleOCR-VL) */
    fv_tower_rope rope;
    float rope_theta;
    bool qk_norm;       /* RMSNorm of the queries of all heads together, and of the keys, with eps
                       * 1e-6 */
    bool qk_norm_heads; /* the same, of each head by itself, with ln_eps */
    bool layer_scale;   /* a layer's outputs are multiplied by a factor per column before they are
                       * added to x */
    /* hidden_states[i] of the tower, i in 0..n_layer (0 = before the first layer),
     * concatenated over channels */
    int32_t n_feature_layer, feature_layer[FV_MAX_FEATURE_LAYERS];
    bool keep_cls; /* the class row is a feature too */
    /* Hidden states with connectors of their own, whose outputs are added to the text model's
     * states: the i-th after layer i. Ascending. */
    int32_t n_deepstack, deepstack[FV_MAX_DEEPSTACK];
    int32_t merge; /* a token has merge x merge patches, whose features are concatenated */
    fv_connector connector;
    fv_projector_norm projector_norm;
    bool projector_rms; /* RMSNorm; otherwise LayerNorm */
    float projector_eps;
    /* Gemma 3: a token is the mean of its patches, the norm multiplies by 1 + w, and the file
     * stores the linear layer's matrix transposed. */
    bool mean_pool;
    /* Gemma 4's tower: RMSNorm of each head's query, key and, without factors, value, and scores
     * without a scale; what attention and FFN add is normed; a token is the mean of its patches times
     * sqrt(d), of which a bias is subtracted before a factor multiplies it (standardize). */
    bool head_norms, post_norms, pool_patches, standardize;
    /* A patch's position is the sum of two rows of a table, that of its column and that of its row
     * (rows x of position_axis first, then rows y, or x and y in turn). */
    int32_t position_axis;
    bool position_pairs;
    bool
        clipped; /* inputs and outputs of the layers' linear layers are clipped (vision_gemma4.c) */
    bool channels_last; /* columns of the patch matrix are in the order (y, x, channel) */
    bool centred;       /* pixels p are read as 2 (p - 1/2) */
    bool patch_norms;   /* LayerNorm of a patch, of its product, and of the sum with its position */
    bool projector_plain; /* the connector's norm has no factors */
    bool patch_merger;    /* a linear layer maps a token's features to the width of one patch */
    fv_activation projector_act;
    bool projector_bias;
    bool projector_wide; /* the first of two linear layers keeps the width of the features */
    int32_t d_between;   /* GLM: width of the connector's gated FFN */
    int32_t d_text;      /* width of the text model, which the connector maps to */
} fv_vision_config;

/* Patches on a tile's side; 0 without a tower. */
static inline int32_t fv_vision_side(const fv_vision_config *v) {
    return v->patch ? v->image / v->patch : 0;
}

/* Visual tokens of one tile: (side / merge)^2, plus 1 with keep_cls; 0 without a tower. */
static inline int32_t fv_vision_tokens(const fv_vision_config *v) {
    if (!v->patch) return 0;
    int32_t side = fv_vision_side(v) / v->merge;
    return side * side + (v->keep_cls ? 1 : 0);
}

/* Visual tokens of a tile of w x h pixels. */
static inline int32_t fv_vision_tokens_of(const fv_vision_config *v, int32_t w, int32_t h) {
    int32_t side = v->patch * v->merge;
    return v->any_size ? (w / side) * (h / side) : fv_vision_tokens(v);
}

/* Columns of a token's embedding: the text model's input, then deepstack's additions to its first
 * layers. */
static inline int32_t fv_vision_embed_width(const fv_vision_config *v) {
    return v->d_text * (1 + v->n_deepstack);
}

/* Number of values of a patch. */
static inline int32_t fv_vision_patch_width(const fv_vision_config *v) {
    return 3 * (v->two_frames ? 2 : 1) * v->patch * v->patch;
}

/* Number of columns of the features. */
static inline int32_t fv_vision_feature_width(const fv_vision_config *v) {
    return v->d_model * v->n_feature_layer * v->merge * v->merge;
}

#endif
