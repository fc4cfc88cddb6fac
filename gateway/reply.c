/* Answers with JSON, and with failures in OpenAI's schema. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/answer.h"
#include "gateway/internal.h"

void fv_reply_json(fv_http_request *r, unsigned status, json_t *json) {
    static const char none[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
        "\"param\":null,\"code\":null}}";
    char *text = json ? json_dumps(json, FV_API_JSON_FLAGS) : NULL;
    if (text)
        fv_http_reply(r, status, "application/json", text, strlen(text));
    else
        fv_http_reply(r, 500, "application/json", none, sizeof none - 1);
    free(text);
    json_decref(json);
}

const char *fv_end_text(const fv_rpc_end *end) {
    bool ours = end->status != FV_EIO || strstr(end->text, "worker") != NULL;
    return ours ? end->text : "the router cannot be reached; try again later";
}

void fv_reply_error(fv_http_request *r, fv_status st, const char *sentence, const char *param,
                    int64_t retry_ms) {
    char seconds[32];
    if (st == FV_EBUSY && retry_ms < 0) retry_ms = 1000;
    snprintf(seconds, sizeof seconds, "%lld", (long long)((retry_ms + 999) / 1000));
    if (retry_ms >= 0) fv_http_add(r, "Retry-After", seconds);
    if (st == FV_EAUTH) fv_http_add(r, "WWW-Authenticate", "Bearer");
    fv_http_set_error(r, sentence);
    fv_reply_json(r, fv_api_http_status(st), fv_api_error(st, sentence, param));
}

void fv_last_sentence(const char *param, char out[FV_SENTENCE_MAX]) {
    size_t n = strlen(param);
    bool said = strncmp(fv_last_error(), param, n) == 0 && fv_last_error()[n] == ':';
    snprintf(out, FV_SENTENCE_MAX, "%s%s%s", said ? "" : param, said || n == 0 ? "" : ": ",
             fv_last_error());
}

void fv_reply_last_error(fv_http_request *r, fv_status st, const char *param) {
    char why[FV_SENTENCE_MAX];
    fv_last_sentence(param, why);
    fv_reply_error(r, st, why, param, -1);
}
