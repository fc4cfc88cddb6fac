/* router/tenancy.c: which callers are admitted, their limits, and the order in which tenants are
 * served. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "router/admit.h"
#include "router/tokenize.h"
#include "tests/support/jwt.h"
#include "tests/support/router_rig.h"
#include "tests/support/tensor_file.h"

TestSuite(router_tenants, .timeout = 240);

static router_rig r;
static client k, other;
static Fovea__Inference__V1__GenerateRequest req;
static char dir[512], path[600];

/* printf %s KEY | sha256sum */
#define KEY_A "Bearer fovea-key-a"
#define SHA_A "efd1397abec326181d22e93a1d02f2c6b4d9c1acc0286d281672ce477983d75a"
#define KEY_B "Bearer fovea-key-b"
#define SHA_B "3ae1e439be6824c6c73d1bc577322fe992314a5f352f20ccd81f1e3f258fad27"
/* Two tenants with these limits. */
#define FILE_OF(a, b)                                                                              \
    "{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"]" a "},\"b\":{\"keys\":[\"" SHA_B "\"]" b "}}}"

static void open_rig(const char *text) {
    fv_router_options opt = router_rig_options();
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tenants.json", text);
    snprintf(path, sizeof path, "%s/tenants.json", dir);
    opt.tenants = path;
    router_rig_with_workers(&r, &opt);
}

static void begin(client *c, const char *key) {
    client_request(&req, 4);
    c->authorization = key;
    client_ask(&r, c, &req, 10000);
}

static void ask(client *c, const char *key) {
    begin(c, key);
    router_rig_wait(&r, &c->over);
}

static void end(client *c) {
    fv_rpc_call_cancel(c->call);
    router_rig_wait(&r, &c->over);
}

typedef struct outcome {
    fv_status status;
    bool over;
} outcome;

static void on_reply(void *user, const fv_rpc_end *e, fv_rpc_call *call,
                     grpc_byte_buffer *message) {
    (void)call;
    (void)message;
    *(outcome *)user = (outcome){e->status, true};
}

/* Returns the status of a call without a key. */
static fv_status tokenize_status(const char *method) {
    Fovea__Inference__V1__TokenizeRequest m = FOVEA__INFERENCE__V1__TOKENIZE_REQUEST__INIT;
    outcome got = {0};
    cr_assert_eq(fv_rpc_unary(r.channel, method, &m.base, 5000, on_reply, &got, NULL), FV_OK);
    router_rig_wait(&r, &got.over);
    return got.status;
}

/* ---- callers ----------------------------------------------------------------------------- */

Test(router_tenants, only_known_callers_are_answered) {
    static const char *const wrong[] = {NULL,          "Bearer nothing",     "Bearer ",
                                        "fovea-key-a", "Basic Zm92ZWE6a2V5", "Bearer a.b.c"};
    open_rig(FILE_OF("", ""));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ask(&k, wrong[i]);
        cr_assert_eq(k.end.code, GRPC_STATUS_UNAUTHENTICATED, "%s: %s", wrong[i], k.why);
        cr_assert(!strstr(k.why, "nothing"), "what was shown is not repeated: %s", k.why);
    }
    fleet_seen f;
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.status, FV_EAUTH);
    cr_assert_eq(tokenize_status("/fovea.inference.v1.Inference/Tokenize"), FV_EAUTH);
    cr_assert_eq(tokenize_status("/fovea.inference.v1.Inference/Detokenize"), FV_EAUTH);
    cr_assert_eq(tokenize_status("/fovea.inference.v1.Inference/GetTokenizer"), FV_EAUTH);
    cr_assert_eq(r.p.calls, 0);
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_tenants, the_file_is_read_again_and_a_wrong_one_changes_nothing) {
    open_rig("{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"]}}}");
    ask(&k, KEY_B);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAUTHENTICATED);
    write_text(dir, "tenants.json", "{\"tenants\":{\"b\":");
    router_rig_sleep(&r, 1100);
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    write_text(dir, "tenants.json", "{\"tenants\":{\"b\":{\"keys\":[\"" SHA_B "\"]}}}");
    for (int i = 0; i < 50 && k.end.code != GRPC_STATUS_UNAUTHENTICATED; i++) {
        router_rig_sleep(&r, 100);
        ask(&k, KEY_A);
    }
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAUTHENTICATED, "it has left the file");
    ask(&k, KEY_B);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_tenants, a_file_that_is_wrong_ends_the_start) {
    fv_router *router;
    fv_router_options opt = router_rig_options();
    scratch_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/tenants.json", dir);
    write_text(dir, "tenants.json", FILE_OF(",\"policies\":[\"prun=vtw\"]", ""));
    opt.tenants = path;
    router_rig_open(&r, NULL);
    cr_assert_eq(fv_router_open(r.bridge, &opt, &router), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "tenant 'a'"), "%s", fv_last_error());
    opt.tenants = "/nowhere";
    cr_assert_eq(fv_router_open(r.bridge, &opt, &router), FV_EINVAL);
    router_rig_close(&r);
}

