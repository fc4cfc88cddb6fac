#include "tests/support/router_rig.h"

#include <stdio.h>
#include <string.h>

#include "router/admit.h"
#include "tests/support/net.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__GenerateEvent event_message;

/* ---- the loop --------------------------------------------------------------------------- */

static void on_alarm(uv_timer_t *t) { ((router_rig *)t->data)->rang = true; }

enum { WAIT_MS = 100000 }; /* as net_wait */

static void set_alarm(router_rig *r, int32_t ms) {
    r->rang = false;
    uv_update_time(&r->loop); /* what came before may have taken longer than that */
    uv_timer_start(&r->alarm, on_alarm, (uint64_t)ms, 0);
}

void router_rig_wait(router_rig *r, const bool *flag) {
    set_alarm(r, WAIT_MS);
    while (!*flag && !r->rang) uv_run(&r->loop, UV_RUN_ONCE);
    NET_CHECK(*flag);
}

void router_rig_wait_for(router_rig *r, const int32_t *count, int32_t at_least) {
    set_alarm(r, WAIT_MS);
    while (*count < at_least && !r->rang) uv_run(&r->loop, UV_RUN_ONCE);
    NET_CHECK(*count >= at_least);
}

void router_rig_sleep(router_rig *r, int32_t ms) {
    set_alarm(r, ms);
    while (!r->rang) uv_run(&r->loop, UV_RUN_ONCE);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static void on_serving(void *user, bool serving) {
    router_rig *r = user;
    r->serving = serving;
    r->n_serving++;
}

fv_router_options router_rig_options(void) {
    return (fv_router_options){.fleet = fake_fleet_key(),
                               .queue_max = 64,
                               .queue_bytes = 1 << 20,
                               .deadline_ms = 20000,
                               .wait_ms = 300,
                               .stall_ms = 30000,
                               .unread_ms = 60000,
                               .replays = 3,
                               .max_tokens_default = FV_REQUEST_TOKENS_LEAST,
                               .report_ms = 500,
                               .silence_ms = 20000};
}

void router_rig_open(router_rig *r, const fv_router_options *opt) {
    fv_router_options o = opt ? *opt : router_rig_options();
    o.on_serving = on_serving;
    o.user = r;
    NET_CHECK(uv_loop_init(&r->loop) == 0);
    uv_timer_init(&r->loop, &r->alarm);
    r->alarm.data = r;
    NET_CHECK(fv_bridge_open(&r->loop, &r->bridge) == FV_OK);
    NET_CHECK(fv_router_open(r->bridge, &o, &r->router) == FV_OK);
    r->services[0] = fv_router_clients_service(r->router);
    r->services[1] = fv_router_fleet_service(r->router);
    fv_rpc_server_options server = {
        .listen = "127.0.0.1:0", .services = r->services, .n_service = 1};
    NET_CHECK(fv_rpc_server_open(r->bridge, &server, &r->server) == FV_OK);
    snprintf(r->target, sizeof r->target, "127.0.0.1:%d", fv_rpc_server_port(r->server));
    server.services = r->services + 1;
    NET_CHECK(fv_rpc_server_open(r->bridge, &server, &r->door) == FV_OK);
    snprintf(r->fleet, sizeof r->fleet, "127.0.0.1:%d", fv_rpc_server_port(r->door));
    NET_CHECK(fv_rpc_channel_open(r->bridge, r->target, NULL, &r->channel) == FV_OK);
}

void router_rig_join(router_rig *r, fake_worker *w) {
    fake_open(w, r->bridge, r->fleet);
    router_rig_wait(r, &w->welcome);
}

void router_rig_with_workers(router_rig *r, const fv_router_options *opt) {
    router_rig_open(r, opt);
    r->p.name = "p0";
    r->p.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
    r->d.name = "d0";
    r->d.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    router_rig_join(r, &r->p);
    router_rig_join(r, &r->d);
}

void router_rig_with_pairs(router_rig *r, const fv_router_options *opt) {
    router_rig_with_workers(r, opt);
    r->p1.name = "p1";
    r->p1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
    r->d1.name = "d1";
    r->d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    router_rig_join(r, &r->p1);
    router_rig_join(r, &r->d1);
}

static void on_bridge_closed(void *user) { ((router_rig *)user)->bridge_done = true; }

static void on_router_closed(void *user) { ((router_rig *)user)->router_done = true; }

static void on_door_stopped(void *user) {
    router_rig *r = user;
    r->door_done = true;
    fv_router_close(r->router, on_router_closed, r);
}

static void on_server_stopped(void *user) {
    router_rig *r = user;
    r->server_done = true;
    fv_rpc_server_stop(r->door, 50, on_door_stopped, r);
}

void router_rig_close(router_rig *r) {
    fv_rpc_channel_close(r->channel);
    fv_rpc_server_stop(r->server, 50, on_server_stopped, r);
    router_rig_wait(r, &r->router_done);
    fake_worker *workers[] = {&r->p, &r->d, &r->p1, &r->d1};
    for (int i = 0; i < 4; i++) {
        if (!workers[i]->server) continue;
        fake_close(workers[i]);
        router_rig_wait(r, &workers[i]->stopped);
        NET_CHECK(workers[i]->running == 0);
    }
    uv_close((uv_handle_t *)&r->alarm, NULL);
    fv_bridge_close(r->bridge, on_bridge_closed, r);
    net_loop_close(&r->loop);
    NET_CHECK(r->bridge_done);
}

/* ---- clients ---------------------------------------------------------------------------- */

static void hear_accepted(client *k, const Fovea__Inference__V1__Accepted *a) {
    k->n_accepted++;
    k->bytes_bound = a->bytes_bound;
    snprintf(k->request_id, sizeof k->request_id, "%s", a->request_id);
    snprintf(k->abort_token, sizeof k->abort_token, "%s", a->abort_token);
    snprintf(k->model, sizeof k->model, "%s", a->model);
    snprintf(k->prefill_worker, sizeof k->prefill_worker, "%s", a->prefill_worker);
    snprintf(k->decode_worker, sizeof k->decode_worker, "%s", a->decode_worker);
}

static void hear_tokens(client *k, const Fovea__Inference__V1__Tokens *t) {
    NET_CHECK((int32_t)t->index == k->n_tokens); /* no gap and no duplicate */
    for (size_t i = 0; i < t->n_tokens; i++, k->n_tokens++)
        if (k->n_tokens < 512) k->ids[k->n_tokens] = t->tokens[i]->id;
    if (strlen(k->text) + strlen(t->text) < sizeof k->text) strcat(k->text, t->text);
}

static void hear_finished(client *k, const Fovea__Inference__V1__Finished *f) {
    const Fovea__Inference__V1__Report *r = f->report;
    k->n_finished++;
    k->reason = f->reason;
    NET_CHECK(r && r->n_digests <= 8);
    k->n_digests = r->n_digests;
    if (r->n_digests) memcpy(k->digests, r->digests, r->n_digests * sizeof *r->digests);
    k->bytes_raw = r->bytes_raw;
    k->bytes_text_end = r->bytes_text_end;
    k->n_generated = r->n_generated;
    k->keep_ms = f->keep_ms;
    k->n_conversation = f->conversation.len;
    NET_CHECK(k->n_conversation <= sizeof k->conversation);
    if (k->n_conversation) memcpy(k->conversation, f->conversation.data, k->n_conversation);
    k->n_replays = r->n_replays;
    snprintf(k->report_prefill, sizeof k->report_prefill, "%s", r->prefill_worker);
    snprintf(k->report_decode, sizeof k->report_decode, "%s", r->decode_worker);
    for (size_t i = 0, n = 0; i < r->n_notes && n < sizeof k->notes; i++)
        n += (size_t)snprintf(k->notes + n, sizeof k->notes - n, "%s\n", r->notes[i]->text);
}

static fv_status on_event(fv_rpc_call *c, grpc_byte_buffer *message) {
    client *k = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const event_message *e = (const event_message *)m;
    NET_CHECK(k->n_finished == 0); /* nothing comes after it */
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED) {
        NET_CHECK(k->n_tokens == 0);
        hear_accepted(k, e->accepted);
    } else if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS) {
        hear_tokens(k, e->tokens);
    } else if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED) {
        hear_finished(k, e->finished);
    }
    if (k->pause) fv_rpc_call_pause(c);
    return FV_OK;
}

