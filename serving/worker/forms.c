/* Runs the threads. Each has a list of units that wait, and between two of them compiles the first one of the flow
 * whose turn it is (fair.h), to which it charges the time that this took. Units of one flow keep their order.
 *
 * Whether a grammar is a long one is not known before, so each is tried first, with few steps; starting a long one again
 * costs little beside it. Stopping compilations in the middle would cost less, and a stack for each that waits. */
#include "serving/worker/forms.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "serving/worker/fair.h"

enum {
    BRIEF_STEPS = 100 * 1000, /* some milliseconds */
    LONG_NICE = 10,           /* beside the computing thread, and others' */
};

typedef struct line {
    fv_jobs *jobs;
    /* The thread's own: */
    fv_fair fair;
    fv_form_unit *first, **tail; /* units that wait, in the order in which they came */
    bool nice;
} line;

struct fv_forms {
    line brief, slow;
};

/* ---- a line ------------------------------------------------------------------------------ */

static void enter(line *l, fv_form_unit *u) {
    u->flow = fv_fair_enter(&l->fair, u->share.name, u->share.weight);
    u->next = NULL;
    *l->tail = u;
    l->tail = &u->next;
}

/* Takes the next unit from the list; NULL: none waits. */
static fv_form_unit *take(line *l) {
    fv_form_unit **best = &l->first, *u;
    if (!l->first) return NULL;
    for (fv_form_unit **at = &l->first; *at; at = &(*at)->next)
        if (fv_fair_start(&l->fair, (*at)->flow) < fv_fair_start(&l->fair, (*best)->flow))
            best = at;
    u = *best;
    *best = u->next;
    if (l->tail == &u->next) l->tail = best;
    return u;
}

/* Compiles a unit, with at most so many steps; 0: as many as a grammar may have. A failure is reported later, by who
 * uses the result. Returns whether it is complete. */
static bool compile(line *l, fv_form_unit *u, int64_t steps) {
    const double begin_s = fv_clock_s();
    fv_status st = fv_grammar_prepare(&u->spec, steps, &u->result);
    fv_fair_charge(&l->fair, u->flow, fv_clock_s() - begin_s);
    return st != FV_EBUSY;
}

/* ---- long grammars ----------------------------------------------------------------------- */

static void enter_slow(fv_job *job) {
    fv_form_unit *u = job->owner;
    line *l = &u->forms->slow;
    if (!l->nice) (void)setpriority(PRIO_PROCESS, 0, LONG_NICE); /* of this thread alone */
    l->nice = true;
    enter(l, u);
}

static double step_slow(void *user) {
    line *l = &((fv_forms *)user)->slow;
    fv_form_unit *u = take(l);
    if (!u) return -1;
    if (u->spec.kind) (void)compile(l, u, 0);
    fv_fair_leave(&l->fair, u->flow);
    fv_jobs_post_followup(u->to, u->then); /* u may be gone now */
    return l->first ? 0 : -1;
}

/* ---- the others -------------------------------------------------------------------------- */

static void enter_brief(fv_job *job) {
    fv_form_unit *u = job->owner;
    enter(&u->forms->brief, u);
}

static double step_brief(void *user) {
    fv_forms *f = user;
    line *l = &f->brief;
    fv_form_unit *u = take(l);
    if (!u) return -1;
    u->slow = u->spec.kind ? !compile(l, u, BRIEF_STEPS) : u->after->slow;
    fv_fair_leave(&l->fair, u->flow);
    if (u->slow) {
        u->job = (fv_job){.run = enter_slow, .owner = u};
        fv_jobs_post_followup(f->slow.jobs, &u->job);
    } else {
        fv_jobs_post_followup(u->to, u->then); /* u may be gone now */
    }
    return l->first ? 0 : -1;
}

/* ---- the interface ----------------------------------------------------------------------- */

static void add(fv_forms *f, fv_form_unit *u) {
    u->job = (fv_job){.run = enter_brief, .owner = u};
    u->forms = f;
    fv_jobs_post_followup(f->brief.jobs, &u->job);
}

void fv_forms_add(fv_forms *f, fv_form_unit *u, const fv_grammar_spec *spec,
                  const fv_form_share *share, fv_jobs *to, fv_job *then) {
    *u = (fv_form_unit){.then = then, .to = to, .share = *share, .spec = *spec};
    add(f, u);
}

void fv_forms_follow(fv_forms *f, fv_form_unit *u, const fv_form_unit *after, fv_job *then) {
    *u = (fv_form_unit){.then = then, .to = after->to, .share = after->share, .after = after};
    add(f, u);
}

static fv_status start(fv_forms *f, line *l, const char *name, double (*step)(void *user)) {
    const fv_jobs_options opt = {.name = name, .work = step, .user = f};
    l->tail = &l->first;
    return fv_jobs_start(&opt, &l->jobs);
}

/* Units that came just before the end are compiled here. */
static void stop(fv_forms *f, line *l, double (*step)(void *user)) {
    fv_jobs_stop(l->jobs);
    while (l->first) step(f);
    fv_fair_fini(&l->fair);
}

fv_status fv_forms_open(fv_forms **out) {
    fv_forms *f = calloc(1, sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a thread");
    fv_status st = start(f, &f->slow, "fovea-forms-long", step_slow);
    if (st == FV_OK) st = start(f, &f->brief, "fovea-forms", step_brief);
    if (st == FV_OK)
        *out = f;
    else
        fv_forms_close(f);
    return st;
}

void fv_forms_close(fv_forms *f) {
    if (!f) return;
    stop(f, &f->brief, step_brief);
    stop(f, &f->slow, step_slow);
    free(f);
}
