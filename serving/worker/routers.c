/* Resolves names to addresses, and opens a membership for each. A timer looks up all names, each with a
 * request of its own that libuv's threads answer. Each answer opens memberships at new addresses, and closes
 * those whose address is no longer found and whose router has gone. Loop thread. */
#include "serving/worker/routers.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/fleet_name.h"
#include "common/log.h"

enum {
    LOOK_MS = 5000,
    AGAIN_MS = 500, /* while there is no address yet */
    SEATS_MAX = 64, /* memberships at a time */
};

/* A name to look up. */
typedef struct target {
    struct target *next;
    fv_routers *r;
    uv_getaddrinfo_t look;
    bool looking, failed;
    char name[FV_ADDRESS_MAX + 1], host[FV_ADDRESS_MAX + 1], port[8];
} target;

/* An address with its membership. */
typedef struct seat {
    struct seat *next;
    fv_routers *r;
    const target *from;
    fv_membership *member;
    bool found;   /* the last lookup of its name has found the address */
    bool leaving; /* another membership takes over at this address, perhaps of another router */
    char address[FV_ADDRESS_MAX + 1];
} seat;

struct fv_routers {
    fv_routers_options opt;
    fv_key fleet;
    target *targets;
    seat *seats;
    int32_t n_seat; /* also counts seats that are being closed */
    uv_timer_t timer;
    bool draining, unhealthy, closing, timer_closed;
    void (*closed)(void *user);
    void *closed_user;
};

/* ---- leaving ---------------------------------------------------------------------------- */

static bool is_looking(const fv_routers *r) {
    const target *t = r->targets;
    while (t && !t->looking) t = t->next;
    return t != NULL;
}

static void maybe_closed(fv_routers *r) {
    if (!r->closing || !r->timer_closed || r->n_seat > 0 || is_looking(r)) return;
    void (*closed)(void *) = r->closed;
    void *user = r->closed_user;
    while (r->targets) {
        target *t = r->targets;
        r->targets = t->next;
        free(t);
    }
    free(r);
    closed(user);
}

static void on_seat_closed(void *user) {
    seat *s = user;
    fv_routers *r = s->r;
    r->n_seat--;
    free(s);
    maybe_closed(r);
}

static void leave(fv_routers *r, seat *s) {
    seat **at = &r->seats;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    fv_membership_close(s->member, on_seat_closed, s);
}

/* Leaves addresses that are no longer found and whose router has gone. */
static void leave_lost(fv_routers *r) {
    for (seat *s = r->seats, *next; s; s = next) {
        next = s->next;
        if (s->found || fv_membership_joined(s->member)) continue;
        FV_LOG(INFO, WIRE, "router=%s event=forgotten reason=\"%s\"", s->address,
               s->leaving ? "it has ended" : "its name no longer resolves to this address");
        leave(r, s);
    }
}

/* ---- joining ---------------------------------------------------------------------------- */

/* Whether this router is joined by another address; see fv_membership_options. */
static bool known(void *user, const fv_membership *asking, const char *router_id) {
    const seat *me = user;
    for (const seat *s = me->r->seats; s; s = s->next) {
        const char *id = fv_membership_router_id(s->member);
        if (s->member != asking && !s->leaving && *id && strcmp(id, router_id) == 0) return true;
    }
    return false;
}

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    const fv_membership_options *m = &((seat *)user)->r->opt.member;
    m->measure(m->user, load);
}

static void told_to_drain(void *user, int32_t grace_ms) {
    const fv_membership_options *m = &((seat *)user)->r->opt.member;
    if (m->drain) m->drain(m->user, grace_ms);
}

static seat *find_seat(const fv_routers *r, const char *address) {
    seat *s = r->seats;
    while (s && (s->leaving || strcmp(s->address, address) != 0)) s = s->next;
    return s;
}

static fv_status open_seat(const target *t, const char *address, bool farewell);