static void on_client_end(fv_rpc_call *c, const fv_rpc_end *end) {
    client *k = fv_rpc_call_user(c);
    k->over = true;
    k->call = NULL;
    k->end = *end;
    snprintf(k->why, sizeof k->why, "%s", end->text);
}

static const fv_rpc_events client_events = {.on_message = on_event, .on_end = on_client_end};

void client_request(request_message *req, uint32_t max_tokens) {
    static Fovea__Inference__V1__Prompt prompt;
    fovea__inference__v1__prompt__init(&prompt);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"hello";
    fovea__inference__v1__generate_request__init(req);
    req->prompt = &prompt;
    req->max_tokens = max_tokens;
}

void client_ask(router_rig *r, client *k, const request_message *req, int64_t deadline_ms) {
    *k = (client){.pause = k->pause, .authorization = k->authorization, .forwarded = k->forwarded};
    fv_rpc_metadata shown[2];
    size_t n_shown = 0;
    if (k->authorization) shown[n_shown++] = (fv_rpc_metadata){"authorization", k->authorization};
    if (k->forwarded) shown[n_shown++] = (fv_rpc_metadata){"x-forwarded-for", k->forwarded};
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .events = &client_events,
                               .user = k,
                               .deadline_ms = deadline_ms,
                               .request = &req->base,
                               .half_close = true,
                               .metadata = shown,
                               .n_metadata = n_shown};
    NET_CHECK(fv_rpc_call_open(r->channel, &opt, &k->call) == FV_OK);
}

void client_ask_wait(router_rig *r, client *k, uint32_t max_tokens) {
    request_message req;
    client_request(&req, max_tokens);
    client_ask(r, k, &req, 10000);
    router_rig_wait(r, &k->over);
}

static void on_fleet(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    fleet_seen *f = user;
    ProtobufCMessage *m;
    f->over = true;
    f->status = end->status;
    if (end->status != FV_OK) return;
    NET_CHECK(fv_rpc_call_unpack(call, &fovea__inference__v1__fleet_state__descriptor, reply, &m) ==
              FV_OK);
    const Fovea__Inference__V1__FleetState *s = (const Fovea__Inference__V1__FleetState *)m;
    f->n_queued = s->n_queued;
    f->n_running = s->n_running;
    f->n_refused = s->n_refused;
    f->n_expired = s->n_expired;
    for (size_t i = 0; i < s->n_workers && i < 8; i++, f->n_worker++) {
        f->state[i] = s->workers[i]->state;
        f->n_failed[i] = s->workers[i]->n_failed;
        f->resting[i] = s->workers[i]->seconds_backoff;
    }
}

void router_rig_fleet(router_rig *r, fleet_seen *f) {
    Fovea__Inference__V1__GetFleetRequest req = FOVEA__INFERENCE__V1__GET_FLEET_REQUEST__INIT;
    *f = (fleet_seen){0};
    NET_CHECK(fv_rpc_unary(r->channel, "/fovea.inference.v1.Inference/GetFleet", &req.base, 5000,
                           on_fleet, f, NULL) == FV_OK);
    router_rig_wait(r, &f->over);
}
