/* Metrics of the router. Loop thread. */
#include "router/record.h"

#include "policy/policy.h"

typedef Fovea__Inference__V1__Report report_message;

void fv_record_tokens(uint32_t n, bool first, double seconds, const fv_trace_context *trace) {
    fv_metric_add(FV_METRIC_GENERATION_TOKENS, 0, n);
    if (first)
        fv_metric_observe(FV_METRIC_TTFT, 0, seconds, trace);
    else /* spreads the time evenly over tokens that came together */
        fv_metric_observe_n(FV_METRIC_ITL, 0, seconds / n, n);
}

static void record_policy(const report_message *report) {
    int32_t preset = fv_policy_preset_of(report->policy);
    uint64_t sent = report->transfer ? report->transfer->bytes_sent : 0;
    fv_metric_add(FV_METRIC_POLICY, preset, 1);
    fv_metric_add(FV_METRIC_KV_RAW, preset, (double)report->bytes_raw);
    fv_metric_add(FV_METRIC_KV_GRANTED, preset, (double)report->bytes_bound);
    fv_metric_add(FV_METRIC_KV_HELD, preset, (double)(report->bytes_visual + report->bytes_text));
    fv_metric_add(FV_METRIC_KV_SENT, preset, (double)sent);
    fv_metric_add(FV_METRIC_KV_END, preset,
                  (double)(report->bytes_visual_end + report->bytes_text_end));
}

void fv_record_answer(const fv_answer_times *t, const report_message *report,
                      bool continues_conversation, const fv_trace_context *trace) {
    if (t->n_token > 1)
        fv_metric_observe(FV_METRIC_TPOT, 0, (t->end_s - t->first_s) / (t->n_token - 1), trace);
    fv_metric_observe(FV_METRIC_E2E, 0, t->end_s, trace);
    fv_metric_observe(FV_METRIC_QUEUE, 0, t->start_s, trace);
    fv_metric_add(FV_METRIC_PROMPT_TOKENS, 0, report->n_prompt);
    fv_metric_add(FV_METRIC_VISUAL_TOKENS, 0, report->n_visual);
    fv_metric_add(FV_METRIC_FOLLOW_UPS, 0, continues_conversation);
    record_policy(report);
}

void fv_record_end(const fv_rpc_end *end) { fv_metric_add(FV_METRIC_REQUESTS, end->code, 1); }

fv_status fv_record_refusal(int32_t reason, fv_status st) {
    if (st != FV_OK) fv_metric_add(FV_METRIC_REFUSED, reason, 1);
    return st;
}

fv_status fv_record_invalid(fv_status st) {
    return fv_record_refusal(st == FV_EUNSUPPORTED ? FV_REASON_UNSUPPORTED
                             : st == FV_ENOTFOUND  ? FV_REASON_NOT_FOUND
                                                   : FV_REASON_INVALID,
                             st);
}

/* ---- what is kept ------------------------------------------------------------------------- */

void fv_record_routed(int32_t outcome) { fv_metric_add(FV_METRIC_HINTED, outcome, 1); }

void fv_record_hint(bool wrong) { fv_metric_add(FV_METRIC_HINTS_WRONG, 0, wrong); }

void fv_record_hints(size_t n) { fv_metric_set(FV_METRIC_HINTS, 0, (double)n); }

/* ---- state ------------------------------------------------------------------------------ */

static int32_t state_of(const fv_registered_worker *w) {
    switch (w->state) {
    case FV_WORKER_READY: return FV_STATE_READY;
    case FV_WORKER_DRAINING: return FV_STATE_DRAINING;
    case FV_WORKER_LOST: return FV_STATE_LOST;
    default: return FV_STATE_UNHEALTHY;
    }
}

static int32_t breaker_of(const fv_registered_worker *w, double now_s) {
    if (w->breaker.trial) return FV_BREAKER_TRIAL;
    return fv_breaker_rest_s(&w->breaker, now_s) > 0 ? FV_BREAKER_OPEN : FV_BREAKER_CLOSED;
}

void fv_record_state(int32_t n_queued, int32_t n_running, const fv_registry *members,
                     double now_s) {
    int32_t state[2][4] = {0}, breaker[2][3] = {0};
    uint64_t used = 0, capacity = 0;
    const fv_registered_worker *w = fv_registry_first(members);
    for (; w; w = fv_registry_next(w)) {
        bool decode = w->role == FV_WORKER_DECODE;
        int32_t role = decode ? FV_ROLE_DECODE : FV_ROLE_PREFILL, at = state_of(w);
        state[role][at]++;
        breaker[role][breaker_of(w, now_s)]++;
        if (!decode || at != FV_STATE_READY || !w->load.bytes_capacity) continue;
        used += w->load.bytes_held + w->load.bytes_granted;
        capacity += w->load.bytes_capacity;
    }
    for (int32_t role = 0; role < 2; role++) {
        for (int32_t i = 0; i < 4; i++)
            fv_metric_set(FV_METRIC_FLEET, fv_metric_series(FV_METRIC_FLEET, role, i),
                          state[role][i]);
        for (int32_t i = 0; i < 3; i++)
            fv_metric_set(FV_METRIC_BREAKERS, fv_metric_series(FV_METRIC_BREAKERS, role, i),
                          breaker[role][i]);
    }
    fv_metric_set(FV_METRIC_WAITING, 0, n_queued);
    fv_metric_set(FV_METRIC_RUNNING, 0, n_running);
    fv_metric_set(FV_METRIC_KV_USAGE, 0, capacity ? (double)used / (double)capacity : 0);
}
