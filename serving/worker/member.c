/* A worker's side of Fleet.Join. A timer drives it: for members it is the time of the next report, otherwise
 * of the next attempt, or the limit of the current one. Loop thread. */
#include "serving/worker/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/fleet_name.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"

enum {
    RETRY_MS = 100, /* after the first failure; twice as long after each further one, up to */
    RETRY_MAX_MS = 2000,
    REFUSED_MAX_MS = 15000, /* maximum after a refusal, which only an administrator can change */
    JOIN_MS = 10000,        /* from Hello to Welcome */
    TWICE_MS = 5000,  /* until the next attempt at a router that is joined by another address */
    REPORT_MS = 1000, /* until the router sets it */
    TOUCH_MS = 20,    /* from a change to its report, which may cover further changes */
    LEAVE_MS = 1000,  /* for the router to end the call when we leave */
};
/* Deadline of the call, which lasts as long as the worker: every call must have a deadline. */
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
    uint64_t told;                        /* of opt.kept, up to there */
    fv_key key;                           /* proves joins */
    fv_join_transcript said;              /* by both sides in this join */
    char why[FV_RPC_TEXT_MAX];            /* the logged reason of the last failed attempt */
    char router_id[FV_ROUTER_ID_MAX + 1]; /* of this join's router */
    bool challenged, joined, draining, unhealthy, touched;
    bool leaving;      /* another membership takes over: no more attempts */
    double renew_at_s; /* 0: never */
    bool twice;        /* the router is joined by another address */
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

static void on_timer(uv_timer_t *t);

/* ---- reports ---------------------------------------------------------------------------- */

/* The progress of single requests, which a report borrows. */
typedef struct work_list {
    fv_pulse_item item[FV_PULSE_MAX];
    Fovea__Fleet__V1__Work work[FV_PULSE_MAX], *list[FV_PULSE_MAX];
} work_list;

static void list_work(const fv_membership *m, report_message *r) {
    static work_list w; /* one loop thread, one report at a time */
    if (!m->opt.pulse) return;
    r->n_work = (size_t)fv_pulse_read(m->opt.pulse, w.item);
    for (size_t i = 0; i < r->n_work; i++) {
        fovea__fleet__v1__work__init(&w.work[i]);
        w.work[i].request_id = w.item[i].id;
        w.work[i].count = w.item[i].count;
        w.list[i] = &w.work[i];
    }
    r->work = w.list;
}

/* Changes in what the worker keeps, which a report borrows. */
typedef struct kept_list {
    Fovea__Fleet__V1__KeptPrompt kept[FV_KEPT_READ_MAX], *list[FV_KEPT_READ_MAX];
} kept_list;

/* Adds the next changes to a report, up to *cursor. */
static void list_kept(const fv_membership *m, report_message *r, uint64_t *cursor) {
    static fv_kept_change change[FV_KEPT_READ_MAX]; /* as list_work's */
    static kept_list k;
    r->n_kept = (size_t)fv_kept_log_read(m->opt.kept, cursor, change, FV_KEPT_READ_MAX);
    for (size_t i = 0; i < r->n_kept; i++) {
        fovea__fleet__v1__kept_prompt__init(&k.kept[i]);
        k.kept[i].digest = change[i].digest;
        k.kept[i].tokens = change[i].tokens;
        k.kept[i].seconds = change[i].seconds;
        k.list[i] = &k.kept[i];
    }
    r->kept = k.list;
}

/* Makes a report, which borrows `load`. */
static report_message make_report(fv_membership *m, Fovea__Inference__V1__Load *load) {
    report_message r = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
    fovea__inference__v1__load__init(load);
    m->opt.measure(m->opt.user, load);
    m->touched = false;
    r.load = load;
    r.clock_ms = fv_callers_clock_ms(m->opt.callers);
    r.draining = m->draining;
    r.unhealthy = m->unhealthy;
    list_work(m, &r);
    return r;
}

