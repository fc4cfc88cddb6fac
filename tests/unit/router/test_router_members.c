/* router/registry.c, router/balancer.c, router/fleet_info.c: which workers are in the fleet,
 * refused or lost, and which one gets the next request. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "router/admit.h"
#include "tests/support/router_rig.h"

TestSuite(router_members, .timeout = 240);

static router_rig r;

#define PREFILL FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define DECODE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE
#define READY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY
#define UNHEALTHY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_UNHEALTHY
#define DRAINING FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_DRAINING
#define LOST FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST

/* A third worker joins; returns when it is in or was refused. */
static void try_join(fake_worker *w) {
    fake_open(w, r.bridge, r.fleet);
    for (int i = 0; i < 5000 && !w->welcome && !w->join_over; i++) router_rig_sleep(&r, 20);
}

static void close_extra(fake_worker *w) {
    fake_close(w);
    router_rig_wait(&r, &w->stopped);
}

Test(router_members, both_kinds_make_the_fleet_serve) {
    router_rig_open(&r, NULL);
    r.p.name = "p0";
    r.p.role = PREFILL;
    router_rig_join(&r, &r.p);
    cr_assert_not(r.serving);
    r.d.name = "d0";
    r.d.role = DECODE;
    router_rig_join(&r, &r.d);
    cr_assert(r.serving);
    fake_leave(&r.d);
    router_rig_wait(&r, &r.d.join_over);
    router_rig_sleep(&r, 50);
    cr_assert_not(r.serving);
    cr_assert_eq(r.n_serving, 2);
    router_rig_close(&r);
}

Test(router_members, a_worker_that_differs_works_with_none_of_the_others) {
    static client k;
    fake_worker odd = {.name = "d1", .role = DECODE, .compat = "model=other\nprotocol=1\n"};
    router_rig_with_workers(&r, NULL);
    try_join(&odd);
    cr_assert(odd.welcome, "%s", odd.join_text);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    r.d.unhealthy = true;
    fake_report(&r.d);
    router_rig_sleep(&r, 100);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE, "%s", k.why);
    cr_assert_eq(odd.calls, 0);
    close_extra(&odd);
    router_rig_close(&r);
}

Test(router_members, a_worker_without_name_or_role_is_turned_away) {
    fake_worker nameless = {.name = "", .role = DECODE};
    fake_worker idle = {.name = "x", .role = FOVEA__INFERENCE__V1__ROLE__ROLE_UNSPECIFIED};
    router_rig_with_workers(&r, NULL);
    try_join(&nameless);
    cr_assert_eq(nameless.join_end.code, GRPC_STATUS_INVALID_ARGUMENT);
    try_join(&idle);
    cr_assert_eq(idle.join_end.code, GRPC_STATUS_INVALID_ARGUMENT);
    close_extra(&nameless);
    close_extra(&idle);
    router_rig_close(&r);
}

Test(router_members, a_name_that_is_taken_is_refused_and_its_holder_goes_on) {
    fake_worker again = {.name = "d0", .role = DECODE};
    static client k;
    router_rig_with_workers(&r, NULL);
    try_join(&again);
    cr_assert(again.join_over);
    cr_assert_not(again.welcome);
    cr_assert_eq(again.join_end.status, FV_EBUSY, "%s", again.join_text);
    cr_assert(strstr(again.join_text, "the name d0"), "%s", again.join_text);
    cr_assert_not(r.d.join_over);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(again.calls, 0);
    cr_assert_eq(r.d.calls, 1);
    close_extra(&again);
    router_rig_close(&r);
}

Test(router_members, a_name_is_free_when_its_holder_is_lost) {
    fake_worker again = {.name = "d0", .role = DECODE};
    static client k;
    router_rig_with_workers(&r, NULL);
    fake_leave(&r.d);
    router_rig_wait(&r, &r.d.join_over);
    router_rig_sleep(&r, 50);
    try_join(&again);
    cr_assert(again.welcome, "%s", again.join_text);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(again.calls, 1);
    close_extra(&again);
    router_rig_close(&r);
}

