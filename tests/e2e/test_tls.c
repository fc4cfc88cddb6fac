/* A fleet with TLS: which certificates each listener accepts, and certificates that change while it
 * answers. Certificates are made here, one for each role. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "grpc/health/v1/health.pb-c.h"
#include "tests/support/certs.h"
#include "tests/support/crew.h"
#include "tests/support/net.h"

TestSuite(tls, .timeout = 300);

static crew c;
static char ca[512];
enum { ARGS = 2500 }; /* bytes */

/* "--tls-cert DIR/NAME.crt --tls-key DIR/NAME.key --tls-ca DIR/ca.crt" and what follows. */
static void tls_args(char args[ARGS], const char *name, const char *more) {
    const char *d = c.f.dir;
    snprintf(args, ARGS, "--tls-cert %s/%s.crt --tls-key %s/%s.key --tls-ca %s/ca.crt %s", d, name,
             d, name, d, more);
}

static void open_crew(const char *router_more) {
    crew_open(&c, "tls", "tiny");
    certs_authority(c.f.dir, "ca");
    certs_issue(c.f.dir, "ca", "router", "DNS:fovea-router,IP:127.0.0.1", 24);
    certs_issue(c.f.dir, "ca", "prefill", "DNS:fovea-prefill", 24);
    certs_issue(c.f.dir, "ca", "decode", "DNS:fovea-decode", 24);
    snprintf(ca, sizeof ca, "%s", certs_path(c.f.dir, "ca", "crt"));
    c.f.tls_ca = ca;
    tls_args(c.router_args, "router", router_more);
    tls_args(c.prefill_args, "prefill", "");
    tls_args(c.decode_args, "decode", "");
}

static void ask(const char *more) {
    command_run(&fleet_said, FOVEA_BIN "/fovea ask --to %s --max-tokens 3 %s hello", c.f.address,
                more);
}

static void answers(const char *more) {
    ask(more);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
}

static void refuses(const char *more) {
    ask(more);
    cr_assert_neq(fleet_said.status, 0, "%s was let in", more);
}

/* ---- accepted and refused clients -------------------------------------------------------- */

Test(tls, a_fleet_answers_clients_that_trust_its_authority) {
    char more[700];
    open_crew("");
    crew_start(&c, 1, 1);
    snprintf(more, sizeof more, "--tls-ca %s", ca);
    answers(more); /* the certificate has the address of --to */
    snprintf(more, sizeof more, "--tls-ca %s --tls-name fovea-router", ca);
    answers(more);
    snprintf(more, sizeof more, "--tls-ca %s --tls-name fovea-decode", ca);
    refuses(more);
    refuses("");
    certs_authority(c.f.dir, "other");
    snprintf(more, sizeof more, "--tls-ca %s", certs_path(c.f.dir, "other", "crt"));
    refuses(more);
    crew_stop(&c);
    cr_assert(!program_said(&c.prefill[0], "fovea-call-token"), "no tokens beside certificates");
    crew_close(&c);
}

/* TLS from the client to the gateway, from it to the router, and from the router to a worker for
 * the tokenizer. */
Test(tls, a_gateway_serves_and_calls_the_router_over_it) {
    const char *d;
    open_crew("");
    crew_start(&c, 1, 1);
    d = c.f.dir;
    command_run(&fleet_said,
                FOVEA_BIN
                "/fovea-gateway --router %s --router-tls-ca %s --listen 127.0.0.1:0 "
                "--tls-cert %s/router.crt --tls-key %s/router.key >%s/gw.out 2>%s/gw.err "
                "</dev/null & pid=$!; "
                "for i in $(seq 600); do grep -q listening %s/gw.out && break; sleep 0.1; "
                "done; "
                "python3 -c 'import ssl, sys, urllib.request as u\n"
                "at = \"https://\" + open(sys.argv[1]).read().split()[-1]\n"
                "print(u.urlopen(at + \"/tokenize\", b\"{\\\"prompt\\\": \\\"x\\\"}\", "
                "context=ssl.create_default_context(cafile=sys.argv[2])).read())' %s/gw.out %s; "
                "kill $pid; wait $pid; cat %s/gw.err >&2",
                c.f.address, ca, d, d, d, d, d, d, ca, d);
    cr_assert(strstr(fleet_said.out, "count"), "%s%s", fleet_said.out, fleet_said.err);
    crew_stop(&c);
    crew_close(&c);
}

/* "--tls-ca CA --tls-cert NAME --tls-key NAME" */
static const char *shows(const char *name) {
    static char more[ARGS];
    tls_args(more, name, "");
    return more;
}