/* Sends a report; if it cannot be queued, the next one replaces it. */
static void report(fv_membership *m) {
    Fovea__Inference__V1__Load load;
    report_message r = make_report(m, &load);
    uint64_t told = m->told;
    list_kept(m, &r, &told);
    if (fv_rpc_call_send(m->call, &r.base) == FV_OK) m->told = told;
    bool more = r.n_kept == FV_KEPT_READ_MAX && m->report_ms > TOUCH_MS;
    uv_timer_start(&m->timer, on_timer, more ? TOUCH_MS : m->report_ms, 0);
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

const char *fv_membership_router_id(const fv_membership *m) { return m->router_id; }

/* ---- proving ---------------------------------------------------------------------------- */

static fv_status not_our_router(const fv_membership *m) {
    return FV_FAIL(FV_EAUTH,
                   "%s does not know this fleet's secret: is it its router's "
                   "--fleet-listen, and do both have the same --fleet-token-file?",
                   m->opt.router);
}

/* Introduces the worker if the router has proved itself; otherwise fails, which ends the join. */
static fv_status introduce(fv_membership *m, const Fovea__Fleet__V1__Challenge *challenge) {
    Fovea__Fleet__V1__Introduction in = *m->opt.introduction;
    Fovea__Inference__V1__Load load;
    uint8_t proof[FV_MAC_BYTES];
    fv_join_transcript *said = &m->said;
    if (m->challenged || challenge->nonce.len != sizeof said->nonce_router)
        return not_our_router(m);
    memcpy(said->nonce_router, challenge->nonce.data, sizeof said->nonce_router);
    if (!fv_join_verify(&m->key, FV_JOIN_ROUTER, said, challenge->proof.data, challenge->proof.len))
        return not_our_router(m);
    m->challenged = true;
    if (m->opt.known && m->opt.known(m->opt.user, m, challenge->router)) {
        m->twice = true;
        return FV_FAIL(FV_EBUSY, "it is joined by another address");
    }
    snprintf(m->router_id, sizeof m->router_id, "%s", challenge->router);
    said->role = in.role;
    said->name = in.name;
    said->address = in.address;
    said->compat = in.compat;
    said->compat_hash = in.compat_hash;
    memcpy(said->incarnation, fv_callers_incarnation(m->opt.callers), sizeof said->incarnation);
    in.incarnation = (ProtobufCBinaryData){sizeof said->incarnation, said->incarnation};
    FV_TRY(fv_join_prove(&m->key, FV_JOIN_WORKER, said, proof));
    in.proof = (ProtobufCBinaryData){sizeof proof, proof};
    report_message r = make_report(m, &load);
    r.introduction = &in;
    return fv_rpc_call_send(m->call, &r.base);
}

static fv_status on_welcome(fv_membership *m, const Fovea__Fleet__V1__Welcome *w) {
    if (!m->challenged ||
        !fv_join_verify(&m->key, FV_JOIN_WELCOME, &m->said, w->proof.data, w->proof.len))
        return not_our_router(m);
    m->joined = true;
    m->told = 0;
    m->opt.farewell = false;
    m->retry_ms = RETRY_MS;
    m->why[0] = '\0';
    if (w->report_ms) m->report_ms = w->report_ms;
    m->renew_at_s = w->renew_ms ? fv_clock_s() + 1e-3 * w->renew_ms : 0;
    FV_LOG(INFO, WIRE, "router=%s event=joined name=%s report_ms=%u", m->opt.router,
           m->opt.introduction->name, m->report_ms);
    /* Reports changes since the introduction. */
    report(m);
    return FV_OK;
}

static void replace(fv_membership *m, const char *why) {
    if (m->leaving) return;
    m->leaving = true;
    if (m->opt.replace) m->opt.replace(m->opt.user, why);
}

/* ---- the call --------------------------------------------------------------------------- */

static fv_status on_command(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_membership *m = fv_rpc_call_user(c);
    ProtobufCMessage *p;
    if (m->closing) return FV_OK;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__fleet__v1__command__descriptor, message, &p));
    const command_message *cmd = (const command_message *)p;
    if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_CHALLENGE)
        return introduce(m, cmd->challenge);
    if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_WELCOME)
        return m->joined ? FV_OK : on_welcome(m, cmd->welcome);
    if (!m->joined) return not_our_router(m);
    if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_DRAIN && m->opt.drain) {
        uint32_t ms = cmd->drain->grace_ms;
        m->opt.drain(m->opt.user, ms < INT32_MAX ? (int32_t)ms : INT32_MAX);
    } else if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_FAREWELL) {
        m->opt.farewell = true;
        replace(m, "farewell");
    } /* other commands are of a later version and are ignored */
    return FV_OK;
}

/* Closes our side when the router has closed its side, so that the status comes. */
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

/* Whether the router would refuse again until an administrator has corrected something. */
static bool is_refusal(fv_status st) {
    return st == FV_EAUTH || st == FV_EDENIED || st == FV_EINVAL || st == FV_EUNSUPPORTED;
}

static void try_later(fv_membership *m, fv_status st) {
    int32_t most = is_refusal(st) ? REFUSED_MAX_MS : RETRY_MAX_MS;
    if (m->twice) m->retry_ms = most = TWICE_MS;
    uv_timer_start(&m->timer, on_timer, (uint64_t)m->retry_ms, 0);
    m->retry_ms = 2 * m->retry_ms < most ? 2 * m->retry_ms : most;
}

