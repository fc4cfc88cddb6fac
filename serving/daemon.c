/* The frame of a server program, which opens and closes everything in the right order. The shutdown runs
 * on the loop: signals, the end of a server's last call and the program's own closing each start the next
 * step. Loop thread. */
#include "serving/daemon.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/heap.h"
#include "common/log.h"
#include "common/version.h"
#include "fovea_proto.h"
#include "rpc/health.h"
#include "rpc/listen.h"
#include "rpc/reflection.h"
#include "telemetry/metrics.h"
#include "telemetry/otlp/spans.h"
#include "telemetry/scrape/scrape.h"

enum { SERVICES_MAX = 8, N_SIGNAL = 2, IDLE_MS = 20, LOOK_MS = 50, MEASURE_MS = 100 };

typedef struct listener {
    fv_rpc_server *server;                     /* NULL: not open yet, or stopped */
    fv_rpc_service services[SERVICES_MAX + 2]; /* the program's, health and reflection */
    int32_t n_service;
    int32_t n_own; /* services of the program, which come first */
    fv_reflection *reflection;
    bool leave_early;
    fv_peer_gate gate;
    fv_tls *tls; /* owned if for clients; else the daemon's, or NULL */
    char address[256];
} listener;

struct fv_daemon {
    const fv_options *options; /* borrowed */
    fv_daemon_hooks hooks;
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_tls *tls; /* for fleet members; a guest's is for its clients; NULL: none */
    uv_signal_t signals[N_SIGNAL];
    uv_timer_t patience; /* for the waits of draining */
    uint64_t until_ms;   /* end of the grace period, by the loop's clock */
    uv_timer_t look;     /* looks at the vital signs */
    fv_liveness liveness;
    uv_timer_t heap_look;
    fv_heap_watch heap;
    uv_timer_t measure;
    fv_scrape *scrape; /* NULL: no metrics */
    fv_tls *otlp_tls;  /* to the collector; NULL: none */
    fv_health *health;
    listener listeners[FV_DAEMON_LISTENERS_MAX + 1]; /* and one for health checks */
    int32_t n_listener;
    bool healthy, draining, closing, ended;
};

/* ---- open and serve --------------------------------------------------------------------- */

static void on_signal(uv_signal_t *s, int number) {
    FV_LOG(INFO, WIRE, "event=signal name=SIG%s", sigabbrev_np(number));
    fv_daemon_drain(s->data, -1);
}

static void on_heap_look(uv_timer_t *t) {
    fv_daemon *d = t->data;
    size_t bytes = fv_heap_check(&d->heap);
    if (bytes) FV_LOG(INFO, WIRE, "event=memory-returned bytes=%zu", bytes);
}

static void watch_heap(fv_daemon *d) {
    uv_timer_init(&d->loop, &d->heap_look);
    d->heap_look.data = d;
    uv_timer_start(&d->heap_look, on_heap_look, FV_HEAP_LOOK_MS, FV_HEAP_LOOK_MS);
}

static void on_measure(uv_timer_t *t) {
    fv_daemon *d = t->data;
    d->hooks.measure(d->hooks.user);
    fv_scrape_tick(d->scrape, fv_clock_s());
}

static void watch_signals(fv_daemon *d) {
    static const int numbers[N_SIGNAL] = {SIGTERM, SIGINT};
    uv_timer_init(&d->loop, &d->patience);
    d->patience.data = d;
    uv_timer_init(&d->loop, &d->look);
    d->look.data = d;
    signal(SIGPIPE, SIG_IGN); /* the reader of our output may be gone; writing then fails */
    for (int i = 0; i < N_SIGNAL; i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
}

/* Raises the soft limit of open files, often 1024 for the sake of programs that use select: each connection is
 * a file. */
static void raise_file_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

fv_status fv_daemon_open(const fv_options *o, const fv_daemon_hooks *hooks, fv_daemon **out) {
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(fv_log_format(fv_options_string(o, "log-format")));
#ifndef FV_NO_FAULTS
    if (hooks->signs) FV_TRY(fv_failpoint_hang_at(fv_options_string(o, "hang-at")));
#endif
    if (fv_options_given(o, "metrics")) FV_TRY(fv_metrics_open(hooks->metrics));
    fv_daemon *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "no memory to start");
    d->options = o;
    d->hooks = *hooks;
    fv_status st = hooks->guest ? fv_peer_client_tls(o, &d->tls) : fv_peer_tls(o, &d->tls);
    if (st != FV_OK) goto free_daemon;
    int err = uv_loop_init(&d->loop);
    st = err == 0 ? FV_OK : FV_FAIL(FV_EIO, "no event loop: %s", uv_strerror(err));
    if (st != FV_OK) goto free_daemon;
    st = fv_bridge_open(&d->loop, &d->bridge);
    if (st != FV_OK) goto close_loop;
    raise_file_limit();
    watch_signals(d);
    watch_heap(d);
    uv_timer_init(&d->loop, &d->measure);
    d->measure.data = d;
    *out = d;
    return FV_OK;
close_loop:
    uv_run(&d->loop, UV_RUN_DEFAULT); /* finishes closing handles */
    uv_loop_close(&d->loop);
free_daemon:
    fv_tls_close(d->tls);
    free(d);
    return st;
}

