#ifndef FOVEA_PREFILL_WORKER_PREFILL_INTERNAL_H
#define FOVEA_PREFILL_WORKER_PREFILL_INTERNAL_H

/* The state of the prefill loop, for its files only:
 *
 *   prefill.c   the loop: embeddings, groups of layers, chunks of rows
 *   captures.c  attention of the prompt's last rows, layer by layer
 *   sums.c      attention of many prompt tokens, summed for the prune stage
 *   join.c      rows that were kept up to a layer, which run from there on
 *   rows.c      drops visual tokens between phases
 *   masking.c   visual tokens that run on but are masked
 *   answer.c    an answer that is resumed, after the prompt
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

/* The visual tokens of a request at the current layer. */
typedef struct fv_prefill_visual {
    int32_t n;        /* tokens that are still running */
    int32_t *row_at;  /* [prompt] by position, its row of the embeddings; -1: text */
    int32_t first;    /* position of the prompt's first; the prompt's length if it has none */
    float *attention; /* [n] the last row's in the layer captured last, mean over heads */
    float *l2, *cos;  /* [n] ablation scores in that layer */
    float *sums;      /* sums of the prune stage's capture of many rows; in the group's arena */
    int32_t n_key;    /* columns of sums */
    /* Text tokens after the images, and which of them are scorers
     * (prefill-worker/prefill/scorers.h). */
    int32_t n_after, n_scorer;
    uint8_t *scorer;       /* [n_after] */
    fv_prune_state pruner; /* of a method that decides by data */
    int32_t *rank_from;    /* [N] the plan's, changed if rows are dropped by data */
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
    int32_t *n_kept; /* [n_req] first rows of a prompt that do not run, in these layers */
    fv_buf x[2];     /* the residual stream, and memory to gather its rows into */
    fv_prefill_rows rows;
    fv_buf last;               /* [n_req, d] hidden states after the last tokens */
    fv_prefill_visual *visual; /* [n_req] */
    fv_prefill_mask *mask;     /* [n_req] */
    /* [n_req] [N] attention by position, which ranks rows and is their initial importance */
    float ***attention;
    fv_buf *queries; /* [n_req] queries of blocks that other requests' phases cut: [rows, H D] */
    int32_t *ready;  /* [n_req] layers that hold their final rows in the final order */
    int32_t *packed; /* [n_req] layers of these that are packed, or need no packing */
    int32_t *layers_done;  /* [n_req] layers that have run and are in no open block */
    fv_select_sums **sums; /* [n_req] [N] attention that the select stage chooses by, of the group's
                            * layers and of blocks that were open before it */
    fv_select_sums **accums; /* [n_req] [N] initial values of accumulators, likewise */
    fv_rope rope;
    int32_t n_final; /* layers that were announced as final */
    fv_arena arena;
    fv_arena group; /* memory until the end of a group and of its blocks */
} fv_prefill;

/* ---- captures.c --------------------------------------------------------------------- */

/* The row after the last prompt token of request b. Dropped tokens are all before it. */
int32_t fv_prefill_prompt_end(const fv_prefill *p, int32_t b);

bool fv_prefill_captures_any(const fv_prefill *p, int32_t b, int32_t l0, int32_t l1);

/* Allocates the sums of these layers that the stages need, until no block that they begin is open. */
fv_status fv_prefill_open_sums(fv_prefill *p, int32_t l0, int32_t l1);

/* Requests the captures of request b for its rows [a, e) of a chunk in layers [l0, l1); the first *n_last
 * are those of the last prompt row. */
fv_status fv_prefill_ask_captures(fv_prefill *p, int32_t b, int32_t l0, int32_t l1, int32_t a,
                                  int32_t e, fv_forward_seq *seq, int32_t *n_last);

/* Reads the first n captures, after the pass. */
fv_status fv_prefill_read_captures(fv_prefill *p, int32_t b, const fv_forward_seq *seq, int32_t n);

/* ---- sums.c --------------------------------------------------------------------- */

/* Whether the prune stage captures many tokens in the layer. */
bool fv_prefill_has_row_sums(const fv_prefill *p, int32_t b, int32_t layer);

/* Passes the maximum attention of a layer that has run to the observer. */
fv_status fv_prefill_report_head_max(const fv_prefill *p, int32_t b, int32_t layer);

/* Finds the scorers from input embeddings, before the first layer runs, if the plan needs them. */
fv_status fv_prefill_find_scorers(fv_prefill *p, int32_t b);

/* Allocates the sums of that capture; makes the capture of tokens [a, e), with n_row 0 if there is none. */
fv_status fv_prefill_open_row_sums(fv_prefill *p, int32_t b, int32_t layer);
fv_status fv_prefill_row_sums_capture(fv_prefill *p, int32_t b, int32_t layer, int32_t a, int32_t e,
                                      fv_forward_capture *capture);

/* ---- join.c --------------------------------------------------------------------- */

/* Adds the kept rows of the requests that join in `layer` to those that run, and tells their owners of the residual
 * stream there. */
fv_status fv_prefill_join_rows(fv_prefill *p, int32_t layer);

/* ---- rows.c --------------------------------------------------------------------- */

/* Lists the positions of request b's image tokens that are still running, or were kept, in the run's arena. */
fv_status fv_prefill_visual_rows(fv_prefill *p, int32_t b, int32_t **pos, int32_t *n);

/* The edit before `layer`, unless its method has nothing more to decide; NULL: none. */
const fv_plan_edit *fv_prefill_edit_at(const fv_prefill *p, int32_t b, int32_t layer);

/* Drops the tokens of all requests that do not continue into `layer`. */
fv_status fv_prefill_drop_rows(fv_prefill *p, int32_t layer);

/* Marks the layers of [l0, l1), which have run, as ranked if they hold merged rows, which are not in the
 * order of positions. */
fv_status fv_prefill_mark_order(fv_prefill *p, int32_t b, int32_t l0, int32_t l1);

/* ---- masking.c --------------------------------------------------------------------- */

/* Copies rows row[n] of the list, image tokens of request b, which run separately from `layer` on. */
fv_status fv_prefill_mask_rows(fv_prefill *p, int32_t b, int32_t layer, const int32_t *row,
                               int32_t n);

/* Runs the masked tokens through layers [l0, l1), after all other rows of the request. */
fv_status fv_prefill_run_masked(fv_prefill *p, int32_t b, int32_t l0, int32_t l1);

/* ---- answer.c ------------------------------------------------------------------- */

/* Number of tokens of a resumed answer that run after the prompt instead of with it. */
int32_t fv_prefill_n_deferred(const fv_prefill_request *req);

/* Runs these tokens, after the prompt's last row again if the policy says so; logits [n_req, vocab]. */
fv_status fv_prefill_run_answers(fv_prefill *p, float *logits);

#endif
