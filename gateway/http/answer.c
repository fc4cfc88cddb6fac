/* Writes answers to a connection's buffer: the head, the whole body or its chunks, and the server's
 * own refusals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "gateway/http/internal.h"

/* Appends bytes of the answer; closes the connection when out of memory, as the client cannot be
 * told. */
static void put(fv_http_request *r, const char *bytes, size_t n) {
    fv_http_connection *c = r->connection;
    if (c->gone || fv_http_buffer_put(&c->out, bytes, n) == FV_OK) return;
    c->gone = true;
    fv_http_due(c);
}

static void put_text(fv_http_request *r, const char *text) { put(r, text, strlen(text)); }

/* The header Date, formatted once a second; day and month names must not follow the locale, as
 * strftime's do. */
static const char *date_of(fv_http *h) {
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = (time_t)fv_clock_unix_s();
    struct tm t;
    if (h->date_s == (int64_t)now || !gmtime_r(&now, &t)) return h->date;
    h->date_s = (int64_t)now;
    snprintf(h->date, sizeof h->date, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT",
             days + 3L * t.tm_wday, t.tm_mday, months + 3L * t.tm_mon, 1900 + t.tm_year, t.tm_hour,
             t.tm_min, t.tm_sec);
    return h->date;
}

static bool has_no_body(const fv_http_request *r) {
    return r->head.method && strcmp(r->head.method, "HEAD") == 0;
}

static void put_added(fv_http_request *r) {
    for (int32_t i = 0; i < r->n_added; i++) {
        put_text(r, r->added[i].name);
        put_text(r, ": ");
        put_text(r, r->added[i].value);
        put_text(r, "\r\n");
    }
}

/* The reason phrase, for people: clients look at the number. */
static const char *phrase_of(unsigned status) {
    static const struct {
        unsigned status;
        const char *phrase;
    } known[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {417, "Expectation Failed"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) return known[i].phrase;
    return "";
}

/* Writes the head. n: bytes of the body; SIZE_MAX: unknown. The connection stays open only if it is
 * known where the next request begins. */
static void put_head(fv_http_request *r, unsigned status, const char *type, size_t n) {
    fv_http_connection *c = r->connection;
    char line[256];
    bool whole = r->complete || (r->head.method && r->head.body == 0);
    c->last = !whole || !r->head.keeps || r->http->ends_keep_alive;
    r->status = status;
    r->chunked = n == SIZE_MAX && !r->head.version_10;
    snprintf(line, sizeof line, "HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: ", status,
             phrase_of(status), date_of(r->http));
    put_text(r, line);
    put_text(r, type);
    put_text(r, "\r\nX-Content-Type-Options: nosniff\r\n");
    put_added(r);
    snprintf(line, sizeof line, "Content-Length: %zu\r\n", n);
    put_text(r, n != SIZE_MAX ? line : r->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    put_text(r, c->last ? "Connection: close\r\n\r\n" : "\r\n");
    fv_http_due(c);
}

void fv_http_add(fv_http_request *r, const char *name, const char *value) {
    fv_http_added *a = &r->added[r->n_added];
    if (r->n_added == FV_HTTP_ADDED_MAX || strpbrk(value, "\r\n")) return;
    *a = (fv_http_added){strdup(name), strdup(value)};
    if (a->name && a->value) {
        r->n_added++;
        return;
    }
    free(a->name);
    free(a->value);
}

void fv_http_reply(fv_http_request *r, unsigned status, const char *type, const char *text,
                   size_t n) {
    if (r->status) return;
    put_head(r, status, type, n);
    if (!has_no_body(r)) put(r, text, n);
    r->ended = true;
}

void fv_http_stream(fv_http_request *r, const char *type) {
    if (!r->status) put_head(r, 200, type, SIZE_MAX);
}

void fv_http_write(fv_http_request *r, const char *text, size_t n) {
    char size[24];
    if (!r->status || r->ended || n == 0 || has_no_body(r)) return;
    snprintf(size, sizeof size, "%zx\r\n", n);
    if (r->chunked) put_text(r, size);
    put(r, text, n);
    if (r->chunked) put_text(r, "\r\n");
    r->was_full |= fv_http_full(r);
    fv_http_due(r->connection);
}

bool fv_http_full(const fv_http_request *r) {
    return fv_http_buffer_n(&r->connection->out) >= FV_HTTP_WAITING;
}

void fv_http_end_stream(fv_http_request *r) {
    if (!r->status || r->ended) return;
    if (r->chunked && !has_no_body(r)) put_text(r, "0\r\n\r\n");
    r->ended = true;
    fv_http_due(r->connection);
}

void fv_http_refuse(fv_http_request *r, unsigned status, const char *sentence) {
    static const struct {
        unsigned status;
        const char *type, *code;
    } kinds[] = {{413, "invalid_request_error", "\"too_large\""},
                 {429, "rate_limit_error", "\"overloaded\""},
                 {503, "server_error", "\"overloaded\""},
                 {0, "invalid_request_error", "null"}};
    char text[512];
    int i = 0;
    while (kinds[i].status && kinds[i].status != status) i++;
    int n = snprintf(text, sizeof text,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%s}}",
                     sentence, kinds[i].type, kinds[i].code);
    fv_http_report(r);
    fv_http_set_error(r, sentence);
    fv_http_reply(r, status, "application/json", text, (size_t)n);
}

/* Sends "100 Continue" only to a client that still waits for it, not to one that has begun to send
 * the body. */
void fv_http_continue(fv_http_request *r) {
    fv_http_connection *c = r->connection;
    if (!r->head.continues || r->head.body == 0) return;
    if (c->n_fresh == 0 && fv_http_buffer_n(&c->in) == 0)
        put_text(r, "HTTP/1.1 100 Continue\r\n\r\n");
}
