/* select=streaming: attention sinks and a recent window (StreamingLLM), with some heads kept whole:
 * the first ones by number. DuoAttention finds its heads by training, and no checkpoint here has
 * the result. Counts depend only on the prompt's length. */
#include "policy/plan/streaming.h"

#include <math.h>

#include "policy/plan/contribute.h"

fv_streaming_span fv_streaming_head(const fv_select_streaming_params *p, int32_t head, int32_t n_kv,
                                    int32_t n_prompt) {
    int32_t full = (int32_t)ceil(p->full_heads * n_kv - 1e-9), sink = p->sink;
    int32_t recent = fv_plan_share(p->recent, n_prompt);
    if (recent < 1) recent = 1; /* decoding starts from the last prompt row */
    if (head < full || sink + (int64_t)recent >= n_prompt) return (fv_streaming_span){0, 0};
    return (fv_streaming_span){sink, n_prompt - recent};
}

static int32_t head_rows(const fv_plan *plan, int32_t layer, int32_t head) {
    int32_t n_answer = plan->shape.n_answer, n_text = plan->shape.n_text - n_answer;
    int32_t n_prompt = plan->shape.n_visual + n_text, rows = plan->visual[layer] + n_text;
    fv_streaming_span span = fv_streaming_head(&plan->params[FV_STAGE_SELECT].select_streaming,
                                               head, plan->shape.n_kv, n_prompt);
    int32_t kept = span.sink + (n_prompt - span.recent_from);
    return n_answer + (kept < rows ? kept : rows);
}

fv_status fv_plan_select_streaming(fv_plan *plan, const fv_select_streaming_params *p) {
    (void)p;
    fv_plan_select(plan, head_rows);
    return FV_OK;
}
