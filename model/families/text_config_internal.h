#ifndef FOVEA_MODEL_FAMILIES_TEXT_CONFIG_INTERNAL_H
#define FOVEA_MODEL_FAMILIES_TEXT_CONFIG_INTERNAL_H

/* Declarations that the readers of a text model share. text_config.c calls the others. */
#include "model/families/keys.h"

/* Defaults of a family, and what is special in it. */
typedef struct fv_text_family {
    const char *name, *architecture;
    int32_t vocab, d_ffn, n_kv /* 0: as many as heads */, max_position, bos, eos;
    int32_t d_model, n_layer, n_head; /* 0: 4096, 32, 32 */
    int32_t d_head;                   /* 0: d_model / n_head */
    float rms_eps;                    /* 0: 1e-6 */
    double theta;                     /* 0: 10000 */
    int32_t section[3];               /* M-RoPE's sections, */
    bool interleaved;                 /* and whether they are interleaved */
    bool attention_bias;              /* the key exists in this family */
    bool bias_qkv, qk_norm;
    bool window_key; /* the window counts only with use_sliding_window */
    bool gemma;      /* norms, scales and two RoPEs as in Gemma 3 */
    bool gemma4;     /* heads of two sizes, norms and scales as in Gemma 4 */
    bool unified;    /* with the defaults of its 12B's class */
    bool recurrent;  /* layers, gates and partial RoPE as in Qwen3.5 */
    bool slides;     /* all layers slide where 'sliding_window' is a number */
    bool mlp_bias;   /* the key exists */
    bool ministral; /* queries are scaled by position, and RoPE is YaRN unless the file says else */
    bool granite;   /* has Granite's multipliers */
    bool fused;     /* tensors of q, k and v, and of gate and up, are one */
    bool use_bias;  /* the key exists, for all linear layers */
    bool glm;       /* norms, adjacent pairs and partial RoPE as in GLM-4.1V */
    bool glm_moe;   /* partial RoPE, a sigmoid router and a shared expert as in GLM-4.5V */
    int32_t n_expert, n_active, d_expert; /* of a mixture of experts; 0: the family has none */
    bool transposed;                      /* its matrices are [in, out] in files */
} fv_text_family;

/* The family of this name; the name is from fv_config_text_family. */
const fv_text_family *fv_text_family_of(const char *name);

/* FV_EDATA unless value is greater than 0. */
fv_status fv_config_positive(const char *key, double value, const char *where);

/* Parses RoPE, after max_position and the heads of *t, and the second one of Gemma 3's sliding layers. */
fv_status fv_config_rope(const json_t *obj, const fv_text_family *f, const char *where,
                         const fv_text_config *t, fv_rope_config *rope);
fv_status fv_config_rope_slides(const json_t *obj, const fv_text_family *f, const char *where,
                                const fv_text_config *t, fv_rope_config *rope);

/* Parses a mixture of experts: its widths, the sparse layers, the router, a shared expert. */
fv_status fv_config_experts(const json_t *obj, const char *where, const fv_text_family *f,
                            fv_text_config *t);

#endif
