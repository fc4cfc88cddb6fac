#ifndef FOVEA_SERVING_PEER_H
#define FOVEA_SERVING_PEER_H

/* PEERS: a daemon's TLS, and which role of the fleet (auth/role.h) may call which method.
 *
 *   listener of       peers must have                               may call
 *   the fleet         a certificate of --tls-ca                     methods whose `peers` name the
 *                                                                   role in it
 *   clients           with --tls-client-ca one of that authority,   all methods
 *                     but not a worker's; otherwise none
 *
 * Without TLS no peer is refused here: workers and routers prove that they know the fleet's secret
 * (serving/caller.h, serving/worker/member.h). Loop thread. */
#include "auth/role.h"
#include "common/options.h"
#include "rpc/server.h"
#include "serving/audit.h"

/* Option rows of every member of a fleet. */
/* clang-format off */
#define FV_PEER_TLS_OPTIONS                                                                        \
    {"tls-cert", "FOVEA_TLS_CERT", FV_OPTION_STRING, "FILE", NULL,                                 \
     "PEM certificate chain, whose DNS names have the role: fovea-router, fovea-prefill or "       \
     "fovea-decode; turns TLS on; reread when it changes", 0, 0},                                  \
    {"tls-key", "FOVEA_TLS_KEY", FV_OPTION_STRING, "FILE", NULL,                                   \
     "its private key in PEM", 0, 0},                                                              \
    {"tls-ca", "FOVEA_TLS_CA", FV_OPTION_STRING, "FILE", NULL,                                     \
     "PEM certificates of the fleet's authorities, for nothing else but this fleet", 0, 0},        \
    {"tls-spiffe", "FOVEA_TLS_SPIFFE", FV_OPTION_STRING, "PREFIX", NULL,                           \
     "accept callers also by SPIFFE id: PREFIX and the role, such as "                             \
     "spiffe://cluster.local/ns/fovea/sa/", 0, 0},                                                 \
    {"tls-age-ms", "FOVEA_TLS_AGE_MS", FV_OPTION_INT, "MS", "3600000",                             \
     "time after which a member of the fleet connects again and its certificate is checked "       \
     "again", 100, 86400000},                                                                      \
    {"insecure", "FOVEA_INSECURE", FV_OPTION_FLAG, NULL, NULL,                                     \
     "without TLS, listen on other addresses than loopback too", 0, 0}
/* Option row of a daemon with a listener for clients. */
#define FV_PEER_CLIENT_TLS_OPTIONS                                                                 \
    {"tls-client-ca", "FOVEA_TLS_CLIENT_CA", FV_OPTION_STRING, "FILE", NULL,                       \
     "require of clients a certificate of these authorities", 0, 0}
/* clang-format on */

/* Opens the TLS for fleet members from the options; NULL: TLS is off. FV_EINVAL: some, but not all, of the
 * three files are given. */
fv_status fv_peer_tls(const fv_options *o, fv_tls **out);

/* Opens the TLS for clients: the same certificate, with the authorities of --tls-client-ca if given. */
fv_status fv_peer_client_tls(const fv_options *o, fv_tls **out);

/* FV_EINVAL: without TLS, other machines could reach this address, and --insecure is not given. */
fv_status fv_peer_check_listen(const fv_options *o, const char *address);

/* A listener's checks of its peers; set the first two fields, the rest is zero. */
typedef struct fv_peer_gate {
    const char *spiffe; /* --tls-spiffe; borrowed; NULL: none */
    bool clients;       /* the listener is for clients */
    fv_audit audit;
} fv_peer_gate;

/* The `admit` of fv_rpc_server_options; `user` is the gate. FV_EDENIED: not with this certificate. */
fv_status fv_peer_admit(void *gate, fv_rpc_call *call, const fv_rpc_method *method);

/* Whether the caller's certificate has this role, by DNS name or SPIFFE id (spiffe: prefix; NULL: none). */
bool fv_peer_is(const fv_rpc_call *call, fv_role role, const char *spiffe);

#endif
