#ifndef FOVEA_MODEL_FAMILIES_TENSOR_SPECS_INTERNAL_H
#define FOVEA_MODEL_FAMILIES_TENSOR_SPECS_INTERNAL_H

/* Tables of tensors (text_tensors.c, vision_tensors.c), and what their symbols stand for in one config
 * (tensor_symbols.c). Sizes are symbols so that an error can name the config keys behind an expected
 * shape. tensor_specs.c expands the tables. */
#include "model/families/tensor_specs.h"

typedef enum fv_spec_dim {
    DIM_NONE = 0,
    DIM_D, /* the text model */
    DIM_M,
    DIM_VOCAB,
    DIM_Q,
    DIM_KV,
    DIM_HEAD,
    DIM_VPIXELS, /* numbers of a patch */
    DIM_VAXIS,   /* positions of an axis */
    DIM_QKV,     /* rows of fused tensors */
    DIM_2M,
    DIM_EXPERTS,
    DIM_SHARED, /* the shared expert */
    DIM_E,      /* an expert's width, and twice that */
    DIM_2E,
    DIM_VD, /* the tower */
    DIM_VM,
    DIM_VPOSITION,
    DIM_VCHANNEL,
    DIM_VPATCH,
    DIM_TWO,
    DIM_THREE,
    DIM_V3D,
    DIM_ONE,
    DIM_FEATURE, /* the connector's input: features of a token, or the merger's output */
    DIM_NORMED,
    DIM_MERGED,
    DIM_INPUT, /* per-layer embeddings: of a layer, of all layers */
    DIM_INPUTS,
    DIM_DELTA, /* recurrent layers: queries, keys and values, values, heads, taps, a head's values */
    DIM_DELTA_V,
    DIM_DELTA_HEADS,
    DIM_DELTA_TAPS,
    DIM_DELTA_D,
    DIM_QUERY,   /* queries, with their gates if there are any */
    DIM_BETWEEN, /* the connector's two linear layers */
    DIM_VHEAD,   /* GLM: a head of the tower, patches of a token's side, the connector's FFN */
    DIM_VMERGE,
    DIM_GLM,
} fv_spec_dim;

typedef enum fv_spec_when {
    ALWAYS = 0,
    BIAS_QKV,
    BIAS_O,
    BIAS_MLP,
    QK_NORM,
    KEYS, /* q, k and v apart, in layers with keys of their own */
    KEY_NORM,
    INPUTS,       /* per-layer embeddings */
    LAYER_NUMBER, /* a layer's output has a factor */
    VALUES,       /* apart, and in layers in which values are not keys */
    APART,        /* q, k and v, gate and up as separate tensors, */
    FUSED,        /* or together */
    DENSE,        /* layers with one FFN */
    DENSE_APART,  /* and gate and up apart */
    SPARSE,
    SPARSE_PLAIN, /* whose matrices are [out, in], or transposed */
    SPARSE_TRANSPOSED,
    SIGMOID,      /* the router has a bias */
    BESIDE,       /* layers with experts beside the FFN, */
    BESIDE_PLAIN, /* whose matrices are together */
    SHARED_GATED, /* the expert that every token goes through, and its gate, */
    SHARED_PLAIN, /* or without one, under GLM's names */
    PRE_NORMS,    /* norms of the text model's layers: before attention and FFN only, */
    POST_NORMS,   /* or also after them, */
    OUTPUT_NORMS, /* or beside the former, under GLM's names */
    FUSED_FFN,    /* gate and up together */
    CONNECTOR_MLP,
    BIAS_MLP_CONNECTOR,
    CONNECTOR_LINEAR,
    CONNECTOR_MEAN, /* a single linear layer on means, stored transposed */
    CONNECTOR_NORM,
    STANDARD, /* means of patches have a bias and a factor */
    CONNECTOR_NORM_BIAS,
    CONNECTOR_MERGER,
    CONNECTOR_PEG,
    NEWLINE,
    CLASS_TOKEN,
    CLASS_TOKEN_3D, /* with two leading dimensions of 1, as in InternVL */
    POSITION,
    POSITION_3D,    /* with one */
    POSITION_AXES,  /* rows of columns, then of rows, */
    POSITION_PAIRS, /* or both in turn */
    LAYER_BIAS,     /* biases of the layers' norms */
    PRE_NORM_BIAS,
    VISION_QKV, /* q, k and v as separate tensors */
    VISION_BIAS_QKV,
    VISION_FUSED,
    VISION_BIAS_FUSED,
    VISION_BIAS_O,
    VISION_PLAIN, /* FFN without a gate, its biases, and the gated FFN */
    VISION_PLAIN_BIAS,
    VISION_GATED,
    VISION_GATED_BIAS,
    VISION_QK_NORM,
    VISION_POST_NORMS,
    VISION_QK_NORM_HEADS,
    CLIPPED,
    LAYER_SCALE,
    PATCH_FRAME,
    PATCH_ROWS, /* as the matrix of a linear layer */
    PATCH_NORMS,
    PATCH_FRAMES, /* patches of two frames */
    PATCH_BIAS,
    PRE_NORM,
    NORM_PATCHES,
    POST_NORM,
    POST_NORM_BIAS,
    UNUSED_POST_NORM, /* in files, but unused */
    UNUSED_HEAD,
    UNUSED_MASK,
    UNUSED_POSITIONS,
} fv_spec_when;

/* A tensor: its name, the member of weights.h that it fills, its sizes, and when it exists. */
typedef struct fv_spec_row {
    const char *name;
    size_t offset;
    fv_spec_dim dims[FV_TENSOR_SPECS_MAX_DIMS];
    fv_tensor_role role;
    fv_spec_when when;
} fv_spec_row;

typedef struct fv_spec_rows {
    const fv_spec_row *row;
    size_t n;
} fv_spec_rows;

/* The text model: what a layer, with attention or recurrent, and an FFN consist of, ... */
extern const fv_spec_rows fv_specs_text_front, fv_specs_text_attention, fv_specs_text_recurrent,
    fv_specs_text_ffn, fv_specs_text_fused, fv_specs_text_expert, fv_specs_text_back,
    fv_specs_text_head;

/* ... and the tower and the connectors. The first FV_SPECS_ASKED rows of a layer are the inputs of its
 * attention probabilities. */
enum { FV_SPECS_ASKED = 10 };
extern const fv_spec_rows fv_specs_connector, fv_specs_standard, fv_specs_newline,
    fv_specs_deepstack, fv_specs_glm_connector, fv_specs_glm_merger, fv_specs_vision_front,
    fv_specs_vision_layer, fv_specs_vision_back;

/* Rows of one layer, and of an expert, at most. */
enum { FV_SPECS_PER_LAYER = 64, FV_SPECS_PER_EXPERT = 3 };

/* Whether the row's tensor exists, of a text layer in layer `layer`; `whole` as in
 * fv_tensor_specs_build. */
bool fv_spec_exists(const fv_model_config *cfg, bool whole, fv_spec_when when, int32_t layer);

/* The size that a symbol stands for. *key: the config keys that it comes from. */
int64_t fv_spec_size(const fv_model_config *cfg, fv_spec_dim dim, int32_t layer, const char **key);

#endif
