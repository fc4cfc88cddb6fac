#ifndef FOVEA_DECODE_WORKER_SPECULATE_DRAFT_H
#define FOVEA_DECODE_WORKER_SPECULATE_DRAFT_H

/* DRAFTS: tokens that an answer may have next, guessed cheaply. A source guesses; the network checks
 * (decode-worker/schedule/batch.h). A wrong draft costs time and changes nothing. */
#include <stdint.h>

enum {
    FV_DRAFT_MOST = 8, /* tokens of a draft */
    /* of how sure the lookup is, and the draft model's; acceptance is measured for each */
    FV_DRAFT_MODEL_GRADE = 5,
    FV_DRAFT_GRADES
};

typedef struct fv_draft {
    int32_t n;
    int32_t id[FV_DRAFT_MOST]; /* [n] */
    int32_t grade;             /* 0 .. FV_DRAFT_GRADES - 1; higher: surer */
} fv_draft;

typedef struct fv_draft_source {
    /* Guesses at most `most` (1..FV_DRAFT_MOST) tokens that follow ids [n], prompt and answer so far, into *out, which
     * is {0}. Leaves it so if there is nothing to guess. The ids of an answer only grow from call to call. */
    void (*draft)(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out);
    void *user;
} fv_draft_source;

#endif
