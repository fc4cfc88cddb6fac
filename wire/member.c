/* A worker's side of Fleet.Join. One timer drives it: while the call is open it is the time of the
 * next report, else of the next attempt. Loop thread. */
#include "wire/member.h"

#include <stdlib.h>

#include "common/log.h"
#include "wire/rpc_listen.h"

enum {
    RETRY_MS = 100, /* after the first failure; twice as long after each further one, up to */
    RETRY_MAX_MS = 2000,
    REPORT_MS = 1000, /* until the router says */
    TOUCH_MS = 20,    /* reports are at least so far apart: many changes, one report */
    LEAVE_MS = 1000,  /* that the router has to let us go */
};
/* The call lasts as long as the worker, and every call has a deadline. */
static const int64_t CALL_MS = INT64_C(365) * 86400 * 1000;

typedef Fovea__Fleet__V1__WorkerReport report_message;
typedef Fovea__Fleet__V1__Command command_message;

struct fv_membership {
    fv_membership_options opt;
    fv_rpc_channel *channel;
    fv_rpc_call *call; /* NULL between attempts */
    uv_timer_t timer;
    uint32_t report_ms;
    int32_t retry_ms;
    bool joined, refused, draining, unhealthy, touched;
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

static void on_timer(uv_timer_t *t);

/* ---- reports ---------------------------------------------------------------------------- */

/* Fills a report; the load is the caller's, for as long as the report is used. */
static report_message make_report(fv_membership *m, Fovea__Inference__V1__Load *load) {
    report_message r = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
    fovea__inference__v1__load__init(load);
    m->opt.measure(m->opt.user, load);
    m->touched = false;
    r.load = load;
    r.draining = m->draining;
    r.unhealthy = m->unhealthy;
    return r;
}

/* A report that cannot be queued is left out: the next one says more. */
static void report(fv_membership *m) {
    Fovea__Inference__V1__Load load;
    report_message r = make_report(m, &load);
    (void)fv_rpc_call_send(m->call, &r.base);
    uv_timer_start(&m->timer, on_timer, m->report_ms, 0);
}

void fv_membership_touch(fv_membership *m) {
    if (!m->joined || m->touched || m->closing) return;
    m->touched = true;
    uv_timer_start(&m->timer, on_timer, TOUCH_MS, 0);
}

void fv_membership_drain(fv_membership *m) {
    m->draining = true;
    if (m->joined && !m->closing) report(m);
}

void fv_membership_set_health(fv_membership *m, bool healthy) {
    if (m->unhealthy == !healthy) return;
    m->unhealthy = !healthy;
    if (m->joined && !m->closing) report(m);
}

bool fv_membership_joined(const fv_membership *m) { return m->joined; }

/* ---- the call --------------------------------------------------------------------------- */

static fv_status on_command(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_membership *m = fv_rpc_call_user(c);
    ProtobufCMessage *p;
    if (m->closing) return FV_OK;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__fleet__v1__command__descriptor, message, &p));
    const command_message *cmd = (const command_message *)p;
    if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_WELCOME) {
        m->joined = true;
        m->retry_ms = RETRY_MS;
        if (cmd->welcome->report_ms) m->report_ms = cmd->welcome->report_ms;
        FV_LOG(INFO, WIRE, "router=%s event=joined name=%s report_ms=%u", m->opt.router,
               m->opt.introduction->name, m->report_ms);
        /* What changed while the introduction was on its way. */
        report(m);
    } else if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_DRAIN && m->opt.drain) {
        uint32_t ms = cmd->drain->grace_ms;
        m->opt.drain(m->opt.user, ms < INT32_MAX ? (int32_t)ms : INT32_MAX);
    } /* a command of a later version: not for us */
    return FV_OK;
}

/* The router closes its side: so do we, and the status comes. */
static fv_status on_half_close(fv_rpc_call *c) {
    fv_rpc_call_close_send(c);
    return FV_OK;
}

static void on_timer_closed(uv_handle_t *h) {
    fv_membership *m = h->data;
    void (*closed)(void *) = m->closed;
    void *user = m->closed_user;
    free(m);
    closed(user);
}

