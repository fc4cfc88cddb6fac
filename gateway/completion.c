/* Writes answers as chat and text completions: a stream of chunks, or one JSON object. */
#include <stdlib.h>

#include "gateway/generate.h"

static const char done[] = "data: [DONE]\n\n";

static fv_status send_chunk(fv_choice *c, const fv_api_choice *part) {
    fv_answer *a = c->answer;
    fv_answer_send_event(a, NULL,
                         fv_api_chunk(&a->names, part, a->request.include_usage,
                                      a->request.usage_always ? &c->usage : NULL));
    return FV_OK;
}

/* A chat choice's first chunk has its role. */
static void begin(fv_choice *c) {
    if (c->answer->request.kind == FV_API_CHAT)
        send_chunk(c, &(fv_api_choice){.index = c->index, .begins = true, .text = ""});
}

static void end_stream(fv_answer *a) {
    const fv_api_usage usage = fv_answer_usage(a);
    if (a->request.include_usage)
        fv_answer_send_event(a, NULL, fv_api_chunk(&a->names, NULL, true, &usage));
    fv_answer_end_stream(a, done);
}

static fv_api_choice whole_choice(const fv_choice *c, const fv_api_request *q) {
    return (fv_api_choice){.index = c->index,
                           .text = c->text,
                           .thought = c->thought,
                           .calls = c->calls,
                           .n_call = c->n_call,
                           .kept = q->logprobs ? &c->logprobs : NULL,
                           .all_ids = q->ids ? &c->ids : NULL,
                           .all_prompt_ids = q->ids ? &c->prompt_ids : NULL,
                           .prompt_logprobs = q->prompt_logprobs ? &c->prompt_logprobs : NULL,
                           .fovea = c->fovea,
                           .finish = c->reason};
}

static void complete(fv_answer *a) {
    fv_api_choice list[FV_API_ANSWERS_MAX];
    const fv_api_usage usage = fv_answer_usage(a);
    char *text = NULL;
    size_t n;
    if (a->streaming) {
        end_stream(a);
        return;
    }
    a->over = true;
    for (int32_t i = 0; i < a->n_choice; i++) list[i] = whole_choice(&a->choices[i], &a->request);
    fv_status st = fv_api_whole(&a->names, list, a->n_choice, &usage, &text, &n);
    if (st == FV_OK)
        fv_http_reply(a->http, 200, "application/json", text, n);
    else
        fv_reply_last_error(a->http, st, "");
    free(text);
}

static void fail(fv_answer *a, fv_status st, const char *why, const char *param) {
    fv_answer_send_event(a, NULL, fv_api_error(st, why, param));
    fv_answer_end_stream(a, done);
}

const fv_output fv_chat_output = {.name = "chat",
                                  .prefix = "chatcmpl-",
                                  .begin = begin,
                                  .part = send_chunk,
                                  .complete = complete,
                                  .fail = fail};

const fv_output fv_text_output = {.name = "completion",
                                  .prefix = "cmpl-",
                                  .begin = begin,
                                  .part = send_chunk,
                                  .complete = complete,
                                  .fail = fail};
