#ifndef FOVEA_TEXT_CHAT_KNOWN_H
#define FOVEA_TEXT_CHAT_KNOWN_H

/* The Jinja texts of the chat templates that fovea knows, and the form of each (text/chat.h). */
#include <stdbool.h>

#include "text/chat.h"

typedef struct fv_chat_known {
    fv_chat_template form;
    bool text_only; /* for models without a vision tower */
    const char *program;
} fv_chat_known;

extern const fv_chat_known fv_chat_known_templates[]; /* [fv_n_chat_known] */
extern const int32_t fv_n_chat_known;

#endif
