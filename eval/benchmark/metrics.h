#ifndef FOVEA_EVAL_BENCHMARK_METRICS_H
#define FOVEA_EVAL_BENCHMARK_METRICS_H

/* METRICS: what a model said against the answers of a benchmark, 0 to 1.
 *
 * The plain form of a text: A-Z made small, runs of white space one space, none around, and without a
 * full stop at the end. Texts are UTF-8; case is that of ASCII. Pure functions: any thread. */
#include <stddef.h>
#include <stdint.h>

/* 1 when the plain form is that of one of the answers [n]. */
double fv_metric_exact_match(const char *const *answer, int32_t n, const char *said);

/* 1 when the plain form has that of one of the answers in it, as whole words: "10" has no "1". */
double fv_metric_contains(const char *const *answer, int32_t n, const char *said);

/* VQA accuracy (Antol et al. 2015; the VQA challenge's evaluation), of the answers of n people:
 *
 *   1/n sum_i min(1, m_i / 3),   m_i = number of answers other than the i-th that equal what was said
 *
 * after fv_vqa_normalise of all. The challenge leaves answers as they are when all are the same; they are
 * normalised here too, so that "Yes" is right where everybody wrote "yes". */
double fv_metric_vqa(const char *const *answer, int32_t n, const char *said);

/* The challenge's normal form of an answer: punctuation is left out, or becomes a space where no space is next
 * to one of its kind and there is no comma between digits; full stops stay before digits only; A-Z
 * made small; "none" and "zero" to "ten" as digits; "a", "an" and "the" left out; contractions get their
 * apostrophes. Writes at most cap bytes, NUL included; a longer one is cut off. */
void fv_vqa_normalise(const char *said, char *out, size_t cap);

/* ANLS (Biten et al. 2019, "Scene Text Visual Question Answering", equation 1), threshold 0.5:
 *
 *   max over answers a of s(a, said),   s = 1 - d / max(|a|, |said|), and 0 where that is below 0.5
 *
 * d is Levenshtein's distance and || a length, both in characters, after A-Z were made small and white space
 * as in the plain form. At 0.5 itself it counts, as in the challenge's evaluation, not in the equation.
 * Answers have at most FV_ANLS_MAX bytes. */
double fv_metric_anls(const char *const *answer, int32_t n, const char *said);

/* Which of the choices [n] was said, from 0; -1: none, or more than one. In this order: a letter, alone or before
 * one of ".):,", also in parentheses ("B", "(b) the ring"); a text that is one of the choices;
 * a text with exactly one of the choices in it, as in fv_metric_contains. */
int32_t fv_choice_said(const char *const *choice, int32_t n, const char *said);

enum { FV_ANLS_MAX = 1024 };

#endif
