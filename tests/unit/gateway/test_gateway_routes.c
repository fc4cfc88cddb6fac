/* gateway/routes.c, access.h, keys.h, ignored.h: paths, who may ask, and what the log says. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "common/log.h"
#include "gateway/api/request.h"
#include "tests/support/gateway_rig.h"

static gateway_rig rig;
static gateway_client c;
static fv_keys *keys;

static void end(void) {
    gateway_rig_close(&rig);
    fv_keys_close(keys);
}

TestSuite(gateway_routes, .fini = end, .timeout = 240);

#define CHAT "/v1/chat/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"a secret text\"}],\"max_tokens\":3"

static void open_with(const fv_gateway_options *opt) { gateway_rig_open(&rig, opt); }

/* Asks, and expects the status and a word in the answer. */
static void expect(const char *method, const char *path, int status, const char *word) {
    char line[32];
    snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    gateway_ask(&c, &rig, method, path, "", NULL);
    cr_assert(strstr(c.got, line) == c.got, "%s %s: %s", method, path, c.got);
    cr_assert(strstr(c.got, word), "%s %s: no %s: %s", method, path, word, c.got);
}

static const char *body_of(void) { return strstr(c.got, "\r\n\r\n") + 4; }

Test(gateway_routes, a_wrong_path_names_the_right_one) {
    static const struct {
        const char *path, *word;
    } cases[] = {
        {"/chat/completions", "use /v1/chat/completions\""},
        {"/completions", "use /v1/completions\""},
        {"/models", "use /v1/models\""},
        {"/v1/v1/models", "use /v1/models\""},
        {"/v1/v1/v1/chat/completions", "use /v1/chat/completions\""},
        {"/v1/models/", "use /v1/models\""},
        {"/v1/chat/completions/", "use /v1/chat/completions\""},
        {"//v1///chat/completions//", "use /v1/chat/completions\""},
        {"/models/a/b", "use /v1/models/a/b\""},
        {"/v1/health", "use /health\""},
        {"/v1/tokenize/", "use /tokenize\""},
        {"/responses/", "use /v1/responses\""},
        {"/v1/embeddings", "make no embeddings\""},
        {"/v1/files/x", "files are not stored"},
        {"/api/chat", "use /v1/chat/completions\""},
        {"/apis", "GET /openapi.json lists"},
        {"/v1/other", "GET /openapi.json lists"},
        {"/%0aevil", "unknown path /\\nevil"},
    };
    open_with(&(fv_gateway_options){0});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect("GET", cases[i].path, 404, cases[i].word);
    expect("GET", CHAT, 405, "use POST");
    expect("GET", CHAT, 405, "Allow: POST\r\n");
    expect("POST", "/version", 405, "Allow: GET, HEAD\r\n");
}

Test(gateway_routes, paths_about_the_server_answer) {
    open_with(&(fv_gateway_options){0});
    expect("GET", "/version", 200, "{\"version\":\"");
    expect("GET", "/metrics", 200, "Content-Type: text/plain; version=0.0.4");
    gateway_ask(&c, &rig, "GET", "/metrics", "Accept: application/openmetrics-text\r\n", NULL);
    cr_assert(strstr(c.got, "Content-Type: application/openmetrics-text; version=1.0.0"), "%s",
              c.got);
    /* The rig's router has no health service; it says so, and the question has reached it. */
    static const char *const health[] = {"/health", "/healthz", "/ping"};
    for (int i = 0; i < 3; i++) expect("GET", health[i], 501, "grpc.health.v1.Health/Check");
    expect("POST", "/ping", 501, "grpc.health.v1.Health/Check");
    static const char *const all[] = {"/version",      "/metrics", "/v1/models",
                                      "/openapi.json", "/",        "/fovea/fleet"};
    for (int i = 0; i < 6; i++) {
        expect("HEAD", all[i], 200, "Content-Length: ");
        cr_assert_str_empty(body_of(), "%s", all[i]);
    }
}

Test(gateway_routes, a_gateway_that_is_shutting_down_reports_so_and_still_answers) {
    open_with(&(fv_gateway_options){0});
    fv_gateway_report_leaving(rig.gateway);
    static const char *const health[] = {"/health", "/healthz", "/ping"};
    for (int i = 0; i < 3; i++) expect("GET", health[i], 503, "{\"status\":\"shutting down\"}");
    expect("GET", "/version", 200, "{\"version\":\"");
    expect("GET", "/v1/models", 200, "\"data\":[");
    /* A client that would keep its connection opens the next one elsewhere. */
    gateway_send(&c, &rig, "GET", "/version", "", NULL);
    gateway_await_end(&c);
    cr_assert(strstr(c.got, "Connection: close\r\n"), "%s", c.got);
}

