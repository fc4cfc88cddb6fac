/* A client's call: checks and queues its request, and tells the request when the client disconnects,
 * or reads again. Loop thread. */
#include "router/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "router/admission.h"
#include "router/answer.h"
#include "router/kept.h"
#include "router/record.h"
#include "rpc/message.h"

static fv_relay *relay_of(const fv_rpc_call *c) { return *(fv_relay **)fv_rpc_call_service(c); }

fv_status fv_generate_check(fv_relay *relay, fv_rpc_call *c, fv_tenant_use *tenant) {
    fv_account *sharer;
    FV_TRY(fv_admission_check_open(relay, c));
    FV_TRY(fv_accounts_take(relay->opt.sharers, tenant, c, &sharer));
    fv_status st = fv_admission_make_room(relay, c, sharer, 0);
    fv_account_give(sharer);
    FV_TRY(st);
    return fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_tenancy_check(tenant, FV_TENANT_REQUEST, c));
}

/* Opens the request, which takes the sharer; on failure the caller still has it. */
static fv_status begin_request(fv_rpc_call *c, fv_relay *relay, fv_tenant_use *tenant,
                               fv_account *sharer, fv_request **out) {
    static const fv_work anything = {0};
    FV_TRY(fv_admission_make_room(relay, c, sharer, 0));
    fv_fleet *only = fv_registry_fleets(relay->opt.members);
    if (only && !only->next) FV_TRY(fv_admission_check_time(relay, only, c, sharer, &anything));
    return fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_request_open(relay, c, tenant, sharer, out));
}

static void begin_span(fv_request *r) {
    fv_trace_context parent = fv_rpc_call_trace(r->client);
    if (!fv_trace_known(&parent)) parent = fv_span_new_trace();
    r->span = fv_span_begin("Generate", FV_SPAN_SERVER, &parent, r->arrived_s);
    fv_trace_id_print(&r->span.context, r->trace_id);
}

/* Refuses what it can before the request's bytes are read. */
static fv_status on_start(fv_rpc_call *c) {
    fv_relay *relay = relay_of(c);
    fv_request *r;
    FV_TRY(fv_admission_check_open(relay, c));
    fv_tenant_use *tenant;
    FV_TRY(fv_admission_record_caller(fv_tenancy_caller(relay->opt.tenancy, c, &tenant)));
    fv_account *sharer;
    FV_TRY(fv_accounts_take(relay->opt.sharers, tenant, c, &sharer));
    fv_status st = begin_request(c, relay, tenant, sharer, &r);
    if (st != FV_OK) {
        fv_account_give(sharer);
        return st;
    }
    begin_span(r);
    fv_rpc_call_set_user(c, r);
    return FV_OK;
}

static fv_status name_request(fv_request *r) {
    fv_relay *relay = r->relay;
    const char *own = r->msg->request_id;
    uint64_t drawn[3]; /* two for the secret, one for the id, which reveals nothing of it */
    if (own[0] && fv_request_find(relay, r->tenant, own))
        return FV_FAIL(FV_EINVAL, "request_id %s is already running", own);
    FV_TRY(fv_random_bytes(drawn, sizeof drawn));
    snprintf(r->abort_token, sizeof r->abort_token, "%.*s/%016" PRIx64 "%016" PRIx64,
             FV_ROUTER_ID_MAX, relay->opt.router_id, drawn[0], drawn[1]);
    if (own[0])
        snprintf(r->id, sizeof r->id, "%s", own);
    else
        snprintf(r->id, sizeof r->id, "req-%016" PRIx64, drawn[2]);
    const char *tenant = r->tenant->name;
    snprintf(r->fleet_id, sizeof r->fleet_id, "%.*s/%s%s%s", FV_ROUTER_ID_MAX, relay->opt.router_id,
             tenant, *tenant ? "/" : "", r->id);
    return FV_OK;
}

static fv_status on_request(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_request *r = fv_rpc_call_user(c);
    fv_relay *relay = r->relay;
    ProtobufCMessage *m;
    size_t bytes = grpc_byte_buffer_length(message);
    FV_TRY(fv_admission_make_room(relay, c, r->sharer, bytes));
    r->bytes = bytes;
    relay->bytes += bytes;
    fv_status st =
        fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, message, &r->arena, &m);
    if (st != FV_OK) return fv_record_invalid(st == FV_EDATA ? FV_EINVAL : st);
    r->msg = (const fv_request_message *)m;
    r->arrived_s = fv_clock_s();
    FV_TRY(fv_admission_check(r));
    if (!r->msg->conversation.len)
        FV_TRY(fv_admission_check_time(relay, r->fleet, c, r->sharer, &r->work));
    FV_TRY(fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_tenancy_take_pixels(r->tenant, r->need.pixels, c)));
    FV_TRY(fv_record_invalid(name_request(r)));
    fv_kept_name(r);
    fv_queue_insert(r);
    fv_request_enqueue(r);
    return FV_OK;
}

static void on_writable(fv_rpc_call *c) {
    fv_request *r = fv_rpc_call_user(c);
    if (r->attempt) fv_attempt_resume(r->attempt);
    fv_answer_finish_if_complete(r);
}

static void on_cancel(fv_rpc_call *c) {
    fv_request *r = fv_rpc_call_user(c);
    if (!r || !fv_request_is_active(r)) return;
    FV_LOG(INFO, ROUTER, "req=%s tenant?=%s trace?=%s event=cancelled tokens=%" PRIu32, r->id,
           r->tenant->name, r->trace_id, r->n_token);
    fv_request_end(r);
}

/* Does nothing if the answer has ended the span (router/answer.c). */
static void end_span(const fv_request *r, const fv_rpc_end *end) {
    const fv_span_field fields[] = {{"fovea.request_id", .text = r->id},
                                    {"fovea.tenant", .text = r->tenant->name},
                                    {"gen_ai.usage.output_tokens", .number = r->n_token},
                                    {"fovea.replays", .number = r->n_replay}};
    fv_span_end(&r->span, fv_clock_s(), (int)end->code, FV_SPAN_FIELDS(fields));
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_request *r = fv_rpc_call_user(c);
    fv_record_end(end);
    if (!r) return;
    end_span(r, end);
    fv_request_close(r);
}

const fv_rpc_events fv_generate_events = {.on_start = on_start,
                                          .on_message = on_request,
                                          .on_writable = on_writable,
                                          .on_cancel = on_cancel,
                                          .on_end = on_end};
