/* Opens and closes the worker, and runs the regular work of its computing thread: between the services'
 * jobs, the thread advances all answers by one step and expires leases. */
#include "decode-worker/service/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/heap.h"
#include "common/log.h"
#include "decode-worker/service/internal.h"
#include "decode-worker/service/probe.h"

fv_decode_options fv_decode_options_default(void) {
    enum { FIRST_S = 5 }; /* Push opens as soon as there is a grant */
    fv_decode_options o = (fv_decode_options){.name = "",
                                              .kv_dtype = FV_F32,
                                              .batch_max = 64,
                                              .prompt_tokens = 256,
                                              .rest_most = 256,
                                              .queue_max = 256,
                                              .keep_s_max = 600,
                                              .speculate = true,
                                              .probe_s = 5,
                                              .pairs_most = 8,
                                              .waiting_max = 256,
                                              .wait_s_max = 30,
                                              .behind_s = 5,
                                              .grants = fv_grants_options_default()};
    o.grants.first_s = FIRST_S;
    return o;
}

/* ---- shared by the services ------------------------------------------------------------- */

fv_status fv_ticket_read(const ProtobufCBinaryData *id, uint64_t epoch, fv_ticket *out) {
    if (id->len != sizeof out->id)
        return FV_FAIL(FV_EINVAL, "ticket.id has %zu bytes; it must have %zu", id->len,
                       sizeof out->id);
    memcpy(out->id, id->data, sizeof out->id);
    out->epoch = epoch;
    return FV_OK;
}

fv_verdict fv_verdict_take(fv_status st, fv_refusal refusal) {
    fv_verdict v = {.refusal = refusal};
    fv_error_take(&v.fault, st);
    return v;
}

fv_verdict fv_verdict_of(fv_status st) {
    fv_refusal why = fv_refusal_of(st);
    return fv_verdict_take(fv_refusal_status(why), why);
}

void fv_verdict_finish(const fv_verdict *v, fv_rpc_call *call) {
    if (v->refusal != FV_REFUSED_NONE)
        fv_rpc_call_trailer(call, FV_REFUSAL_KEY, fv_refusal_name(v->refusal));
    fv_rpc_call_finish(call, fv_error_raise(&v->fault));
}

/* ---- the computing thread --------------------------------------------------------------- */

static void on_changed(fv_rpc_op *op, bool ok) {
    fv_decode_worker *w = op->owner;
    (void)ok;
    atomic_store(&w->changing, false);
    if (!w->closed) w->opt.on_change(w->opt.user);
}

/* Calls on_change if the load has changed, so that routers hear of it before the next report is due. */
static void tell_change(fv_decode_worker *w, uint64_t used) {
    uint64_t before = atomic_load(&w->load.bytes_granted) + atomic_load(&w->load.bytes_held);
    bool same = used == before && w->opens.bytes == atomic_load(&w->load.bytes_waiting) &&
                (unsigned)fv_scheduler_unread(w->answers) == atomic_load(&w->load.n_unread);
    if (same || !w->opt.on_change || atomic_exchange(&w->changing, true)) return;
    w->changed = (fv_rpc_op){.done = on_changed, .owner = w};
    fv_bridge_post(w->bridge, &w->changed, true);
}

