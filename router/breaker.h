#ifndef FOVEA_ROUTER_BREAKER_H
#define FOVEA_ROUTER_BREAKER_H

/* BREAKER: a worker whose calls fail rests, and then gets one request to show that it is well.
 *
 *              FV_BREAKER_FAILURES in a row              the rest is over: one trial
 *     CLOSED ---------------------------------> OPEN ---------------------------------> TRIAL
 *        ^                                        ^          failed: twice as long        | |
 *        |                                        '---------------------------------------' |
 *        '----------------------------------------------------------------------------------'
 *                                              worked
 *
 * In a row means that each call began after the failure before it: many calls that fail at once
 * are one failure. Pure functions of their arguments; times are seconds of one clock. */
#include <stdbool.h>
#include <stdint.h>

enum {
    FV_BREAKER_FAILURES = 3,
    FV_BREAKER_FIRST_MS = 1000, /* the first rest; each further one is twice as long */
    FV_BREAKER_LONGEST_MS = 30000,
    FV_BREAKER_JITTER = 20, /* percent, either way, so that routers do not all try at once */
};

typedef struct fv_breaker {
    int32_t n_failed; /* failures in a row */
    int32_t n_opened; /* rests in a row */
    double failed_s;  /* time of the last failure */
    double until_s;   /* end of the rest; 0: closed */
    bool trial;       /* a trial is under way */
    uint64_t random;  /* for the jitter; never 0 */
} fv_breaker;

void fv_breaker_init(fv_breaker *b, uint64_t seed); /* closed */

bool fv_breaker_admits(const fv_breaker *b, double now_s);   /* may the worker get a request? */
double fv_breaker_rest_s(const fv_breaker *b, double now_s); /* what is left of the rest, or 0 */

/* A call begins. True: it is the trial; pass that to fv_breaker_unknown. */
bool fv_breaker_begin(fv_breaker *b);

/* How a call ended; unknown: it was broken off for another reason, which says nothing about the worker. */
void fv_breaker_worked(fv_breaker *b);
void fv_breaker_failed(fv_breaker *b, double began_s, double now_s);
void fv_breaker_unknown(fv_breaker *b, bool trial);

#endif
