#ifndef FOVEA_SERVING_WORKER_FORMS_H
#define FOVEA_SERVING_WORKER_FORMS_H

/* FORMS: the threads that compile the grammars of requests, so that neither a worker's loop nor its computing
 * thread waits for one.
 *
 *     fv_forms_add --> [brief] ------------------------> then
 *                         | takes more than some steps
 *                         '----> [long, niced] --------> then
 *
 * A long grammar thus delays no brief one. Callers share each thread by the time that their grammars take
 * (fair.h): who has many, or large ones, delays others by the one that runs. What was compiled, or why it was refused, is
 * kept in the unit, where the computing thread finds it. */
#include "common/jobs.h"
#include "grammar/grammar.h"

typedef struct fv_forms fv_forms; /* opaque */

fv_status fv_forms_open(fv_forms **out);
/* When all units have been posted on; before the threads that they are posted to are stopped. NULL is fine. */
void fv_forms_close(fv_forms *f);

/* Who asks: the name under which a request takes its share, and the share's weight; 0: 1. */
typedef struct fv_form_share {
    const char *name;
    double weight;
} fv_form_share;

/* A job on its way through the thread. Embedded in what the job works on; valid until the job has begun, and then as
 * long as its result is used. */
typedef struct fv_form_unit {
    /* private */
    fv_job job, *then;
    fv_jobs *to;
    fv_forms *forms;
    fv_grammar_spec spec; /* kind 0: it follows `after` */
    fv_grammar_result result;
    fv_form_share share;
    const struct fv_form_unit *after;
    bool slow; /* the thread of brief grammars has handed it on */
    struct fv_fair_flow *flow;
    struct fv_form_unit *next;
} fv_form_unit;

/* The result of the unit's compilation; all zero for a unit that follows. Valid in `then` and until fv_forms_release. */
static inline const fv_grammar_result *fv_forms_result(const fv_form_unit *u) { return &u->result; }

/* When the request ends, after `then` has begun. A unit of zeros is fine. */
static inline void fv_forms_release(fv_form_unit *u) { fv_grammar_result_fini(&u->result); }

/* Compiles the grammar and then posts `then` to `to`, as a follow-up. Texts are borrowed until then. Any thread. */
void fv_forms_add(fv_forms *f, fv_form_unit *u, const fv_grammar_spec *spec,
                  const fv_form_share *share, fv_jobs *to, fv_job *then);

/* Posts `then` where `after` posts its job, and after it, so that the jobs of one request keep their order. `after` must
 * stay valid until `then` has begun. */
void fv_forms_follow(fv_forms *f, fv_form_unit *u, const fv_form_unit *after, fv_job *then);

#endif
