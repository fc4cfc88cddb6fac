/* Runs the two threads, each with a list of units in the order in which they came. */
#include "prefill-worker/service/reading.h"

#include <stdlib.h>

typedef struct line {
    fv_jobs *jobs;
    fv_fair fair; /* this and the list belong to the line's thread */
    fv_unit *first, **tail;
} line;

struct fv_reading {
    line small, large;
};

static line *line_of(const fv_unit *u) {
    return u->cost > FV_READING_SMALL ? &u->reading->large : &u->reading->small;
}

/* Returns the first unit of the tenant whose turn it is. */
static fv_unit **next_unit(line *l) {
    fv_unit **best = &l->first;
    for (fv_unit **at = &l->first; *at; at = &(*at)->next)
        if (fv_fair_start(&l->fair, (*at)->flow) < fv_fair_start(&l->fair, (*best)->flow))
            best = at;
    return best;
}

static double work(void *user) {
    line *l = user;
    if (!l->first) return -1;
    fv_unit **at = next_unit(l), *u = *at;
    fv_fair_flow *flow = u->flow;
    *at = u->next;
    if (!*at) l->tail = at;
    fv_fair_charge(&l->fair, flow, u->cost);
    u->run(u); /* the unit may be on its way to either line again */
    fv_fair_leave(&l->fair, flow);
    return 0;
}

static void enqueue(fv_job *job) {
    fv_unit *u = job->owner;
    line *l = line_of(u);
    u->flow = fv_fair_enter(&l->fair, u->who, u->weight);
    u->next = NULL;
    *l->tail = u;
    l->tail = &u->next;
}

void fv_reading_add(fv_reading *r, fv_unit *u) {
    u->reading = r;
    u->job = (fv_job){.run = enqueue, .owner = u};
    fv_jobs_post_followup(line_of(u)->jobs, &u->job);
}

static fv_status line_start(line *l, const char *name) {
    fv_jobs_options opt = {.work = work, .user = l, .name = name};
    l->tail = &l->first;
    return fv_jobs_start(&opt, &l->jobs);
}

static void line_stop(line *l) {
    fv_jobs_stop(l->jobs);
    fv_fair_fini(&l->fair);
}

fv_status fv_reading_open(fv_reading **out) {
    fv_reading *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for the threads that read images");
    fv_status st = line_start(&r->small, "fovea-images");
    if (st == FV_OK) st = line_start(&r->large, "fovea-large");
    if (st != FV_OK) {
        fv_reading_close(r);
        return st;
    }
    *out = r;
    return FV_OK;
}

void fv_reading_close(fv_reading *r) {
    if (!r) return;
    line_stop(&r->large);
    line_stop(&r->small);
    free(r);
}
