/* Server-sent events: the beginning and the end of a stream, and its comments. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/generate.h"

/* Clients may take a piece for an event, so an event is sent in one piece. */
void fv_answer_send_event(fv_answer *a, const char *name, json_t *json) {
    char *text = json ? json_dumps(json, FV_API_JSON_FLAGS) : NULL, *event = NULL;
    const int n = text ? asprintf(&event, "%s%s%sdata: %s\n\n", name ? "event: " : "",
                                  name ? name : "", name ? "\n" : "", text)
                       : -1;
    json_decref(json);
    free(text);
    if (n < 0) return;
    fv_http_write(a->http, event, (size_t)n);
    fv_alive_wrote(&a->alive);
    free(event);
}

/* nginx does not buffer an answer with X-Accel-Buffering: no. */
void fv_answer_begin_stream(fv_answer *a) {
    if (a->streaming) return;
    fv_http_add(a->http, "Cache-Control", "no-cache");
    fv_http_add(a->http, "X-Accel-Buffering", "no");
    fv_http_stream(a->http, "text/event-stream");
    a->streaming = true;
}

void fv_answer_on_quiet(fv_alive_stream *s) {
    static const char comment[] = ": keep-alive\n\n";
    fv_answer *a = (fv_answer *)(void *)((char *)s - offsetof(fv_answer, alive));
    fv_answer_begin_stream(a);
    if (!fv_http_full(a->http)) fv_http_write(a->http, comment, sizeof comment - 1);
}

void fv_answer_end_stream(fv_answer *a, const char *last) {
    a->over = true;
    fv_alive_leave(&a->alive);
    if (*last) fv_http_write(a->http, last, strlen(last));
    fv_http_end_stream(a->http);
}
