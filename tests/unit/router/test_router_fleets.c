/* router/fleet.c: several models behind one router, and one that is replaced. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_fleets, .timeout = 240);

static router_rig r;
static client k, other;
static Fovea__Inference__V1__GenerateRequest req;

#define PREFILL FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define DECODE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE
#define NEW "fedcba9876543210"

/* r.p and r.d serve "fake", r.p1 and r.d1 this model with another checkpoint. */
static void join_second(const char *model) {
    r.p1.name = "p1";
    r.p1.role = PREFILL;
    r.d1.name = "d1";
    r.d1.role = DECODE;
    r.p1.model = r.d1.model = model;
    r.p1.fingerprint = r.d1.fingerprint = NEW;
    r.p1.compat = r.d1.compat = "model=" NEW "\nprotocol=1\n";
    router_rig_join(&r, &r.p1);
    router_rig_join(&r, &r.d1);
}

static void begin(client *c, const char *model) {
    client_request(&req, 4);
    req.model = (char *)(uintptr_t)model;
    client_ask(&r, c, &req, 20000);
}

static void ask(const char *model) {
    begin(&k, model);
    router_rig_wait(&r, &k.over);
}

static void answered_by(const char *model, const char *p, const char *d) {
    ask(model);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.prefill_worker, p);
    cr_assert_str_eq(k.decode_worker, d);
}

/* ---- questions with one answer ------------------------------------------------------------ */

typedef struct reply {
    bool over;
    grpc_status_code code;
    char text[600]; /* the models, or the error */
} reply;

static void on_models(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *bytes) {
    reply *a = user;
    ProtobufCMessage *m;
    size_t n = 0;
    a->over = true;
    a->code = end->code;
    if (end->status != FV_OK) return;
    cr_assert_eq(fv_rpc_call_unpack(c, &fovea__inference__v1__model_list__descriptor, bytes, &m),
                 FV_OK);
    const Fovea__Inference__V1__ModelList *list = (const void *)m;
    for (size_t i = 0; i < list->n_models; i++)
        n += (size_t)snprintf(a->text + n, sizeof a->text - n, "%s %s %u+%u;",
                              list->models[i]->name, list->models[i]->fingerprint,
                              list->models[i]->n_prefill, list->models[i]->n_decode);
}

static void on_model(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *bytes) {
    reply *a = user;
    ProtobufCMessage *m;
    a->over = true;
    a->code = end->code;
    if (end->status != FV_OK) return;
    cr_assert_eq(fv_rpc_call_unpack(c, &fovea__inference__v1__model__descriptor, bytes, &m), FV_OK);
    snprintf(a->text, sizeof a->text, "%s", ((const Fovea__Inference__V1__Model *)m)->fingerprint);
}

static reply list_models(void) {
    Fovea__Inference__V1__ListModelsRequest m = FOVEA__INFERENCE__V1__LIST_MODELS_REQUEST__INIT;
    reply a = {0};
    cr_assert_eq(fv_rpc_unary(r.channel, "/fovea.inference.v1.Inference/ListModels", &m.base, 5000,
                              on_models, &a, NULL),
                 FV_OK);
    router_rig_wait(&r, &a.over);
    return a;
}

static reply get_model(const char *name) {
    Fovea__Inference__V1__GetModelRequest m = FOVEA__INFERENCE__V1__GET_MODEL_REQUEST__INIT;
    reply a = {0};
    m.model = (char *)(uintptr_t)name;
    cr_assert_eq(fv_rpc_unary(r.channel, "/fovea.inference.v1.Inference/GetModel", &m.base, 5000,
                              on_model, &a, NULL),
                 FV_OK);
    router_rig_wait(&r, &a.over);
    return a;
}

/* ---- several models ----------------------------------------------------------------------- */

Test(router_fleets, a_request_goes_to_the_workers_of_the_model_that_it_names) {
    router_rig_with_workers(&r, NULL);
    answered_by("", "p0", "d0");
    join_second("second");
    for (int i = 0; i < 3; i++) {
        answered_by("fake", "p0", "d0");
        answered_by("second", "p1", "d1");
        answered_by(NEW, "p1", "d1");
    }
    ask("");
    cr_assert_eq(k.end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(k.why, "fake (0123456789abcdef), second (" NEW ")"), "%s", k.why);
    ask("third");
    cr_assert_eq(k.end.code, GRPC_STATUS_NOT_FOUND);
    cr_assert(strstr(k.why, "unknown model 'third'"), "%s", k.why);
    router_rig_close(&r);
}

