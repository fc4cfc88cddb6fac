/* Questions with long answers: dialogs of three or ten turns, and captions. */
#include <stdio.h>
#include <string.h>

#include "eval/scenes/ask_internal.h"

enum { ANYTHING_TRIES = 400 };

/* ---- a dialog --------------------------------------------------------------------------- */

/* "it" refers to the previous turn: a model that no longer sees the image, or has lost that turn,
 * cannot answer. */
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

/* Asks a later turn about a rich scene. It does not follow from earlier turns, so tokens kept for
 * an early question may be the wrong ones. */
static bool ask_anything(const fv_scene *scene, fv_random *pick, fv_turn *turn) {
    static const struct {
        fv_scene_task task;
        fv_ask ask;
    } any[] = {
        {FV_TASK_SHAPE, fv_ask_shape},   {FV_TASK_COLOR, fv_ask_color},
        {FV_TASK_COUNT, fv_ask_count},   {FV_TASK_EXISTS, fv_ask_exists},
        {FV_TASK_CELL, fv_ask_cell},     {FV_TASK_RELATION, fv_ask_relation},
        {FV_TASK_NUMBER, fv_ask_number}, {FV_TASK_WRITTEN, fv_ask_written},
    };
    const int32_t k = fv_random_below(pick, (int32_t)(sizeof any / sizeof *any));
    turn->task = any[k].task;
    return any[k].ask(scene, fv_random_seeded(fv_random_next(pick)), pick, turn);
}

static bool asked_before(const fv_turn *turn, int32_t i) {
    for (int32_t k = 0; k < i; k++)
        if (strcmp(turn[k].question, turn[i].question) == 0) return true;
    return false;
}

static bool ask_on(const fv_scene *scene, int32_t i, fv_random *pick, fv_turn *turn) {
    for (int32_t t = 0; t < ANYTHING_TRIES; t++)
        if (ask_anything(scene, pick, &turn[i]) && !asked_before(turn, i)) return true;
    return false;
}

bool fv_ask_dialog(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    const fv_attribute asked =
        fv_random_below(&constraints, 2) ? FV_ATTRIBUTE_SHAPE : FV_ATTRIBUTE_COLOR;
    const bool last_counts = fv_random_below(&constraints, 2) == 1;
    const int32_t it = fv_ask_attribute(scene, asked, &constraints, pick, &turn[0]);
    if (it < 0) return false;
    if (!ask_where_it_is(&scene->object[it], asked, &constraints, pick, &turn[1])) return false;
    turn[2].task = last_counts ? FV_TASK_COUNT : FV_TASK_EXISTS;
    const fv_ask last = last_counts ? fv_ask_count : fv_ask_exists;
    if (!last(scene, constraints, pick, &turn[2])) return false;
    for (int32_t i = FV_PLAIN_TURNS; i < fv_task_turns(FV_TASK_DIALOG, scene->rich); i++)
        if (!ask_on(scene, i, pick, turn)) return false;
    return true;
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

/* Lists objects, then numbers, then handwriting; each kind row by row, from left to right. */
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
