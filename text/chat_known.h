#ifndef FOVEA_TEXT_CHAT_KNOWN_H
#define FOVEA_TEXT_CHAT_KNOWN_H

/* Chat templates that have a name. */
#include <stdint.h>

typedef struct fv_chat_known {
    const char *name;
    const char *family; /* the text family that uses it by default; NULL: none */
    const char *program;
} fv_chat_known;

extern const fv_chat_known fv_chat_known_templates[]; /* [fv_n_chat_known], "none" last */
extern const int32_t fv_n_chat_known;

#endif
