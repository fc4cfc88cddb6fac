#ifndef FOVEA_DECODE_WORKER_SPECULATE_COSTS_H
#define FOVEA_DECODE_WORKER_SPECULATE_COSTS_H

/* COSTS OF DRAFTS: what a step takes, by the number of answers in it and of drafted rows, as measured on this worker.
 *
 *   T(B, D)     seconds of a step of B answers with D drafted rows
 *   rate        (B + expected number of drafts that are kept) / T(B, D)
 *
 * Drafts run only as far as they raise the rate. One sequence reads all weights for a row, so more rows cost little; a
 * batch that already computes as fast as the machine can has no time for rows that may be thrown away. What was not
 * measured lately follows from its neighbours, at first from a guess. Times decide what is drafted, and drafts decide no
 * bit. One thread at a time. */
#include <stdint.h>

enum {
    FV_COST_CLASSES = 16,    /* numbers of rows and answers that are measured together */
    FV_DRAFT_ROWS_MOST = 64, /* drafted rows of a step */
};

typedef struct fv_step_costs {
    uint64_t steps; /* so far */
    struct {
        double s;
        uint64_t at;                          /* the step at which it was last measured; 0: never */
    } cell[FV_COST_CLASSES][FV_COST_CLASSES]; /* [answers][drafted rows] */
} fv_step_costs;                              /* {0} has measured nothing */

/* Notes a step of n_answer answers, one row each, and n_draft drafted rows. */
void fv_step_costs_note(fv_step_costs *c, int32_t n_answer, int32_t n_draft, double seconds);

/* Seconds of a step without drafts; 0: not known. */
double fv_step_costs_plain(const fv_step_costs *c, int32_t n_answer);

/* Estimates T(n_answer, n_draft) / T(n_answer, 0), at least 1. */
double fv_step_costs_ratio(const fv_step_costs *c, int32_t n_answer, int32_t n_draft);

/* Returns how many drafted rows to run: gain [n_gain, at most FV_DRAFT_ROWS_MOST] is the probability that a row is
 * kept, highest first. 0 also now and then where drafts pay, to measure steps without them. */
int32_t fv_step_costs_choose(const fv_step_costs *c, int32_t n_answer, const float *gain,
                             int32_t n_gain);

#endif
