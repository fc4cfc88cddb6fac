/* Fleet.Join on the router. A caller is untrusted until it has proved that it knows the fleet's
 * secret: it gets a few seconds, one of a few slots, and one sentence for every error. An authenticated
 * caller joins the fleet that it fits. Loop thread.
 *
 *     Hello -> Challenge -> Introduction -> Welcome -> reports ...
 *     |----- unproven -----|              |----- member -----| */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/fleet_name.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "policy/plan/plan.h"
#include "router/registry_internal.h"
#include "rpc/message.h"
#include "serving/peer.h"

enum {
    UNPROVEN_MAX = 64,
    UNPROVEN_S = 5,
    RETRY_MS = 500,
    ALIASES_MAX = 15,
    ADAPTERS_MAX = 64,
};

typedef Fovea__Fleet__V1__WorkerReport report_message;
typedef Fovea__Fleet__V1__Command command_message;

struct fv_join {
    fv_registry *members;
    fv_rpc_call *call;
    fv_registered_worker *worker; /* NULL: not yet, or no longer a member by this call */
    fv_join *next;                /* in the list of unproven joins */
    double began_s;
    bool challenged, proven, finished;
    fv_join_transcript said;
};

/* Ends a member's call, with fv_last_error. */
static void finish(fv_join *j, fv_status st) {
    j->worker = NULL;
    j->finished = true;
    fv_rpc_call_finish(j->call, st);
}

/* ---- unproven joins --------------------------------------------------------------------- */

/* The only error that an unproven peer gets, so that it learns nothing. */
static fv_status unproven_error(void) {
    return FV_FAIL(FV_EAUTH, "only workers that prove membership in the fleet may join");
}

static void leave_unproven(fv_join *j) {
    fv_registry *m = j->members;
    fv_join **at = &m->unproven;
    while (*at && *at != j) at = &(*at)->next;
    if (!*at) return;
    *at = j->next;
    m->n_unproven--;
}

static void refuse(fv_join *j, const char *why) {
    leave_unproven(j);
    fv_audit_refused(&j->members->audit, j->call, why);
    j->finished = true;
    fv_rpc_call_finish(j->call, unproven_error());
}

/* Makes room for another unproven join by ending the oldest: a worker proves itself within milliseconds. */
static void end_oldest_unproven(fv_registry *m) {
    fv_join *oldest = m->unproven;
    if (m->n_unproven < UNPROVEN_MAX) return;
    while (oldest->next) oldest = oldest->next;
    refuse(oldest, "too many unproven joins");
}

static fv_status on_start(fv_rpc_call *c) {
    fv_registry *m = fv_rpc_call_service(c);
    fv_join *j;
    if (m->stopping) return FV_FAIL(FV_EIO, "the router is shutting down");
    FV_TRY(FV_ARENA_NEW(fv_rpc_call_arena(c), 1, j));
    end_oldest_unproven(m);
    *j = (fv_join){.members = m, .call = c, .began_s = fv_clock_s(), .next = m->unproven};
    m->unproven = j;
    m->n_unproven++;
    fv_rpc_call_set_user(c, j);
    return FV_OK;
}

/* ---- Hello: the router proves itself ----------------------------------------------------- */

static fv_status challenge(fv_join *j, const report_message *r) {
    const fv_registry *m = j->members;
    Fovea__Fleet__V1__Challenge out = FOVEA__FLEET__V1__CHALLENGE__INIT;
    command_message cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    uint8_t proof[FV_MAC_BYTES];
    fv_join_transcript *said = &j->said;
    if (!r->hello || r->hello->nonce.len != sizeof said->nonce_worker) {
        refuse(j, "its first message is not Hello");
        return FV_OK;
    }
    memcpy(said->nonce_worker, r->hello->nonce.data, sizeof said->nonce_worker);
    FV_TRY(fv_random_bytes(said->nonce_router, sizeof said->nonce_router));
    FV_TRY(fv_join_prove(&m->join_key, FV_JOIN_ROUTER, said, proof));
    out.nonce = (ProtobufCBinaryData){sizeof said->nonce_router, said->nonce_router};
    out.proof = (ProtobufCBinaryData){sizeof proof, proof};
    out.router = (char *)(uintptr_t)m->opt.router_id;
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_CHALLENGE;
    cmd.challenge = &out;
    j->challenged = true;
    return fv_rpc_call_send(j->call, &cmd.base);
}

