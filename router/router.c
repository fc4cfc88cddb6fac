/* The router's services, and its timer: each tick looks for silent workers, ends late requests and retries
 * waiting ones. Loop thread. */
#include "router/router.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/random.h"
#include "router/admit.h"
#include "router/fleet_info.h"
#include "router/generate.h"
#include "router/kept.h"
#include "router/record.h"
#include "router/relay.h"
#include "router/tokenize.h"
#include "router/watch.h"

enum { TICK_MS = 50, CALLER_VALID_MS = 10000 };

struct fv_router {
    fv_relay *relay; /* first, where fv_generate_events expects it */
    fv_registry *members;
    fv_bridge *bridge;
    fv_tenancy *tenancy;
    fv_hints *hints; /* NULL: off */
    fv_tokenize_calls calls;
    fv_accounts *sharers;
    fv_router_options opt;
    uv_timer_t tick;
    double opened_s;
    char id[FV_ROUTER_ID_MAX + 1];
    bool serving, closing;
    void (*done)(void *user);
    void *user;
};

/* ---- Inference -------------------------------------------------------------------------- */

/* For methods that any tenant may call. */
static fv_status check_caller(fv_rpc_call *c) {
    fv_tenant_use *tenant;
    return fv_tenancy_caller(((const fv_router *)fv_rpc_call_service(c))->tenancy, c, &tenant);
}