static void note_load(fv_decode_worker *w) {
    uint64_t idle = fv_kv_pool_idle(w->pool), used = fv_kv_pool_used(w->pool) - idle;
    uint64_t granted = fv_receiver_granted(w->receiver);
    if (granted > used) granted = used; /* a grant counts headers too */
    tell_change(w, used);
    atomic_store(&w->load.bytes_granted, granted);
    atomic_store(&w->load.bytes_held, used - granted);
    atomic_store(&w->load.bytes_waiting, w->opens.bytes);
    atomic_store(&w->load.n_waiting, (unsigned)w->opens.n);
    atomic_store(&w->load.bytes_kept, fv_conversations_bytes(w->conversations));
    atomic_store(&w->load.n_kept, (unsigned)fv_conversations_kept(w->conversations));
    atomic_store(&w->load.n_running,
                 (unsigned)(fv_scheduler_count(w->answers, FV_ANSWER_RUNNING) +
                            fv_scheduler_count(w->answers, FV_ANSWER_FINALIZING)));
    atomic_store(&w->load.n_queued,
                 (unsigned)(fv_scheduler_count(w->answers, FV_ANSWER_WAITING) +
                            fv_scheduler_count(w->answers, FV_ANSWER_READY) +
                            fv_scheduler_count(w->answers, FV_ANSWER_PAUSED) + w->opens.n));
    atomic_store(&w->load.n_paused, (unsigned)fv_scheduler_count(w->answers, FV_ANSWER_PAUSED));
    atomic_store(&w->load.n_unread, (unsigned)fv_scheduler_unread(w->answers));
    atomic_store(&w->load.n_preempted, fv_scheduler_preempted(w->answers));
    fv_prefixes_counters prefixes = fv_prefixes_count(w->prefixes);
    atomic_store(&w->load.n_prefixes, (unsigned)prefixes.n_now);
    atomic_store(&w->load.bytes_prefixes, prefixes.bytes_now);
    atomic_store(&w->load.bytes_prefixes_idle, idle);
    atomic_store(&w->load.n_prefixes_given_up, prefixes.n_given_up);
}

static void note_growth(fv_decode_worker *w) {
    atomic_store(&w->growth.n_preempted, fv_scheduler_preempted_for_memory(w->answers));
    if (w->opens.lengths)
        atomic_store(&w->growth.tokens_expected, (unsigned)fv_lengths_expect(w->lengths, "", 0));
}

/* Ends granting at the first moment at which a leaving worker has nothing in hand. Both happen here, on the thread
 * that grants: no grant is made after the loop thread has seen that the worker is idle. */
static void maybe_idle(fv_decode_worker *w) {
    if (!w->leaving || atomic_load(&w->is_idle)) return;
    fv_prefixes_drop(w->prefixes, true);
    if (fv_kv_pool_used(w->pool) > 0 || fv_receiver_live(w->receiver) > 0) return;
    for (int p = FV_ANSWER_NONE + 1; p <= FV_ANSWER_FINALIZING; p++)
        if (fv_scheduler_count(w->answers, (fv_answer_phase)p) > 0) return;
    fv_opens_end(&w->opens);
    atomic_store(&w->is_idle, true);
}

/* Publishes the counters for other threads. Each is exact, but they are not of one moment. */
static void note_handoffs(fv_decode_worker *w) {
    uint64_t count[FV_N_HANDOFF_COUNT];
    memcpy(count, fv_receiver_get_counters(w->receiver), sizeof count);
    for (int i = 0; i < FV_N_HANDOFF_COUNT; i++) atomic_store(&w->handoffs[i], count[i]);
}

fv_receiver_counters fv_decode_worker_handoffs(const fv_decode_worker *w) {
    uint64_t count[FV_N_HANDOFF_COUNT];
    fv_receiver_counters out;
    for (int i = 0; i < FV_N_HANDOFF_COUNT; i++) count[i] = atomic_load(&w->handoffs[i]);
    memcpy(&out, count, sizeof out);
    return out;
}

/* Runs one step of all running answers; true: there is more to do. A token of any answer is a sign of life. */
static bool step(fv_decode_worker *w) {
    uint64_t tokens = atomic_load(&w->load.tokens_out), failed = atomic_load(&w->load.n_failed);
    bool more = fv_scheduler_step(w->answers);
    if (atomic_load(&w->load.tokens_out) != tokens) {
        atomic_fetch_add(&w->n_good, 1);
        fv_probe_clock_reset(&w->probe, fv_clock_s());
    } else if (atomic_load(&w->load.n_failed) != failed) {
        atomic_fetch_add(&w->n_bad, 1);
    }
    return more;
}

