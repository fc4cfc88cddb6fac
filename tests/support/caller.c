#include "tests/support/caller.h"

#include <stdio.h>
#include <string.h>

#include "inference.pb-c.h"
#include "tests/support/net.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__GenerateEvent event_message;

enum { AGAIN_MS = 20, DEADLINE_MS = 60000 };

/* ---- the loop --------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *t) { (void)t; }

void caller_rig_open(caller_rig *r) {
    NET_CHECK(uv_loop_init(&r->loop) == 0);
    uv_timer_init(&r->loop, &r->tick);
    uv_timer_start(&r->tick, on_tick, 5, 5);
    NET_CHECK(fv_bridge_open(&r->loop, &r->bridge) == FV_OK);
}

static void set_flag(void *flag) { *(bool *)flag = true; }

void caller_rig_close(caller_rig *r) {
    bool over = false;
    uv_close((uv_handle_t *)&r->tick, NULL);
    fv_bridge_close(r->bridge, set_flag, &over);
    net_loop_close(&r->loop);
    NET_CHECK(over);
}

void caller_rig_run(caller_rig *r, uint64_t ms) {
    uint64_t until = uv_now(&r->loop) + ms;
    while (uv_now(&r->loop) < until) uv_run(&r->loop, UV_RUN_ONCE);
}

/* ---- a request -------------------------------------------------------------------------- */

static void ask(caller *k);

static fv_status on_event(fv_rpc_call *call, grpc_byte_buffer *message) {
    caller *k = fv_rpc_call_user(call);
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_call_unpack(call, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const event_message *e = (const event_message *)m;
    switch (e->event_case) {
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED:
        k->bytes_bound = e->accepted->bytes_bound;
        snprintf(k->decode_worker, sizeof k->decode_worker, "%s", e->accepted->decode_worker);
        break;
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS:
        NET_CHECK(e->tokens->index == k->n_token); /* no token is missing or duplicated */
        k->n_token += (uint32_t)e->tokens->n_tokens;
        break;
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED:
        k->finished = true;
        k->n_kept = e->finished->conversation.len;
        NET_CHECK(k->n_kept <= sizeof k->kept);
        if (k->n_kept) memcpy(k->kept, e->finished->conversation.data, k->n_kept);
        break;
    default: break;
    }
    return FV_OK;
}

static void begin(caller *k) {
    k->n_row = 0;
    ask(k);
}

static void on_again(uv_timer_t *t) {
    caller *k = t->data;
    if (k->n_row)
        ask(k);
    else
        begin(k);
}

static void on_end(fv_rpc_call *call, const fv_rpc_end *end) {
    caller *k = fv_rpc_call_user(call);
    k->call = NULL;
    if (end->status == FV_OK && k->finished && k->n_token == k->max_tokens) {
        k->n_done++;
        k->n_row = 0;
        if (!k->once && !k->stop) uv_timer_start(&k->again, on_again, 0, 0);
    } else if (end->code == GRPC_STATUS_UNAVAILABLE && k->n_token == 0) {
        k->n_retry++;
        if (++k->n_row > k->n_row_most) k->n_row_most = k->n_row;
        if (k->to[1]) k->at = !k->at;
        int64_t ms = end->retry_ms > AGAIN_MS ? end->retry_ms : AGAIN_MS;
        uv_timer_start(&k->again, on_again, (uint64_t)ms, 0);
    } else {
        k->n_failed++;
        snprintf(k->why, sizeof k->why, "code %d, %u tokens: %s", (int)end->code, k->n_token,
                 end->text);
    }
}

static void ask(caller *k) {
    static const fv_rpc_events events = {.on_message = on_event, .on_end = on_end};
    request_message req = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    Fovea__Inference__V1__TokenIds ids = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    for (uint32_t i = 0; i < 8; i++) k->ids[i] = 5 + 3 * i;
    ids.n_id = 8;
    ids.id = k->ids;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt.ids = &ids;
    req.prompt = &prompt;
    req.max_tokens = k->max_tokens;
    req.ignore_eos = true;
    req.keep_ms = k->keep_ms;
    req.conversation = (ProtobufCBinaryData){k->n_conversation, k->conversation};
    k->n_token = 0;
    k->finished = false;
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .events = &events,
                               .user = k,
                               .deadline_ms = DEADLINE_MS,
                               .request = &req.base,
                               .half_close = true};
    NET_CHECK(fv_rpc_call_open(k->to[k->at], &opt, &k->call) == FV_OK);
}

/* ---- a client --------------------------------------------------------------------------- */

void caller_start(caller_rig *r, caller *k, const char *a, const char *b) {
    k->rig = r;
    NET_CHECK(fv_rpc_channel_open(r->bridge, a, NULL, &k->to[0]) == FV_OK);
    if (b) NET_CHECK(fv_rpc_channel_open(r->bridge, b, NULL, &k->to[1]) == FV_OK);
    uv_timer_init(&r->loop, &k->again);
    k->again.data = k;
    begin(k);
}

static bool is_idle(const caller *k) { return !k->call && !uv_is_active((uv_handle_t *)&k->again); }

void caller_stop(caller *k) {
    k->stop = true;
    CALLER_UNTIL(k->rig, is_idle(k));
    if (k->n_failed) fprintf(stderr, "a request has failed: %s\n", k->why);
    NET_CHECK(k->n_failed == 0);
}

static void on_closed(uv_handle_t *h) { ((caller *)h->data)->closed = true; }

void caller_close(caller *k) {
    for (int i = 0; i < CALLER_ADDRESSES; i++)
        if (k->to[i]) fv_rpc_channel_close(k->to[i]);
    uv_close((uv_handle_t *)&k->again, on_closed);
    CALLER_UNTIL(k->rig, k->closed);
}
