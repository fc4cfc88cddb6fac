#ifndef FOVEA_CLI_CLIENT_DRAFTS_H
#define FOVEA_CLI_CLIENT_DRAFTS_H

/* DRAFTS OF A QUESTION, as options ask for them (docs/SPECULATION.md). */
#include "common/arena.h"
#include "common/options.h"

typedef struct fv_ask_drafts {
    bool given;             /* --speculate was */
    bool on;                /* it is on, or was not given */
    const char *prediction; /* text that is expected in the answer; NULL: none */
} fv_ask_drafts;

/* Reads --speculate and --prediction; texts are in the arena. FV_EINVAL: neither on nor off, a file that is too large
 * or is no text, or one that cannot be read. */
fv_status fv_request_drafts(const fv_options *o, fv_arena *a, fv_ask_drafts *out);

#endif
