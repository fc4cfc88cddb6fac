/* Wraps llhttp. Callbacks that end an event pause llhttp, so that the caller gets one event at a
 * time and decides when to read on. */
#include "gateway/http/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/grow.h"
#include "gateway/http/authority.h"

static int refuse(fv_http_parser *p, unsigned status, const char *why) {
    p->status = status;
    snprintf(p->why, sizeof p->why, "%s", why);
    return HPE_USER;
}

/* ---- the head's text -------------------------------------------------------------------- */

static int put(fv_http_parser *p, const char *bytes, size_t n) {
    fv_http_head *h = &p->head;
    if (fv_grow(&h->text, &p->cap_text, h->n_text + n, 1) != FV_OK)
        return refuse(p, 503, "out of memory for the headers");
    memcpy(h->text + h->n_text, bytes, n);
    h->n_text += n;
    return 0;
}

static int end_text(fv_http_parser *p) { return put(p, "", 1); }

/* Number of the head's bytes before `at`. */
static size_t bytes_before(const fv_http_parser *p, const char *at) {
    return p->head_bytes + (size_t)(at - p->base);
}

/* Refuses several spaces, which llhttp accepts. */
static int on_url(llhttp_t *l, const char *at, size_t n) {
    fv_http_parser *p = l->data;
    size_t method = strlen(llhttp_method_name(l->method));
    if (bytes_before(p, at) != method + 1 + p->head.n_text)
        return refuse(p, 400, "exactly one space must separate method and target");
    return put(p, at, n);
}

static int on_url_complete(llhttp_t *l) {
    fv_http_parser *p = l->data;
    if (end_text(p) != 0) return HPE_USER;
    p->head.fields = p->head.n_text;
    return 0;
}

/* Refuses RTSP and ICE, which llhttp accepts. */
static int on_protocol(llhttp_t *l, const char *at, size_t n) {
    static const char name[4] = {'H', 'T', 'T', 'P'};
    fv_http_parser *p = l->data;
    size_t method = strlen(llhttp_method_name(l->method)), target = p->head.n_text - 1;
    if (bytes_before(p, at) != method + 1 + target + 1 + p->n_protocol)
        return refuse(p, 400, "one space must be between the target and HTTP/1.1");
    if (n > sizeof name - p->n_protocol || memcmp(at, name + p->n_protocol, n) != 0)
        return refuse(p, 400, "the protocol must be HTTP");
    p->n_protocol += n;
    return 0;
}

static int on_name(llhttp_t *l, const char *at, size_t n) {
    fv_http_parser *p = l->data;
    if (p->head.method) return refuse(p, 400, "trailers after a chunked body are not accepted");
    p->in_name = true;
    return put(p, at, n);
}

static int on_name_complete(llhttp_t *l) { return end_text(l->data); }

static int on_value(llhttp_t *l, const char *at, size_t n) { return put(l->data, at, n); }

static int on_value_complete(llhttp_t *l) {
    fv_http_parser *p = l->data;
    fv_http_head *h = &p->head;
    p->in_name = false;
    while (h->text[h->n_text - 1] == ' ' || h->text[h->n_text - 1] == '\t') h->n_text--;
    return end_text(p);
}

/* ---- the body --------------------------------------------------------------------------- */

static int on_extension(llhttp_t *l, const char *at, size_t n) {
    fv_http_parser *p = l->data;
    (void)at;
    p->extension_bytes += n + 1;
    if (p->extension_bytes <= FV_HTTP_EXTENSIONS) return 0;
    return refuse(p, 400, "the chunk extensions are too long");
}

static int pause_with(llhttp_t *l, fv_http_event event) {
    ((fv_http_parser *)l->data)->event = event;
    return HPE_PAUSED;
}

static int on_body(llhttp_t *l, const char *at, size_t n) {
    fv_http_parser *p = l->data;
    if (n == 0) return 0;
    p->piece = at;
    p->n_piece = n;
    p->left = (size_t)l->content_length;
    return pause_with(l, FV_HTTP_PIECE);
}

static int on_message_complete(llhttp_t *l) { return pause_with(l, FV_HTTP_DONE); }

/* ---- the head's meaning ----------------------------------------------------------------- */