Test(tls, clients_must_show_a_clients_certificate_where_one_is_asked_for) {
    char more[700];
    open_crew("");
    certs_authority(c.f.dir, "other");
    certs_issue(c.f.dir, "ca", "client", "DNS:somebody.example", 24);
    certs_issue(c.f.dir, "other", "stranger", "DNS:somebody.example", 24);
    certs_issue(c.f.dir, "ca", "expired", "DNS:somebody.example", -1);
    snprintf(more, sizeof more, "--tls-client-ca %s", ca);
    tls_args(c.router_args, "router", more);
    crew_start(&c, 1, 1);
    answers(shows("client"));
    snprintf(more, sizeof more, "--tls-ca %s", ca);
    refuses(more);
    refuses(shows("stranger"));
    refuses(shows("expired"));
    refuses(shows("decode"));
    cr_assert(strstr(fleet_said.err, "a worker's certificate is not a client"), "%s",
              fleet_said.err);
    program_wait_said(&c.router, "event=refused");
    crew_stop(&c);
    crew_close(&c);
}

Test(tls, a_worker_joins_only_in_the_role_of_its_certificate) {
    open_crew("");
    tls_args(c.decode_args, "prefill", "");
    crew_start_router(&c);
    crew_start_decode(&c, 0);
    c.n_decode = 1;
    program_wait_said(&c.router, "its introduction has no valid proof");
    certs_issue(c.f.dir, "ca", "client", "DNS:somebody.example", 24);
    tls_args(c.prefill_args, "client", "");
    crew_start_prefill(&c, 0);
    c.n_prefill = 1;
    program_wait_said(&c.router, "the certificate's role may not call this method");
    crew_close(&c);
}

Test(tls, where_certificates_identify_members_the_secret_may_be_left_out) {
    char router[ARGS], more[700];
    open_crew("");
    const char *d = c.f.dir;
    tls_args(router, "router", "");
    program_start(&c.router, d, "router", "fovea-router", "--listen 127.0.0.1:0 %s", router);
    snprintf(c.f.address, sizeof c.f.address, "%s", c.router.address);
    for (int i = 0; i < 2; i++)
        program_start(i ? &c.decode[0] : &c.prefill[0], d, i ? "decode" : "prefill",
                      i ? "fovea-decode" : "fovea-prefill",
                      "--checkpoint %s/ck --router %s --threads 1 %s", d, c.router.fleet,
                      i ? c.decode_args : c.prefill_args);
    program_wait_said(&c.prefill[0], "event=joined");
    program_wait_said(&c.decode[0], "event=joined");
    snprintf(more, sizeof more, "--tls-ca %s", ca);
    answers(more);
    crew_close(&c);
}

/* ---- health and reflection ---------------------------------------------------------------- */

typedef struct heard {
    bool over;
    grpc_status_code code;
} heard;

static void on_answer(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                      grpc_byte_buffer *reply) {
    heard *h = user;
    (void)call, (void)reply;
    h->code = end->code;
    h->over = true;
}

static net rig;

/* Returns how a plain call with an empty message ends. */
static grpc_status_code call_plain(const char *address, const char *path) {
    Grpc__Health__V1__HealthCheckRequest m = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    fv_rpc_channel *to;
    heard h = {0};
    cr_assert_eq(fv_rpc_channel_open(rig.bridge, address, NULL, &to), FV_OK);
    cr_assert_eq(fv_rpc_unary(to, path, &m.base, 10000, on_answer, &h, NULL), FV_OK);
    net_wait(&rig, &h.over);
    fv_rpc_channel_close(to);
    return h.code;
}

#define HEALTH "/grpc.health.v1.Health/Check"
#define MODEL "/fovea.inference.v1.Inference/GetModel"
#define REFLECTION "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

static void reads_address(const program *p, const char *words, char address[64]) {
    command_run(&fleet_said, "sed -n 's/^%s //p' %s/%s.out", words, p->dir, p->name);
    cr_assert_eq(sscanf(fleet_said.out, "%63s", address), 1, "no %s", words);
}

Test(tls, probes_without_certificate_have_a_listener_for_health_checks_alone) {
    char probes[64];
    open_crew("--health-listen 127.0.0.1:0");
    net_open(&rig);
    crew_start_router(&c);
    reads_address(&c.router, "health checks on", probes);
    cr_assert_eq(call_plain(probes, HEALTH), GRPC_STATUS_OK);
    cr_assert_eq(call_plain(probes, MODEL), GRPC_STATUS_UNIMPLEMENTED);
    cr_assert_eq(call_plain(probes, REFLECTION), GRPC_STATUS_UNIMPLEMENTED);
    cr_assert_eq(call_plain(c.f.address, HEALTH), GRPC_STATUS_UNAVAILABLE);
    net_close(&rig, 1000);
    crew_stop(&c);
    crew_close(&c);
}

