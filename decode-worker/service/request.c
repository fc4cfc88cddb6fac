/* DecodeRequest -> an answer to be begun. What is wrong with a request by itself is found here;
 * strings and lists lie in the arena. Loop thread. */
#include <string.h>

#include "decode-worker/service/internal.h"
#include "serving/worker/request.h"

typedef fv_decode_message request_message;

static fv_status copy_text(fv_arena *a, const char *s, const char **out) {
    char *copy;
    FV_TRY(fv_arena_strndup(a, s, strlen(s), &copy));
    *out = copy;
    return FV_OK;
}

static fv_status read_stops(const request_message *q, fv_arena *a, fv_answer *x) {
    const char **stop;
    if (q->n_stop > FV_MAX_STOP)
        return FV_FAIL(FV_EINVAL, "%zu stop strings, and at most %d are taken", q->n_stop,
                       FV_MAX_STOP);
    FV_TRY(FV_ARENA_NEW(a, q->n_stop, stop));
    for (size_t i = 0; i < q->n_stop; i++) FV_TRY(copy_text(a, q->stop[i], &stop[i]));
    x->n_stop = (int32_t)q->n_stop;
    x->stop = stop;
    return FV_OK;
}

static fv_status read_handoff(const request_message *q, fv_arena *a, fv_answer *x) {
    uint32_t *replay;
    if (q->prompt || q->sampling)
        return FV_FAIL(FV_EINVAL, "prompt and sampling of a hand-off come with it");
    FV_TRY(fv_ticket_read(&q->ticket->id, q->ticket->epoch, &x->ticket));
    FV_TRY(FV_ARENA_NEW(a, q->n_replay, replay));
    if (q->n_replay) memcpy(replay, q->replay, q->n_replay * sizeof *replay);
    x->n_replay = (int32_t)q->n_replay;
    x->replay = replay;
    return FV_OK;
}

static fv_status read_chat(const Fovea__Inference__V1__Chat *m, fv_arena *a, fv_follow_up *out) {
    fv_chat_turn *turn;
    FV_TRY(fv_request_turns(m, 0, a, &turn));
    for (size_t i = 0; i < m->n_turns; i++) {
        FV_TRY(copy_text(a, turn[i].role, &turn[i].role));
        FV_TRY(copy_text(a, turn[i].text, &turn[i].text));
    }
    out->form = FV_FOLLOW_UP_CHAT;
    out->n_turn = (int32_t)m->n_turns;
    out->turn = turn;
    return copy_text(a, m->template_, &out->chat_template);
}

static fv_status read_prompt(const Fovea__Inference__V1__Prompt *m, int32_t context, fv_arena *a,
                             fv_follow_up *out) {
    int32_t *ids;
    switch (m ? m->form_case : FOVEA__INFERENCE__V1__PROMPT__FORM__NOT_SET) {
    case FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT: return read_chat(m->chat, a, out);
    case FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT:
        out->form = FV_FOLLOW_UP_TEXT;
        return copy_text(a, m->text, &out->text);
    case FOVEA__INFERENCE__V1__PROMPT__FORM_IDS:
        FV_TRY(fv_request_ids(m->ids->id, m->ids->n_id, context, a, &ids));
        out->form = FV_FOLLOW_UP_IDS;
        out->n_id = (int32_t)m->ids->n_id;
        out->id = ids;
        return FV_OK;
    default: return FV_FAIL(FV_EINVAL, "a conversation goes on with a prompt, and there is none");
    }
}

fv_status fv_conversation_read(const ProtobufCBinaryData *id, uint8_t out[16]) {
    if (id->len != 16)
        return FV_FAIL(FV_EINVAL, "a conversation's name has %zu bytes, not 16", id->len);
    memcpy(out, id->data, 16);
    return FV_OK;
}

static fv_status read_follow_up(const request_message *q, int32_t context, fv_arena *a,
                                fv_answer *x) {
    if (q->n_replay > 0)
        return FV_FAIL(FV_EINVAL, "an answer is replayed with the whole conversation, not behind "
                                  "one that is kept");
    x->follows = true;
    x->sampling = fv_request_sampling(q->sampling, q->n_logprobs);
    FV_TRY(fv_conversation_read(&q->conversation, x->conversation));
    return read_prompt(q->prompt, context, a, &x->prompt);
}

fv_status fv_decode_request_read(const request_message *q, int32_t context, fv_arena *a,
                                 fv_answer *x) {
    if (q->max_tokens == 0 || q->max_tokens > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "max_tokens is %u; it must be at least 1", q->max_tokens);
    if (q->n_logprobs > FV_MAX_LOGPROBS)
        return FV_FAIL(FV_EINVAL, "n_logprobs is %u; at most %d", q->n_logprobs, FV_MAX_LOGPROBS);
    FV_TRY(read_stops(q, a, x));
    x->max_tokens = (int32_t)q->max_tokens;
    x->sampling.n_logprobs = (int32_t)q->n_logprobs;
    x->ignore_eos = q->ignore_eos;
    x->digests = q->digests;
    x->keep_s = 1e-3 * (double)q->keep_ms;
    switch (q->source_case) {
    case FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET: return read_handoff(q, a, x);
    case FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION:
        return read_follow_up(q, context, a, x);
    default: return FV_FAIL(FV_EINVAL, "a ticket is needed, or a kept conversation's name");
    }
}