static void probe(fv_decode_worker *w) {
    fv_status st = fv_probe(w->opt.engine, w->probe_pool, fv_scheduler_batch(w->answers));
    atomic_fetch_add(st == FV_OK ? &w->n_good : &w->n_bad, 1);
    fv_probe_clock_reset(&w->probe, fv_clock_s());
    if (st == FV_OK)
        FV_LOG(DEBUG, DECODE, "event=probe");
    else
        FV_LOG(WARN, DECODE, "event=probe-failed reason=\"%s\"", fv_last_error());
}

/* Frees unused KV memory; returns in how many seconds there may be more. */
static double trim(fv_decode_worker *w) {
    size_t freed;
    double again_s = fv_kv_pool_trim(w->pool, fv_clock_s(), &freed);
    if (freed >= FV_HEAP_SPARE_BYTES) fv_heap_give_back();
    return again_s;
}

/* Has answers looked at again whose hand-off has expired; other calls than fv_receiver_expire end some, too. */
static bool tell_of_expired(fv_decode_worker *w) {
    const uint64_t n = fv_receiver_get_counters(w->receiver)->expired;
    if (n == w->n_expired) return false;
    w->n_expired = n;
    fv_scheduler_changed(w->answers);
    return true;
}

static double work(void *user) {
    fv_decode_worker *w = user;
    (void)fv_receiver_expire(w->receiver);
    tell_of_expired(w);
    fv_conversations_expire(w->conversations);
    bool more = step(w);
    w->opens.shut = fv_scheduler_is_short(w->answers);
    fv_opens_look(&w->opens);
    double trim_s = trim(w);
    note_load(w);
    note_growth(w);
    note_handoffs(w);
    maybe_idle(w);
    if (tell_of_expired(w) || more) return 0;
    if (fv_probe_due_in(&w->probe, fv_clock_s()) == 0) probe(w);
    double next = fmin(fv_receiver_next_deadline(w->receiver) - fv_receiver_now(w->receiver),
                       fv_conversations_next_s(w->conversations));
    next = fmin(next, fv_probe_due_in(&w->probe, fv_clock_s()));
    next = fmin(next, fv_opens_next_s(&w->opens));
    next = fmin(next, trim_s);
    return next == HUGE_VAL ? -1 : fmax(next, 1e-3);
}

static void run_drain(fv_job *job) {
    fv_decode_worker *w = job->owner;
    w->leaving = true;
    fv_conversations_stop(w->conversations);
    fv_prefixes_drop(w->prefixes, true);
    fv_opens_refuse(&w->opens);
}

/* ---- open and close --------------------------------------------------------------------- */

static void free_worker(fv_decode_worker *w) {
    fv_forms_close(w->forms);
    fv_scheduler_close(w->answers);
    fv_worker_draft_close(&w->draft);
    fv_pulse_close(w->pulse);
    fv_conversations_close(w->conversations);
    fv_lengths_close(w->lengths);
    fv_receiver_close(w->receiver);
    fv_prefixes_close(w->prefixes);
    fv_kept_log_close(w->kept);
    fv_kv_pool_close(w->pool);
    fv_kv_pool_close(w->probe_pool);
    free(w);
}

