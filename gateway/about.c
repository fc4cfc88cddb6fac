/* Answers about the gateway itself, without the router. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/version.h"
#include "gateway/api/schema.h"
#include "gateway/internal.h"
#include "telemetry/metrics.h"

void fv_show_version(fv_gateway *g, fv_http_request *r) {
    (void)g;
    fv_reply_json(r, 200, json_pack("{s:s}", "version", fv_version()));
}

/* ---- metrics ----------------------------------------------------------------------------- */

/* The metrics are counts by path and status, without names of callers. As with vLLM, whoever
 * reaches the API may read them. */
void fv_show_metrics(fv_gateway *g, fv_http_request *r) {
    const char *accept = fv_http_header(r, "Accept");
    const bool openmetrics = accept && strstr(accept, "application/openmetrics-text");
    char *text = NULL;
    size_t n = 0;
    fv_gateway_measure(g);
    FILE *f = open_memstream(&text, &n);
    if (f) fv_metrics_print(f, openmetrics);
    if (f && fclose(f) == 0)
        fv_http_reply(r, 200,
                      openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                  : "text/plain; version=0.0.4; charset=utf-8",
                      text, n);
    else
        fv_reply_error(r, FV_ENOMEM, "out of memory for the metrics", "", -1);
    free(text);
}

/* ---- OpenAPI ----------------------------------------------------------------------------- */

static fv_api_kind kind_of(const char *path) {
    return strcmp(path, "/v1/chat/completions") == 0 ? FV_API_CHAT
           : strcmp(path, "/v1/completions") == 0    ? FV_API_TEXT
           : strcmp(path, "/v1/responses") == 0      ? FV_API_RESPONSE
           : strcmp(path, "/tokenize") == 0          ? FV_API_TOKENS
           : strcmp(path, "/detokenize") == 0        ? FV_API_IDS
                                                     : 0;
}

static json_t *reference(const char *name) {
    return json_pack("{s:s+}", "$ref", "#/components/schemas/", name);
}

static json_t *json_body(json_t *schema) {
    return json_pack("{s:{s:o}}", "application/json", "schema", schema);
}

static json_t *parameter(const char *name, const char *in, bool required, json_t *schema) {
    return json_pack("{s:s, s:s, s:b, s:o}", "name", name, "in", in, "required", required, "schema",
                     schema);
}

static json_t *side(void) { return json_pack("{s:s, s:i}", "type", "integer", "minimum", 1); }

static json_t *parameters(const char *path) {
    json_t *list = json_array();
    if (strstr(path, "{id}"))
        json_array_append_new(list,
                              parameter("id", "path", true, json_pack("{s:s}", "type", "string")));
    if (strstr(path, "{model}"))
        json_array_append_new(
            list, parameter("model", "path", true, json_pack("{s:s}", "type", "string")));
    if (strcmp(path, "/fovea/model") == 0 || strcmp(path, "/fovea/layout") == 0 ||
        strcmp(path, "/tokenizer_info") == 0)
        json_array_append_new(
            list, parameter("model", "query", false, json_pack("{s:s}", "type", "string")));
    if (strcmp(path, "/fovea/layout") == 0) {
        json_array_append_new(list, parameter("w", "query", true, side()));
        json_array_append_new(list, parameter("h", "query", true, side()));
        json_array_append_new(list, parameter("images", "query", false, side()));
    }
    return list;
}

/* The schema of a path's successful answer. */
static json_t *content_of(const char *path, fv_api_kind kind) {
    json_t *content;
    if (strcmp(path, "/metrics") == 0) {
        content = json_pack("{s:{}, s:{}}", "text/plain", "application/openmetrics-text");
    } else {
        content = json_body(kind ? reference(fv_api_answer_schema(kind))
                                 : json_pack("{s:s}", "type", "object"));
        if (kind & (FV_API_CHAT | FV_API_TEXT | FV_API_RESPONSE))
            json_object_set_new(content, "text/event-stream", json_object());
    }
    return content;
}

static json_t *operation(const char *method, const char *path) {
    const fv_api_kind kind = kind_of(path);
    json_t *o = json_pack("{s:{s:{s:s, s:o}, s:{s:s, s:o}}, s:o}", "responses", "200",
                          "description", "the answer", "content", content_of(path, kind), "default",
                          "description", "an error", "content", json_body(reference("Error")),
                          "parameters", parameters(path));
    (void)method;
    if (kind)
        json_object_set_new(
            o, "requestBody",
            json_pack("{s:b, s:o}", "required", 1, "content", json_body(fv_api_schema(kind))));
    return o;
}

void fv_show_openapi(fv_gateway *g, fv_http_request *r) {
    json_t *security = json_pack("{s:s, s:s}", "type", "http", "scheme", "bearer");
    (void)g;
    fv_reply_json(r, 200,
                  json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:o, s:{s:o}}, s:[{}, {s:[]}]}", "openapi",
                            "3.1.0", "info", "title", "fovea-gateway", "version", fv_version(),
                            "paths", fv_route_paths(operation), "components", "schemas",
                            fv_api_schemas(), "securitySchemes", "key", security, "security",
                            "key"));
}
