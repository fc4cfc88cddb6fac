/* Opens a daemon's TLS, and checks a peer's role by its certificate. Loop thread. */
#include "serving/peer.h"

#include <stdio.h>

#include "rpc/listen.h"

fv_status fv_peer_tls(const fv_options *o, fv_tls **out) {
    fv_tls_files files = {.cert = fv_options_string(o, "tls-cert"),
                          .key = fv_options_string(o, "tls-key"),
                          .ca = fv_options_string(o, "tls-ca")};
    *out = NULL;
    if (!files.cert && !files.key && !files.ca) return FV_OK;
    if (!files.cert || !files.key || !files.ca)
        return FV_FAIL(FV_EINVAL, "TLS needs all three of --tls-cert, --tls-key and --tls-ca");
    return fv_tls_open(&files, out);
}

fv_status fv_peer_client_tls(const fv_options *o, fv_tls **out) {
    fv_tls_files files = {.cert = fv_options_string(o, "tls-cert"),
                          .key = fv_options_string(o, "tls-key"),
                          .ca = fv_options_string(o, "tls-client-ca")};
    *out = NULL;
    if (files.cert) return fv_tls_open(&files, out);
    if (files.ca) return FV_FAIL(FV_EINVAL, "--tls-client-ca needs --tls-cert");
    return FV_OK;
}

fv_status fv_peer_check_listen(const fv_options *o, const char *address) {
    if (fv_options_flag(o, "insecure") || fv_rpc_listen_is_local(address)) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "others can reach %s, and without TLS they can read and change what goes over "
                   "it: give --tls-cert, --tls-key and --tls-ca, or --insecure where something "
                   "else protects it",
                   address);
}

bool fv_peer_is(const fv_rpc_call *call, fv_role role, const char *spiffe) {
    char id[512];
    if (fv_rpc_call_peer_named(call, fv_role_name(role))) return true;
    return spiffe && snprintf(id, sizeof id, "%s%s", spiffe, fv_role_name(role)) < (int)sizeof id &&
           fv_rpc_call_peer_spiffe(call, id);
}

static bool has_role(const fv_peer_gate *g, const fv_rpc_call *c, uint32_t roles) {
    static const fv_role all[] = {FV_MEMBER_ROUTER, FV_MEMBER_PREFILL, FV_MEMBER_DECODE};
    for (int i = 0; i < 3; i++)
        if ((roles & all[i]) && fv_peer_is(c, all[i], g->spiffe)) return true;
    return false;
}

fv_status fv_peer_admit(void *gate, fv_rpc_call *call, const fv_rpc_method *method) {
    fv_peer_gate *g = gate;
    const char *why = NULL;
    if (g->clients && has_role(g, call, FV_MEMBER_PREFILL | FV_MEMBER_DECODE))
        why = "a worker's certificate is not a client certificate";
    else if (!g->clients && method->peers != FV_MEMBER_ANY && !has_role(g, call, method->peers))
        why = "the certificate's role may not call this method";
    if (!why) return FV_OK;
    fv_audit_refused(&g->audit, call, why);
    return FV_FAIL(FV_EDENIED, "%s", why);
}
