/* Runs the thread. Units that come are listed; between them the thread compiles the first unit of the flow whose turn
 * it is (fair.h), and charges the time that this took. Units of one flow keep their order. */
#include "serving/worker/forms.h"

#include <stdlib.h>

#include "common/clock.h"
#include "serving/worker/fair.h"

struct fv_forms {
    fv_jobs *jobs;
    /* The thread's own: */
    fv_fair fair;
    fv_form_unit *first, **tail; /* units that wait, in the order in which they came */
};

static void enter(fv_job *job) {
    fv_form_unit *u = job->owner;
    fv_forms *f = u->forms;
    u->flow = fv_fair_enter(&f->fair, u->share.name, u->share.weight);
    u->next = NULL;
    *f->tail = u;
    f->tail = &u->next;
}

/* Takes the next unit from the list; NULL: none waits. */
static fv_form_unit *take(fv_forms *f) {
    fv_form_unit **best = &f->first, *u;
    if (!f->first) return NULL;
    for (fv_form_unit **at = &f->first; *at; at = &(*at)->next)
        if (fv_fair_start(&f->fair, (*at)->flow) < fv_fair_start(&f->fair, (*best)->flow))
            best = at;
    u = *best;
    *best = u->next;
    if (f->tail == &u->next) f->tail = best;
    return u;
}

/* Compiles a unit. The result is looked up later, where a failure is reported. */
static double step(void *user) {
    fv_forms *f = user;
    fv_form_unit *u = take(f);
    fv_grammar *g;
    if (!u) return -1;
    if (u->spec.kind) {
        const double begin_s = fv_clock_s();
        if (fv_grammar_get(&u->spec, &g) == FV_OK) fv_grammar_unref(g);
        fv_fair_charge(&f->fair, u->flow, fv_clock_s() - begin_s);
    }
    fv_fair_leave(&f->fair, u->flow);
    fv_jobs_post_followup(u->to, u->then); /* u may be gone now */
    return f->first ? 0 : -1;
}

void fv_forms_add(fv_forms *f, fv_form_unit *u, const fv_grammar_spec *spec,
                  const fv_form_share *share, fv_jobs *to, fv_job *then) {
    *u = (fv_form_unit){
        .job = {.run = enter, .owner = u}, .forms = f, .then = then, .to = to, .share = *share};
    if (spec) u->spec = *spec;
    fv_jobs_post_followup(f->jobs, &u->job);
}

fv_status fv_forms_open(fv_forms **out) {
    fv_forms *f = calloc(1, sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a thread");
    const fv_jobs_options opt = {.name = "fovea-forms", .work = step, .user = f};
    f->tail = &f->first;
    fv_status st = fv_jobs_start(&opt, &f->jobs);
    if (st == FV_OK)
        *out = f;
    else
        free(f);
    return st;
}

void fv_forms_close(fv_forms *f) {
    if (!f) return;
    fv_jobs_stop(f->jobs);
    while (f->first) step(f); /* what came just before the end */
    fv_fair_fini(&f->fair);
    free(f);
}