/* ---- strangers -------------------------------------------------------------------------- */

static const char *const for_strangers = "only workers that prove membership in the fleet may join";

static void is_turned_away(fake_worker *w) {
    try_join(w);
    cr_assert(w->join_over);
    cr_assert_not(w->welcome);
    cr_assert_eq(w->join_end.code, GRPC_STATUS_UNAUTHENTICATED, "%d %s", w->join_end.code,
                 w->join_text);
    cr_assert_str_eq(w->join_text, for_strangers);
    close_extra(w);
}

static void close_with_two_workers(void) {
    fleet_seen f;
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_worker, 2);
    router_rig_close(&r);
}

Test(router_members, both_sides_prove_that_they_know_the_secret) {
    router_rig_with_workers(&r, NULL);
    cr_assert(r.p.router_proved && r.p.welcome_proved);
    cr_assert(r.d.router_proved && r.d.welcome_proved);
    cr_assert_neq(memcmp(r.p.nonce, r.d.nonce, sizeof r.p.nonce), 0, "nonces are drawn anew");
    router_rig_close(&r);
}

Test(router_members, a_stranger_hears_one_sentence_whatever_it_says) {
    /* The response does not say whether its secret, its name or its model was wrong. */
    fake_worker wrong = {
        .name = "d1", .role = DECODE, .secret = "not the secret of this fleet, no"};
    fake_worker taken = {
        .name = "d0", .role = DECODE, .secret = "not the secret of this fleet, no"};
    fake_worker odd = {
        .name = "x y", .compat = "model=other\n", .secret = "another one, which is as wrong as it"};
    router_rig_with_workers(&r, NULL);
    is_turned_away(&wrong);
    cr_assert_not(wrong.router_proved);
    is_turned_away(&taken);
    is_turned_away(&odd);
    close_with_two_workers();
}

/* A proof by another worker, in another join. */
static uint8_t seen_proof[32];
static char other_name[65];

static void replay_proof(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    in->proof = (ProtobufCBinaryData){sizeof seen_proof, seen_proof};
}

static void keep_proof(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    cr_assert_eq(in->proof.len, sizeof seen_proof);
    memcpy(seen_proof, in->proof.data, sizeof seen_proof);
}

Test(router_members, a_proof_is_good_for_one_join) {
    fake_worker honest = {.name = "d1", .role = DECODE, .forge = keep_proof};
    fake_worker thief = {.name = "d2", .role = DECODE, .forge = replay_proof};
    router_rig_with_workers(&r, NULL);
    try_join(&honest);
    cr_assert(honest.welcome);
    close_extra(&honest);
    is_turned_away(&thief);
    router_rig_close(&r);
}

static void send_back_routers_proof(void *user, Fovea__Fleet__V1__Introduction *in) {
    const fake_worker *w = user;
    in->proof = (ProtobufCBinaryData){32, (uint8_t *)(uintptr_t)w->proof};
}

static void no_proof(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    in->proof = (ProtobufCBinaryData){0, NULL};
}

static void another_name(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    in->name = other_name;
}

static void another_role(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    in->role = PREFILL;
}

static void another_address(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    in->address = (char *)(uintptr_t) "127.0.0.1:9";
}

static void another_hash(void *user, Fovea__Fleet__V1__Introduction *in) {
    (void)user;
    in->compat_hash++;
}

Test(router_members, a_proof_holds_for_what_was_said_with_it) {
    void (*const forges[])(void *, Fovea__Fleet__V1__Introduction *) = {
        send_back_routers_proof, no_proof,    another_name, another_role,
        another_address,         another_hash};
    strcpy(other_name, "d2");
    router_rig_with_workers(&r, NULL);
    for (size_t i = 0; i < sizeof forges / sizeof forges[0]; i++) {
        fake_worker w = {.name = "d1", .role = DECODE, .forge = forges[i]};
        w.user = &w;
        is_turned_away(&w);
    }
    close_with_two_workers();
}

