/* Fleet.Join on the router: introductions, reports, and workers that are there no more. A worker is
 * held against those that are already in before it may come in. Loop thread. */
#include "router/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "policy/plan.h"
#include "wire/kv_sections.h"
#include "wire/rpc_listen.h"
#include "wire/rpc_message.h"

enum {
    FORGET_S = 60,         /* how long a lost worker is still shown */
    FOREIGN_MAX = 1 << 20, /* a worker says what it likes */
};

#define READY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY
#define UNHEALTHY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_UNHEALTHY
#define DRAINING FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_DRAINING
#define LOST FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST
#define PREFILL FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define DECODE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE

typedef Fovea__Fleet__V1__WorkerReport report_message;
typedef Fovea__Fleet__V1__Command command_message;

struct fv_members {
    fv_members_options opt;
    fv_member *first;
    bool stopping;
};

/* ---- leaving ---------------------------------------------------------------------------- */

static void member_free(fv_member *w) {
    fv_rpc_channel_close(w->channel);
    fv_arena_fini(&w->arena);
    free(w);
}

static void forget(fv_members *m, fv_member *w) {
    fv_member **at = &m->first;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    member_free(w);
}

/* Its requests end; it is shown as lost for a while, unless it has left by itself. */
static void part(fv_members *m, fv_member *w, const char *why) {
    bool left = w->state == DRAINING;
    FV_LOG(WARN, ROUTER, "worker=%s event=%s reason=\"%s\"", w->intro->name, left ? "left" : "lost",
           why);
    if (!left) w->state = LOST;
    w->reported_s = fv_clock_s();
    if (w->join) fv_rpc_call_set_user(w->join, NULL);
    w->join = NULL;
    m->opt.on_gone(m->opt.user, w);
    fv_rpc_channel_close(w->channel);
    w->channel = NULL;
    if (left) forget(m, w);
}

/* Ends a worker's call from this side. */
static void dismiss(fv_members *m, fv_member *w, fv_status st) {
    fv_rpc_call *join = w->join;
    char why[256];
    snprintf(why, sizeof why, "%s", fv_last_error());
    fv_rpc_call_finish(join, st);
    part(m, w, why);
}

/* ---- joining ---------------------------------------------------------------------------- */

static fv_status compat_of(const fv_introduction *in, fv_compat *out) {
    if (strlen(in->compat) >= sizeof out->text)
        return FV_FAIL(FV_EINVAL, "Introduction.compat is longer than %zu bytes",
                       sizeof out->text - 1);
    out->hash = in->compat_hash;
    strcpy(out->text, in->compat);
    return FV_OK;
}

static fv_status check_fits(const fv_members *m, const fv_introduction *in) {
    for (const fv_member *w = m->first; w; w = w->next) {
        fv_compat mine, theirs;
        if (w->state == LOST || strcmp(w->intro->name, in->name) == 0) continue;
        FV_TRY(compat_of(w->intro, &mine));
        FV_TRY(compat_of(in, &theirs));
        if (fv_compat_check(&mine, &theirs) != FV_REFUSED_NONE) {
            fv_fail_prefix(FV_EINVAL, "worker %s does not fit the fleet (%s)", in->name,
                           w->intro->name);
            return FV_EINVAL;
        }
    }
    return FV_OK;
}

static fv_status check_introduction(const fv_introduction *in) {
    if (!in) return FV_FAIL(FV_EINVAL, "the first report introduces the worker, and this does not");
    if (!in->name[0] || strlen(in->name) > 64)
        return FV_FAIL(FV_EINVAL, "Introduction.name has 1 to 64 bytes");
    if (in->role != PREFILL && in->role != DECODE)
        return FV_FAIL(FV_EINVAL, "worker %s is neither prefill nor decode worker", in->name);
    FV_TRY(fv_rpc_listen_check(in->address));
    const fv_model_message *model = in->model;
    if (!model || model->n_layer == 0 || model->n_layer > FV_PLAN_MAX_LAYERS || model->n_kv == 0 ||
        model->n_kv > 4096 || model->d_head == 0 || model->d_head > 65536)
        return FV_FAIL(FV_EINVAL, "worker %s does not say what model it serves", in->name);
    return FV_OK;
}

