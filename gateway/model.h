#ifndef FOVEA_GATEWAY_MODEL_H
#define FOVEA_GATEWAY_MODEL_H

/* MODEL: how the model of a request reads images and videos, which the router says. Loop thread. */
#include "gateway/internal.h"
#include "layout/layout.h"

typedef struct fv_model_question fv_model_question; /* opaque */

/* layout: NULL unless end->status is FV_OK. Both are valid during the call. */
typedef void (*fv_model_known)(void *user, const fv_rpc_end *end, const fv_layout_config *layout);

/* name: of the model; NULL or "": the only one. client: its address, for the router's log. Calls `known` once, later, unless it is freed before. */
fv_status fv_model_ask(fv_gateway *g, const char *name, const char *client,
                       const fv_rpc_metadata *caller, int32_t n_caller, fv_model_known known,
                       void *user, fv_model_question **out);

/* In `known`, too. NULL is fine. */
void fv_model_question_free(fv_model_question *q);

#endif
