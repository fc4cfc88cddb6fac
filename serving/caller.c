/* Checks call tokens: the MAC first, then the time, then whether it was used before. Loop thread. */
#include "serving/caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/nonces.h"
#include "common/clock.h"
#include "common/random.h"

enum { NONCES_MAX = 1 << 18 }; /* about 12 MiB; enough for thousands of calls a second */

struct fv_callers {
    bool certified;
    fv_key key;
    char name[FV_WORKER_NAME_MAX + 1];
    uint8_t incarnation[FV_INCARNATION_BYTES];
    double opened_s;
    fv_nonces *used;
};

fv_status fv_callers_open(const fv_key *fleet, fv_callers **out) {
    fv_callers *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "no memory to check callers");
    x->opened_s = fv_clock_s();
    x->certified = !fleet;
    fv_status st = fleet ? fv_call_key(fleet, &x->key) : FV_OK;
    if (st == FV_OK) st = fv_random_bytes(x->incarnation, sizeof x->incarnation);
    if (st == FV_OK) st = fv_nonces_open(NONCES_MAX, &x->used);
    if (st != FV_OK) {
        fv_callers_close(x);
        return st;
    }
    *out = x;
    return FV_OK;
}

void fv_callers_close(fv_callers *x) {
    if (!x) return;
    fv_nonces_close(x->used);
    fv_key_wipe(&x->key);
    free(x);
}

void fv_callers_set_name(fv_callers *x, const char *name) {
    snprintf(x->name, sizeof x->name, "%s", name);
}

const uint8_t *fv_callers_incarnation(const fv_callers *x) { return x->incarnation; }

uint64_t fv_callers_clock_ms(const fv_callers *x) {
    return (uint64_t)(1e3 * (fv_clock_s() - x->opened_s));
}

/* The only error for unproven callers; it does not depend on what was wrong. */
static fv_status stranger(void) {
    return FV_FAIL(FV_EAUTH, "this call needs a token of the fleet's router");
}

/* Checks the time of a token whose MAC is right, so the error may say what is wrong. */
static fv_status check_time(const fv_call_token *t, uint64_t now_ms) {
    if (t->made_ms > now_ms + FV_CALL_AHEAD_MS)
        return FV_FAIL(
            FV_EAUTH,
            "the call's token is from the future: restart the worker, or check the router's clock");
    if (now_ms > t->made_ms + t->valid_ms)
        return FV_FAIL(FV_EAUTH, "the call's token was good until %llu ms ago",
                       (unsigned long long)(now_ms - t->made_ms - t->valid_ms));
    return FV_OK;
}

fv_status fv_caller_identify(fv_callers *x, const fv_rpc_call *call, fv_caller *out) {
    const char *text;
    size_t n;
    fv_call_token t;
    fv_call_to to = {fv_rpc_call_path(call), x->name, x->incarnation};
    uint64_t now_ms = fv_callers_clock_ms(x);
    out->certified = x->certified;
    if (x->certified) return FV_OK;
    if (!x->name[0] || !fv_rpc_call_metadata(call, FV_CALL_TOKEN_KEY, &text, &n) ||
        fv_call_token_read(text, n, &t) != FV_OK || !fv_call_token_verify(&x->key, &to, &t))
        return stranger();
    FV_TRY(check_time(&t, now_ms));
    fv_status st = fv_nonces_take(x->used, t.nonce, t.made_ms + t.valid_ms + 1, now_ms);
    if (st != FV_OK) return fv_fail_prefix(st, "the call's token");
    strcpy(out->request_id, t.request_id);
    strcpy(out->address, t.address);
    return FV_OK;
}

fv_status fv_caller_check_request(const fv_caller *who, const char *request_id,
                                  const char *address) {
    if (who->certified || (strcmp(who->request_id, request_id ? request_id : "") == 0 &&
                           strcmp(who->address, address ? address : "") == 0))
        return FV_OK;
    return FV_FAIL(FV_EAUTH, "the call's token is for another request");
}