/* ---- limits ------------------------------------------------------------------------------ */

Test(router_tenants, one_request_too_many_at_a_time_is_asked_to_come_back) {
    open_rig(FILE_OF(",\"concurrent\":1", ""));
    r.p.step = FAKE_NOTHING;
    begin(&k, KEY_A);
    router_rig_wait_for(&r, &r.p.calls, 1);
    ask(&other, KEY_A);
    cr_assert_eq(other.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", other.why);
    cr_assert_eq(other.end.retry_ms, 1000);
    begin(&other, KEY_B);
    router_rig_wait_for(&r, &r.p.calls, 2);
    end(&k);
    end(&other);
    r.p.step = FAKE_END;
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "its place is free again: %s", k.why);
    router_rig_close(&r);
}

/* Each decode worker counts a tenant's KV by itself, so the other one is tried too. */
Test(router_tenants, a_tenant_with_all_its_kv_is_tried_twice_and_asked_to_come_back) {
    open_rig(FILE_OF(",\"kv_bytes\":1e9", ""));
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_EBUSY;
    r.p.refusal = "tenant_full";
    r.p.n_times = 2;
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", k.why);
    cr_assert_eq(k.end.retry_ms, 1000);
    cr_assert_eq(r.p.calls, 2);
    cr_assert_eq(r.p.tenant_kv_bytes, 1000000000);
    ask(&k, KEY_B);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    cr_assert_eq(r.p.tenant_kv_bytes, 0);
    router_rig_close(&r);
}

Test(router_tenants, requests_above_the_rate_are_told_when_to_come_back) {
    open_rig(FILE_OF(",\"requests_per_s\":0.5", ""));
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", k.why);
    cr_assert(k.end.retry_ms > 0 && k.end.retry_ms <= 2000, "%lld", (long long)k.end.retry_ms);
    ask(&other, KEY_B);
    cr_assert_eq(other.end.code, GRPC_STATUS_OK, "%s", other.why);
    router_rig_sleep(&r, (int32_t)k.end.retry_ms + 50);
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    router_rig_close(&r);
}

/* ---- calls that only ask ------------------------------------------------------------------ */

enum { N_UNARY = FV_TOKENIZE_ALL_MAX + 1 };

typedef struct unary {
    fv_rpc_call *call;
    fv_rpc_end end;
    uint32_t valid_ms; /* of CheckCaller */
    bool over;
} unary;

static unary unaries[N_UNARY];

static void on_unary(void *user, const fv_rpc_end *e, fv_rpc_call *call, grpc_byte_buffer *reply) {
    unary *u = user;
    ProtobufCMessage *m;
    u->end = *e;
    u->over = true;
    if (!reply || !strstr(fv_rpc_call_path(call), "CheckCaller")) return;
    cr_assert_eq(
        fv_rpc_call_unpack(call, &fovea__inference__v1__check_caller_reply__descriptor, reply, &m),
        FV_OK);
    u->valid_ms = ((Fovea__Inference__V1__CheckCallerReply *)m)->valid_ms;
}

