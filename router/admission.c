/* The checks of a new request. Loop thread. */
#include "router/admission.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "router/balancer.h"
#include "router/record.h"
#include "serving/policy_message.h"

enum { QUEUE_FULL_RETRY_MS = 1000 };

fv_status fv_admission_check_open(const fv_relay *relay, fv_rpc_call *c) {
    if (!relay->draining) return FV_OK;
    fv_rpc_call_trailer(c, FV_RPC_RETRY_KEY, relay->again_ms);
    return fv_record_refusal(FV_REASON_DRAINING,
                             FV_FAIL(FV_EIO, "this router is shutting down: use another one, or "
                                             "try again later"));
}

fv_status fv_admission_make_room(fv_relay *relay, fv_rpc_call *c, const fv_account *x,
                                 size_t bytes) {
    const fv_relay_options *opt = &relay->opt;
    fv_rpc_call_retry_after(c, QUEUE_FULL_RETRY_MS);
    if (!fv_queue_admits(relay, x))
        return fv_record_refusal(
            FV_REASON_QUEUE_FULL,
            FV_FAIL(FV_EBUSY, "%d requests are already waiting: try again later", relay->n_queued));
    if (bytes > opt->bytes_max)
        return fv_record_refusal(FV_REASON_TOO_LARGE,
                                 FV_FAIL(FV_ENOMEM,
                                         "the request has %zu bytes; the limit is %zu: send fewer "
                                         "or smaller images",
                                         bytes, opt->bytes_max));
    if (bytes > 0 && !fv_queue_make_room(relay, x, bytes))
        return fv_record_refusal(
            FV_REASON_QUEUE_FULL,
            FV_FAIL(
                FV_EBUSY,
                "waiting and running requests already take %zu bytes; the limit is %zu: try again "
                "later",
                relay->bytes, opt->bytes_max));
    return FV_OK;
}

/* An idle fleet tries every request, because its measurements may be old. */
fv_status fv_admission_check_time(fv_relay *relay, fv_fleet *f, fv_rpc_call *client,
                                  const fv_account *sharer, const fv_work *w) {
    const fv_relay_options *opt = &relay->opt;
    double left_ms = fmin((double)fv_rpc_call_left_ms(client), (double)opt->deadline_ms), retry_s;
    if (f->n_queued + f->n_running == 0) return FV_OK;
    fv_work ahead = fv_queue_ahead(relay, f, sharer);
    fv_outlook o = fv_deadline_look(&f->estimate, f->first, &ahead, w);
    fv_status st = fv_deadline_admit(&o, 1e-3 * left_ms, &retry_s);
    relay->n_refused += st != FV_OK;
    (void)fv_record_refusal(FV_REASON_DEADLINE, st);
    if (st == FV_EBUSY) fv_rpc_call_retry_after(client, (int64_t)ceil(1e3 * retry_s));
    return st;
}

/* ---- the message ------------------------------------------------------------------------ */

/* Refuses a request that fits no worker, now or later, and therefore without a retry hint. */
static fv_status check_fits(const fv_request *r, const fv_fleet *f, const fv_request_bounds *need) {
    uint64_t p = fv_balance_largest_capacity(f, FV_WORKER_PREFILL);
    uint64_t d = fv_balance_largest_capacity(f, FV_WORKER_DECODE);
    bool continues = r->msg->conversation.len > 0;
    if (p && !continues && need->bytes_prompt > p)
        return FV_FAIL(FV_ENOMEM,
                       "the prompt needs at least %" PRIu64
                       " bytes of KV, but the largest prefill worker has %" PRIu64
                       ": shorten it, or send fewer images",
                       need->bytes_prompt, p);
    if (d && (continues || need->max_tokens > 1) && need->bytes_least > d)
        return FV_FAIL(FV_ENOMEM,
                       "prompt and answer need at least %" PRIu64
                       " bytes of KV, but the largest decode worker has %" PRIu64
                       ": shorten the prompt, or ask for fewer than %" PRIu32 " tokens",
                       need->bytes_least, d, need->max_tokens);
    return FV_OK;
}

