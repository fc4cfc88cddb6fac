#ifndef FOVEA_GATEWAY_HTTP_HTTP_H
#define FOVEA_GATEWAY_HTTP_HTTP_H

/* HTTP: a server of HTTP/1.1 on a libuv loop, with back-pressure both ways.
 *
 *   headers --> on_headers --> fv_http_read_body --> body --> on_request --> answer --> on_end
 *                    |                                |            |                       ^
 *                    '-- answered without its body ---+------------+-----------------------|
 *                        the client goes away, or is too slow -----------------------------'
 *
 * A request may be answered in a callback or later, by fv_http_reply or by fv_http_stream, fv_http_write ...,
 * fv_http_end_stream. on_end comes once and last for each request that on_headers or on_request has seen; the
 * request is gone when it returns. It never comes within a call of a function below, except fv_http_close.
 * A client that disconnects before the end is noticed at once, also while nothing is read from it. A client that
 * closes its sending side alone counts as gone.
 *
 * Clients may be anybody. What they can make grow has a bound, which the options set; a request that is not
 * exactly what RFC 9112 says is answered with 400 and a sentence, and its connection closes. Requests that are
 * sent before the answer to the one before wait in the socket. What a stream has written and its client has not
 * read waits here; fv_http_full says when to stop writing.
 *
 * Loop thread. */
#include <uv.h>

#include "common/client_address.h"
#include "rpc/tls.h"

typedef struct fv_http fv_http;                 /* opaque */
typedef struct fv_http_request fv_http_request; /* opaque */

enum {
    FV_HTTP_WAITING = 64 << 10, /* bytes of a stream that wait before it is full */
    FV_HTTP_IDLE_S = 75,        /* a connection without progress ends after this time */
};

typedef struct fv_http_options {
    uv_loop_t *loop;    /* borrowed */
    const char *listen; /* "HOST:PORT" */
    fv_tls *tls;        /* borrowed; NULL: plain text. With authorities, it asks for certificates */
    size_t body_max;    /* bytes of a body; more are 413 */
    size_t bodies_max;  /* and of all that are here; more are 503 */
    /* At a time; beyond that an idle one makes room, else the new one is closed. */
    int32_t connections;
    /* From one address: connections, and behind a trusted proxy requests that run; beyond that a connection is
     * closed and a request is answered with 429. 0: no limit. */
    int32_t per_address;
    const fv_trusted *trusted; /* proxies whose X-Forwarded-For counts; borrowed; NULL: none */
    /* For headers, from their first byte or the connection's beginning; and for the body. */
    int32_t read_ms;
    int32_t
        write_ms; /* an answer of which the client takes too little in this time ends; 0: no limit */
    /* The headers are there, and no byte of the body has been read. The request is answered now or later, or
     * its body is read once fv_http_read_body is called; nothing more is read from the socket until then. NULL:
     * bodies are read at once. */
    void (*on_headers)(void *user, fv_http_request *r);
    /* The body is there, too, or all its pieces have been given. Not called for a request that has been
     * answered before. */
    void (*on_request)(void *user, fv_http_request *r);
    void (*on_writable)(void *user,
                        fv_http_request *r); /* a stream was full, and now is half empty */
    void (*on_end)(void *user, fv_http_request *r);
    void *user;
} fv_http_options;

fv_status fv_http_open(const fv_http_options *opt, fv_http **out);
const char *fv_http_address(const fv_http *h); /* with the port that was found */
int32_t fv_http_requests(const fv_http *h);    /* that have been read and not ended */

void fv_http_leave(fv_http *h); /* accepts no more connections */

/* Ends every connection; `closed` runs on the loop when `h` is freed. NULL is fine: at once. */
void fv_http_close(fv_http *h, void (*closed)(void *user), void *user);

/* ---- a request -------------------------------------------------------------------------- */

const char *fv_http_method(const fv_http_request *r);
const char *fv_http_path(const fv_http_request *r);                     /* without "?..." */
const char *fv_http_header(const fv_http_request *r, const char *name); /* NULL: none */
unsigned fv_http_status(const fv_http_request *r); /* of its answer; 0: none has begun */
double fv_http_read_s(const fv_http_request *r);   /* when it was there as a whole, by fv_clock_s */
/* The decoded value of "?name=value"; NULL: none. */
const char *fv_http_argument(const fv_http_request *r, const char *name);
/* The client's address, as `trusted` decides (common/client_address.h). */
const char *fv_http_client(const fv_http_request *r);

/* ---- its body --------------------------------------------------------------------------- */

/* Content-Length; 0: no body; SIZE_MAX: chunked, so nobody knows yet. */
size_t fv_http_body_length(const fv_http_request *r);

/* Reads the body, or reads on after a pause. The time for it runs while it is read. */
void fv_http_read_body(fv_http_request *r);

/* Before fv_http_read_body: on_body gets the body in pieces, as they arrive, and nothing is stored. on_body may pause,
 * answer the request, or neither. */
void fv_http_take_body(fv_http_request *r, void (*on_body)(void *user, fv_http_request *r,
                                                           const char *bytes, size_t n));
void fv_http_pause_body(fv_http_request *r); /* no piece comes until fv_http_read_body */

/* What is stored; the whole body in on_request. */
const char *fv_http_body(const fv_http_request *r, size_t *n);
void fv_http_forget_body(fv_http_request *r); /* it was read: frees its memory */

/* ---- its answer ------------------------------------------------------------------------- */

void *fv_http_user(const fv_http_request *r);
void fv_http_set_user(fv_http_request *r, void *user);

/* A header of the answer. Copied; before reply or stream. At most 8. */
void fv_http_add(fv_http_request *r, const char *name, const char *value);

/* The whole answer; text [n] is copied. */
void fv_http_reply(fv_http_request *r, unsigned status, const char *type, const char *text,
                   size_t n);

/* 200 and a body of unknown length, in pieces. A piece that finds no memory breaks the stream off. */
void fv_http_stream(fv_http_request *r, const char *type);
void fv_http_write(fv_http_request *r, const char *text, size_t n);
bool fv_http_full(
    const fv_http_request *r); /* FV_HTTP_WAITING bytes wait: stop until on_writable */
void fv_http_end_stream(fv_http_request *r);

#endif
