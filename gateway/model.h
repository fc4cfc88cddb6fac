#ifndef FOVEA_GATEWAY_MODEL_H
#define FOVEA_GATEWAY_MODEL_H

/* MODEL: asks the router how a request's model lays out images and videos, and calls tools. Loop
 * thread. */
#include "gateway/internal.h"
#include "layout/layout.h"

typedef struct fv_model_question fv_model_question; /* opaque */

typedef struct fv_model_facts {
    fv_layout_config layout;
    const char *tool_parser; /* the form of its tool calls (text/calls/calls.h); "": not known */
} fv_model_facts;

/* facts: NULL unless end->status is FV_OK. Both are valid during the call. */
typedef void (*fv_model_known)(void *user, const fv_rpc_end *end, const fv_model_facts *facts);

/* Asks for the model of this name; NULL or "": the only one. client: the caller's address, for the
 * router's log. Calls `known` once, later, unless *out is freed before. */
fv_status fv_model_ask(fv_gateway *g, const char *name, const char *client,
                       const fv_rpc_metadata *caller, int32_t n_caller, fv_model_known known,
                       void *user, fv_model_question **out);

/* May be called in `known`. NULL is fine. */
void fv_model_question_free(fv_model_question *q);

#endif
