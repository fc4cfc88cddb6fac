/* Any bytes as a call token. A token has exactly one encoding: its fields, encoded again, are the
 * same bytes; and no token made without the key verifies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/call_token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const fv_key key = {{9}};
    static const fv_call_to to = {"/fovea.handoff.v1.Prefill/Prefill", "prefill-0",
                                  (const uint8_t *)"incarnation no.1"};
    char again[FV_CALL_TOKEN_MAX], nonce[33], mac[65];
    fv_call_token t;
    if (fv_call_token_read((const char *)data, n, &t) != FV_OK) return 0;
    for (int i = 0; i < 16; i++) snprintf(nonce + 2 * i, 3, "%02x", t.nonce[i]);
    for (int i = 0; i < 32; i++) snprintf(mac + 2 * i, 3, "%02x", t.mac[i]);
    snprintf(again, sizeof again, "1 %s %" PRIu64 " %" PRIu32 " %s %s %s", nonce, t.made_ms,
             t.valid_ms, t.request_id, t.address, mac);
    expect(strlen(again) == n && memcmp(again, data, n) == 0);
    expect(!fv_call_token_verify(&key, &to, &t));
    expect(fv_call_token_write(&key, &to, &t, again) == FV_OK);
    expect(fv_call_token_read(again, strlen(again), &t) == FV_OK);
    expect(fv_call_token_verify(&key, &to, &t));
    return 0;
}
