/* fovea-gateway: options, the daemon, the gateway in it. */
#include <stdio.h>
#include <string.h>

#include "auth/fleet_secret.h"
#include "common/client_address.h"
#include "common/limits.h"
#include "common/log.h"
#include "gateway/gateway.h"
#include "rpc/listen.h"
#include "serving/daemon.h"
#include "telemetry/metrics.h"
#include "video/video.h"

enum { CONNECTIONS = 4096 };

typedef struct program {
    fv_daemon *daemon;
    fv_gateway *gateway;
    fv_tls *router_tls; /* NULL: plain text */
    fv_trusted *trusted;
    fv_keys *keys; /* NULL: none */
} program;

/* Leaves a quarter of the file limit for the router, images, videos and the daemon itself. */
static int32_t connections_of(const fv_options *o) {
    size_t files = fv_file_limit() / 4 * 3, most = files < CONNECTIONS ? files : CONNECTIONS;
    if (!fv_options_given(o, "connections")) return most > 0 ? (int32_t)most : 1;
    int64_t asked = fv_options_int(o, "connections");
    if ((uint64_t)asked > files)
        FV_LOG(WARN, WIRE, "event=few-files connections=%lld files=%zu reason=\"%s\"",
               (long long)asked, fv_file_limit(), "raise the limit of open files (ulimit -n)");
    return (int32_t)asked;
}

/* By default, one address gets an eighth, so that a single client cannot take all connections. */
static int32_t per_address_of(const fv_options *o, int32_t connections) {
    if (fv_options_given(o, "per-address")) return (int32_t)fv_options_int(o, "per-address");
    return connections / 8 + 1;
}

static fv_status open_trusted(const fv_options *o, fv_trusted **out) {
    const char *const *list;
    int n = fv_options_list(o, "trusted-proxies", &list);
    fv_status st = fv_trusted_open(list, n, out);
    return st == FV_OK ? st : fv_fail_prefix(st, "--trusted-proxies");
}

static fv_status open_router_tls(const fv_options *o, fv_tls **out) {
    fv_tls_files files = {.cert = fv_options_string(o, "router-tls-cert"),
                          .key = fv_options_string(o, "router-tls-key"),
                          .ca = fv_options_string(o, "router-tls-ca")};
    if (!files.ca && files.cert)
        return FV_FAIL(FV_EINVAL, "--router-tls-cert needs --router-tls-ca: a file, or system");
    if (!files.ca) return FV_OK;
    if (strcmp(files.ca, "system") == 0) files.ca = NULL;
    return fv_tls_open(&files, out);
}

/* Only hashes of the keys stay. To be called before other threads start. */
static fv_status take_keys(const fv_options *o, fv_keys **out) {
    const char *const *keys;
    int n = fv_options_list(o, "api-key", &keys);
    if (n == 0) return FV_OK;
    FV_TRY(fv_keys_open(keys, n, out));
    fv_options_wipe(o, "api-key");
    return FV_OK;
}

static void on_closed(void *user) { fv_daemon_end(((program *)user)->daemon); }

static void linger(void *user) { fv_gateway_report_leaving(((program *)user)->gateway); }

static void drain(void *user) { fv_gateway_leave(((program *)user)->gateway); }

static bool idle(void *user) { return fv_gateway_idle(((program *)user)->gateway); }

static void measure(void *user) { fv_gateway_measure(((program *)user)->gateway); }

static void stopped(void *user) {
    program *p = user;
    fv_gateway_close(p->gateway, on_closed, p);
    p->gateway = NULL;
}

/* Reads where responses are kept, and the key. */
static fv_status store_of(const fv_options *o, fv_response_remote_options *out) {
    const char *path = fv_options_string(o, "responses-store-key-file");
    *out = (fv_response_remote_options){.url = fv_options_string(o, "responses-store"),
                                        .ca = fv_options_string(o, "responses-store-ca"),
                                        .deadline_ms = fv_options_int(o, "responses-store-ms")};
    if (!out->url) return FV_OK;
    if (!path)
        return FV_FAIL(FV_EINVAL, "--responses-store needs --responses-store-key-file: the secret "
                                  "with which responses are encrypted, the same for all gateways");
    return fv_fail_prefix(fv_fleet_secret_read(path, &out->key), "--responses-store-key-file");
}

