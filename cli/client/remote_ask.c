/* Runs one request over the network to its end, and calls the hooks of the one-process path. */
#include <stdio.h>
#include <string.h>

#include "cli/client/remote.h"

enum { ASK_MS = 3600000 };

typedef struct answer {
    const fv_ask_hooks *hooks;
    fv_report report;
    fv_remote_outcome *outcome;
    bool over;
    fv_status status;
} answer;

static void on_accepted(void *user, const Fovea__Inference__V1__Accepted *m) {
    fv_remote_outcome *o = ((answer *)user)->outcome;
    snprintf(o->prefill, sizeof o->prefill, "%s", m->prefill_worker);
    snprintf(o->decode, sizeof o->decode, "%s", m->decode_worker);
}

static fv_status take_token(const answer *a, const Fovea__Inference__V1__Token *t) {
    fv_sampled token = {.id = (int32_t)t->id, .logprob = t->logprob};
    for (size_t i = 0; i < t->n_alternatives && i < FV_MAX_LOGPROBS; i++)
        token.top[token.n_top++] = (fv_logprob){.id = (int32_t)t->alternatives[i]->id,
                                                .logprob = t->alternatives[i]->logprob};
    return a->hooks->token ? a->hooks->token(a->hooks->user, &token) : FV_OK;
}

static fv_status on_tokens(void *user, const Fovea__Inference__V1__Tokens *t) {
    const answer *a = user;
    for (size_t i = 0; i < t->n_tokens; i++) FV_TRY(take_token(a, t->tokens[i]));
    return t->text[0] && a->hooks->text ? a->hooks->text(a->hooks->user, t->text, strlen(t->text))
                                        : FV_OK;
}

static fv_status take_kept(const answer *a, const Fovea__Inference__V1__Report *m) {
    fv_arena arena = {0};
    fv_kept_map kept;
    if (!a->hooks->kept || !m) return FV_OK;
    fv_status st = fv_kept_map_from_message(m, &arena, &kept);
    if (st == FV_OK) st = a->hooks->kept(a->hooks->user, &kept, NULL);
    fv_arena_fini(&arena);
    return st;
}

static fv_status on_finished(void *user, const Fovea__Inference__V1__Finished *f) {
    fv_remote_outcome *o = ((answer *)user)->outcome;
    if (f->conversation.len > sizeof o->conversation)
        return FV_FAIL(FV_EDATA, "the fleet names a conversation in %zu bytes",
                       f->conversation.len);
    o->n_conversation = f->conversation.len;
    if (f->conversation.len) memcpy(o->conversation, f->conversation.data, f->conversation.len);
    FV_TRY(take_kept(user, f->report));
    return fv_report_from_message(f->report, f->reason, &((answer *)user)->report);
}

static void on_over(void *user, fv_status st, const fv_rpc_end *end) {
    answer *a = user;
    (void)end;
    a->over = true;
    a->status = st;
}

fv_status fv_remote_ask(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                        const fv_ask_hooks *hooks, fv_remote_outcome *outcome, fv_report *report) {
    static const fv_remote_events events = {on_accepted, on_tokens, on_finished, on_over};
    answer a = {.hooks = hooks, .outcome = outcome};
    *outcome = (fv_remote_outcome){0};
    FV_TRY(fv_remote_begin(r, request, ASK_MS, &events, &a));
    while (!a.over) uv_run(fv_remote_loop(r), UV_RUN_ONCE);
    if (a.status != FV_OK) {
        fv_report_free(&a.report);
        return a.status;
    }
    *report = a.report;
    return FV_OK;
}
