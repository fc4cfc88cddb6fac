#ifndef FOVEA_GATEWAY_HTTP_TLS_H
#define FOVEA_GATEWAY_HTTP_TLS_H

/* TLS 1.2 and 1.3 of an HTTP server, by OpenSSL between two buffers: bytes of the socket go in, the client's bytes
 * come out, and the other way round. It reads and writes no socket. Each handshake uses the newest files
 * (rpc/tls.h); connections keep theirs. Loop thread. */
#include "rpc/tls.h"

typedef struct fv_http_tls fv_http_tls;         /* opaque: of a server */
typedef struct fv_http_session fv_http_session; /* opaque: of a connection */

/* files: borrowed, with a certificate; with authorities, clients must show a certificate of theirs. */
fv_status fv_http_tls_open(fv_tls *files, fv_http_tls **out);
void fv_http_tls_close(fv_http_tls *t); /* NULL is fine */

/* Files that cannot be used are logged, and those before stay in use. t may be closed before the session is. */
fv_status fv_http_session_open(fv_http_tls *t, fv_http_session **out);
void fv_http_session_close(fv_http_session *s); /* NULL is fine */

/* Bytes that the socket has received. False: no memory. */
bool fv_http_session_feed(fv_http_session *s, const void *wire, size_t n);

/* What the client has said, at most `cap` bytes of it: how many; 0: more of the socket's are needed; -1: the session
 * has ended, by the client or by a fault. It shakes hands by the way. */
int fv_http_session_read(fv_http_session *s, void *out, size_t cap);

/* What the client is to be told. False: the session has failed. After the handshake. */
bool fv_http_session_write(fv_http_session *s, const void *bytes, size_t n);

void fv_http_session_end(fv_http_session *s); /* tells the client that nothing more comes */

/* Bytes for the socket, at most `cap` of them: how many. To be called after each of the others. */
size_t fv_http_session_take(fv_http_session *s, void *wire, size_t cap);

#endif
