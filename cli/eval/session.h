#ifndef FOVEA_CLI_EVAL_SESSION_H
#define FOVEA_CLI_EVAL_SESSION_H

/* A SESSION: one item of the evaluation while it is answered under one policy.
 *
 *   take -> chat with images -> [hear, hear, ... answered] per turn -> score
 *
 * A later turn continues from the model's own answers, right or wrong, as with a user: `chat` has
 * the whole chat, its last turn is the current question. */
#include "cli/client/local.h"
#include "cli/eval/document.h"
#include "eval/suite/item_score.h"

enum { FV_EVAL_SESSION_CHAT = 2 * FV_ITEM_TURNS - 1 };

typedef struct fv_eval_session {
    fv_item item;                 /* for generated scenes */
    const fv_benchmark_item *own; /* for a user's benchmark, borrowed; NULL: generated scenes */
    fv_eval_document document; /* owned; the prompt of an item with a document, once it is made */
    int32_t n_image, n_turn;
    fv_image image[FV_BENCHMARK_IMAGES]; /* [n_image] owned */
    int32_t turn;                        /* the current turn */
    fv_chat_turn chat[FV_EVAL_SESSION_CHAT];
    int32_t n_chat;           /* turns in chat, which borrow from item and item_score */
    fv_item_score item_score; /* owned, until taken out */
    /* private */
    FILE *hears;
    char *heard;
    size_t n_heard;
} fv_eval_session; /* {0} may be left */

/* Makes the item and renders its images, `side` pixels wide and high; for a benchmark, reads
 * them. */
fv_status fv_eval_session_take(const fv_suite *suite, int32_t side, int32_t policy, int32_t item,
                               fv_eval_session *out);
void fv_eval_session_leave(fv_eval_session *s);

/* Token limit of the answer to this turn. */
int32_t fv_eval_session_max_tokens(const fv_eval_session *s);

/* The file of an image as sent to a fleet: a benchmark's own, or a PNG. Gives *data (free it)
 * [*n]. */
fv_status fv_eval_session_file(const fv_eval_session *s, int32_t image, uint8_t **data, size_t *n);

/* Prefixes a failure's message with the line of the benchmark, if any. Returns the status. */
fv_status fv_eval_session_failed(const fv_eval_session *s, fv_status st);

/* Parses --scenes: plain or rich. FV_EINVAL for other text. */
fv_status fv_eval_session_scenes(const char *kind, bool *rich);

/* Renders a scene to an image `side` pixels wide and high (fv_image_free it). */
fv_status fv_eval_session_render(const fv_scene *scene, int32_t side, fv_image *out);

/* Side of images that suits a checkpoint's tower. */
int32_t fv_eval_session_side(const fv_model_config *cfg);

/* Adds text of the answer as it arrives, without U+0000, as a fleet sends it. */
fv_status fv_eval_session_add_text(void *session, const char *text, size_t n);
/* Discards the partial answer before the question is sent again. */
void fv_eval_session_again(fv_eval_session *s);

/* Scores the complete answer. *more: another turn must be asked; otherwise the score is
 * complete. */
fv_status fv_eval_session_answered(fv_eval_session *s, const fv_report *report, bool *more);

#endif
