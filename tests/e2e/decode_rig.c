/* The worker under test, and the prefill side and router that the test plays. */
#include "tests/e2e/decode_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/synth/synth.h"
#include "tests/support/command.h"
#include "tests/support/evict.h"
#include "transport/grpc.h"

decode_rig rig;

void need(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

void run_loop_ms(uint64_t ms) {
    uint64_t until = uv_now(&rig.loop) + ms;
    while (uv_now(&rig.loop) < until) uv_run(&rig.loop, UV_RUN_ONCE);
}

void write_checkpoint_of(const char *family) {
    snprintf(rig.dir, sizeof rig.dir, "%s/decode-%d", FOVEA_TEST_TMP, (int)getpid());
    fv_synth_options opt = {
        .dir = rig.dir, .shape = "tiny", .family = family, .dtype = FV_F32, .seed = 5};
    fv_synth_report report;
    need(fv_synth_write(&opt, &report));
}

void write_checkpoint(void) { write_checkpoint_of(NULL); }

void remove_checkpoint(void) {
    static command_result r;
    command_run(&r, "rm -rf '%s'", rig.dir);
}

/* ---- the worker, and the prefill side ----------------------------------------------------- */

static fv_bridge *bridge;
static fv_engine engine; /* the worker's */
static fv_rpc_server *server;
static uv_timer_t tick;

static fv_kv_pool *p_pool;
static fv_jobs *p_jobs;

static double p_work(void *user);

static void on_tick(uv_timer_t *t) { (void)t; }

static char target[64];

void open_transport(const fv_fault_options *fault) {
    fv_transport_grpc_options to = {.bridge = bridge, .jobs = p_jobs, .target = target};
    need(fv_transport_grpc(&to, &rig.transport));
    if (fault) need(fv_transport_fault(rig.transport, fault, &rig.transport));
}

void open_all(const fv_decode_options *with) {
    fv_engine_options e = {.checkpoint = rig.dir, .backend = "cpu", .isa = "auto", .threads = 1};
    fv_decode_options opt = with ? *with : fv_decode_options_default();
    uv_loop_init(&rig.loop);
    uv_timer_init(&rig.loop, &tick);
    uv_timer_start(&tick, on_tick, 2, 2);
    need(fv_bridge_open(&rig.loop, &bridge));
    need(fv_engine_open(&e, &engine));
    need(fv_engine_open(&e, &rig.p_engine));
    opt.engine = &engine;
    opt.name = "d1";
    opt.callers = rig.callers = test_callers("d1");
    need(fv_decode_worker_open(bridge, &opt, &rig.worker));
    static fv_rpc_service services[FV_DECODE_SERVICES]; /* the server borrows it */
    fv_decode_worker_services(rig.worker, services);
    fv_rpc_server_options so = {
        .listen = "127.0.0.1:0", .services = services, .n_service = FV_DECODE_SERVICES};
    need(fv_rpc_server_open(bridge, &so, &server));
    snprintf(target, sizeof target, "127.0.0.1:%d", fv_rpc_server_port(server));
    need(fv_rpc_channel_open(bridge, target, NULL, &rig.channel));
    fv_kv_shape shape = fv_engine_kv_shape(&rig.p_engine, FV_F32);
    need(fv_kv_pool_open(rig.p_engine.be.device, &shape, 0, &p_pool));
    need(fv_jobs_start(&(fv_jobs_options){.limit = 64, .work = p_work}, &p_jobs));
    open_transport(NULL);
}

bool worker_is_empty(void) {
    Fovea__Inference__V1__Load l = fv_decode_worker_load(rig.worker);
    return l.bytes_granted == 0 && l.bytes_held == 0 && l.n_running == 0 && l.n_queued == 0;
}

static void set_flag(void *flag) { *(bool *)flag = true; }

/* Stops the server; operations that were started may still be running. */
void stop_server(int32_t grace_ms) {
    bool stopped = false;
    fv_rpc_server_stop(server, grace_ms, set_flag, &stopped);
    UNTIL(stopped);
}

void close_transport(void) {
    bool gone = false;
    fv_transport_close(rig.transport, set_flag, &gone);
    UNTIL(gone);
}

void close_rest(void) {
    bool closed = false, over = false;
    close_transport();
    fv_jobs_stop(p_jobs);
    fv_rpc_channel_close(rig.channel);
    fv_decode_worker_close(rig.worker, set_flag, &closed);
    UNTIL(closed);
    fv_callers_close(rig.callers);
    cr_assert_eq(fv_kv_pool_used(p_pool), 0);
    fv_kv_pool_close(p_pool);
    fv_engine_close(&engine);
    fv_engine_close(&rig.p_engine);
    uv_close((uv_handle_t *)&tick, NULL);
    fv_bridge_close(bridge, set_flag, &over);
    net_loop_close(&rig.loop);
    cr_assert(over);
}

void close_all(void) {
    UNTIL(worker_is_empty());
    stop_server(1000);
    close_rest();
}

/* ---- a request on the prefill side -------------------------------------------------------- */

static void on_gone(void *user) { atomic_store(&((handoff *)user)->state, 2); }

static void ship_over(handoff *h, fv_status st) {
    fv_export *ship = h->ship;
    h->status = st;
    if (ship) h->sent = fv_export_get_report(ship);
    h->n_frame = h->sent.frames;
    if (st != FV_OK) snprintf(h->why, sizeof h->why, "%s", fv_last_error());
    h->ship = NULL;
    h->at = STOPPED;
    fv_export_close(ship, st == FV_OK && !h->abandon, on_gone, h);
}

static void ship_on(handoff *h) {
    fv_status st = FV_OK;
    bool done = false;
    if (h->at == LAYERS && !h->hold && !h->abandon) {
        st = fv_export_layers(h->ship, h->plan.shape.n_layer);
        if (st == FV_EBUSY && strstr(fv_last_error(), "has not answered")) return;
        if (st == FV_OK) st = fv_export_end(h->ship, &h->first);
        h->at = COMMIT;
    }
    if (st == FV_OK) st = fv_export_done(h->ship, &done);
    if (st != FV_OK || done || h->abandon) {
        h->ticket = *fv_export_ticket(h->ship);
        ship_over(h, st);
        return;
    }
    static const uint8_t none[16];
    if (atomic_load(&h->state) == 0 && memcmp(fv_export_ticket(h->ship)->id, none, 16) != 0) {
        h->ticket = *fv_export_ticket(h->ship);
        atomic_store(&h->state, 1);
    }
}

static double p_work(void *user) {
    (void)user;
    for (handoff *h = rig.exporting; h; h = h->next)
        if (h->at != STOPPED) ship_on(h);
    return -1;
}

void run_ship(fv_job *job) {
    handoff *h = (handoff *)job;
    fv_export_request req = {.model = rig.p_engine.fingerprint,
                             .kv = h->kv,
                             .plan = &h->plan,
                             .n = h->n,
                             .ids = h->ids,
                             .seg = h->seg,
                             .n_chain = h->n_link,
                             .chain = h->link,
                             .max_tokens = h->max_tokens,
                             .sampling = {.repetition_penalty = 1, .top_p = 1},
                             .asking = {.age_ms = h->age_ms,
                                        .wait_ms = h->wait_ms,
                                        .tenant = h->tenant,
                                        .tenant_bytes = h->tenant_bytes,
                                        .open_ended = h->open_ended,
                                        .bytes_replay = h->bytes_replay,
                                        .open_token = h->open_token}};
    h->next = rig.exporting;
    rig.exporting = h;
    fv_status st = fv_export_begin(rig.transport, &req, &h->ship);
    if (st != FV_OK) ship_over(h, st);
}

void run_let_go(fv_job *job) { ((handoff *)job)->hold = false; }
void run_abandon(fv_job *job) { ((handoff *)job)->abandon = true; }

void tell(handoff *h, void (*what)(fv_job *)) {
    h->job.run = what;
    if (what == run_ship)
        snprintf(h->open_token, sizeof h->open_token, "%s",
                 token_for("/fovea.handoff.v1.Handoff/Open", NULL).value);
    cr_assert_eq(fv_jobs_post(p_jobs, &h->job), FV_OK);
}

static void make_chain(handoff *h) {
    fv_chain_visual image = {.first = 4, .n = VISUAL, .digest = {7}};
    fv_chain_prompt prompt = {.n = h->n, .ids = h->ids, .n_visual = 1, .visual = &image};
    need(fv_chain_make(&(fv_chain_base){.compat = "e2e"}, &prompt, h->link, &h->n_link));
}

/* Prompt of TEXT text tokens around VISUAL image tokens, followed by n_more ids; prefilled here, on
 * the loop's thread, before any of it is sent. */
void prefill(handoff *h, const char *policy, int32_t max_tokens, int32_t n_more,
             const int32_t *more) {
    int32_t vocab = fv_checkpoint_config(rig.p_engine.ck)->text.vocab;
    int32_t d = fv_checkpoint_config(rig.p_engine.ck)->text.d_model;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    float *embeds = malloc((size_t)VISUAL * (size_t)d * sizeof *embeds);
    cr_assert(logits && embeds);
    for (int32_t i = 0; i < VISUAL * d; i++) embeds[i] = 0.3f * (float)((i * 7919) % 101 - 50) / 50;
    h->n = ROWS + n_more;
    h->max_tokens = max_tokens - n_more;
    for (int32_t i = 0; i < h->n; i++) {
        h->ids[i] = 5 + i * 3;
        h->seg[i] = i >= 4 && i < 4 + VISUAL ? FV_SEG_VISUAL : FV_SEG_TEXT;
        if (i >= ROWS) h->ids[i] = more[i - ROWS];
    }
    if (h->chained) make_chain(h);
    fv_prompt prompt = {.n_visual = VISUAL, .n_text = TEXT + n_more, .n_image = 1};
    fv_plan_shape shape = fv_plan_shape_of(&rig.p_engine, FV_F32, &prompt);
    fv_policy p;
    need(fv_policy_parse(policy, &p));
    need(fv_plan_make(&p, &shape, &h->plan));
    need(evict_init(&h->evict, policy, ROWS));
    h->text = (fv_text_codes){.rule = h->plan.pack.text, .n_prompt = ROWS};
    need(fv_kv_open(p_pool, &h->kv));
    fv_pack_report packed = {0};
    fv_prefill_request req = {.packed = &packed,
                              .n = h->n,
                              .ids = h->ids,
                              .seg = h->seg,
                              .embeds = fv_tensor_of(embeds, FV_F32, VISUAL, d),
                              .plan = &h->plan,
                              .kv = h->kv};
    need(fv_prefill_run(rig.p_engine.dec, &req, 1, &(fv_prefill_options){0}, logits));
    fv_logprob *scratch = malloc(FV_SAMPLE_SCRATCH((size_t)vocab) * sizeof *scratch);
    fv_sampling greedy = fv_sampling_default();
    fv_sampled token;
    (void)fv_sample(&greedy, NULL, logits, rig.p_engine.n_vocab, h->ids, h->n, h->n,
                    (uint64_t)n_more, scratch, &token);
    h->first =
        (fv_first_token){.id = token.id, .logprob = token.logprob, .step = (uint64_t)n_more + 1};
    h->first_digest = fv_logits_digest(logits, vocab);
    free(scratch);
    free(embeds);
    free(logits);
}

void send_all(handoff *h) {
    tell(h, run_ship);
    UNTIL(atomic_load(&h->state) == 2);
    cr_assert_eq(h->status, FV_OK, "%s", h->why);
}

void prefill_and_send(handoff *h, const char *policy, int32_t max_tokens) {
    prefill(h, policy, max_tokens, 0, NULL);
    send_all(h);
}

/* Gets a grant and sends nothing until told to. */
void prefill_and_hold(handoff *h) {
    prefill(h, "", TOKENS, 0, NULL);
    h->hold = true;
    tell(h, run_ship);
    UNTIL(atomic_load(&h->state) >= 1);
    cr_assert_eq(atomic_load(&h->state), 1, "%s", h->why);
}

void handoff_free(handoff *h) {
    cr_assert_null(h->ship);
    fv_kv_close(h->kv);
}

/* ---- a generation ------------------------------------------------------------------------- */

static fv_status on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    answer *a = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const Fovea__Inference__V1__GenerateEvent *e = (const Fovea__Inference__V1__GenerateEvent *)m;
    cr_assert_not(a->finished);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS) {
        if (a->n == 0) a->index0 = e->tokens->index;
        cr_assert_eq(e->tokens->index, a->index0 + (uint32_t)a->n);
        a->digest[a->n] = e->tokens->tokens[0]->digest;
        a->ids[a->n++] = e->tokens->tokens[0]->id;
        a->n_alternatives = (int32_t)e->tokens->tokens[0]->n_alternatives;
        strncat(a->text, e->tokens->text, sizeof a->text - strlen(a->text) - 1);
        return FV_OK;
    }
    cr_assert_eq(e->event_case, FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED);
    const Fovea__Inference__V1__Report *r = e->finished->report;
    a->finished = true;
    a->reason = e->finished->reason;
    a->n_generated = r->n_generated;
    a->bytes_end = r->bytes_visual_end + r->bytes_text_end;
    a->kept.keep_ms = e->finished->keep_ms;
    a->kept.n_name = e->finished->conversation.len;
    if (a->kept.n_name == 16) memcpy(a->kept.name, e->finished->conversation.data, 16);
    a->report.n_prompt = r->n_prompt;
    a->report.n_text = r->n_text;
    a->report.n_images = r->n_images;
    a->report.bytes_raw = r->bytes_raw;
    a->report.bytes = r->bytes_visual + r->bytes_text;
    a->report.entries_evicted = r->entries_evicted;
    a->report.transfer = r->transfer != NULL;
    if (r->recompressed) {
        a->report.recompressed.rows = r->recompressed->tokens;
        a->report.recompressed.bytes_freed = r->recompressed->bytes_freed;
        a->report.recompressed.n_layer = r->recompressed->n_layer;
        a->report.recompressed.error = r->recompressed->error;
    }
    snprintf(a->report.policy, sizeof a->report.policy, "%s", r->policy);
    cr_assert_str_eq(r->decode_worker, "d1");
    return FV_OK;
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    answer *a = fv_rpc_call_user(c);
    const char *name;
    size_t n;
    a->over = true;
    a->call = NULL;
    a->status = end->status;
    a->code = end->code;
    snprintf(a->why, sizeof a->why, "%s", end->text);
    if (fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n))
        snprintf(a->refusal, sizeof a->refusal, "%.*s", (int)n, name);
}

