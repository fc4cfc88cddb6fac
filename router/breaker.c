/* The circuit breaker of one worker. Pure functions. */
#include "router/breaker.h"

void fv_breaker_init(fv_breaker *b, uint64_t seed) {
    *b = (fv_breaker){.random = seed ? seed : 0x9e3779b97f4a7c15u};
}

bool fv_breaker_admits(const fv_breaker *b, double now_s) {
    return b->until_s == 0 || (now_s >= b->until_s && !b->trial);
}

double fv_breaker_rest_s(const fv_breaker *b, double now_s) {
    return b->until_s > now_s ? b->until_s - now_s : 0;
}

bool fv_breaker_begin(fv_breaker *b) {
    if (b->until_s == 0) return false;
    b->trial = true;
    return true;
}

void fv_breaker_worked(fv_breaker *b) { fv_breaker_init(b, b->random); }

/* xorshift64 (Marsaglia 2003): numbers for the jitter may be predictable. *state is never 0. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Returns 1 - jitter .. 1 + jitter. */
static double draw_factor(uint64_t *random) {
    double u = (double)(next_random(random) >> 11) * 0x1p-53; /* 0..1 */
    return 1 + 0.01 * FV_BREAKER_JITTER * (2 * u - 1);
}

static double rest_s(fv_breaker *b) {
    double ms = FV_BREAKER_FIRST_MS;
    for (int32_t i = 0; i < b->n_opened && ms < FV_BREAKER_LONGEST_MS; i++) ms *= 2;
    if (ms > FV_BREAKER_LONGEST_MS) ms = FV_BREAKER_LONGEST_MS;
    return 1e-3 * ms * draw_factor(&b->random);
}

void fv_breaker_failed(fv_breaker *b, double began_s, double now_s) {
    if (b->n_failed && began_s < b->failed_s) return; /* the same failure */
    b->n_failed++;
    b->failed_s = now_s;
    if (b->n_failed < FV_BREAKER_FAILURES) return;
    b->until_s = now_s + rest_s(b);
    b->n_opened++;
    b->trial = false;
}

void fv_breaker_unknown(fv_breaker *b, bool trial) {
    if (trial) b->trial = false; /* the next call is the trial */
}
