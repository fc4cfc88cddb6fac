/* The table of paths, CORS, and the request metrics. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "gateway/internal.h"
#include "telemetry/metrics.h"

enum { LEFT = 499 }; /* nginx's status where the client has left before the answer */

static void chat(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_CHAT); }

static void complete(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_TEXT); }

/* Indexed by the values of the metrics' route label. */
static const struct route {
    const char *method, *path;
    void (*serve)(fv_gateway *g, fv_http_request *r);
} routes[FV_ROUTE_OTHER] = {
    [FV_ROUTE_CHAT] = {"POST", "/v1/chat/completions", chat},
    [FV_ROUTE_COMPLETIONS] = {"POST", "/v1/completions", complete},
    [FV_ROUTE_MODELS] = {"GET", "/v1/models", fv_list_models},
    [FV_ROUTE_HEALTH] = {"GET", "/health", fv_show_health},
    [FV_ROUTE_TOKENIZE] = {"POST", "/tokenize", fv_show_tokens},
    [FV_ROUTE_DETOKENIZE] = {"POST", "/detokenize", fv_show_text},
    [FV_ROUTE_MODEL] = {"GET", "/fovea/model", fv_show_model},
    [FV_ROUTE_FLEET] = {"GET", "/fovea/fleet", fv_show_fleet},
    [FV_ROUTE_LAYOUT] = {"GET", "/fovea/layout", fv_show_layout},
    [FV_ROUTE_PAGE] = {"GET", "/", fv_show_page}, /* and the page's other files */
};

static int32_t route_of(const fv_http_request *r) {
    int32_t i = 0;
    if (fv_is_page(fv_http_path(r))) return FV_ROUTE_PAGE;
    while (i < FV_ROUTE_OTHER && strcmp(routes[i].path, fv_http_path(r)) != 0) i++;
    return i;
}

/* Returns the status label; the last value stands for all other codes. */
static int32_t code_of(const fv_http_request *r) {
    char code[16];
    int32_t i = 0, last = fv_label_count(FV_LABEL_HTTP) - 1;
    unsigned status = fv_http_status(r);
    snprintf(code, sizeof code, "%u", status ? status : LEFT);
    while (i < last && strcmp(fv_label_value(FV_LABEL_HTTP, i), code) != 0) i++;
    return i;
}

void fv_record_request(const fv_http_request *r) {
    int32_t route = route_of(r), code = code_of(r);
    fv_metric_add(FV_METRIC_HTTP_REQUESTS, fv_metric_series(FV_METRIC_HTTP_REQUESTS, route, code),
                  1);
    fv_metric_observe(FV_METRIC_HTTP_TIME, route, fv_clock_s() - fv_http_read_s(r), NULL);
}

/* Adds the CORS headers that let a page of a listed origin read the answer. */
static void add_cors(fv_http_request *r, const char *origin) {
    fv_http_add(r, "Access-Control-Allow-Origin", origin);
    fv_http_add(r, "Access-Control-Expose-Headers", "Retry-After");
    fv_http_add(r, "Vary", "Origin");
}

static void answer_preflight(fv_http_request *r) {
    fv_http_add(r, "Access-Control-Allow-Methods", "GET, POST");
    fv_http_add(r, "Access-Control-Allow-Headers", "Authorization, *"); /* * lacks it */
    fv_http_add(r, "Access-Control-Max-Age", "600");
    fv_http_reply(r, 200, "text/plain", "", 0);
}

void fv_route(fv_gateway *g, fv_http_request *r) {
    const char *origin = fv_http_header(r, "Origin");
    int32_t i = route_of(r);
    if (!fv_origin_allowed(&g->opt.origin, fv_http_header(r, "Host"), origin)) {
        fv_reply_error(r, FV_EDENIED,
                       "this host name or origin is not allowed; see --allow-host and "
                       "--allow-origin",
                       "", -1);
        return;
    }
    bool cors = origin && fv_origin_listed(&g->opt.origin, origin);
    if (cors) add_cors(r, origin);
    if (i == FV_ROUTE_OTHER) {
        fv_reply_error(r, FV_ENOTFOUND, "unknown path", "", -1);
        return;
    }
    if (strcmp(routes[i].method, fv_http_method(r)) == 0) {
        routes[i].serve(g, r);
        return;
    }
    if (cors && strcmp(fv_http_method(r), "OPTIONS") == 0) {
        answer_preflight(r);
        return;
    }
    fv_http_add(r, "Allow", routes[i].method);
    fv_reply_json(r, 405,
                  json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message",
                            "method not allowed at this path", "type", "invalid_request_error",
                            "param", "code", "method_not_allowed"));
}
