#ifndef FOVEA_GATEWAY_READING_H
#define FOVEA_GATEWAY_READING_H

/* READING: reads an HTTP request, from its headers to the decoded body.
 *   headers --> may the caller ask? (caller.h) --> the body, by pieces, into gateway/api --> done
 *                 '-- no: 401, 403, 429, 503; body not read    '-- invalid: 400, 413, 503
 *
 * Loop thread. */
#include "gateway/caller.h"
#include "gateway/held.h"
#include "gateway/http/http.h"

typedef struct fv_reading {
    fv_request_memory *held; /* the request's memory; NULL: gone */
    fv_api_request *request; /* borrowed */
    fv_rpc_metadata
        caller; /* [n_caller] the header Authorization; borrowed from the HTTP request */
    int32_t n_caller;
    char tenant[FV_TENANT_NAME_MAX + 1]; /* the caller's, once known; "": none */
    /* private */
    fv_gateway *gateway;
    fv_http_request *http;
    fv_api_kind kind;
    fv_api_reader *reader;        /* NULL: not reading a body */
    fv_caller_question *question; /* NULL: not asked */
    size_t bytes;                 /* of the body, counted in gateway->bodies */
    void (*done)(void *user);
    void *user;
} fv_reading;

/* Starts reading; the HTTP request's user must be set. Calls `done` once, when *request is
 * complete, unless the reading ends before or the HTTP request is answered with an error. */
void fv_reading_begin(fv_reading *r, fv_gateway *g, fv_http_request *http, fv_api_kind kind,
                      fv_api_request *request, void (*done)(void *user), void *user);

/* To be called when the body has arrived. */
void fv_reading_complete(fv_reading *r);

/* Drops the request's memory, once it is no longer needed or its client is gone. May be called
 * again. */
void fv_reading_end(fv_reading *r);

#endif
