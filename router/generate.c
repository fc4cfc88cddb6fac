/* A client's call: checks and queues its request, and tells the request when the client disconnects,
 * or reads again. Loop thread. */
#include "router/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "router/balancer.h"
#include "router/record.h"
#include "rpc/message.h"
#include "serving/policy_message.h"

enum { QUEUE_FULL_RETRY_MS = 1000 };

static fv_relay *relay_of(const fv_rpc_call *c) { return *(fv_relay **)fv_rpc_call_service(c); }

static fv_status check_full(fv_rpc_call *c, fv_relay *relay, const fv_sharer *x, size_t bytes) {
    const fv_relay_options *opt = &relay->opt;
    fv_rpc_call_retry_after(c, QUEUE_FULL_RETRY_MS);
    if (!fv_queue_may_come(relay, x))
        return fv_record_refusal(
            FV_REASON_QUEUE_FULL,
            FV_FAIL(FV_EBUSY, "%d requests are already waiting; try again later", relay->n_queued));
    if (bytes > opt->bytes_max)
        return fv_record_refusal(FV_REASON_TOO_LARGE,
                                 FV_FAIL(FV_ENOMEM, "the request has %zu bytes; the limit is %zu",
                                         bytes, opt->bytes_max));
    if (bytes > 0 && !fv_queue_make_room(relay, x, bytes))
        return fv_record_refusal(
            FV_REASON_QUEUE_FULL,
            FV_FAIL(FV_EBUSY,
                    "%zu bytes of requests are already here; the limit is %zu; try again later",
                    relay->bytes, opt->bytes_max));
    return FV_OK;
}

/* Refuses a request that fits no worker, now or later, and therefore without a retry hint. */
static fv_status check_fits(const fv_request *r, const fv_fleet *f, const fv_need *need) {
    uint64_t p = fv_choose_largest(f, FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL);
    uint64_t d = fv_choose_largest(f, FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE);
    bool follows = r->msg->conversation.len > 0;
    if (p && !follows && need->bytes_prompt > p)
        return FV_FAIL(FV_ENOMEM,
                       "the prompt needs at least %" PRIu64
                       " bytes of KV, but the largest prefill worker has %" PRIu64
                       ": shorten it, or send fewer images",
                       need->bytes_prompt, p);
    if (d && (follows || need->max_tokens > 1) && need->bytes_least > d)
        return FV_FAIL(FV_ENOMEM,
                       "prompt and answer need at least %" PRIu64
                       " bytes of KV, but the largest decode worker has %" PRIu64
                       ": shorten the prompt, or ask for fewer than %" PRIu32 " tokens",
                       need->bytes_least, d, need->max_tokens);
    return FV_OK;
}

static fv_status record_caller(fv_status st) {
    return fv_record_refusal(st == FV_EDENIED ? FV_REASON_DENIED : FV_REASON_UNAUTHENTICATED, st);
}

static fv_status check_draining(fv_rpc_call *c, const fv_relay *relay) {
    if (!relay->draining) return FV_OK;
    fv_rpc_call_trailer(c, FV_RPC_RETRY_KEY, relay->again_ms);
    return fv_record_refusal(FV_REASON_DRAINING,
                             FV_FAIL(FV_EIO, "this router is shutting down: use another one, or "
                                             "try again later"));
}

fv_status fv_generate_check(fv_relay *relay, fv_rpc_call *c, fv_tenant_use *tenant) {
    fv_sharer *sharer;
    FV_TRY(check_draining(c, relay));
    FV_TRY(fv_sharers_take(relay->opt.sharers, tenant, c, &sharer));
    fv_status st = check_full(c, relay, sharer, 0);
    fv_sharer_give(sharer);
    FV_TRY(st);
    return fv_record_refusal(FV_REASON_TENANT_LIMIT, fv_tenancy_check(tenant, c));
}

/* Opens the request, which takes the sharer; on failure the caller still has it. */
static fv_status begin_request(fv_rpc_call *c, fv_relay *relay, fv_tenant_use *tenant,
                               fv_sharer *sharer, fv_request **out) {
    static const fv_work anything = {0};
    FV_TRY(check_full(c, relay, sharer, 0));
    fv_fleet *only = fv_registry_fleets(relay->opt.members);
    if (only && !only->next) FV_TRY(fv_relay_check_time(relay, only, c, sharer, &anything));
    return fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_request_open(relay, c, tenant, sharer, out));
}

/* Refuses what it can before the request's bytes are read. */
static fv_status on_start(fv_rpc_call *c) {
    fv_relay *relay = relay_of(c);
    fv_request *r;
    FV_TRY(check_draining(c, relay));
    fv_tenant_use *tenant;
    FV_TRY(record_caller(fv_tenancy_caller(relay->opt.tenancy, c, &tenant)));
    fv_sharer *sharer;
    FV_TRY(fv_sharers_take(relay->opt.sharers, tenant, c, &sharer));
    fv_status st = begin_request(c, relay, tenant, sharer, &r);
    if (st != FV_OK) {
        fv_sharer_give(sharer);
        return st;
    }
    fv_trace_begin(r);
    fv_rpc_call_set_user(c, r);
    return FV_OK;
}