fv_bridge *fv_daemon_bridge(const fv_daemon *d) { return d->bridge; }

fv_tls *fv_daemon_tls(const fv_daemon *d) { return d->tls; }

/* Sets the health of a service, whose name is in its methods' paths, "/package.Service/Method". */
static fv_status say_service(const fv_daemon *d, const fv_rpc_service *s, fv_health_state state) {
    for (int32_t i = 0; i < s->n_method; i++) {
        char name[128];
        const char *path = s->methods[i].path + 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "/"), path);
        FV_TRY(fv_health_set(d->health, name, state));
    }
    return FV_OK;
}

static fv_status say_all(const fv_daemon *d, fv_health_state state) {
    FV_TRY(fv_health_set(d->health, "", state));
    for (int32_t i = 0; i < d->n_listener; i++)
        for (int32_t j = 0; j < d->listeners[i].n_own; j++)
            FV_TRY(say_service(d, &d->listeners[i].services[j], state));
    return FV_OK;
}

static void on_look(uv_timer_t *t) {
    fv_daemon *d = t->data;
    fv_vital_signs signs = d->hooks.signs(d->hooks.user);
    if (signs.lost && d->hooks.on_lost) {
        uv_timer_stop(t);
        FV_LOG(ERROR, WIRE, "event=device-lost reason=\"%s\"", signs.lost);
        d->hooks.on_lost(d->hooks.user, signs.lost);
        return;
    }
    bool healthy = fv_liveness_update(&d->liveness, &signs, fv_clock_s());
    if (healthy == d->healthy) return;
    d->healthy = healthy;
    if (healthy)
        FV_LOG(INFO, WIRE, "event=healthy");
    else
        FV_LOG(ERROR, WIRE,
               "event=unhealthy reason=\"no request or probe has succeeded for %.1f s\"",
               d->liveness.unhealthy_s);
    /* Cannot fail: every name is known since serve, so nothing is allocated. */
    (void)say_all(d, healthy ? FV_HEALTH_SERVING : FV_HEALTH_NOT_SERVING);
    if (d->hooks.on_health) d->hooks.on_health(d->hooks.user, healthy);
}

static void watch_liveness(fv_daemon *d) {
    fv_liveness_init(&d->liveness, 1e-3 * (double)fv_options_int(d->options, "unhealthy-ms"));
    uv_timer_start(&d->look, on_look, 0, LOOK_MS);
}

/* Notes the address with the port that was bound instead of 0. */
static void take_address(listener *l, const char *listen) {
    const char *colon = strrchr(listen, ':');
    if (strncmp(listen, "unix:", 5) == 0 || !colon)
        snprintf(l->address, sizeof l->address, "%s", listen);
    else
        snprintf(l->address, sizeof l->address, "%.*s:%d", (int)(colon - listen), listen,
                 fv_rpc_server_port(l->server));
}

/* Reads a list such as "health,reflection". */
static fv_status read_offers(const fv_daemon *d, const fv_daemon_listener *in, bool *health,
                             bool *reflection) {
    const char *list = in->offers ? fv_options_string(d->options, in->offers) : "health";
    if (!list) list = in->clients ? "health,reflection" : "health";
    *health = *reflection = false;
    if (strcmp(list, "none") == 0) return FV_OK;
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == 6 && strncmp(list, "health", n) == 0)
            *health = true;
        else if (n == 10 && strncmp(list, "reflection", n) == 0)
            *reflection = true;
        else
            return FV_FAIL(FV_EINVAL, "--%s: '%.*s' is neither health nor reflection (nor none)",
                           in->offers, (int)n, list);
    }
    return FV_OK;
}

