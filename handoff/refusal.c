/* Names, texts and statuses of refusals, all from one table. Any thread. */
#include "handoff/refusal.h"

#include <string.h>

static const struct {
    const char *name, *text;
    fv_status status;
} table[] = {
#define X(reason, name, status, text) {name, text, status},
    FV_REFUSALS(X)
#undef X
};

const char *fv_refusal_name(fv_refusal r) { return table[r].name; }

const char *fv_refusal_text(fv_refusal r) { return table[r].text; }

fv_status fv_refusal_status(fv_refusal r) { return table[r].status; }

fv_refusal fv_refusal_named(const char *name, size_t n) {
    for (int r = FV_REFUSED_NONE + 1; r < FV_N_REFUSAL; r++)
        if (strlen(table[r].name) == n && memcmp(table[r].name, name, n) == 0) return (fv_refusal)r;
    return FV_REFUSED_NONE;
}

fv_refusal fv_refusal_of(fv_status st) {
    int reason = fv_last_reason();
    if (st == FV_OK) return FV_REFUSED_NONE;
    if (reason != FV_REFUSED_NONE && table[reason].status == st) return (fv_refusal)reason;
    return st == FV_EBUSY || st == FV_ENOMEM ? FV_REFUSED_NO_ROOM : FV_REFUSED_INVALID;
}
