/* Forwards calls to any prefill worker. A call that is lost on the way ends as UNAVAILABLE, and the client may
 * send it again. */
#include "router/tokenize.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "router/admit.h"
#include "router/balancer.h"
#include "router/record.h"

enum { DEADLINE_MS = 30000, BUSY_RETRY_MS = 1000 };

/* A call that is forwarded; lives until the client's call and the worker's have both ended. */
typedef struct forwarded_call {
    fv_tokenize_calls *calls;
    fv_tenant_use *tenant;
    fv_rpc_call *client; /* NULL: its call is over */
    bool awaits_reply;   /* the worker has been asked and has not answered */
    bool counted;        /* against the limits, with `bytes` */
    size_t bytes;        /* of the request */
} forwarded_call;

/* ---- limits ------------------------------------------------------------------------------ */

static fv_status check_all(const fv_tokenize_calls *calls, fv_rpc_call *c, size_t bytes) {
    if (calls->n < FV_TOKENIZE_ALL_MAX && calls->bytes + bytes <= FV_TOKENIZE_BYTES_ALL)
        return FV_OK;
    fv_rpc_call_retry_after(c, BUSY_RETRY_MS);
    return fv_record_refusal(
        FV_REASON_QUEUE_FULL,
        FV_FAIL(FV_EBUSY,
                "%d calls of Tokenize and Detokenize are already running: try again later",
                calls->n));
}

fv_status fv_tokenize_check(const fv_tokenize_calls *calls, fv_rpc_call *c, fv_tenant_use *tenant) {
    FV_TRY(check_all(calls, c, 0));
    return fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_tenancy_check(tenant, FV_TENANT_TOKENIZE, c));
}

/* Counts a call when its request has arrived: a call that sends none takes no place. */
static fv_status count_call(forwarded_call *p, size_t bytes) {
    FV_TRY(check_all(p->calls, p->client, bytes));
    FV_TRY(fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_tenancy_begin(p->tenant, FV_TENANT_TOKENIZE, p->client)));
    p->counted = true;
    p->bytes = bytes;
    p->calls->n++;
    p->calls->bytes += bytes;
    return FV_OK;
}

/* Frees a call when both ends are done: the worker is busy with it until it answers, even if the client leaves. */
static void maybe_free(forwarded_call *p) {
    if (p->client || p->awaits_reply) return;
    if (p->counted) {
        fv_tenancy_end(p->tenant, FV_TENANT_TOKENIZE);
        p->calls->n--;
        p->calls->bytes -= p->bytes;
    }
    free(p);
}

/* ---- passing on -------------------------------------------------------------------------- */

static void on_reply(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    forwarded_call *p = user;
    (void)call;
    p->awaits_reply = false;
    if (p->client) {
        fv_status st = end->status == FV_OK
                           ? fv_rpc_call_send_buffer(p->client, grpc_byte_buffer_copy(reply))
                           : fv_fail_origin(FV_FAIL(end->status, "%s", end->text), end->origin);
        fv_rpc_call_finish(p->client, st);
    }
    maybe_free(p);
}

static fv_status choose(const fv_registry *members, const char *model, fv_registered_worker **out) {
    fv_fleet *f;
    FV_TRY(fv_registry_choose_fleet(members, model, &f));
    fv_constraints any = {
        .role = FV_WORKER_PREFILL, .exclude = "", .ignore_backoff = true, .now_s = fv_clock_s()};
    *out = fv_balance(f, &any);
    return *out ? FV_OK : FV_FAIL(FV_EIO, "no prefill worker is ready; try again later");
}

static fv_status forward(forwarded_call *p, const char *model, const char *method,
                         const ProtobufCMessage *request) {
    const fv_registry *members = p->calls->members;
    fv_registered_worker *w;
    char token[FV_CALL_TOKEN_MAX];
    FV_TRY(choose(members, model, &w));
    FV_TRY(fv_registry_token(members, w, method, "", "", FV_CALL_VALID_MS, token));
    int64_t left_ms = fv_rpc_call_left_ms(p->client);
    fv_rpc_metadata metadata = {FV_CALL_TOKEN_KEY, token};
    fv_rpc_call_options opt = {.path = method,
                               .request = request,
                               .deadline_ms = left_ms < DEADLINE_MS ? left_ms : DEADLINE_MS,
                               .parent = p->client,
                               .metadata = &metadata,
                               .n_metadata = token[0] != 0,
                               .queue_max = 2 * FV_TOKENIZE_BYTES_MAX};
    FV_TRY(fv_rpc_unary_with(w->channel, &opt, on_reply, p, NULL));
    p->awaits_reply = true;
    return FV_OK;
}

fv_status fv_tokenize_on_start(fv_rpc_call *c, fv_tokenize_calls *calls) {
    fv_tenant_use *tenant;
    FV_TRY(fv_tenancy_caller(calls->tenancy, c, &tenant));
    FV_TRY(fv_tokenize_check(calls, c, tenant));
    forwarded_call *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *p = (forwarded_call){.calls = calls, .tenant = tenant, .client = c};
    fv_rpc_call_set_user(c, p);
    return FV_OK;
}

fv_status fv_tokenize(fv_rpc_call *c, grpc_byte_buffer *message) {
    forwarded_call *p = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(count_call(p, grpc_byte_buffer_length(message)));
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__tokenize_request__descriptor, message, &m));
    return forward(p, ((const Fovea__Inference__V1__TokenizeRequest *)m)->model,
                   "/fovea.handoff.v1.Prefill/Tokenize", m);
}

fv_status fv_detokenize(fv_rpc_call *c, grpc_byte_buffer *message) {
    forwarded_call *p = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(count_call(p, grpc_byte_buffer_length(message)));
    FV_TRY(
        fv_rpc_call_unpack(c, &fovea__inference__v1__detokenize_request__descriptor, message, &m));
    return forward(p, ((const Fovea__Inference__V1__DetokenizeRequest *)m)->model,
                   "/fovea.handoff.v1.Prefill/Detokenize", m);
}

fv_status fv_get_tokenizer(fv_rpc_call *c, grpc_byte_buffer *message) {
    forwarded_call *p = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(count_call(p, grpc_byte_buffer_length(message)));
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__get_tokenizer_request__descriptor, message,
                              &m));
    return forward(p, ((const Fovea__Inference__V1__GetTokenizerRequest *)m)->model,
                   "/fovea.handoff.v1.Prefill/GetTokenizer", m);
}

void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    forwarded_call *p = fv_rpc_call_user(c);
    (void)end;
    if (!p) return;
    p->client = NULL;
    maybe_free(p);
}
