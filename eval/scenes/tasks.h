#ifndef FOVEA_EVAL_SCENES_TASKS_H
#define FOVEA_EVAL_SCENES_TASKS_H

/* TASKS: questions about scenes with their right answers.
 *
 *   (split, task, index) -> [fv_item]: one or two scenes, one to ten turns
 *
 * An item depends only on (split, task, index), so a suite of any length is the same everywhere and
 * may run in parts. In TEST and CHECK, and by default in TRAIN, the answer is drawn first, all
 * equally likely, and then a scene that has it, so `chance` is the score of the best constant
 * answer. If answers are no classes (numbers, captions) it is that of the likeliest answer. A model
 * that sees colours but not which object has them scores more than `chance`: guessing among the
 * colours in the scene answers FV_TASK_COLOR right in 43 of 100 items, and the same holds for
 * shapes (measured on 1500 items each).
 *
 * Each turn has its answer twice: `answer` is as short as possible, `restated` first names its
 * subject ("The ring is red."). Finding the object and reading the other attribute are two steps,
 * which a small model learns more easily one after the other. Scoring accepts both (score.h).
 *
 * Pure functions: any thread. */
#include "eval/scenes/scene.h"

enum {
    FV_QUESTION_MAX = 160, /* bytes of a text with its NUL */
    FV_ANSWER_MAX = 2048,
    FV_ITEM_IMAGES = 2,
    FV_ITEM_TURNS = 10,
    FV_PLAIN_TURNS = 3, /* in a dialog about a plain scene; a dialog about a rich one has
                         * FV_ITEM_TURNS */
};

typedef enum fv_scene_task {
    FV_TASK_SHAPE = 0, /* shape of the only object of a colour */
    FV_TASK_COLOR,     /* colour of the only object of a shape */
    FV_TASK_COUNT,     /* number of objects of a colour, shape or size: 0 to 5 */
    FV_TASK_EXISTS,    /* whether a colour and a shape, which both occur, occur together */
    FV_TASK_RELATION,  /* left or right, above or below, of two objects */
    FV_TASK_CELL,      /* cell of an object in a grid of 3 x 3 */
    FV_TASK_NUMBER,    /* a printed number of 1 to 3 digits */
    FV_TASK_WRITTEN,   /* a handwritten digit */
    FV_TASK_COMPARE,   /* which of two images has more of something */
    FV_TASK_DIALOG,    /* three turns, ten about a rich scene; the second says "it" */
    FV_TASK_CAPTION,   /* every object, in raster order, one sentence each */
    FV_N_TASK
} fv_scene_task;

typedef struct fv_task_info {
    const char *name;  /* "shape" */
    const char *about; /* a phrase for tables and help */
    double chance;     /* score of the best constant answer */
    int32_t n_image;
    int32_t n_turn; /* for a plain scene; see fv_task_turns */
    bool two_hop;   /* an object must be found before its attribute can be read */
} fv_task_info;

typedef struct fv_turn {
    fv_scene_task task; /* the rule by which it is scored; a dialog has turns of other tasks */
    bool held_back;     /* the object's colour and shape never occur together in training */
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

/* NULL: no such task. Static. */
const fv_task_info *fv_task_describe(int32_t task);

/* Number of turns of an item about plain or rich scenes. */
int32_t fv_task_turns(fv_scene_task task, bool rich);

/* Makes item `index` (below 2^40) of a task. `knobs` say how full its scenes are; NULL is the
 * default, which the evaluation uses. Tasks raise them to what they need (a relation needs two
 * objects), and here scenes keep to them. FV_EINVAL if task, split, index or knobs are out of
 * range, or no scene that the knobs allow suits the task. */
fv_status fv_item_make(fv_split split, fv_scene_task task, uint64_t index,
                       const fv_scene_knobs *knobs, fv_item *out);

/* Makes questions about given scenes: writes turn[fv_task_turns] about scene[n_image]. The same
 * seed gives the same questions. Returns false if the scenes do not suit the task; the turns are
 * undefined then. */
bool fv_task_ask(fv_scene_task task, const fv_scene *scene, uint64_t seed, fv_turn *turn);

#endif
