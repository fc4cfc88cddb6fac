#ifndef FOVEA_CLI_EVAL_SEAT_H
#define FOVEA_CLI_EVAL_SEAT_H

/* A SEAT: one item of the exam while it is answered under one policy.
 *
 *   take -> chat with pictures -> [hear, hear, ... answered] per turn -> mark
 *
 * A later turn follows on what the model itself has answered before, right or wrong, as it would
 * with a user: the whole chat is in `chat`, its last turn the one that is asked now. */
#include "cli/local.h"
#include "eval/suite/mark.h"

enum { FV_SEAT_CHAT = 2 * FV_ITEM_TURNS - 1 };

typedef struct fv_seat {
    fv_item item;
    fv_image image[FV_ITEM_IMAGES]; /* [item.n_image] owned */
    int32_t turn;                   /* that is asked now */
    fv_chat_turn chat[FV_SEAT_CHAT];
    int32_t n_chat; /* used: borrows from item and mark */
    fv_mark mark;   /* owned, until it is taken out */
    /* private */
    FILE *hears;
    char *heard;
    size_t n_heard;
} fv_seat; /* {0} may be left */

/* Makes the item and paints its pictures, `side` pixels wide and high. */
fv_status fv_seat_take(const fv_exam *exam, int32_t side, int32_t policy, int32_t item,
                       fv_seat *out);
void fv_seat_leave(fv_seat *s);

/* A scene as a picture, `side` pixels wide and high (fv_image_free it). */
fv_status fv_seat_paint(const fv_scene *scene, int32_t side, fv_image *out);

/* Sides that suit a checkpoint's tower. */
int32_t fv_seat_side(const fv_model_config *cfg);

/* Text of the answer, as it comes. U+0000 is left out, as it is on its way from a fleet. */
fv_status fv_seat_hear(void *seat, const char *text, size_t n);
/* Forgets what was heard of this answer: it is asked for again. */
void fv_seat_again(fv_seat *s);

/* The answer is complete: it is scored. *more: another turn is to be asked; else the mark is
 * complete. */
fv_status fv_seat_answered(fv_seat *s, const fv_report *report, bool *more);

#endif
