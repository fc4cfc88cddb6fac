/* Renders chats as a gateway and a worker do: {"template", "dir", "body"} on each line of stdin, the
 * text of a program, a folder with a tokenizer_config.json and the text of a request's body, becomes
 * {"text"} or {"error"} on a line of stdout. chat_live.py compares them with transformers. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serving/worker/request.h"
#include "tests/support/api_body.h"
#include "text/chat.h"

static fv_status render(const fv_chat *chat, const fv_api_request *q, fv_arena *arena,
                        fv_chat_text *out) {
    fv_prompt_form form;
    const int32_t n_image = (int32_t)q->message.n_images;
    FV_TRY(fv_request_prompt(q->message.prompt, n_image, INT32_MAX, arena, &form));
    return fv_chat_render(chat, form.turn, form.n_turn, &form.options, 0, out);
}

static fv_status answer(const json_t *line, fv_arena *arena, fv_chat_text *out) {
    static const fv_api_reader_options opt = {.kind = FV_API_CHAT, .json_max = API_BODY_JSON_MAX};
    const char *body = json_string_value(json_object_get(line, "body"));
    char param[FV_API_PARAM_MAX];
    fv_api_request q = {0};
    fv_chat *chat;
    FV_TRY(fv_chat_open(json_string_value(json_object_get(line, "template")),
                        json_string_value(json_object_get(line, "dir")), "llama", true, &chat));
    fv_status st = api_body_read(&opt, body, strlen(body), 4096, arena, &q, param);
    if (st == FV_OK) st = render(chat, &q, arena, out);
    fv_api_bytes_free(q.bytes);
    fv_chat_free(chat);
    return st;
}

int main(void) {
    char *text = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&text, &cap, stdin)) > 0;) {
        json_error_t error;
        json_t *line = json_loadb(text, (size_t)n, 0, &error), *made;
        fv_arena arena = {0};
        fv_chat_text out = {0};
        if (!line) {
            fprintf(stderr, "a line is no JSON: %s\n", error.text);
            return 2;
        }
        made = answer(line, &arena, &out) == FV_OK ? json_pack("{s:s#}", "text", out.text, out.n)
                                                   : json_pack("{s:s}", "error", fv_last_error());
        if (!made) made = json_pack("{s:s}", "error", "the rendering is not UTF-8");
        json_dumpf(made, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(made);
        json_decref(line);
        fv_chat_text_free(&out);
        fv_arena_fini(&arena);
    }
    free(text);
    return 0;
}
