/* The table of paths, CORS, and the request metrics. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "gateway/internal.h"
#include "telemetry/metrics.h"

static void chat(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_CHAT); }

static void complete(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_TEXT); }

static void respond(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_RESPONSE); }

/* path: a name in braces stands for an id; of two that match, the first row counts. label: the value of
 * the metrics' route label. open: needs no API key. */
static const struct route {
    const char *method, *path;
    void (*serve)(fv_gateway *g, fv_http_request *r);
    int32_t label;
    bool open;
} routes[] = {
    {"POST", "/v1/chat/completions", chat, FV_ROUTE_CHAT, false},
    {"POST", "/v1/completions", complete, FV_ROUTE_COMPLETIONS, false},
    {"GET", "/v1/models", fv_list_models, FV_ROUTE_MODELS, false},
    {"GET", FV_MODEL_PATH "{model}", fv_show_served, FV_ROUTE_MODELS, false},
    {"POST", "/v1/responses", respond, FV_ROUTE_RESPONSES, false},
    {"GET", FV_RESPONSE_PATH "{id}/input_items", fv_list_response_input, FV_ROUTE_RESPONSES, false},
    {"POST", FV_RESPONSE_PATH "{id}/cancel", fv_cancel_response, FV_ROUTE_RESPONSES, false},
    {"GET", FV_RESPONSE_PATH "{id}", fv_show_response, FV_ROUTE_RESPONSES, false},
    {"DELETE", FV_RESPONSE_PATH "{id}", fv_delete_response, FV_ROUTE_RESPONSES, false},
    {"GET", "/health", fv_show_health, FV_ROUTE_HEALTH, true},
    {"GET", "/healthz", fv_show_health, FV_ROUTE_HEALTH, true},
    {"GET", "/ping", fv_show_health, FV_ROUTE_HEALTH, true},
    {"POST", "/ping", fv_show_health, FV_ROUTE_HEALTH, true},
    {"GET", "/version", fv_show_version, FV_ROUTE_VERSION, true},
    {"GET", "/metrics", fv_show_metrics, FV_ROUTE_METRICS, true},
    {"GET", "/openapi.json", fv_show_openapi, FV_ROUTE_OPENAPI, true},
    {"POST", "/tokenize", fv_show_tokens, FV_ROUTE_TOKENIZE, false},
    {"POST", "/detokenize", fv_show_text, FV_ROUTE_DETOKENIZE, false},
    {"GET", "/tokenizer_info", fv_show_tokenizer, FV_ROUTE_TOKENIZE, false},
    {"GET", "/fovea/model", fv_show_model, FV_ROUTE_MODEL, false},
    {"GET", "/fovea/fleet", fv_show_fleet, FV_ROUTE_FLEET, false},
    {"GET", "/fovea/layout", fv_show_layout, FV_ROUTE_LAYOUT, false},
    {"GET", "/", fv_show_page, FV_ROUTE_PAGE, true}, /* and the page's other files */
};
enum { N_ROUTE = sizeof routes / sizeof *routes };

/* A model's id may have slashes. */
static bool has_path(const struct route *route, const char *path) {
    const char *brace = strchr(route->path, '{'), *tail = brace ? strchr(brace, '}') + 1 : NULL;
    if (route->serve == fv_show_page) return fv_is_page(path);
    if (!brace) return strcmp(route->path, path) == 0;
    const size_t n_head = (size_t)(brace - route->path), n_tail = strlen(tail), n = strlen(path);
    return n > n_head + n_tail && strncmp(path, route->path, n_head) == 0 &&
           strcmp(path + n - n_tail, tail) == 0;
}

/* HEAD is GET without the body, which the server leaves out. */
static bool has_method(const struct route *route, const char *method) {
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* Returns the route of the path and method, or else one of the path; NULL: none. */
static const struct route *route_of(const char *path, const char *method) {
    const struct route *other = NULL;
    for (const struct route *at = routes; path && at < routes + N_ROUTE; at++) {
        if (!has_path(at, path)) continue;
        if (has_method(at, method)) return at;
        if (!other) other = at;
    }
    return other;
}

/* ---- wrong paths ------------------------------------------------------------------------- */

/* Writes a path without its last slash and without doubled ones. */
static void tidy(const char *path, char *out, size_t cap) {
    size_t n = 0;
    for (; *path && n + 1 < cap; path++)
        if (*path != '/' || n == 0 || out[n - 1] != '/') out[n++] = *path;
    while (n > 1 && out[n - 1] == '/') n--;
    out[n] = '\0';
}

static const char *known(const char *path) {
    const struct route *at = route_of(path, "");
    return at && at->label != FV_ROUTE_PAGE ? path : NULL;
}

/* Finds the path that was probably meant: without a slash at its end, with "/v1" once. Returns NULL
 * where there is none; may return `near`. */
static const char *meant(const char *path, char near[256]) {
    char tidied[240];
    const char *rest = tidied;
    tidy(path, tidied, sizeof tidied);
    while (strncmp(rest, "/v1/", 4) == 0) rest += 3;
    snprintf(near, 256, "/v1%s", rest);
    return known(rest) ? strcpy(near, rest) : known(near);
}

/* OpenAI's other endpoints, and those of other servers. */
static const struct elsewhere {
    const char *path, *why;
} elsewhere[] = {
    {"/v1/messages", "Anthropic's API is not served here: use /v1/chat/completions"},
    {"/api", "Ollama's API is not served here: use /v1/chat/completions"},
    {"/v1/embeddings", "the models here generate text and make no embeddings"},
    {"/v1/moderations", "moderations are not served here: ask a model in /v1/chat/completions"},
    {"/v1/files", "files are not stored here: send images within the messages"},
    {"/v1/batches", "batches are not served here: send the requests themselves, all at once"},
    {"/v1/audio", "the models here neither hear nor speak"},
    {"/v1/images", "the models here read images and draw none: use /v1/chat/completions"},
};

static const char *find_elsewhere(const char *path) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        const size_t n = strlen(elsewhere[i].path);
        if (strncmp(elsewhere[i].path, path, n) == 0 && (path[n] == '/' || !path[n]))
            return elsewhere[i].why;
    }
    return NULL;
}

