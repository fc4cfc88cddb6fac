#ifndef FOVEA_GATEWAY_HTTP_HTTP_H
#define FOVEA_GATEWAY_HTTP_HTTP_H

/* HTTP: an HTTP/1.1 server on a libuv loop, with back-pressure both ways.
 *
 *   headers --> on_headers --> fv_http_read_body --> body --> on_request --> answer --> on_end
 *                    |                                |            |                       ^
 *                    '-- answered without its body ---+------------+-----------------------|
 *                        the client disconnects, or is too slow ---------------------------'
 *
 * A request may be answered in a callback or later, by fv_http_reply or by fv_http_stream,
 * fv_http_write ..., fv_http_end_stream. on_end is called once and last for each request that
 * on_headers or on_request has seen, and for each that the server itself has refused, even if no
 * request could be read (its method and path are then NULL); the request is freed when it returns. on_end is never called
 * within a function below, except fv_http_close. A disconnect before the end is noticed at once,
 * even while nothing is read from the client. A client that closes only its sending side counts as
 * gone.
 *
 * Clients are not trusted. The options bound the memory they can take; a request that violates RFC
 * 9112 is answered with 400 and a reason, and its connection closes. Pipelined requests wait in the
 * socket. Bytes of a stream that its client has not read are buffered; fv_http_full says when to
 * stop writing.
 *
 * Loop thread. */
#include <uv.h>

#include "common/client_address.h"
#include "rpc/tls.h"

typedef struct fv_http fv_http;                 /* opaque */
typedef struct fv_http_request fv_http_request; /* opaque */

enum {
    FV_HTTP_WAITING = 64 << 10, /* buffered bytes of a stream that count as full */
    FV_HTTP_IDLE_S = 75,        /* a connection idle after an answer is closed */
};

typedef struct fv_http_options {
    uv_loop_t *loop;    /* borrowed */
    const char *listen; /* "HOST:PORT"; copied */
    fv_tls *tls;        /* borrowed; NULL: plain text. With authorities: asks for certificates */
    size_t body_max;    /* bytes of a body; more are 413 */
    size_t bodies_max;  /* of all bodies in memory; more are 503 */
    /* Most connections; when all are taken, an idle one is closed, or else the new one. */
    int32_t connections;
    /* Most connections from one address, and most running requests of one address behind a trusted
     * proxy; others are closed, or answered with 429. 0: no limit. */
    int32_t per_address;
    const fv_trusted *trusted; /* proxies whose X-Forwarded-For counts; borrowed; NULL: none */
    /* Time for the headers, from their first byte or the connection's beginning, and for the
     * body. */
    int32_t read_ms;
    int32_t write_ms; /* time in which the client must take some of its answer; 0: no limit */
    /* Called when the headers have been read, and no byte of the body. Nothing more is read from
     * the socket until the user answers the request or calls fv_http_read_body. NULL: bodies are
     * read at once. */
    void (*on_headers)(void *user, fv_http_request *r);
    /* Called when the body has been stored, or on_body has got all of it. Not called for a request
     * that has been answered before. */
    void (*on_request)(void *user, fv_http_request *r);
    void (*on_writable)(void *user, fv_http_request *r); /* a full stream is half empty again */
    void (*on_end)(void *user, fv_http_request *r);
    void *user;
} fv_http_options;

fv_status fv_http_open(const fv_http_options *opt, fv_http **out);
const char *fv_http_address(const fv_http *h); /* with the actual port */
int32_t fv_http_requests(const fv_http *h);    /* told to callbacks and not ended */

/* From now on an answer ends its connection, so that clients open the next one elsewhere. */
void fv_http_end_keep_alive(fv_http *h);
void fv_http_leave(fv_http *h); /* does that, and stops accepting connections */

/* Closes every connection. Calls `closed` on the loop once `h` is freed; at once where `h` is
 * NULL. */
void fv_http_close(fv_http *h, void (*closed)(void *user), void *user);

/* ---- a request -------------------------------------------------------------------------- */

const char *fv_http_method(const fv_http_request *r);                   /* NULL: not readable */
const char *fv_http_path(const fv_http_request *r);                     /* without "?..."; same */
const char *fv_http_header(const fv_http_request *r, const char *name); /* NULL: none */
unsigned fv_http_status(const fv_http_request *r); /* of the answer; 0: not begun */
/* The end of its headers or body, or its beginning where it could not be read; fv_clock_s. */
double fv_http_read_s(const fv_http_request *r);
/* Why it failed, for logs; NULL: it has not, or nobody has said. _set copies the first sentence. */
const char *fv_http_error(const fv_http_request *r);
void fv_http_set_error(fv_http_request *r, const char *sentence);
/* The decoded value of "?name=value"; NULL: none. */
const char *fv_http_argument(const fv_http_request *r, const char *name);
/* The client's address, as `trusted` decides (common/client_address.h). */
const char *fv_http_client(const fv_http_request *r);

/* ---- its body --------------------------------------------------------------------------- */

/* Content-Length; 0: no body; SIZE_MAX: chunked, of unknown length. */
size_t fv_http_body_length(const fv_http_request *r);

/* Reads the body, or resumes after a pause. The time limit does not run during a pause. */
void fv_http_read_body(fv_http_request *r);

/* Passes the body to on_body in pieces, as they arrive, instead of storing it. To be called before
 * fv_http_read_body. on_body may pause, answer the request, or neither. */
void fv_http_take_body(fv_http_request *r, void (*on_body)(void *user, fv_http_request *r,
                                                           const char *bytes, size_t n));
void fv_http_pause_body(fv_http_request *r); /* until fv_http_read_body */

/* Returns the stored part of the body; in on_request, all of it. */
const char *fv_http_body(const fv_http_request *r, size_t *n);
void fv_http_forget_body(fv_http_request *r); /* frees the stored body */

/* ---- its answer ------------------------------------------------------------------------- */

void *fv_http_user(const fv_http_request *r);
void fv_http_set_user(fv_http_request *r, void *user);

/* Adds a header to the answer; copies both. To be called before _reply or _stream. At most 8:
 * further ones are dropped. */
void fv_http_add(fv_http_request *r, const char *name, const char *value);

/* Sends the whole answer; copies text [n]. */
void fv_http_reply(fv_http_request *r, unsigned status, const char *type, const char *text,
                   size_t n);

/* Streams an answer: 200 and a body of unknown length, in pieces. Running out of memory for a piece
 * closes the connection. */
void fv_http_stream(fv_http_request *r, const char *type);
void fv_http_write(fv_http_request *r, const char *text, size_t n);
bool fv_http_full(
    const fv_http_request *r); /* FV_HTTP_WAITING bytes are queued: stop until on_writable */
void fv_http_end_stream(fv_http_request *r);

#endif
