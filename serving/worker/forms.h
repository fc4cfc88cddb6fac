#ifndef FOVEA_SERVING_WORKER_FORMS_H
#define FOVEA_SERVING_WORKER_FORMS_H

/* FORMS: the thread that compiles the grammars of requests, so that neither a worker's loop nor its computing
 * thread waits for one. What was compiled, or why it was refused, is kept by the process
 * (fv_grammar_get), where the computing thread finds it. */
#include "common/jobs.h"
#include "grammar/grammar.h"

typedef struct fv_forms fv_forms; /* opaque */

fv_status fv_forms_open(fv_forms **out);
/* When all units have been posted on; before the threads that they are posted to are stopped. NULL is fine. */
void fv_forms_close(fv_forms *f);

/* A job on its way through the thread. Embedded in what the job works on; valid until the job has begun. */
typedef struct fv_form_unit {
    /* private */
    fv_job job, *then;
    fv_jobs *to;
    fv_grammar_spec spec;
} fv_form_unit;

/* Compiles the grammar and then posts `then` to `to`, as a follow-up. spec NULL: posts it after what was added before,
 * so that the jobs of one request keep their order. The spec's texts are borrowed until then. Any thread. */
void fv_forms_add(fv_forms *f, fv_form_unit *u, const fv_grammar_spec *spec, fv_jobs *to,
                  fv_job *then);

#endif