static void finish_close(fv_membership *m) {
    fv_rpc_channel_close(m->channel);
    uv_close((uv_handle_t *)&m->timer, on_timer_closed);
}

/* A worker that does not fit now would not fit in a second either; one whose name was taken would
 * take it back, and so on. */
static bool is_final(fv_status st) {
    return st == FV_EINVAL || st == FV_EUNSUPPORTED || st == FV_ECANCELLED;
}

static void try_later(fv_membership *m) {
    uv_timer_start(&m->timer, on_timer, (uint64_t)m->retry_ms, 0);
    m->retry_ms = 2 * m->retry_ms < RETRY_MAX_MS ? 2 * m->retry_ms : RETRY_MAX_MS;
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_membership *m = fv_rpc_call_user(c);
    bool was_in = m->joined;
    m->call = NULL;
    m->joined = m->touched = false;
    if (m->closing) {
        finish_close(m);
        return;
    }
    fv_status st = fv_rpc_end_status(end, "router");
    if (is_final(st)) {
        m->refused = true;
        uv_timer_stop(&m->timer);
        FV_LOG(ERROR, WIRE, "router=%s event=refused reason=\"%s\"", m->opt.router, end->text);
        if (m->opt.refused) m->opt.refused(m->opt.user, st);
        return;
    }
    if (was_in || m->retry_ms == RETRY_MS)
        FV_LOG(WARN, WIRE, "router=%s event=%s reason=\"%s\"", m->opt.router,
               was_in ? "lost" : "unreachable", end->text);
    try_later(m);
}

static fv_status join(fv_membership *m) {
    static const fv_rpc_events events = {
        .on_message = on_command, .on_half_close = on_half_close, .on_end = on_end};
    Fovea__Inference__V1__Load load;
    report_message r = make_report(m, &load);
    r.introduction = (Fovea__Fleet__V1__Introduction *)(uintptr_t)m->opt.introduction;
    fv_rpc_call_options opt = {.path = "/fovea.fleet.v1.Fleet/Join",
                               .events = &events,
                               .user = m,
                               .deadline_ms = CALL_MS,
                               .request = &r.base};
    return fv_rpc_call_open(m->channel, &opt, &m->call);
}

static void on_timer(uv_timer_t *t) {
    fv_membership *m = t->data;
    if (m->closing) {
        fv_rpc_call_cancel(m->call); /* the router was asked to let go, and has not */
    } else if (m->joined) {
        report(m);
    } else if (!m->call && join(m) != FV_OK) {
        FV_LOG(WARN, WIRE, "router=%s event=join-failed reason=\"%s\"", m->opt.router,
               fv_last_error());
        try_later(m);
    }
}

/* ---- opening and closing ---------------------------------------------------------------- */

fv_status fv_membership_check(const char *router) {
    if (fv_rpc_listen_check(router) == FV_OK) return FV_OK;
    return FV_FAIL(FV_EINVAL, "'%s' is no address of a router: write HOST:PORT", router);
}

fv_status fv_membership_open(const fv_membership_options *opt, fv_membership **out) {
    FV_TRY(fv_membership_check(opt->router));
    fv_membership *m = calloc(1, sizeof *m);
    if (!m) return FV_FAIL(FV_ENOMEM, "no memory to join the router");
    m->opt = *opt;
    m->report_ms = REPORT_MS;
    m->retry_ms = RETRY_MS;
    fv_status st = fv_rpc_channel_open(opt->bridge, opt->router, NULL, &m->channel);
    if (st != FV_OK) {
        free(m);
        return st;
    }
    uv_timer_init(fv_bridge_loop(opt->bridge), &m->timer);
    m->timer.data = m;
    uv_timer_start(&m->timer, on_timer, 0, 0);
    *out = m;
    return FV_OK;
}

void fv_membership_close(fv_membership *m, void (*closed)(void *user), void *user) {
    if (!m) {
        closed(user);
        return;
    }
    m->closing = true;
    m->closed = closed;
    m->closed_user = user;
    uv_timer_stop(&m->timer);
    if (!m->call) {
        finish_close(m);
        return;
    }
    fv_rpc_call_close_send(m->call);
    uv_timer_start(&m->timer, on_timer, LEAVE_MS, 0);
}
