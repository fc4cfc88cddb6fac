/* A request, from its head to the last piece of its body. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "gateway/http/internal.h"

/* ---- the target ------------------------------------------------------------------------- */

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes %-escapes of text [n] to out, which may be text, and terminates it. Invalid escapes and
 * "%00" stay as they are. Returns the bytes written. */
static size_t decode(const char *text, size_t n, bool plus, char *out) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        bool escape = text[i] == '%' && n - i > 2 && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0;
        int byte = escape ? 16 * hex(text[i + 1]) + hex(text[i + 2]) : 0;
        out[k++] = byte ? (char)byte : plus && text[i] == '+' ? ' ' : text[i];
        if (byte) i += 2;
    }
    out[k] = '\0';
    return k + 1;
}

/* "?a=b&c" becomes "a\0b\0c\0\0". */
static fv_status read_arguments(fv_http_request *r, const char *query) {
    r->arguments = malloc(2 * strlen(query) + 2);
    if (!r->arguments) return FV_FAIL(FV_ENOMEM, "out of memory for the arguments of a request");
    for (char *out = r->arguments; *query; r->n_arguments = (size_t)(out - r->arguments)) {
        size_t n = strcspn(query, "&"), name = strcspn(query, "=&");
        out += decode(query, name, true, out);
        size_t value = name < n ? name + 1 : n;
        out += decode(query + value, n - value, true, out);
        query += n + (query[n] == '&');
    }
    return FV_OK;
}

static fv_status read_target(fv_http_request *r) {
    char *query = strchr(r->head.path, '?');
    if (query) {
        *query = '\0';
        FV_TRY(read_arguments(r, query + 1));
    }
    decode(r->head.path, strlen(r->head.path), false, r->head.path);
    return FV_OK;
}

/* ---- the client -------------------------------------------------------------------------- */

static void find_client(fv_http_request *r) {
    const char *name, *value, *forwarded = NULL;
    char joined[FV_HTTP_HEADERS];
    size_t n = 0;
    for (size_t at = 0; r->connection->proxy && fv_http_head_next(&r->head, &at, &name, &value);) {
        size_t more = strlen(value);
        if (strcasecmp(name, "X-Forwarded-For") != 0 || n + more + 2 > sizeof joined) continue;
        if (n > 0) joined[n++] = ',';
        memcpy(joined + n, value, more + 1);
        n += more;
        forwarded = joined;
    }
    fv_client_address(r->http->opt.trusted, r->connection->peer, forwarded, r->client);
}

/* ---- lifetime ---------------------------------------------------------------------------- */

fv_http_request *fv_http_request_new(fv_http_connection *c, fv_http_head *head) {
    fv_http_request *r = calloc(1, sizeof *r);
    if (!r) {
        fv_http_head_free(head);
        return NULL;
    }
    r->http = c->http;
    r->connection = c;
    r->head = *head;
    r->read_s = fv_clock_s();
    if (head->text && read_target(r) != FV_OK) {
        fv_http_request_free(r);
        return NULL;
    }
    find_client(r);
    return r;
}

void fv_http_request_free(fv_http_request *r) {
    fv_http_forget_body(r);
    fv_http_place_give(&r->http->clients, r->place);
    for (int32_t i = 0; i < r->n_added; i++) {
        free(r->added[i].name);
        free(r->added[i].value);
    }
    fv_http_head_free(&r->head);
    free(r->arguments);
    free(r->error);
    free(r);
}

void fv_http_report(fv_http_request *r) {
    if (r->told) return;
    r->told = true;
    r->http->n_told++;
}

/* Counts a request behind a proxy for its client: a proxy's connections carry many clients. */
static bool has_place(fv_http_request *r) {
    const fv_http_options *o = &r->http->opt;
    if (!r->connection->proxy) return true;
    return fv_http_place_take(&r->http->clients, r->client, o->per_address, &r->place) == FV_OK;
}

static void refuse_size(fv_http_request *r) {
    char why[128];
    snprintf(why, sizeof why, "the body is too large: at most %zu bytes are read (--body-bytes)",
             r->http->opt.body_max);
    fv_http_refuse(r, 413, why);
}

void fv_http_begin_request(fv_http_request *r) {
    const fv_http_options *o = &r->http->opt;
    r->connection->reading_s = 0;
    r->read_s = fv_clock_s();
    if (!has_place(r)) {
        fv_http_add(r, "Retry-After", "1");
        fv_http_refuse(r, 429, "this address has too many requests running; try again later");
    } else if (r->head.body != SIZE_MAX && r->head.body > o->body_max) {
        refuse_size(r);
    } else if (o->on_headers) {
        fv_http_report(r);
        o->on_headers(o->user, r);
    } else {
        fv_http_read_body(r);
    }
}

