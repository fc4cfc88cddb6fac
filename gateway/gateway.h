#ifndef FOVEA_GATEWAY_GATEWAY_H
#define FOVEA_GATEWAY_GATEWAY_H

/* THE GATEWAY: serves OpenAI's HTTP API as a gRPC client of the router. routes.c lists the paths;
 * generate.c serves completions, ask.c endpoints with one reply. Loop thread. */
#include "gateway/access.h"
#include "gateway/http/http.h"
#include "gateway/http/origin.h"
#include "gateway/keys.h"
#include "gateway/response_remote.h"
#include "gateway/response_store.h"
#include "rpc/client.h"

typedef struct fv_gateway fv_gateway; /* opaque */

typedef struct fv_gateway_options {
    fv_bridge *bridge;          /* borrowed */
    const char *listen;         /* for clients; borrowed */
    fv_tls *client_tls;         /* for clients; borrowed; NULL: plain text */
    const char *router;         /* "HOST:PORT"; borrowed */
    fv_rpc_channel_options tls; /* for the router; {0}: plain text */
    fv_origin_rules origin;     /* `local` follows from `listen` */
    size_t body_max, bodies_max;
    size_t json_max;     /* bytes of a body outside its data: URLs */
    bool chat_templates; /* requests may bring a chat template */
    int32_t connections, per_address, read_ms, write_ms;
    const fv_trusted *trusted; /* proxies; borrowed; NULL: none */
    int64_t deadline_ms;       /* deadline of a request */
    int32_t keep_alive_ms;     /* time after which a stream that waits gets a comment; 0: none */
    fv_access_form access;
    bool strict_fields; /* refuse fields that have no effect */
    fv_response_limits responses;
    /* Responses are kept in this Redis server instead of in memory; url NULL: none. Its loop is the gateway's. */
    fv_response_remote_options responses_store;
    const fv_keys *keys; /* of callers; borrowed; NULL: the router decides who may call */
    /* [n_image_host] hosts whose http(s) images are fetched; see gateway/fetch/fetch.h */
    const char *const *image_hosts;
    int32_t n_image_host;
    size_t image_bytes;                            /* limit of one image */
    int64_t image_ms;                              /* time limit of one fetch */
    const char *image_ca;                          /* PEM file for https; NULL: the system's */
    bool (*may_connect)(const struct sockaddr *a); /* NULL except in tests */
} fv_gateway_options;

fv_status fv_gateway_open(const fv_gateway_options *opt, fv_gateway **out);
const char *fv_gateway_address(const fv_gateway *g);

void fv_gateway_report_leaving(
    fv_gateway *g);                   /* health checks get 503, and answers end their connections */
void fv_gateway_leave(fv_gateway *g); /* stops accepting connections */
bool fv_gateway_idle(const fv_gateway *g);
void fv_gateway_measure(const fv_gateway *g); /* sets the gauges of telemetry/metrics.h */

/* Ends all requests. Calls `closed` once `g` is freed; at once where `g` is NULL. */
void fv_gateway_close(fv_gateway *g, void (*closed)(void *user), void *user);

#endif
