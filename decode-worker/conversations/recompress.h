#ifndef FOVEA_DECODE_WORKER_CONVERSATIONS_RECOMPRESS_H
#define FOVEA_DECODE_WORKER_CONVERSATIONS_RECOMPRESS_H

/* RECOMPRESS: keys of text that came after the prompt join the factors of the prompt's
 * (pack=svd,compress_text=keys,recompress=T_p; AttentionPack, CVPR 2026, algorithm 1).
 *
 *   factors of n rows --at their full rank--> K~ [n, Hkv D] --.
 *                                                              +--> M --fv_factorise--> U' B'
 *   w rows that wait in pages --turned to their anchors--------'
 *   values of both, as rows --> values of n + w rows, every bit kept
 *
 * With K what the network computed, and U' B' the new factors,
 *
 *     ||K - U' B'|| <= ||K - (K~ and the rows that waited)|| + ||M - U' B'||
 *
 * so each time adds what that factorization leaves out, and what was lost comes to no more than the
 * sum; rounding to `bits` adds its own each time. Where the policy asks for a share of the squared
 * norm (`energy`), each time may leave that much of the rows that are new. (The paper's algorithm
 * takes what the last step read, partly at a lower rank, which loses more; its code factors again
 * with every token once T_p have come, and lowers the rank to D.)
 *
 * WHEN. At the end of a turn, if its conversation is to be kept, and never while an answer runs; in
 * layers where
 *
 *     T_p rows wait or more,
 *     n + w rows are worth it, as the prompt's had to be (`gain`), and
 *     the new block takes less than what it replaces: the block that is there and whole pages.
 *
 * That is a function of the conversation alone: of its rows, never of who else is served or of how
 * full the pool is, which a smaller block never asks for anything. So the same turns have the same
 * bits wherever they run. A layer whose prompt was too short to be packed is packed when it has
 * become long enough. An answer that is taken up again by another worker ends on the same rows, and
 * is recompressed as it would have been; a conversation that is sent again as a whole is a new
 * prompt, whose text keys are factored at once, from rows.
 *
 * Visual tokens stay as they are: a kept conversation goes on without new images.
 *
 * The computing thread. */
#include "model/net/decoder.h"
#include "model/net/kv_packed.h"
#include "policy/plan/packed_shape.h"

typedef struct fv_recompress_report {
    int32_t n_layer; /* layers in which rows joined */
    uint64_t rows;   /* that joined, in all of those */
    size_t bytes;    /* that went back to the pool */
    float error;     /* the most that a layer's factorization left out: ||M - U' B'|| / ||M|| */
    double seconds;
} fv_recompress_report;

/* One store on its way. */
typedef struct fv_recompress {
    fv_text_keys keys; /* what the policy says of them */
    fv_recompress_report report;
    int32_t layer; /* private: the next one to look at */
} fv_recompress;

/* At the end of a turn, behind which nothing more is added to the store: gives back what was
 * reserved for more rows. False: there is nothing to be done. */
bool fv_recompress_begin(fv_recompress *r, const fv_text_keys *keys, fv_kv *kv);

/* Does one layer, and those that borrow its keys. *more: there is another; between two calls
 * nothing may run on the store. A layer whose rows cannot be factored stays as it is. On failure
 * (memory) the store is inconsistent: close it. */
fv_status fv_recompress_next(fv_recompress *r, fv_decoder *dec, fv_kv *kv, bool *more);

#endif
