/* serving/worker/member.c with a router played by the test. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "auth/fleet_secret.h"
#include "serving/worker/member.h"
#include "tests/support/net.h"

TestSuite(member, .timeout = 240);

/* ---- the router ------------------------------------------------------------------------- */

typedef struct fake_router {
    fv_rpc_call *call; /* the newest */
    fv_key key;
    fv_join_transcript said;
    const char *secret; /* NULL: the worker's */
    bool proves_wrongly, welcomes_wrongly, welcomes_at_once, drains_at_once;
    int32_t hellos;
    int32_t joins, introductions, reports, draining, unhealthy, half_closes, ends;
    char name[65];
    uint32_t n_running; /* of the last report */
    uint32_t report_ms; /* to send in Welcome; 0: send nothing */
    fv_status refuse;   /* the first report */
    bool clings;        /* keeps every worker */
} fake_router;

static net r;
static fv_callers *callers; /* of the worker */
static fake_router router = {.report_ms = 60000};

static void send_command(Fovea__Fleet__V1__Command *cmd) {
    cr_assert_eq(fv_rpc_call_send(router.call, &cmd->base), FV_OK);
}

#define SECRET "the secret of the fleet of this test"

static fv_key fleet_key(const char *secret) {
    fv_key key;
    cr_assert_eq(fv_fleet_secret_key(secret, strlen(secret), &key), FV_OK, "%s", fv_last_error());
    return key;
}

/* A proof; with one bit wrong if asked for. */
static ProtobufCBinaryData prove(fv_join_kind kind, bool wrongly) {
    static uint8_t proof[FV_MAC_BYTES];
    cr_assert_eq(fv_join_prove(&router.key, kind, &router.said, proof), FV_OK);
    if (wrongly) proof[31] ^= 1;
    return (ProtobufCBinaryData){sizeof proof, proof};
}

static void say_challenge(const Fovea__Fleet__V1__Hello *hello) {
    Fovea__Fleet__V1__Challenge x = FOVEA__FLEET__V1__CHALLENGE__INIT;
    Fovea__Fleet__V1__Command cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    fv_key fleet = fleet_key(router.secret ? router.secret : SECRET);
    router.said = (fv_join_transcript){.nonce_router = "drawn by the router"};
    cr_assert_eq(hello->nonce.len, sizeof router.said.nonce_worker);
    memcpy(router.said.nonce_worker, hello->nonce.data, hello->nonce.len);
    cr_assert_eq(fv_join_key(&fleet, &router.key), FV_OK);
    x.nonce = (ProtobufCBinaryData){sizeof router.said.nonce_router, router.said.nonce_router};
    x.proof = prove(FV_JOIN_ROUTER, router.proves_wrongly);
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_CHALLENGE;
    cmd.challenge = &x;
    send_command(&cmd);
}

/* The worker's introduction, and that its proof holds. */
static void hear_introduction(const Fovea__Fleet__V1__Introduction *in) {
    fv_join_transcript *said = &router.said;
    snprintf(router.name, sizeof router.name, "%s", in->name);
    said->role = in->role;
    said->name = router.name;
    said->address = "127.0.0.1:1";
    cr_assert_str_eq(in->address, said->address);
    cr_assert_eq(in->incarnation.len, sizeof said->incarnation);
    memcpy(said->incarnation, in->incarnation.data, sizeof said->incarnation);
    cr_assert_eq(memcmp(said->incarnation, fv_callers_incarnation(callers), 16), 0);
    cr_assert(fv_join_verify(&router.key, FV_JOIN_WORKER, said, in->proof.data, in->proof.len));
}

static void say_welcome(void) {
    Fovea__Fleet__V1__Welcome w = FOVEA__FLEET__V1__WELCOME__INIT;
    Fovea__Fleet__V1__Command cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    w.report_ms = router.report_ms;
    w.proof = prove(FV_JOIN_WELCOME, router.welcomes_wrongly);
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_WELCOME;
    cmd.welcome = &w;
    send_command(&cmd);
}

static void say_drain(uint32_t grace_ms) {
    Fovea__Fleet__V1__Drain d = FOVEA__FLEET__V1__DRAIN__INIT;
    Fovea__Fleet__V1__Command cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    d.grace_ms = grace_ms;
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_DRAIN;
    cmd.drain = &d;
    send_command(&cmd);
}

static fv_status on_join(fv_rpc_call *c) {
    router.call = c;
    router.joins++;
    return FV_OK;
}

