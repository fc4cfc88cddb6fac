#ifndef FOVEA_PREFILL_WORKER_PROMPT_H
#define FOVEA_PREFILL_WORKER_PROMPT_H

/* PROMPT: text with "<image>" in it -> token ids with every image expanded to its rows. */
#include "model/config.h"
#include "model/tokenizer.h"

typedef struct fv_prompt {
    int32_t *ids; /* [n] owned; image rows hold the image token's id */
    uint8_t *seg; /* [n] owned; fv_kv_segment */
    int32_t n, n_visual, n_text, n_image;
} fv_prompt; /* {0} is empty and may be freed */

/* Tokenises `text` (special tokens added as the tokenizer's post-processor says) and expands
 * each image token to the rows of one image: the same ids as expanding in the text first.
 * FV_EINVAL when the number of "<image>" is not n_image, or when prompt rows exceed
 * `context`; the sentence says what to change. */
fv_status fv_prompt_make(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                         int32_t n_image, int32_t context, fv_prompt *out);
void fv_prompt_free(fv_prompt *p);

#endif
