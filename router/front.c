/* Divides the router's memory. Any thread. */
#include "router/front.h"

#include "common/limits.h"

enum { SHARE = 4 };

size_t fv_front_memory(size_t memory_bytes) {
    return memory_bytes ? memory_bytes : fv_memory_limit();
}

fv_status fv_front_queue_bytes(size_t memory, size_t queue_bytes, size_t *out) {
    if (queue_bytes > memory / 2)
        return FV_FAIL(
            FV_EINVAL,
            "--queue-bytes %zu is more than half of the memory of this process, %zu bytes: "
            "lower it, or raise the limit (--memory-bytes, or that of the container)",
            queue_bytes, memory);
    *out = queue_bytes ? queue_bytes : memory / SHARE;
    return FV_OK;
}

fv_rpc_limits fv_front_limits(size_t memory, int32_t first_message_ms) {
    return (fv_rpc_limits){.streams = FV_FRONT_STREAMS,
                           .metadata = FV_FRONT_METADATA,
                           .memory = memory / SHARE,
                           .first_message_ms = first_message_ms};
}