static fv_status on_report(fv_rpc_call *c, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__fleet__v1__worker_report__descriptor, message, &m));
    const Fovea__Fleet__V1__WorkerReport *report = (const Fovea__Fleet__V1__WorkerReport *)m;
    if (report->hello) {
        cr_assert(!report->introduction && !report->load, "it says nothing of itself yet");
        router.hellos++;
        if (router.drains_at_once) say_drain(1);
        if (router.welcomes_at_once)
            say_welcome();
        else
            say_challenge(report->hello);
        return FV_OK;
    }
    router.reports++;
    router.draining += report->draining;
    router.unhealthy += report->unhealthy;
    router.n_running = report->load->n_running;
    if (!report->introduction) return FV_OK;
    router.introductions++;
    hear_introduction(report->introduction);
    if (router.refuse) return FV_FAIL(router.refuse, "we do not want %s", router.name);
    if (router.report_ms) say_welcome();
    return FV_OK;
}

static fv_status on_leave(fv_rpc_call *c) {
    router.half_closes++;
    if (!router.clings) fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)end;
    router.ends++;
    if (router.call == c) router.call = NULL;
}

static const fv_rpc_method methods[] = {
    {.path = "/fovea.fleet.v1.Fleet/Join",
     .kind = FV_RPC_BIDI,
     .events = {on_join, on_report, on_leave, NULL, NULL, on_end}},
};

/* ---- the worker ------------------------------------------------------------------------- */

static fv_membership *m;
static uint32_t n_running;
static int32_t drains, drain_ms;
static bool closed;

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    (void)user;
    load->n_running = n_running;
}

static void on_drain(void *user, int32_t grace_ms) {
    (void)user;
    drains++;
    drain_ms = grace_ms;
}

static void set_closed(void *user) {
    (void)user;
    closed = true;
}

static void join_at(const char *target) {
    static Fovea__Fleet__V1__Introduction intro;
    fovea__fleet__v1__introduction__init(&intro);
    intro.name = (char *)"p0";
    intro.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
    intro.address = (char *)"127.0.0.1:1";
    fv_key key = fleet_key(SECRET);
    cr_assert_eq(fv_callers_open(&key, &callers), FV_OK);
    fv_membership_options opt = {.bridge = r.bridge,
                                 .router = target,
                                 .fleet = &key,
                                 .callers = callers,
                                 .introduction = &intro,
                                 .measure = measure,
                                 .drain = on_drain};
    cr_assert_eq(fv_membership_open(&opt, &m), FV_OK, "%s", fv_last_error());
}

static void join(void) {
    r.services[r.n_service++] = (fv_rpc_service){methods, 1, &router, NULL};
    net_open(&r);
    join_at(r.target);
}

static void leave(void) {
    fv_membership_close(m, set_closed, NULL);
    net_wait(&r, &closed);
    fv_callers_close(callers);
    net_close(&r, 1000);
}

/* Waits until it is in, and the report that follows the welcome has come. */
static void join_and_wait(void) {
    join();
    net_wait_for(&r, &router.reports, 2);
    cr_assert(fv_membership_joined(m));
}

/* ---- joining ---------------------------------------------------------------------------- */

Test(member, a_worker_introduces_itself_once_and_is_in_when_welcomed) {
    n_running = 3;
    join();
    cr_assert_not(fv_membership_joined(m));
    net_wait_for(&r, &router.reports, 2);
    cr_assert(fv_membership_joined(m));
    cr_assert_str_eq(router.name, "p0");
    cr_assert_eq(router.introductions, 1);
    cr_assert_eq(router.n_running, 3);
    leave();
}

Test(member, without_a_welcome_it_is_not_in_and_says_nothing_more) {
    router.report_ms = 0;
    join();
    net_wait_for(&r, &router.reports, 1);
    fv_membership_touch(m);
    net_sleep(&r, 150);
    cr_assert_not(fv_membership_joined(m));
    cr_assert_eq(router.reports, 1);
    leave();
}

Test(member, an_invalid_address_is_refused_at_once) {
    net_open(&r);
    fv_membership_options opt = {.bridge = r.bridge, .router = "nowhere"};
    cr_assert_eq(fv_membership_open(&opt, &m), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "nowhere"), "%s", fv_last_error());
    opt.router = "unix:8200";
    cr_assert_eq(fv_membership_open(&opt, &m), FV_EINVAL);
    net_close(&r, 1000);
}

/* ---- reports ---------------------------------------------------------------------------- */

Test(member, reports_come_as_often_as_the_router_says) {
    router.report_ms = 30;
    join();
    net_wait_for(&r, &router.reports, 6);
    cr_assert_eq(router.introductions, 1);
    leave();
}

Test(member, many_changes_make_one_report_and_it_comes_soon) {
    join_and_wait();
    int32_t before = router.reports;
    for (n_running = 0; n_running < 10; n_running++) fv_membership_touch(m);
    net_sleep(&r, 200);
    cr_assert_eq(router.reports, before + 1);
    cr_assert_eq(router.n_running, 10, "what holds when it is sent");
    fv_membership_touch(m);
    net_wait_for(&r, &router.reports, before + 2);
    leave();
}

