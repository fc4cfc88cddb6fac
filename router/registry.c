/* The list of workers: their reports, their state, and their end. router/join.c adds them.
 * Loop thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "router/registry_internal.h"

enum {
    FORGET_S = 60,         /* how long a lost worker is still shown */
    FOREIGN_MAX = 1 << 20, /* a worker may report any number */
};

typedef Fovea__Fleet__V1__WorkerReport report_message;

/* ---- states ----------------------------------------------------------------------------- */

const fv_state_change fv_worker_changes[FV_N_WORKER_CHANGE] = {
    {FV_WORKER_READY, FV_WORKER_UNHEALTHY, "fv_registered_worker_keep_report"},
    {FV_WORKER_READY, FV_WORKER_UNHEALTHY, "fv_registered_worker_mark_hung"},
    {FV_WORKER_UNHEALTHY, FV_WORKER_READY, "fv_registered_worker_keep_report"},
    {FV_WORKER_READY, FV_WORKER_DRAINING, "fv_registered_worker_keep_report"},
    {FV_WORKER_UNHEALTHY, FV_WORKER_DRAINING, "fv_registered_worker_keep_report"},
    {FV_WORKER_READY, FV_WORKER_LOST, "fv_registry_remove"},
    {FV_WORKER_UNHEALTHY, FV_WORKER_LOST, "fv_registry_remove"},
};

const char *fv_worker_state_name(Fovea__Inference__V1__WorkerState s) {
    return protobuf_c_enum_descriptor_get_value(&fovea__inference__v1__worker_state__descriptor,
                                                (int)s)
               ->name +
           strlen("WORKER_STATE_");
}

void fv_registered_worker_set_state(fv_registered_worker *w, Fovea__Inference__V1__WorkerState to,
                                    const char *by) {
    if (w->state == to) return;
    FV_LOG(DEBUG, ROUTER, "worker=%s event=state from=%s to=%s by=%s", w->intro->name,
           fv_worker_state_name(w->state), fv_worker_state_name(to), by);
    assert(
        fv_state_change_is_in(fv_worker_changes, FV_N_WORKER_CHANGE, (int)w->state, (int)to, by));
    w->state = to;
}

void fv_registered_worker_mark_hung(fv_registered_worker *w) {
    w->hung = true;
    if (w->state != FV_WORKER_DRAINING)
        fv_registered_worker_set_state(w, FV_WORKER_UNHEALTHY, __func__);
}

/* ---- leaving ---------------------------------------------------------------------------- */

void fv_registered_worker_free(fv_registered_worker *w) {
    fv_rpc_channel_close(w->channel);
    fv_arena_fini(&w->arena);
    free(w);
}

static void forget(fv_registered_worker *w) {
    fv_registered_worker **at = &w->fleet->first;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    fv_fleet_index(w->fleet);
    fv_registered_worker_free(w);
}

void fv_registry_remove(fv_registry *m, fv_registered_worker *w, const char *why) {
    bool left = w->state == FV_WORKER_DRAINING;
    FV_LOG(WARN, ROUTER, "worker=%s event=%s reason=\"%s\"", w->intro->name, left ? "left" : "lost",
           why);
    if (!left) fv_registered_worker_set_state(w, FV_WORKER_LOST, __func__);
    w->reported_s = fv_clock_s();
    w->join = NULL;
    m->opt.on_gone(m->opt.user, w);
    fv_rpc_channel_close(w->channel);
    w->channel = NULL;
    if (left) forget(w);
}

/* ---- joining ---------------------------------------------------------------------------- */

void fv_registered_worker_keep_report(fv_registered_worker *w, const report_message *r) {
    w->reported_s = fv_clock_s();
    w->out_of_memory = false;
    w->ahead_ms = (double)r->clock_ms - 1e3 * w->reported_s;
    if (r->load) {
        w->load = *r->load;
        /* Unknown fields, of a later version, point into the report, which is freed. */
        w->load.base.n_unknown_fields = 0;
        w->load.base.unknown_fields = NULL;
        int64_t n = (int64_t)w->load.n_running + w->load.n_queued - w->n_taken;
        w->n_foreign = n < 0 ? 0 : n > FOREIGN_MAX ? FOREIGN_MAX : (int32_t)n;
    }
    w->reports_unhealthy = r->unhealthy;
    Fovea__Inference__V1__WorkerState to =
        r->unhealthy || w->hung ? FV_WORKER_UNHEALTHY : FV_WORKER_READY;
    if (r->draining || w->state == FV_WORKER_DRAINING) to = FV_WORKER_DRAINING;
    if (to != w->state && (to == FV_WORKER_UNHEALTHY || w->state == FV_WORKER_UNHEALTHY))
        FV_LOG(WARN, ROUTER, "worker=%s event=%s", w->intro->name,
               to == FV_WORKER_UNHEALTHY ? "unhealthy" : "healthy");
    fv_registered_worker_set_state(w, to, __func__);
}