fv_rpc_metadata token_for(const char *method, const char *request_id) {
    return test_metadata(rig.callers, "d1", method, request_id, NULL);
}

void ask_with(answer *a, const request *m, int64_t deadline_ms) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_end};
    bool hand_off = m->source_case == FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
    fv_rpc_metadata token = token_for("/fovea.handoff.v1.Decode/Decode", m->request_id);
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Decode/Decode",
                               .metadata = &token,
                               .n_metadata = !hand_off, /* a ticket needs none */
                               .events = &events,
                               .user = a,
                               .deadline_ms = deadline_ms,
                               .request = &m->base,
                               .half_close = true};
    need(fv_rpc_call_open(rig.channel, &opt, &a->call));
}

static Fovea__Handoff__V1__Ticket ticket_message;

request request_for(const fv_ticket *t, int32_t max_tokens) {
    request m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    static fv_ticket copy;
    copy = *t;
    ticket_message = (Fovea__Handoff__V1__Ticket)FOVEA__HANDOFF__V1__TICKET__INIT;
    ticket_message.id = (ProtobufCBinaryData){sizeof copy.id, copy.id};
    ticket_message.epoch = copy.epoch;
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
    m.ticket = &ticket_message;
    m.max_tokens = (uint32_t)max_tokens;
    m.ignore_eos = true;
    m.digests = true;
    return m;
}

