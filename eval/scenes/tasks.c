/* The table of tasks, and the search for an item: a wanted answer is drawn, then scenes until one
 * has it. Facts cost microseconds, so hundreds of scenes can be discarded.
 *
 * A new task is one row here, one value of fv_scene_task, one function in ask_*.c, and a test that
 * derives its answers another way. */
#include "eval/scenes/tasks.h"

#include "eval/scenes/ask_internal.h"

enum {
    WISHES = 16,   /* wanted answers tried per item */
    SCENES = 1024, /* scenes tried per wanted answer: the rarest, five of a colour, is in one of
                    * 80 */
};

typedef struct task {
    fv_task_info info;
    int32_t object_min, number_min;
    bool written;
    fv_ask ask;
} task;

/* Mean chance over the turns of a dialog: shape or colour, cell, count or existence. */
#define DIALOG_CHANCE (((1.0 / 6 + 1.0 / 8) / 2 + 1.0 / 9 + (1.0 / 6 + 1.0 / 2) / 2) / 3)

/* clang-format off */
static const task tasks[FV_N_TASK] = {
    /*                    name        about                                         chance  images, turns, two hops       objects, numbers, handwriting */
    [FV_TASK_SHAPE]    = {{"shape",    "shape of the only object of a color",       1.0 / 6,       1, 1, true},  1, 0, false, fv_ask_shape},
    [FV_TASK_COLOR]    = {{"color",    "color of the only object of a shape",       1.0 / 8,       1, 1, true},  1, 0, false, fv_ask_color},
    [FV_TASK_COUNT]    = {{"count",    "how many of a color, shape or size",        1.0 / 6,       1, 1, false}, 1, 0, false, fv_ask_count},
    [FV_TASK_EXISTS]   = {{"exists",   "whether a color and a shape occur together", 1.0 / 2,      1, 1, false}, 1, 0, false, fv_ask_exists},
    [FV_TASK_RELATION] = {{"relation", "left or right, above or below",             1.0 / 2,       1, 1, true},  2, 0, false, fv_ask_relation},
    [FV_TASK_CELL]     = {{"cell",     "place of an object in a grid of 3 x 3",     1.0 / 9,       1, 1, true},  1, 0, false, fv_ask_cell},
    [FV_TASK_NUMBER]   = {{"number",   "a printed number of 1 to 3 digits",         1.0 / 30,      1, 1, false}, 1, 1, false, fv_ask_number},
    [FV_TASK_WRITTEN]  = {{"written",  "a handwritten digit",                       1.0 / 10,      1, 1, false}, 1, 0, true,  fv_ask_written},
    [FV_TASK_COMPARE]  = {{"compare",  "which of two images has more",            1.0 / 3,       2, 1, false}, 1, 0, false, fv_ask_compare},
    [FV_TASK_DIALOG]   = {{"dialog",   "three turns about one image",             DIALOG_CHANCE, 1, 3, true},  1, 0, false, fv_ask_dialog},
    [FV_TASK_CAPTION]  = {{"caption",  "F1 over everything in the image",         0.0,           1, 1, false}, 5, 0, false, fv_ask_caption},
};
/* clang-format on */

const fv_task_info *fv_task_describe(int32_t t) {
    return t >= 0 && t < FV_N_TASK ? &tasks[t].info : NULL;
}

int32_t fv_task_turns(fv_scene_task t, bool rich) {
    return t == FV_TASK_DIALOG && rich ? FV_ITEM_TURNS : tasks[t].info.n_turn;
}

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* The caller's knobs, raised to the task's minimum. */
static fv_scene_knobs knobs_for(const task *t, const fv_scene_knobs *asked) {
    fv_scene_knobs k = asked ? *asked : fv_scene_knobs_default();
    k.object_min = larger(k.object_min, t->object_min);
    k.object_max = larger(k.object_max, k.object_min);
    k.number_min = larger(k.number_min, t->number_min);
    k.number_max = larger(k.number_max, k.number_min);
    if (t->written) k.written_percent = 100;
    return k;
}

static void name_turns(fv_scene_task t, int32_t n, fv_turn *turn) {
    for (int32_t i = 0; i < n; i++) turn[i].task = t;
}

fv_status fv_item_make(fv_split split, fv_scene_task t, uint64_t index, const fv_scene_knobs *knobs,
                       fv_item *out) {
    if (!fv_task_describe((int32_t)t)) return FV_FAIL(FV_EINVAL, "no task %d", (int)t);
    if (knobs) FV_TRY(fv_scene_knobs_check(knobs));
    const fv_scene_knobs k = knobs_for(&tasks[t], knobs);
    fv_scene_key key = {.split = split, .stream = 1 + (uint32_t)t, .index = index};
    FV_TRY(fv_scene_key_check(&key));
    key.attempt = WISHES * SCENES; /* one more than any scene's attempt */
    fv_random words = fv_random_seeded(fv_scene_seed(&key));
    *out =
        (fv_item){.task = t, .n_image = tasks[t].info.n_image, .n_turn = fv_task_turns(t, k.rich)};
    name_turns(t, out->n_turn, out->turn);
    fv_random constraints = {0};
    for (key.attempt = 0; key.attempt < WISHES * SCENES; key.attempt++) {
        if (key.attempt % SCENES == 0) constraints = fv_random_seeded(fv_random_next(&words));
        bool full = true;
        for (int32_t i = 0; i < out->n_image; i++) {
            key.image = (uint32_t)i;
            FV_TRY(fv_scene_make(&key, &k, &out->scene[i]));
            full &= out->scene[i].n_object >= k.object_min;
        }
        if (full && tasks[t].ask(out->scene, constraints, &words, out->turn)) return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "task %s finds no scene with %d to %d objects: allow more",
                   tasks[t].info.name, k.object_min, k.object_max);
}

bool fv_task_ask(fv_scene_task t, const fv_scene *scene, uint64_t seed, fv_turn *turn) {
    fv_random words = fv_random_seeded(fv_random_mix(seed));
    name_turns(t, fv_task_turns(t, scene->rich), turn);
    for (int i = 0; i < WISHES; i++) {
        fv_random constraints = fv_random_seeded(fv_random_next(&words));
        if (tasks[t].ask(scene, constraints, &words, turn)) return true;
    }
    return false;
}
