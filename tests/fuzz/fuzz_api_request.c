/* Any bytes as the body of an HTTP request. The first byte chooses the endpoint and whether a
 * header has a policy. An accepted request has a prompt and valid pointers; a refusal blames the
 * client and says why. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/api_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static void put_frames(fv_api_request *q, bool as_video, fv_arena *arena) {
    static const fv_api_frame frame[2] = {{.time = "<0.0 seconds>"},
                                          {.time = "<1.0 seconds>", .seconds = 1}};
    const fv_api_frames frames = {frame, 2, 1, as_video};
    const size_t n = q->message.n_images + 2 * (size_t)q->n_video, n_video = (size_t)q->n_video;
    while (q->n_video > 0)
        if (fv_api_put_frames(q, &frames, arena) != FV_OK) return;
    expect(q->message.n_images == n && protobuf_c_message_check(&q->message.base));
    expect(q->message.n_videos == (as_video ? n_video : 0));
    for (size_t i = 0, end = 0; i < q->message.n_videos; i++) {
        expect(q->message.videos[i]->first_image >= end);
        end = q->message.videos[i]->first_image + 2u;
        expect(end <= n);
    }
}

static void check_object(const char *text) {
    json_t *made = *text ? json_loads(text, 0, NULL) : json_object();
    expect(json_is_object(made));
    json_decref(made);
}

/* Checks that what is passed on to the template is JSON again. */
static void check_chat(const Fovea__Inference__V1__Chat *chat) {
    check_object(chat->variables);
    for (size_t i = 0; i < chat->n_turns; i++) {
        check_object(chat->turns[i]->members);
        expect(chat->turns[i]->role[0] && strlen(chat->turns[i]->role) <= FV_API_ROLE_MAX);
        expect(!chat->turns[i]->no_content || !(chat->turns[i]->n_parts || *chat->turns[i]->text));
    }
}

static void check(const fv_api_request *q, size_t n) {
    const Fovea__Inference__V1__Prompt *p = q->message.prompt;
    expect(p && q->n >= 1 && q->n <= FV_API_CHOICES_MAX &&
           protobuf_c_message_get_packed_size(&q->message.base) < 64 * n + 4096);
    if (p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT) check_chat(p->chat);
    if (q->kind == FV_API_IDS) expect(p->ids->n_id <= n);
    if (q->kind != FV_API_IDS)
        expect(q->n_prompt >= 1 && q->n_prompt * q->n <= FV_API_ANSWERS_MAX && q->prompts[0] == p);
    if (q->kind == FV_API_RESPONSE) expect(q->logprobs || q->message.n_logprobs == 0);
    expect(!q->logprobs || (q->message.token_texts && q->message.n_logprobs <= 20));
    expect(q->n_ignored <= FV_API_IGNORED_MAX);
    for (int32_t i = 0; i < q->n_ignored; i++) expect(strlen(q->ignored[i]) < FV_API_PARAM_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const fv_api_kind kinds[] = {FV_API_CHAT, FV_API_TEXT, FV_API_TOKENS, FV_API_IDS};
    fv_arena arena = {0};
    fv_api_request q;
    char param[FV_API_PARAM_MAX];
    if (n < 1) return 0;
    const fv_api_reader_options opt = {.kind = data[0] & 8 ? FV_API_RESPONSE : kinds[data[0] % 4],
                                       .policy = data[0] & 128 ? "quality" : NULL,
                                       .json_max = data[0] & 32 ? 100 : API_BODY_JSON_MAX,
                                       .strict = data[0] & 16,
                                       .chat_templates = data[0] & 64};
    fv_status st = api_body_read(&opt, (const char *)data + 1, n - 1, 0, &arena, &q, param);
    if (st == FV_OK) {
        check(&q, n);
        put_frames(&q, data[0] & 64, &arena);
    } else {
        expect((st == FV_EINVAL || (st == FV_ENOMEM && n > 100)) && *fv_last_error());
    }
    expect(strlen(param) < FV_API_PARAM_MAX);
    fv_api_bytes_free(q.bytes);
    fv_arena_fini(&arena);
    return 0;
}
