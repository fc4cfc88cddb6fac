#ifndef FOVEA_GATEWAY_HTTP_TLS_H
#define FOVEA_GATEWAY_HTTP_TLS_H

/* TLS 1.2 and 1.3 for the HTTP server: OpenSSL between two memory buffers, without a socket. Each
 * new session uses the newest files (rpc/tls.h); open ones keep theirs. Loop thread. */
#include "rpc/tls.h"

typedef struct fv_http_tls fv_http_tls;         /* opaque: of a server */
typedef struct fv_http_session fv_http_session; /* opaque: of a connection */

/* files: borrowed; must have a certificate. With authorities, clients must show a certificate
 * signed by one. */
fv_status fv_http_tls_open(fv_tls *files, fv_http_tls **out);
void fv_http_tls_close(fv_http_tls *t); /* NULL is fine */

/* Opens a session. Logs new files that cannot be used, and keeps the old ones. t may be closed
 * before the session. */
fv_status fv_http_session_open(fv_http_tls *t, fv_http_session **out);
void fv_http_session_close(fv_http_session *s); /* NULL is fine */

/* Feeds bytes received from the socket. False: out of memory. */
bool fv_http_session_feed(fv_http_session *s, const void *wire, size_t n);

/* Reads at most `cap` decrypted bytes, and does the handshake. Returns how many; 0: needs more
 * bytes from the socket; -1: the client has ended the session, or it has failed. */
int fv_http_session_read(fv_http_session *s, void *out, size_t cap);

/* Encrypts bytes for the client; only after the handshake. False: the session has failed. */
bool fv_http_session_write(fv_http_session *s, const void *bytes, size_t n);

void fv_http_session_end(fv_http_session *s); /* sends close_notify */

/* Takes at most `cap` bytes for the socket; returns how many. Call it after each of the functions
 * above. */
size_t fv_http_session_take(fv_http_session *s, void *wire, size_t cap);

#endif
