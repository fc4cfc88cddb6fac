/* Calls GetModel. */
#include "gateway/model.h"

#include <stdlib.h>

#include "serving/layout_message.h"

enum { MODEL_MS = 30000 };

struct fv_model_question {
    fv_gateway *gateway;
    fv_lane *lane;
    fv_rpc_call *call;    /* NULL: over */
    fv_model_known known; /* NULL: freed by its owner */
    void *user;
};

static void release(fv_model_question *q) {
    fv_gateway *g = q->gateway;
    free(q);
    fv_gateway_task_gone(g);
}

/* *out borrows from the call. */
static fv_status read_facts(fv_rpc_call *call, grpc_byte_buffer *reply, fv_model_facts *out) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(call, &fovea__inference__v1__model__descriptor, reply, &m));
    const Fovea__Inference__V1__Model *model = (const Fovea__Inference__V1__Model *)m;
    out->tool_parser = model->tool_parser;
    return fv_layout_from_message(model->image_layout, &out->layout);
}

static void on_model(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    fv_model_question *q = user;
    fv_model_facts facts;
    fv_rpc_end said = *end;
    q->call = NULL;
    q->lane->n_call--;
    if (!q->known) {
        release(q);
        return;
    }
    if (said.status == FV_OK && read_facts(call, reply, &facts) != FV_OK) {
        said.status = FV_EDATA;
        said.text = fv_last_error();
    }
    q->known(q->user, &said, said.status == FV_OK ? &facts : NULL);
}

fv_status fv_model_ask(fv_gateway *g, const char *name, const char *client,
                       const fv_rpc_metadata *caller, int32_t n_caller, fv_model_known known,
                       void *user, fv_model_question **out) {
    Fovea__Inference__V1__GetModelRequest m = FOVEA__INFERENCE__V1__GET_MODEL_REQUEST__INIT;
    fv_model_question *q = calloc(1, sizeof *q);
    if (!q) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *q = (fv_model_question){.gateway = g, .known = known, .user = user};
    if (name) m.model = (char *)(uintptr_t)name;
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/GetModel",
                               .forwarded_for = client,
                               .request = &m.base,
                               .deadline_ms = MODEL_MS,
                               .metadata = caller,
                               .n_metadata = n_caller};
    fv_status st = fv_gateway_lane(g, &q->lane);
    if (st == FV_OK) st = fv_rpc_unary_with(q->lane->channel, &opt, on_model, q, &q->call);
    if (st != FV_OK) {
        free(q);
        return st;
    }
    q->lane->n_call++;
    g->n_task++;
    *out = q;
    return FV_OK;
}

void fv_model_question_free(fv_model_question *q) {
    if (!q) return;
    q->known = NULL;
    if (q->call)
        fv_rpc_call_cancel(q->call); /* on_model releases q */
    else
        release(q);
}
