/* A list in the order of age; a table would be faster than a search only beyond the thousands that it
 * may have. Bytes of a response that is not listed any more count as long as another one refers to
 * it. */
#include "gateway/response_store.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/random.h"

enum { LISTED_MAX = 1 << 14 };

struct fv_response_store {
    fv_response_limits limits;
    fv_key key; /* for hashing owners */
    fv_kept_response *oldest, *newest;
    int32_t n_listed;
    size_t bytes; /* of all responses that have memory */
};

fv_status fv_response_store_open(const fv_response_limits *limits, fv_response_store **out) {
    fv_response_store *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for responses");
    s->limits = *limits;
    fv_status st = fv_random_bytes(s->key.bytes, sizeof s->key.bytes);
    if (st == FV_OK)
        *out = s;
    else
        free(s);
    return st;
}

void fv_response_store_close(fv_response_store *s) {
    if (!s) return;
    while (s->oldest) fv_response_store_remove(s, s->oldest);
    free(s);
}

size_t fv_response_store_bytes(const fv_response_store *s) { return s->bytes; }

/* A tenant and a header are told apart by the first field. */
fv_status fv_response_owner_by(const fv_key *key, const char *tenant, const char *authorization,
                               fv_response_owner *out) {
    const bool named = tenant && *tenant;
    const char *who = named ? tenant : authorization ? authorization : "";
    const fv_mac_field fields[] = {{named ? "t" : "a", 1}, {who, strlen(who)}};
    return fv_mac(key, fields, 2, out->mac);
}

fv_status fv_response_owner_of(const fv_response_store *s, const char *tenant,
                               const char *authorization, fv_response_owner *out) {
    return fv_response_owner_by(&s->key, tenant, authorization, out);
}

/* ---- a response -------------------------------------------------------------------------- */

fv_status fv_kept_response_new(fv_response_store *s, fv_kept_response **out) {
    fv_kept_response *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    r->store = s;
    r->n_ref = 1;
    *out = r;
    return FV_OK;
}

/* A chain is as long as a conversation, so it is walked and not recursed into. */
void fv_kept_response_unref(fv_kept_response *r) {
    while (r && --r->n_ref == 0) {
        fv_kept_response *previous = r->previous;
        if (r->input) grpc_byte_buffer_destroy(r->input);
        if (r->output) grpc_byte_buffer_destroy(r->output);
        json_decref(r->json);
        r->store->bytes -= r->bytes;
        free(r);
        r = previous;
    }
}

/* ---- the list ---------------------------------------------------------------------------- */

void fv_response_store_remove(fv_response_store *s, fv_kept_response *r) {
    if (!r->listed) return;
    r->listed = false;
    s->n_listed--;
    *(r->older ? &r->older->newer : &s->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &s->newest) = r->older;
    fv_kept_response_unref(r);
}

static void remove_expired(fv_response_store *s) {
    const double now_s = fv_clock_s();
    while (s->oldest && s->oldest->until_s <= now_s) fv_response_store_remove(s, s->oldest);
}

static bool owns(const fv_response_owner *owner, const fv_kept_response *r) {
    return memcmp(owner->mac, r->owner.mac, sizeof owner->mac) == 0;
}

fv_status fv_response_store_find(fv_response_store *s, const fv_response_owner *owner,
                                 const char *id, fv_kept_response **out) {
    remove_expired(s);
    for (fv_kept_response *r = s->newest; r; r = r->older) {
        if (!owns(owner, r) || strcmp(r->id, id) != 0) continue;
        r->n_ref++;
        *out = r;
        return FV_OK;
    }
    return FV_FAIL(FV_ENOTFOUND,
                   "no response has the id '%.128s': it was not stored, is too old, or "
                   "gave way to newer ones",
                   id);
}

/* Ends an owner's oldest responses until it is within its limits. */
static void make_room(fv_response_store *s, const fv_response_owner *owner) {
    int64_t n = 0;
    size_t bytes = 0;
    for (const fv_kept_response *r = s->newest; r; r = r->older) {
        if (!owns(owner, r)) continue;
        n++;
        bytes += r->bytes;
    }
    for (fv_kept_response *r = s->oldest, *next; r; r = next) {
        next = r->newer;
        if (n <= s->limits.n_owner && bytes <= s->limits.bytes_owner) return;
        if (!owns(owner, r)) continue;
        n--;
        bytes -= r->bytes;
        fv_response_store_remove(s, r);
    }
}

void fv_response_store_put(fv_response_store *s, fv_kept_response *r, size_t n_json, size_t more,
                           bool *kept) {
    const size_t bytes = sizeof *r + 4 * n_json + more + grpc_byte_buffer_length(r->input) +
                         grpc_byte_buffer_length(r->output); /* a tree is larger than its text */
    const fv_response_limits *l = &s->limits;
    remove_expired(s);
    *kept = l->n_owner > 0 && bytes <= l->bytes_owner && bytes <= l->bytes_all;
    if (!*kept) return;
    r->bytes = bytes;
    s->bytes += bytes;
    r->until_s = fv_clock_s() + 1e-3 * (double)l->ms;
    r->n_ref++;
    r->listed = true;
    r->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = r;
    s->newest = r;
    s->n_listed++;
    make_room(s, &r->owner);
    while (s->oldest && (s->bytes > l->bytes_all || s->n_listed > LISTED_MAX))
        fv_response_store_remove(s, s->oldest);
}
