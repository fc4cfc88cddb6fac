#ifndef FOVEA_TEXT_PROMPT_FORM_H
#define FOVEA_TEXT_PROMPT_FORM_H

/* PROMPT FORM: a prompt as it was given, before it is token ids: chat turns, a text or ids.
 * Everything is borrowed. */
#include "text/chat.h"

typedef enum fv_prompt_kind {
    FV_PROMPT_CHAT = 0, /* turns, rendered with a chat template */
    FV_PROMPT_TEXT,     /* a text as it is */
    FV_PROMPT_IDS       /* ids as they are */
} fv_prompt_kind;

typedef struct fv_prompt_form {
    fv_prompt_kind kind;
    const char *chat_template; /* by name or the text of a program; "": the worker's */
    int32_t n_turn;
    const fv_chat_turn *turn; /* [n_turn] */
    fv_chat_options options;  /* of a chat; `special` of a text too */
    const char *text;
    int32_t n_id;
    const int32_t *id; /* [n_id] */
} fv_prompt_form;

#endif
