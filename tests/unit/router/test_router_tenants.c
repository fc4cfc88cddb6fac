/* router/tenancy.c: who may call, how much, and in which order tenants are served. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "router/admit.h"
#include "tests/support/router_rig.h"
#include "tests/support/tensor_file.h"

TestSuite(router_tenants, .timeout = 60);

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

/* ---- who --------------------------------------------------------------------------------- */

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

/* ---- how much ---------------------------------------------------------------------------- */

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

/* A decode worker counts its KV, and the other one may have some for this tenant. */
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

/* ---- what is whose ------------------------------------------------------------------------ */

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

/* ---- whose turn --------------------------------------------------------------------------- */

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
