#ifndef FOVEA_RPC_TLS_H
#define FOVEA_RPC_TLS_H

/* TLS: a certificate, its key and the authorities that peers are checked against, from PEM files
 * that are read again when they change. Servers use the new files from their next handshake on;
 * channels make a new connection and let the calls on the old one finish (rpc/client.h).
 *
 * Unusable files (a key that does not match the certificate because only one of the two has been
 * replaced so far, an incomplete file) are logged, and the previous contents stay in use. */
#include <grpc/grpc_security.h>

#include "common/status.h"

typedef struct fv_tls fv_tls; /* opaque */

/* Paths; copied. */
typedef struct fv_tls_files {
    const char *cert, *key; /* chain, leaf first, and its private key without a passphrase;
                             * both NULL: a client without a certificate */
    /* Authorities (one or more certificates). A server requires a client certificate issued by one of
     * them; with NULL it asks for none. A client trusts them; with NULL those of the system. */
    const char *ca;
} fv_tls_files;

/* Reads the files. FV_EINVAL: cert without key or key without cert; FV_ENOTFOUND, FV_EIO, FV_EDATA name the
 * file at fault. */
fv_status fv_tls_open(const fv_tls_files *files, fv_tls **out);
void fv_tls_close(fv_tls *t); /* after the bridge is closed, as handshakes use it. NULL is fine */

/* Returns the version of the contents in use; looks at the files, at most every FV_TLS_LOOK_MS. Any thread. */
enum { FV_TLS_LOOK_MS = 100 };
uint64_t fv_tls_version(fv_tls *t);

/* The contents in use, for a server other than gRPC's. */
typedef struct fv_tls_pem {
    char *cert, *key;
    char *ca; /* NULL: none */
    uint64_t version;
} fv_tls_pem;

/* Gives copies of the contents in use; `t` must have a certificate. Any thread. */
fv_status fv_tls_pem_copy(fv_tls *t, fv_tls_pem *out);
void fv_tls_pem_free(fv_tls_pem *p); /* {0} afterwards; {0} is fine */

/* Give gRPC's credentials; *version: the contents they were made of. Loop thread. */
grpc_server_credentials *fv_tls_server_credentials(fv_tls *t);
grpc_channel_credentials *fv_tls_channel_credentials(fv_tls *t, uint64_t *version);

#endif
