#ifndef FOVEA_GATEWAY_RESPONSE_STORE_H
#define FOVEA_GATEWAY_RESPONSE_STORE_H

/* RESPONSE STORE: responses that are kept, each for its owner alone: the caller's tenant, or where there
 * are none, those who show the same header Authorization.
 *
 * A response keeps its own input, its output and its JSON, and refers to the response that it
 * continues, so that a long conversation is kept once. Limits of an owner: number and bytes; of all:
 * bytes. What exceeds them ends the oldest ones, as time does. Memory only; loop thread. */
#include <grpc/byte_buffer.h>
#include <jansson.h>

#include "auth/mac.h"
#include "common/status.h"
#include "gateway/api/request.h"

typedef struct fv_response_limits {
    int64_t n_owner; /* of an owner's responses; 0: none is kept */
    size_t bytes_owner, bytes_all;
    int64_t ms; /* time that a response is kept */
} fv_response_limits;

typedef struct fv_response_owner {
    uint8_t mac[FV_MAC_BYTES];
} fv_response_owner;

/* A response, kept by references. */
typedef struct fv_kept_response {
    fv_response_owner owner;
    char id[FV_API_RESPONSE_ID_MAX + 1];
    struct fv_kept_response *previous; /* holds a reference; NULL: none */
    grpc_byte_buffer *input;  /* a GenerateRequest with the turns and images of its input; owned */
    grpc_byte_buffer *output; /* a Turn; owned */
    json_t *json;             /* the response; owned */
    int32_t depth;            /* responses that it continues */
    /* private */
    struct fv_response_store *store;
    int32_t n_ref;
    size_t bytes;
    double until_s;
    struct fv_kept_response *older, *newer; /* in the list */
    bool listed;
} fv_kept_response;

typedef struct fv_response_store fv_response_store; /* opaque */

fv_status fv_response_store_open(const fv_response_limits *limits, fv_response_store **out);
void fv_response_store_close(fv_response_store *s); /* NULL is fine; no reference is left */

/* FV_EINVAL: the header is too long. authorization: NULL: none. _by: with another key than the store's own, random one. */
fv_status fv_response_owner_by(const fv_key *key, const char *tenant, const char *authorization,
                               fv_response_owner *out);
fv_status fv_response_owner_of(const fv_response_store *s, const char *tenant,
                               const char *authorization, fv_response_owner *out);

/* Finds a response and gives a reference. FV_ENOTFOUND: there is none, it is over, or it is somebody
 * else's. */
fv_status fv_response_store_find(fv_response_store *s, const fv_response_owner *owner,
                                 const char *id, fv_kept_response **out);

/* Makes an empty response with one reference. */
fv_status fv_kept_response_new(fv_response_store *s, fv_kept_response **out);
void fv_kept_response_unref(fv_kept_response *r); /* NULL is fine */

/* Lists a complete response; takes a reference of its own. *kept: false where it exceeds the limits by
 * itself. n_json: bytes of its JSON as text; more: bytes that it has as a tree beyond what is usual. */
void fv_response_store_put(fv_response_store *s, fv_kept_response *r, size_t n_json, size_t more,
                           bool *kept);

/* Removes a response from the list. */
void fv_response_store_remove(fv_response_store *s, fv_kept_response *r);

size_t fv_response_store_bytes(const fv_response_store *s);

#endif
