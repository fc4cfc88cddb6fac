#ifndef FOVEA_REDIS_INTERNAL_H
#define FOVEA_REDIS_INTERNAL_H

/* Shared by the files of redis/ only.
 *
 *   url.c         the URL of a server
 *   reply.c       bytes from the server -> replies
 *   session.c     TLS, between two memory buffers
 *   connection.c  names, sockets, TLS: bytes to and from a server
 *   redis.c       operations, deadlines, and when to connect */
#include "redis/redis.h"

typedef struct fv_redis_url {
    char host[256], port[8], db[8], user[256], password[512]; /* "": not given */
    bool tls;
} fv_redis_url;

fv_status fv_redis_url_read(const char *text, fv_redis_url *out);

/* ---- replies ---------------------------------------------------------------------------- */

typedef enum fv_reply_kind {
    FV_REPLY_MORE,  /* it is not complete */
    FV_REPLY_TEXT,  /* +text, :number */
    FV_REPLY_ERROR, /* -text */
    FV_REPLY_VALUE, /* $n bytes */
    FV_REPLY_NONE,  /* no value */
    FV_REPLY_BIG,   /* a value of more than the limit: nothing after it can be read */
    FV_REPLY_WRONG, /* no reply that this client expects */
} fv_reply_kind;

typedef struct fv_reply {
    fv_reply_kind kind;
    const char *text; /* [n] within the bytes read */
    size_t n, size;   /* size: bytes of the reply */
} fv_reply;

/* Reads the reply that s[n] begins with. */
fv_reply fv_reply_read(const char *s, size_t n, size_t value_max);

/* ---- TLS -------------------------------------------------------------------------------- */

typedef struct fv_redis_tls fv_redis_tls;         /* opaque: what sessions share */
typedef struct fv_redis_session fv_redis_session; /* opaque: of a connection */

fv_status fv_redis_tls_open(const char *ca, fv_redis_tls **out);
void fv_redis_tls_close(fv_redis_tls *t);
/* The server must prove that it is `host`. */
fv_status fv_redis_session_open(fv_redis_tls *t, const char *host, fv_redis_session **out);
void fv_redis_session_close(fv_redis_session *s);
bool fv_redis_session_feed(fv_redis_session *s, const void *wire,
                           size_t n); /* false: out of memory */
/* Reads decrypted bytes and does the handshake; 0: needs more bytes; -1: it is over, and fv_last_error says why. */
int fv_redis_session_read(fv_redis_session *s, void *out, size_t cap);
/* Encrypts; bytes before the end of the handshake wait. False: it has failed. */
bool fv_redis_session_write(fv_redis_session *s, const void *bytes, size_t n);
size_t fv_redis_session_take(fv_redis_session *s, void *wire,
                             size_t cap); /* bytes for the socket */

/* ---- a connection ------------------------------------------------------------------------ */

typedef struct fv_connection fv_connection; /* opaque */

typedef struct fv_connection_events {
    void (*received)(void *user, const char *bytes, size_t n);
    void (*lost)(void *user); /* fv_last_error says why; the last event */
} fv_connection_events;

/* Begins to connect. tls NULL: plain. Everything but the URL's text is borrowed until it is closed. */
fv_status fv_connection_open(uv_loop_t *loop, const fv_redis_url *url, fv_redis_tls *tls,
                             const fv_connection_events *events, void *user, fv_connection **out);
/* Sends bytes, once it is open; copies them. FV_ENOMEM, FV_EIO. */
fv_status fv_connection_send(fv_connection *c, const char *bytes, size_t n);
void fv_connection_close(fv_connection *c); /* no event comes any more; NULL is fine */

#endif
