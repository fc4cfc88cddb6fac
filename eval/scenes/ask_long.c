/* The long ones: a dialog of three turns, and the caption. */
#include <stdio.h>
#include <string.h>

#include "eval/scenes/ask_internal.h"

/* ---- three turns ------------------------------------------------------------------------ */

/* "it" refers to the turn before: a model that no longer sees the image, or has lost the
 * turn before, cannot answer. */
static bool ask_where_it_is(const fv_scene_object *o, fv_attribute asked, fv_random *constraints,
                            fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "Where is it?",
        "In which part of the picture is it?",
        "And where is it?",
        "Where in the picture do you see it?",
    };
    const int32_t column = fv_random_below(constraints, 3), line = fv_random_below(constraints, 3);
    if (fv_scene_third(o->x) != column || fv_scene_third(o->y) != line) return false;
    char name[FV_NAME_MAX], cell[FV_NAME_MAX];
    if (asked == FV_ATTRIBUTE_SHAPE)
        snprintf(name, sizeof name, "%s object", fv_color_word(o->color));
    else
        snprintf(name, sizeof name, "%s", fv_shape_word(o->shape));
    fv_name_cell(cell, o->x, o->y);
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), "", "");
    FV_SAY(turn->answer, "{a}", cell, "");
    FV_SAY(turn->restated, "The {a} is at the {b}.", name, cell);
    turn->task = FV_TASK_CELL;
    turn->held_back = fv_peer_held_back(o->shape, o->color);
    return true;
}

bool fv_ask_dialog(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    const fv_attribute asked =
        fv_random_below(&constraints, 2) ? FV_ATTRIBUTE_SHAPE : FV_ATTRIBUTE_COLOR;
    const bool last_counts = fv_random_below(&constraints, 2) == 1;
    const int32_t it = fv_ask_attribute(scene, asked, &constraints, pick, &turn[0]);
    if (it < 0) return false;
    if (!ask_where_it_is(&scene->object[it], asked, &constraints, pick, &turn[1])) return false;
    turn[2].task = last_counts ? FV_TASK_COUNT : FV_TASK_EXISTS;
    return last_counts ? fv_ask_count(scene, constraints, pick, &turn[2])
                       : fv_ask_exists(scene, constraints, pick, &turn[2]);
}

/* ---- the caption ------------------------------------------------------------------------ */

static void append(char text[FV_ANSWER_MAX], const char *sentence, const char *a, const char *b) {
    const size_t n = strlen(text);
    fv_say(text + n, FV_ANSWER_MAX - n, sentence, a, b);
}

static void append_object(char text[FV_ANSWER_MAX], const fv_scene_object *o) {
    char cell[FV_NAME_MAX], pair[FV_NAME_MAX], name[2 * FV_NAME_MAX];
    fv_name_cell(cell, o->x, o->y);
    fv_name_pair(pair, o->shape, o->color);
    snprintf(name, sizeof name, "%s %s", fv_size_word(o->size), pair);
    append(text, " In the {a} there is a {b}.", cell, name);
}

static void append_digits(char text[FV_ANSWER_MAX], int32_t x, int32_t y, const char *digits,
                          bool printed) {
    char cell[FV_NAME_MAX];
    fv_name_cell(cell, x, y);
    append(text,
           printed ? " In the {a} there is the printed number {b}."
                   : " In the {a} there is the handwritten digit {b}.",
           cell, digits);
}

/* Objects, then numbers, then handwriting; each kind row by row, from left to right. */
bool fv_ask_caption(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "Describe the picture: every object, row by row, from left to right.",
        "List all objects with place, size, color and shape.",
        "What do you see? Name every object and where it is.",
        "Give a full description of the picture, object by object.",
    };
    (void)constraints;
    char digits[FV_NAME_MAX], *text = turn->answer;
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), "", "");
    snprintf(digits, sizeof digits, "%d", (int)scene->n_object);
    fv_say(text, FV_ANSWER_MAX,
           scene->n_object == 1 ? "There is {a} object." : "There are {a} objects.", digits, "");
    turn->held_back = false;
    for (int32_t i = 0; i < scene->n_object; i++) {
        const fv_scene_object *o = &scene->object[i];
        append_object(text, o);
        turn->held_back |= fv_peer_held_back(o->shape, o->color);
    }
    for (int32_t i = 0; i < scene->n_number; i++) {
        fv_name_number(digits, &scene->number[i]);
        append_digits(text, scene->number[i].x, scene->number[i].y, digits, true);
    }
    if (scene->n_written) {
        snprintf(digits, sizeof digits, "%d", (int)scene->written.digit);
        append_digits(text, scene->written.x, scene->written.y, digits, false);
    }
    memcpy(turn->restated, text, FV_ANSWER_MAX);
    return true;
}
