/* rpc/tls.c, and TLS in rpc/server.c and rpc/client.c: who gets a connection, and what happens when
 * the files change. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/certs.h"
#include "tests/support/handshakes.h"
#include "tests/support/net.h"
#include "tests/support/tensor_file.h"

TestSuite(rpc_tls, .timeout = 240);

static net r;
static net_heard h;
static char dir[512];

static fv_tls *tls(const char *pair, const char *authority) {
    fv_tls *t;
    fv_tls_files files = {.cert = pair ? certs_path(dir, pair, "crt") : NULL,
                          .key = pair ? certs_path(dir, pair, "key") : NULL,
                          .ca = authority ? certs_path(dir, authority, "crt") : NULL};
    cr_assert_eq(fv_tls_open(&files, &t), FV_OK, "%s", fv_last_error());
    return t;
}

static void make_certificates(void) {
    scratch_dir(dir, sizeof dir);
    certs_authority(dir, "ca");
    certs_issue(dir, "ca", "server", "DNS:fovea-decode", 1);
    certs_issue(dir, "ca", "client", "DNS:fovea-router,URI:spiffe://fleet/fovea-router", 1);
}

static void open_net(fv_tls *server, fv_tls *client) {
    r.server_tls = server;
    r.channel_tls = client;
    if (!r.server_name) r.server_name = "fovea-decode";
    net_open(&r);
}

static void close_net(void) {
    net_close(&r, 1000);
    fv_tls_close(r.server_tls);
    fv_tls_close(r.channel_tls);
}

static void refused(fv_tls *server, fv_tls *client) {
    open_net(server, client);
    net_ask(&r, &h, NET_ECHO, 2000, "x", 1);
    net_wait(&r, &h.over);
    cr_assert_neq(h.end.status, FV_OK);
    cr_assert_eq(r.seen.started, 0, "no call reaches a handler");
    close_net();
}

/* ---- accepted and refused connections ---------------------------------------------------- */

Test(rpc_tls, both_sides_with_certificates_of_the_same_authority_talk) {
    make_certificates();
    open_net(tls("server", "ca"), tls("client", "ca"));
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    close_net();
}

Test(rpc_tls, a_client_without_certificate_is_refused) {
    make_certificates();
    refused(tls("server", "ca"), tls(NULL, "ca"));
}

Test(rpc_tls, a_client_without_tls_is_refused) {
    make_certificates();
    refused(tls("server", "ca"), NULL);
}

Test(rpc_tls, a_client_with_another_authoritys_certificate_is_refused) {
    make_certificates();
    certs_authority(dir, "other");
    certs_issue(dir, "other", "stranger", "DNS:fovea-router", 1);
    refused(tls("server", "ca"), tls("stranger", "ca"));
}

Test(rpc_tls, a_client_with_an_expired_certificate_is_refused) {
    make_certificates();
    certs_issue(dir, "ca", "old", "DNS:fovea-router", -1);
    refused(tls("server", "ca"), tls("old", "ca"));
}

Test(rpc_tls, a_server_of_another_name_is_refused) {
    make_certificates();
    r.server_name = "fovea-prefill";
    refused(tls("server", "ca"), tls("client", "ca"));
}

Test(rpc_tls, a_server_of_another_authority_is_refused) {
    make_certificates();
    certs_authority(dir, "other");
    certs_issue(dir, "other", "stranger", "DNS:fovea-decode", 1);
    refused(tls("stranger", "ca"), tls("client", "ca"));
}

Test(rpc_tls, a_server_without_an_authority_asks_for_no_certificate) {
    make_certificates();
    open_net(tls("server", NULL), tls(NULL, "ca"));
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    close_net();
}

/* ---- certificates that a server reads ---------------------------------------------------- */

static fv_status only_routers(void *user, fv_rpc_call *c, const fv_rpc_method *m) {
    (void)user, (void)m;
    if (fv_rpc_call_peer_named(c, "FOVEA-router") &&
        fv_rpc_call_peer_spiffe(c, "spiffe://fleet/fovea-router") &&
        !fv_rpc_call_peer_named(c, "fovea") && !fv_rpc_call_peer_spiffe(c, "fovea-router"))
        return FV_OK;
    return FV_FAIL(FV_EAUTH, "not a router");
}

Test(rpc_tls, a_server_reads_names_and_spiffe_id) {
    make_certificates();
    r.admit = only_routers;
    open_net(tls("server", "ca"), tls("client", "ca"));
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    close_net();
}

Test(rpc_tls, who_is_not_admitted_reaches_no_handler) {
    make_certificates();
    certs_issue(dir, "ca", "client", "DNS:fovea-prefill", 1);
    r.admit = only_routers;
    open_net(tls("server", "ca"), tls("client", "ca"));
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNAUTHENTICATED);
    cr_assert_eq(r.seen.started, 0);
    close_net();
}

Test(rpc_tls, over_plain_text_a_peer_has_no_name) {
    r.admit = only_routers;
    r.server_name = NULL;
    net_open(&r);
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNAUTHENTICATED);
    net_close(&r, 1000);
}