static void on_replace(void *user, const char *why) {
    seat *s = user;
    FV_LOG(INFO, WIRE, "router=%s event=%s", s->address, why);
    s->leaving = true;
    s->found = false;
    if (open_seat(s->from, s->address, strcmp(why, "farewell") == 0) != FV_OK)
        FV_LOG(WARN, WIRE, "router=%s event=join-failed reason=\"%s\"", s->address,
               fv_last_error());
}

static fv_status open_seat(const target *t, const char *address, bool farewell) {
    fv_routers *r = t->r;
    if (r->n_seat >= SEATS_MAX)
        return FV_FAIL(FV_EBUSY, "more than %d addresses of routers", SEATS_MAX);
    seat *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "no memory to join a router");
    s->r = r;
    s->from = t;
    s->found = true;
    snprintf(s->address, sizeof s->address, "%s", address);
    fv_membership_options opt = r->opt.member;
    opt.router = s->address;
    opt.measure = measure;
    opt.drain = told_to_drain;
    opt.known = known;
    opt.replace = on_replace;
    opt.farewell = farewell;
    opt.user = s;
    fv_status st = fv_membership_open(&opt, &s->member);
    if (st != FV_OK) {
        free(s);
        return st;
    }
    s->next = r->seats;
    r->seats = s;
    r->n_seat++;
    if (r->unhealthy) fv_membership_set_health(s->member, false);
    if (r->draining) fv_membership_drain(s->member);
    return FV_OK;
}

/* ---- looking ---------------------------------------------------------------------------- */

/* Prints an address; false for an unknown address family. */
static bool write_address(const struct addrinfo *a, char out[FV_ADDRESS_MAX + 1]) {
    char host[INET6_ADDRSTRLEN];
    if (a->ai_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a->ai_addr;
        uv_ip4_name(in, host, sizeof host);
        snprintf(out, FV_ADDRESS_MAX + 1, "%s:%d", host, ntohs(in->sin_port));
        return true;
    }
    if (a->ai_family != AF_INET6) return false;
    const struct sockaddr_in6 *in6 = (const void *)a->ai_addr;
    uv_ip6_name(in6, host, sizeof host);
    snprintf(out, FV_ADDRESS_MAX + 1, "[%s]:%d", host, ntohs(in6->sin6_port));
    return true;
}

static void take_addresses(target *t, const struct addrinfo *found) {
    for (seat *s = t->r->seats; s; s = s->next)
        if (s->from == t) s->found = false; /* also of leaving seats */
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        char address[FV_ADDRESS_MAX + 1];
        if (!write_address(a, address)) continue;
        seat *s = find_seat(t->r, address);
        if (s) {
            s->from = t;
            s->found = true;
        } else if (open_seat(t, address, false) != FV_OK) {
            FV_LOG(WARN, WIRE, "router=%s event=join-failed reason=\"%s\"", address,
                   fv_last_error());
        }
    }
    leave_lost(t->r);
}

static void note_failure(target *t, int status) {
    if (!t->failed)
        FV_LOG(WARN, WIRE, "router=%s event=unknown reason=\"%s\"", t->name, uv_strerror(status));
    t->failed = true;
}

static void on_timer(uv_timer_t *timer);

static void plan_look(fv_routers *r) {
    int32_t ms = r->opt.look_ms ? r->opt.look_ms : LOOK_MS;
    if (!r->seats && ms > AGAIN_MS) ms = AGAIN_MS;
    uv_timer_start(&r->timer, on_timer, (uint64_t)ms, 0);
}

static void on_found(uv_getaddrinfo_t *look, int status, struct addrinfo *found) {
    target *t = look->data;
    fv_routers *r = t->r;
    t->looking = false;
    if (r->closing) {
        uv_freeaddrinfo(found);
        maybe_closed(r);
        return;
    }
    if (status == 0) {
        t->failed = false;
        take_addresses(t, found);
    } else {
        note_failure(t, status);
    }
    uv_freeaddrinfo(found);
    if (!is_looking(r)) plan_look(r);
}

