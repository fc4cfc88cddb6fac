#ifndef FOVEA_DECODE_WORKER_CONVERSATIONS_FOLLOW_UP_H
#define FOVEA_DECODE_WORKER_CONVERSATIONS_FOLLOW_UP_H

/* FOLLOW: what a kept conversation goes on with -> the ids behind those that it holds. */
#include "model/engine.h"
#include "text/chat.h"

typedef enum fv_follow_up_form {
    FV_FOLLOW_UP_CHAT = 0, /* a user turn; the answer before it is closed as the template does */
    FV_FOLLOW_UP_TEXT,     /* as it is written, behind the answer */
    FV_FOLLOW_UP_IDS       /* as they are */
} fv_follow_up_form;

typedef struct fv_follow_up {
    fv_follow_up_form form;
    const char *chat_template; /* "": the checkpoint's own */
    int32_t n_turn;
    const fv_chat_turn *turn; /* [n_turn] */
    const char *text;
    int32_t n_id;
    const int32_t *id; /* [n_id] */
} fv_follow_up;

/* `last` is the last id of the answer. Gives *ids [*n] (free it), one at least, none of them an
 * image's or unknown: else FV_EINVAL. */
fv_status fv_follow_up_ids(const fv_engine *e, const fv_follow_up *q, int32_t last, int32_t **ids,
                           int32_t *n);

#endif