/* A call of this method begins. key NULL: without one. */
static void call(unary *u, const char *method, const ProtobufCMessage *m, const char *key) {
    fv_rpc_metadata shown = {"authorization", key};
    fv_rpc_call_options opt = {.path = method,
                               .request = m,
                               .deadline_ms = 10000,
                               .metadata = &shown,
                               .n_metadata = key != NULL};
    *u = (unary){0};
    cr_assert_eq(fv_rpc_unary_with(r.channel, &opt, on_unary, u, &u->call), FV_OK);
}

static void tokenize(unary *u, const char *key) {
    Fovea__Inference__V1__TokenizeRequest m = FOVEA__INFERENCE__V1__TOKENIZE_REQUEST__INIT;
    call(u, "/fovea.inference.v1.Inference/Tokenize", &m.base, key);
}

static unary tokenized(const char *key) {
    unary u;
    tokenize(&u, key);
    router_rig_wait(&r, &u.over);
    return u;
}

static unary checked(const char *method, const char *key) {
    Fovea__Inference__V1__CheckCallerRequest m = FOVEA__INFERENCE__V1__CHECK_CALLER_REQUEST__INIT;
    unary u;
    m.method = (char *)(uintptr_t)method;
    call(&u, "/fovea.inference.v1.Inference/CheckCaller", &m.base, key);
    router_rig_wait(&r, &u.over);
    return u;
}

Test(router_tenants, tokenize_has_a_rate_of_its_own) {
    open_rig(FILE_OF(",\"requests_per_s\":0.5", ""));
    cr_assert_eq(tokenized(KEY_A).end.status, FV_OK);
    const unary again = tokenized(KEY_A);
    cr_assert_eq(again.end.status, FV_EBUSY);
    cr_assert(again.end.retry_ms > 0 && again.end.retry_ms <= 2000);
    cr_assert_eq(tokenized(KEY_B).end.status, FV_OK);
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "its requests are counted apart: %s", k.why);
    router_rig_close(&r);
}

/* `most` calls wait for a worker, and the next one is refused until one of them ends. */
static void expect_most(int32_t most, const char *key) {
    r.p.step = FAKE_NOTHING;
    for (int32_t i = 0; i < most; i++) tokenize(&unaries[i], key);
    router_rig_wait_for(&r, &r.p.calls, most);
    const unary more = tokenized(key);
    cr_assert_eq(more.end.status, FV_EBUSY);
    cr_assert_eq(more.end.retry_ms, 1000);
    fv_rpc_call_cancel(unaries[0].call);
    router_rig_wait_for(&r, &r.p.ended, 1);
    r.p.step = FAKE_END;
    fv_status st = FV_EBUSY;
    for (int i = 0; i < 100 && st != FV_OK; i++) {
        router_rig_sleep(&r, 10); /* until the router has heard of it */
        st = tokenized(key).end.status;
    }
    cr_assert_eq(st, FV_OK);
    for (int32_t i = 1; i < most; i++) {
        fv_rpc_call_cancel(unaries[i].call);
        router_rig_wait(&r, &unaries[i].over);
    }
}

Test(router_tenants, a_tenant_has_so_many_calls_of_tokenize_at_a_time) {
    open_rig(FILE_OF("", ""));
    r.p.step = FAKE_NOTHING;
    expect_most(FV_TOKENIZE_TENANT_MAX, KEY_A);
    router_rig_close(&r);
}

Test(router_tenants, all_callers_have_so_many_calls_of_tokenize_at_a_time) {
    router_rig_with_workers(&r, NULL);
    expect_most(FV_TOKENIZE_ALL_MAX, NULL);
    router_rig_close(&r);
}

