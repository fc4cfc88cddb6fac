/* router/members.c, router/choose.c, router/describe.c: who is in the fleet, who is not let in, who
 * is lost, and who gets the next request. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_members, .timeout = 60);

static router_rig r;

#define PREFILL FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define DECODE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE
#define READY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY
#define UNHEALTHY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_UNHEALTHY
#define DRAINING FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_DRAINING
#define LOST FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST

/* A third worker joins; returns when it is in or was turned away. */
static void try_join(fake_worker *w) {
    fake_open(w, r.bridge, r.target);
    for (int i = 0; i < 100 && !w->welcome && !w->join_over; i++) router_rig_sleep(&r, 20);
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

Test(router_members, a_worker_that_differs_is_turned_away_and_told_why) {
    fake_worker odd = {.name = "d1", .role = DECODE, .compat = "model=other\nprotocol=1\n"};
    router_rig_with_workers(&r, NULL);
    try_join(&odd);
    cr_assert(odd.join_over);
    cr_assert_not(odd.welcome);
    cr_assert_eq(odd.join_end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(odd.join_text, "d1 does not fit"), "%s", odd.join_text);
    cr_assert(strstr(odd.join_text, "model"), "%s", odd.join_text);
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

Test(router_members, a_name_that_is_taken_goes_to_the_newer_one) {
    fake_worker again = {.name = "d0", .role = DECODE};
    static client k;
    router_rig_with_workers(&r, NULL);
    try_join(&again);
    cr_assert(again.welcome);
    router_rig_wait(&r, &r.d.join_over);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(again.calls, 1);
    cr_assert_eq(r.d.calls, 0);
    close_extra(&again);
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
    for (int i = 0; i < 100 && !k.over; i++) {
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
