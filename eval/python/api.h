#ifndef FOVEA_EVAL_PYTHON_API_H
#define FOVEA_EVAL_PYTHON_API_H

/* THE SCENES FOR OTHER LANGUAGES: what training needs of eval/ as a flat C interface of numbers,
 * text and caller's memory. `fovea_scene.so` exports it; eval/scenes.py is the door to it from
 * Python.
 *
 * A scene is fv_api_scene_bytes() bytes of plain data, made by fv_api_scenes or fv_api_item
 * and only passed on: it may be copied, sent to another process and kept, as long as the version
 * is the same.
 *
 * Functions return 0, or -1 with a sentence in fv_api_error(); fv_api_ask also 1. Any thread; the
 * sentence is that of the calling thread. */
#include <stddef.h>
#include <stdint.h>

enum { FV_API_VERSION = 2 };

/* FV_API_VERSION of the library: a caller compares it with the one it was written for. */
int32_t fv_api_version(void);
const char *fv_api_error(void);
size_t fv_api_scene_bytes(void);

/* Number of tasks, and name, chance, images and turns of one; a NULL result or -1 past the end. */
int32_t fv_api_tasks(void);
const char *fv_api_task(int32_t task, double *chance, int32_t *n_image, int32_t *n_turn);

/* knobs[6]: objects least and most, numbers least and most, percent with handwriting, rich or not
 * (fv_scene_knobs); NULL: the default.
 *
 * Scenes first .. first + n - 1 of a split (0 train, 1 check, 2 test) into scenes[n]. */
int32_t fv_api_scenes(int32_t split, uint64_t first, int32_t n, const int32_t *knobs, void *scenes);

/* Pixels rgb [n, side, side, 3] of scenes[n]. */
int32_t fv_api_render(const void *scenes, int32_t n, int32_t side, uint8_t *rgb);

/* Labels out [n, grid, grid] of scenes[n]; one is an fv_patch of 16 bytes: int8 kind, shape, color,
 * size, digit, thing, two unused, float dx, dy. */
int32_t fv_api_patches(const void *scenes, int32_t n, int32_t grid, void *out);

/* Text of turns: per turn "task\tquestion\tanswer\trestated\n", the task as a number.
 *
 * Makes a task's question about scenes[n_image of the task]; text[cap]. 1 when the scenes do not
 * suit the task. */
int32_t fv_api_ask(const void *scenes, int32_t task, uint64_t seed, char *text, size_t cap);

/* Item `index` of a task: its scenes[2] (as many as the task has are written) and turns. */
int32_t fv_api_item(int32_t split, int32_t task, uint64_t index, const int32_t *knobs, void *scenes,
                    char *text, size_t cap);

/* The score of an answer to a turn of `task`, 0 to 1; -1 when there is no such task, or when
 * `answer` is longer than any. */
double fv_api_score(int32_t task, const char *answer, const char *said);

#endif