static fv_status open_stages(fv_decode_worker *w) {
    const fv_engine *e = w->opt.engine;
    fv_kv_shape shape = fv_engine_kv_shape(e, w->opt.kv_dtype);
    const fv_text_config *text = &fv_checkpoint_config(e->ck)->text;
    fv_probe_clock_init(&w->probe, w->opt.probe_s);
    FV_TRY(fv_kv_pool_open(e->be.device, &shape, w->opt.kv_bytes, &w->pool));
    FV_TRY(fv_kv_pool_open(e->be.device, &shape, 0, &w->probe_pool));
    FV_TRY(fv_kept_log_open(FV_KEPT_LOG_MAX, &w->kept));
    fv_prefixes_options prefixes = {.pool = w->pool,
                                    .bytes_max = w->opt.prefix_bytes,
                                    .owner_max = w->opt.prefix_bytes / 2,
                                    .log = w->kept};
    FV_TRY(fv_prefixes_open(&prefixes, &w->prefixes));
    fv_receiver_options opt = {.pool = w->pool,
                               .adapters = &e->adapters,
                               .prefixes = w->prefixes,
                               .rest_most = w->opt.rest_most,
                               .model = e->fingerprint,
                               .sums = fv_engine_sums(e),
                               .n_vocab = text->vocab,
                               .n_group = text->n_head / text->n_kv,
                               .max_position = text->max_position,
                               .grants = w->opt.grants};
    FV_TRY(fv_receiver_open(&opt, &w->receiver));
    w->opens = (fv_opens){.receiver = w->receiver,
                          .pool = w->pool,
                          .bytes_max = w->opt.kv_bytes,
                          .most = w->opt.waiting_max,
                          .wait_s_max = w->opt.wait_s_max,
                          .behind_s = w->opt.behind_s};
    FV_TRY(fv_lengths_open(&w->lengths));
    if (!w->opt.reserve_all) w->opens.lengths = w->lengths;
    fv_conversations_options keep = {.bytes_max = w->opt.keep_bytes ? w->opt.keep_bytes
                                                                    : w->opt.kv_bytes / 2,
                                     .keep_s_max = w->opt.keep_s_max};
    FV_TRY(fv_conversations_open(&keep, &w->conversations));
    FV_TRY(fv_scheduler_open(e, w->receiver, w->conversations, w->opt.batch_max,
                             w->opt.prompt_tokens, &fv_decode_hooks, &w->answers));
    if (w->opt.draft)
        FV_TRY(fv_worker_draft_open(w->opt.draft, e, w->opt.draft_kv_bytes, &w->draft));
    fv_scheduler_draft_with(w->answers, w->draft.model);
    FV_TRY(fv_pulse_open(&w->pulse));
    fv_scheduler_follow(w->answers, w->pulse);
    fv_scheduler_measure(w->answers, w->lengths);
    fv_scheduler_keep(w->answers, w->prefixes);
    return FV_OK;
}

/* Frees the worker after the last event of the computing thread and of each link. */
static void maybe_closed(fv_decode_worker *w) {
    if (!w->is_drained || w->pairs.n_now > 0) return;
    void (*closed)(void *) = w->closed;
    void *user = w->closed_user;
    free_worker(w);
    if (closed) closed(user);
}

static void on_drained(fv_rpc_op *op, bool ok) {
    fv_decode_worker *w = op->owner;
    (void)ok;
    w->is_drained = true;
    maybe_closed(w);
}

fv_status fv_decode_worker_open(fv_bridge *bridge, const fv_decode_options *opt,
                                fv_decode_worker **out) {
    fv_decode_worker *w = calloc(1, sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "out of memory for the worker");
    w->opt = *opt;
    w->bridge = bridge;
    w->drain = (fv_job){.run = run_drain, .owner = w};
    w->pairs = (fv_links_in){.ops = opt->pairs,
                             .device = opt->engine->be.device,
                             .most = opt->pairs_most,
                             .arrived = fv_pushes_look,
                             .none_left = maybe_closed};
    fv_status st = open_stages(w);
    if (st == FV_OK) st = fv_forms_open(&w->forms);
    if (st == FV_OK)
        st = fv_jobs_start(
            &(fv_jobs_options){.limit = (size_t)opt->queue_max, .work = work, .user = w}, &w->jobs);
    if (st != FV_OK) {
        free_worker(w);
        return st;
    }
    *out = w;
    return FV_OK;
}

void fv_decode_worker_drain(fv_decode_worker *w) {
    if (w->draining) return;
    w->draining = true;
    fv_jobs_post_followup(w->jobs, &w->drain);
}

bool fv_decode_worker_idle(const fv_decode_worker *w) { return atomic_load(&w->is_idle); }

void fv_decode_worker_close(fv_decode_worker *w, void (*closed)(void *user), void *user) {
    fv_forms_close(w->forms); /* it posts to the computing thread */
    w->forms = NULL;
    fv_jobs_stop(w->jobs);
    w->jobs = NULL; /* messages that it posted last may still be pending */
    w->closed = closed;
    w->closed_user = user;
    w->drained = (fv_rpc_op){.done = on_drained, .owner = w};
    fv_bridge_post(w->bridge, &w->drained, true);
}