/* ---- the body --------------------------------------------------------------------------- */

/* Capacity for a body of `need` bytes: doubles, but within body_max and what other bodies leave of
 * bodies_max, unless `need` is more. */
static size_t memory_for(const fv_http_request *r, size_t need) {
    const fv_http *h = r->http;
    size_t cap = 2 * r->cap_body, left = h->opt.bodies_max - (h->bodies - r->cap_body);
    if (need <= r->cap_body) return r->cap_body;
    if (cap > h->opt.body_max) cap = h->opt.body_max;
    if (cap > left) cap = left;
    return cap > need ? cap : need;
}

static void store(fv_http_request *r, const char *bytes, size_t n) {
    fv_http *h = r->http;
    size_t need = r->n_body + n, cap = memory_for(r, need);
    char *body = r->body;
    bool fits = h->bodies - r->cap_body + cap <= h->opt.bodies_max;
    if (fits && cap > r->cap_body) body = realloc(r->body, cap);
    if (!fits || !body) {
        fv_http_forget_body(r);
        fv_http_add(r, "Retry-After", "1");
        fv_http_refuse(r, 503, "too many large requests are being read; try again later");
        return;
    }
    h->bodies += cap - r->cap_body;
    r->body = body;
    r->cap_body = cap;
    memcpy(r->body + r->n_body, bytes, n);
    r->n_body = need;
}

void fv_http_add_piece(fv_http_request *r, const char *bytes, size_t n, size_t left) {
    size_t room = r->http->opt.body_max - r->n_body;
    if (n > room || left > room - n) {
        fv_http_forget_body(r);
        refuse_size(r);
    } else if (r->on_body) {
        r->n_body += n;
        r->on_body(r->http->opt.user, r, bytes, n);
    } else {
        store(r, bytes, n);
    }
}

void fv_http_complete_request(fv_http_request *r) {
    const fv_http_options *o = &r->http->opt;
    r->complete = true;
    r->read_s = fv_clock_s();
    r->connection->reading_s = 0;
    fv_http_report(r);
    o->on_request(o->user, r);
}

void fv_http_read_body(fv_http_request *r) {
    if (r->reads || r->complete || r->status) return;
    r->reads = true;
    r->connection->reading_s = fv_clock_s() - r->spent_s;
    if (!r->continued) fv_http_continue(r);
    r->continued = true;
    fv_http_due(r->connection);
}

void fv_http_pause_body(fv_http_request *r) {
    if (!r->reads || r->complete) return;
    r->reads = false;
    r->spent_s = fv_clock_s() - r->connection->reading_s;
    r->connection->reading_s = 0;
}

void fv_http_take_body(fv_http_request *r, void (*on_body)(void *user, fv_http_request *r,
                                                           const char *bytes, size_t n)) {
    r->on_body = on_body;
}

size_t fv_http_body_length(const fv_http_request *r) { return r->head.body; }

const char *fv_http_body(const fv_http_request *r, size_t *n) {
    *n = r->body ? r->n_body : 0;
    return r->body ? r->body : "";
}

void fv_http_forget_body(fv_http_request *r) {
    r->http->bodies -= r->cap_body;
    free(r->body);
    r->body = NULL;
    r->cap_body = 0;
}

/* ---- accessors --------------------------------------------------------------------------- */

const char *fv_http_method(const fv_http_request *r) { return r->head.method; }

const char *fv_http_path(const fv_http_request *r) { return r->head.path; }

const char *fv_http_header(const fv_http_request *r, const char *name) {
    return fv_http_head_find(&r->head, name);
}

const char *fv_http_argument(const fv_http_request *r, const char *name) {
    const char *end = r->arguments + r->n_arguments;
    for (const char *at = r->arguments; at < end;) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

const char *fv_http_client(const fv_http_request *r) { return r->client; }

const char *fv_http_error(const fv_http_request *r) { return r->error; }

void fv_http_set_error(fv_http_request *r, const char *sentence) {
    if (!r->error) r->error = strdup(sentence);
}

unsigned fv_http_status(const fv_http_request *r) { return r->status; }

double fv_http_read_s(const fv_http_request *r) { return r->read_s; }

void *fv_http_user(const fv_http_request *r) { return r->user; }

void fv_http_set_user(fv_http_request *r, void *user) { r->user = user; }