Test(router_members, an_address_is_host_and_port) {
    static const char *const bad[] = {"unix:/tmp/x", "unix:80", "dns:host:80",
                                      "10.0.0.1",    "host:0",  ""};
    router_rig_with_workers(&r, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fake_worker w = {.name = "d1", .role = DECODE, .says_address = bad[i]};
        try_join(&w);
        cr_assert_eq(w.join_end.code, GRPC_STATUS_INVALID_ARGUMENT, "%s: %s", bad[i], w.join_text);
        close_extra(&w);
    }
    close_with_two_workers();
}

static void join_ended(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    (void)c, (void)reply;
    cr_assert_eq(end->code, GRPC_STATUS_UNIMPLEMENTED, "%s", end->text);
    *(bool *)user = true;
}

Test(router_members, clients_have_no_door_to_the_fleet_and_workers_none_to_clients) {
    Fovea__Fleet__V1__WorkerReport m = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
    fv_rpc_channel *door;
    bool over = false, other = false;
    router_rig_with_workers(&r, NULL);
    cr_assert_eq(fv_rpc_unary(r.channel, "/fovea.fleet.v1.Fleet/Join", &m.base, 5000, join_ended,
                              &over, NULL),
                 FV_OK);
    router_rig_wait(&r, &over);
    cr_assert_eq(fv_rpc_channel_open(r.bridge, r.fleet, NULL, &door), FV_OK);
    cr_assert_eq(fv_rpc_unary(door, "/fovea.inference.v1.Inference/GetFleet", &m.base, 5000,
                              join_ended, &other, NULL),
                 FV_OK);
    router_rig_wait(&r, &other);
    fv_rpc_channel_close(door);
    close_with_two_workers();
}

/* A peer that starts joins and proves nothing. */
typedef struct mute {
    fv_rpc_channel *channel;
    fv_rpc_call *call[80];
    int32_t n_over, n_refused;
} mute;

static void mute_end(fv_rpc_call *c, const fv_rpc_end *end) {
    mute *x = fv_rpc_call_user(c);
    x->n_over++;
    x->n_refused +=
        end->code == GRPC_STATUS_UNAUTHENTICATED && strcmp(end->text, for_strangers) == 0;
}

Test(router_members, peers_that_prove_nothing_keep_nobody_out) {
    static const fv_rpc_events events = {.on_end = mute_end};
    static mute x;
    fake_worker late = {.name = "d1", .role = DECODE};
    router_rig_with_workers(&r, NULL);
    cr_assert_eq(fv_rpc_channel_open(r.bridge, r.fleet, NULL, &x.channel), FV_OK);
    for (int i = 0; i < 80; i++) {
        Fovea__Fleet__V1__WorkerReport m = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
        Fovea__Fleet__V1__Hello hello = FOVEA__FLEET__V1__HELLO__INIT;
        uint8_t nonce[32] = {0};
        hello.nonce = (ProtobufCBinaryData){sizeof nonce, nonce};
        m.hello = &hello;
        fv_rpc_call_options opt = {.path = "/fovea.fleet.v1.Fleet/Join",
                                   .events = &events,
                                   .user = &x,
                                   .deadline_ms = 60000,
                                   .request = i % 2 ? &m.base : NULL};
        cr_assert_eq(fv_rpc_call_open(x.channel, &opt, &x.call[i]), FV_OK);
    }
    router_rig_wait_for(&r, &x.n_refused, 16); /* 80, of which the newest 64 have slots */
    try_join(&late);
    cr_assert(late.welcome, "%s", late.join_text);
    router_rig_wait_for(&r, &x.n_over, 80); /* all are given a few seconds */
    cr_assert_eq(x.n_refused, 80);
    cr_assert_not(late.join_over);
    fv_rpc_channel_close(x.channel);
    close_extra(&late);
    router_rig_close(&r);
}