bool fv_http_head_next(const fv_http_head *h, size_t *at, const char **name, const char **value) {
    size_t i = *at ? *at : h->fields;
    if (i >= h->n_text) return false;
    *name = h->text + i;
    *value = *name + strlen(*name) + 1;
    *at = (size_t)(*value + strlen(*value) + 1 - h->text);
    return true;
}

const char *fv_http_head_find(const fv_http_head *h, const char *name) {
    const char *each, *value;
    for (size_t at = 0; fv_http_head_next(h, &at, &each, &value);)
        if (strcasecmp(each, name) == 0) return value;
    return NULL;
}

void fv_http_head_free(fv_http_head *h) {
    free(h->text);
    *h = (fv_http_head){0};
}

static int check_repeated(fv_http_parser *p) {
    static const char *const once[] = {"Host",   "Content-Length", "Transfer-Encoding",
                                       "Expect", "Authorization",  "Origin"};
    const char *name, *value;
    unsigned seen = 0;
    for (size_t at = 0; fv_http_head_next(&p->head, &at, &name, &value);) {
        for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
            if (strcasecmp(name, once[i]) != 0) continue;
            if (seen & 1u << i) {
                refuse(p, 400, "");
                snprintf(p->why, sizeof p->why, "the header %s occurs twice", once[i]);
                return HPE_USER;
            }
            seen |= 1u << i;
        }
    }
    return 0;
}

/* A target http://HOST/PATH names the host a second time, and must name the same. */
static int check_target(fv_http_parser *p, const char *host) {
    fv_http_head *h = &p->head;
    char *target = h->text, *rest = strstr(target, "://");
    h->path = target;
    if (strchr(target, '#')) return refuse(p, 400, "the target must have no fragment");
    if (target[0] == '/') return 0;
    if (strcmp(target, "*") == 0 && strcmp(h->method, "OPTIONS") == 0) return 0;
    bool http = strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0;
    if (!http || !rest) return refuse(p, 400, "the target must be a path");
    size_t n = strcspn(rest + 3, "/?");
    if (!fv_http_is_authority(rest + 3, n) ||
        (host && (strlen(host) != n || strncasecmp(host, rest + 3, n) != 0)))
        return refuse(p, 400, "the target and the header Host must name the same host");
    h->path = rest + 3 + n;
    if (*h->path == '/') return 0;
    *--h->path = '/'; /* overwrites the host's last character */
    return 0;
}

