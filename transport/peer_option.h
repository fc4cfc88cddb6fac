#ifndef FOVEA_TRANSPORT_PEER_OPTION_H
#define FOVEA_TRANSPORT_PEER_OPTION_H

/* OPTIONS OF PEER LINKS, the same on both kinds of workers. */
#include "common/options.h"
#include "common/peer.h"

/* clang-format off */
#define FV_PEER_OPTIONS                                                                            \
    {"transport", "FOVEA_TRANSPORT", FV_OPTION_STRING, "NAME", "auto",                             \
     "transport of KV between GPUs: grpc; nccl (required; never encrypted); auto: nccl where both "  \
     "sides support it and there is no TLS", 0, 0},                                                \
    {"pairs", "FOVEA_PAIRS", FV_OPTION_INT, "N", "8",                                              \
     "maximum number of NCCL peers; each takes GPU memory", 1, 64},                                \
    {"pair-join-ms", "FOVEA_PAIR_JOIN_MS", FV_OPTION_INT, "MS", "20000",                           \
     "timeout for connecting two workers by NCCL; then gRPC is used", 10, 600000},                 \
    {"pair-ms", "FOVEA_PAIR_MS", FV_OPTION_INT, "MS", "10000",                                     \
     "timeout for a frame over NCCL; then gRPC is used", 10, 600000}
/* clang-format on */

typedef struct fv_peer_choice {
    const fv_peer_ops *ops; /* NULL: only gRPC */
    bool wait;              /* hand-offs wait until a link has joined or failed */
    int32_t most;
    double join_s, late_s;
} fv_peer_choice;

/* Evaluates the options for a backend called `device` with peer links `ops` (NULL: none).
 * FV_EUNSUPPORTED: nccl is required, and the message says what is missing. */
fv_status fv_peer_choose(const fv_options *o, const char *device, const fv_peer_ops *ops,
                         fv_peer_choice *out);

#endif
