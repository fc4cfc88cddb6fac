#ifndef FOVEA_GATEWAY_HTTP_TLS_H
#define FOVEA_GATEWAY_HTTP_TLS_H

/* TLS of an HTTP server: files (rpc/tls.h) -> credentials of GnuTLS, which libmicrohttpd uses. Each handshake
 * has the newest ones; connections keep theirs. Loop thread. */
#include <gnutls/x509.h>

#include "rpc/tls.h"

typedef struct fv_http_tls fv_http_tls;                 /* opaque */
typedef struct fv_http_credentials fv_http_credentials; /* opaque, counted */

/* files: borrowed, with a certificate; with authorities, clients must show a certificate of theirs. */
fv_status fv_http_tls_open(fv_tls *files, fv_http_tls **out);
void fv_http_tls_close(fv_http_tls *t); /* NULL is fine */

/* Before a session's handshake; *out stays while the session does. Files that cannot be used are logged, and
 * the credentials before stay in use. */
fv_status fv_http_tls_begin(fv_http_tls *t, gnutls_session_t session, fv_http_credentials **out);
void fv_http_credentials_unref(fv_http_credentials *c); /* NULL is fine */

#endif
