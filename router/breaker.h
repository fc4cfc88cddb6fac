#ifndef FOVEA_ROUTER_BREAKER_H
#define FOVEA_ROUTER_BREAKER_H

/* BREAKER: a worker whose calls fail gets a rest, and then one request to show that it is well.
 *
 *              FV_BREAKER_FAILURES in a row              its time is over: one trial
 *     CLOSED ---------------------------------> OPEN ---------------------------------> TRIAL
 *        ^                                        ^          failed: twice as long        | |
 *        |                                        '---------------------------------------' |
 *        '----------------------------------------------------------------------------------'
 *                                              worked
 *
 * In a row means that each call was begun when the failure before it was known: many that break at
 * once are one failure. Pure functions of their arguments; times are seconds of one clock. */
#include <stdbool.h>
#include <stdint.h>

enum {
    FV_BREAKER_FAILURES = 3,
    FV_BREAKER_FIRST_MS = 1000, /* the first rest, and then doubling */
    FV_BREAKER_LONGEST_MS = 30000,
    FV_BREAKER_JITTER = 20, /* percent, either way: routers shall not try all at once */
};

typedef struct fv_breaker {
    int32_t n_failed; /* in a row */
    int32_t n_opened; /* in a row */
    double failed_s;  /* when it last did */
    double until_s;   /* rests until then; 0: closed */
    bool trial;       /* under way */
    uint64_t random;  /* for the jitter; never 0 */
} fv_breaker;

void fv_breaker_init(fv_breaker *b, uint64_t seed); /* closed */

bool fv_breaker_admits(const fv_breaker *b, double now_s);   /* may it get a request? */
double fv_breaker_rest_s(const fv_breaker *b, double now_s); /* how long it rests yet, or 0 */

/* A call begins. True: it is the trial; say so when it ends. */
bool fv_breaker_begin(fv_breaker *b);

/* How a call ended. One that was broken off for another reason says nothing of the worker. */
void fv_breaker_worked(fv_breaker *b);
void fv_breaker_failed(fv_breaker *b, double began_s, double now_s);
void fv_breaker_unknown(fv_breaker *b, bool trial);

#endif
