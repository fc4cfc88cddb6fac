/* Evaluates --transport and the options of peer links. */
#include "transport/peer_option.h"

#include <string.h>

#include "common/log.h"

fv_status fv_peer_settings_from(const fv_options *o, const char *device, const fv_peer_ops *ops,
                                fv_peer_settings *out) {
    const char *name = fv_options_string(o, "transport");
    bool nccl = strcmp(name, "nccl") == 0;
    fv_peer_settings c = {.wait = nccl,
                          .most = (int32_t)fv_options_int(o, "pairs"),
                          .join_s = 1e-3 * (double)fv_options_int(o, "pair-join-ms"),
                          .late_s = 1e-3 * (double)fv_options_int(o, "pair-ms")};
    if (!nccl && strcmp(name, "auto") != 0 && strcmp(name, "grpc") != 0)
        return FV_FAIL(FV_EINVAL, "transport '%s': choose auto, grpc or nccl", name);
    if (nccl && !ops)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "--transport nccl: NCCL needs GPU memory, but this worker computes on %s: "
                       "start it with --device cuda, or with --transport auto",
                       device);
    fv_status st = ops && strcmp(name, "grpc") != 0 ? ops->check() : FV_EUNSUPPORTED;
    if (st == FV_OK)
        c.ops = ops;
    else if (nccl)
        return FV_FAIL(st, "--transport nccl: %s", fv_last_error());
    else if (ops && strcmp(name, "auto") == 0)
        FV_LOG(INFO, WIRE, "event=no-pairs reason=\"%s\"", fv_last_error());
    *out = c;
    return FV_OK;
}
