/* Forwards calls to eval/; callers see an fv_scene as bytes. */
#include "eval/python/api.h"

#include <stdio.h>
#include <string.h>

#include "eval/scenes/patches.h"
#include "eval/scenes/render.h"
#include "eval/scenes/score.h"

_Static_assert(sizeof(fv_patch) == 16, "the layout that callers are told");

static int32_t result(fv_status s) { return s == FV_OK ? 0 : -1; }

static const fv_scene_knobs *read_knobs(const int32_t *k, fv_scene_knobs *out) {
    if (!k) return NULL;
    *out = (fv_scene_knobs){k[0], k[1], k[2], k[3], k[4], k[5] != 0};
    return out;
}

int32_t fv_api_version(void) { return FV_API_VERSION; }
const char *fv_api_error(void) { return fv_last_error(); }
size_t fv_api_scene_bytes(void) { return sizeof(fv_scene); }
int32_t fv_api_tasks(void) { return FV_N_TASK; }

const char *fv_api_task(int32_t task, double *chance, int32_t *n_image, int32_t *n_turn) {
    const fv_task_info *t = fv_task_describe(task);
    if (!t) return NULL;
    *chance = t->chance;
    *n_image = t->n_image;
    *n_turn = t->n_turn;
    return t->name;
}

int32_t fv_api_scenes(int32_t split, uint64_t first, int32_t n, const int32_t *knobs,
                      void *scenes) {
    fv_scene_knobs k;
    const fv_scene_knobs *asked = read_knobs(knobs, &k);
    fv_scene *out = scenes;
    for (int32_t i = 0; i < n; i++) {
        fv_scene_key key = {.split = (fv_split)split, .index = first + (uint64_t)i};
        if (fv_scene_make(&key, asked, &out[i]) != FV_OK) return -1;
    }
    return 0;
}

int32_t fv_api_render(const void *scenes, int32_t n, int32_t side, uint8_t *rgb) {
    const fv_scene *s = scenes;
    for (int32_t i = 0; i < n; i++)
        if (fv_render(&s[i], side, rgb + (size_t)i * (size_t)side * (size_t)side * 3) != FV_OK)
            return -1;
    return 0;
}

int32_t fv_api_patches(const void *scenes, int32_t n, int32_t grid, void *out) {
    const fv_scene *s = scenes;
    fv_patch *p = out;
    for (int32_t i = 0; i < n; i++)
        if (fv_scene_patches(&s[i], grid, p + (size_t)i * (size_t)grid * (size_t)grid) != FV_OK)
            return -1;
    return 0;
}

static fv_status write_turns(const fv_turn *turn, int32_t n, char *text, size_t cap) {
    size_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        int wrote = snprintf(text + at, cap - at, "%d\t%s\t%s\t%s\n", (int)turn[i].task,
                             turn[i].question, turn[i].answer, turn[i].restated);
        if (wrote < 0 || (size_t)wrote >= cap - at)
            return FV_FAIL(FV_EINVAL,
                           "the buffer of %zu bytes is too small for the turns; %zu are needed",
                           cap, sizeof(fv_turn) * FV_ITEM_TURNS);
        at += (size_t)wrote;
    }
    return FV_OK;
}

int32_t fv_api_ask(const void *scenes, int32_t task, uint64_t seed, char *text, size_t cap) {
    const fv_task_info *t = fv_task_describe(task);
    fv_turn turn[FV_ITEM_TURNS];
    const fv_scene *s = scenes;
    if (!t) return result(FV_FAIL(FV_EINVAL, "no task %d", (int)task));
    if (!fv_task_ask((fv_scene_task)task, scenes, seed, turn)) return 1;
    return result(write_turns(turn, fv_task_turns((fv_scene_task)task, s->rich), text, cap));
}

int32_t fv_api_item(int32_t split, int32_t task, uint64_t index, const int32_t *knobs, void *scenes,
                    char *text, size_t cap) {
    fv_scene_knobs k;
    fv_item item;
    if (fv_item_make((fv_split)split, (fv_scene_task)task, index, read_knobs(knobs, &k), &item) !=
        FV_OK)
        return -1;
    memcpy(scenes, item.scene, sizeof(fv_scene) * (size_t)item.n_image);
    return result(write_turns(item.turn, item.n_turn, text, cap));
}

double fv_api_score(int32_t task, const char *answer, const char *said) {
    if (!fv_task_describe(task) || strlen(answer) >= FV_ANSWER_MAX) return -1;
    fv_turn turn = {.task = (fv_scene_task)task};
    strcpy(turn.answer, answer);
    return fv_score_turn(&turn, said);
}
