#ifndef FOVEA_MODEL_NET_ANNEAL_H
#define FOVEA_MODEL_NET_ANNEAL_H

/* ANNEAL: image tokens of a store are let go, layer by layer, down to a share of what each layer
 * had (visual token annealing of ST3, arXiv 2412.20105). Both workers do it, with the same numbers:
 * one as the answer grows, the other when it takes an answer up again.
 *
 * The thread that owns the store. */
#include "model/net/kv.h"

/* Which rows go first. */
typedef enum fv_anneal_order {
    FV_ANNEAL_RANK = 0,   /* the lowest ranks after the prompt */
    FV_ANNEAL_IMPORTANCE, /* of packed layers, those of least importance now (model/net/expand.h) */
} fv_anneal_order;

/* Of n rows that a head of a ranked layer had at first, floor(share n) are left; other layers keep
 * theirs. */
fv_status fv_anneal(fv_kv *kv, double share, fv_anneal_order order);

#endif
