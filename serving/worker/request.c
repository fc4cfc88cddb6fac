/* Converts the messages of a request to the engine's types. Any thread. */
#include "serving/worker/request.h"

#include <string.h>

#include "text/calls/thinking.h"

fv_sampling fv_request_sampling(const Fovea__Inference__V1__Sampling *m, uint32_t n_logprobs) {
    fv_sampling s = fv_sampling_default();
    s.n_logprobs = n_logprobs <= INT32_MAX ? (int32_t)n_logprobs : INT32_MAX;
    if (!m) return s;
    s.temperature = m->temperature;
    s.top_k = m->top_k <= INT32_MAX ? (int32_t)m->top_k : INT32_MAX;
    if (m->nucleus_case) s.top_p = m->top_p;
    if (m->repetition_case) s.repetition_penalty = m->repetition_penalty;
    s.min_p = m->min_p;
    s.presence_penalty = m->presence_penalty;
    s.frequency_penalty = m->frequency_penalty;
    s.seed = m->seed;
    s.n_bias =
        m->n_logit_bias <= FV_MAX_LOGIT_BIAS ? (int32_t)m->n_logit_bias : FV_MAX_LOGIT_BIAS + 1;
    for (int32_t i = 0; i < s.n_bias && i < FV_MAX_LOGIT_BIAS; i++)
        s.bias[i] = (fv_logit_bias){
            .id = m->logit_bias[i]->id <= INT32_MAX ? (int32_t)m->logit_bias[i]->id : INT32_MAX,
            .bias = m->logit_bias[i]->bias};
    return s;
}

static fv_status read_rule_ids(const char *name, const uint32_t *in, size_t n, int32_t most,
                               fv_arena *arena, const int32_t **out, int32_t *n_out) {
    int32_t *ids;
    if (n > (size_t)most)
        return FV_FAIL(FV_EINVAL, "%s has %zu ids; the limit is %d", name, n, most);
    FV_TRY(FV_ARENA_NEW(arena, n, ids));
    for (size_t i = 0; i < n; i++) ids[i] = in[i] <= INT32_MAX ? (int32_t)in[i] : INT32_MAX;
    *out = ids;
    *n_out = (int32_t)n;
    return FV_OK;
}

static fv_status read_constraint(const Fovea__Inference__V1__Constraint *m, fv_grammar_spec *out) {
    switch (m->kind_case) {
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_OBJECT:
        if (m->json_object) out->kind = FV_GRAMMAR_JSON_OBJECT;
        return FV_OK;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_SCHEMA:
        *out = (fv_grammar_spec){.kind = FV_GRAMMAR_JSON_SCHEMA, .text = m->json_schema};
        break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX:
        *out = (fv_grammar_spec){.kind = FV_GRAMMAR_REGEX, .text = m->regex};
        break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_CHOICE:
        *out = (fv_grammar_spec){.kind = FV_GRAMMAR_CHOICE,
                                 .choice = (const char *const *)m->choice->text,
                                 .n_choice = m->choice->n_text};
        return FV_OK;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_GRAMMAR:
        *out = (fv_grammar_spec){.kind = FV_GRAMMAR_EBNF, .text = m->grammar};
        break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_STRUCTURAL_TAG:
        *out = (fv_grammar_spec){.kind = FV_GRAMMAR_STRUCTURAL_TAG, .text = m->structural_tag};
        break;
    default: return FV_FAIL(FV_EINVAL, "the constraint is of no kind that this worker knows");
    }
    out->n_text = strlen(out->text);
    return FV_OK;
}

fv_status fv_request_grammar(const Fovea__Inference__V1__TokenRules *rules, const char *reasoning,
                             fv_grammar_spec *out) {
    const Fovea__Inference__V1__Constraint *m = rules ? rules->constraint : NULL;
    *out = (fv_grammar_spec){0};
    if (!m) return FV_OK;
    FV_TRY(read_constraint(m, out));
    if (!reasoning[0]) return FV_OK;
    const fv_thinking_form *form = fv_thinking_form_named(reasoning);
    if (!form)
        return FV_FAIL(FV_EINVAL,
                       "reasoning '%.64s' is no form that this worker knows; it knows %s",
                       reasoning, fv_thinking_form_names());
    fv_thinking_form_marks(form, &out->opens, &out->closes);
    return FV_OK;
}

