#ifndef FOVEA_MODEL_NET_UNPACK_H
#define FOVEA_MODEL_NET_UNPACK_H

/* UNPACK: decompresses a layer when so few tokens are left that uncompressed entries take less
 * memory.
 *
 * For v tokens, factors of rank R take R (v + HD) numbers and uncompressed entries v HD, which is
 * less from
 *     v <= R HD / (HD - R)
 * down (AttentionPack, CVPR 2026; with bits, scales and padding the bytes decide). The layer then
 * stays decompressed: U B at full rank, keys rotated back to their positions. Its entries are in
 * the order in which they are dropped. Layers that share keys are rebuilt together. Above that
 * number, blocks that are larger than needed for the tokens left are reallocated.
 *
 * When a layer is rebuilt depends only on the number of tokens left, so an answer that continues
 * on another worker has the same bits.
 *
 * Runs on the thread that owns the store and the backend. */
#include "kv/packed.h"

/* Decompresses or reallocates every packed layer whose rows have been dropped, if that saves
 * memory. */
fv_status fv_unpack(fv_kv *kv, fv_backend *be, const fv_rope *rope);

#endif
