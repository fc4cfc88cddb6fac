#ifndef FOVEA_MODEL_GGUF_TENSORS_H
#define FOVEA_MODEL_GGUF_TENSORS_H

/* TENSORS OF GGUF FILES AS HUGGING FACE HAS THEM. llama.cpp's converter renames tensors and stores some in
 * another form; each of these is undone:
 *
 *   patch_embd      a kernel over two frames is two kernels (Qwen-VL)
 *   attn_q, _k, _v  one matrix is cut in three (Qwen2-VL and 2.5-VL)
 *   ffn_*_exps      the experts' gate and up are apart, and no matrix is transposed (Qwen3-VL)
 *   norms           have 1 added (Gemma 3, Qwen3.5)
 *   value heads     of recurrent layers, which are consecutive where they share a key head, are apart (Qwen3.5)
 *   ssm_a           is -exp(A_log) (Qwen3.5)
 *   deepstack       is numbered by the tower's layer
 *   ffn_up, _down   have each other's names (the oldest mmproj files)
 *
 * Queries and keys in GGML's order of RoPE are restored later (model/gguf_weights.h). */
#include "common/arena.h"
#include "gguf/files.h"
#include "model/gguf_weights.h"
#include "model/safetensors.h"

/* A tensor's name and form besides its entry. */
typedef struct fv_gguf_form {
    char hub[FV_GGUF_NAME_MAX]; /* its name on the Hugging Face Hub; "": it is no weight */
    /* Tensors whose rows follow those of the entry's: `span` rows of each in turn. The entry's shape is that of
     * all together, its data and bytes are the first's. */
    const void *more[2];
    int32_t n_more, span;
    fv_gguf_tiles tiles; /* heads that are restored to their order */
} fv_gguf_form;

/* Lists the tensors of the file g, one of those of s: *n entries, with the names of the file, and as many
 * forms, in the arena. They borrow the files of s, as tensors that belong together may be in several.
 * FV_EUNSUPPORTED: a projector or architecture that is not supported, or tensors that belong together and are
 * of different types; FV_EDATA: tensors of shapes that do not fit together. */
fv_status fv_gguf_tensors_list(const fv_gguf_set *s, const fv_gguf *g, fv_arena *arena,
                               fv_safetensors_entry **entry, fv_gguf_form **form, int32_t *n);

#endif