Test(member, draining_is_reported_at_once_and_from_then_on) {
    join_and_wait();
    cr_assert_eq(router.draining, 0);
    fv_membership_drain(m);
    net_wait_for(&r, &router.draining, 1);
    fv_membership_touch(m);
    net_wait_for(&r, &router.draining, 2);
    leave();
}

Test(member, draining_before_it_is_in_is_part_of_the_introduction) {
    join();
    fv_membership_drain(m);
    net_wait_for(&r, &router.introductions, 1);
    cr_assert_eq(router.draining, 1);
    leave();
}

Test(member, a_change_of_health_is_reported_at_once) {
    join_and_wait();
    fv_membership_set_health(m, true);
    cr_assert_eq(router.unhealthy, 0);
    fv_membership_set_health(m, false);
    net_wait_for(&r, &router.unhealthy, 1);
    int32_t before = router.reports;
    fv_membership_set_health(m, false); /* is no change */
    fv_membership_set_health(m, true);
    net_wait_for(&r, &router.reports, before + 1);
    cr_assert_eq(router.unhealthy, 1);
    leave();
}

Test(member, the_router_can_ask_it_to_drain) {
    join_and_wait();
    say_drain(1234);
    net_wait_for(&r, &drains, 1);
    cr_assert_eq(drain_ms, 1234);
    leave();
}

/* ---- losing the router ------------------------------------------------------------------ */

Test(member, it_joins_again_when_the_call_has_broken) {
    join_and_wait();
    fv_rpc_call_finish(router.call, FV_FAIL(FV_EIO, "the router stops"));
    net_wait_for(&r, &router.introductions, 2);
    net_wait_for(&r, &router.reports, 4);
    cr_assert(fv_membership_joined(m));
    leave();
}

Test(member, it_waits_for_a_router_that_starts_later) {
    net_open(&r);
    join_at("127.0.0.1:1");
    net_sleep(&r, 500);
    cr_assert_not(fv_membership_joined(m));
    leave();
}

/* ---- refused ---------------------------------------------------------------------------- */

/* A refused worker keeps asking, and joins once the answer changes. */
static void refuse_with(fv_status st) {
    router.refuse = st;
    join();
    net_wait_for(&r, &router.introductions, 3);
    cr_assert_not(fv_membership_joined(m));
    router.refuse = FV_OK;
    int32_t before = router.reports;
    net_wait_for(&r, &router.reports, before + 2);
    cr_assert(fv_membership_joined(m));
    leave();
}

Test(member, one_that_does_not_fit_asks_again) { refuse_with(FV_EINVAL); }

Test(member, one_whose_name_is_taken_asks_again) { refuse_with(FV_EBUSY); }

Test(member, one_that_is_not_believed_asks_again) { refuse_with(FV_EAUTH); }

/* ---- a fake router ----------------------------------------------------------------------- */

/* The router receives only Hello, again and again. */
static void tells_nothing(void) {
    join();
    net_wait_for(&r, &router.hellos, 3);
    cr_assert_eq(router.introductions, 0);
    cr_assert_eq(router.reports, 0);
    cr_assert_eq(drains, 0);
    cr_assert_not(fv_membership_joined(m));
    leave();
}

Test(member, a_router_with_another_secret_hears_nothing) {
    router.secret = "another secret, as long as the right one";
    tells_nothing();
}

Test(member, a_router_whose_proof_is_wrong_in_one_bit_hears_nothing) {
    router.proves_wrongly = true;
    tells_nothing();
}

Test(member, a_router_that_welcomes_without_a_proof_hears_nothing) {
    router.welcomes_at_once = true;
    tells_nothing();
}

Test(member, a_router_that_commands_before_it_has_proved_itself_is_not_obeyed) {
    router.drains_at_once = true;
    tells_nothing();
}

Test(member, a_welcome_with_a_wrong_proof_does_not_count) {
    router.welcomes_wrongly = true;
    join();
    net_wait_for(&r, &router.hellos, 2);
    cr_assert_not(fv_membership_joined(m));
    cr_assert_eq(router.reports, router.introductions, "no report beside the introductions");
    leave();
}

/* ---- leaving ---------------------------------------------------------------------------- */

Test(member, leaving_tells_the_router) {
    join_and_wait();
    leave();
    cr_assert_eq(router.half_closes, 1);
    cr_assert_eq(router.ends, 1);
}

Test(member, a_router_that_does_not_let_go_is_left_all_the_same) {
    router.clings = true;
    join_and_wait();
    leave();
    cr_assert_eq(router.half_closes, 1);
}

Test(member, nobody_can_leave_at_once) {
    fv_membership_close(NULL, set_closed, NULL);
    cr_assert(closed);
}

Test(member, leaving_before_anything_was_said_is_fine) {
    join();
    leave();
}