/* Whether the header begins with a coding other than chunked; RFC 9112, 6.1 has a status for these. */
static bool is_other_coding(const char *coding) {
    const size_t n =
        strspn(coding, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
    const bool chunked = n == 7 && strncasecmp(coding, "chunked", n) == 0;
    return n > 0 && !chunked && (!coding[n] || coding[n] == ',');
}

static int check_body(fv_http_parser *p) {
    const char *coding = fv_http_head_find(&p->head, "Transfer-Encoding");
    bool has_length = (p->llhttp.flags & F_CONTENT_LENGTH) != 0;
    p->head.body = has_length ? (size_t)p->llhttp.content_length : 0;
    if (!coding) return 0;
    if (p->head.version_10) return refuse(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (is_other_coding(coding))
        return refuse(p, 501, "of the transfer codings only chunked is supported");
    if (strcasecmp(coding, "chunked") != 0)
        return refuse(p, 400, "Transfer-Encoding must be chunked and nothing else");
    p->head.body = SIZE_MAX;
    return 0;
}

static int check_expected(fv_http_parser *p) {
    const char *expected = fv_http_head_find(&p->head, "Expect");
    if (!expected || p->head.version_10) return 0;
    if (strcasecmp(expected, "100-continue") != 0)
        return refuse(p, 417, "the header Expect must be 100-continue");
    p->head.continues = true;
    return 0;
}

static int check_head(fv_http_parser *p) {
    fv_http_head *h = &p->head;
    const llhttp_t *l = &p->llhttp;
    const char *host = fv_http_head_find(h, "Host");
    if (l->http_major != 1 || l->http_minor > 1)
        return refuse(p, 505, "the version must be HTTP/1.1 or HTTP/1.0");
    if (l->method == HTTP_CONNECT) return refuse(p, 501, "CONNECT is not supported");
    h->method = llhttp_method_name(l->method);
    h->version_10 = l->http_minor == 0;
    h->keeps = !h->version_10 && llhttp_should_keep_alive(l);
    if (check_repeated(p) != 0) return HPE_USER;
    if (!host && !h->version_10) return refuse(p, 400, "the header Host is missing");
    if (host && !fv_http_is_authority(host, strlen(host)))
        return refuse(p, 400, "the header Host must be HOST or HOST:PORT");
    if (check_target(p, host) != 0 || check_body(p) != 0) return HPE_USER;
    return check_expected(p);
}

static int on_headers_complete(llhttp_t *l) {
    fv_http_parser *p = l->data;
    l->upgrade = 0; /* ignores Upgrade: no other protocol is served */
    if (check_head(p) != 0) return HPE_USER;
    return pause_with(l, FV_HTTP_HEAD);
}

/* ---- parsing ---------------------------------------------------------------------------- */

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_url_complete = on_url_complete,
    .on_protocol = on_protocol,
    .on_header_field = on_name,
    .on_header_field_complete = on_name_complete,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_value = on_extension,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void fv_http_parser_begin(fv_http_parser *p) {
    fv_http_parser_free(p);
    llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
    p->llhttp.data = p;
}

void fv_http_parser_free(fv_http_parser *p) {
    fv_http_head_free(&p->head);
    *p = (fv_http_parser){0};
}

fv_http_head fv_http_parser_take(fv_http_parser *p) {
    fv_http_head h = p->head;
    p->head.text = NULL;
    p->head.n_text = p->cap_text = 0;
    return h;
}

static fv_http_event bad(fv_http_parser *p, llhttp_errno_t error) {
    p->event = FV_HTTP_BAD;
    if (p->status) return FV_HTTP_BAD;
    p->status = error == HPE_PAUSED_H2_UPGRADE ? 505 : 400;
    snprintf(p->why, sizeof p->why, "not a valid HTTP/1.1 request: %s",
             p->llhttp.reason && *p->llhttp.reason ? p->llhttp.reason : llhttp_errno_name(error));
    for (char *c = p->why; *c; c++)
        if (*c == '"' || *c == '\\') *c = '\'';
    return FV_HTTP_BAD;
}

/* Skips one blank line before a request (RFC 9112, section 2.2); llhttp would skip any number of
 * line ends. False: something else precedes the request. */
static bool skip_blank(fv_http_parser *p, const char *bytes, size_t n, size_t *used) {
    while (*used < n && !p->begun) {
        char c = bytes[*used];
        bool ends = p->blank == 1 ? c == '\n' : c == '\r' && p->blank == 0;
        if (p->blank == 1 && !ends) return false;
        if (!ends) {
            p->begun = true;
            return c != '\r' && c != '\n';
        }
        p->blank++;
        (*used)++;
    }
    return true;
}

fv_http_event fv_http_parse(fv_http_parser *p, const char *bytes, size_t n, size_t *used) {
    *used = 0;
    if (p->event == FV_HTTP_BAD || p->event == FV_HTTP_DONE) return p->event;
    if (!p->begun) {
        if (!skip_blank(p, bytes, n, used)) {
            refuse(p, 400, "only one blank line may precede a request");
            return bad(p, HPE_USER);
        }
        if (*used == n) return FV_HTTP_MORE;
    }
    bool in_head = !p->head.method;
    size_t rest = n - *used, most = rest;
    if (in_head && most > FV_HTTP_HEADERS - p->head_bytes) most = FV_HTTP_HEADERS - p->head_bytes;
    p->base = bytes + *used;
    llhttp_resume(&p->llhttp);
    llhttp_errno_t error = llhttp_execute(&p->llhttp, p->base, most);
    if (error == HPE_PAUSED) {
        *used = (size_t)(llhttp_get_error_pos(&p->llhttp) - bytes);
        return p->event;
    }
    if (error != HPE_OK) return bad(p, error);
    *used += most;
    if (in_head) p->head_bytes += most;
    if (most == rest) return FV_HTTP_MORE;
    bool target = p->head.fields == 0;
    refuse(p, target ? 414 : 431, target ? "the target is too long" : "the headers are too long");
    return bad(p, HPE_USER);
}
