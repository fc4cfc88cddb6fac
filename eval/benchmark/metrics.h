#ifndef FOVEA_EVAL_BENCHMARK_METRICS_H
#define FOVEA_EVAL_BENCHMARK_METRICS_H

/* METRICS: score a model's reply against the answers of a benchmark, 0 to 1.
 *
 * The plain form of a text: A-Z in lower case, runs of white space as one space, none around, and
 * no full stop at the end. Texts are UTF-8; only ASCII letters have case. Pure functions: any
 * thread. */
#include <stddef.h>
#include <stdint.h>

/* 1 if the plain form equals that of one of the answers [n]. */
double fv_metric_exact_match(const char *const *answer, int32_t n, const char *said);

/* 1 if the plain form contains that of one of the answers as whole words: "10" does not contain
 * "1". */
double fv_metric_contains(const char *const *answer, int32_t n, const char *said);

/* VQA accuracy (Antol et al. 2015; the VQA challenge's evaluation), with the answers of n people:
 *
 *   1/n sum_i min(1, m_i / 3),   m_i = number of answers other than the i-th that equal the reply
 *
 * after fv_vqa_normalise of all. The challenge does not normalise answers if all are the same; here
 * they always are, so that "Yes" is right if all wrote "yes". */
double fv_metric_vqa(const char *const *answer, int32_t n, const char *said);

/* The challenge's normal form of an answer. Punctuation is removed, or becomes a space if no mark
 * of its kind is next to a space and there is no comma between digits; full stops stay only before
 * digits. A-Z become lower case; "none" and "zero" to "ten" become digits; "a", "an" and "the" are
 * removed; contractions get their apostrophes. Writes at most cap bytes including the NUL; longer
 * results are truncated. */
void fv_vqa_normalise(const char *said, char *out, size_t cap);

/* ANLS (Biten et al. 2019, "Scene Text Visual Question Answering", equation 1), threshold 0.5:
 *
 *   max over answers a of s(a, said),   s = 1 - d / max(|a|, |said|), and 0 if that is below 0.5
 *
 * d is Levenshtein's distance and || a length, both in characters, with A-Z in lower case and white
 * space as in the plain form. A score of exactly 0.5 counts, as in the challenge's evaluation but
 * not in the equation. Answers have at most FV_ANLS_MAX bytes. */
double fv_metric_anls(const char *const *answer, int32_t n, const char *said);

/* Index of the one choice [n] that the reply names; -1: none or several. In this order: a letter,
 * alone or before one of ".):,", also in parentheses ("B", "(b) the ring"); a text equal to one of
 * the choices; a text that contains exactly one of the choices, as in fv_metric_contains. */
int32_t fv_choice_said(const char *const *choice, int32_t n, const char *said);

enum { FV_ANLS_MAX = 1024 };

#endif
