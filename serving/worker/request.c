/* Messages to plain values. Any thread. */
#include "serving/worker/request.h"

fv_sampling fv_request_sampling(const Fovea__Inference__V1__Sampling *m, uint32_t n_logprobs) {
    fv_sampling s = fv_sampling_default();
    s.n_logprobs = n_logprobs <= INT32_MAX ? (int32_t)n_logprobs : INT32_MAX;
    if (!m) return s;
    s.temperature = m->temperature;
    s.top_k = m->top_k <= INT32_MAX ? (int32_t)m->top_k : INT32_MAX;
    if (m->top_p != 0) s.top_p = m->top_p;
    if (m->repetition_penalty != 0) s.repetition_penalty = m->repetition_penalty;
    s.seed = m->seed;
    return s;
}

fv_status fv_request_ids(const uint32_t *in, size_t n, int32_t most, fv_arena *arena,
                         int32_t **ids) {
    int32_t *list;
    if (n > (size_t)most) return FV_FAIL(FV_EINVAL, "%zu ids exceed the context of %d", n, most);
    FV_TRY(FV_ARENA_NEW(arena, n, list));
    for (size_t i = 0; i < n; i++) {
        if (in[i] > INT32_MAX) return FV_FAIL(FV_EINVAL, "id %zu is %u: no model has it", i, in[i]);
        list[i] = (int32_t)in[i];
    }
    *ids = list;
    return FV_OK;
}

static fv_status read_chat(const Fovea__Inference__V1__Chat *m, int32_t n_image, fv_arena *arena,
                           fv_prompt_form *out) {
    fv_chat_turn *list;
    FV_TRY(FV_ARENA_NEW(arena, m->n_turns, list));
    for (size_t i = 0; i < m->n_turns; i++) {
        const Fovea__Inference__V1__Turn *turn = m->turns[i];
        if (turn->n_images > (uint32_t)n_image)
            return FV_FAIL(FV_EINVAL, "turn %zu has %u images and the request has %d", i,
                           turn->n_images, n_image);
        list[i] = (fv_chat_turn){turn->role, turn->text, (int32_t)turn->n_images};
    }
    *out = (fv_prompt_form){.kind = FV_PROMPT_CHAT,
                            .chat_template = m->template_,
                            .n_turn = (int32_t)m->n_turns,
                            .turn = list};
    return FV_OK;
}

fv_status fv_request_prompt(const Fovea__Inference__V1__Prompt *m, int32_t n_image, int32_t context,
                            fv_arena *arena, fv_prompt_form *out) {
    int32_t *ids;
    switch (m ? m->form_case : FOVEA__INFERENCE__V1__PROMPT__FORM__NOT_SET) {
    case FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT: return read_chat(m->chat, n_image, arena, out);
    case FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT:
        *out = (fv_prompt_form){.kind = FV_PROMPT_TEXT, .text = m->text};
        return FV_OK;
    case FOVEA__INFERENCE__V1__PROMPT__FORM_IDS:
        FV_TRY(fv_request_ids(m->ids->id, m->ids->n_id, context, arena, &ids));
        *out = (fv_prompt_form){.kind = FV_PROMPT_IDS, .n_id = (int32_t)m->ids->n_id, .id = ids};
        return FV_OK;
    default: return FV_FAIL(FV_EINVAL, "the request has no prompt");
    }
}
