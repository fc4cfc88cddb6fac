#include "tests/support/tokens.h"

#include <stdio.h>

#include "tests/support/fake_worker.h"
#include "tests/support/net.h"

fv_callers *test_callers(const char *name) {
    fv_key fleet = fake_fleet_key();
    fv_callers *x;
    NET_CHECK(fv_callers_open(&fleet, &x) == FV_OK);
    fv_callers_set_name(x, name);
    return x;
}

const char *test_token(const fv_callers *x, const char *name, const char *method,
                       const char *request_id, const char *address) {
    static char texts[8][FV_CALL_TOKEN_MAX];
    static int n;
    char *out = texts[n++ % 8];
    fv_key fleet = fake_fleet_key(), key;
    fv_call_to to = {method, name, fv_callers_incarnation(x)};
    fv_call_token t = {.made_ms = fv_callers_clock_ms(x), .valid_ms = FV_CALL_VALID_MS};
    snprintf(t.request_id, sizeof t.request_id, "%s", request_id ? request_id : "");
    snprintf(t.address, sizeof t.address, "%s", address ? address : "");
    NET_CHECK(fv_call_key(&fleet, &key) == FV_OK);
    NET_CHECK(fv_call_token_write(&key, &to, &t, out) == FV_OK);
    return out;
}

fv_rpc_metadata test_metadata(const fv_callers *x, const char *name, const char *method,
                              const char *request_id, const char *address) {
    return (fv_rpc_metadata){FV_CALL_TOKEN_KEY, test_token(x, name, method, request_id, address)};
}