static fv_status name_request(fv_request *r) {
    fv_relay *relay = r->relay;
    const char *own = r->msg->request_id;
    uint64_t drawn[3]; /* two for the secret, one for the id, which reveals nothing of it */
    if (own[0] && fv_relay_find(relay, r->tenant, own))
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

/* Checks that the tenant may use the policy. A kept conversation has the policy that it was begun with. */
static fv_status check_policy(const fv_request *r) {
    fv_policy policy;
    if (!r->tenant->limits || r->msg->conversation.len) return FV_OK;
    FV_TRY(fv_policy_from_message(r->msg->policy, &policy));
    return fv_tenancy_policy(r->tenant, &policy);
}

/* Gives the fleet for a request: a kept conversation's is its worker's, while that worker is known. */
static fv_status choose_fleet(const fv_request *r, fv_fleet **out) {
    const fv_registry *m = r->relay->opt.members;
    const ProtobufCBinaryData *c = &r->msg->conversation;
    char name[FV_CONVERSATION_BYTES_MAX + 1] = "";
    if (c->len > FV_CONVERSATION_ID_BYTES && c->len <= FV_CONVERSATION_BYTES_MAX)
        memcpy(name, c->data + FV_CONVERSATION_ID_BYTES, c->len - FV_CONVERSATION_ID_BYTES);
    const fv_registered_worker *w = fv_registry_find(m, name);
    if (!w || !fv_fleet_model(w->fleet)) return fv_registry_choose_fleet(m, r->msg->model, out);
    *out = w->fleet;
    return FV_OK;
}

/* Whether the request fits its tenant's KV and the workers'. */
static bool fits(const fv_request *r, const fv_fleet *f, const fv_need *need) {
    const uint64_t tenant = fv_tenancy_kv_bytes(r->tenant);
    return !(tenant && need->bytes_least > tenant) && check_fits(r, f, need) == FV_OK;
}

/* Checks the request. An answer without max_tokens may have the default, or so much less that KV for it
 * fits: KV is reserved for all tokens that an answer may have. */
static fv_status find_need(const fv_request *r, const fv_fleet *f, fv_need *need) {
    uint32_t tokens = r->relay->opt.max_tokens_default;
    FV_TRY(fv_admit(r->msg, fv_fleet_model(f), fv_fleet_keep_ms_max(f), tokens, need));
    while (!r->msg->max_tokens && need->max_tokens > FV_REQUEST_TOKENS_LEAST && !fits(r, f, need)) {
        tokens = need->max_tokens / 2;
        FV_TRY(fv_admit(r->msg, fv_fleet_model(f), fv_fleet_keep_ms_max(f), tokens, need));
    }
    return check_fits(r, f, need);
}

fv_status fv_request_admit(fv_request *r, fv_fleet *f) {
    fv_need need;
    FV_TRY(find_need(r, f, &need));
    fv_work work = fv_estimate_work(&f->estimate, need.tokens_known, need.tokens_text,
                                    need.max_tokens, r->msg->ignore_eos);
    work.pixels = need.pixels;
    fv_request_set_fleet(r, f, &need, &work);
    return FV_OK;
}

static fv_status record_admission(fv_status st) {
    if (st == FV_EIO) return fv_record_refusal(FV_REASON_NO_WORKER, st);
    if (st == FV_ENOMEM) return fv_record_refusal(FV_REASON_TOO_LARGE, st);
    return fv_record_invalid(st);
}

static fv_status on_request(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_request *r = fv_rpc_call_user(c);
    fv_relay *relay = r->relay;
    ProtobufCMessage *m;
    size_t bytes = grpc_byte_buffer_length(message);
    FV_TRY(check_full(c, relay, r->sharer, bytes));
    r->bytes = bytes;
    relay->bytes += bytes;
    fv_status st = fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, message,
                                 fv_rpc_call_arena(c), &m);
    if (st != FV_OK) return fv_record_invalid(st == FV_EDATA ? FV_EINVAL : st);
    r->msg = (const fv_request_message *)m;
    r->arrived_s = fv_clock_s();
    fv_fleet *f;
    FV_TRY(record_admission(choose_fleet(r, &f)));
    FV_TRY(record_admission(fv_request_admit(r, f)));
    FV_TRY(record_caller(check_policy(r)));
    if (!r->msg->conversation.len)
        FV_TRY(fv_relay_check_time(relay, r->fleet, c, r->sharer, &r->work));
    FV_TRY(fv_record_refusal(FV_REASON_TENANT_LIMIT,
                             fv_tenancy_take_pixels(r->tenant, r->need.pixels, c)));
    FV_TRY(fv_record_invalid(name_request(r)));
    fv_relay_place(r);
    fv_request_set_state(r, FV_REQUEST_QUEUED);
    fv_relay_dispatch(relay);
    return FV_OK;
}

static void on_writable(fv_rpc_call *c) {
    fv_request *r = fv_rpc_call_user(c);
    if (r->attempt) fv_attempt_resume(r->attempt);
    fv_answer_maybe_finish(r);
}

static void on_cancel(fv_rpc_call *c) {
    fv_request *r = fv_rpc_call_user(c);
    if (!r || r->state == FV_REQUEST_OVER) return;
    FV_LOG(INFO, ROUTER, "req=%s tenant?=%s trace?=%s event=cancelled tokens=%" PRIu32, r->id,
           r->tenant->name, r->trace_id, r->n_token);
    fv_request_end(r);
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_request *r = fv_rpc_call_user(c);
    fv_record_end(end);
    if (!r) return;
    fv_trace_end(r, end);
    fv_request_close(r);
}

const fv_rpc_events fv_generate_events = {.on_start = on_start,
                                          .on_message = on_request,
                                          .on_writable = on_writable,
                                          .on_cancel = on_cancel,
                                          .on_end = on_end};
