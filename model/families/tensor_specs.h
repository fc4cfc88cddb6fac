#ifndef FOVEA_MODEL_FAMILIES_TENSOR_SPECS_H
#define FOVEA_MODEL_FAMILIES_TENSOR_SPECS_H

/* THE MANIFEST: every tensor of a network, listed from its config: canonical name, shape, role, and
 * member of weights.h. Reading a checkpoint and writing a synthetic one walk the same list. */
#include "model/families/families.h"
#include "model/families/name_mapping.h"
#include "model/net/weights.h"

typedef enum fv_tensor_role {
    FV_ROLE_LINEAR = 0,         /* [out, in]; a convolution kernel [out, c, y, x] as well */
    FV_ROLE_QUERY,              /* a linear layer that computes the text model's queries */
    FV_ROLE_BIAS,               /* [n], of a linear layer or a LayerNorm */
    FV_ROLE_NORM,               /* [n], the scale of a norm */
    FV_ROLE_EMBEDDING,          /* [n, d], or [d] for a single row */
    FV_ROLE_HEAD,               /* lm_head.weight; may be absent when tied */
    FV_ROLE_EXACT,              /* [out, in] or a depthwise kernel [out, 1, n], never quantized */
    FV_ROLE_ROUTER,             /* a linear layer whose outputs choose experts: never quantized */
    FV_ROLE_LOWER,              /* a number without dimensions, the lower bound of a range */
    FV_ROLE_UPPER,              /* its upper one */
    FV_ROLE_EXPERTS,            /* [E, out, in]: linear layers of all experts */
    FV_ROLE_EXPERTS_TRANSPOSED, /* [E, in, out], the same, transposed in the files */
} fv_tensor_role;

/* Struct that a tensor's view belongs to. */
typedef enum fv_tensor_part {
    FV_PART_TEXT = 0,
    FV_PART_TEXT_LAYER,
    FV_PART_RECURRENT_LAYER, /* `layer` counts recurrent layers alone */
    FV_PART_TEXT_EXPERT, /* `layer` is that of the expert in fv_text_weights' list: layer * E + expert */
    FV_PART_TEXT_FUSED, /* several linear layers of a text layer in one tensor (fv_text_fused) */
    FV_PART_VISION,
    FV_PART_VISION_LAYER,
    FV_PART_VIDEO, /* a separate tower for videos */
    FV_PART_VIDEO_LAYER,
    FV_PART_PROJECTOR,
    FV_PART_DEEPSTACK, /* one of deepstack's connectors; `layer` is its index */
    FV_PART_UNUSED,    /* in files, never read */
} fv_tensor_part;

enum { FV_TENSOR_SPECS_MAX_DIMS = 5 };

/* Tensors of a layer of a model with `fused`, whose rows are those of q, k and v, and of gate and up
 * (Phi-3, arXiv 2404.14219). */
typedef struct fv_text_fused {
    fv_tensor qkv, gate_up;
} fv_text_fused;

typedef struct fv_tensor_spec {
    char name[FV_TENSOR_NAME_MAX]; /* canonical */
    int32_t n_dim;
    int64_t shape[FV_TENSOR_SPECS_MAX_DIMS];
    const char *shape_keys[FV_TENSOR_SPECS_MAX_DIMS]; /* config keys that each size comes from */
    fv_tensor_role role;
    fv_tensor_part part;
    int32_t layer;
    bool optional; /* the network computes without it */
    size_t offset; /* of the fv_tensor in that struct */
} fv_tensor_spec;

/* Names of experts' tensors have this behind their layer's prefix: "mlp.experts". */
const char *fv_tensor_specs_experts(const fv_text_config *t);

/* Lists the tensors that the network computes with, and those that the attention probabilities of
 * the next tower layer need (optional, for the condense stage). With `whole` also those that files
 * have but the family never uses (tower layers after the last feature layer, post_layernorm, a
 * pooling head). Gives *out (free it). Order: text, projector, vision. */
fv_status fv_tensor_specs_build(const fv_model_config *cfg, bool whole, fv_tensor_spec **out,
                                int32_t *n);

/* Rows and columns of the view: the first dimension is rows, the rest columns; of an embedding only
 * the last is columns; a vector is one row; experts' rows follow each other. */
void fv_tensor_specs_view(const fv_tensor_spec *e, int32_t *rows, int32_t *cols);

#endif