static void refuse_path(fv_http_request *r) {
    const char *path = fv_http_path(r), *other = find_elsewhere(path);
    char near[256], why[512];
    const char *right = meant(path, near);
    if (other)
        snprintf(why, sizeof why, "unknown path %.200s: %s", path, other);
    else if (right)
        snprintf(why, sizeof why, "unknown path %.200s: use %s", path, right);
    else
        snprintf(why, sizeof why, "unknown path %.200s: GET /openapi.json lists those that exist",
                 path);
    fv_reply_error(r, FV_ENOTFOUND, why, "", -1);
}

static void refuse_method(fv_http_request *r, const struct route *route) {
    char why[256];
    const bool get = strcmp(route->method, "GET") == 0;
    snprintf(why, sizeof why, "the method %.20s is not allowed at this path; use %s",
             fv_http_method(r), route->method);
    fv_http_add(r, "Allow", get ? "GET, HEAD" : route->method);
    fv_http_set_error(r, why);
    fv_reply_json(r, 405,
                  json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", why, "type",
                            "invalid_request_error", "param", "code", "method_not_allowed"));
}

/* ---- metrics ----------------------------------------------------------------------------- */

/* Returns the status label; the last value stands for all other codes. */
static int32_t code_of(const fv_http_request *r) {
    char code[16];
    int32_t i = 0, last = fv_label_count(FV_LABEL_HTTP) - 1;
    unsigned status = fv_http_status(r);
    snprintf(code, sizeof code, "%u", status ? status : FV_STATUS_LEFT);
    while (i < last && strcmp(fv_label_value(FV_LABEL_HTTP, i), code) != 0) i++;
    return i;
}

void fv_record_request(const fv_http_request *r) {
    const struct route *at = route_of(fv_http_path(r), fv_http_method(r));
    int32_t route = at ? at->label : FV_ROUTE_OTHER, code = code_of(r);
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
    fv_http_add(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
    fv_http_add(r, "Access-Control-Allow-Headers", "Authorization, *"); /* * lacks it */
    fv_http_add(r, "Access-Control-Max-Age", "600");
    fv_http_reply(r, 200, "text/plain", "", 0);
}

/* Checks the caller's key first, where the gateway has keys. */
static void serve(fv_gateway *g, fv_http_request *r, const struct route *route) {
    const bool asks = g->opt.keys && !route->open;
    fv_status st = asks ? fv_keys_check(g->opt.keys, fv_http_header(r, "Authorization")) : FV_OK;
    if (st == FV_OK)
        route->serve(g, r);
    else
        fv_reply_last_error(r, st, "");
}

void fv_route(fv_gateway *g, fv_http_request *r) {
    const char *origin = fv_http_header(r, "Origin"), *method = fv_http_method(r);
    const struct route *route = route_of(fv_http_path(r), method);
    if (!fv_origin_allowed(&g->opt.origin, fv_http_header(r, "Host"), origin)) {
        fv_reply_error(r, FV_EDENIED,
                       "this host name or origin is not allowed; see --allow-host and "
                       "--allow-origin",
                       "", -1);
        return;
    }
    bool cors = origin && fv_origin_listed(&g->opt.origin, origin);
    if (cors) add_cors(r, origin);
    if (!route)
        refuse_path(r);
    else if (has_method(route, method))
        serve(g, r, route);
    else if (cors && strcmp(method, "OPTIONS") == 0)
        answer_preflight(r);
    else
        refuse_method(r, route);
}

json_t *fv_route_paths(json_t *(*operation)(const char *method, const char *path)) {
    json_t *paths = json_object();
    for (const struct route *at = routes; at < routes + N_ROUTE; at++) {
        const bool post = strcmp(at->method, "POST") == 0, get = strcmp(at->method, "GET") == 0;
        json_t *item = json_object_get(paths, at->path);
        if (at->serve == fv_show_page) continue;
        if (!item) json_object_set_new(paths, at->path, item = json_object());
        json_object_set_new(item,
                            post  ? "post"
                            : get ? "get"
                                  : "delete",
                            operation(at->method, at->path));
    }
    return paths;
}
