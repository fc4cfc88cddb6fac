#ifndef FOVEA_GATEWAY_INTERNAL_H
#define FOVEA_GATEWAY_INTERNAL_H

/* Shared by the files of the gateway only. A task answers a request: it is the request's user, and
 * is told when the request has ended or can be written to again. */
#include <jansson.h>

#include "gateway/access.h"
#include "gateway/alive.h"
#include "gateway/api/request.h"
#include "gateway/caller.h"
#include "gateway/fetch/fetch.h"
#include "gateway/gateway.h"
#include "gateway/ignored.h"
#include "gateway/reading.h"

typedef struct fv_gateway_task {
    void (*ended)(struct fv_gateway_task *t);    /* the HTTP request is gone */
    void (*writable)(struct fv_gateway_task *t); /* NULL: never streams */
    fv_reading *reading;                         /* reads the body; NULL: no body */
    fv_access_facts facts;                       /* for the access log */
} fv_gateway_task;

/* A router takes FV_CALLS_PER_CHANNEL calls on a connection; gRPC would queue more of them before
 * the router sees them. So many calls use several channels. */
enum { FV_CALLS_PER_CHANNEL = 100, FV_CHANNELS_MAX = 128 };

typedef struct fv_lane {
    fv_rpc_channel *channel; /* NULL: not yet needed */
    int32_t n_call;
} fv_lane;

struct fv_gateway {
    fv_gateway_options opt;
    fv_http *http;
    fv_fetcher *fetcher; /* NULL: not yet needed */
    fv_lane lanes[FV_CHANNELS_MAX];
    int32_t n_task; /* not freed yet */
    int32_t n_decoding;
    fv_known_callers *callers;
    fv_alive *alive;
    fv_ignored *ignored;
    struct fv_response_store *responses;
    fv_response_remote *remote;       /* NULL: responses are in memory */
    struct fv_responding *responding; /* responses that are being made; a list */
    size_t bodies;                    /* bytes of the bodies of requests that are not sent yet */
    bool leaving; /* health checks get 503, so that load balancers send requests elsewhere */
    bool closing, http_closed;
    void (*closed)(void *user);
    void *closed_user;
};

/* gateway.c: finds the first channel that has room. The caller counts its call in n_call. */
fv_status fv_gateway_lane(fv_gateway *g, fv_lane **out);
void fv_gateway_task_gone(fv_gateway *g);

/* Like fv_fetch_start; FV_EINVAL where no host is allowed. */
fv_status fv_gateway_fetch(fv_gateway *g, const char *url, fv_fetched done, void *user,
                           fv_fetch **out);

/* Gives the header Authorization as metadata for the router; *n is 0 without it, and where it is
 * for the gateway's own keys. Returns false, with the request refused, where the header cannot be
 * passed on. */
bool fv_gateway_caller(const fv_gateway *g, fv_http_request *r, fv_rpc_metadata *out, int32_t *n);

/* reply.c. Takes the JSON; NULL answers 500. */
void fv_reply_json(fv_http_request *r, unsigned status, json_t *json);
/* The error text of a failed call; hides gRPC's own about a lost router, which names addresses. */
const char *fv_end_text(const fv_rpc_end *end);
/* retry_ms below 0: no hint. */
void fv_reply_error(fv_http_request *r, fv_status st, const char *sentence, const char *param,
                    int64_t retry_ms);
void fv_reply_last_error(fv_http_request *r, fv_status st, const char *param);
/* The last error, with the field to blame in front of it. */
enum { FV_SENTENCE_MAX = 1024 };
void fv_last_sentence(const char *param, char out[FV_SENTENCE_MAX]);

/* generate.c, ask.c: begin a task for the request, or refuse it. */
void fv_generate(fv_gateway *g, fv_http_request *r, fv_api_kind kind);
void fv_show_tokens(fv_gateway *g, fv_http_request *r);
void fv_show_text(fv_gateway *g, fv_http_request *r);
void fv_list_models(fv_gateway *g, fv_http_request *r);
void fv_show_served(fv_gateway *g, fv_http_request *r); /* a model of the list, FV_MODEL_PATH ID */
void fv_show_tokenizer(fv_gateway *g, fv_http_request *r);
void fv_show_model(fv_gateway *g, fv_http_request *r);
void fv_show_fleet(fv_gateway *g, fv_http_request *r);
void fv_show_layout(fv_gateway *g, fv_http_request *r);
void fv_show_health(fv_gateway *g, fv_http_request *r);

/* responses.c: whose responses a caller's are. */
fv_status fv_gateway_owner(const fv_gateway *g, const char *tenant, const char *authorization,
                           fv_response_owner *out);

/* responses.c: a response, FV_RESPONSE_PATH ID, with the rest of its path. */
#define FV_RESPONSE_PATH "/v1/responses/"
void fv_show_response(fv_gateway *g, fv_http_request *r);
void fv_delete_response(fv_gateway *g, fv_http_request *r);
void fv_cancel_response(fv_gateway *g, fv_http_request *r);
void fv_list_response_input(fv_gateway *g, fv_http_request *r);

/* page.c: serves the files of page/. */
bool fv_is_page(const char *path);
void fv_show_page(fv_gateway *g, fv_http_request *r); /* for a path that fv_is_page accepts */

/* about.c: answers without the router. */
void fv_show_version(fv_gateway *g, fv_http_request *r);
void fv_show_metrics(fv_gateway *g, fv_http_request *r);
void fv_show_openapi(fv_gateway *g, fv_http_request *r);

/* routes.c */
#define FV_MODEL_PATH "/v1/models/"
void fv_route(fv_gateway *g, fv_http_request *r);
void fv_record_request(const fv_http_request *r); /* metrics of a request that has ended */
/* Gives OpenAPI's "paths": an object for each path, with what `operation` gives for each method. */
json_t *fv_route_paths(json_t *(*operation)(const char *method, const char *path));

#endif
