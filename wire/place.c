#include "wire/place.h"

#include <stdio.h>

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    const fv_place *p = user;
    p->measure(p->user, load);
}

static void told_to_drain(void *user, int32_t grace_ms) {
    fv_daemon_drain(((fv_place *)user)->daemon, grace_ms);
}

/* A worker that its router does not want is of no use. Nothing is wrong with the command line, as
 * FV_EINVAL would say: exit with 1. */
static void refused(void *user, fv_status st) {
    (void)st;
    fv_place_give_up(user, FV_ECANCELLED);
}

static fv_status join(fv_place *p) {
    fv_membership_options opt = {.bridge = fv_daemon_bridge(p->daemon),
                                 .router = fv_options_string(p->o, "router"),
                                 .measure = measure,
                                 .drain = told_to_drain,
                                 .refused = refused,
                                 .user = p};
    if (!opt.router) return FV_OK;
    const char *advertise = fv_options_string(p->o, "advertise");
    Fovea__Fleet__V1__Introduction *introduction;
    FV_TRY(
        p->introduce(p->user, advertise ? advertise : fv_daemon_address(p->daemon), &introduction));
    opt.introduction = introduction;
    return fv_membership_open(&opt, &p->member);
}

fv_status fv_place_check(const fv_place *p) {
    const char *router = fv_options_string(p->o, "router");
    return router ? fv_membership_check(router) : FV_OK;
}

void fv_place_health(fv_place *p, bool healthy) {
    if (p->member) {
        fv_membership_set_health(p->member, healthy);
    } else if (healthy) {
        fv_status st = join(p);
        if (st != FV_OK) refused(p, st);
    }
}

void fv_place_drain(fv_place *p) {
    if (p->member) fv_membership_drain(p->member);
}

void fv_place_touch(fv_place *p) {
    if (p->member) fv_membership_touch(p->member);
}

void fv_place_give_up(fv_place *p, fv_status st) {
    p->status = st;
    snprintf(p->why, sizeof p->why, "%s", fv_last_error());
    fv_daemon_drain(p->daemon, 0);
}

void fv_place_leave(fv_place *p, void (*left)(void *user)) {
    fv_membership *member = p->member;
    p->member = NULL;
    fv_membership_close(member, left, p->user);
}

fv_status fv_place_verdict(const fv_place *p) {
    return p->status == FV_OK ? FV_OK : FV_FAIL(p->status, "%s", p->why);
}