/* Why an attempt failed, in words that say what to do. */
static const char *reason(const fv_membership *m, const fv_rpc_end *end) {
    if (end->status == FV_EUNSUPPORTED)
        return "not a fleet listener: --router must be the router's --fleet-listen address";
    if (end->status == FV_EAUTH && m->challenged)
        return "it does not know this worker's proof: do both have the same --fleet-token-file?";
    if (end->status == FV_ECANCELLED) return "it does not answer";
    return end->text;
}

static void log_end(fv_membership *m, const fv_rpc_end *end) {
    const char *why = reason(m, end);
    if (m->leaving && end->status == FV_OK) return; /* as agreed */
    bool refused = is_refusal(end->status) || end->status == FV_EBUSY;
    if (m->twice) why = "it is joined by another address";
    if (m->twice && strcmp(why, m->why) != 0)
        FV_LOG(INFO, WIRE, "router=%s event=known reason=\"%s\"", m->opt.router, why);
    else if ((m->joined || strcmp(why, m->why) != 0) && m->opt.farewell && !refused)
        FV_LOG(INFO, WIRE, "router=%s event=%s reason=\"%s\"", m->opt.router,
               m->joined ? "lost" : "unreachable", why);
    else if (m->joined || strcmp(why, m->why) != 0)
        FV_LOG(WARN, WIRE, "router=%s event=%s reason=\"%s\"", m->opt.router,
               m->joined ? "lost" : (refused ? "refused" : "unreachable"), why);
    snprintf(m->why, sizeof m->why, "%s", why);
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_membership *m = fv_rpc_call_user(c);
    m->call = NULL;
    if (m->closing) {
        finish_close(m);
        return;
    }
    log_end(m, end);
    m->joined = m->challenged = m->touched = false;
    m->router_id[0] = '\0';
    if (m->leaving) {
        uv_timer_stop(&m->timer);
        return;
    }
    try_later(m, end->status);
    if (m->twice) m->retry_ms = RETRY_MS;
    m->twice = false;
}

static fv_status join(fv_membership *m) {
    static const fv_rpc_events events = {
        .on_message = on_command, .on_half_close = on_half_close, .on_end = on_end};
    Fovea__Fleet__V1__Hello hello = FOVEA__FLEET__V1__HELLO__INIT;
    report_message r = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
    m->said = (fv_join_transcript){0};
    FV_TRY(fv_random_bytes(m->said.nonce_worker, sizeof m->said.nonce_worker));
    hello.nonce = (ProtobufCBinaryData){sizeof m->said.nonce_worker, m->said.nonce_worker};
    r.hello = &hello;
    fv_rpc_call_options opt = {.path = "/fovea.fleet.v1.Fleet/Join",
                               .events = &events,
                               .user = m,
                               .deadline_ms = CALL_MS,
                               .request = &r.base};
    FV_TRY(fv_rpc_call_open(m->channel, &opt, &m->call));
    uv_timer_start(&m->timer, on_timer, JOIN_MS, 0);
    return FV_OK;
}

static void on_timer(uv_timer_t *t) {
    fv_membership *m = t->data;
    if (m->closing || (m->call && !m->joined)) {
        fv_rpc_call_cancel(
            m->call); /* the router has neither accepted nor ended the call in time */
    } else if (m->joined) {
        report(m);
        if (m->renew_at_s > 0 && fv_clock_s() >= m->renew_at_s) replace(m, "renewal");
    } else if (join(m) != FV_OK) {
        FV_LOG(WARN, WIRE, "router=%s event=join-failed reason=\"%s\"", m->opt.router,
               fv_last_error());
        try_later(m, FV_EIO);
    }
}

/* ---- opening and closing ---------------------------------------------------------------- */

fv_status fv_membership_open(const fv_membership_options *opt, fv_membership **out) {
    fv_status st = fv_address_check(opt->router);
    if (st != FV_OK) return fv_fail_prefix(st, "router '%s'", opt->router);
    fv_membership *m = calloc(1, sizeof *m);
    if (!m) return FV_FAIL(FV_ENOMEM, "no memory to join the router");
    m->opt = *opt;
    m->report_ms = REPORT_MS;
    m->retry_ms = RETRY_MS;
    st = fv_join_key(opt->fleet, &m->key);
    fv_rpc_channel_options to = {.tls = opt->tls,
                                 .server_name = opt->tls ? fv_role_name(FV_MEMBER_ROUTER) : NULL};
    if (st == FV_OK) st = fv_rpc_channel_open(opt->bridge, opt->router, &to, &m->channel);
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
