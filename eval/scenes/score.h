#ifndef FOVEA_EVAL_SCENES_SCORE_H
#define FOVEA_EVAL_SCENES_SCORE_H

/* SCORING: compares replies with right answers, and computes confidence intervals.
 *
 * Pure functions: any thread. */
#include "eval/scenes/tasks.h"

/* Brings an answer to the form in which answers are compared. Of the first line, only the text
 * after the last " is ", " are " or ":" counts, if there is any. Letters A-Z become lower case; all
 * other bytes except ASCII letters and digits become spaces (bytes of other alphabets stay); the
 * words "a", "an", "the", "at", "in", "on", "to", "of" are removed; "zero" to "ten" become digits,
 * "centre" becomes "center"; single spaces separate words. "The ring is at the Top left." becomes
 * "top left". The result is truncated to out[cap]. */
void fv_answer_normalise(const char *said, char *out, size_t cap);

/* Score of a caption: F1 over the things that it lists, 0 to 1.
 *
 *   F1 = 2 hits / (listed in `expected` + listed in `said`)
 *
 * A sentence lists a thing with its row and column: an object with size, colour and shape, a
 * printed number, or a handwritten digit. The thing is a hit if all of that is right; each thing
 * counts once. Order does not matter. Two empty lists score 1. */
double fv_score_caption(const char *expected, const char *said);

/* Score of an answer by the rule of turn->task: fv_score_caption for captions, otherwise 1 if the
 * normalised answers are equal and 0 if not. */
double fv_score_turn(const fv_turn *turn, const char *said);

typedef struct fv_interval {
    double value, low, high;
} fv_interval;

/* Accuracy with its 95 % interval: Wilson's score interval (Wilson 1927).
 *
 *   (p + z^2/2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2/n),   p = sum / n,  z = 1.96
 *
 * `sum` is the sum of n scores of 0 to 1. For scores strictly between 0 and 1 (captions, dialogs by
 * item) the interval is wider than necessary, because their variance is at most p (1 - p). n = 0
 * gives 0 in [0, 1]. */
fv_interval fv_interval_wilson(double sum, int32_t n);

/* Mean of a[i] - b[i] with its 95 % interval: two policies on the same n items.
 *
 *   d = sum / (n + 2),  s^2 = (squares + 1) / (n + 2) - d^2,   d +- z s / sqrt(n + 2)
 *
 * with the sums over the differences and their squares. For scores of 0 and 1 that is the interval
 * of Agresti and Min (2005) for matched pairs: Wald's interval with half an item added to each cell
 * of the 2 x 2 table, so that it stays valid if few items differ. `value` is the plain mean sum /
 * n; the interval is cut to [-1, 1]. n = 0 gives 0 in [-1, 1]. */
fv_interval fv_interval_paired(const double *a, const double *b, int32_t n);

#endif