Test(router_tenants, whether_a_caller_may_is_said_without_taking_anything) {
    open_rig(FILE_OF(",\"requests_per_s\":0.5,\"concurrent\":1", ""));
    cr_assert_eq(checked("Generate", NULL).end.status, FV_EAUTH);
    cr_assert_eq(checked("Generate", "Bearer nothing").end.status, FV_EAUTH);
    cr_assert_eq(checked("Nothing", KEY_A).end.status, FV_EINVAL);
    for (int i = 0; i < 3; i++) {
        const unary u = checked("Generate", KEY_A);
        cr_assert_eq(u.end.status, FV_OK);
        cr_assert_eq(u.valid_ms, 10000);
    }
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    const unary u = checked("Generate", KEY_A);
    cr_assert_eq(u.end.status, FV_EBUSY, "its rate is used up");
    cr_assert(u.end.retry_ms > 0 && u.end.retry_ms <= 2000);
    cr_assert_eq(checked("Tokenize", KEY_A).end.status, FV_OK);
    cr_assert_eq(tokenized(KEY_A).end.status, FV_OK);
    cr_assert_eq(checked("Detokenize", KEY_A).end.status, FV_EBUSY);
    cr_assert_eq(checked("Generate", KEY_B).end.status, FV_OK);
    router_rig_close(&r);
}

Test(router_tenants, without_tenants_anybody_may) {
    router_rig_with_workers(&r, NULL);
    const unary u = checked("Generate", NULL);
    cr_assert_eq(u.end.status, FV_OK);
    cr_assert_eq(u.valid_ms, 10000);
    router_rig_close(&r);
}

Test(router_tenants, an_answer_is_not_good_beyond_the_tokens_expiry) {
    char text[3000], claims[300], shown[4000];
    static const int left_s[] = {3600, 5, -5};
    json_t *key = jwt_key("ES256", NULL);
    char *set = jwt_set(&key, 1);
    scratch_dir(dir, sizeof dir);
    write_text(dir, "keys.json", set);
    snprintf(text, sizeof text,
             "{\"jwt\":{\"issuer\":\"i\",\"audience\":\"f\",\"keys\":\"%s/keys.json\"},"
             "\"tenants\":{\"a\":{}}}",
             dir);
    write_text(dir, "tenants.json", text);
    fv_router_options opt = router_rig_options();
    snprintf(path, sizeof path, "%s/tenants.json", dir);
    opt.tenants = path;
    router_rig_with_workers(&r, &opt);
    for (int i = 0; i < 3; i++) {
        snprintf(claims, sizeof claims,
                 "{\"iss\":\"i\",\"aud\":\"f\",\"exp\":%.0f,\"nbf\":0,\"tenant\":\"a\"}",
                 fv_clock_unix_s() + left_s[i]);
        char *token = jwt_token(key, "ES256", NULL, claims);
        snprintf(shown, sizeof shown, "Bearer %s", token);
        const unary u = checked("Generate", shown);
        cr_assert_eq(u.end.status, FV_OK, "a minute late is tolerated");
        cr_assert(i == 0   ? u.valid_ms == 10000
                  : i == 1 ? u.valid_ms <= 6000
                           : u.valid_ms == 0,
                  "%u", u.valid_ms);
        free(token);
    }
    free(set);
    json_decref(key);
    router_rig_close(&r);
}

/* ---- pixels ------------------------------------------------------------------------------- */

/* Begins a request about an image of w x h pixels, of which only the header is sent. */
static void begin_about_image(client *c, const char *key, int w, int h) {
    static uint8_t png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\0";
    Fovea__Inference__V1__Image image = FOVEA__INFERENCE__V1__IMAGE__INIT, *images[] = {&image};
    png[18] = (uint8_t)(w >> 8), png[19] = (uint8_t)w;
    png[22] = (uint8_t)(h >> 8), png[23] = (uint8_t)h;
    client_request(&req, 4);
    req.prompt->text = (char *)"<image>hello";
    image.data = (ProtobufCBinaryData){sizeof png, png};
    req.images = images;
    req.n_images = 1;
    c->authorization = key;
    client_ask(&r, c, &req, 20000);
}

static void ask_about_image(client *c, const char *key, int w, int h) {
    begin_about_image(c, key, w, h);
    router_rig_wait(&r, &c->over);
}

