#ifndef FOVEA_GATEWAY_READING_H
#define FOVEA_GATEWAY_READING_H

/* READING: from the headers of an HTTP request to the request that its body is.
 *
 *   headers --> who asks? the router knows (caller.h) --> the body, piece by piece, into gateway/api --> done
 *                 '-- no: 401, 403, 429, 503; nothing of the body is read    '-- wrong: 400, 413, 503
 *
 * Loop thread. */
#include "gateway/caller.h"
#include "gateway/held.h"
#include "gateway/http/http.h"

typedef struct fv_reading {
    fv_held *held;           /* the request's memory; NULL: gone */
    fv_api_request *request; /* borrowed */
    fv_rpc_metadata
        caller; /* [n_caller] of the header Authorization, borrowed from the HTTP request */
    int32_t n_caller;
    /* private */
    fv_gateway *gateway;
    fv_http_request *http;
    fv_api_kind kind;
    fv_api_reader *reader;        /* NULL: not begun, or over */
    fv_caller_question *question; /* NULL: not asked */
    size_t bytes;                 /* of the body, counted in the gateway */
    void (*done)(void *user);
    void *user;
} fv_reading;

/* Begins with a request whose user is set. `done` runs once, when *request is complete, unless the reading ends before; or
 * the HTTP request has been answered with what is wrong. */
void fv_reading_begin(fv_reading *r, fv_gateway *g, fv_http_request *http, fv_api_kind kind,
                      fv_api_request *request, void (*done)(void *user), void *user);

/* The body is there. */
void fv_reading_complete(fv_reading *r);

/* The request's memory is needed no more, or its client is gone. Again is fine. */
void fv_reading_end(fv_reading *r);

#endif