Test(router_members, a_silent_worker_is_lost_and_its_requests_fail) {
    fv_router_options opt = router_rig_options();
    opt.report_ms = 50;
    opt.silence_ms = 400;
    Fovea__Inference__V1__GenerateRequest req;
    static client k;
    fleet_seen f;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_NOTHING;
    client_request(&req, 4);
    client_ask(&r, &k, &req, 10000);
    for (int i = 0; i < 2000 && !k.over; i++) {
        fake_report(&r.p);
        router_rig_sleep(&r, 50);
    }
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE, "%s", k.why);
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_worker, 2);
    cr_assert_eq(f.state[0], READY);
    cr_assert_eq(f.state[1], LOST);
    router_rig_close(&r);
}

Test(router_members, a_draining_worker_gets_nothing_new_and_may_leave) {
    fake_worker other = {.name = "d1", .role = DECODE};
    static client k;
    fleet_seen f;
    router_rig_with_workers(&r, NULL);
    try_join(&other);
    r.d.draining = true;
    fake_report(&r.d);
    do router_rig_fleet(&r, &f);
    while (f.state[1] != DRAINING);
    for (int i = 0; i < 8; i++) {
        client_ask_wait(&r, &k, 4);
        cr_assert_str_eq(k.decode_worker, "d1");
    }
    fake_leave(&r.d);
    router_rig_wait(&r, &r.d.join_over);
    router_rig_sleep(&r, 50);
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_worker, 2, "it left: it is not lost");
    close_extra(&other);
    router_rig_close(&r);
}

Test(router_members, an_unhealthy_worker_gets_nothing_new_until_it_is_well_again) {
    fake_worker other = {.name = "d1", .role = DECODE};
    static client k;
    fleet_seen f;
    router_rig_with_workers(&r, NULL);
    try_join(&other);
    r.d.unhealthy = true;
    fake_report(&r.d);
    do router_rig_fleet(&r, &f);
    while (f.state[1] != UNHEALTHY);
    for (int i = 0; i < 8; i++) {
        client_ask_wait(&r, &k, 4);
        cr_assert_str_eq(k.decode_worker, "d1");
    }
    other.unhealthy = true;
    fake_report(&other);
    for (int i = 0; i < 100 && r.serving; i++) router_rig_sleep(&r, 20);
    cr_assert_not(r.serving, "nobody is well");
    r.d.unhealthy = false;
    fake_report(&r.d);
    router_rig_wait(&r, &r.serving);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.decode_worker, "d0");
    close_extra(&other);
    router_rig_close(&r);
}

Test(router_members, of_two_decode_workers_the_emptier_one_is_taken) {
    fake_worker other = {.name = "d1", .role = DECODE, .capacity = 1000000};
    Fovea__Inference__V1__GenerateRequest req;
    static client many[10];
    r.d.capacity = 100000; /* a tenth of the other one's */
    router_rig_with_workers(&r, NULL);
    try_join(&other);
    r.d.step = other.step = FAKE_TOKENS;
    r.d.n_say = other.n_say = 1;
    client_request(&req, 4);
    for (int i = 0; i < 10; i++) {
        client_ask(&r, &many[i], &req, 20000);
        router_rig_wait_for(&r, &many[i].n_tokens, 2);
    }
    cr_assert_geq(other.calls, 8, "%d", other.calls);
    for (int i = 0; i < 10; i++) fv_rpc_call_cancel(many[i].call);
    for (int i = 0; i < 10; i++) router_rig_wait(&r, &many[i].over);
    close_extra(&other);
    router_rig_close(&r);
}

/* Asks about an image of 20 x 10 pixels. */
static void ask_about_image(client *k) {
    static uint8_t png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x14\0\0\0\x0a";
    Fovea__Inference__V1__Image image = FOVEA__INFERENCE__V1__IMAGE__INIT, *images[] = {&image};
    Fovea__Inference__V1__GenerateRequest req;
    client_request(&req, 4);
    req.prompt->text = (char *)"<image>hello";
    image.data = (ProtobufCBinaryData){sizeof png, png};
    req.images = images;
    req.n_images = 1;
    client_ask(&r, k, &req, 20000);
}

