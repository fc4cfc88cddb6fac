/* Runs the evaluation in this process: `at_once` sessions, each with one request at a time. Later
 * turns of a dialog continue from its kept KV and send only the question, or without it the whole
 * chat. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval/run.h"

typedef struct runner runner;

typedef struct slot {
    runner *runner;
    fv_eval_session session;
    bool taken;
    bool kept; /* the dialog so far is kept under `conversation` */
    uint8_t conversation[16];
} slot;

struct runner {
    fv_eval_run *eval_run;
    fv_local *local;
    slot *slots; /* [at_once] */
    int32_t n_taken;
    fv_status status;
};

static void on_over(void *user, fv_status st, fv_report *report);

static fv_status ask(slot *p) {
    fv_eval_session *s = &p->session;
    const fv_eval_run *eval_run = p->runner->eval_run;
    fv_ask ask = {.n_image = s->n_image,
                  .images = s->image,
                  .n_turn = s->n_chat,
                  .turns = s->chat,
                  .policy = eval_run->policy[s->item_score.policy],
                  .sampling = fv_sampling_default(),
                  .max_tokens = fv_eval_session_max_tokens(s),
                  .first_held = eval_run->first_held,
                  .keep = eval_run->keep_ms > 0 && s->turn + 1 < s->n_turn};
    if (s->own && s->own->document && !s->document.id)
        FV_TRY(fv_eval_document_make(p->runner->local, s->own, eval_run->span, 0, &s->document));
    fv_eval_document_ask(&s->document, &ask);
    if (p->kept) {
        ask.conversation = p->conversation;
        ask.n_image = 0;
        ask.n_turn = 1;
        ask.turns = &s->chat[s->n_chat - 1];
    }
    fv_ask_hooks hooks = {.user = s, .text = fv_eval_session_add_text};
    return fv_local_begin(p->runner->local, &ask, &hooks, on_over, p);
}

static fv_status go_on(slot *p, const fv_report *report) {
    bool more;
    p->kept = report->kept;
    memcpy(p->conversation, report->conversation, sizeof p->conversation);
    FV_TRY(fv_eval_session_answered(&p->session, report, &more));
    if (more) return ask(p);
    p->taken = false;
    p->runner->n_taken--;
    return fv_eval_run_add(p->runner->eval_run, &p->session);
}

static void on_over(void *user, fv_status st, fv_report *report) {
    slot *p = user;
    if (p->runner->status != FV_OK) return;
    p->runner->status = st == FV_OK ? go_on(p, report) : fv_eval_session_failed(&p->session, st);
}

static fv_status fill(runner *r) {
    bool got = true;
    for (int32_t i = 0; i < r->eval_run->at_once && got; i++) {
        slot *p = &r->slots[i];
        if (p->taken) continue;
        FV_TRY(fv_eval_run_next(r->eval_run, &p->session, &got));
        if (!got) continue;
        p->runner = r;
        p->taken = true;
        r->n_taken++;
        FV_TRY(fv_eval_session_failed(&p->session, ask(p)));
    }
    return FV_OK;
}

static fv_status run_all(runner *r) {
    FV_TRY(fill(r));
    while (r->n_taken > 0) {
        fv_local_step(r->local);
        FV_TRY(r->status);
        FV_TRY(fill(r));
    }
    return FV_OK;
}

fv_status fv_eval_run_local(fv_eval_run *s, fv_local *local) {
    runner r = {.eval_run = s, .local = local};
    r.slots = calloc((size_t)s->at_once, sizeof *r.slots);
    if (!r.slots) return FV_FAIL(FV_ENOMEM, "out of memory for %d items", s->at_once);
    fv_status st = run_all(&r);
    fv_progress_end(&s->progress);
    for (int32_t i = 0; i < s->at_once; i++)
        if (r.slots[i].taken) fv_eval_session_leave(&r.slots[i].session);
    free(r.slots);
    return st;
}
