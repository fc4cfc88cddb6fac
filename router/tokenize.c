/* Calls that any prefill worker answers. What was lost on the way is UNAVAILABLE: the client sends it
 * again. */
#include "router/tokenize.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "router/admit.h"
#include "router/balancer.h"

enum { DEADLINE_MS = 30000 };

typedef struct passing {
    fv_rpc_call *client; /* NULL: it has gone */
} passing;

static void on_reply(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    passing *p = user;
    (void)call;
    if (p->client) {
        fv_rpc_call_set_user(p->client, NULL);
        fv_status st = end->status == FV_OK
                           ? fv_rpc_call_send_buffer(p->client, grpc_byte_buffer_copy(reply))
                           : fv_fail_origin(FV_FAIL(end->status, "%s", end->text), end->origin);
        fv_rpc_call_finish(p->client, st);
    }
    free(p);
}

static fv_status choose(const fv_registry *members, const char *model, fv_registered_worker **out) {
    fv_fleet *f;
    FV_TRY(fv_registry_choose_fleet(members, model, &f));
    fv_constraints any = {.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL,
                          .exclude = "",
                          .wake = true,
                          .now_s = fv_clock_s()};
    *out = fv_balance(f, &any);
    return *out ? FV_OK : FV_FAIL(FV_EIO, "no prefill worker is ready; try again later");
}

static fv_status pass_on(fv_rpc_call *c, const fv_registry *members, const char *model,
                         const char *method, const ProtobufCMessage *request) {
    fv_registered_worker *w;
    char token[FV_CALL_TOKEN_MAX];
    FV_TRY(choose(members, model, &w));
    FV_TRY(fv_registry_token(members, w, method, "", "", FV_CALL_VALID_MS, token));
    passing *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    int64_t left_ms = fv_rpc_call_left_ms(c);
    fv_rpc_metadata metadata = {FV_CALL_TOKEN_KEY, token};
    fv_rpc_call_options opt = {.path = method,
                               .request = request,
                               .deadline_ms = left_ms < DEADLINE_MS ? left_ms : DEADLINE_MS,
                               .parent = c,
                               .metadata = &metadata,
                               .n_metadata = token[0] != 0,
                               .queue_max = 2 * FV_TOKENIZE_BYTES_MAX};
    p->client = c;
    fv_status st = fv_rpc_unary_with(w->channel, &opt, on_reply, p, NULL);
    if (st == FV_OK)
        fv_rpc_call_set_user(c, p);
    else
        free(p);
    return st;
}

fv_status fv_tokenize(fv_rpc_call *c, grpc_byte_buffer *message, const fv_registry *members) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__tokenize_request__descriptor, message, &m));
    return pass_on(c, members, ((const Fovea__Inference__V1__TokenizeRequest *)m)->model,
                   "/fovea.handoff.v1.Prefill/Tokenize", m);
}

fv_status fv_detokenize(fv_rpc_call *c, grpc_byte_buffer *message, const fv_registry *members) {
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_call_unpack(c, &fovea__inference__v1__detokenize_request__descriptor, message, &m));
    return pass_on(c, members, ((const Fovea__Inference__V1__DetokenizeRequest *)m)->model,
                   "/fovea.handoff.v1.Prefill/Detokenize", m);
}

void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    passing *p = fv_rpc_call_user(c);
    (void)end;
    if (p) p->client = NULL;
}
