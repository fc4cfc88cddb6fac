/* Joins the routers after the first probe, and passes events between them and the daemon. Loop thread. */
#include "serving/worker/registration.h"

#include <stdio.h>
#include <unistd.h>

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    const fv_registration *p = user;
    p->measure(p->user, load);
}

static void told_to_drain(void *user, int32_t grace_ms) {
    fv_daemon_drain(((fv_registration *)user)->daemon, grace_ms);
}

static fv_status join(fv_registration *p) {
    fv_routers_options opt = {.names = fv_options_string(p->o, "router"),
                              .member = {.bridge = fv_daemon_bridge(p->daemon),
                                         .fleet = &p->fleet,
                                         .tls = fv_daemon_tls(p->daemon),
                                         .callers = p->callers,
                                         .measure = measure,
                                         .drain = told_to_drain,
                                         .user = p,
                                         .pulse = p->pulse,
                                         .kept = p->kept}};
    if (!opt.names) return FV_OK;
    const char *advertise = fv_options_string(p->o, "advertise");
    const char *address = advertise ? advertise : fv_daemon_address(p->daemon);
    fv_status st = fv_address_check(address);
    if (st != FV_OK)
        return fv_fail_prefix(st, "others cannot reach this worker at '%s' (give --advertise)",
                              address);
    Fovea__Fleet__V1__Introduction *introduction;
    FV_TRY(p->introduce(p->user, address, &introduction));
    introduction->zone = (char *)(uintptr_t)fv_options_string(p->o, "zone");
    fv_callers_set_name(p->callers, introduction->name);
    opt.member.introduction = introduction;
    return fv_routers_open(&opt, &p->routers);
}

static fv_status check_option(const fv_registration *p, const char *name) {
    const char *address = fv_options_string(p->o, name);
    if (!address || fv_address_check(address) == FV_OK) return FV_OK;
    return fv_fail_prefix(FV_EINVAL, "--%s '%s'", name, address);
}

fv_status fv_registration_open(fv_registration *p) {
    const char *routers = fv_options_string(p->o, "router");
    fv_status st = routers ? fv_routers_check(routers) : FV_OK;
    if (st != FV_OK) return fv_fail_prefix(st, "--router");
    FV_TRY(check_option(p, "advertise"));
    st = fv_zone_check(fv_options_string(p->o, "zone"));
    if (st != FV_OK) return fv_fail_prefix(st, "--zone");
    bool certificates = fv_daemon_tls(p->daemon) != NULL;
    FV_TRY(fv_fleet_secret_of(p->o, certificates, &p->fleet));
    return fv_callers_open(certificates ? NULL : &p->fleet, &p->callers);
}

void fv_registration_close(fv_registration *p) {
    fv_callers_close(p->callers);
    fv_key_wipe(&p->fleet);
}

fv_callers *fv_registration_callers(const fv_registration *p) { return p->callers; }

void fv_registration_health(fv_registration *p, bool healthy) {
    if (p->routers) {
        fv_routers_set_health(p->routers, healthy);
    } else if (healthy) {
        fv_status st = join(p);
        if (st != FV_OK) fv_registration_give_up(p, st);
    }
}

void fv_registration_drain(fv_registration *p) {
    if (p->routers) fv_routers_drain(p->routers);
}

void fv_registration_touch(fv_registration *p) {
    if (p->routers) fv_routers_touch(p->routers);
}

void fv_registration_give_up(fv_registration *p, fv_status st) {
    p->status = st;
    snprintf(p->why, sizeof p->why, "%s", fv_last_error());
    fv_daemon_drain(p->daemon, 0);
}

void fv_registration_device_lost(fv_registration *p, const char *why) {
    enum { CLOSING_S = 10 };
    alarm(CLOSING_S);
    fv_registration_give_up(p, FV_FAIL(FV_EDEVICE, "the GPU is lost: %s", why));
}

void fv_registration_leave(fv_registration *p, void (*left)(void *user)) {
    fv_routers *routers = p->routers;
    p->routers = NULL;
    fv_routers_close(routers, left, p->user);
}

fv_status fv_registration_verdict(const fv_registration *p) {
    return p->status == FV_OK ? FV_OK : FV_FAIL(p->status, "%s", p->why);
}