/* ---- state for others ------------------------------------------------------------------- */

void fv_decode_worker_services(fv_decode_worker *w, fv_rpc_service out[FV_DECODE_SERVICES]) {
    out[0] = fv_handoff_service(w);
    out[1] = fv_decode_service(w);
}

Fovea__Inference__V1__Load fv_decode_worker_load(const fv_decode_worker *w) {
    fv_receiver_counters handoffs = fv_decode_worker_handoffs(w);
    uint64_t oob = handoffs.bytes_oob;
    uint64_t bytes = handoffs.bytes > oob ? handoffs.bytes : oob; /* not of one moment */
    Fovea__Inference__V1__Load load = FOVEA__INFERENCE__V1__LOAD__INIT;
    load.n_running = atomic_load(&w->load.n_running);
    load.n_queued = atomic_load(&w->load.n_queued);
    load.slots = (uint32_t)w->opt.batch_max;
    load.tokens_expected = atomic_load(&w->growth.tokens_expected);
    load.n_preempted_for_kv = atomic_load(&w->growth.n_preempted);
    load.n_paused = atomic_load(&w->load.n_paused);
    load.n_unread = atomic_load(&w->load.n_unread);
    load.n_preempted = atomic_load(&w->load.n_preempted);
    load.n_prefixes = atomic_load(&w->load.n_prefixes);
    load.bytes_prefixes = atomic_load(&w->load.bytes_prefixes);
    load.bytes_prefixes_idle = atomic_load(&w->load.bytes_prefixes_idle);
    load.n_prefixes_found = handoffs.prompts_found;
    load.n_prefixes_missed = handoffs.prompts_missed;
    load.n_prefixes_given_up = atomic_load(&w->load.n_prefixes_given_up);
    load.tokens_kept = handoffs.tokens_kept;
    load.bytes_not_sent = handoffs.bytes_kept;
    load.bytes_capacity = w->opt.kv_bytes;
    load.bytes_granted = atomic_load(&w->load.bytes_granted);
    load.bytes_held = atomic_load(&w->load.bytes_held);
    load.bytes_waiting = atomic_load(&w->load.bytes_waiting);
    load.n_waiting = atomic_load(&w->load.n_waiting);
    load.bytes_kept = atomic_load(&w->load.bytes_kept);
    load.n_kept = atomic_load(&w->load.n_kept);
    load.bytes_grpc = bytes - oob;
    load.bytes_nccl = oob;
    load.n_fallback = atomic_load(&w->n_fallback);
    load.n_pairs = w->pairs.n_now;
    load.n_pairs_failed = w->pairs.n_failed;
    load.n_done = atomic_load(&w->load.n_done);
    load.n_failed = atomic_load(&w->load.n_failed);
    load.tokens_out = atomic_load(&w->load.tokens_out);
    load.entries_evicted = atomic_load(&w->load.entries_evicted);
    load.tokens_drafted = atomic_load(&w->load.tokens_drafted);
    load.drafts_kept = atomic_load(&w->load.drafts_kept);
    load.tokens_recompressed = atomic_load(&w->load.tokens_recompressed);
    if (w->jobs) {
        load.n_queued += (uint32_t)fv_jobs_waiting(w->jobs);
        load.seconds_busy = fv_jobs_busy_s(w->jobs);
    }
    return load;
}

fv_kept_log *fv_decode_worker_kept(const fv_decode_worker *w) { return w->kept; }

fv_pulse *fv_decode_worker_pulse(const fv_decode_worker *w) { return w->pulse; }

fv_vital_signs fv_decode_worker_signs(const fv_decode_worker *w) {
    return (fv_vital_signs){.n_good = atomic_load(&w->n_good),
                            .n_bad = atomic_load(&w->n_bad),
                            .n_moved = fv_engine_layers_run(w->opt.engine),
                            .lost = fv_backend_lost(&w->opt.engine->be)};
}
