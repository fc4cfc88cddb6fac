/* Opening, closing, and the channels to the router. */
#include "gateway/gateway.h"

#include <stdlib.h>

#include "gateway/internal.h"
#include "rpc/listen.h"
#include "telemetry/metrics.h"

static void on_headers(void *user, fv_http_request *r) { fv_route(user, r); }

static void on_request(void *user, fv_http_request *r) {
    fv_gateway_task *t = fv_http_user(r);
    (void)user;
    if (t && t->reading) fv_reading_complete(t->reading);
}

static void on_writable(void *user, fv_http_request *r) {
    fv_gateway_task *t = fv_http_user(r);
    (void)user;
    if (t && t->writable) t->writable(t);
}

static void on_end(void *user, fv_http_request *r) {
    const fv_gateway *g = user;
    fv_gateway_task *t = fv_http_user(r);
    fv_record_request(r);
    fv_access_log(g->opt.access, r, t ? &t->facts : NULL);
    if (t) t->ended(t);
}

/* Checks the file at start: libcurl reads it only at the first fetch. */
static fv_status check_ca(const char *path) {
    fv_tls *t;
    FV_TRY(fv_tls_open(&(fv_tls_files){.ca = path}, &t));
    fv_tls_close(t);
    return FV_OK;
}

static fv_status open_parts(fv_gateway *g, const fv_gateway_options *opt) {
    FV_TRY(fv_known_callers_open(&g->callers));
    FV_TRY(fv_ignored_open(&g->ignored));
    FV_TRY(fv_response_store_open(&opt->responses, &g->responses));
    if (opt->responses_store.url) {
        fv_response_remote_options remote = opt->responses_store;
        remote.loop = fv_bridge_loop(opt->bridge);
        FV_TRY(fv_response_remote_open(&remote, &g->remote));
    }
    return fv_alive_open(fv_bridge_loop(opt->bridge), opt->keep_alive_ms, &g->alive);
}

static void gateway_free(fv_gateway *g) {
    fv_known_callers_close(g->callers);
    fv_ignored_close(g->ignored);
    fv_response_remote_close(g->remote);
    fv_response_store_close(g->responses);
    fv_alive_close(g->alive);
    free(g);
}

fv_status fv_gateway_open(const fv_gateway_options *opt, fv_gateway **out) {
    FV_TRY(fv_rpc_target_check(opt->router));
    for (int32_t i = 0; i < opt->n_image_host; i++)
        FV_TRY(fv_fetch_host_check(opt->image_hosts[i]));
    if (opt->image_ca) FV_TRY(check_ca(opt->image_ca));
    for (int32_t i = 0; i < opt->origin.n_origin; i++)
        FV_TRY(fv_origin_check(opt->origin.origins[i]));
    fv_gateway *g = calloc(1, sizeof *g);
    if (!g) return FV_FAIL(FV_ENOMEM, "out of memory for a gateway");
    g->opt = *opt;
    g->opt.origin.local = fv_rpc_listen_is_local(opt->listen);
    fv_http_options http = {.loop = fv_bridge_loop(opt->bridge),
                            .listen = opt->listen,
                            .tls = opt->client_tls,
                            .body_max = opt->body_max,
                            .bodies_max = opt->bodies_max,
                            .connections = opt->connections,
                            .per_address = opt->per_address,
                            .trusted = opt->trusted,
                            .read_ms = opt->read_ms,
                            .write_ms = opt->write_ms,
                            .on_headers = on_headers,
                            .on_request = on_request,
                            .on_writable = on_writable,
                            .on_end = on_end,
                            .user = g};
    fv_status st = open_parts(g, opt);
    if (st == FV_OK) st = fv_http_open(&http, &g->http);
    if (st == FV_OK)
        *out = g;
    else
        gateway_free(g);
    return st;
}

const char *fv_gateway_address(const fv_gateway *g) { return fv_http_address(g->http); }

void fv_gateway_report_leaving(fv_gateway *g) {
    g->leaving = true;
    fv_http_end_keep_alive(g->http);
}

void fv_gateway_leave(fv_gateway *g) { fv_http_leave(g->http); }

bool fv_gateway_idle(const fv_gateway *g) { return fv_http_requests(g->http) == 0; }

void fv_gateway_measure(const fv_gateway *g) {
    fv_metric_set(FV_METRIC_HTTP_RUNNING, 0, fv_http_requests(g->http));
}

fv_status fv_gateway_lane(fv_gateway *g, fv_lane **out) {
    fv_lane *l = g->lanes, *last = l + FV_CHANNELS_MAX - 1;
    while (l < last && l->n_call >= FV_CALLS_PER_CHANNEL) l++;
    if (!l->channel)
        FV_TRY(fv_rpc_channel_open(g->opt.bridge, g->opt.router, &g->opt.tls, &l->channel));
    *out = l;
    return FV_OK;
}

static fv_status open_fetcher(fv_gateway *g) {
    fv_fetcher_options opt = {.loop = fv_bridge_loop(g->opt.bridge),
                              .hosts = g->opt.image_hosts,
                              .n_host = g->opt.n_image_host,
                              .bytes_max = g->opt.image_bytes,
                              .bytes_all = g->opt.bodies_max,
                              .ms = g->opt.image_ms,
                              .ca = g->opt.image_ca,
                              .may_connect = g->opt.may_connect};
    return fv_fetcher_open(&opt, &g->fetcher);
}

fv_status fv_gateway_fetch(fv_gateway *g, const char *url, fv_fetched done, void *user,
                           fv_fetch **out) {
    if (g->opt.n_image_host == 0)
        return FV_FAIL(
            FV_EINVAL,
            "this gateway fetches no URLs: send the image itself as data:image/png;base64,...");
    if (!g->fetcher) FV_TRY(open_fetcher(g));
    return fv_fetch_start(g->fetcher, url, done, user, out);
}

bool fv_gateway_caller(const fv_gateway *g, fv_http_request *r, fv_rpc_metadata *out, int32_t *n) {
    const char *value = g->opt.keys ? NULL : fv_http_header(r, "Authorization");
    *out = (fv_rpc_metadata){"authorization", value};
    *n = value != NULL;
    for (const char *p = value; p && *p; p++) {
        if (*p >= ' ' && *p <= '~') continue;
        fv_reply_error(r, FV_EAUTH, "the header Authorization must be printable ASCII", "", -1);
        return false;
    }
    return true;
}

static void on_fetcher_closed(void *user) {
    fv_gateway *g = user;
    void (*closed)(void *) = g->closed;
    void *closed_user = g->closed_user;
    gateway_free(g);
    closed(closed_user);
}

static void maybe_closed(fv_gateway *g) {
    if (!g->closing || !g->http_closed || g->n_task > 0) return;
    for (int32_t i = 0; i < FV_CHANNELS_MAX; i++) fv_rpc_channel_close(g->lanes[i].channel);
    fv_fetcher_close(g->fetcher, on_fetcher_closed, g);
}

void fv_gateway_task_gone(fv_gateway *g) {
    g->n_task--;
    maybe_closed(g);
}

static void on_http_closed(void *user) {
    fv_gateway *g = user;
    g->http_closed = true;
    maybe_closed(g);
}

void fv_gateway_close(fv_gateway *g, void (*closed)(void *user), void *user) {
    if (!g) {
        closed(user);
        return;
    }
    g->closing = true;
    g->closed = closed;
    g->closed_user = user;
    fv_http_close(g->http, on_http_closed, g);
}