Test(router_fleets, models_are_listed_and_described_by_name) {
    router_rig_with_workers(&r, NULL);
    cr_assert_str_eq(list_models().text, "fake 0123456789abcdef 1+1;");
    join_second("second");
    cr_assert_str_eq(list_models().text, "fake 0123456789abcdef 1+1;second " NEW " 1+1;");
    cr_assert_str_eq(get_model("second").text, NEW);
    cr_assert_str_eq(get_model("fake").text, "0123456789abcdef");
    cr_assert_eq(get_model("").code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert_eq(get_model("third").code, GRPC_STATUS_NOT_FOUND);
    router_rig_close(&r);
}

static void add_adapter(void *user, Fovea__Fleet__V1__Introduction *in) {
    static Fovea__Inference__V1__Adapter x, *all[] = {&x};
    fovea__inference__v1__adapter__init(&x);
    x.name = user;
    x.digest = (char *)"";
    in->model->n_adapters = 1;
    in->model->adapters = all;
}

Test(router_fleets, a_model_goes_before_an_adapter_of_its_name) {
    static char taken[] = "second", own[] = "sql";
    r.p.forge = r.d.forge = r.p1.forge = r.d1.forge = add_adapter;
    r.p.user = r.d.user = taken;
    r.p1.user = r.d1.user = own;
    router_rig_with_workers(&r, NULL);
    answered_by("second", "p0", "d0");
    join_second("second");
    for (int i = 0; i < 20; i++) answered_by("second", "p1", "d1");
    answered_by("sql", "p1", "d1");
    answered_by("fake", "p0", "d0");
    router_rig_close(&r);
}

Test(router_fleets, requests_that_wait_for_one_model_do_not_delay_another) {
    router_rig_with_workers(&r, NULL);
    join_second("second");
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_EBUSY; /* avoided until it reports */
    begin(&other, "fake");
    router_rig_wait_for(&r, &r.p.calls, 1);
    for (int i = 0; i < 5; i++) answered_by("second", "p1", "d1");
    cr_assert_not(other.over);
    r.p.step = FAKE_END;
    fake_report(&r.p);
    router_rig_wait(&r, &other.over);
    cr_assert_eq(other.end.status, FV_OK, "%s", other.why);
    router_rig_close(&r);
}

/* ---- a model that is replaced -------------------------------------------------------------- */

Test(router_fleets, both_versions_of_a_model_answer_and_never_together) {
    int n_new = 0;
    router_rig_with_workers(&r, NULL);
    join_second("fake");
    for (int i = 0; i < 40; i++) {
        ask("fake");
        cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
        cr_assert_eq(strcmp(k.prefill_worker, "p1") == 0, strcmp(k.decode_worker, "d1") == 0);
        n_new += strcmp(k.decode_worker, "d1") == 0;
    }
    cr_assert(n_new > 0 && n_new < 40, "%d of 40", n_new);
    answered_by(NEW, "p1", "d1");
    ask(""); /* there is one name */
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_fleets, what_waits_for_the_last_version_goes_to_the_next_one) {
    fv_router_options opt = router_rig_options();
    opt.wait_ms = 20000;
    router_rig_with_workers(&r, &opt);
    r.d.unhealthy = true;
    fake_report(&r.d);
    router_rig_sleep(&r, 100);
    begin(&k, "fake");
    begin(&other, "0123456789abcdef");
    router_rig_sleep(&r, 200);
    cr_assert_not(k.over);
    join_second("fake");
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.decode_worker, "d1");
    router_rig_sleep(&r, 200);
    cr_assert_not(other.over, "it has named the other checkpoint");
    r.d.unhealthy = false;
    fake_report(&r.d);
    router_rig_wait(&r, &other.over);
    cr_assert_str_eq(other.decode_worker, "d0");
    router_rig_close(&r);
}

Test(router_fleets, a_kept_conversation_stays_with_the_version_that_it_began_with) {
    static uint8_t handle[128];
    r.d.keep_ms_max = 60000;
    router_rig_with_workers(&r, NULL);
    client_request(&req, 4);
    req.keep_ms = 5000;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    memcpy(handle, k.conversation, k.n_conversation);
    join_second("second");
    client_request(&req, 4);
    req.conversation = (ProtobufCBinaryData){k.n_conversation, handle};
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert(r.d.followed);
    req.model = (char *)"second";
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_NOT_FOUND, "it is another model's: %s", k.why);
    router_rig_close(&r);
}

/* ---- versions ---------------------------------------------------------------------------- */

Test(router_fleets, workers_that_know_no_token_rules_get_no_request_with_them) {
    static client asked[8];
    Fovea__Inference__V1__TokenRules rules = FOVEA__INFERENCE__V1__TOKEN_RULES__INIT;
    r.p.compat = r.d.compat = "model=fake\nprotocol=1\n"; /* as of an older version */
    router_rig_with_workers(&r, NULL);
    client_request(&req, 4);
    req.rules = &rules;
    client_ask(&r, &asked[0], &req, 20000); /* rules that ask for nothing */
    router_rig_wait(&r, &asked[0].over);
    cr_assert_eq(asked[0].end.status, FV_OK, "%s", asked[0].why);
    rules.min_tokens = 2;
    client_ask(&r, &asked[1], &req, 20000);
    router_rig_wait(&r, &asked[1].over);
    cr_assert_eq(asked[1].end.status, FV_EUNSUPPORTED, "%s", asked[1].why);
    cr_assert(strstr(asked[1].why, "upgrade them"), "%s", asked[1].why);
    r.p1.name = "p1";
    r.p1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
    r.d1.name = "d1";
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    router_rig_join(&r, &r.p1);
    router_rig_join(&r, &r.d1);
    int32_t calls = r.d.calls;
    for (int i = 2; i < 8; i++) {
        client_ask(&r, &asked[i], &req, 20000);
        router_rig_wait(&r, &asked[i].over);
        cr_assert_eq(asked[i].end.status, FV_OK, "%s", asked[i].why);
    }
    cr_assert_eq(r.d.calls, calls);
    cr_assert_eq(r.d1.calls, 6);
    router_rig_close(&r);
}