void ask(answer *a, const handoff *h, int32_t max_tokens) {
    request m = request_for(&h->ticket, max_tokens);
    ask_with(a, &m, 20000);
}

void expect_after(handoff *h, const int32_t *ids, int32_t n, int32_t n_prompt, int32_t n_held,
                  int32_t max_tokens, answer *out) {
    fv_generation_options opt = {.sampling = fv_sampling_default(),
                                 .max_tokens = max_tokens,
                                 .context = 4096,
                                 .n_vocab = rig.p_engine.n_vocab};
    fv_generation *seq;
    fv_model_runner *runner;
    int32_t vocab = fv_checkpoint_config(rig.p_engine.ck)->text.vocab;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    need(fv_generation_open(&opt, rig.p_engine.tok, ids, n, n_prompt, &seq));
    need(fv_model_runner_open(rig.p_engine.dec, &runner));
    while (fv_generation_finish(seq) == FV_FINISH_NOT) {
        const int32_t *all = fv_generation_ids(seq, &n, &n_prompt);
        const fv_sampled *token;
        const char *text;
        size_t n_text;
        for (int32_t now; n_held < n; n_held += now) {
            now = fv_text_until(&h->text.rule, h->text.n_prompt, n_held);
            now = now < n - n_held ? now : n - n_held;
            fv_step_seq step = {.kv = h->kv,
                                .n = now,
                                .ids = &all[n_held],
                                .pos = n_held,
                                .partial = n_held + now < n};
            need(fv_text_codes_step(&h->text, rig.p_engine.dec, h->kv, n_held));
            need(fv_evict_step(&h->evict, h->kv, n - n_prompt));
            need(fv_model_runner_run(runner, &step, 1, logits));
        }
        need(fv_generation_take(seq, logits, &token, &text, &n_text));
        out->digest[out->n] = fv_logits_digest(logits, vocab);
        out->ids[out->n++] = (uint32_t)token->id;
        if (n_text) strncat(out->text, text, n_text);
    }
    out->bytes_end = fv_kv_bytes(h->kv, FV_SEG_VISUAL) + fv_kv_bytes(h->kv, FV_SEG_TEXT);
    fv_model_runner_close(runner);
    fv_generation_close(seq);
    free(logits);
}