static fv_status on_abort(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_router *r = fv_rpc_call_service(c);
    fv_tenant_use *tenant;
    ProtobufCMessage *m;
    FV_TRY(fv_tenancy_caller(r->tenancy, c, &tenant));
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__abort_request__descriptor, message, &m));
    const Fovea__Inference__V1__AbortRequest *a = (const Fovea__Inference__V1__AbortRequest *)m;
    FV_TRY(fv_relay_abort(r->relay, tenant, a->request_id, a->abort_token));
    Fovea__Inference__V1__AbortReply reply = FOVEA__INFERENCE__V1__ABORT_REPLY__INIT;
    FV_TRY(fv_rpc_call_send(c, &reply.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static fv_status on_get_model(fv_rpc_call *c, grpc_byte_buffer *message) {
    const fv_router *r = fv_rpc_call_service(c);
    return fv_model_info(c, message, r->members, r->opt.max_tokens_default);
}

static fv_status on_list_models(fv_rpc_call *c, grpc_byte_buffer *message) {
    const fv_router *r = fv_rpc_call_service(c);
    (void)message;
    return fv_models_info(c, r->members);
}

static fv_status on_get_fleet(fv_rpc_call *c, grpc_byte_buffer *message) {
    const fv_router *r = fv_rpc_call_service(c);
    (void)message;
    return fv_fleet_info(c, r->members, r->relay, fv_clock_s() - r->opened_s);
}

static fv_status on_tokenize_start(fv_rpc_call *c) {
    return fv_tokenize_on_start(c, &((fv_router *)fv_rpc_call_service(c))->calls);
}

static fv_status check_method(fv_router *r, fv_rpc_call *c, fv_tenant_use *tenant,
                              const char *method) {
    if (strcmp(method, "Generate") == 0) return fv_generate_check(r->relay, c, tenant);
    if (strcmp(method, "Tokenize") == 0 || strcmp(method, "Detokenize") == 0)
        return fv_tokenize_check(&r->calls, c, tenant);
    return FV_FAIL(FV_EINVAL, "method must be Generate, Tokenize or Detokenize");
}

static fv_status on_check_caller(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_router *r = fv_rpc_call_service(c);
    fv_tenant_use *tenant;
    ProtobufCMessage *m;
    double valid_s;
    FV_TRY(fv_tenancy_caller_until(r->tenancy, c, &tenant, &valid_s));
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__check_caller_request__descriptor, message,
                              &m));
    FV_TRY(
        check_method(r, c, tenant, ((const Fovea__Inference__V1__CheckCallerRequest *)m)->method));
    Fovea__Inference__V1__CheckCallerReply reply = FOVEA__INFERENCE__V1__CHECK_CALLER_REPLY__INIT;
    reply.valid_ms = (uint32_t)(fmin(1e3 * valid_s, CALLER_VALID_MS));
    reply.tenant = tenant->name;
    FV_TRY(fv_rpc_call_send(c, &reply.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

fv_rpc_service fv_router_clients_service(fv_router *r) {
    static fv_rpc_method methods[] = {
        {.path = "/fovea.inference.v1.Inference/Generate",
         .kind = FV_RPC_SERVER_STREAM,
         .message_max = FV_REQUEST_BYTES_MAX,
         .queue_max = FV_RELAY_QUEUE_BYTES},
        {.path = "/fovea.inference.v1.Inference/Abort",
         .message_max = 4096,
         .events = {.on_message = on_abort}},
        {.path = "/fovea.inference.v1.Inference/GetModel",
         .message_max = 4096,
         .events = {.on_start = check_caller, .on_message = on_get_model}},
        {.path = "/fovea.inference.v1.Inference/ListModels",
         .message_max = 4096,
         .events = {.on_start = check_caller, .on_message = on_list_models}},
        {.path = "/fovea.inference.v1.Inference/GetFleet",
         .message_max = 4096,
         .events = {.on_start = check_caller, .on_message = on_get_fleet}},
        {.path = "/fovea.inference.v1.Inference/Tokenize",
         .message_max = FV_TOKENIZE_BYTES_MAX,
         .events = {.on_start = on_tokenize_start,
                    .on_message = fv_tokenize,
                    .on_end = fv_tokenize_on_end}},
        {.path = "/fovea.inference.v1.Inference/Detokenize",
         .message_max = FV_TOKENIZE_BYTES_MAX,
         .events = {.on_start = on_tokenize_start,
                    .on_message = fv_detokenize,
                    .on_end = fv_tokenize_on_end}},
        {.path = "/fovea.inference.v1.Inference/GetTokenizer",
         .message_max = 4096,
         .events = {.on_start = on_tokenize_start,
                    .on_message = fv_get_tokenizer,
                    .on_end = fv_tokenize_on_end}},
        {.path = "/fovea.inference.v1.Inference/CheckCaller",
         .message_max = 4096,
         .events = {.on_message = on_check_caller}},
    };
    methods[0].events = fv_generate_events;
    return (fv_rpc_service){methods, sizeof methods / sizeof methods[0], r, NULL};
}

fv_rpc_service fv_router_fleet_service(fv_router *r) { return fv_registry_service(r->members); }

/* ---- events ----------------------------------------------------------------------------- */

static void tell_serving(fv_router *r) {
    bool serving = false;
    for (const fv_fleet *f = fv_registry_fleets(r->members); f; f = f->next)
        serving |= fv_fleet_pairs(f) > 0;
    if (serving == r->serving) return;
    r->serving = serving;
    if (r->opt.on_serving) r->opt.on_serving(r->opt.user, serving);
}

static void on_change(void *user) {
    fv_router *r = user;
    tell_serving(r);
    fv_relay_workers_changed(r->relay);
}

static void on_gone(void *user, fv_registered_worker *member) {
    fv_router *r = user;
    tell_serving(r);
    fv_relay_lose(r->relay, member);
    fv_kept_gone(r->relay, member);
}

static void on_report(void *user, fv_registered_worker *w,
                      const Fovea__Fleet__V1__WorkerReport *report) {
    fv_router *r = user;
    fv_watch_report(r->relay, w, report);
    fv_kept_report(r->relay, w, report);
}

/* Runs after every event: of clients, workers, and the timer. */
static void after_event(void *user) { fv_relay_end_event(((fv_router *)user)->relay); }

static void on_tick_closed(uv_handle_t *h) {
    fv_router *r = h->data;
    void (*done)(void *) = r->done;
    void *user = r->user;
    fv_relay_close(r->relay);
    fv_registry_close(r->members);
    fv_hints_close(r->hints);
    fv_accounts_close(r->sharers);
    fv_tenancy_close(r->tenancy);
    free(r);
    if (done) done(user);
}

static void on_tick(uv_timer_t *t) {
    fv_router *r = t->data;
    fv_registry_tick(r->members, fv_clock_s());
    if (r->hints) fv_hints_tick(r->hints);
    fv_relay_tick(r->relay);
    after_event(r);
    if (r->closing && fv_router_idle(r) && r->calls.n == 0)
        uv_close((uv_handle_t *)t, on_tick_closed);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static fv_status draw_id(char id[FV_ROUTER_ID_MAX + 1]) {
    uint32_t n;
    FV_TRY(fv_random_bytes(&n, sizeof n));
    snprintf(id, FV_ROUTER_ID_MAX + 1, "%08" PRIx32, n);
    return FV_OK;
}

fv_status fv_router_open(fv_bridge *bridge, const fv_router_options *opt, fv_router **out) {
    fv_router *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory for the router");
    fv_status st;
    r->opt = *opt;
    r->opened_s = fv_clock_s();
    FV_TRY_GOTO(draw_id(r->id), st, free_router);
    FV_TRY_GOTO(fv_tenancy_open(opt->tenants, &r->tenancy), st, free_router);
    FV_TRY_GOTO(fv_accounts_open(opt->trusted, &r->sharers), st, close_tenancy);
    fv_registry_options members = {.router_id = r->id,
                                   .bridge = bridge,
                                   .fleet = opt->fleet,
                                   .tls = opt->tls,
                                   .spiffe = opt->spiffe,
                                   .renew_ms = opt->renew_ms,
                                   .report_ms = opt->report_ms,
                                   .silence_ms = opt->silence_ms,
                                   .on_change = on_change,
                                   .on_gone = on_gone,
                                   .on_report = on_report,
                                   .user = r};
    FV_TRY_GOTO(fv_registry_open(&members, &r->members), st, close_sharers);
    if (opt->hints) FV_TRY_GOTO(fv_hints_open(opt->hints, &r->hints), st, close_members);
    r->calls = (fv_tokenize_calls){.members = r->members, .tenancy = r->tenancy};
    fv_relay_options relay = {.router_id = r->id,
                              .bridge = bridge,
                              .members = r->members,
                              .hints = r->hints,
                              .secret = &r->opt.fleet,
                              .tenancy = r->tenancy,
                              .sharers = r->sharers,
                              .unread_ms = opt->unread_ms,
                              .zone = opt->zone ? opt->zone : "",
                              .queue_max = opt->queue_max,
                              .bytes_max = opt->queue_bytes,
                              .deadline_ms = opt->deadline_ms,
                              .wait_ms = opt->wait_ms,
                              .replays = opt->replays,
                              .max_tokens_default = opt->max_tokens_default,
                              .stall_ms = opt->stall_ms};
    FV_TRY_GOTO(fv_relay_open(&relay, &r->relay), st, close_hints);
    r->bridge = bridge;
    fv_bridge_set_after_event(bridge, after_event, r);
    uv_timer_init(fv_bridge_loop(bridge), &r->tick);
    r->tick.data = r;
    uv_timer_start(&r->tick, on_tick, TICK_MS, TICK_MS);
    *out = r;
    return FV_OK;
close_hints:
    fv_hints_close(r->hints);
close_members:
    fv_registry_close(r->members);
close_sharers:
    fv_accounts_close(r->sharers);
close_tenancy:
    fv_tenancy_close(r->tenancy);
free_router:
    free(r);
    return st;
}

void fv_router_measure(const fv_router *r) {
    fv_relay_counts counts = fv_relay_count(r->relay);
    fv_record_state(counts.n_queued, counts.n_running, r->members, fv_clock_s());
    fv_record_hints(r->hints ? fv_hints_count(r->hints) : 0);
}

void fv_router_drain(fv_router *r) { fv_relay_drain(r->relay, 2 * FV_ROUTER_REFUSE_MS); }

void fv_router_announce_end(fv_router *r) { fv_registry_farewell(r->members); }

bool fv_router_idle(const fv_router *r) { return fv_relay_count(r->relay).n_alive == 0; }

void fv_router_close(fv_router *r, void (*done)(void *user), void *user) {
    /* The bridge may be gone before the timer is; until then the timer ends events alone. */
    fv_bridge_set_after_event(r->bridge, NULL, NULL);
    r->closing = true;
    r->done = done;
    r->user = user;
}
