/* Only a caller with the router's token for this very call may call a worker. Both workers are
 * called without a token, with a used one, and with one for another call. */
#include <stdio.h>
#include <string.h>

#include "tests/e2e/prefill_rig.h"
#include "tests/support/fake_worker.h"
#include "tests/support/tokens.h"

TestSuite(callers, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 240);

#define PREFILL "/fovea.handoff.v1.Prefill/Prefill"
#define OPEN "/fovea.handoff.v1.Handoff/Open"
#define PAIR "/fovea.handoff.v1.Handoff/Pair"
#define DECODE "/fovea.handoff.v1.Decode/Decode"
#define FORGET "/fovea.handoff.v1.Decode/Forget"

static const char *const stranger = "this call needs a token of the fleet's router";

typedef struct outcome {
    bool over;
    fv_rpc_end end;
    char text[FV_RPC_TEXT_MAX];
} outcome;

static outcome last;

static void on_over(fv_rpc_call *c, const fv_rpc_end *end) {
    outcome *o = fv_rpc_call_user(c);
    o->end = *end;
    snprintf(o->text, sizeof o->text, "%s", end->text);
    o->over = true;
}

/* Calls with this token (NULL: none) and waits for the end. */
static void call_with(const char *path, const ProtobufCMessage *m, const char *token) {
    static const fv_rpc_events events = {.on_end = on_over};
    fv_rpc_metadata metadata = {FV_CALL_TOKEN_KEY, token};
    fv_rpc_call_options opt = {.path = path,
                               .events = &events,
                               .user = &last,
                               .deadline_ms = 20000,
                               .request = m,
                               .half_close = true,
                               .metadata = &metadata,
                               .n_metadata = token != NULL};
    fv_rpc_call *call;
    last = (outcome){0};
    cr_assert_eq(fv_rpc_call_open(workers.channel, &opt, &call), FV_OK);
    net_wait(&workers.net, &last.over);
}

/* Calls each method that needs a token with a message about the request "r". */
static void call_method(const char *path, const char *token) {
    static asking a;
    Fovea__Handoff__V1__OpenRequest open = FOVEA__HANDOFF__V1__OPEN_REQUEST__INIT;
    Fovea__Handoff__V1__PairRequest word = FOVEA__HANDOFF__V1__PAIR_REQUEST__INIT;
    Fovea__Handoff__V1__DecodeRequest on = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    Fovea__Handoff__V1__ForgetRequest forget = FOVEA__HANDOFF__V1__FORGET_REQUEST__INIT;
    uint8_t name[16] = {0};
    ask_about_image(&a, "");
    open.request_id = on.request_id = (char *)"r";
    on.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
    on.conversation = forget.conversation = (ProtobufCBinaryData){sizeof name, name};
    const ProtobufCMessage *m = strcmp(path, PREFILL) == 0  ? &a.m.base
                                : strcmp(path, OPEN) == 0   ? &open.base
                                : strcmp(path, PAIR) == 0   ? &word.base
                                : strcmp(path, DECODE) == 0 ? &on.base
                                                            : &forget.base;
    call_with(path, m, token);
}

static const struct method {
    const char *path, *worker, *request_id;
} methods[] = {{PREFILL, "p0", "r"},
               {OPEN, "d0", "r"},
               {PAIR, "d0", ""},
               {DECODE, "d0", "r"},
               {FORGET, "d0", ""}};
enum { N_METHOD = sizeof methods / sizeof methods[0] };

static fv_callers *callers_of(const struct method *m) {
    return m->worker[0] == 'p' ? workers.prefill_callers : workers.decode_callers;
}

/* The parts of a call's token: a test that changes one must get UNAUTHENTICATED. */
typedef struct forged {
    const char *worker, *path, *request_id, *address;
    fv_callers *incarnation;
    int64_t made_after_ms;
    uint32_t valid_ms;
    uint8_t key_byte;
} forged;

static forged right(const struct method *m) {
    return (forged){.worker = m->worker,
                    .path = m->path,
                    .request_id = m->request_id,
                    .address = "",
                    .incarnation = callers_of(m),
                    .valid_ms = FV_CALL_VALID_MS};
}

static const char *make(const struct method *m, const forged *f) {
    static char text[FV_CALL_TOKEN_MAX];
    fv_key fleet = fake_fleet_key(), key;
    fv_call_to to = {f->path, f->worker, fv_callers_incarnation(f->incarnation)};
    int64_t now = (int64_t)fv_callers_clock_ms(callers_of(m));
    fv_call_token t = {.made_ms = (uint64_t)(now + f->made_after_ms), .valid_ms = f->valid_ms};
    snprintf(t.request_id, sizeof t.request_id, "%s", f->request_id);
    snprintf(t.address, sizeof t.address, "%s", f->address);
    cr_assert_eq(fv_call_key(&fleet, &key), FV_OK);
    key.bytes[0] ^= f->key_byte;
    cr_assert_eq(fv_call_token_write(&key, &to, &t, text), FV_OK);
    return text;
}