/* The expected generation: one process continues from the same KV. */
void expect(handoff *h, int32_t max_tokens, answer *out) {
    int32_t ids[ROWS + MORE + 1];
    memcpy(ids, h->ids, (size_t)h->n * sizeof *ids);
    ids[h->n] = h->first.id;
    expect_after(h, ids, h->n + 1, h->n, h->n, max_tokens, out);
}

void assert_same(const answer *got, const answer *want) {
    cr_assert_eq(got->status, FV_OK, "%s", got->why);
    cr_assert_eq(got->n, want->n);
    cr_assert_eq(memcmp(got->ids, want->ids, (size_t)want->n * sizeof *want->ids), 0);
    cr_assert_eq(memcmp(got->digest, want->digest, (size_t)want->n * sizeof *want->digest), 0);
    cr_assert_str_eq(got->text, want->text);
    cr_assert_eq(got->bytes_end, want->bytes_end);
}

static void note_over(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    (void)c, (void)reply;
    cr_assert_eq(end->status, FV_OK, "%s", end->text);
    *(bool *)user = true;
}

static void unary(const char *path, const ProtobufCMessage *m) {
    bool over = false;
    need(fv_rpc_unary(rig.channel, path, m, 20000, note_over, &over, NULL));
    UNTIL(over);
}

void release(const fv_ticket *ticket) {
    Fovea__Handoff__V1__Ticket t = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__ReleaseRequest m = FOVEA__HANDOFF__V1__RELEASE_REQUEST__INIT;
    t.id = (ProtobufCBinaryData){sizeof ticket->id, (uint8_t *)(uintptr_t)ticket->id};
    t.epoch = ticket->epoch;
    m.ticket = &t;
    unary("/fovea.handoff.v1.Handoff/Release", &m.base);
}