static void keep_report(fv_member *w, const report_message *r) {
    w->reported_s = fv_clock_s();
    if (r->load) {
        w->load = *r->load;
        /* Fields of a later version lie in the report, which goes; the numbers are all in here. */
        w->load.base.n_unknown_fields = 0;
        w->load.base.unknown_fields = NULL;
        int64_t n = (int64_t)w->load.n_running + w->load.n_queued - w->n_taken;
        w->n_foreign = n < 0 ? 0 : n > FOREIGN_MAX ? FOREIGN_MAX : (int32_t)n;
    }
    Fovea__Inference__V1__WorkerState to = r->unhealthy ? UNHEALTHY : READY;
    if (r->draining || w->state == DRAINING) to = DRAINING;
    if (to != w->state && (to == UNHEALTHY || w->state == UNHEALTHY))
        FV_LOG(WARN, ROUTER, "worker=%s event=%s", w->intro->name,
               to == UNHEALTHY ? "unhealthy" : "healthy");
    w->state = to;
}

static fv_status welcome(const fv_members *m, fv_rpc_call *c) {
    Fovea__Fleet__V1__Welcome w = FOVEA__FLEET__V1__WELCOME__INIT;
    command_message cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    w.report_ms = m->opt.report_ms;
    w.silence_ms = m->opt.silence_ms;
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_WELCOME;
    cmd.welcome = &w;
    return fv_rpc_call_send(c, &cmd.base);
}

fv_member *fv_members_find(const fv_members *m, const char *name) {
    fv_member *w = m->first;
    while (w && strcmp(w->intro->name, name) != 0) w = w->next;
    return w;
}

/* Whoever had the name before is gone. */
static void replace(fv_members *m, const char *name) {
    fv_member *w = fv_members_find(m, name);
    if (!w) return;
    if (w->join) dismiss(m, w, FV_FAIL(FV_ECANCELLED, "another worker has joined as %s", name));
    if ((w = fv_members_find(m, name))) forget(m, w);
}

static fv_status introduce(fv_members *m, fv_rpc_call *c, grpc_byte_buffer *message) {
    ProtobufCMessage *p;
    fv_member *w = calloc(1, sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "no memory for another worker");
    fv_status st;
    FV_TRY_GOTO(fv_rpc_unpack(&fovea__fleet__v1__worker_report__descriptor, message, &w->arena, &p),
                st, fail);
    const report_message *r = (const report_message *)p;
    FV_TRY_GOTO(check_introduction(r->introduction), st, fail);
    FV_TRY_GOTO(check_fits(m, r->introduction), st, fail);
    FV_TRY_GOTO(fv_rpc_channel_open(m->opt.bridge, r->introduction->address, NULL, &w->channel), st,
                fail);
    FV_TRY_GOTO(welcome(m, c), st, fail);
    replace(m, r->introduction->name);
    w->intro = r->introduction;
    w->role = w->intro->role;
    w->state = READY;
    fv_breaker_init(&w->breaker, (uint64_t)(1e9 * fv_clock_s()));
    fovea__inference__v1__load__init(&w->load);
    keep_report(w, r);
    w->join = c;
    fv_rpc_call_set_user(c, w);
    fv_member **tail = &m->first;
    while (*tail) tail = &(*tail)->next;
    *tail = w;
    FV_LOG(INFO, ROUTER, "worker=%s event=joined role=%s address=%s model=%s", w->intro->name,
           w->role == PREFILL ? "prefill" : "decode", w->intro->address, w->intro->model->name);
    return FV_OK;
fail:
    member_free(w);
    FV_LOG(WARN, ROUTER, "peer=%s event=join-refused reason=\"%s\"", fv_rpc_call_peer(c),
           fv_last_error());
    return st;
}

/* ---- the call --------------------------------------------------------------------------- */