Test(router_members, a_prefill_worker_full_of_images_gets_no_more) {
    fleet_seen f;
    static client many[3];
    r.p.pixels_capacity = r.p1.pixels_capacity = 399;
    router_rig_with_pairs(&r, NULL);
    r.p.step = r.p1.step = FAKE_NOTHING;
    for (int i = 0; i < 2; i++) ask_about_image(&many[i]);
    for (int i = 0; i < 500 && r.p.calls + r.p1.calls < 2; i++) router_rig_sleep(&r, 10);
    cr_assert(r.p.calls == 1 && r.p1.calls == 1, "%d and %d", r.p.calls, r.p1.calls);
    ask_about_image(&many[2]);
    router_rig_sleep(&r, 200);
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_queued, 1, "there is room for one image on each");
    r.p.step = r.p1.step = FAKE_END;
    fake_fail(&r.p, FV_EINVAL, NULL); /* its memory is free again */
    router_rig_wait(&r, &many[2].over);
    cr_assert_eq(many[2].end.status, FV_OK, "%s", many[2].why);
    cr_assert_eq(r.p.calls, 2);
    fake_fail(&r.p1, FV_EINVAL, NULL);
    for (int i = 0; i < 2; i++) router_rig_wait(&r, &many[i].over);
    router_rig_close(&r);
}

/* Images that other routers sent to the worker count, too. */
Test(router_members, a_prefill_worker_that_says_it_is_full_of_images_gets_none) {
    static client k;
    r.p.pixels_capacity = r.p1.pixels_capacity = 399;
    r.p.pixels_held = 200;
    router_rig_with_pairs(&r, NULL);
    for (int i = 0; i < 8; i++) {
        ask_about_image(&k);
        router_rig_wait(&r, &k.over);
        cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    }
    cr_assert_eq(r.p.calls, 0);
    cr_assert_eq(r.p1.calls, 8);
    router_rig_close(&r);
}

typedef struct model_seen {
    bool over;
    fv_status status;
    size_t n_methods, n_presets;
    char name[64], version[32];
    uint64_t bytes_request;
} model_seen;

static void on_model(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    model_seen *seen = user;
    ProtobufCMessage *m;
    seen->over = true;
    seen->status = end->status;
    if (end->status != FV_OK) return;
    cr_assert_eq(fv_rpc_call_unpack(c, &fovea__inference__v1__model__descriptor, reply, &m), FV_OK);
    const Fovea__Inference__V1__Model *model = (const Fovea__Inference__V1__Model *)m;
    snprintf(seen->name, sizeof seen->name, "%s", model->name);
    snprintf(seen->version, sizeof seen->version, "%s", model->version);
    seen->n_methods = model->n_methods;
    seen->n_presets = model->n_presets;
    seen->bytes_request = model->limits->bytes_request;
}

static void get_model(model_seen *seen) {
    Fovea__Inference__V1__GetModelRequest m = FOVEA__INFERENCE__V1__GET_MODEL_REQUEST__INIT;
    *seen = (model_seen){0};
    cr_assert_eq(fv_rpc_unary(r.channel, "/fovea.inference.v1.Inference/GetModel", &m.base, 5000,
                              on_model, seen, NULL),
                 FV_OK);
    router_rig_wait(&r, &seen->over);
}

Test(router_members, get_model_tells_the_model_its_limits_and_the_methods) {
    model_seen m;
    int32_t n_method, n_preset;
    fv_policy_methods(&n_method);
    fv_policy_presets(&n_preset);
    router_rig_with_workers(&r, NULL);
    get_model(&m);
    cr_assert_eq(m.status, FV_OK);
    cr_assert_str_eq(m.name, "fake");
    cr_assert(strlen(m.version) > 0);
    cr_assert_eq(m.n_methods, (size_t)n_method);
    cr_assert_eq(m.n_presets, (size_t)n_preset);
    cr_assert_eq(m.bytes_request, FV_REQUEST_BYTES_MAX);
    router_rig_close(&r);
}

Test(router_members, get_model_of_an_empty_fleet_is_unavailable) {
    model_seen m;
    router_rig_open(&r, NULL);
    get_model(&m);
    cr_assert_eq(m.status, FV_EIO);
    router_rig_close(&r);
}