/* ---- files that change ------------------------------------------------------------------- */

static uint64_t wait_version(fv_tls *t, uint64_t above) {
    uint64_t v = fv_tls_version(t);
    for (int i = 0; v <= above && i < 100; i++) {
        net_sleep(&r, FV_TLS_LOOK_MS);
        v = fv_tls_version(t);
    }
    return v;
}

Test(rpc_tls, a_new_pair_is_taken_and_calls_on_the_old_connection_go_on) {
    net_heard old = {0}, fresh = {0};
    make_certificates();
    open_net(tls("server", "ca"), tls("client", "ca"));
    net_call(&r, &old, NET_SESSION, 60000);
    net_wait_for(&r, &r.seen.started, 1);
    char first[64];
    snprintf(first, sizeof first, "%s", r.seen.peer);
    certs_issue(dir, "ca", "next", "DNS:fovea-router", 1);
    certs_replace(dir, "next", "client");
    certs_issue(dir, "ca", "next", "DNS:fovea-decode", 1);
    certs_replace(dir, "next", "server");
    cr_assert_gt(wait_version(r.channel_tls, 1), 1, "the change was seen");
    net_ask_wait(&r, &fresh, NET_ECHO, "x", 1);
    cr_assert_eq(fresh.end.status, FV_OK, "%s", fresh.text);
    cr_assert_str_neq(r.seen.peer, first, "a connection of its own");
    cr_assert_eq(fv_rpc_call_send_buffer(old.call, net_bytes("abcdefgh", 8)), FV_OK);
    net_wait_for(&r, &old.n, 1);
    fv_rpc_call_close_send(old.call);
    net_wait(&r, &old.over);
    cr_assert_eq(old.end.status, FV_OK, "%s", old.text);
    close_net();
}

Test(rpc_tls, a_certificate_whose_key_has_not_come_yet_leaves_the_old_pair_in_use) {
    make_certificates();
    open_net(tls("server", "ca"), tls("client", "ca"));
    certs_issue(dir, "ca", "next", "DNS:fovea-decode", 1);
    cr_assert_eq(rename(certs_path(dir, "next", "crt"), certs_path(dir, "server", "crt")), 0);
    net_sleep(&r, 3 * FV_TLS_LOOK_MS);
    cr_assert_eq(fv_tls_version(r.server_tls), 1);
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(rename(certs_path(dir, "next", "key"), certs_path(dir, "server", "key")), 0);
    cr_assert_eq(wait_version(r.server_tls, 1), 2, "now it is whole");
    close_net();
}

Test(rpc_tls, an_expired_client_is_refused_once_its_connection_has_aged) {
    make_certificates();
    r.limits.age_ms = 300;
    open_net(tls("server", "ca"), tls("client", "ca"));
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    certs_authority(dir, "other"); /* a certificate no longer trusted acts like an expired one */
    cr_assert_eq(rename(certs_path(dir, "other", "crt"), certs_path(dir, "ca", "crt")), 0);
    bool refused = false;
    for (int i = 0; i < 50 && !refused; i++) {
        net_heard again = {0};
        net_sleep(&r, 100);
        net_ask(&r, &again, NET_ECHO, 2000, "x", 1);
        net_wait(&r, &again.over);
        refused = again.end.status != FV_OK;
    }
    cr_assert(refused);
    close_net();
}

/* ---- files that cannot be used ------------------------------------------------------------ */

static void cannot_open(const fv_tls_files *files, fv_status why, const char *word) {
    fv_tls *t;
    cr_assert_eq(fv_tls_open(files, &t), why, "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), word), "%s", fv_last_error());
}

Test(rpc_tls, files_that_cannot_be_used_are_refused_by_name) {
    make_certificates();
    const char *cert = certs_path(dir, "server", "crt"), *key = certs_path(dir, "server", "key");
    const char *other = certs_path(dir, "client", "key");
    cannot_open(&(fv_tls_files){.cert = cert}, FV_EINVAL, "needs its key");
    cannot_open(&(fv_tls_files){.cert = cert, .key = other}, FV_EDATA, "is not the key of");
    cannot_open(&(fv_tls_files){.cert = key, .key = key}, FV_EDATA, "no PEM certificate");
    cannot_open(&(fv_tls_files){.cert = cert, .key = cert}, FV_EDATA, "no PEM private key");
    cannot_open(&(fv_tls_files){.ca = key}, FV_EDATA, "no PEM certificate");
    cannot_open(&(fv_tls_files){.ca = "/nowhere/ca.crt"}, FV_ENOTFOUND, "/nowhere/ca.crt");
}

/* ---- many handshakes --------------------------------------------------------------------- */

Test(rpc_tls, handshakes_leave_nothing_behind) {
    enum { GROWTH = 256 << 10 };
    make_certificates();
    open_net(tls("server", "ca"), tls("client", "ca"));
    cr_assert_lt(handshakes_growth(&r, 40, 80, GROWTH), GROWTH);
    close_net();
}