Test(tls, each_listener_offers_health_and_reflection_as_told) {
    static const struct {
        const char *args;
        bool health, reflection, fleet_health;
    } rows[] = {{"", true, true, true},
                {"--services none", false, false, true},
                {"--services health --fleet-services none", true, false, false},
                {"--services reflection", false, true, true}};
    crew_open(&c, "services", "tiny");
    net_open(&rig);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(c.router_args, sizeof c.router_args, "%s", rows[i].args);
        crew_start_router(&c);
        bool health = call_plain(c.f.address, HEALTH) != GRPC_STATUS_UNIMPLEMENTED;
        bool reflection = call_plain(c.f.address, REFLECTION) != GRPC_STATUS_UNIMPLEMENTED;
        bool fleet_health = call_plain(c.fleet, HEALTH) != GRPC_STATUS_UNIMPLEMENTED;
        cr_assert(health == rows[i].health && reflection == rows[i].reflection &&
                      fleet_health == rows[i].fleet_health,
                  "%s", rows[i].args);
        crew_stop(&c);
    }
    net_close(&rig, 1000);
    command_run(&fleet_said,
                FOVEA_BIN "/fovea-router --services helath --fleet-token-file %s/fleet.token",
                c.f.dir);
    cr_assert_eq(fleet_said.status, 2);
    cr_assert(strstr(fleet_said.err, "'helath' is neither health nor reflection"), "%s",
              fleet_said.err);
    crew_close(&c);
}

/* ---- without TLS ------------------------------------------------------------------------- */

Test(tls, without_it_a_daemon_listens_on_loopback_only_unless_told) {
    static const char *const programs[] = {"fovea-router", "fovea-prefill", "fovea-decode"};
    fleet_open(&c.f, "tls-loopback");
    fleet_synth(&c.f, "tiny");
    command_run(&fleet_said, "head -c 32 /dev/urandom | base64 >%s/fleet.token", c.f.dir);
    for (int i = 0; i < 3; i++) {
        char checkpoint[500] = "";
        if (i) snprintf(checkpoint, sizeof checkpoint, "--checkpoint %s/ck", c.f.dir);
        command_run(&fleet_said,
                    "timeout 60 " FOVEA_BIN "/%s --listen %s --fleet-token-file %s/fleet.token %s",
                    programs[i], i ? "[::]:0" : "0.0.0.0:0", c.f.dir, checkpoint);
        cr_assert_eq(fleet_said.status, 2, "%s", fleet_said.err);
        cr_assert(strstr(fleet_said.err, "--insecure"), "%s", fleet_said.err);
    }
    program_start(&c.router, c.f.dir, "router", "fovea-router",
                  "--listen 0.0.0.0:0 --insecure --fleet-token-file %s/fleet.token", c.f.dir);
    program_kill(&c.router, SIGTERM);
    cr_assert_eq(program_wait(&c.router), 0);
    fleet_close(&c.f);
}

/* ---- rotation ---------------------------------------------------------------------------- */

typedef struct load {
    fv_remote *remote;
    int32_t n_over, n_good;
    char why[512];
} load;

static fv_status on_tokens(void *user, const Fovea__Inference__V1__Tokens *t) {
    (void)user, (void)t;
    return FV_OK;
}

static fv_status on_finished(void *user, const Fovea__Inference__V1__Finished *f) {
    (void)user, (void)f;
    return FV_OK;
}

static void on_over(void *user, fv_status st, const fv_rpc_end *end) {
    load *l = user;
    (void)end;
    l->n_over++;
    l->n_good += st == FV_OK;
    if (st != FV_OK) snprintf(l->why, sizeof l->why, "%s", fv_last_error());
}

static void ask_again(load *l) {
    static const fv_remote_events events = {
        .tokens = on_tokens, .finished = on_finished, .over = on_over};
    Fovea__Inference__V1__GenerateRequest m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"hello";
    m.prompt = &prompt;
    m.max_tokens = 8;
    cr_assert_eq(fv_remote_begin(l->remote, &m, 60000, &events, l), FV_OK, "%s", fv_last_error());
}

/* Issues new certificates for all, one after the other, valid for so many days. */
static void rotate(int days) {
    static const struct {
        const char *name, *san;
    } all[] = {{"router", "DNS:fovea-router,IP:127.0.0.1"},
               {"prefill", "DNS:fovea-prefill"},
               {"decode", "DNS:fovea-decode"}};
    for (int i = 0; i < 3; i++) {
        certs_issue(c.f.dir, "ca", "next", all[i].san, 24 * days + 1);
        certs_replace(c.f.dir, "next", all[i].name);
    }
}

