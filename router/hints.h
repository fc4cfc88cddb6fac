#ifndef FOVEA_ROUTER_HINTS_H
#define FOVEA_ROUTER_HINTS_H

/* HINTS: which workers keep which beginnings of prompts, as far as the router knows: from their reports (KeptPrompt in
 * fleet.proto), and from where it has sent requests. A hint may be wrong; that costs time and changes no answer.
 *
 *   name (router/parts.h) --> up to FV_HINT_HOLDERS workers, tokens, seconds that computing them took
 *
 * MEMORY: 60 bytes a name, taken as names come, and at most n_max of them: then one goes that was not asked for lately (CLOCK).
 * A worker has FV_HINTS_WORKER_MAX at most, so one that reports rubbish pushes out little. Looking a name up touches two cache
 * lines, whatever their number. A worker that leaves is forgotten at once, and its names bit by bit (fv_hints_tick).
 * Loop thread. */
#include "common/status.h"

enum { FV_HINT_HOLDERS = 16, FV_HINTS_MAX = 1 << 26, FV_HINTS_WORKER_MAX = 1 << 17 };

typedef struct fv_hints fv_hints; /* opaque */

/* Opens an index of at most n_max names, 1..FV_HINTS_MAX. */
fv_status fv_hints_open(size_t n_max, fv_hints **out);
void fv_hints_close(fv_hints *h); /* NULL is fine */

/* Gives a worker a place in the index; 0: there is none left, and nothing is known of the worker. `worker` is borrowed
 * until it leaves. */
uint16_t fv_hints_enter(fv_hints *h, void *worker);
void fv_hints_leave(fv_hints *h, uint16_t place); /* 0 is fine */

typedef struct fv_hint {
    uint32_t tokens;
    float seconds; /* 0: not known */
    bool guess;    /* no worker has reported it */
} fv_hint;

/* The worker at this place keeps the prompt up to there. Tokens and seconds are the last ones that were reported; those of a
 * guess count only while no worker has reported others. */
void fv_hints_add(fv_hints *h, uint64_t name, uint16_t place, const fv_hint *hint);
void fv_hints_remove(fv_hints *h, uint64_t name, uint16_t place);

/* Finds who keeps the prompt up to there: their number, and in worker[FV_HINT_HOLDERS] who they are. */
int32_t fv_hints_find(fv_hints *h, uint64_t name, fv_hint *hint, void **worker);

/* Forgets a part of what workers kept that have left. Call every so often. */
void fv_hints_tick(fv_hints *h);

size_t fv_hints_count(const fv_hints *h); /* names */

#endif
