/* select=streaming: attention sinks and a recent window (StreamingLLM), with some heads left
 * whole (DuoAttention's retrieval heads). Counts depend on the prompt's length only. */
#include "policy/streaming.h"

#include <math.h>

fv_streaming_span fv_streaming_head(const fv_choice *c, int32_t head, int32_t n_kv,
                                    int32_t n_prompt) {
    /* 1e-9: shares such as 0.2 are not exact in binary, and 0.2 * 10 must be 2. */
    int32_t full = (int32_t)ceil(fv_choice_value(c, "full_heads") * n_kv - 1e-9);
    int32_t sink = (int32_t)fv_choice_value(c, "sink");
    int32_t recent = (int32_t)floor(fv_choice_value(c, "recent") * n_prompt + 1e-9);
    if (recent < 1) recent = 1; /* the last prompt row is the one that decoding starts from */
    if (head < full || sink + (int64_t)recent >= n_prompt) return (fv_streaming_span){0, 0};
    return (fv_streaming_span){sink, n_prompt - recent};
}
