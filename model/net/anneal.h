#ifndef FOVEA_MODEL_NET_ANNEAL_H
#define FOVEA_MODEL_NET_ANNEAL_H

/* ANNEAL: drops image tokens of a store, layer by layer, down to a share of those that each layer
 * had (visual token annealing of ST3, arXiv 2412.20105). Both workers do this with the same
 * numbers: the decode worker as the answer grows, the prefill worker when it resumes an answer.
 *
 * Runs on the thread that owns the store. */
#include "kv/kv.h"

/* Which rows are dropped first. */
typedef enum fv_anneal_order {
    FV_ANNEAL_RANK = 0,   /* the lowest ranks after the prompt */
    FV_ANNEAL_IMPORTANCE, /* in packed layers, the rows of least importance now
                           * (model/net/expand.h) */
} fv_anneal_order;

/* Keeps floor(share n) of the n rows that each head of a ranked layer had at first. Other layers
 * keep all of theirs. */
fv_status fv_anneal(fv_kv *kv, double share, fv_anneal_order order);

#endif