Test(router_tenants, decoded_pixels_count_towards_the_rate) {
    open_rig(FILE_OF(",\"megapixels_per_s\":0.001", ""));
    ask_about_image(&k, KEY_A, 1000, 200);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    ask_about_image(&k, KEY_A, 10, 10);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", k.why);
    cr_assert(strstr(k.why, "megapixels per second"), "%s", k.why);
    cr_assert(k.end.retry_ms > 0 && k.end.retry_ms <= 200000, "%lld", (long long)k.end.retry_ms);
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "text has no pixels: %s", k.why);
    ask_about_image(&other, KEY_B, 1000, 200);
    cr_assert_eq(other.end.code, GRPC_STATUS_OK, "%s", other.why);
    router_rig_close(&r);
}

Test(router_tenants, who_waits_for_a_workers_pixels_keeps_its_own_requests_waiting_and_no_others) {
    static client many[3];
    r.p.pixels_capacity = 399;
    open_rig(FILE_OF("", ""));
    r.p.step = FAKE_NOTHING;
    begin_about_image(&many[0], KEY_A, 20, 10);
    router_rig_wait_for(&r, &r.p.calls, 1);
    begin_about_image(&many[1], KEY_A, 20, 10);
    begin(&many[2], KEY_A);
    router_rig_sleep(&r, 200);
    r.p.step = FAKE_END;
    ask(&other, KEY_B);
    cr_assert_eq(other.end.code, GRPC_STATUS_OK, "%s", other.why);
    cr_assert_eq(r.p.calls, 2, "A waits for its first one");
    end(&many[0]);
    for (int i = 1; i < 3; i++) router_rig_wait(&r, &many[i].over);
    cr_assert_eq(many[2].end.code, GRPC_STATUS_OK, "%s", many[2].why);
    cr_assert_eq(r.p.calls, 4);
    router_rig_close(&r);
}

/* A tenant without a request at the worker gets a place beyond those that one tenant has taken. */
Test(router_tenants, a_tenant_that_fills_a_prefill_worker_does_not_keep_others_out) {
    static client many[20];
    open_rig(FILE_OF("", ""));
    r.p.step = FAKE_NOTHING;
    for (int i = 0; i < 20; i++) begin(&many[i], KEY_A);
    router_rig_wait_for(&r, &r.p.calls, 16);
    router_rig_sleep(&r, 200);
    cr_assert_eq(r.p.calls, 16);
    r.p.step = FAKE_END;
    ask(&other, KEY_B);
    cr_assert_eq(other.end.code, GRPC_STATUS_OK, "%s", other.why);
    cr_assert_eq(r.p.calls, 17);
    for (int i = 0; i < 20; i++)
        if (many[i].call) end(&many[i]);
    router_rig_close(&r);
}

static void ask_streaming(const char *key, grpc_status_code code) {
    Fovea__Inference__V1__Policy p = FOVEA__INFERENCE__V1__POLICY__INIT;
    Fovea__Inference__V1__StagePolicy stage = FOVEA__INFERENCE__V1__STAGE_POLICY__INIT;
    Fovea__Inference__V1__StagePolicy *stages[] = {&stage};
    client_request(&req, 4);
    stage.stage = (char *)"select";
    stage.method = (char *)"streaming";
    p.n_stages = 1;
    p.stages = stages;
    req.policy = &p;
    k.authorization = key;
    client_ask(&r, &k, &req, 10000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, code, "%s", k.why);
}

Test(router_tenants, other_policies_than_the_tenants_are_denied) {
    open_rig(FILE_OF(",\"policies\":[\"\",\"select=streaming\"]", ",\"policies\":[\"\"]"));
    ask(&k, KEY_A);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    ask_streaming(KEY_A, GRPC_STATUS_OK);
    ask(&k, KEY_B);
    cr_assert_eq(k.end.code, GRPC_STATUS_OK, "%s", k.why);
    ask_streaming(KEY_B, GRPC_STATUS_PERMISSION_DENIED);
    router_rig_close(&r);
}

/* ---- ownership --------------------------------------------------------------------------- */