static fv_status run(const fv_options *o) {
    program p = {0};
    fv_daemon_hooks hooks = {.user = &p,
                             .guest = true,
                             .linger_ms = (int32_t)fv_options_int(o, "linger-ms"),
                             .linger = linger,
                             .drain = drain,
                             .idle = idle,
                             .stopped = stopped,
                             .metrics = FV_DAEMON_GATEWAY,
                             .measure = measure,
                             .sample = fv_options_float(o, "trace-sample")};
    if (!fv_options_string(o, "router"))
        return FV_FAIL(FV_EINVAL, "--router HOST:PORT is needed: the router to call");
    const char *listen = fv_options_string(o, "listen");
    FV_TRY(fv_rpc_listen_check(listen));
    if (!fv_options_flag(o, "insecure") && !fv_options_string(o, "tls-cert") &&
        !fv_rpc_listen_is_local(listen))
        return FV_FAIL(FV_EINVAL,
                       "--listen %s: others can reach this address, and without TLS they can read "
                       "and change what goes over it: give --tls-cert and --tls-key, or --insecure "
                       "where something else protects it",
                       listen);
    fv_response_remote_options store;
    FV_TRY(store_of(o, &store));
    fv_access_form access;
    FV_TRY(fv_access_form_parse(fv_options_string(o, "access-log"), &access));
    fv_status st = take_keys(o, &p.keys);
    if (st == FV_OK) st = open_router_tls(o, &p.router_tls);
    /* GET /metrics has them also without --metrics, for which the daemon opens them. */
    if (st == FV_OK && !fv_options_given(o, "metrics")) st = fv_metrics_open(FV_DAEMON_GATEWAY);
    if (st == FV_OK) st = open_trusted(o, &p.trusted);
    if (st == FV_OK) st = fv_daemon_open(o, &hooks, &p.daemon);
    if (st != FV_OK) goto out;
    fv_gateway_options opt = {
        .bridge = fv_daemon_bridge(p.daemon),
        .listen = listen,
        .client_tls = fv_daemon_tls(p.daemon),
        .router = fv_options_string(o, "router"),
        .tls = {.tls = p.router_tls, .server_name = fv_options_string(o, "router-tls-name")},
        .body_max = (size_t)fv_options_int(o, "body-bytes"),
        .bodies_max = (size_t)fv_options_int(o, "bodies-bytes"),
        .json_max = (size_t)fv_options_int(o, "json-bytes"),
        .chat_templates = fv_options_flag(o, "allow-chat-template"),
        .connections = connections_of(o),
        .trusted = p.trusted,
        .read_ms = (int32_t)fv_options_int(o, "read-ms"),
        .write_ms = (int32_t)fv_options_int(o, "write-ms"),
        .deadline_ms = fv_options_int(o, "deadline-ms"),
        .keep_alive_ms = (int32_t)fv_options_int(o, "keep-alive-ms"),
        .strict_fields = fv_options_flag(o, "strict-fields"),
        .access = access,
        .responses = {.n_owner = fv_options_int(o, "responses"),
                      .bytes_owner = (size_t)fv_options_int(o, "responses-tenant-bytes"),
                      .bytes_all = (size_t)fv_options_int(o, "responses-bytes"),
                      .ms = fv_options_int(o, "responses-ms")},
        .responses_store = store,
        .keys = p.keys,
        .image_bytes = (size_t)fv_options_int(o, "image-bytes"),
        .image_ms = fv_options_int(o, "image-ms"),
        .image_ca = fv_options_string(o, "image-ca")};
    opt.per_address = per_address_of(o, opt.connections);
    opt.n_image_host = fv_options_list(o, "allow-image-hosts", &opt.image_hosts);
    opt.origin.n_host = fv_options_list(o, "allow-host", &opt.origin.hosts);
    opt.origin.n_origin = fv_options_list(o, "allow-origin", &opt.origin.origins);
    st = fv_gateway_open(&opt, &p.gateway);
    if (st == FV_OK) {
        if (fv_video_check_helper() != FV_OK)
            FV_LOG(WARN, WIRE, "event=no-video-decoder reason=\"%s\"", fv_last_error());
        st = fv_daemon_observe(p.daemon, fv_gateway_address(p.gateway));
        if (st != FV_OK)
            fv_daemon_drain(p.daemon, 0);
        else
            printf("listening on %s\n", fv_gateway_address(p.gateway));
        fflush(stdout);
        fv_daemon_run(p.daemon);
    }
out:
    fv_daemon_close(p.daemon);
    fv_tls_close(p.router_tls);
    fv_trusted_close(p.trusted);
    fv_keys_close(p.keys);
    return st;
}

int main(int argc, char **argv) { return fv_daemon_main(FV_PROGRAM_GATEWAY, run, argc, argv); }
