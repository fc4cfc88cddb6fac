/* The program fovea-router: options, and a daemon with a router. */
#include <stdio.h>

#include "auth/fleet_name.h"
#include "auth/fleet_secret.h"
#include "common/log.h"
#include "router/front.h"
#include "router/router.h"
#include "serving/daemon.h"
#include "telemetry/metrics.h"

typedef struct program {
    fv_daemon *daemon;
    fv_router *router;
} program;

static void on_closed(void *user) { fv_daemon_end(((program *)user)->daemon); }

static void drain(void *user) { fv_router_drain(((program *)user)->router); }

static void left(void *user) { fv_router_announce_end(((program *)user)->router); }

static bool idle(void *user) { return fv_router_idle(((program *)user)->router); }

static void measure(void *user) { fv_router_measure(((program *)user)->router); }

static void stopped(void *user) {
    program *p = user;
    fv_router_close(p->router, on_closed, p);
}

/* Reports healthy while a fleet has ready workers of both roles. */
static void on_serving(void *user, bool serving) {
    program *p = user;
    if (fv_daemon_set_health(p->daemon, "", serving) != FV_OK ||
        fv_daemon_set_health(p->daemon, "fovea.inference.v1.Inference", serving) != FV_OK)
        FV_LOG(ERROR, ROUTER, "event=health-unknown reason=\"%s\"", fv_last_error());
}

static fv_status open_trusted(const fv_options *o, fv_trusted **out) {
    const char *const *list;
    int n = fv_options_list(o, "trusted-proxies", &list);
    fv_status st = fv_trusted_open(list, n, out);
    return st == FV_OK ? st : fv_fail_prefix(st, "--trusted-proxies");
}

static fv_status run(const fv_options *o) {
    program p = {0};
    fv_daemon_hooks hooks = {.user = &p,
                             .linger_ms = (int32_t)fv_options_int(o, "linger-ms"),
                             .refuse_ms = FV_ROUTER_REFUSE_MS,
                             .drain = drain,
                             .left = left,
                             .idle = idle,
                             .stopped = stopped,
                             .metrics = FV_DAEMON_ROUTER,
                             .sample = fv_options_float(o, "trace-sample"),
                             .measure = measure};
    fv_router_options opt = {.queue_max = (int32_t)fv_options_int(o, "queue"),
                             .zone = fv_options_string(o, "zone"),
                             .tenants = fv_options_string(o, "tenants"),
                             .deadline_ms = fv_options_int(o, "deadline-ms"),
                             .wait_ms = fv_options_int(o, "wait-ms"),
                             .unread_ms = fv_options_int(o, "unread-ms"),
                             .replays = (int32_t)fv_options_int(o, "replays"),
                             .max_tokens_default =
                                 (uint32_t)fv_options_int(o, "max-tokens-default"),
                             .report_ms = (uint32_t)fv_options_int(o, "report-ms"),
                             .stall_ms = fv_options_int(o, "stall-ms"),
                             .hints = (size_t)fv_options_int(o, "hints"),
                             .silence_ms = (uint32_t)fv_options_int(o, "silence-ms"),
                             .on_serving = on_serving,
                             .user = &p};
    size_t memory = fv_front_memory((size_t)fv_options_int(o, "memory-bytes"));
    int32_t first_message_ms = (int32_t)fv_options_int(o, "first-message-ms");
    fv_rpc_limits limits = fv_front_limits(memory, first_message_ms);
    fv_trusted *trusted;
    fv_status st;
    FV_TRY(
        fv_front_queue_bytes(memory, (size_t)fv_options_int(o, "queue-bytes"), &opt.queue_bytes));
    st = fv_zone_check(opt.zone);
    if (st != FV_OK) return fv_fail_prefix(st, "--zone");
    FV_TRY(open_trusted(o, &trusted));
    opt.trusted = trusted;
    FV_TRY_GOTO(fv_daemon_open(o, &hooks, &p.daemon), st, close_trusted);
    opt.tls = fv_daemon_tls(p.daemon);
    /* Workers join again before their connection is too old for new calls. */
    if (opt.tls) opt.renew_ms = (uint32_t)(fv_options_int(o, "tls-age-ms") * 3 / 4);
    opt.spiffe = fv_options_string(o, "tls-spiffe");
    FV_TRY_GOTO(fv_fleet_secret_of(o, opt.tls != NULL, &opt.fleet), st, out);
    FV_TRY_GOTO(fv_router_open(fv_daemon_bridge(p.daemon), &opt, &p.router), st, out);
    fv_rpc_service clients = fv_router_clients_service(p.router);
    fv_rpc_service fleet = fv_router_fleet_service(p.router);
    FV_LOG(INFO, ROUTER,
           "event=limits memory_bytes=%zu queue_bytes=%zu network_bytes=%zu streams=%d", memory,
           opt.queue_bytes, limits.memory, limits.streams);
    fv_daemon_listener listeners[] = {{.option = "listen",
                                       .words = "listening on",
                                       .services = &clients,
                                       .n_service = 1,
                                       .offers = "services",
                                       .clients = true,
                                       .leave_early = true,
                                       .limits = limits},
                                      {.option = "fleet-listen",
                                       .offers = "fleet-services",
                                       .words = "workers join on",
                                       .services = &fleet,
                                       .n_service = 1,
                                       .leave_early = true}};
    st = fv_daemon_serve(p.daemon, listeners, 2);
    if (st != FV_OK) {
        fv_router_close(p.router, NULL, NULL);
        goto out;
    }
    on_serving(&p, false);
    fv_daemon_run(p.daemon);
out:
    fv_daemon_close(p.daemon);
close_trusted:
    fv_trusted_close(trusted);
    return st;
}

int main(int argc, char **argv) { return fv_daemon_main(FV_PROGRAM_ROUTER, run, argc, argv); }
