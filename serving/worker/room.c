/* Divides the memory of a worker. Warns at its start if that is too small. The worker starts nevertheless: weights are mapped
 * files, which the system rereads if they do not fit, and a KV pool that is never full may fit. */
#include "serving/worker/room.h"

#include "common/log.h"

bool fv_worker_check_memory(size_t weights, size_t kv, size_t limit) {
    if (weights <= limit && kv <= limit - weights) return true;
    if (weights >= limit)
        FV_LOG(WARN, MODEL,
               "event=memory-short weights_bytes=%zu kv_bytes=%zu limit_bytes=%zu reason=\"the "
               "weights alone do not fit into the memory of this process, so they are read from "
               "their files again and again: raise the limit of the container, or quantize the "
               "weights (--weights)\"",
               weights, kv, limit);
    else
        FV_LOG(WARN, MODEL,
               "event=memory-short weights_bytes=%zu kv_bytes=%zu limit_bytes=%zu reason=\"weights "
               "and KV pool do not fit into the memory of this process, which may be killed under "
               "load: set --kv-bytes to at most %zu, or raise the limit of the container\"",
               weights, kv, limit, limit - weights);
    return false;
}

size_t fv_worker_spare_memory(size_t weights, size_t kv, size_t limit) {
    size_t left = weights < limit ? limit - weights : 0;
    left = kv < left ? left - kv : 0;
    return left / 2 < limit / 8 ? left / 2 : limit / 8;
}