/* Tells whether all have loaded the certificates of so many days. */
static bool rotated(int days) {
    char loaded[32];
    snprintf(loaded, sizeof loaded, "days_left=%d", days);
    return program_said(&c.router, loaded) && program_said(&c.prefill[0], loaded) &&
           program_said(&c.decode[0], loaded);
}

Test(tls, certificates_change_under_load_and_no_request_fails) {
    enum { AT_ONCE = 4, ROUNDS = 3, FIRST = 3 };
    load l = {0};
    int32_t begun = 0;
    open_crew("--tls-age-ms 1000 --report-ms 50");
    tls_args(c.prefill_args, "prefill", "--tls-age-ms 1000");
    tls_args(c.decode_args, "decode", "--tls-age-ms 1000");
    crew_start(&c, 1, 1);
    fleet_connect(&c.f, &l.remote);
    for (int days = FIRST; days < FIRST + ROUNDS; days++) {
        rotate(days);
        for (bool done = false; !done || l.n_over < begun;) {
            done = done || (rotated(days) &&
                            program_said(&c.router, "worker=decode-0 event=joined-again") &&
                            program_said(&c.router, "worker=prefill-0 event=joined-again"));
            for (; !done && begun - l.n_over < AT_ONCE; begun++) ask_again(&l);
            /* All answers may have ended in one turn of the loop; another turn would wait for ever. */
            if (l.n_over < begun) uv_run(fv_remote_loop(l.remote), UV_RUN_ONCE);
        }
    }
    cr_assert_eq(l.n_good, begun, "%d of %d: %s", l.n_good, begun, l.why);
    fv_remote_close(l.remote);
    cr_assert(!program_said(&c.router, "event=lost"), "no worker was lost");
    crew_stop(&c);
    crew_close(&c);
}

/* ---- metrics ----------------------------------------------------------------------------- */

/* Prints "OK" and the certificate's serial number, or why not. */
static void scrape(const char *authority) {
    command_run(&fleet_said,
                "/usr/bin/python3 -B -c '\n"
                "import socket, ssl, sys\n"
                "host, port = sys.argv[1].rsplit(\":\", 1)\n"
                "context = ssl.create_default_context(cafile=sys.argv[2])\n"
                "s = socket.create_connection((\"127.0.0.1\", int(port)), 60)\n"
                "s = context.wrap_socket(s, server_hostname=\"fovea-router\")\n"
                "s.sendall(b\"GET /metrics HTTP/1.0\\r\\n\\r\\n\")\n"
                "text = b\"\".join(iter(lambda: s.recv(65536), b\"\"))\n"
                "assert b\" 200 OK\" in text and b\"fovea_build_info\" in text, text\n"
                "' %s %s 2>&1",
                c.router.metrics, authority);
}

Test(tls, metrics_are_encrypted_where_others_reach_them) {
    if (access("/usr/bin/python3", X_OK) != 0) cr_skip("there is no /usr/bin/python3");
    open_crew("--metrics 0.0.0.0:0");
    crew_start_router(&c);
    scrape(ca);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    certs_authority(c.f.dir, "other");
    scrape(certs_path(c.f.dir, "other", "crt"));
    cr_assert_neq(fleet_said.status, 0);
    cr_assert(strstr(fleet_said.out, "CERTIFICATE_VERIFY_FAILED"), "%s", fleet_said.out);
    /* Another authority's certificate replaces the first one. */
    certs_issue(c.f.dir, "other", "next", "DNS:fovea-router,IP:127.0.0.1", 24);
    certs_replace(c.f.dir, "next", "router");
    for (int i = 0; i < 600; i++) {
        scrape(certs_path(c.f.dir, "other", "crt"));
        if (fleet_said.status == 0) break;
    }
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    program_kill(&c.router, SIGTERM);
    cr_assert_eq(program_wait(&c.router), 0);
    crew_close(&c);
}

Test(tls, metrics_in_plain_text_are_on_loopback_unless_insecure) {
    crew_open(&c, "tls", "tiny");
    command_run(&fleet_said,
                FOVEA_BIN "/fovea-router --fleet-token-file %s/fleet.token --metrics 0.0.0.0:0",
                c.f.dir);
    cr_assert_eq(fleet_said.status, 2);
    cr_assert(strstr(fleet_said.err, "--insecure"), "%s", fleet_said.err);
    snprintf(c.router_args, sizeof c.router_args, "--metrics 0.0.0.0:0 --insecure");
    crew_start_router(&c);
    program_kill(&c.router, SIGTERM);
    cr_assert_eq(program_wait(&c.router), 0);
    crew_close(&c);
}
