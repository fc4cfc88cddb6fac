#ifndef FOVEA_GGUF_VISION_H
#define FOVEA_GGUF_VISION_H

/* VISION TOWERS IN MMPROJ FILES: the kinds of projector, which say how the file's tensors differ from
 * those of the model's safetensors. */
#include "gguf/gguf.h"

typedef enum fv_gguf_projector {
    FV_GGUF_LLAVA = 0, /* two linear layers: LLaVA */
    FV_GGUF_QWEN_VL,   /* Qwen2-VL, 2.5-VL and 3-VL */
    FV_GGUF_GEMMA3,
    FV_GGUF_IDEFICS3, /* and SmolVLM */
    FV_GGUF_PIXTRAL,  /* and Mistral 3 */
    FV_GGUF_INTERNVL,
} fv_gguf_projector;

/* The projector of an mmproj file. FV_EINVAL: the file is no tower; FV_EUNSUPPORTED names its projector
 * and those that are read. */
fv_status fv_gguf_projector_of(const fv_gguf *g, fv_gguf_projector *out);

/* Returns whether `up`, the matrix ffn_up of a tower of this width, is the second one of its FFN: the
 * oldest files have the names of the two exchanged. */
bool fv_gguf_is_swapped(const fv_gguf_tensor *up, int64_t width);

#endif