fv_registered_worker *fv_registry_find(const fv_registry *m, const char *name) {
    fv_registered_worker *w = fv_registry_first(m);
    while (w && strcmp(w->intro->name, name) != 0) w = fv_registry_next(w);
    return w;
}

bool fv_registry_name_is_free(fv_registry *m, const char *name) {
    fv_registered_worker *w = fv_registry_find(m, name);
    if (!w) return true;
    if (w->state != FV_WORKER_LOST) return false;
    forget(w);
    return true;
}

void fv_registry_add(fv_registered_worker *w, const report_message *r) {
    uint64_t seed = 0;
    (void)fv_random_bytes(&seed, sizeof seed); /* for the jitter of the breaker's rests only */
    fv_breaker_init(&w->breaker, seed);
    fovea__inference__v1__load__init(&w->load);
    w->state = FV_WORKER_READY;
    fv_registered_worker_keep_report(w, r);
    fv_registered_worker **tail = &w->fleet->first;
    while (*tail) tail = &(*tail)->next;
    *tail = w;
    fv_fleet_index(w->fleet);
    FV_LOG(INFO, ROUTER, "worker=%s event=joined role=%s address=%s model=%s zone=%s",
           w->intro->name, w->role == FV_WORKER_PREFILL ? "prefill" : "decode", w->intro->address,
           w->intro->model->name, w->intro->zone);
}

/* A stopping router finishes its requests with the members it has. */
void fv_registry_freeze(fv_registry *m) {
    m->stopping = true;
    for (fv_registered_worker *w = fv_registry_first(m); w; w = fv_registry_next(w)) w->join = NULL;
}

/* ---- tokens ----------------------------------------------------------------------------- */

fv_status fv_registry_token(const fv_registry *m, const fv_registered_worker *w, const char *method,
                            const char *request_id, const char *address, uint32_t valid_ms,
                            char out[FV_CALL_TOKEN_MAX]) {
    if (m->opt.tls) {
        out[0] = '\0';
        return FV_OK;
    }
    double now_ms = 1e3 * fv_clock_s() + w->ahead_ms; /* by the worker's clock */
    fv_call_to to = {method, w->intro->name, w->intro->incarnation.data};
    fv_call_token t = {.made_ms = now_ms > 0 ? (uint64_t)now_ms : 0, .valid_ms = valid_ms};
    if ((size_t)snprintf(t.request_id, sizeof t.request_id, "%s", request_id) >=
            sizeof t.request_id ||
        (size_t)snprintf(t.address, sizeof t.address, "%s", address) >= sizeof t.address)
        return FV_FAIL(FV_EINVAL, "a request id of %zu characters is too long", strlen(request_id));
    return fv_call_token_write(&m->call_key, &to, &t, out);
}

/* ---- the rest --------------------------------------------------------------------------- */

void fv_registry_forget(fv_registry *m, double now_s) {
    for (fv_registered_worker *w = fv_registry_first(m), *next; w; w = next) {
        next = fv_registry_next(w);
        if (w->state == FV_WORKER_LOST && now_s - w->reported_s > FORGET_S) forget(w);
    }
    fv_fleets_tick(m);
}

fv_status fv_registry_open(const fv_registry_options *opt, fv_registry **out) {
    fv_registry *m = calloc(1, sizeof *m);
    if (!m) return FV_FAIL(FV_ENOMEM, "no memory for the fleet");
    m->opt = *opt;
    fv_status st = fv_join_key(&opt->fleet, &m->join_key);
    if (st == FV_OK) st = fv_call_key(&opt->fleet, &m->call_key);
    if (st != FV_OK) {
        free(m);
        return st;
    }
    *out = m;
    return FV_OK;
}

void fv_registry_close(fv_registry *m) {
    if (!m) return;
    for (fv_registered_worker *w; (w = fv_registry_first(m));) forget(w);
    fv_fleets_close(m);
    free(m);
}
