/* Reads a URL in pieces: keeps an http(s) URL, decodes a data: URL at once. */
#include <string.h>
#include <strings.h>

#include "gateway/api/reader.h"

static const char http[] = "http://", https[] = "https://";
enum { N_HTTP = sizeof http - 1, N_HTTPS = sizeof https - 1 };

void fv_api_url_begin(fv_api_reader *r, bool video, ProtobufCBinaryData *to) {
    fv_data_url_drop(&r->url.data);
    r->url.type = FV_API_URL_UNKNOWN;
    r->url.given = false;
    r->url.to = to;
    fv_data_url_begin(&r->url.data, video);
}

static fv_status feed_data(fv_api_reader *r, const char *text, size_t n) {
    r->n_data += n;
    return fv_data_url_feed(&r->url.data, text, n);
}

/* Decides by the URL's first characters whether it is http(s) or data:. */
static fv_status choose_type(fv_api_reader *r) {
    const bool is_http =
        strncasecmp(r->text, http, N_HTTP) == 0 || strncasecmp(r->text, https, N_HTTPS) == 0;
    r->url.type = is_http ? FV_API_URL_HTTP : FV_API_URL_DATA;
    return is_http ? FV_OK : feed_data(r, r->text, r->n_text);
}

static fv_status add_http(fv_api_reader *r) {
    fv_api_url *to = &r->out->urls[r->out->n_url];
    if (r->out->n_url == FV_API_URLS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d http(s) URLs in a request", FV_API_URLS_MAX);
    FV_TRY(fv_arena_strndup(r->arena, r->text, r->n_text, &to->url));
    FV_TRY(fv_arena_strndup(r->arena, r->param, strlen(r->param), &to->param));
    to->bytes = r->url.to;
    r->out->n_url++;
    return FV_OK;
}

static fv_status add_data(fv_api_reader *r) {
    fv_api_bytes *b;
    FV_TRY(FV_ARENA_NEW(r->arena, 1, b));
    FV_TRY(fv_data_url_end(&r->url.data, r->url.to));
    b->data = r->url.to->data;
    b->next = r->out->bytes;
    r->out->bytes = b;
    return FV_OK;
}

fv_status fv_api_url_piece(fv_api_reader *r, const fv_json_event *e) {
    const char *text = e->text;
    size_t n = e->n;
    r->url.given = true;
    if (r->url.type == FV_API_URL_UNKNOWN) {
        const size_t room = N_HTTPS - r->n_text, head = n < room ? n : room;
        FV_TRY(fv_api_keep(r, text ? text : "", head, FV_API_URL_MAX));
        text += head;
        n -= head;
        if (r->n_text == N_HTTPS || !e->more) FV_TRY(choose_type(r));
    }
    if (r->url.type == FV_API_URL_HTTP)
        FV_TRY(fv_api_keep(r, text, n, FV_API_URL_MAX));
    else if (n > 0)
        FV_TRY(feed_data(r, text, n));
    if (e->more) return FV_OK;
    return r->url.type == FV_API_URL_HTTP ? add_http(r) : add_data(r);
}