typedef struct aborting {
    bool over;
    grpc_status_code code;
} aborting;

static void on_aborted(void *user, const fv_rpc_end *e, fv_rpc_call *call,
                       grpc_byte_buffer *reply) {
    aborting *a = user;
    (void)call, (void)reply;
    a->code = e->code;
    a->over = true;
}

static grpc_status_code abort_as(const char *key) {
    Fovea__Inference__V1__AbortRequest m = FOVEA__INFERENCE__V1__ABORT_REQUEST__INIT;
    fv_rpc_metadata shown = {"authorization", key};
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Abort",
                               .request = &m.base,
                               .deadline_ms = 5000,
                               .metadata = &shown,
                               .n_metadata = 1};
    aborting a = {0};
    m.request_id = k.request_id;
    m.abort_token = k.abort_token;
    cr_assert_eq(fv_rpc_unary_with(r.channel, &opt, on_aborted, &a, NULL), FV_OK);
    router_rig_wait(&r, &a.over);
    return a.code;
}

Test(router_tenants, a_request_is_aborted_by_its_tenant_alone_and_ids_are_the_tenants_own) {
    open_rig(FILE_OF("", ""));
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 1;
    client_request(&req, 8);
    req.request_id = (char *)"one";
    k.authorization = KEY_A;
    other.authorization = KEY_B;
    client_ask(&r, &k, &req, 10000);
    client_ask(&r, &other, &req, 10000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    router_rig_wait_for(&r, &other.n_tokens, 2);
    cr_assert(strstr(r.p.request_id, "/a/one") || strstr(r.p.request_id, "/b/one"));
    cr_assert_eq(abort_as(KEY_B), GRPC_STATUS_NOT_FOUND);
    cr_assert_eq(abort_as(KEY_A), GRPC_STATUS_OK);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_ABORTED);
    cr_assert_not(other.over);
    end(&other);
    router_rig_close(&r);
}

/* ---- order ------------------------------------------------------------------------------- */

/* While the workers are full, four requests of `a` come and then two of `b`, which weighs twice as
 * much: b's second one goes before a's second one. */
Test(router_tenants, those_that_wait_are_served_by_weight) {
    static client fill[2], a[4], b[2];
    int32_t order[6], n = 0;
    bool seen[6] = {false};
    fv_router_options opt = router_rig_options();
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tenants.json", FILE_OF(",\"weight\":1", ",\"weight\":2"));
    snprintf(path, sizeof path, "%s/tenants.json", dir);
    opt.tenants = path;
    r.d.capacity = FAKE_BYTES * 3 / 2;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 1;
    begin(&fill[0], KEY_A);
    router_rig_wait_for(&r, &fill[0].n_tokens, 2);
    r.p.step = FAKE_NOTHING;
    begin(&fill[1], KEY_B); /* waits for memory at the decode worker */
    router_rig_wait_for(&r, &r.p.calls, 2);
    for (int i = 0; i < 4; i++) begin(&a[i], KEY_A);
    for (int i = 0; i < 2; i++) begin(&b[i], KEY_B);
    router_rig_sleep(&r, 200); /* they are in the queue */
    r.p.step = r.d.step = FAKE_END;
    end(&fill[0]);
    end(&fill[1]);
    client *all[6] = {&a[0], &a[1], &a[2], &a[3], &b[0], &b[1]};
    while (n < 6) {
        uv_run(&r.loop, UV_RUN_ONCE);
        for (int32_t i = 0; i < 6; i++) {
            if (seen[i] || all[i]->n_accepted == 0) continue;
            seen[i] = true;
            order[n++] = i;
        }
    }
    int32_t at[6];
    for (int32_t i = 0; i < 6; i++) at[order[i]] = i;
    cr_assert_lt(at[5], at[1], "b's second is %d, a's second is %d", at[5], at[1]);
    cr_assert(at[0] < at[1] && at[1] < at[2] && at[2] < at[3], "a tenant's own keep their order");
    for (int i = 0; i < 6; i++) router_rig_wait(&r, &all[i]->over);
    router_rig_close(&r);
}
