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
