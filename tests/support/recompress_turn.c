#include "tests/support/recompress_turn.h"
#include "decode-worker/conversations/recompress.h"

#include <stdio.h>
#include <stdlib.h>

static void need(fv_status st) {
    if (st == FV_OK) return;
    fprintf(stderr, "recompress_turn: %s\n", fv_last_error());
    abort();
}

fv_recompress_report recompress_turn(fv_decoder *dec, fv_kv *kv, const char *policy) {
    fv_policy parsed;
    fv_decode_plan plan;
    fv_recompress r;
    need(fv_policy_parse(policy, &parsed));
    fv_decode_plan_make(&parsed, 1, &plan);
    bool more = fv_recompress_begin(&r, &plan.text_keys, kv);
    while (more) need(fv_recompress_next(&r, dec, kv, &more));
    return r.report;
}
