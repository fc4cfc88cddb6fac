#ifndef FOVEA_PREFILL_WORKER_PROMPT_PROMPT_H
#define FOVEA_PREFILL_WORKER_PROMPT_PROMPT_H

/* PROMPT: text with "<image>" in it -> token ids with every image expanded to its tokens and the text
 * that its family puts around them. A video is expanded likewise, with a token of its own, if the model
 * reads videos; "images" includes videos here. */
#include "common/token_span.h"
#include "model/config.h"
#include "text/chat.h"
#include "text/tokenizer.h"

typedef struct fv_prompt {
    int32_t *ids; /* [n] owned; image tokens hold the image token's id */
    uint8_t *seg; /* [n] owned; fv_kv_segment */
    int32_t n, n_visual, n_text, n_image;
    int32_t n_span;
    fv_token_span *span;               /* [n_span] owned; where the images' tokens are */
    size_t cap_ids, cap_seg, cap_span; /* private */
} fv_prompt;                           /* {0} is empty and may be freed */

/* Tokenises `text` (`special`: special tokens added as the tokenizer's post-processor says) and expands each
 * image token to the image's text and tokens as layout[n_image] has them, in order: the same ids as
 * expanding in the text first. FV_EINVAL if the number of "<image>" is not n_image, a video is given
 * where an image is expected or the other way round, or prompt tokens exceed `context`; the sentence says
 * what to change. Text that is too long for the checkpoint's context by its bytes alone is refused before
 * it is tokenised. */
fv_status fv_prompt_make(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                         bool special, int32_t n_image, const fv_layout *layout, int32_t context,
                         fv_prompt *out);

/* The same for a rendered chat: special tokens and "<image>" that a turn's text spells out are plain text. */
fv_status fv_prompt_make_chat(const fv_tokenizer *tok, const fv_model_config *cfg,
                              const fv_chat_text *text, int32_t n_image, const fv_layout *layout,
                              int32_t context, fv_prompt *out);

/* Inserts the text ahead[i] directly ahead of image i of the rendered chat; NULL or "": nothing. It counts as written by
 * a user. */
fv_status fv_prompt_put_ahead(const fv_model_config *cfg, const char *const *ahead, int32_t n,
                              fv_chat_text *text);

/* The same for a prompt that is ids[n] already, to which nothing is added. FV_EINVAL also for an id that
 * the text model does not have. */
fv_status fv_prompt_of_ids(const fv_tokenizer *tok, const fv_model_config *cfg, const int32_t *ids,
                           int32_t n, int32_t n_image, const fv_layout *layout, int32_t context,
                           fv_prompt *out);

/* Cuts text off the front until at most `most` tokens are left, but not the first token if keep_first. What is
 * cut ends before the first image and the special tokens right before it: an image is never cut. FV_EINVAL if
 * that is not enough. */
fv_status fv_prompt_truncate(fv_prompt *p, const fv_tokenizer *tok, bool keep_first, int32_t most);

/* Makes tokens [first, first + n) of a text visual ones, of one image with a row of n tokens: policies treat them
 * as those of an image, and the model reads them as before. FV_EINVAL unless the prompt has them as text, and no image. */
fv_status fv_prompt_mark_visual(fv_prompt *p, int32_t first, int32_t n);

/* Adds n ids of an answer, as text. */
fv_status fv_prompt_append(fv_prompt *p, const int32_t *ids, int32_t n);

/* Shortens span i to each[i] tokens, at most as many as it has; NULL: keeps all. The prompt was made with
 * a larger `context`: FV_EINVAL if it does not fit this one now. */
fv_status fv_prompt_condense(fv_prompt *p, const int32_t *each, int32_t context);

void fv_prompt_free(fv_prompt *p);

#endif
