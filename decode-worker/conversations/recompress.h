#ifndef FOVEA_DECODE_WORKER_CONVERSATIONS_RECOMPRESS_H
#define FOVEA_DECODE_WORKER_CONVERSATIONS_RECOMPRESS_H

/* RECOMPRESS: compresses keys of text after the prompt together with the prompt's compressed keys
 * (pack=svd,compress_text=keys,recompress=T_p; AttentionPack, CVPR 2026, algorithm 1).
 *
 *   factors of n tokens --at their full rank--> K~ [n, Hkv D] --.
 *                                                               +--> M --fv_factorise--> U' B'
 *   w uncompressed tokens --rotated to their anchors------------'
 *   values of both, uncompressed --> values of n + w tokens, every bit kept
 *
 * With K what the network computed, and U' B' the new factors,
 *
 *     ||K - U' B'|| <= ||K - (K~ and the uncompressed keys)|| + ||M - U' B'||
 *
 * so each compression adds its own error, and the total error is at most the
 * sum; rounding to `bits` adds its own each time. If the policy asks for a share of the squared
 * norm (`energy`), each time may lose that much of the new tokens. (The paper's algorithm
 * compresses what the last step read, partly at a lower rank, which loses more; its code factors
 * again with every token after T_p, and lowers the rank to D.)
 *
 * WHEN. At the end of a turn whose conversation is to be kept, and never during an answer; in
 * layers where
 *
 *     at least T_p tokens are uncompressed,
 *     compressing n + w tokens is worth it, as for the prompt (`gain`), and
 *     the new block takes less memory than the old block and the blocks of uncompressed tokens.
 *
 * This depends on the conversation alone, never on other requests or on the state of the pool, from
 * which a smaller block needs nothing. So the same turns have the same bits wherever they run. A
 * layer whose prompt was too short to be compressed is compressed when it has become long enough.
 * An answer that continues on another worker ends with the same tokens, and is recompressed as it
 * would have been; a conversation that is sent again as a whole is a new prompt, whose text keys
 * are compressed at once.
 *
 * Visual tokens stay as they are: a kept conversation gets no new images.
 *
 * The computing thread. */
#include "kv/packed.h"
#include "model/net/decoder.h"
#include "model/net/text_codes.h"
#include "policy/plan/packed_shape.h"

/* The recompression of one store. */
typedef struct fv_recompress {
    fv_text_keys keys; /* the policy's rule for text keys */
    fv_recompress_report report;
    int32_t layer; /* private: the next one to look at */
} fv_recompress;

/* Begins at the end of a turn, after which nothing is added to the store: releases memory that was
 * reserved for more tokens. False: nothing to do. */
bool fv_recompress_begin(fv_recompress *r, const fv_text_keys *keys, fv_kv *kv);

/* Compresses the next layer, and those that borrow its keys. *more: there is another; between two calls
 * nothing may run on the store. A layer whose rows cannot be factored stays as it is. On failure
 * (memory) the store is inconsistent: close it. */
fv_status fv_recompress_next(fv_recompress *r, fv_decoder *dec, fv_kv *kv, bool *more);

#endif
