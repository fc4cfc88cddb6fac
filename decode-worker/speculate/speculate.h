#ifndef FOVEA_DECODE_WORKER_SPECULATE_SPECULATE_H
#define FOVEA_DECODE_WORKER_SPECULATE_SPECULATE_H

/* SPECULATION of one answer: its source of drafts, how often they were right, and what that has saved.
 *
 * A step runs an answer's last token and a draft's tokens as rows of one pass. Each row's logits have the bits of a step
 * of its own (model/net/decoder.h), so the answer's own sampling, at each token's own place, says which drafts are kept:
 * those that it would have chosen. Whatever is drafted, the tokens, their log-probabilities and digests are the same.
 *
 *   propose      the lookup guesses, or the draft model is to; each token's chance to be kept is p, p^2, ... with p as measured for its grade
 *   trim         of all answers' tokens, as many of the likeliest run as the step's time makes worth (costs.h)
 *   fill         the draft model guesses as many as are left to it, which takes time
 *   note         what was kept
 *
 * For the computing thread. */
#include "decode-worker/speculate/costs.h"
#include "decode-worker/speculate/draft.h"
#include "kv/kv.h"

typedef struct fv_speculation {
    fv_draft_source source; /* borrowed: tried first, costs nothing */
    fv_draft_source model;  /* borrowed: tried where that finds nothing; draft NULL: none */
    bool is_open;           /* the draft's tokens are the model's to fill in */
    int32_t n_vocab;        /* ids that may be chosen */
    int32_t rows_end;       /* rows of the sequence that have memory; drafts stay within */
    fv_draft draft;         /* of this step */
    /* Counts so far: tokens drafted and run, those kept; seconds that the answer's kept tokens would have taken in steps
     * of their own, less what its steps took longer. Below 0: drafts have cost more than they have saved. */
    uint64_t n_drafted, n_kept;
    double s_saved;
    float kept[FV_DRAFT_GRADES], tried[FV_DRAFT_GRADES]; /* private: lately */
} fv_speculation;

/* Whether drafts can be taken back from a store: nothing but its last text rows remembers them. Not with recurrent
 * layers, accumulators, or packed rows that are observed. */
bool fv_speculation_fits(const fv_kv *kv);

/* Guesses at most `most` tokens after ids [n] into s->draft; none where most is below 1. Where the source finds none, the
 * draft has as many, open, as the model is asked for. */
void fv_speculation_propose(fv_speculation *s, const int32_t *ids, int32_t n, int32_t most);

/* Shortens the drafts of a step's n_spec answers (others may be in the step) to those worth their time. costs NULL:
 * only to FV_DRAFT_ROWS_MOST rows. Returns the rows left. */
int32_t fv_speculation_trim(fv_speculation *const *spec, int32_t n_spec, int32_t n_answer,
                            const fv_step_costs *costs);

/* Has the model guess the tokens of an open draft, or fewer of them. */
void fv_speculation_fill(fv_speculation *s, const int32_t *ids, int32_t n);

/* Notes that a step has kept the first `kept` tokens of the draft, and took `seconds`; one without drafts would have
 * taken `plain` (0: not known). `rejected`: the token behind them was another one; otherwise the answer ended. */
void fv_speculation_note(fv_speculation *s, int32_t kept, bool rejected, double seconds,
                         double plain);

#endif