static fv_status take_services(fv_daemon *d, listener *l, const fv_daemon_listener *in) {
    if (in->n_service > SERVICES_MAX)
        return FV_FAIL(FV_EINVAL, "%d services, and at most %d fit", in->n_service, SERVICES_MAX);
    if (in->n_service) /* the list may be NULL if it is empty */
        memcpy(l->services, in->services, (size_t)in->n_service * sizeof *in->services);
    l->n_service = l->n_own = in->n_service;
    l->leave_early = in->leave_early;
    bool health, reflection;
    FV_TRY(read_offers(d, in, &health, &reflection));
    if (health) l->services[l->n_service++] = fv_health_service(d->health);
    if (!reflection) return FV_OK;
    FV_TRY(fv_reflection_open(fovea_proto_set, fovea_proto_set_size, l->services, l->n_service,
                              &l->reflection));
    l->services[l->n_service++] = fv_reflection_service(l->reflection);
    return FV_OK;
}

static fv_status listen_at(fv_daemon *d, listener *l, const fv_daemon_listener *in) {
    fv_rpc_server_options opt = {.listen = fv_options_string(d->options, in->option),
                                 .services = l->services,
                                 .n_service = l->n_service,
                                 .limits = in->limits};
    l->gate = (fv_peer_gate){.spiffe = fv_options_string(d->options, "tls-spiffe"),
                             .clients = in->clients};
    bool probes = !in->n_service; /* health checks only, which need no protection */
    l->tls = probes ? NULL : d->tls;
    if (in->clients) FV_TRY(fv_peer_client_tls(d->options, &l->tls));
    if (l->tls) {
        opt.tls = l->tls;
        opt.admit = fv_peer_admit;
        opt.user = &l->gate;
        if (!in->clients) opt.limits.age_ms = (int32_t)fv_options_int(d->options, "tls-age-ms");
    } else if (!probes) {
        FV_TRY(fv_rpc_listen_check(opt.listen));
        FV_TRY(fv_peer_check_listen(d->options, opt.listen));
    }
    FV_TRY(fv_rpc_server_open(d->bridge, &opt, &l->server));
    take_address(l, opt.listen);
    return FV_OK;
}

static fv_status serve_metrics(fv_daemon *d) {
    if (!fv_options_given(d->options, "metrics")) return FV_OK;
    const char *at = fv_options_string(d->options, "metrics");
    bool local = fv_scrape_is_local(at);
    if (!local && !d->tls && !fv_options_flag(d->options, "insecure"))
        return FV_FAIL(
            FV_EINVAL,
            "--metrics %s: other machines could reach this address without TLS: listen on "
            "loopback, or give %s, or --insecure",
            at, d->hooks.guest ? "--tls-cert and --tls-key" : "--tls-cert, --tls-key and --tls-ca");
    FV_TRY(fv_scrape_open(at, local ? NULL : d->tls, &d->scrape));
    uv_timer_start(&d->measure, on_measure, 0, MEASURE_MS);
    printf("metrics on %s\n", fv_scrape_address(d->scrape));
    return FV_OK;
}

static const char *service_of(unsigned daemon) {
    switch (daemon) {
    case FV_DAEMON_ROUTER: return "fovea-router";
    case FV_DAEMON_PREFILL: return "fovea-prefill";
    case FV_DAEMON_DECODE: return "fovea-decode";
    default: return "fovea-gateway";
    }
}

static fv_status send_spans(fv_daemon *d, const char *instance) {
    const fv_options *o = d->options;
    const char *ca = fv_options_string(o, "otlp-tls-ca");
    if (ca && !fv_options_given(o, "otlp"))
        return FV_FAIL(FV_EINVAL, "--otlp-tls-ca needs --otlp: the collector to call");
    if (!fv_options_given(o, "otlp")) return FV_OK;
    if (ca) {
        fv_tls_files files = {.ca = strcmp(ca, "system") == 0 ? NULL : ca};
        if (!d->hooks.guest) files.cert = fv_options_string(o, "tls-cert");
        if (!d->hooks.guest) files.key = fv_options_string(o, "tls-key");
        FV_TRY(fv_tls_open(&files, &d->otlp_tls));
    }
    fv_spans_options opt = {.bridge = d->bridge,
                            .collector = fv_options_string(o, "otlp"),
                            .tls = d->otlp_tls,
                            .service = service_of(d->hooks.metrics),
                            .instance = instance,
                            .sample = d->hooks.sample};
    return fv_spans_open(&opt);
}

fv_status fv_daemon_observe(fv_daemon *d, const char *instance) {
    FV_TRY(serve_metrics(d));
    return send_spans(d, instance);
}

