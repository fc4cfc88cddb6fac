#ifndef FOVEA_EVAL_SCENES_ASK_INTERNAL_H
#define FOVEA_EVAL_SCENES_ASK_INTERNAL_H

/* What the questions share, inside eval/.
 *
 * A question is asked by one function:
 *
 *   scene  [n_image] of the task
 *   wish   which answer is wanted; a copy of it draws the same each time, so that scene after
 *          scene can be tried for one wish
 *   pick   everything else that is left to chance: which object, which wording
 *   turn   [n_turn] to write
 *
 * It returns false when the scenes do not have what is wished for. */
#include "eval/scenes/random.h"
#include "eval/scenes/tasks.h"

typedef bool (*fv_ask)(const fv_scene *scene, fv_random constraints, fv_random *pick,
                       fv_turn *turn);

bool fv_ask_shape(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_color(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_count(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_exists(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_relation(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_cell(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_number(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_written(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_compare(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_dialog(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);
bool fv_ask_caption(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn);

/* ---- attributes ------------------------------------------------------------------------- */

typedef enum fv_attribute {
    FV_ATTRIBUTE_COLOR = 0,
    FV_ATTRIBUTE_SHAPE,
    FV_ATTRIBUTE_SIZE,
    FV_N_ATTRIBUTE
} fv_attribute;

int32_t fv_attribute_values(fv_attribute a);
int32_t fv_attribute_of(const fv_scene_object *o, fv_attribute a);
int32_t fv_attribute_count(const fv_scene *s, fv_attribute a, int32_t value);
int32_t fv_peer_count(const fv_scene *s, int32_t shape, int32_t color);

/* The shape of an object that is the only one of its colour (asked FV_ATTRIBUTE_SHAPE), or the
 * other way round. Gives the object's index, -1 when there is none. */
int32_t fv_ask_attribute(const fv_scene *s, fv_attribute asked, fv_random *constraints,
                         fv_random *pick, fv_turn *turn);

/* ---- words ------------------------------------------------------------------------------ */

enum { FV_NAME_MAX = 40 }; /* of a thing: "handwritten digit", "purple triangle" */

#define FV_ONE_OF(pick, list)                                                                      \
    ((list)[fv_random_below((pick), (int32_t)(sizeof(list) / sizeof((list)[0])))])

/* Writes `text` with a for each {a} and b for each {b}. out[cap] is large enough, or it is a bug.
 */
void fv_say(char *out, size_t cap, const char *text, const char *a, const char *b);

#define FV_SAY(out, text, a, b) fv_say((out), sizeof(out), (text), (a), (b))

/* "red circle", "a red circle", "red objects" (of a colour or size), "circles" (of a shape). */
void fv_name_pair(char out[FV_NAME_MAX], int32_t shape, int32_t color);
void fv_name_with_article(char out[FV_NAME_MAX], const char *name);
void fv_name_plural(char out[FV_NAME_MAX], fv_attribute a, int32_t value);

/* A description that fits object `i` and no other: "red object", "circle" or "red circle".
 * False when there is none. */
bool fv_name_unique(const fv_scene *s, int32_t i, fv_random *pick, char out[FV_NAME_MAX]);

/* "top left", "middle center". */
void fv_name_cell(char out[FV_NAME_MAX], int32_t x, int32_t y);

/* The digits of a number. */
void fv_name_number(char out[FV_NAME_MAX], const fv_scene_number *n);

#endif
