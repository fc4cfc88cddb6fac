/* Runs the thread; its queue is that of its jobs. */
#include "serving/worker/forms.h"

#include <stdlib.h>

struct fv_forms {
    fv_jobs *jobs;
};

/* The result is looked up later, where a failure is reported. */
static void compile(fv_job *job) {
    fv_form_unit *u = job->owner;
    fv_grammar *g;
    if (u->spec.kind && fv_grammar_get(&u->spec, &g) == FV_OK) fv_grammar_unref(g);
    fv_jobs_post_followup(u->to, u->then); /* u may be gone now */
}

void fv_forms_add(fv_forms *f, fv_form_unit *u, const fv_grammar_spec *spec, fv_jobs *to,
                  fv_job *then) {
    *u = (fv_form_unit){.job = {.run = compile, .owner = u}, .then = then, .to = to};
    if (spec) u->spec = *spec;
    fv_jobs_post_followup(f->jobs, &u->job);
}

fv_status fv_forms_open(fv_forms **out) {
    const fv_jobs_options opt = {.name = "fovea-forms"};
    fv_forms *f = calloc(1, sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a thread");
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
    free(f);
}
