#ifndef FOVEA_GATEWAY_HTTP_HTTP_H
#define FOVEA_GATEWAY_HTTP_HTTP_H

/* HTTP: a server on a libuv loop, with back-pressure both ways.
 *
 *   headers, body --> on_request --> reply                                       --> on_end
 *                        |     '---> stream, write ... write, end                 --> on_end
 *                        '-- the client goes away, or is too slow --------------------^
 *
 * A request may be answered in on_request or later. on_end comes once and last, in every case; the
 * request is gone when it returns. A client that disconnects before that is noticed at once.
 *
 * Clients may be anybody, so what they can make grow has a bound: the options say which. What a stream
 * has written and its client has not read waits here; fv_http_full says when to stop writing.
 *
 * Loop thread. */
#include <uv.h>

#include "rpc/tls.h"

typedef struct fv_http fv_http;                 /* opaque */
typedef struct fv_http_request fv_http_request; /* opaque */

enum {
    FV_HTTP_HEADERS = 32 << 10, /* bytes of a request's line and headers */
    FV_HTTP_WAITING = 64 << 10, /* bytes of a stream that wait before it is full */
    FV_HTTP_IDLE_S = 75,        /* a connection without progress ends after this time */
};

typedef struct fv_http_options {
    uv_loop_t *loop;    /* borrowed */
    const char *listen; /* "HOST:PORT" */
    fv_tls *tls;        /* borrowed; NULL: plain text. With authorities, it asks for certificates */
    size_t body_max;    /* bytes of a body; more are 413 */
    size_t bodies_max;  /* and of all that are here; more are 503 */
    int32_t connections; /* at a time */
    int32_t per_address; /* of them, from one address; 0: no limit */
    int32_t read_ms; /* for headers, from the connection or the answer before; and for the body */
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
const char *fv_http_body(const fv_http_request *r, size_t *n);
void fv_http_forget_body(fv_http_request *r); /* it was read: frees its memory */

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
