/* What is served where. */
#include <string.h>

#include "gateway/internal.h"

static void chat(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_CHAT); }

static void complete(fv_gateway *g, fv_http_request *r) { fv_generate(g, r, FV_API_TEXT); }

static const struct route {
    const char *method, *path;
    void (*serve)(fv_gateway *g, fv_http_request *r);
} routes[] = {
    {"POST", "/v1/chat/completions", chat}, {"POST", "/v1/completions", complete},
    {"GET", "/v1/models", fv_list_models},  {"GET", "/health", fv_show_health},
    {"POST", "/tokenize", fv_tokenize},     {"POST", "/detokenize", fv_detokenize},
    {"GET", "/fovea/model", fv_show_model}, {"GET", "/fovea/fleet", fv_show_fleet},
};

void fv_route(fv_gateway *g, fv_http_request *r) {
    const char *allowed = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(routes[i].path, fv_http_path(r)) != 0) continue;
        if (strcmp(routes[i].method, fv_http_method(r)) == 0) {
            routes[i].serve(g, r);
            return;
        }
        allowed = routes[i].method;
    }
    if (!allowed) {
        fv_reply_error(r, FV_ENOTFOUND, "nothing is served at this path", "", -1);
        return;
    }
    fv_http_add(r, "Allow", allowed);
    fv_reply_json(r, 405,
                  json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message",
                            "the path exists, but not for this method", "type",
                            "invalid_request_error", "param", "code", "method_not_allowed"));
}