static fv_status serve(fv_daemon *d, const fv_daemon_listener *listeners, int32_t n) {
    fv_daemon_listener in[FV_DAEMON_LISTENERS_MAX + 1];
    memcpy(in, listeners, (size_t)n * sizeof *in);
    if (fv_options_string(d->options, "health-listen"))
        in[n++] = (fv_daemon_listener){.option = "health-listen", .words = "health checks on"};
    FV_TRY(fv_health_open(&d->health));
    d->n_listener = n;
    for (int32_t i = 0; i < n; i++) FV_TRY(take_services(d, &d->listeners[i], &in[i]));
    FV_TRY(say_all(d, d->hooks.signs ? FV_HEALTH_NOT_SERVING : FV_HEALTH_SERVING));
    for (int32_t i = n - 1; i >= 0; i--) FV_TRY(listen_at(d, &d->listeners[i], &in[i]));
    /* Only workers have names. */
    const char *name = d->hooks.signs ? fv_options_string(d->options, "name") : NULL;
    FV_TRY(fv_daemon_observe(d, name ? name : d->listeners[0].address));
    for (int32_t i = n - 1; i >= 0; i--) printf("%s %s\n", in[i].words, d->listeners[i].address);
    fflush(stdout);
    if (d->hooks.signs) watch_liveness(d);
    return FV_OK;
}

fv_status fv_daemon_serve(fv_daemon *d, const fv_daemon_listener *listeners, int32_t n) {
    assert(n >= 1 && n <= FV_DAEMON_LISTENERS_MAX && !d->health);
    fv_status st = serve(d, listeners, n);
    if (st != FV_OK) fv_daemon_drain(d, 0);
    return st;
}

fv_status fv_daemon_set_health(fv_daemon *d, const char *service, bool serving) {
    bool now = serving && !d->draining;
    return fv_health_set(d->health, service, now ? FV_HEALTH_SERVING : FV_HEALTH_NOT_SERVING);
}

const char *fv_daemon_address(const fv_daemon *d) { return d->listeners[0].address; }

/* ---- the end ---------------------------------------------------------------------------- */

static int32_t left_ms(const fv_daemon *d) {
    uint64_t now = uv_now(&d->loop);
    return now < d->until_ms ? (int32_t)(d->until_ms - now) : 0;
}

/* Stops the servers one after the other, each within the rest of the grace period; then the program. */
static void stop_next(void *user) {
    fv_daemon *d = user;
    for (int32_t i = 0; i < d->n_listener; i++) {
        fv_rpc_server *server = d->listeners[i].server;
        if (!server) continue;
        d->listeners[i].server = NULL;
        fv_rpc_server_stop(server, left_ms(d), stop_next, d);
        return;
    }
    uv_timer_stop(&d->measure);
    if (d->hooks.stopped && !d->closing)
        d->hooks.stopped(d->hooks.user);
    else
        fv_daemon_end(d);
}

static void leave_early(fv_daemon *d) {
    for (int32_t i = 0; i < d->n_listener; i++)
        if (d->listeners[i].leave_early && d->listeners[i].server)
            fv_rpc_server_close_listener(d->listeners[i].server);
}

/* Waits until the program's running work is over, at most until the end of the grace period. */
static void on_patience(uv_timer_t *t) {
    fv_daemon *d = t->data;
    if (left_ms(d) && d->hooks.idle && !d->hooks.idle(d->hooks.user)) return;
    uv_timer_stop(t);
    stop_next(d);
}

static int32_t calls(const fv_daemon *d) {
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_listener; i++)
        if (d->listeners[i].server) n += fv_rpc_server_calls(d->listeners[i].server);
    return n;
}

static void on_refused(uv_timer_t *t) {
    fv_daemon *d = t->data;
    FV_LOG(INFO, WIRE, "event=leave calls=%d", calls(d));
    leave_early(d);
    if (d->hooks.left) d->hooks.left(d->hooks.user);
    uv_timer_start(&d->patience, on_patience, 0, IDLE_MS);
}

static void on_lingered(uv_timer_t *t) {
    fv_daemon *d = t->data;
    FV_LOG(INFO, WIRE, "event=drain calls=%d grace_ms=%d", calls(d), left_ms(d));
    if (d->hooks.drain) d->hooks.drain(d->hooks.user);
    if (left_ms(d) > d->hooks.refuse_ms && d->hooks.refuse_ms > 0)
        uv_timer_start(&d->patience, on_refused, (uint64_t)d->hooks.refuse_ms, 0);
    else
        on_refused(t);
}

