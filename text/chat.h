#ifndef FOVEA_TEXT_CHAT_H
#define FOVEA_TEXT_CHAT_H

/* CHAT TEMPLATES: turns -> the prompt text that the checkpoint was trained on.
 *
 * Jinja is not executed. A checkpoint's template (chat_template.jinja, chat_template.json,
 * processor_config.json or tokenizer_config.json, in this order) is compared with those that are
 * known; any other is refused, because it could render anything. Without a template the text
 * family decides; a text-only checkpoint without one has none. Tests hold renderings made by
 * transformers against ours. */
#include "common/status.h"

typedef enum fv_chat_template {
    FV_CHAT_VICUNA = 0, /* "USER: <image>\n{q} ASSISTANT:" with </s> after each answer */
    FV_CHAT_LLAVA_HF,   /* the template llava-hf ships: "USER: <image>\n{q} ASSISTANT:" */
    FV_CHAT_CHATML,     /* "<|im_start|>user\n<image>\n{q}<|im_end|>\n<|im_start|>assistant\n" */
    FV_CHAT_MISTRAL,    /* "[INST] <image>\n{q} [/INST]" */
    FV_CHAT_NONE,       /* the prompt goes in as written */
    FV_N_CHAT
} fv_chat_template;

typedef struct fv_chat_turn {
    const char *role; /* "system", "user" or "assistant" */
    const char *text; /* UTF-8, NUL-terminated */
    int32_t n_image;  /* images before the text */
} fv_chat_turn;

/* "vicuna", "llava", "chatml", "mistral", "none". */
const char *fv_chat_name(fv_chat_template t);
fv_status fv_chat_by_name(const char *name, fv_chat_template *out);

/* Finds the template of the checkpoint in `dir`, whose text model is of `family` ("llama",
 * "mistral", "qwen2"); the family decides where a checkpoint with vision has no template. One that
 * is not known, but for white space inside tags, quotes and comments, is FV_EUNSUPPORTED; the
 * sentence says how to go on (--chat NAME or
 * --raw). */
fv_status fv_chat_detect(const char *dir, const char *family, bool has_vision,
                         fv_chat_template *out);

/* The one of this name, or for "" the checkpoint's own. */
fv_status fv_chat_choose(const char *name, const char *dir, const char *family, bool has_vision,
                         fv_chat_template *out);

/* FV_EINVAL when the last turn says nothing and shows no image: there is nothing to answer. */
fv_status fv_chat_check_question(const fv_chat_turn *turns, int32_t n);

/* Renders n turns followed by the start of an answer; images appear as "<image>". Gives *text
 * (free it). FV_EINVAL for an unknown role or turns out of order. */
fv_status fv_chat_render(fv_chat_template t, const fv_chat_turn *turns, int32_t n, char **text);

/* The same, with the positions of images: *at [*n_at] byte offsets, ascending (free it). "<image>"
 * anywhere else was typed by a user and is text. */
fv_status fv_chat_render_at(fv_chat_template t, const fv_chat_turn *turns, int32_t n, char **text,
                            size_t **at, int32_t *n_at);

/* The text that follows an answer: its end as the template writes it, the user's next turn, and the
 * start of an answer. `ended` is the special token with which the answer ended, "" for none: if the
 * template writes the same one, it is not repeated. Prompt, answer and this joined are the
 * rendering of the whole conversation; a special token that the template does not have stays in
 * between. Gives *text (free it). FV_EINVAL unless it is one user turn without images. */
fv_status fv_chat_continue(fv_chat_template t, const fv_chat_turn *turns, int32_t n,
                           const char *ended, char **text);

#endif
