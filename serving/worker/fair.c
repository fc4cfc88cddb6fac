/* Keeps flows in a list, because a worker has few tenants at a time. A flow without work stays until the
 * virtual time has passed its finish tag, so that a tenant gains nothing by leaving and coming back. */
#include "serving/worker/fair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double fv_fair_start(const fv_fair *a, const fv_fair_flow *f) { return fmax(a->now, f->finish); }

static void flow_free(fv_fair_flow *f) {
    free(f->name);
    free(f);
}

static void forget_idle(fv_fair *a) {
    for (fv_fair_flow **at = &a->first, *f; (f = *at);) {
        if (f->n > 0 || f->finish > a->now) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        flow_free(f);
    }
}

static fv_fair_flow *add(fv_fair *a, const char *name) {
    fv_fair_flow *f = calloc(1, sizeof *f);
    if (f) f->name = strdup(name);
    if (!f || !f->name) {
        free(f);
        return &a->rest;
    }
    f->next = a->first;
    a->first = f;
    return f;
}

fv_fair_flow *fv_fair_enter(fv_fair *a, const char *name, double weight) {
    fv_fair_flow *f = a->first;
    if (!name) name = "";
    while (f && strcmp(f->name, name) != 0) f = f->next;
    if (!f) {
        forget_idle(a);
        f = add(a, name);
    }
    f->weight = weight > 0 ? weight : 1;
    f->n++;
    return f;
}

void fv_fair_leave(fv_fair *a, fv_fair_flow *f) {
    if (--f->n == 0) forget_idle(a);
}

void fv_fair_fini(fv_fair *a) {
    while (a->first) {
        fv_fair_flow *f = a->first;
        a->first = f->next;
        flow_free(f);
    }
}

void fv_fair_charge(fv_fair *a, fv_fair_flow *f, double cost) {
    a->now = fv_fair_start(a, f);
    f->finish = a->now + cost / f->weight;
}

void fv_fair_plan(fv_fair *a) {
    for (fv_fair_flow *f = a->first; f; f = f->next) f->plan = fv_fair_start(a, f);
    a->rest.plan = fv_fair_start(a, &a->rest);
}

void fv_fair_plan_add(fv_fair_flow *f, double cost) { f->plan += cost / f->weight; }
