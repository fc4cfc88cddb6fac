#ifndef FOVEA_MODEL_NET_UNPACK_H
#define FOVEA_MODEL_NET_UNPACK_H

/* UNPACK: a packed layer that has lost rows does not cost more than they would as raw rows.
 *
 * Of v rows, factors of rank R take R (v + HD) numbers and raw rows v HD, so that raw ones are
 * smaller from
 *     v <= R HD / (HD - R)
 * down (AttentionPack, CVPR 2026; with bits, scales and padding: where the bytes say so). There the
 * layer is rebuilt, once and for good: U B at full rank, keys turned back to where the store has
 * them. Its rows lie in the order in which they are let go. Layers that share keys go together.
 * Above that number, parts that are larger than the rows left would be are laid anew.
 *
 * When a layer is rebuilt depends on the number of rows left and on nothing else, so an answer that
 * is taken up again elsewhere finds the same bits.
 *
 * The thread that owns the store and the backend. */
#include "model/net/kv_packed.h"

/* Does so for every packed layer from which rows have gone. */
fv_status fv_unpack(fv_kv *kv, fv_backend *be, const fv_rope *rope);

#endif