Test(gateway_routes, a_model_is_found_by_its_name) {
    char path[128];
    open_with(&(fv_gateway_options){0});
    gateway_ask(&c, &rig, "GET", "/v1/models", "", NULL);
    json_t *list = json_loads(body_of(), 0, NULL);
    const json_t *first = json_array_get(json_object_get(list, "data"), 0);
    snprintf(path, sizeof path, "/v1/models/%s", json_string_value(json_object_get(first, "id")));
    gateway_ask(&c, &rig, "GET", path, "", NULL);
    json_t *one = json_loads(body_of(), 0, NULL);
    cr_assert(one, "%s", c.got);
    cr_assert_str_eq(json_string_value(json_object_get(one, "id")),
                     json_string_value(json_object_get(first, "id")));
    cr_assert_str_eq(json_string_value(json_object_get(one, "object")), "model");
    json_decref(one);
    json_decref(list);
    expect("GET", "/v1/models/org%2Fother/x", 404, "unknown model 'org/other/x'; models: ");
    expect("GET", "/v1/models/org/other", 404, "model_not_found");
}

/* The description is made of the tables, so it has every path and every field. */
Test(gateway_routes, openapi_describes_what_is_there) {
    static const struct {
        const char *path, *method;
        fv_api_kind kind;
    } paths[] = {{CHAT, "post", FV_API_CHAT},
                 {"/v1/completions", "post", FV_API_TEXT},
                 {"/v1/responses", "post", FV_API_RESPONSE},
                 {"/v1/responses/{id}", "delete", 0},
                 {"/v1/responses/{id}/input_items", "get", 0},
                 {"/tokenize", "post", FV_API_TOKENS},
                 {"/detokenize", "post", FV_API_IDS},
                 {"/tokenizer_info", "get", 0},
                 {"/v1/models/{model}", "get", 0},
                 {"/ping", "get", 0},
                 {"/ping", "post", 0}};
    open_with(&(fv_gateway_options){0});
    gateway_ask(&c, &rig, "GET", "/openapi.json", "", NULL);
    json_t *all = json_loads(body_of(), 0, NULL), *list = json_object_get(all, "paths");
    cr_assert_str_eq(json_string_value(json_object_get(all, "openapi")), "3.1.0");
    cr_assert(!json_object_get(list, "/"));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        json_t *o = json_object_get(json_object_get(list, paths[i].path), paths[i].method);
        cr_assert(o, "%s", paths[i].path);
        json_t *body = json_object_get(json_object_get(o, "requestBody"), "content");
        json_t *schema = json_object_get(json_object_get(body, "application/json"), "schema");
        fv_api_field_info f;
        for (int32_t k = 0; paths[i].kind && fv_api_field(k, &f); k++)
            cr_assert_eq(json_object_get(json_object_get(schema, "properties"), f.name) != NULL,
                         (f.kinds & paths[i].kind) != 0, "%s: %s", paths[i].path, f.name);
    }
    json_decref(all);
}

Test(gateway_routes, keys_are_asked_for_where_requests_are_answered) {
    static const char *const two[] = {"sk-one", "sk-two"};
    static const struct {
        const char *line;
        int status;
    } cases[] = {{"", 401},
                 {"Authorization: Bearer sk-one\r\n", 200},
                 {"authorization: bearer sk-two\r\n", 200},
                 {"Authorization: Bearer sk-on\r\n", 401},
                 {"Authorization: Bearer sk-one2\r\n", 401},
                 {"Authorization: Bearer \r\n", 401},
                 {"Authorization: sk-one\r\n", 401},
                 {"Authorization: Basic sk-one\r\n", 401}};
    static const char *const open[] = {"/version", "/metrics", "/openapi.json", "/"};
    cr_assert_eq(fv_keys_open(two, 2, &keys), FV_OK);
    open_with(&(fv_gateway_options){.keys = keys, .access = FV_ACCESS_TEXT});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gateway_ask(&c, &rig, "GET", "/v1/models", cases[i].line, NULL);
        cr_assert_eq(atoi(c.got + 9), cases[i].status, "%s: %s", cases[i].line, c.got);
        if (cases[i].status == 401)
            cr_assert(strstr(c.got, "invalid_api_key") &&
                      strstr(c.got, "WWW-Authenticate: Bearer"));
        gateway_ask(&c, &rig, "POST", CHAT, cases[i].line, "{" HELLO "}");
        cr_assert_eq(atoi(c.got + 9), cases[i].status, "%s: %s", cases[i].line, c.got);
    }
    for (int i = 0; i < 4; i++) expect("GET", open[i], 200, "");
    expect("GET", "/tokenizer_info", 401, "invalid_api_key");
    cr_assert(strstr(gateway_rig_log(&rig), "status=401") && !strstr(gateway_rig_log(&rig), "sk-"));
}

