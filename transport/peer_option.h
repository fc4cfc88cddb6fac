#ifndef FOVEA_TRANSPORT_PEER_OPTION_H
#define FOVEA_TRANSPORT_PEER_OPTION_H

/* OPTIONS OF PEER LINKS, the same on both kinds of workers. */
#include "common/options.h"
#include "common/peer.h"

typedef struct fv_peer_settings {
    const fv_peer_ops *ops; /* NULL: only gRPC */
    bool wait;              /* hand-offs wait until a link has joined or failed */
    int32_t most;
    double join_s, late_s;
} fv_peer_settings;

/* Evaluates the options for a backend called `device` with peer links `ops` (NULL: none).
 * FV_EUNSUPPORTED: nccl is required, and the message says what is missing. */
fv_status fv_peer_settings_from(const fv_options *o, const char *device, const fv_peer_ops *ops,
                                fv_peer_settings *out);

#endif