bool fv_request_constrained(const Fovea__Inference__V1__TokenRules *m) {
    return m && m->constraint &&
           (m->constraint->kind_case != FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_OBJECT ||
            m->constraint->json_object);
}

fv_status fv_request_rules(const Fovea__Inference__V1__TokenRules *m, const char *reasoning,
                           fv_arena *arena, fv_token_rules *out) {
    *out = (fv_token_rules){0};
    if (!m) return FV_OK;
    if (m->n_bad_words > FV_MAX_BAD_WORDS)
        return FV_FAIL(FV_EINVAL, "bad_words has %zu words; the limit is %d", m->n_bad_words,
                       FV_MAX_BAD_WORDS);
    out->min_tokens = m->min_tokens <= INT32_MAX ? (int32_t)m->min_tokens : INT32_MAX;
    out->n_bad_word = (int32_t)m->n_bad_words;
    out->bad_word = (const char *const *)m->bad_words;
    FV_TRY(fv_request_grammar(m, reasoning, &out->grammar));
    FV_TRY(read_rule_ids("allowed_token_ids", m->allowed_token_ids, m->n_allowed_token_ids,
                         FV_MAX_ALLOWED, arena, &out->allowed, &out->n_allowed));
    return read_rule_ids("stop_token_ids", m->stop_token_ids, m->n_stop_token_ids, FV_MAX_STOP_IDS,
                         arena, &out->stop_id, &out->n_stop_id);
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

static fv_status read_turn(const Fovea__Inference__V1__Turn *m, size_t number, fv_arena *arena,
                           fv_chat_turn *out) {
    fv_chat_part *part;
    *out = (fv_chat_turn){.role = m->role, .members = m->members, .n_part = (int32_t)m->n_parts};
    if (!m->no_content) out->text = m->text;
    out->n_image = m->n_images <= INT32_MAX ? (int32_t)m->n_images : INT32_MAX;
    if (m->n_parts == 0) return FV_OK;
    if (m->text[0] || m->n_images || m->no_content)
        return FV_FAIL(FV_EINVAL, "turn %zu has parts as well as text or n_images: use one form",
                       number);
    FV_TRY(FV_ARENA_NEW(arena, m->n_parts, part));
    for (size_t i = 0; i < m->n_parts; i++) {
        switch (m->parts[i]->kind_case) {
        case FOVEA__INFERENCE__V1__PART__KIND_TEXT: part[i].text = m->parts[i]->text; break;
        case FOVEA__INFERENCE__V1__PART__KIND_IMAGE:
            part[i] = (fv_chat_part){.ahead = m->parts[i]->image->ahead};
            break;
        case FOVEA__INFERENCE__V1__PART__KIND_VIDEO: part[i] = (fv_chat_part){.video = true}; break;
        default:
            return FV_FAIL(FV_EINVAL, "part %zu of turn %zu is neither text, image nor video", i,
                           number);
        }
    }
    out->part = part;
    return FV_OK;
}

static fv_chat_flag flag_of(bool given, bool value) {
    return !given ? FV_CHAT_UNSET : value ? FV_CHAT_YES : FV_CHAT_NO;
}

static fv_status read_chat(const Fovea__Inference__V1__Chat *m, int32_t n_image, fv_arena *arena,
                           fv_prompt_form *out) {
    fv_chat_turn *list;
    FV_TRY(FV_ARENA_NEW(arena, m->n_turns, list));
    for (size_t i = 0; i < m->n_turns; i++) {
        FV_TRY(read_turn(m->turns[i], i, arena, &list[i]));
        if (fv_chat_turn_images(&list[i]) > n_image)
            return FV_FAIL(FV_EINVAL, "turn %zu has %d images and the request has %d", i,
                           fv_chat_turn_images(&list[i]), n_image);
    }
    *out = (fv_prompt_form){.kind = FV_PROMPT_CHAT,
                            .chat_template = m->template_,
                            .n_turn = (int32_t)m->n_turns,
                            .turn = list};
    out->options.variables = m->variables;
    out->options.opens = flag_of(m->generation_case, m->add_generation_prompt);
    out->options.continues = flag_of(m->continuation_case, m->continue_final_message);
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

void fv_request_special(bool given, bool adds, fv_prompt_form *form) {
    form->options.special = flag_of(given, adds);
}
