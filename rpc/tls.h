#ifndef FOVEA_RPC_TLS_H
#define FOVEA_RPC_TLS_H

/* TLS: a certificate, its key and the authorities that peers are checked against, from PEM files
 * that are read again when they change. Servers take the new ones with their next handshake,
 * channels make a new connection and let the calls on the old one finish (rpc/client.h).
 *
 * Files that cannot be used (a key that does not match the certificate because only one of the two
 * has been replaced yet, half a file) are logged, and the previous ones stay in use. */
#include <grpc/grpc_security.h>

#include "common/status.h"

typedef struct fv_tls fv_tls; /* opaque */

/* Paths; copied. */
typedef struct fv_tls_files {
    const char *cert, *key; /* chain, leaf first, and its private key without a passphrase;
                             * both NULL: a client that shows no certificate */
    /* Authorities (one or more certificates). A server requires a certificate issued by one of
     * them, and with NULL asks for none; a client trusts them, and with NULL those of the system. */
    const char *ca;
} fv_tls_files;

/* FV_EINVAL: one of cert and key alone; FV_ENOTFOUND, FV_EIO, FV_EDATA name the file at fault. */
fv_status fv_tls_open(const fv_tls_files *files, fv_tls **out);
void fv_tls_close(fv_tls *t); /* when the bridge is closed: handshakes use it. NULL is fine */

/* Counts changes that were taken; looks at the files, at most every FV_TLS_LOOK_MS. Any thread. */
enum { FV_TLS_LOOK_MS = 100 };
uint64_t fv_tls_version(fv_tls *t);

/* What is in use, for a server that is not gRPC's. */
typedef struct fv_tls_pem {
    char *cert, *key;
    char *ca; /* NULL: none */
    uint64_t version;
} fv_tls_pem;

/* Of one that has a certificate: gives copies. Any thread. */
fv_status fv_tls_pem_copy(fv_tls *t, fv_tls_pem *out);
void fv_tls_pem_free(fv_tls_pem *p); /* {0} afterwards, which is fine, too */

/* What gRPC takes; gives *out, and the version it was made of. Loop thread. */
grpc_server_credentials *fv_tls_server_credentials(fv_tls *t);
grpc_channel_credentials *fv_tls_channel_credentials(fv_tls *t, uint64_t *version);

#endif
