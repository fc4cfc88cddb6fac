/* Converts a DecodeRequest to a request for the scheduler, and reports every error that the message
 * alone can have. Lists are in the arena, strings in the message. On the loop thread. */
#include <string.h>

#include "decode-worker/service/internal.h"
#include "serving/worker/request.h"

typedef fv_decode_message request_message;

enum { SHARE_MAX = 128, PREDICTION_MAX = 1 << 16 };
static const double WEIGHT_MAX = 1e6;

static fv_status read_handoff(const request_message *q, fv_answer *x) {
    if (q->prompt || q->sampling)
        return FV_FAIL(
            FV_EINVAL,
            "a request with a ticket must not set prompt or sampling: the hand-off brings them");
    FV_TRY(fv_ticket_read(&q->ticket->id, q->ticket->epoch, &x->ticket));
    x->n_replay = (int32_t)q->n_replay;
    x->replay = q->replay;
    return FV_OK;
}

fv_status fv_conversation_read(const ProtobufCBinaryData *id, uint8_t out[16]) {
    if (id->len != 16)
        return FV_FAIL(FV_EINVAL, "a conversation's name has %zu bytes; it must have 16", id->len);
    memcpy(out, id->data, 16);
    return FV_OK;
}

static fv_status read_follow_up(const request_message *q, int32_t context, fv_arena *a,
                                fv_answer *x) {
    if (q->n_replay > 0)
        return FV_FAIL(
            FV_EINVAL,
            "an answer cannot be replayed in a kept conversation: send the whole conversation");
    x->follows = true;
    x->model = q->model;
    x->sampling = fv_request_sampling(q->sampling, q->n_logprobs);
    FV_TRY(fv_conversation_read(&q->conversation, x->conversation));
    return fv_request_prompt(q->prompt, 0, context, a, &x->prompt);
}

static fv_status read_share(const request_message *q, fv_answer *x) {
    size_t n = strlen(q->share);
    if (n > SHARE_MAX)
        return FV_FAIL(FV_EINVAL, "share has %zu bytes; the maximum is %d", n, SHARE_MAX);
    if (!(q->tenant_weight >= 0 && q->tenant_weight <= WEIGHT_MAX))
        return FV_FAIL(FV_EINVAL, "tenant_weight is %g; it must be 0..%g", q->tenant_weight,
                       WEIGHT_MAX);
    x->share_name = q->share;
    x->weight = q->tenant_weight;
    return FV_OK;
}

fv_status fv_decode_request_read(const request_message *q, int32_t context, bool speculates,
                                 fv_arena *a, fv_answer *x) {
    if (q->max_tokens == 0 || q->max_tokens > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "max_tokens is %u; it must be 1..%d", q->max_tokens, INT32_MAX);
    if (q->n_logprobs > FV_MAX_LOGPROBS)
        return FV_FAIL(FV_EINVAL, "n_logprobs is %u; at most %d", q->n_logprobs, FV_MAX_LOGPROBS);
    if (q->n_stop > FV_MAX_STOP)
        return FV_FAIL(FV_EINVAL, "%zu stop strings; the maximum is %d", q->n_stop, FV_MAX_STOP);
    x->n_stop = (int32_t)q->n_stop;
    x->stop = (const char *const *)q->stop;
    x->max_tokens = (int32_t)q->max_tokens;
    x->sampling.n_logprobs = (int32_t)q->n_logprobs;
    x->ignore_eos = q->ignore_eos && !fv_request_constrained(q->rules);
    x->show_special = q->special_tokens;
    x->include_stop = q->include_stop;
    x->continue_text = q->continue_text;
    x->digests = q->digests;
    x->n_prediction = strlen(q->prediction);
    if (x->n_prediction > PREDICTION_MAX)
        return FV_FAIL(FV_EINVAL, "prediction has %zu bytes; the limit is %d", x->n_prediction,
                       PREDICTION_MAX);
    x->prediction = q->prediction;
    x->speculate = q->speculation_case ? q->speculate : speculates || x->n_prediction > 0;
    x->keep_s = 1e-3 * (double)q->keep_ms;
    FV_TRY(fv_request_rules(q->rules, q->reasoning, a, &x->rules));
    x->rules.reasoning = q->thinks    ? FV_REASONING_OPEN
                         : q->thought ? FV_REASONING_OVER
                                      : FV_REASONING_MAY;
    FV_TRY(read_share(q, x));
    switch (q->source_case) {
    case FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET: return read_handoff(q, x);
    case FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION:
        return read_follow_up(q, context, a, x);
    default: return FV_FAIL(FV_EINVAL, "the source is missing: set ticket, or conversation");
    }
}