/* ---- Introduction: the worker proves itself ---------------------------------------------- */

static fv_role role_of(const fv_introduction *in) {
    return in->role == FV_WORKER_PREFILL ? FV_MEMBER_PREFILL : FV_MEMBER_DECODE;
}

/* Whether the worker proves that it knows the secret and, with TLS, has a certificate of its role. */
static bool proves(fv_join *j, const fv_introduction *in) {
    fv_join_transcript *said = &j->said;
    const fv_registry_options *opt = &j->members->opt;
    if (!in || in->incarnation.len != sizeof said->incarnation) return false;
    if (opt->tls && !fv_peer_is(j->call, role_of(in), opt->spiffe)) return false;
    said->role = in->role;
    said->name = in->name;
    said->address = in->address;
    said->compat = in->compat;
    said->compat_hash = in->compat_hash;
    memcpy(said->incarnation, in->incarnation.data, sizeof said->incarnation);
    return fv_join_verify(&j->members->join_key, FV_JOIN_WORKER, said, in->proof.data,
                          in->proof.len);
}

static fv_status check_introduction(const fv_introduction *in) {
    FV_TRY(fv_worker_name_check(in->name));
    if (in->role != FV_WORKER_PREFILL && in->role != FV_WORKER_DECODE)
        return FV_FAIL(FV_EINVAL, "worker %s is neither a prefill nor a decode worker", in->name);
    fv_status st = fv_address_check(in->address);
    if (st != FV_OK) return fv_fail_prefix(st, "worker %s at '%s'", in->name, in->address);
    st = fv_zone_check(in->zone);
    if (st != FV_OK) return fv_fail_prefix(st, "worker %s", in->name);
    const fv_model_message *model = in->model;
    if (!model || model->n_layer == 0 || model->n_layer > FV_PLAN_MAX_LAYERS || model->n_kv == 0 ||
        model->n_kv > 4096 || model->d_head == 0 || model->d_head > 65536 ||
        model->bytes_state > UINT64_C(1) << 40)
        return FV_FAIL(
            FV_EINVAL,
            "worker %s reports no model, or impossible numbers of layers, heads or bytes",
            in->name);
    if (model->n_aliases > ALIASES_MAX)
        return FV_FAIL(FV_EINVAL, "worker %s reports %zu names of its model; the limit is %d",
                       in->name, model->n_aliases, ALIASES_MAX);
    if (model->n_adapters > ADAPTERS_MAX)
        return FV_FAIL(FV_EINVAL, "worker %s reports %zu adapters; the limit is %d", in->name,
                       model->n_adapters, ADAPTERS_MAX);
    return FV_OK;
}

/* Refuses the name of a connected worker: that worker would lose its requests, and two workers with one name
 * would expel each other forever. */
static fv_status check_name(fv_join *j, const fv_introduction *in) {
    if (fv_registry_name_is_free(j->members, in->name)) return FV_OK;
    fv_rpc_call_retry_after(j->call, RETRY_MS);
    return FV_FAIL(FV_EBUSY,
                   "a worker with the name %s is connected: give this one another --name, or "
                   "wait until that one is gone",
                   in->name);
}