/* Whether the request fits its tenant's KV and the workers'. */
static bool fits(const fv_request *r, const fv_fleet *f, const fv_request_bounds *need) {
    const uint64_t tenant = fv_tenancy_kv_bytes(r->tenant);
    return !(tenant && need->bytes_least > tenant) && check_fits(r, f, need) == FV_OK;
}

/* Checks the request. An answer without max_tokens may have the default; the decode worker gives it fewer where
 * only those fit. In a kept conversation it may have so many that KV for all of them fits, as it is reserved. */
static fv_status find_need(const fv_request *r, const fv_fleet *f, fv_request_bounds *need) {
    uint32_t tokens = r->relay->opt.max_tokens_default;
    FV_TRY(fv_admit(r->msg, fv_fleet_model(f), fv_fleet_keep_ms_max(f), tokens, need));
    while (!r->msg->max_tokens && !need->open_ended && need->max_tokens > FV_REQUEST_TOKENS_LEAST &&
           !fits(r, f, need)) {
        tokens = need->max_tokens / 2;
        FV_TRY(fv_admit(r->msg, fv_fleet_model(f), fv_fleet_keep_ms_max(f), tokens, need));
    }
    return check_fits(r, f, need);
}

fv_status fv_request_admit(fv_request *r, fv_fleet *f) {
    fv_request_bounds need;
    FV_TRY(find_need(r, f, &need));
    fv_work work = fv_estimate_work(&f->estimate, need.tokens_known, need.tokens_text,
                                    need.max_tokens, r->msg->ignore_eos);
    work.pixels = need.pixels;
    const fv_model_message *model = fv_fleet_model(f);
    snprintf(r->reasoning, sizeof r->reasoning, "%s", model->reasoning_parser);
    r->asks_adapter = fv_model_adapter(model, r->msg->model) != NULL;
    fv_request_set_fleet(r, f, &need, &work);
    return FV_OK;
}

/* Gives the fleet for a request: a kept conversation's is its worker's, while that worker is known. */
static fv_status choose_fleet(const fv_request *r, fv_fleet **out) {
    const fv_registry *m = r->relay->opt.members;
    const ProtobufCBinaryData *c = &r->msg->conversation;
    char name[FV_CONVERSATION_BYTES_MAX + 1] = "";
    if (c->len > FV_CONVERSATION_ID_BYTES && c->len <= FV_CONVERSATION_BYTES_MAX)
        memcpy(name, c->data + FV_CONVERSATION_ID_BYTES, c->len - FV_CONVERSATION_ID_BYTES);
    const fv_registered_worker *w = fv_registry_find(m, name);
    const Fovea__Inference__V1__TokenRules *rules = r->msg->rules;
    bool ruled = rules && protobuf_c_message_get_packed_size(&rules->base) > 0;
    if (!w || !fv_fleet_model(w->fleet))
        return fv_registry_choose_fleet_for(m, r->msg->model, ruled, out);
    *out = w->fleet;
    return ruled ? fv_fleet_check_rules(w->fleet) : FV_OK;
}

/* Checks that the tenant may use the policy. A kept conversation has the policy that it was begun with. */
static fv_status check_policy(const fv_request *r) {
    fv_policy policy;
    if (!r->tenant->limits || r->msg->conversation.len) return FV_OK;
    FV_TRY(fv_policy_from_message(r->msg->policy, &policy));
    return fv_tenancy_policy(r->tenant, &policy);
}

fv_status fv_admission_record_caller(fv_status st) {
    return fv_record_refusal(st == FV_EDENIED ? FV_REASON_DENIED : FV_REASON_UNAUTHENTICATED, st);
}

static fv_status record_admission(fv_status st) {
    if (st == FV_EIO) return fv_record_refusal(FV_REASON_NO_WORKER, st);
    if (st == FV_ENOMEM) return fv_record_refusal(FV_REASON_TOO_LARGE, st);
    return fv_record_invalid(st);
}

fv_status fv_admission_check(fv_request *r) {
    fv_fleet *f;
    FV_TRY(record_admission(choose_fleet(r, &f)));
    FV_TRY(record_admission(fv_request_admit(r, f)));
    return fv_admission_record_caller(check_policy(r));
}
