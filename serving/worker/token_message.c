/* Converts sampled tokens to messages for the client. */
#include "serving/worker/token_message.h"

typedef Fovea__Inference__V1__Alternative alternative_message;
typedef Fovea__Inference__V1__Token token_message;

static fv_status put_text(const fv_tokenizer *tok, int32_t id, fv_arena *arena,
                          ProtobufCBinaryData *out) {
    char *text;
    size_t n;
    if (!tok) return FV_OK;
    FV_TRY(fv_tokenizer_token_text(tok, id, arena, &text, &n));
    *out = (ProtobufCBinaryData){n, (uint8_t *)text};
    return FV_OK;
}

fv_status fv_token_to_message(const fv_sampled *s, uint64_t digest, const fv_tokenizer *tok,
                              fv_arena *arena, token_message **out) {
    token_message *m;
    alternative_message *top;
    FV_TRY(FV_ARENA_NEW(arena, 1, m));
    fovea__inference__v1__token__init(m);
    m->id = (uint32_t)s->id;
    m->logprob = s->logprob;
    m->digest = digest;
    if (tok) m->text_offset = s->text_offset;
    FV_TRY(put_text(tok, s->id, arena, &m->text));
    FV_TRY(FV_ARENA_NEW(arena, s->n_top, top));
    FV_TRY(FV_ARENA_NEW(arena, s->n_top, m->alternatives));
    for (int32_t i = 0; i < s->n_top; i++) {
        fovea__inference__v1__alternative__init(&top[i]);
        top[i].id = (uint32_t)s->top[i].id;
        top[i].logprob = s->top[i].logprob;
        FV_TRY(put_text(tok, s->top[i].id, arena, &top[i].text));
        m->alternatives[i] = &top[i];
    }
    m->n_alternatives = (size_t)s->n_top;
    *out = m;
    return FV_OK;
}
