/* Questions about one or two objects: the other attribute, the cell, the relation. */

#include "eval/scenes/ask_internal.h"

/* A tenth of the side, so that it is clear which of two objects is further left. */
enum { RELATION_CLEAR = FV_SCENE_UNIT / 10 };

static bool is_held_back(const fv_scene_object *o) { return fv_peer_held_back(o->shape, o->color); }

/* ---- the other attribute ---------------------------------------------------------------- */

static void say_shape(const fv_scene_object *o, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "What shape is the {a} object?",
        "What is the shape of the {a} object?",
        "Which shape does the {a} object have?",
        "Name the shape of the {a} object.",
    };
    const char *color = fv_color_word(o->color);
    char shape[FV_NAME_MAX];
    fv_name_with_article(shape, fv_shape_word(o->shape));
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), color, "");
    FV_SAY(turn->answer, "{a}", fv_shape_word(o->shape), "");
    FV_SAY(turn->restated, "The {a} object is {b}.", color, shape);
}

static void say_color(const fv_scene_object *o, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "What color is the {a}?",
        "What is the color of the {a}?",
        "Which color does the {a} have?",
        "Name the color of the {a}.",
    };
    const char *shape = fv_shape_word(o->shape), *color = fv_color_word(o->color);
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), shape, "");
    FV_SAY(turn->answer, "{a}", color, "");
    FV_SAY(turn->restated, "The {a} is {b}.", shape, color);
}

int32_t fv_ask_attribute(const fv_scene *s, fv_attribute asked, fv_random *constraints,
                         fv_random *pick, fv_turn *turn) {
    const fv_attribute given =
        asked == FV_ATTRIBUTE_SHAPE ? FV_ATTRIBUTE_COLOR : FV_ATTRIBUTE_SHAPE;
    const int32_t wanted = fv_random_below(constraints, fv_attribute_values(asked));
    int32_t found[FV_SCENE_OBJECTS], n = 0;
    for (int32_t i = 0; i < s->n_object; i++) {
        const fv_scene_object *o = &s->object[i];
        if (fv_attribute_of(o, asked) == wanted &&
            fv_attribute_count(s, given, fv_attribute_of(o, given)) == 1)
            found[n++] = i;
    }
    if (n == 0) return -1;
    const int32_t i = found[fv_random_below(pick, n)];
    turn->task = asked == FV_ATTRIBUTE_SHAPE ? FV_TASK_SHAPE : FV_TASK_COLOR;
    turn->held_back = is_held_back(&s->object[i]);
    if (asked == FV_ATTRIBUTE_SHAPE)
        say_shape(&s->object[i], pick, turn);
    else
        say_color(&s->object[i], pick, turn);
    return i;
}

bool fv_ask_shape(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    return fv_ask_attribute(scene, FV_ATTRIBUTE_SHAPE, &constraints, pick, turn) >= 0;
}

bool fv_ask_color(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    return fv_ask_attribute(scene, FV_ATTRIBUTE_COLOR, &constraints, pick, turn) >= 0;
}

/* ---- the cell --------------------------------------------------------------------------- */

bool fv_ask_cell(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "Where is the {a}?",
        "In which part of the picture is the {a}?",
        "Where in the picture do you see the {a}?",
        "Where is the {a}: which row, which column?",
    };
    const int32_t column = fv_random_below(&constraints, 3),
                  line = fv_random_below(&constraints, 3);
    int32_t found[FV_SCENE_OBJECTS], n = 0;
    char names[FV_SCENE_OBJECTS][FV_NAME_MAX], cell[FV_NAME_MAX];
    for (int32_t i = 0; i < scene->n_object; i++) {
        const fv_scene_object *o = &scene->object[i];
        if (fv_scene_third(o->x) == column && fv_scene_third(o->y) == line &&
            fv_name_unique(scene, i, pick, names[n]))
            found[n++] = i;
    }
    if (n == 0) return false;
    const int32_t k = fv_random_below(pick, n);
    const fv_scene_object *o = &scene->object[found[k]];
    fv_name_cell(cell, o->x, o->y);
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), names[k], "");
    FV_SAY(turn->answer, "{a}", cell, "");
    FV_SAY(turn->restated, "The {a} is at the {b}.", names[k], cell);
    turn->held_back = is_held_back(o);
    return true;
}

/* ---- the relation ----------------------------------------------------------------------- */

typedef enum side { LEFT, RIGHT, ABOVE, BELOW, N_SIDE } side;

static bool lies(const fv_scene_object *a, side of, const fv_scene_object *b) {
    switch (of) {
    case LEFT: return b->x - a->x >= RELATION_CLEAR;
    case RIGHT: return a->x - b->x >= RELATION_CLEAR;
    case ABOVE: return b->y - a->y >= RELATION_CLEAR;
    default: return a->y - b->y >= RELATION_CLEAR;
    }
}

static void say_relation(side s, const char *a, const char *b, fv_random *pick, fv_turn *turn) {
    static const char *const across[] = {
        "Is the {a} to the left or to the right of the {b}?",
        "Seen from the {b}, is the {a} left or right?",
        "On which side of the {b} is the {a}, left or right?",
        "Is the {a} left or right of the {b}?",
    };
    static const char *const upright[] = {
        "Is the {a} above or below the {b}?",
        "Seen from the {b}, is the {a} above or below?",
        "Where is the {a}, above or below the {b}?",
        "Does the {a} lie above or below the {b}?",
    };
    static const char *const answers[N_SIDE] = {"left", "right", "above", "below"};
    const char *wording = s <= RIGHT ? FV_ONE_OF(pick, across) : FV_ONE_OF(pick, upright);
    FV_SAY(turn->question, wording, a, b);
    FV_SAY(turn->answer, "{a}", answers[s], "");
    char head[2 * FV_NAME_MAX + 32];
    FV_SAY(head, "Seen from the {b}, the {a}", a, b);
    FV_SAY(turn->restated, "{a} is {b}.", head, answers[s]);
}

bool fv_ask_relation(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    const side s = (side)fv_random_below(&constraints, N_SIDE);
    char names[FV_SCENE_OBJECTS][FV_NAME_MAX];
    bool named[FV_SCENE_OBJECTS];
    int32_t first[FV_SCENE_OBJECTS * FV_SCENE_OBJECTS];
    int32_t second[FV_SCENE_OBJECTS * FV_SCENE_OBJECTS], n = 0;
    for (int32_t i = 0; i < scene->n_object; i++)
        named[i] = fv_name_unique(scene, i, pick, names[i]);
    for (int32_t i = 0; i < scene->n_object; i++)
        for (int32_t k = 0; k < scene->n_object; k++)
            if (named[i] && named[k] && lies(&scene->object[i], s, &scene->object[k])) {
                first[n] = i;
                second[n++] = k;
            }
    if (n == 0) return false;
    const int32_t p = fv_random_below(pick, n), a = first[p], b = second[p];
    say_relation(s, names[a], names[b], pick, turn);
    turn->held_back = is_held_back(&scene->object[a]) || is_held_back(&scene->object[b]);
    return true;
}
