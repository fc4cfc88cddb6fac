#ifndef FOVEA_TESTS_SUPPORT_TRANSPORT_FAULT_H
#define FOVEA_TESTS_SUPPORT_TRANSPORT_FAULT_H

/* A transport wrapped around another one that makes errors on purpose: the seed determines which
 * frame and which bit, so that a failure can be repeated. */
#include "handoff/transport.h"

typedef enum fv_fault {
    FV_FAULT_NONE = 0,
    FV_FAULT_BIT_FLIP,  /* one bit of a frame is flipped */
    FV_FAULT_TRUNCATE,  /* a frame is truncated */
    FV_FAULT_EXTEND,    /* a frame is one byte longer */
    FV_FAULT_DUPLICATE, /* a frame is duplicated */
    FV_FAULT_REORDER,   /* a frame comes after its successor */
    FV_FAULT_DROP,      /* a frame is lost */
    FV_FAULT_DELAY,     /* `delay` is called before a frame */
    FV_FAULT_REPLAY,    /* a frame of the previous hand-off arrives in the middle of this one */
    FV_FAULT_SILENCE,   /* nothing arrives from some frame on, not even the end */
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

/* Makes one fault in each hand-off and passes the rest on to `inner`, which it takes. */
fv_status fv_transport_fault(fv_transport *inner, const fv_fault_options *opt, fv_transport **out);

#endif
