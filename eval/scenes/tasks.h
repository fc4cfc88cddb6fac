#ifndef FOVEA_EVAL_SCENES_TASKS_H
#define FOVEA_EVAL_SCENES_TASKS_H

/* TASKS: what is asked about scenes, and what the right answer is.
 *
 *   (split, task, index) -> [fv_item]: one or two scenes, one to ten turns
 *
 * An item depends only on (split, task, index), so a suite of any length is the same everywhere and
 * may run in parts. In TEST and CHECK, and by default in TRAIN, the answer is drawn first, each
 * as likely as the other, and then a scene that has it: `chance` is what the best constant answer
 * scores. Where the answer is no class (numbers, captions) it is that of the likeliest one. It is
 * not what a model scores that sees colours but not whose they are: guessing among the colours that
 * are there answers FV_TASK_COLOR right in 43 of 100 items, and so for shapes (of 1500 items each).
 *
 * Each turn has its answer twice: `answer` is as short as can be, `restated` says first what it
 * is about ("The ring is red."). Finding the object and reading the other attribute are two steps,
 * and a small model learns them more easily one after the other. Scoring takes both (score.h).
 *
 * Pure functions: any thread. */
#include "eval/scenes/scene.h"

enum {
    FV_QUESTION_MAX = 160, /* bytes of a text, its NUL among them */
    FV_ANSWER_MAX = 2048,
    FV_ITEM_IMAGES = 2,
    FV_ITEM_TURNS = 10,
    FV_PLAIN_TURNS = 3, /* of a dialog about a plain scene; about a rich one it has FV_ITEM_TURNS */
};

typedef enum fv_scene_task {
    FV_TASK_SHAPE = 0, /* shape of the only object of a colour */
    FV_TASK_COLOR,     /* colour of the only object of a shape */
    FV_TASK_COUNT,     /* how many of a colour, shape or size: 0 to 5 */
    FV_TASK_EXISTS,    /* whether a colour and a shape, both there, occur together */
    FV_TASK_RELATION,  /* left or right, above or below, of two objects */
    FV_TASK_CELL,      /* where an object is, in a grid of 3 x 3 */
    FV_TASK_NUMBER,    /* a printed number of 1 to 3 digits */
    FV_TASK_WRITTEN,   /* a handwritten digit */
    FV_TASK_COMPARE,   /* two images: which has more of something */
    FV_TASK_DIALOG,    /* three turns, about a rich image ten; the second says "it" */
    FV_TASK_CAPTION,   /* every object, in raster order, in a sentence each */
    FV_N_TASK
} fv_scene_task;

typedef struct fv_task_info {
    const char *name;  /* "shape" */
    const char *about; /* half a sentence, for tables and help */
    double chance;     /* score of the best constant answer */
    int32_t n_image;
    int32_t n_turn; /* about a plain scene: fv_task_turns */
    bool two_hop;   /* an object must be found before what is asked can be read */
} fv_task_info;

typedef struct fv_turn {
    fv_scene_task task; /* by whose rule it is scored; a dialog has turns of other tasks */
    bool held_back;     /* it speaks of an object whose colour and shape training never shows */
    char question[FV_QUESTION_MAX];
    char answer[FV_ANSWER_MAX];
    char restated[FV_ANSWER_MAX];
} fv_turn;

typedef struct fv_item {
    fv_scene_task task;
    int32_t n_image, n_turn;
    fv_scene scene[FV_ITEM_IMAGES]; /* [n_image], shown before the first turn */
    fv_turn turn[FV_ITEM_TURNS];    /* [n_turn] */
} fv_item;

/* NULL when there is no such task. Static. */
const fv_task_info *fv_task_describe(int32_t task);

/* Turns of an item about plain or rich scenes. */
int32_t fv_task_turns(fv_scene_task task, bool rich);

/* Makes item `index` (below 2^40) of a task. `knobs` say how full its scenes are; NULL is the
 * default, which the evaluation uses. Tasks raise them as far as they must (no relation of one
 * object), and here scenes keep to them. FV_EINVAL when task, split, index or knobs are out of
 * range, and when no scene that the knobs allow suits the task. */
fv_status fv_item_make(fv_split split, fv_scene_task task, uint64_t index,
                       const fv_scene_knobs *knobs, fv_item *out);

/* Makes questions about given scenes: writes turn[fv_task_turns] about scene[n_image], as the task
 * has them. The same seed gives the same questions. False when the scenes do not suit the task; the
 * turns are then undefined. */
bool fv_task_ask(fv_scene_task task, const fv_scene *scene, uint64_t seed, fv_turn *turn);

#endif