static fv_status on_report(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_members *m = fv_rpc_call_service(c);
    fv_member *w = fv_rpc_call_user(c);
    if (m->stopping) return FV_OK;
    if (!w) {
        FV_TRY(introduce(m, c, message));
    } else {
        ProtobufCMessage *p;
        FV_TRY(fv_rpc_call_unpack(c, &fovea__fleet__v1__worker_report__descriptor, message, &p));
        const report_message *r = (const report_message *)p;
        if (r->introduction)
            return FV_FAIL(FV_EINVAL, "worker %s has introduced itself before", w->intro->name);
        keep_report(w, r);
    }
    m->opt.on_change(m->opt.user);
    return FV_OK;
}

static fv_status on_leave(fv_rpc_call *c) {
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_members *m = fv_rpc_call_service(c);
    fv_member *w = fv_rpc_call_user(c);
    if (!w) return;
    w->join = NULL;
    if (!m->stopping) part(m, w, *end->text ? end->text : "its connection has ended");
}

/* A stopping router finishes what it has with the members as they are. */
static void on_stop(void *state) {
    fv_members *m = state;
    m->stopping = true;
    for (fv_member *w = m->first; w; w = w->next) {
        if (!w->join) continue;
        fv_rpc_call_set_user(w->join, NULL);
        fv_rpc_call_finish(w->join, FV_FAIL(FV_EIO, "the router stops"));
        w->join = NULL;
    }
}

fv_rpc_service fv_members_service(fv_members *m) {
    static const fv_rpc_method methods[] = {
        {.path = "/fovea.fleet.v1.Fleet/Join",
         .kind = FV_RPC_BIDI,
         .message_max = 256 << 10,
         .calls_max = 4096,
         .events = {.on_message = on_report, .on_half_close = on_leave, .on_end = on_end}},
    };
    return (fv_rpc_service){methods, 1, m, on_stop};
}

/* ---- the rest --------------------------------------------------------------------------- */

void fv_members_tick(fv_members *m, double now_s) {
    for (fv_member *w = m->first, *next; w && !m->stopping; w = next) {
        next = w->next;
        double silent_s = now_s - w->reported_s;
        if (w->state == LOST) {
            if (silent_s > FORGET_S) forget(m, w);
        } else if (silent_s * 1000 > m->opt.silence_ms) {
            dismiss(m, w,
                    FV_FAIL(FV_EIO, "worker %s was silent for %.1f s", w->intro->name, silent_s));
        }
    }
}

fv_member *fv_members_first(const fv_members *m) { return m->first; }

bool fv_members_ready(const fv_members *m, Fovea__Inference__V1__Role role) {
    const fv_member *w = m->first;
    while (w && !(w->state == READY && w->role == role)) w = w->next;
    return w != NULL;
}

const fv_model_message *fv_members_model(const fv_members *m) {
    const fv_model_message *lost = NULL;
    for (const fv_member *w = m->first; w; w = w->next) {
        if (w->role != PREFILL) continue;
        if (w->state != LOST) return w->intro->model;
        lost = w->intro->model;
    }
    return lost;
}

static uint32_t least_keep_ms(const fv_members *m, bool lost, bool *any) {
    uint32_t least = UINT32_MAX;
    for (const fv_member *w = m->first; w; w = w->next) {
        if (w->role != DECODE || (w->state == LOST) != lost) continue;
        uint32_t ms = w->intro->model->limits ? w->intro->model->limits->keep_ms_max : 0;
        if (ms < least) least = ms;
        *any = true;
    }
    return *any ? least : 0;
}

/* While there is none, those that were lost say what there will be again. */
uint32_t fv_members_keep_ms_max(const fv_members *m) {
    bool any = false;
    uint32_t ms = least_keep_ms(m, false, &any);
    return any ? ms : least_keep_ms(m, true, &any);
}

fv_status fv_members_open(const fv_members_options *opt, fv_members **out) {
    fv_members *m = calloc(1, sizeof *m);
    if (!m) return FV_FAIL(FV_ENOMEM, "no memory for the fleet");
    m->opt = *opt;
    *out = m;
    return FV_OK;
}

void fv_members_close(fv_members *m) {
    if (!m) return;
    for (fv_member *w = m->first, *next; w; w = next) {
        next = w->next;
        member_free(w);
    }
    free(m);
}
