#ifndef FOVEA_CLI_EVAL_SESSION_H
#define FOVEA_CLI_EVAL_SESSION_H

/* A SESSION: one item of the evaluation while it is answered under one policy.
 *
 *   take -> chat with images -> [hear, hear, ... answered] per turn -> score
 *
 * A later turn continues from the model's own answers, right or wrong, as it would
 * with a user: the whole chat is in `chat`, its last turn the current question. */
#include "cli/client/local.h"
#include "eval/suite/item_score.h"

enum { FV_EVAL_SESSION_CHAT = 2 * FV_ITEM_TURNS - 1 };

typedef struct fv_eval_session {
    fv_item item;                 /* of generated scenes */
    const fv_benchmark_item *own; /* of a user's benchmark, borrowed; NULL: scenes are generated */
    int32_t n_image, n_turn;
    fv_image image[FV_BENCHMARK_IMAGES]; /* [n_image] owned */
    int32_t turn;                        /* that is asked now */
    fv_chat_turn chat[FV_EVAL_SESSION_CHAT];
    int32_t n_chat;           /* used: borrows from item and score */
    fv_item_score item_score; /* owned, until it is taken out */
    /* private */
    FILE *hears;
    char *heard;
    size_t n_heard;
} fv_eval_session; /* {0} may be left */

/* Makes the item and paints its images, `side` pixels wide and high; of a benchmark reads them. */
fv_status fv_eval_session_take(const fv_suite *suite, int32_t side, int32_t policy, int32_t item,
                               fv_eval_session *out);
void fv_eval_session_leave(fv_eval_session *s);

/* Tokens that the answer to this turn may have. */
int32_t fv_eval_session_max_tokens(const fv_eval_session *s);

/* The file of an image, as a fleet gets it: a benchmark's own, or a PNG. Gives *data (free it) [*n]. */
fv_status fv_eval_session_file(const fv_eval_session *s, int32_t image, uint8_t **data, size_t *n);

/* Puts the line of the benchmark, if any, in front of a failure's sentence. Gives the status. */
fv_status fv_eval_session_failed(const fv_eval_session *s, fv_status st);

/* Reads --scenes: plain or rich. FV_EINVAL for anything else. */
fv_status fv_eval_session_scenes(const char *kind, bool *rich);

/* A scene as an image, `side` pixels wide and high (fv_image_free it). */
fv_status fv_eval_session_paint(const fv_scene *scene, int32_t side, fv_image *out);

/* Sides that suit a checkpoint's tower. */
int32_t fv_eval_session_side(const fv_model_config *cfg);

/* Text of the answer, as it comes. U+0000 is left out, as it is on its way from a fleet. */
fv_status fv_eval_session_hear(void *session, const char *text, size_t n);
/* Discards the partial answer, before the question is sent again. */
void fv_eval_session_again(fv_eval_session *s);

/* The answer is complete: it is scored. *more: another turn is to be asked; else the score is
 * complete. */
fv_status fv_eval_session_answered(fv_eval_session *s, const fv_report *report, bool *more);

#endif
