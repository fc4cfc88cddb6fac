/* Questions about printed and handwritten numbers. */
#include "eval/scenes/ask_internal.h"

/* Distance by which the extreme one of several numbers must lead. */
enum { EXTREME_CLEAR = FV_SCENE_UNIT / 20 };

typedef enum extreme { LEFTMOST, RIGHTMOST, TOPMOST, BOTTOMMOST, N_EXTREME } extreme;

static const char *const extreme_words[N_EXTREME] = {"leftmost", "rightmost", "topmost",
                                                     "bottommost"};

/* Larger for numbers further in the direction of `e`. */
static int32_t along(const fv_scene_number *n, extreme e) {
    switch (e) {
    case LEFTMOST: return -n->x;
    case RIGHTMOST: return n->x;
    case TOPMOST: return -n->y;
    default: return n->y;
    }
}

static bool is_extreme(const fv_scene *s, int32_t i, extreme e) {
    for (int32_t k = 0; k < s->n_number; k++)
        if (k != i && along(&s->number[i], e) - along(&s->number[k], e) < EXTREME_CLEAR)
            return false;
    return true;
}

/* The wanted answer is a length, all equally likely, although long numbers find a place less
 * often. */
bool fv_ask_number(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "What is the {a}printed number?",
        "Read the {a}printed number.",
        "Which number does the {a}sign show?",
        "What does the {a}sign say?",
    };
    const int32_t n_digit = fv_random_between(&constraints, 1, FV_NUMBER_DIGITS);
    int32_t found[FV_SCENE_NUMBERS * N_EXTREME], n = 0;
    extreme by[FV_SCENE_NUMBERS * N_EXTREME];
    for (int32_t i = 0; i < scene->n_number; i++)
        for (extreme e = LEFTMOST; e < N_EXTREME; e++)
            if (scene->number[i].n_digit == n_digit && is_extreme(scene, i, e)) {
                found[n] = i;
                by[n++] = e;
            }
    if (n == 0) return false;
    const int32_t k = fv_random_below(pick, n);
    char which[FV_NAME_MAX] = "", digits[FV_NAME_MAX];
    if (scene->n_number > 1) fv_say(which, sizeof which, "{a} ", extreme_words[by[k]], "");
    fv_name_number(digits, &scene->number[found[k]]);
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), which, "");
    FV_SAY(turn->answer, "{a}", digits, "");
    FV_SAY(turn->restated, "The {a}printed number is {b}.", which, digits);
    turn->held_back = false;
    return true;
}

bool fv_ask_written(const fv_scene *scene, fv_random constraints, fv_random *pick, fv_turn *turn) {
    static const char *const wordings[] = {
        "Which digit is written by hand?",
        "What is the handwritten digit?",
        "Read the handwritten digit.",
        "Which digit did somebody write?",
    };
    const int32_t wanted = fv_random_below(&constraints, 10);
    if (!scene->n_written || scene->written.digit != wanted) return false;
    const char digit[2] = {(char)('0' + wanted), 0};
    FV_SAY(turn->question, FV_ONE_OF(pick, wordings), "", "");
    FV_SAY(turn->answer, "{a}", digit, "");
    FV_SAY(turn->restated, "The handwritten digit is {a}.", digit, "");
    turn->held_back = false;
    return true;
}
