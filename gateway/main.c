/* fovea-gateway: options, the daemon, the gateway in it. */
#include <stdio.h>
#include <string.h>

#include "common/client_address.h"
#include "common/limits.h"
#include "common/log.h"
#include "gateway/gateway.h"
#include "rpc/listen.h"
#include "serving/daemon.h"
#include "telemetry/metrics.h"
#include "video/video.h"

static const fv_option table[] = {
    FV_DAEMON_PLAIN_OPTIONS,
    FV_DAEMON_SAMPLE_OPTION,
    {"tls-cert", "FOVEA_TLS_CERT", FV_OPTION_STRING, "FILE", NULL,
     "PEM certificate chain for clients; turns TLS on; reread when it changes", 0, 0},
    {"tls-key", "FOVEA_TLS_KEY", FV_OPTION_STRING, "FILE", NULL, "its private key in PEM", 0, 0},
    FV_PEER_CLIENT_TLS_OPTIONS,
    {"insecure", "FOVEA_INSECURE", FV_OPTION_FLAG, NULL, NULL,
     "without TLS, listen on other addresses than loopback too", 0, 0},
    {"router", "FOVEA_ROUTER", FV_OPTION_STRING, "HOST:PORT", NULL, "the router to call", 0, 0},
    {"router-tls-ca", "FOVEA_ROUTER_TLS_CA", FV_OPTION_STRING, "FILE", NULL,
     "call the router over TLS, and trust these PEM certificates; system: those of the system", 0,
     0},
    {"router-tls-cert", "FOVEA_ROUTER_TLS_CERT", FV_OPTION_STRING, "FILE", NULL,
     "PEM certificate chain that the router is shown", 0, 0},
    {"router-tls-key", "FOVEA_ROUTER_TLS_KEY", FV_OPTION_STRING, "FILE", NULL,
     "its private key in PEM", 0, 0},
    {"router-tls-name", "FOVEA_ROUTER_TLS_NAME", FV_OPTION_STRING, "NAME", NULL,
     "DNS name in the router's certificate; default: the host of --router", 0, 0},
    {"allow-host", "FOVEA_ALLOW_HOST", FV_OPTION_LIST, "NAME", NULL,
     "a host name that clients may use (header Host), such as a proxy's; repeatable; default: on "
     "loopback "
     "this machine's own names, elsewhere any",
     0, 0},
    {"allow-origin", "FOVEA_ALLOW_ORIGIN", FV_OPTION_LIST, "ORIGIN", NULL,
     "an origin, such as https://app.example.com, whose pages may use it from a browser (CORS); "
     "repeatable; default: only the gateway's own page",
     0, 0},
    {"body-bytes", "FOVEA_BODY_BYTES", FV_OPTION_INT, "BYTES", "67108864",
     "maximum size of a request's body", 1024, 1 << 30},
    {"json-bytes", "FOVEA_JSON_BYTES", FV_OPTION_INT, "BYTES", "4194304",
     "maximum size of a body without the data: URLs of its images and videos", 1024, 1 << 30},
    {"bodies-bytes", "FOVEA_BODIES_BYTES", FV_OPTION_INT, "BYTES", "268435456",
     "maximum size of all bodies that are being read", 1024, 1e15},
    {"connections", "FOVEA_CONNECTIONS", FV_OPTION_INT, "N", NULL,
     "maximum number of connections; default: three quarters of the files that may be open, at "
     "most "
     "4096",
     1, 1 << 20},
    {"per-address", "FOVEA_PER_ADDRESS", FV_OPTION_INT, "N", NULL,
     "maximum number of connections from one address, and of requests at a time for one address "
     "behind --trusted-proxies; 0: no limit; default: an eighth of --connections",
     0, 1 << 20},
    {"trusted-proxies", "FOVEA_TRUSTED_PROXIES", FV_OPTION_LIST, "ADDRESS[/BITS]", NULL,
     "trust X-Forwarded-For from these proxies, such as 10.0.0.0/8; repeatable", 0, 0},
    {"read-ms", "FOVEA_READ_MS", FV_OPTION_INT, "MS", "30000",
     "time for a client to send its request", 1, 86400000},
    {"write-ms", "FOVEA_WRITE_MS", FV_OPTION_INT, "MS", "30000",
     "time after which a connection is closed whose client does not read its answer", 1, 86400000},
    {"allow-image-hosts", "FOVEA_ALLOW_IMAGE_HOSTS", FV_OPTION_LIST, "NAME[:PORT]", NULL,
     "fetch images at http(s) URLs of this host, from public addresses only; repeatable; default: "
     "only data: URLs",
     0, 0},
    {"image-ca", "FOVEA_IMAGE_CA", FV_OPTION_STRING, "FILE", NULL,
     "PEM certificates of the authorities to trust for images at https URLs; default: those of the "
     "system",
     0, 0},
    {"image-bytes", "FOVEA_IMAGE_BYTES", FV_OPTION_INT, "BYTES", "16777216",
     "maximum size of an image that is fetched", 1, 1 << 30},
    {"image-ms", "FOVEA_IMAGE_MS", FV_OPTION_INT, "MS", "10000",
     "time for fetching an image, redirects included", 1, 600000},
    {"deadline-ms", "FOVEA_DEADLINE_MS", FV_OPTION_INT, "MS", "600000", "deadline of a request", 1,
     86400000},
};
enum { N_TABLE = sizeof table / sizeof table[0], CONNECTIONS = 4096 };

typedef struct program {
    fv_daemon *daemon;
    fv_gateway *gateway;
    fv_tls *router_tls; /* NULL: plain text */
    fv_trusted *trusted;
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

static void on_closed(void *user) { fv_daemon_end(((program *)user)->daemon); }

static void drain(void *user) { fv_gateway_leave(((program *)user)->gateway); }

static bool idle(void *user) { return fv_gateway_idle(((program *)user)->gateway); }

static void measure(void *user) { fv_gateway_measure(((program *)user)->gateway); }

static void stopped(void *user) {
    program *p = user;
    fv_gateway_close(p->gateway, on_closed, p);
    p->gateway = NULL;
}

static fv_status run(const fv_options *o) {
    program p = {0};
    fv_daemon_hooks hooks = {.user = &p,
                             .guest = true,
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
    fv_status st = open_router_tls(o, &p.router_tls);
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
        .connections = connections_of(o),
        .trusted = p.trusted,
        .read_ms = (int32_t)fv_options_int(o, "read-ms"),
        .write_ms = (int32_t)fv_options_int(o, "write-ms"),
        .deadline_ms = fv_options_int(o, "deadline-ms"),
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
    return st;
}

int main(int argc, char **argv) {
    static const fv_daemon_program self = {
        .name = "fovea-gateway",
        .usage = "fovea-gateway --router HOST:PORT [--listen HOST:PORT]",
        .about = "Serves OpenAI's HTTP API, answered by the router at --router. docs/HTTP.md "
                 "describes it.",
        .table = table,
        .n_option = N_TABLE,
        .run = run};
    return fv_daemon_main(&self, argc, argv);
}
