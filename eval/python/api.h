#ifndef FOVEA_EVAL_PYTHON_API_H
#define FOVEA_EVAL_PYTHON_API_H

/* SCENES FOR OTHER LANGUAGES: the parts of eval/ that training needs, as a flat C interface of
 * numbers, text and the caller's memory. `fovea_scene.so` exports it; eval/scenes.py wraps it for
 * Python.
 *
 * A scene is fv_api_scene_bytes() bytes of plain data, made by fv_api_scenes or fv_api_item and
 * opaque to callers. It may be copied, sent to another process and stored, as long as the version
 * is the same.
 *
 * Functions return 0, or -1 with a message in fv_api_error(); fv_api_ask may also return 1. Any
 * thread; each thread has its own message. */
#include <stddef.h>
#include <stdint.h>

enum { FV_API_VERSION = 2 };

/* FV_API_VERSION of the library; callers compare it with the version that they were written for. */
int32_t fv_api_version(void);
const char *fv_api_error(void);
size_t fv_api_scene_bytes(void);

/* Number of tasks; and name, chance, images and turns of one, NULL past the end. */
int32_t fv_api_tasks(void);
const char *fv_api_task(int32_t task, double *chance, int32_t *n_image, int32_t *n_turn);

/* Makes scenes first .. first + n - 1 of a split (0 train, 1 check, 2 test) in scenes[n].
 *
 * knobs[6]: least and most objects, least and most numbers, percentage with handwriting, rich or
 * not (fv_scene_knobs); NULL: the default. */
int32_t fv_api_scenes(int32_t split, uint64_t first, int32_t n, const int32_t *knobs, void *scenes);

/* Renders scenes[n] to pixels rgb [n, side, side, 3]. */
int32_t fv_api_render(const void *scenes, int32_t n, int32_t side, uint8_t *rgb);

/* Writes labels of scenes[n] to out [n, grid, grid]. A label is an fv_patch of 16 bytes: int8 kind,
 * shape, color, size, digit, thing, two unused, float dx, dy. */
int32_t fv_api_patches(const void *scenes, int32_t n, int32_t grid, void *out);

/* Makes a task's question about scenes[n_image of the task]. Returns 1 if the scenes do not suit
 * the task.
 *
 * text[cap] gets a line per turn, "task\tquestion\tanswer\trestated\n", with the task as a
 * number. */
int32_t fv_api_ask(const void *scenes, int32_t task, uint64_t seed, char *text, size_t cap);

/* Makes item `index` of a task: writes its turns and as many of scenes[2] as the task has. */
int32_t fv_api_item(int32_t split, int32_t task, uint64_t index, const int32_t *knobs, void *scenes,
                    char *text, size_t cap);

/* Score of an answer to a turn of `task`, 0 to 1; -1 if there is no such task or `answer` is too
 * long. */
double fv_api_score(int32_t task, const char *answer, const char *said);

#endif