static void refused(const struct method *m, const char *token, const char *words) {
    call_method(m->path, token);
    cr_assert_eq(last.end.code, GRPC_STATUS_UNAUTHENTICATED, "%s with %s: %d %s", m->path,
                 token ? token : "none", last.end.code, last.text);
    cr_assert(strstr(last.text, words), "%s: %s", m->path, last.text);
}

static void let_in(const struct method *m, const char *token) {
    call_method(m->path, token);
    cr_assert_neq(last.end.code, GRPC_STATUS_UNAUTHENTICATED, "%s with %s: %s", m->path, token,
                  last.text);
}

Test(callers, without_a_token_nobody_gets_in) {
    open_workers();
    for (int i = 0; i < N_METHOD; i++) {
        refused(&methods[i], NULL, stranger);
        refused(&methods[i], "", stranger);
        refused(&methods[i], "1 2 3", stranger);
    }
    wait_for_nothing_held();
    close_workers();
}

Test(callers, a_token_for_this_call_opens_once) {
    char token[FV_CALL_TOKEN_MAX];
    open_workers();
    for (int i = 0; i < N_METHOD; i++) {
        forged f = right(&methods[i]);
        snprintf(token, sizeof token, "%s", make(&methods[i], &f));
        let_in(&methods[i], token);
        refused(&methods[i], token, "used before");
    }
    wait_for_nothing_held();
    close_workers();
}

Test(callers, a_token_for_anything_else_does_not_open) {
    open_workers();
    fv_callers *before = test_callers("d0"); /* the same worker, before it was started again */
    for (int i = 0; i < N_METHOD; i++) {
        const struct method *m = &methods[i];
        forged f = right(m);
        f.worker = "another";
        refused(m, make(m, &f), stranger);
        f = right(m);
        f.path = methods[(i + 1) % N_METHOD].path;
        refused(m, make(m, &f), stranger);
        f = right(m);
        f.incarnation = before;
        refused(m, make(m, &f), stranger);
        f = right(m);
        f.key_byte = 1;
        refused(m, make(m, &f), stranger);
    }
    fv_callers_close(before);
    wait_for_nothing_held();
    close_workers();
}

Test(callers, a_token_is_good_for_its_time) {
    open_workers();
    while (fv_callers_clock_ms(workers.decode_callers) < 100) net_sleep(&workers.net, 20);
    for (int i = 0; i < N_METHOD; i++) {
        const struct method *m = &methods[i];
        forged f = right(m);
        f.made_after_ms = -40;
        f.valid_ms = 10;
        refused(m, make(m, &f), "was good until");
        f = right(m);
        f.made_after_ms = 60000;
        refused(m, make(m, &f), "from the future");
        f.made_after_ms = FV_CALL_AHEAD_MS / 2; /* the token is invalid without the router's
                                                 * clock */
        let_in(m, make(m, &f));
    }
    wait_for_nothing_held();
    close_workers();
}

Test(callers, a_token_is_for_its_request_and_its_decode_worker) {
    static asking a;
    open_workers();
    for (int i = 0; i < N_METHOD; i++) {
        forged f = right(&methods[i]);
        if (strcmp(methods[i].path, PAIR) == 0) continue; /* names no request */
        f.request_id = "another";
        refused(&methods[i], make(&methods[i], &f), "for another request");
    }
    /* A token that was seen cannot be used to send the KV elsewhere. */
    ask_about_image(&a, "127.0.0.1:9");
    forged f = right(&methods[0]);
    f.address = workers.target;
    call_with(PREFILL, &a.m.base, make(&methods[0], &f));
    cr_assert_eq(last.end.code, GRPC_STATUS_UNAUTHENTICATED, "%s", last.text);
    cr_assert(strstr(last.text, "for another request"), "%s", last.text);
    wait_for_nothing_held();
    close_workers();
}

Test(callers, a_decode_address_is_host_and_port) {
    static asking a;
    open_workers();
    ask_about_image(&a, "unix:/tmp/somewhere");
    forged f = right(&methods[0]);
    f.address = "unix:/tmp/somewhere";
    call_with(PREFILL, &a.m.base, make(&methods[0], &f));
    cr_assert_eq(last.end.code, GRPC_STATUS_INVALID_ARGUMENT, "%s", last.text);
    cr_assert(strstr(last.text, "HOST:PORT"), "%s", last.text);
    close_workers();
}

/* The prefill worker presents the router's token; without it the decode worker grants nothing. */
Test(callers, a_prefill_worker_asks_for_room_on_the_routers_orders_only) {
    static asking a;
    open_workers();
    ask_about_image(&a, workers.target);
    forged f = right(&methods[0]);
    f.address = workers.target;
    call_with(PREFILL, &a.m.base, make(&methods[0], &f));
    cr_assert_eq(last.end.code, GRPC_STATUS_UNAUTHENTICATED, "%s", last.text);
    cr_assert(strstr(last.text, stranger), "%s", last.text);
    wait_for_nothing_held();
    close_workers();
}
