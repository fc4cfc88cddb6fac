/* The table holds keyed hashes, so that callers cannot choose names that collide. */
#include "gateway/ignored.h"

#include <stdlib.h>
#include <string.h>

#include "auth/mac.h"
#include "common/log.h"
#include "common/random.h"

enum { KEPT_S = 3600 };

typedef struct entry {
    uint8_t caller[FV_MAC_BYTES], name[FV_MAC_BYTES];
} entry;

struct fv_ignored {
    fv_key key;
    double since_s; /* the first entry's time */
    int32_t n;
    entry entries[FV_IGNORED_MAX];
};

fv_status fv_ignored_open(fv_ignored **out) {
    fv_ignored *i = calloc(1, sizeof *i);
    if (!i) return FV_FAIL(FV_ENOMEM, "out of memory for names of fields");
    fv_status st = fv_random_bytes(i->key.bytes, sizeof i->key.bytes);
    if (st == FV_OK)
        *out = i;
    else
        free(i);
    return st;
}

void fv_ignored_close(fv_ignored *i) { free(i); }

static bool hash(const fv_ignored *i, const char *text, uint8_t *out) {
    const fv_mac_field field = {text, strlen(text)};
    return fv_mac(&i->key, &field, 1, out) == FV_OK;
}

/* Returns whether the pair is new; notes it. */
static bool add(fv_ignored *i, const entry *e) {
    int32_t of_caller = 0;
    for (int32_t k = 0; k < i->n; k++) {
        if (memcmp(i->entries[k].caller, e->caller, sizeof e->caller) != 0) continue;
        if (memcmp(i->entries[k].name, e->name, sizeof e->name) == 0) return false;
        of_caller++;
    }
    if (i->n == FV_IGNORED_MAX || of_caller == FV_IGNORED_CALLER) return false;
    i->entries[i->n++] = *e;
    return true;
}

void fv_ignored_note(fv_ignored *i, const char *caller, const fv_api_request *q, double now_s) {
    entry e;
    if (q->n_ignored == 0 || !hash(i, caller, e.caller)) return;
    if (i->n > 0 && now_s - i->since_s > KEPT_S) i->n = 0;
    if (i->n == 0) i->since_s = now_s;
    for (int32_t k = 0; k < q->n_ignored; k++)
        if (hash(i, q->ignored[k], e.name) && add(i, &e))
            FV_LOG(WARN, WIRE, "event=field-ignored field=\"%s\" caller=\"%s\" reason=\"%s\"",
                   q->ignored[k], caller, "it has no effect here; --strict-fields refuses it");
}
