#ifndef FOVEA_MODEL_FAMILIES_NAME_MAPPING_H
#define FOVEA_MODEL_FAMILIES_NAME_MAPPING_H

/* WEIGHT-NAME MAPPING: the names that the same tensor has in different files.
 *
 *            LLM                       head                     tower, projector
 *   hub      language_model.model.     language_model.lm_head.  vision_tower.vision_model.
 *   v4.52    model.language_model.     lm_head.                 model.vision_tower.vision_model.
 *   v5.6     model.language_model.     lm_head.                 model.vision_tower.
 *   original model.                    lm_head.                 model.vision_tower.vision_tower.
 *                                                               vision_model., mm_projector.0
 *   base     language_model.           (none)                   vision_tower.vision_model.
 *   bare     (nothing)                 (none)                   (a text model's base model)
 *
 * Idefics3 and SmolVLM have their own names, the same in every version:
 *            model.text_model.         lm_head.                 model.vision_model.,
 *                                                               model.connector.modality_projection.
 *
 * So do the Qwen-VL models, since transformers 4.52 and before it:
 *            model.language_model.     lm_head.                 model.visual., model.visual.merger.
 *            model.                    lm_head.                 visual., visual.merger.
 *
 * InternVL's original layout, internvl_chat:
 *            language_model.model.     language_model.lm_head.  vision_model., mlp1.
 *
 * PaddleOCR-VL, since transformers 5 and before it:
 *            model.language_model.     lm_head.                 model.visual.vision_model.,
 *                                                               model.projector.
 *            model.                    lm_head.                 visual.vision_model., mlp_AR.
 *
 * LightOnOCR:
 *            model.language_model.     lm_head.                 model.vision_encoder.,
 *                                                               model.vision_projection.
 *
 * MobileVLM has the names of `original`, with mm_projector.mlp.mlp.0 and mm_projector.peg.peg.0.
 *
 * Towers other than CLIP's and SigLIP's have their own names in all mappings, without the level
 * vision_model.
 *
 * A text-only checkpoint uses the names of `original`. Inside the engine each tensor has one
 * canonical name: text.layers.0.mlp.up_proj.weight, lm_head.weight,
 * vision.encoder.layers.0..., projector.linear_1.weight, newline. */
#include <stddef.h>

#include "common/status.h"

enum { FV_TENSOR_NAME_MAX = 128 };

typedef enum fv_name_mapping {
    FV_NAME_MAPPING_HUB =
        0,                 /* llava-hf on the hub, written by transformers 4 before 4.52 and by 5 */
    FV_NAME_MAPPING_V4_52, /* written by transformers 4.52 and close versions */
    FV_NAME_MAPPING_V5_6,  /* in memory since transformers 5.6 */
    FV_NAME_MAPPING_ORIGINAL, /* the LLaVA repository; text-only checkpoints */
    FV_NAME_MAPPING_BASE,     /* LlavaModel without a head */
    FV_NAME_MAPPING_BARE,     /* LlamaModel without a head */
    FV_N_NAME_MAPPING
} fv_name_mapping;

/* Naming scheme of the parts of tower and connector. */
typedef enum fv_tower_names {
    FV_TOWER_NAMES_CLIP = 0, /* the canonical names, also SigLIP's */
    FV_TOWER_NAMES_INTERNVL,
    FV_TOWER_NAMES_PIXTRAL,
    FV_TOWER_NAMES_QWEN_VL,
    FV_TOWER_NAMES_QWEN3_VL,
    FV_TOWER_NAMES_GEMMA,       /* connector only; the tower has CLIP's names */
    FV_TOWER_NAMES_VIDEO_LLAVA, /* names of the towers themselves */
    FV_TOWER_NAMES_MOBILEVLM,   /* connector only */
    FV_TOWER_NAMES_INTERNVL_CHAT,
    FV_TOWER_NAMES_GEMMA4,
    FV_TOWER_NAMES_GEMMA4_UNIFIED,
    FV_TOWER_NAMES_PADDLEOCR, /* connector only */
    FV_N_TOWER_NAMES
} fv_tower_names;

/* Prefixes that replace the parts of a canonical name: text., lm_head., vision., video.,
 * projector., newline. */
typedef struct fv_tensor_names {
    const char *text, *head, *tower, *projector, *linear_1, *linear_2, *newline; /* NULL: LLaVA's */
    fv_tower_names inside; /* of tower and projector */
} fv_tensor_names;

/* "hub", "v4.52", "v5.6", "original", "base", "bare". */
const char *fv_name_mapping_name(fv_name_mapping d);
fv_status fv_name_mapping_by_name(const char *name, fv_name_mapping *out);

/* Translates a key of any name mapping to its canonical name, truncated if longer than any known
 * name; an unknown key is copied. Returns false for a buffer saved by old versions, which is no
 * weight. */
bool fv_name_mapping_canonical(const char *key, char out[FV_TENSOR_NAME_MAX]);

/* Translates a canonical name to the key in name mapping `d`, for a family with its own names `own`
 * or NULL. */
void fv_name_mapping_key(fv_name_mapping d, const fv_tensor_names *own, const char *canonical,
                         char out[FV_TENSOR_NAME_MAX]);

#endif