static fv_status welcome(const fv_join *j) {
    const fv_registry *m = j->members;
    Fovea__Fleet__V1__Welcome w = FOVEA__FLEET__V1__WELCOME__INIT;
    command_message cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    uint8_t proof[FV_MAC_BYTES];
    FV_TRY(fv_join_prove(&m->join_key, FV_JOIN_WELCOME, &j->said, proof));
    w.report_ms = m->opt.report_ms;
    w.silence_ms = m->opt.silence_ms;
    w.renew_ms = m->opt.renew_ms;
    w.proof = (ProtobufCBinaryData){sizeof proof, proof};
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_WELCOME;
    cmd.welcome = &w;
    return fv_rpc_call_send(j->call, &cmd.base);
}

/* Finds the member that is the same process on an earlier connection; NULL: the worker is new. */
static fv_registered_worker *same_process(const fv_registry *m, const fv_introduction *in) {
    fv_registered_worker *w = fv_registry_find(m, in->name);
    bool same = w && w->join && w->role == in->role &&
                strcmp(w->intro->address, in->address) == 0 &&
                memcmp(w->intro->incarnation.data, in->incarnation.data, FV_INCARNATION_BYTES) == 0;
    return same ? w : NULL;
}

/* Moves the membership of w to this call; nothing else changes. */
static fv_status move_membership(fv_join *j, fv_registered_worker *w, const report_message *r) {
    FV_TRY(welcome(j));
    fv_join *old = w->join;
    w->join = j;
    j->worker = w;
    finish(old, FV_OK);
    fv_registered_worker_keep_report(w, r);
    FV_LOG(INFO, ROUTER, "worker=%s event=joined-again", w->intro->name);
    return FV_OK;
}

/* Admits w as a new member; `r` is in w's arena. */
static fv_status admit(fv_join *j, fv_registered_worker *w, const report_message *r) {
    fv_registry *m = j->members;
    const fv_introduction *in = r->introduction;
    FV_TRY(check_introduction(in));
    FV_TRY(check_name(j, in));
    FV_TRY(fv_fleet_find_or_open(m, in, &w->fleet));
    fv_rpc_channel_options to = {.tls = m->opt.tls, .server_name = fv_role_name(role_of(in))};
    if (!to.tls) to.server_name = NULL;
    FV_TRY(fv_rpc_channel_open(m->opt.bridge, in->address, &to, &w->channel));
    FV_TRY(welcome(j));
    w->intro = in;
    w->role = in->role;
    w->join = j;
    j->worker = w;
    fv_registry_add(w, r);
    return FV_OK;
}

static fv_status introduce(fv_join *j, grpc_byte_buffer *message) {
    ProtobufCMessage *p;
    fv_registered_worker *w = calloc(1, sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "no memory for another worker");
    fv_status st =
        fv_rpc_unpack(&fovea__fleet__v1__worker_report__descriptor, message, &w->arena, &p);
    if (st != FV_OK || !proves(j, ((const report_message *)p)->introduction)) {
        refuse(j, "its introduction has no valid proof");
        fv_registered_worker_free(w);
        return FV_OK;
    }
    leave_unproven(j);
    j->proven = true;
    const report_message *r = (const report_message *)p;
    fv_registered_worker *member = same_process(j->members, r->introduction);
    st = member ? move_membership(j, member, r) : admit(j, w, r);
    memset(&j->said, 0, sizeof j->said); /* points into the message */
    if (st == FV_OK) {
        if (member) fv_registered_worker_free(w);
        return FV_OK;
    }
    FV_LOG(WARN, ROUTER, "peer=%s event=join-refused reason=\"%s\"", fv_rpc_call_peer(j->call),
           fv_last_error());
    fv_registered_worker_free(w);
    return st;
}

/* ---- the call --------------------------------------------------------------------------- */