void fv_daemon_drain(fv_daemon *d, int32_t grace_ms) {
    if (d->draining) return;
    d->draining = true;
    if (grace_ms < 0) grace_ms = (int32_t)fv_options_int(d->options, "grace-ms");
    int32_t linger_ms = grace_ms > 0 ? d->hooks.linger_ms : 0;
    uv_timer_stop(&d->look);
    if (d->health) fv_health_drain(d->health);
    d->until_ms = uv_now(&d->loop) + (uint64_t)linger_ms + (uint64_t)grace_ms;
    if (linger_ms > 0) {
        FV_LOG(INFO, WIRE, "event=linger calls=%d linger_ms=%d", calls(d), linger_ms);
        if (d->hooks.linger) d->hooks.linger(d->hooks.user);
        uv_timer_start(&d->patience, on_lingered, (uint64_t)linger_ms, 0);
    } else {
        on_lingered(&d->patience);
    }
}

static void on_spans_closed(void *user) {
    fv_bridge_close(((fv_daemon *)user)->bridge, NULL, NULL);
}

void fv_daemon_end(fv_daemon *d) {
    if (d->ended) return;
    d->ended = true;
    for (int i = 0; i < N_SIGNAL; i++) uv_close((uv_handle_t *)&d->signals[i], NULL);
    uv_close((uv_handle_t *)&d->patience, NULL);
    uv_close((uv_handle_t *)&d->look, NULL);
    uv_close((uv_handle_t *)&d->heap_look, NULL);
    uv_close((uv_handle_t *)&d->measure, NULL);
    fv_spans_close(on_spans_closed, d);
}

void fv_daemon_run(fv_daemon *d) { uv_run(&d->loop, UV_RUN_DEFAULT); }

void fv_daemon_close(fv_daemon *d) {
    if (!d) return;
    d->closing = true;
    d->until_ms = 0;
    uv_timer_stop(&d->measure);
    stop_next(d); /* stops servers that are still open if run was not called, without draining */
    uv_run(&d->loop, UV_RUN_DEFAULT);
    fv_scrape_close(d->scrape);
    fv_metrics_close();
    for (int32_t i = 0; i < d->n_listener; i++) {
        fv_reflection_close(d->listeners[i].reflection);
        if (d->listeners[i].gate.clients) fv_tls_close(d->listeners[i].tls);
    }
    fv_health_close(d->health);
    int left = uv_loop_close(&d->loop);
    assert(left == 0);
    (void)left;
    fv_tls_close(d->otlp_tls);
    fv_tls_close(d->tls);
    free(d);
}

fv_status fv_daemon_name(const fv_daemon *d, const char *role, char out[FV_WORKER_NAME_MAX + 1]) {
    const char *name = fv_options_string(d->options, "name");
    size_t cap = FV_WORKER_NAME_MAX + 1;
    int n = name ? snprintf(out, cap, "%s", name)
                 : snprintf(out, cap, "%s-%s", role, fv_daemon_address(d));
    if (n < 0 || (size_t)n >= cap)
        return FV_FAIL(FV_EINVAL, "--name must have 1..%d characters", FV_WORKER_NAME_MAX);
    fv_status st = fv_worker_name_check(out);
    if (st != FV_OK) return fv_fail_prefix(st, "--name");
    return FV_OK;
}

static int fail(const fv_program *program, int fd, fv_status st) {
    if (fd == STDERR_FILENO)
        fprintf(stderr, "%s: %s\n", program->name, fv_last_error());
    else /* whoever started the program says which it is */
        dprintf(fd, "%s\n", fv_last_error());
    return st == FV_EINVAL ? 2 : 1;
}

/* Children of this program, such as the decoder of videos, do not get the descriptor. */
static int take_error_fd(const fv_options *o) {
    int fd = (int)fv_options_int(o, "error-fd");
    if (fd != STDERR_FILENO && fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) fd = STDERR_FILENO;
    return fd;
}

static fv_status check_words(const fv_program *program, const fv_options *o) {
    const char *const *extra;
    if (fv_options_positional(o, &extra) > 0)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option; see %s --help", extra[0], program->name);
    return FV_OK;
}

int fv_daemon_main(unsigned bit, fv_status (*run)(const fv_options *o), int argc, char **argv) {
    const fv_program *program = fv_program_of(bit);
    fv_options *o;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", program->name, fv_version());
        return fflush(stdout) == 0 ? 0 : 1;
    }
    fv_status st = fv_program_parse(bit, argc, argv, &o);
    if (st != FV_OK) return fail(program, STDERR_FILENO, st);
    const int error_fd = take_error_fd(o);
    if (fv_options_help_wanted(o)) {
        fv_program_print_help(stdout, bit, fv_options_help_all_wanted(o));
    } else {
        st = check_words(program, o);
        if (st == FV_OK) st = run(o);
    }
    int rc = st == FV_OK ? 0 : fail(program, error_fd, st);
    fv_options_free(o);
    return rc;
}
