/* The list of requests and the table of their states. The files above change a request's state through
 * router/life.h. Loop thread. */
#include "router/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

/* ---- states ----------------------------------------------------------------------------- */

const fv_state_change fv_request_changes[FV_N_REQUEST_CHANGE] = {
    {FV_REQUEST_NEW, FV_REQUEST_QUEUED, "fv_request_enqueue"},
    {FV_REQUEST_NEW, FV_REQUEST_OVER, "fv_request_end"},
    {FV_REQUEST_QUEUED, FV_REQUEST_RUNNING, "fv_request_start"},
    {FV_REQUEST_QUEUED, FV_REQUEST_OVER, "fv_request_end"},
    {FV_REQUEST_RUNNING, FV_REQUEST_QUEUED, "fv_request_requeue"},
    {FV_REQUEST_RUNNING, FV_REQUEST_OVER, "fv_request_end"},
};

const char *fv_request_state_name(fv_request_state s) {
    static const char *const names[] = {"NEW", "QUEUED", "RUNNING", "OVER"};
    return names[s];
}

/* Counts a request that enters the queue (by = 1) or leaves it (-1). */
static void count_queued(fv_request *r, int32_t by) {
    r->relay->n_queued += by;
    r->fleet->n_queued += by;
    r->sharer->n_queued += by;
    if (by > 0)
        r->sharer->bytes_queued += r->bytes;
    else
        r->sharer->bytes_queued -= r->bytes;
    if (r->msg->conversation.len) return;
    r->fleet->queued.prompt += (uint64_t)by * r->work.prompt;
    r->fleet->queued.answer += (uint64_t)by * r->work.answer;
    r->fleet->queued.pixels += (uint64_t)by * r->work.pixels;
}

static void count_running(fv_request *r, int32_t by) {
    r->relay->n_running += by;
    r->fleet->n_running += by;
}

void fv_request_set_state(fv_request *r, fv_request_state to, const char *by) {
    fv_request_state from = r->state;
    assert(fv_state_change_is_in(fv_request_changes, FV_N_REQUEST_CHANGE, from, to, by));
    assert((to == FV_REQUEST_RUNNING) == (r->attempt != NULL));
    double now_s = fv_clock_s();
    FV_LOG(DEBUG, ROUTER, "event=state from=%s to=%s by=%s req?=%s", fv_request_state_name(from),
           fv_request_state_name(to), by, r->id);
    if (from == FV_REQUEST_QUEUED) {
        count_queued(r, -1);
        fv_span_stage(&r->span, "queue", r->queued_s, now_s, NULL, 0);
    }
    if (from == FV_REQUEST_RUNNING) count_running(r, -1);
    if (to == FV_REQUEST_RUNNING) count_running(r, 1);
    if (to == FV_REQUEST_QUEUED) {
        count_queued(r, 1);
        r->queued_s = now_s;
    }
    r->state = to;
}

bool fv_request_is_active(const fv_request *r) {
    return r->state == FV_REQUEST_QUEUED || r->state == FV_REQUEST_RUNNING;
}

void fv_request_set_fleet(fv_request *r, fv_fleet *f, const fv_request_bounds *need,
                          const fv_work *work) {
    bool queued = r->state == FV_REQUEST_QUEUED;
    if (queued) count_queued(r, -1);
    if (r->fleet) r->fleet->n_request--;
    f->n_request++;
    r->fleet = f;
    r->need = *need;
    r->work = *work;
    if (queued) count_queued(r, 1);
}

/* ---- the list --------------------------------------------------------------------------- */

/* Inserts before *at. */
static void link_at(fv_relay *relay, fv_request **at, fv_request *r) {
    r->next = *at;
    *at = r;
    if (!r->next) relay->tail = &r->next;
}

static void unlink_at(fv_relay *relay, fv_request **at) {
    *at = (*at)->next;
    if (!*at) relay->tail = at;
}

fv_status fv_request_open(fv_relay *relay, fv_rpc_call *client, fv_tenant_use *tenant,
                          fv_account *sharer, fv_request **out) {
    fv_request *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory for another request");
    fv_status st = fv_tenancy_begin(tenant, FV_TENANT_REQUEST, client);
    if (st != FV_OK) {
        free(r);
        return st;
    }
    r->tenant = tenant;
    r->sharer = sharer;
    r->relay = relay;
    r->client = client;
    r->arrived_s = r->taken_over_s = fv_clock_s();
    link_at(relay, relay->tail, r);
    relay->n_alive++;
    *out = r;
    return FV_OK;
}

static void request_free(fv_request *r) {
    fv_tenancy_end(r->tenant, FV_TENANT_REQUEST);
    fv_account_give(r->sharer);
    if (r->fleet) r->fleet->n_request--;
    r->relay->bytes -= r->bytes;
    r->relay->n_alive--;
    free(r->id_of);
    free(r->digest_of);
    fv_arena_fini(&r->arena);
    free(r);
}

void fv_requests_free_over(fv_relay *relay) {
    for (fv_request **at = &relay->first; relay->n_ended > 0;) {
        fv_request *r = *at;
        if (r->client || r->naming) {
            at = &r->next;
            continue;
        }
        assert(r->state == FV_REQUEST_OVER);
        unlink_at(relay, at);
        relay->n_ended--;
        request_free(r);
    }
}

void fv_request_move(fv_request *r, const fv_request *next) {
    fv_request **at = &r->relay->first;
    while (*at != r) at = &(*at)->next;
    unlink_at(r->relay, at);
    for (at = &r->relay->first; *at != next;) at = &(*at)->next;
    link_at(r->relay, at, r);
}

fv_request *fv_request_find(const fv_relay *relay, const fv_tenant_use *tenant, const char *id) {
    fv_request *r = relay->first;
    while (r && (!fv_request_is_active(r) || r->tenant != tenant || strcmp(r->id, id) != 0))
        r = r->next;
    return r;
}

/* ---- deadlines -------------------------------------------------------------------------- */

bool fv_request_reserves_all(const fv_request *r) {
    return r->msg->ignore_eos || r->msg->conversation.len > 0 ||
           r->n_preempted >= FV_REQUEST_PREEMPTIONS;
}

double fv_request_left_ms(const fv_request *r, double now_s) {
    double own = (double)r->relay->opt.deadline_ms - 1e3 * (now_s - r->arrived_s);
    double clients = (double)fv_rpc_call_left_ms(r->client);
    return own < clients ? own : clients;
}

fv_status fv_request_timed_out(const fv_request *r, double now_s) {
    double s = now_s - r->arrived_s;
    if (r->state == FV_REQUEST_QUEUED && r->n_token == 0)
        return FV_FAIL(FV_EDEADLINE, "the fleet had no free memory for %.1f s; try again later", s);
    return FV_FAIL(FV_EDEADLINE,
                   "the answer was not complete after %.1f s: ask for fewer tokens, or start the "
                   "router with a larger --deadline-ms",
                   s);
}
