#ifndef FOVEA_PREFILL_WORKER_PREFILL_INTERNAL_H
#define FOVEA_PREFILL_WORKER_PREFILL_INTERNAL_H

/* What the files of the prefill loop share; nobody else includes it.
 *
 *   prefill.c   the loop: embeddings, groups of layers, chunks of rows
 *   captures.c  what the prompt's last rows attend to, layer by layer
 *   sums.c      attention scores that many tokens of the prompt give, where the prune stage asks
 *   rows.c      between phases: visual tokens are pruned
 *   masking.c   visual tokens that run on but are masked
 *   answer.c    after the prompt: an answer that is resumed
 *
 * Layers are [l0, l1), rows of a chunk [a, e) in the list of all rows, b is a request. */
#include "common/arena.h"
#include "model/net/rope.h"
#include "prefill-worker/prefill/prefill.h"
#include "prefill-worker/prune/prune.h"
#include "prefill-worker/select/select.h"

/* All rows of the batch that are still running: request after request, positions ascending. */
typedef struct fv_prefill_rows {
    int32_t n;
    int32_t *first;        /* [n_req + 1] where each request's rows start */
    int32_t *pos;          /* [n] */
    fv_rope_pos *rope_pos; /* [n] positions that rows are rotated by */
    uint8_t *seg;          /* [n] */
    fv_tensor x;           /* [n, d] residual stream */
} fv_prefill_rows;

/* The visual tokens of a request, as far as it has come. */
typedef struct fv_prefill_visual {
    int32_t n;        /* that are still running */
    int32_t *row_at;  /* [prompt] by position, its row of the embeddings; -1: text */
    int32_t first;    /* position of the prompt's first; the prompt's length when it has none */
    float *attention; /* [n] in a tapped layer, the last row's, mean over heads */
    float *l2, *cos;  /* [n] their influence there */
    float *sums;      /* what the prune stage's capture of many rows summed; of the group */
    int32_t n_key;    /* columns of that */
    /* Text tokens after the images, and which of them are scorers
     * (prefill-worker/prefill/scorers.h). */
    int32_t n_after, n_scorer;
    uint8_t *scorer;       /* [n_after] */
    fv_prune_state pruner; /* of a method that decides by data */
    int32_t *rank_from;    /* [N] as the plan has it, until rows leave where data say so */
} fv_prefill_visual;

/* Masked image tokens of a request. */
typedef struct fv_prefill_mask {
    int32_t n;
    int32_t *pos; /* [n] ascending */
    fv_buf x;     /* [n, d] their residual stream */
} fv_prefill_mask;

typedef struct fv_prefill {
    fv_decoder *dec;
    const fv_prefill_request *req;
    const fv_prefill_options *opt;
    int32_t n_req, d;
    fv_buf x[2]; /* the residual stream, and the one that rows are gathered into */
    fv_prefill_rows rows;
    fv_buf last;               /* [n_req, d] hidden states after the last tokens */
    fv_prefill_visual *visual; /* [n_req] */
    fv_prefill_mask *mask;     /* [n_req] */
    /* [n_req] [N] what rows are ranked by, and importance begins with, by position */
    float ***attention;
    fv_buf *queries;         /* [n_req] of blocks that phases of others cut: [rows, H D] */
    int32_t *ready;          /* [n_req] layers whose rows are there in their order, */
    int32_t *packed;         /* [n_req] and those that are packed, or have nothing to be */
    int32_t *layers_done;    /* [n_req] layers that are done and in no open block */
    fv_select_sums **sums;   /* [n_req] [N] what the select stage chooses by: of the group, and of
                               * blocks that were open before it */
    fv_select_sums **accums; /* [n_req] [N] what accumulators begin with, likewise */
    fv_rope rope;
    int32_t n_final; /* layers that were said to be final */
    fv_arena arena;
    fv_arena group; /* what a group of layers leaves for its end, and for that of its blocks */
} fv_prefill;

/* ---- captures.c --------------------------------------------------------------------- */

/* After the last prompt token of request b. Dropped tokens are all before it. */
int32_t fv_prefill_prompt_end(const fv_prefill *p, int32_t b);

bool fv_prefill_captures_any(const fv_prefill *p, int32_t b, int32_t l0, int32_t l1);

/* Memory for the score sums that the select stage needs of these layers; lives until no block that
 * they begin is open. */
fv_status fv_prefill_open_sums(fv_prefill *p, int32_t l0, int32_t l1);

/* Captures of request b for its rows of a chunk; the first *n_last are those of the last row. */
fv_status fv_prefill_ask_captures(fv_prefill *p, int32_t b, int32_t l0, int32_t l1, int32_t a,
                                  int32_t e, fv_forward_seq *seq, int32_t *n_last);

/* The first n captures have been filled. */
fv_status fv_prefill_read_captures(fv_prefill *p, int32_t b, const fv_forward_seq *seq, int32_t n);

/* ---- sums.c --------------------------------------------------------------------- */

/* Whether the prune stage captures many tokens in the layer. */
bool fv_prefill_sums_rows(const fv_prefill *p, int32_t b, int32_t layer);

/* A layer has run: passes its maximum attention to the observer. */
fv_status fv_prefill_tell_head_max(const fv_prefill *p, int32_t b, int32_t layer);

/* On input embeddings, before the first layer runs. Nothing where the plan does not ask. */
fv_status fv_prefill_find_scorers(fv_prefill *p, int32_t b);

/* Memory for that capture's sums; and the capture of tokens [a, e), of none when n_row is 0. */
fv_status fv_prefill_open_row_sums(fv_prefill *p, int32_t b, int32_t layer);
fv_status fv_prefill_row_sums_capture(fv_prefill *p, int32_t b, int32_t layer, int32_t a, int32_t e,
                                      fv_forward_capture *capture);

/* ---- rows.c --------------------------------------------------------------------- */

/* Image tokens of request b that are still running: their positions, in memory of the run. */
fv_status fv_prefill_visual_rows(fv_prefill *p, int32_t b, int32_t **pos, int32_t *n);

/* The edit before `layer`, unless its method has nothing more to decide; NULL: none. */
const fv_plan_edit *fv_prefill_edit_at(const fv_prefill *p, int32_t b, int32_t layer);

fv_status fv_prefill_drop_rows(fv_prefill *p, int32_t layer);

/* Layers [l0, l1) have run: those with rows that were merged hold them in an order of their own. */
fv_status fv_prefill_mark_order(fv_prefill *p, int32_t b, int32_t l0, int32_t l1);

/* ---- masking.c --------------------------------------------------------------------- */

/* Rows row[n] of the list, image tokens of request b, are taken out of it to run beside it from
 * `layer` on. */
fv_status fv_prefill_mask_rows(fv_prefill *p, int32_t b, int32_t layer, const int32_t *row,
                               int32_t n);

/* Runs them through layers [l0, l1), which all other rows of the request have gone through. */
fv_status fv_prefill_run_masked(fv_prefill *p, int32_t b, int32_t l0, int32_t l1);

/* ---- answer.c ------------------------------------------------------------------- */

/* Tokens of a resumed answer that run after the prompt instead of with it. */
int32_t fv_prefill_rows_after(const fv_prefill_request *req);

/* Runs them, and where the policy says so the prompt's last row again; logits [n_req, vocab]. */
fv_status fv_prefill_run_answers(fv_prefill *p, float *logits);

#endif
