#ifndef FOVEA_EVAL_SCENES_ASK_INTERNAL_H
#define FOVEA_EVAL_SCENES_ASK_INTERNAL_H

/* Shared by the questions, inside eval/.
 *
 * A question is asked by one function:
 *
 *   scene        [n_image] of the task
 *   constraints  random numbers that choose the wanted answer, passed by value: the same for every
 *                scene that is tried
 *   pick         random numbers for everything else: which object, which wording
 *   turn         [n_turn] to write
 *
 * The function returns false if the scenes do not allow the wanted answer. */
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

/* Asks for the shape of an object that is the only one of its colour (FV_ATTRIBUTE_SHAPE), or the
 * colour of the only one of its shape. Returns the object's index, -1 if there is none. */
int32_t fv_ask_attribute(const fv_scene *s, fv_attribute asked, fv_random *constraints,
                         fv_random *pick, fv_turn *turn);

/* ---- words ------------------------------------------------------------------------------ */

enum { FV_NAME_MAX = 40 }; /* bytes of a name: "handwritten digit", "purple triangle" */

#define FV_ONE_OF(pick, list)                                                                      \
    ((list)[fv_random_below((pick), (int32_t)(sizeof(list) / sizeof((list)[0])))])

/* Writes `text` with a for each {a} and b for each {b}. out[cap] must be large enough. */
void fv_say(char *out, size_t cap, const char *text, const char *a, const char *b);

#define FV_SAY(out, text, a, b) fv_say((out), sizeof(out), (text), (a), (b))

/* "red circle"; "a red circle"; "red objects" (for a colour or size) or "circles" (for a shape). */
void fv_name_pair(char out[FV_NAME_MAX], int32_t shape, int32_t color);
void fv_name_with_article(char out[FV_NAME_MAX], const char *name);
void fv_name_plural(char out[FV_NAME_MAX], fv_attribute a, int32_t value);

/* Writes a description that fits only object `i`: "red object", "circle" or "red circle". Returns
 * false if there is none. */
bool fv_name_unique(const fv_scene *s, int32_t i, fv_random *pick, char out[FV_NAME_MAX]);

/* "top left", "middle center". */
void fv_name_cell(char out[FV_NAME_MAX], int32_t x, int32_t y);

/* The digits of a number. */
void fv_name_number(char out[FV_NAME_MAX], const fv_scene_number *n);

#endif