Test(gateway_routes, the_access_log_has_a_line_for_each_request) {
    static const char *const lines[] = {
        " access client=127.0.0.1 method=POST path=" CHAT " status=200 tokens_in=",
        " access client=127.0.0.1 method=POST path=" CHAT " status=400 ms=",
        " error=\"top_p",
        " access client=127.0.0.1 method=GET path=\"/a\\nb access client=1\\u202e\" status=404 ms=",
        " access client=127.0.0.1 method=- path=- status=400 ms=",
        " access client=127.0.0.1 method=GET path=/version status=200 ms="};
    open_with(&(fv_gateway_options){.access = FV_ACCESS_TEXT});
    gateway_ask(&c, &rig, "POST", CHAT, "", "{" HELLO "}");
    gateway_ask(&c, &rig, "POST", CHAT, "", "{" HELLO ",\"top_p\":7}");
    gateway_ask(&c, &rig, "GET", "/a%0ab%20access%20client=1%e2%80%ae", "", NULL);
    gateway_raw(&c, &rig, "GET / HTTP/9.9\r\n\r\n");
    gateway_await_end(&c);
    gateway_leave(&c);
    gateway_ask(&c, &rig, "GET", "/version?key=1", "", NULL);
    const char *log = gateway_rig_log(&rig);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_assert(strstr(log, lines[i]), "no '%s': %s", lines[i], log);
    int n = 0;
    for (const char *at = log; (at = strchr(at, '\n')); at++) n++;
    cr_assert_eq(n, 5, "%s", log);
    cr_assert(!strstr(log, "secret text"), "%s", log);
}

Test(gateway_routes, the_access_log_may_be_json) {
    open_with(&(fv_gateway_options){.access = FV_ACCESS_JSON});
    gateway_ask(&c, &rig, "POST", CHAT, "", "{" HELLO "}");
    json_t *line = json_loads(gateway_rig_log(&rig), 0, NULL);
    cr_assert(line, "%s", gateway_rig_log(&rig));
    cr_assert_eq(json_integer_value(json_object_get(line, "status")), 200);
    cr_assert_eq(json_integer_value(json_object_get(line, "tokens_out")), 3);
    cr_assert_str_eq(json_string_value(json_object_get(line, "path")), CHAT);
    cr_assert(json_number_value(json_object_get(line, "ttft_ms")) > 0);
    json_decref(line);
}

static int count(const char *text) {
    int n = 0;
    for (const char *at = gateway_rig_log(&rig); (at = strstr(at, text)); at++) n++;
    return n;
}

Test(gateway_routes, a_field_without_effect_is_logged_once) {
    open_with(&(fv_gateway_options){0});
    for (int i = 0; i < 3; i++)
        gateway_ask(&c, &rig, "POST", CHAT, "",
                    "{" HELLO ",\"store\":true,\"a\\nb=\\\"c\":1,\"stream_options\":null}");
    cr_assert(strstr(c.got, "HTTP/1.1 200 OK\r\n"), "%s", c.got);
    cr_assert_eq(count("event=field-ignored field=store caller=127.0.0.1 "), 1, "%s",
                 gateway_rig_log(&rig));
    cr_assert_eq(count("field=\"a\\nb=\\\"c\" caller"), 1, "%s", gateway_rig_log(&rig));
    /* One caller cannot fill the log. */
    for (int i = 0; i < 5; i++) {
        char body[2000] = "{" HELLO;
        for (int k = 0; k < 16; k++)
            snprintf(body + strlen(body), sizeof body - strlen(body), ",\"x%d\":1", 16 * i + k);
        gateway_ask(&c, &rig, "POST", CHAT, "", strcat(body, "}"));
    }
    cr_assert_eq(count("event=field-ignored"), 32, "%s", gateway_rig_log(&rig));
}

Test(gateway_routes, strict_fields_refuses_them) {
    open_with(&(fv_gateway_options){.strict_fields = true});
    gateway_ask(&c, &rig, "POST", CHAT, "", "{" HELLO ",\"store\":true}");
    cr_assert(strstr(c.got, "HTTP/1.1 400") && strstr(c.got, "\"param\":\"store\""), "%s", c.got);
}
