/* Questions about all objects at once: how many, whether there is one, where there are more. */
#include <stdio.h>

#include "eval/scenes/ask_internal.h"

enum { COUNT_MAX = 5 }; /* scenes with larger counts are too rare to be found */

/* ---- how many --------------------------------------------------------------------------- */

static void say_count(const char *what, int32_t n, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "How many {a} are there?",
        "How many {a} are in the picture?",
        "Count the {a}.",
        "What is the number of {a}?",
    };
    char digits[12];
    snprintf(digits, sizeof digits, "%d", (int)n);
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), what, "");
    FV_SAY(turn->answer, "{a}", digits, "");
    FV_SAY(turn->restated, "The number of {a} is {b}.", what, digits);
}

bool fv_ask_count(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    const fv_attribute a = (fv_attribute)fv_random_below(&constraints, FV_N_ATTRIBUTE);
    const int32_t wanted = fv_random_below(&constraints, COUNT_MAX + 1);
    int32_t found[FV_N_COLOR], n = 0;
    for (int32_t v = 0; v < fv_attribute_values(a); v++)
        if (fv_attribute_count(scene, a, v) == wanted) found[n++] = v;
    if (n == 0) return false;
    char what[FV_NAME_MAX];
    fv_name_plural(what, a, found[fv_random_below(pick, n)]);
    say_count(what, wanted, pick, turn);
    turn->held_back = false;
    return true;
}

/* ---- whether there is one --------------------------------------------------------------- */

static void say_exists(const char *what, bool yes, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "Is there {a}?",
        "Is there {a} in the picture?",
        "Does the picture show {a}?",
        "Can you see {a}?",
    };
    char head[FV_NAME_MAX];
    fv_say(head, sizeof head, "{a}", what, "");
    head[0] = 'A'; /* "a" or "an" */
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), what, "");
    FV_SAY(turn->answer, "{a}", yes ? "yes" : "no", "");
    FV_SAY(turn->restated, "{a}: {b}.", head, turn->answer);
}

/* Both attributes always occur; only whether one object has both varies. Training has no questions
 * about held-back pairs, or it would learn that they never occur. */
bool fv_ask_exists(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    const bool yes = fv_random_below(&constraints, 2) == 1;
    int32_t shapes[FV_N_SHAPE * FV_N_COLOR], colors[FV_N_SHAPE * FV_N_COLOR], n = 0;
    for (int32_t shape = 0; shape < FV_N_SHAPE; shape++)
        for (int32_t color = 0; color < FV_N_COLOR; color++) {
            if (fv_attribute_count(scene, FV_ATTRIBUTE_SHAPE, shape) == 0 ||
                fv_attribute_count(scene, FV_ATTRIBUTE_COLOR, color) == 0 ||
                (fv_peer_count(scene, shape, color) > 0) != yes ||
                (scene->split != FV_SPLIT_TEST && fv_peer_held_back(shape, color)))
                continue;
            shapes[n] = shape;
            colors[n++] = color;
        }
    if (n == 0) return false;
    const int32_t k = fv_random_below(pick, n);
    char name[FV_NAME_MAX], what[FV_NAME_MAX];
    fv_name_pair(name, shapes[k], colors[k]);
    fv_name_with_article(what, name);
    say_exists(what, yes, pick, turn);
    turn->held_back = fv_peer_held_back(shapes[k], colors[k]);
    return true;
}

/* ---- two images ----------------------------------------------------------------------- */

typedef enum more { FIRST, SECOND, SAME, N_MORE } more;

static more more_of(int32_t first, int32_t second) {
    return first > second ? FIRST : first < second ? SECOND : SAME;
}

static void say_compare(const char *what, more m, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "Which picture has more {a}, the first or the second, or is it the same?",
        "Are there more {a} in the first picture, in the second, or the same number?",
        "Where are more {a}: first picture, second picture, or the same?",
        "Compare the pictures: which shows more {a}, first, second or same?",
    };
    static const char *const answers[N_MORE] = {"first", "second", "same"};
    static const char *const heads[N_MORE] = {"The picture with more {a} is the first.",
                                              "The picture with more {a} is the second.",
                                              "The number of {a} is the same."};
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), what, "");
    FV_SAY(turn->answer, "{a}", answers[m], "");
    FV_SAY(turn->restated, heads[m], what, "");
}

/* Asks one question in four about all objects, the others about objects with an attribute. No
 * question is about two images that both have none. */
bool fv_ask_compare(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    const fv_attribute a = (fv_attribute)fv_random_below(&constraints, FV_N_ATTRIBUTE + 1);
    const more wanted = (more)fv_random_below(&constraints, N_MORE);
    char what[FV_NAME_MAX] = "objects";
    turn->held_back = false;
    if (a == FV_N_ATTRIBUTE) {
        if (more_of(scene[0].n_object, scene[1].n_object) != wanted) return false;
        say_compare(what, wanted, pick, turn);
        return true;
    }
    int32_t found[FV_N_COLOR], n = 0;
    for (int32_t v = 0; v < fv_attribute_values(a); v++) {
        const int32_t first = fv_attribute_count(&scene[0], a, v);
        const int32_t second = fv_attribute_count(&scene[1], a, v);
        if (first + second > 0 && more_of(first, second) == wanted) found[n++] = v;
    }
    if (n == 0) return false;
    fv_name_plural(what, a, found[fv_random_below(pick, n)]);
    say_compare(what, wanted, pick, turn);
    return true;
}
