/* The exam in this process: `at_once` seats, of which each asks as soon as it has something to ask.
 * Later turns of a dialog go on where it is kept, and send the question alone; where it is not, the
 * whole chat. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval_run.h"

typedef struct room room;

typedef struct place {
    room *room;
    fv_eval_session seat;
    bool taken;
    bool kept; /* the dialog so far is, under this name */
    uint8_t conversation[16];
} place;

struct room {
    fv_eval_run *sitting;
    fv_local *local;
    place *places; /* [at_once] */
    int32_t n_taken;
    fv_status status;
};

static void on_over(void *user, fv_status st, fv_report *report);

static fv_status ask(place *p) {
    fv_eval_session *s = &p->seat;
    const fv_eval_run *sitting = p->room->sitting;
    fv_ask ask = {.n_image = s->item.n_image,
                  .images = s->image,
                  .n_turn = s->n_chat,
                  .turns = s->chat,
                  .policy = sitting->policy[s->mark.policy],
                  .sampling = fv_sampling_default(),
                  .max_tokens = fv_suite_max_tokens(s->item.turn[s->turn].task),
                  .first_held = sitting->first_held,
                  .keep = sitting->keep_ms > 0 && s->turn + 1 < s->item.n_turn};
    if (p->kept) {
        ask.conversation = p->conversation;
        ask.n_image = 0;
        ask.n_turn = 1;
        ask.turns = &s->chat[s->n_chat - 1];
    }
    fv_ask_hooks hooks = {.user = s, .text = fv_eval_session_hear};
    return fv_local_begin(p->room->local, &ask, &hooks, on_over, p);
}

static fv_status go_on(place *p, const fv_report *report) {
    bool more;
    p->kept = report->kept;
    memcpy(p->conversation, report->conversation, sizeof p->conversation);
    FV_TRY(fv_eval_session_answered(&p->seat, report, &more));
    if (more) return ask(p);
    p->taken = false;
    p->room->n_taken--;
    return fv_eval_run_add(p->room->sitting, &p->seat);
}

static void on_over(void *user, fv_status st, fv_report *report) {
    place *p = user;
    if (p->room->status != FV_OK) return;
    p->room->status = st == FV_OK ? go_on(p, report) : st;
}

static fv_status fill(room *r) {
    bool got = true;
    for (int32_t i = 0; i < r->sitting->at_once && got; i++) {
        place *p = &r->places[i];
        if (p->taken) continue;
        FV_TRY(fv_eval_run_next(r->sitting, &p->seat, &got));
        if (!got) continue;
        p->room = r;
        p->taken = true;
        r->n_taken++;
        FV_TRY(ask(p));
    }
    return FV_OK;
}

static fv_status sit(room *r) {
    FV_TRY(fill(r));
    while (r->n_taken > 0) {
        fv_local_step(r->local);
        FV_TRY(r->status);
        FV_TRY(fill(r));
    }
    return FV_OK;
}

fv_status fv_sit_local(fv_eval_run *s, fv_local *local) {
    room r = {.sitting = s, .local = local};
    r.places = calloc((size_t)s->at_once, sizeof *r.places);
    if (!r.places) return FV_FAIL(FV_ENOMEM, "out of memory for %d items", s->at_once);
    fv_status st = sit(&r);
    fv_progress_end(&s->progress);
    for (int32_t i = 0; i < s->at_once; i++)
        if (r.places[i].taken) fv_eval_session_leave(&r.places[i].seat);
    free(r.places);
    return st;
}
