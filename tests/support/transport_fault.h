#ifndef FOVEA_TESTS_SUPPORT_TRANSPORT_FAULT_H
#define FOVEA_TESTS_SUPPORT_TRANSPORT_FAULT_H

/* A transport that errs on purpose, around another one: which frame and which bit follow from a seed,
 * so that a failure found once is found again. */
#include "handoff/transport.h"

typedef enum fv_fault {
    FV_FAULT_NONE = 0,
    FV_FAULT_BIT_FLIP,  /* one bit of a frame */
    FV_FAULT_TRUNCATE,  /* a frame loses its end */
    FV_FAULT_EXTEND,    /* a frame gains a byte */
    FV_FAULT_DUPLICATE, /* a frame comes twice */
    FV_FAULT_REORDER,   /* a frame comes after its successor */
    FV_FAULT_DROP,      /* a frame does not come */
    FV_FAULT_DELAY,     /* `delay` is called before a frame */
    FV_FAULT_REPLAY,    /* a frame of the hand-off before comes in the middle of this one */
    FV_FAULT_SILENCE,   /* nothing comes from a frame on, not even the end */
    FV_N_FAULT
} fv_fault;

const char *fv_fault_name(fv_fault f);

typedef struct fv_fault_options {
    fv_fault fault;
    uint64_t seed;    /* which frame, which bit: a function of the seed */
    uint64_t n_frame; /* frames in a hand-off: one of them is hit */
    void (*delay)(void *user);
    void *delay_user;
    int32_t *fired; /* counts faults, when not NULL */
} fv_fault_options;

/* Commits one fault in each hand-off and passes the rest on to `inner`, which it owns. */
fv_status fv_transport_fault(fv_transport *inner, const fv_fault_options *opt, fv_transport **out);

#endif