static fv_status on_report(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_join *j = fv_rpc_call_user(c);
    fv_registry *m = j->members;
    ProtobufCMessage *p;
    if (m->stopping || j->finished) return FV_OK;
    if (j->challenged && !j->proven) {
        FV_TRY(introduce(j, message));
        if (j->worker) m->opt.on_change(m->opt.user);
        return FV_OK;
    }
    fv_status st = fv_rpc_call_unpack(c, &fovea__fleet__v1__worker_report__descriptor, message, &p);
    const report_message *r = (const report_message *)p;
    if (!j->proven) {
        if (st == FV_OK) return challenge(j, r);
        refuse(j, "its first message is not Hello");
        return FV_OK;
    }
    FV_TRY(st);
    if (!j->worker) return FV_OK;
    if (r->introduction)
        return FV_FAIL(FV_EINVAL, "worker %s introduced itself twice", j->worker->intro->name);
    if (m->opt.on_report) m->opt.on_report(m->opt.user, j->worker, r);
    fv_registered_worker_keep_report(j->worker, r);
    m->opt.on_change(m->opt.user);
    return FV_OK;
}

static fv_status on_leave(fv_rpc_call *c) {
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_join *j = fv_rpc_call_user(c);
    if (!j) return;
    fv_registered_worker *w = j->worker;
    leave_unproven(j);
    j->worker = NULL;
    if (w && !j->members->stopping)
        fv_registry_remove(j->members, w, *end->text ? end->text : "its connection has ended");
}

void fv_registry_farewell(fv_registry *m) {
    Fovea__Fleet__V1__Farewell f = FOVEA__FLEET__V1__FAREWELL__INIT;
    command_message cmd = FOVEA__FLEET__V1__COMMAND__INIT;
    cmd.command_case = FOVEA__FLEET__V1__COMMAND__COMMAND_FAREWELL;
    cmd.farewell = &f;
    for (fv_registered_worker *w = fv_registry_first(m); w; w = fv_registry_next(w))
        if (w->join && fv_rpc_call_send(w->join->call, &cmd.base) != FV_OK)
            FV_LOG(WARN, ROUTER, "worker=%s event=farewell-failed reason=\"%s\"", w->intro->name,
                   fv_last_error());
}

static void end_if_silent(fv_registry *m, fv_registered_worker *w, double now_s) {
    char why[256];
    double silent_s = now_s - w->reported_s;
    if (w->state == FV_WORKER_LOST || silent_s * 1000 <= m->opt.silence_ms) return;
    fv_status st = FV_FAIL(FV_EIO, "worker %s was silent for %.1f s", w->intro->name, silent_s);
    snprintf(why, sizeof why, "%s", fv_last_error());
    finish(w->join, st);
    fv_registry_remove(m, w, why);
}

void fv_registry_tick(fv_registry *m, double now_s) {
    if (m->stopping) return;
    for (fv_join *j = m->unproven, *next; j; j = next) {
        next = j->next;
        if (now_s - j->began_s > UNPROVEN_S) refuse(j, "it did not prove membership in time");
    }
    for (fv_registered_worker *w = fv_registry_first(m), *next; w; w = next) {
        next = fv_registry_next(w);
        end_if_silent(m, w, now_s);
    }
    fv_registry_forget(m, now_s);
}

static void on_stop(void *state) {
    fv_registry *m = state;
    while (m->unproven) {
        fv_join *j = m->unproven;
        leave_unproven(j);
        finish(j, FV_FAIL(FV_EIO, "the router is shutting down"));
    }
    for (fv_registered_worker *w = fv_registry_first(m); w; w = fv_registry_next(w))
        if (w->join) finish(w->join, FV_FAIL(FV_EIO, "the router is shutting down"));
    fv_registry_freeze(m);
}

fv_rpc_service fv_registry_service(fv_registry *m) {
    static const fv_rpc_method methods[] = {
        {.path = "/fovea.fleet.v1.Fleet/Join",
         .peers = FV_MEMBER_PREFILL | FV_MEMBER_DECODE,
         .kind = FV_RPC_BIDI,
         .message_max = 256 << 10,
         .calls_max = 4096,
         .events = {.on_start = on_start,
                    .on_message = on_report,
                    .on_half_close = on_leave,
                    .on_end = on_end}},
    };
    return (fv_rpc_service){methods, 1, m, on_stop};
}