static void look(target *t) {
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    t->look.data = t;
    int status = uv_getaddrinfo(t->r->timer.loop, &t->look, on_found, t->host, t->port, &hints);
    t->looking = status == 0;
    if (status != 0) note_failure(t, status);
}

static void on_timer(uv_timer_t *timer) {
    fv_routers *r = timer->data;
    leave_lost(r);
    for (target *t = r->targets; t; t = t->next) look(t);
    if (!is_looking(r)) plan_look(r);
}

/* ---- names ------------------------------------------------------------------------------ */

/* Calls `take` for each name of the list, until one fails. */
static fv_status each_name(const char *names, fv_status (*take)(void *user, const char *name),
                           void *user) {
    for (const char *at = names;; at++) {
        char name[FV_ADDRESS_MAX + 2];
        size_t n = strcspn(at, ",");
        if (n >= sizeof name) return FV_FAIL(FV_EINVAL, "a router's address is too long");
        memcpy(name, at, n);
        name[n] = '\0';
        FV_TRY(take(user, name));
        at += n;
        if (*at == '\0') return FV_OK;
    }
}

static fv_status check_name(void *user, const char *name) {
    (void)user;
    fv_status st = fv_address_check(name);
    return st == FV_OK ? st : fv_fail_prefix(st, "'%s'", name);
}

fv_status fv_routers_check(const char *names) { return each_name(names, check_name, NULL); }

/* Splits "HOST:PORT" or "[HOST]:PORT". */
static fv_status add_target(void *user, const char *name) {
    fv_routers *r = user;
    target *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "no memory to look for routers");
    const char *colon = strrchr(name, ':');
    int bracket = name[0] == '[';
    t->r = r;
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->host, sizeof t->host, "%.*s", (int)(colon - name) - 2 * bracket, name + bracket);
    snprintf(t->port, sizeof t->port, "%s", colon + 1);
    t->next = r->targets;
    r->targets = t;
    return FV_OK;
}

/* ---- opening and closing ---------------------------------------------------------------- */

fv_status fv_routers_open(const fv_routers_options *opt, fv_routers **out) {
    FV_TRY(fv_routers_check(opt->names));
    fv_routers *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory to look for routers");
    r->opt = *opt;
    r->fleet = *opt->member.fleet;
    r->opt.member.fleet = &r->fleet;
    fv_status st = each_name(opt->names, add_target, r);
    if (st != FV_OK) {
        while (r->targets) {
            target *t = r->targets;
            r->targets = t->next;
            free(t);
        }
        free(r);
        return st;
    }
    uv_timer_init(fv_bridge_loop(opt->member.bridge), &r->timer);
    r->timer.data = r;
    uv_timer_start(&r->timer, on_timer, 0, 0);
    *out = r;
    return FV_OK;
}

static void on_timer_closed(uv_handle_t *h) {
    fv_routers *r = h->data;
    r->timer_closed = true;
    maybe_closed(r);
}

void fv_routers_close(fv_routers *r, void (*closed)(void *user), void *user) {
    if (!r) {
        closed(user);
        return;
    }
    r->closing = true;
    r->closed = closed;
    r->closed_user = user;
    for (target *t = r->targets; t; t = t->next)
        if (t->looking) uv_cancel((uv_req_t *)&t->look); /* a lookup under way is waited for */
    while (r->seats) leave(r, r->seats);
    uv_close((uv_handle_t *)&r->timer, on_timer_closed);
}

/* ---- all memberships -------------------------------------------------------------------- */

void fv_routers_touch(fv_routers *r) {
    for (seat *s = r->seats; s; s = s->next) fv_membership_touch(s->member);
}

void fv_routers_drain(fv_routers *r) {
    r->draining = true;
    for (seat *s = r->seats; s; s = s->next) fv_membership_drain(s->member);
}

void fv_routers_set_health(fv_routers *r, bool healthy) {
    r->unhealthy = !healthy;
    for (seat *s = r->seats; s; s = s->next) fv_membership_set_health(s->member, healthy);
}
