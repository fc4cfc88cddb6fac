/* The decode worker over a real connection: what a prefill worker and a router see of it. The
 * prefill side is played here, with the stages of prefill-worker/ and the gRPC transport; what one
 * process answers is the measure. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode-worker/stages.h"
#include "decode-worker/worker.h"
#include "handoff.pb-c.h"
#include "model/synth.h"
#include "prefill-worker/stages.h"
#include "tests/support/command.h"
#include "tests/support/net.h"
#include "wire/rpc_frame.h"
#include "wire/transport_grpc.h"

enum { TEXT = 9, VISUAL = 20, ROWS = TEXT + VISUAL, TOKENS = 12, MANY = 400, MORE = 256 };

static char dir[512]; /* this test's own checkpoint */

static void need(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void make_checkpoint(void) {
    snprintf(dir, sizeof dir, "%s/decode-%d", FOVEA_TEST_TMP, (int)getpid());
    fv_synth_options opt = {.dir = dir, .shape = "tiny", .dtype = FV_F32, .seed = 5};
    fv_synth_report report;
    need(fv_synth_write(&opt, &report));
}

static void drop_checkpoint(void) {
    static command_result r;
    command_run(&r, "rm -rf '%s'", dir);
}

TestSuite(decode_worker, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 120);

/* ---- the worker, and the prefill side ----------------------------------------------------- */

static uv_loop_t loop;
static fv_bridge *bridge;
static fv_engine engine; /* the worker's */
static fv_decode_worker *worker;
static fv_rpc_server *server;
static fv_rpc_channel *channel;
static uv_timer_t tick;

static fv_engine p_engine;
static fv_kv_pool *p_pool;
static fv_jobs *p_jobs;
static fv_transport *transport;

static double p_work(void *user);

static void on_tick(uv_timer_t *t) { (void)t; }

static void open_all(const fv_decode_options *with) {
    fv_engine_options e = {.checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1};
    fv_decode_options opt = with ? *with : fv_decode_options_default();
    char target[64];
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 2, 2);
    need(fv_bridge_open(&loop, &bridge));
    need(fv_engine_open(&e, &engine));
    need(fv_engine_open(&e, &p_engine));
    opt.engine = &engine;
    opt.name = "d1";
    need(fv_decode_worker_open(bridge, &opt, &worker));
    static fv_rpc_service services[FV_DECODE_SERVICES]; /* the server borrows it */
    fv_decode_worker_services(worker, services);
    fv_rpc_server_options so = {
        .listen = "127.0.0.1:0", .services = services, .n_service = FV_DECODE_SERVICES};
    need(fv_rpc_server_open(bridge, &so, &server));
    snprintf(target, sizeof target, "127.0.0.1:%d", fv_rpc_server_port(server));
    need(fv_rpc_channel_open(bridge, target, NULL, &channel));
    fv_kv_shape shape = fv_engine_kv_shape(&p_engine, FV_F32);
    need(fv_kv_pool_open(p_engine.be.device, &shape, 0, &p_pool));
    need(fv_jobs_start(&(fv_jobs_options){.limit = 64, .work = p_work}, &p_jobs));
    fv_transport_grpc_options to = {.bridge = bridge, .jobs = p_jobs, .target = target};
    need(fv_transport_grpc(&to, &transport));
}

/* Runs the loop until the condition holds, at most twenty seconds. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t until_ = uv_now(&loop) + 20000;                                                   \
        while (!(condition) && uv_now(&loop) < until_) uv_run(&loop, UV_RUN_ONCE);                 \
        cr_assert(condition);                                                                      \
    } while (0)

static bool worker_is_empty(void) {
    fv_decode_load l = fv_decode_worker_load(worker);
    return l.bytes_granted == 0 && l.bytes_held == 0 && l.n_running == 0 && l.n_queued == 0;
}

static void set_flag(void *flag) { *(bool *)flag = true; }

/* What was begun may still run. */
static void stop_server(int32_t grace_ms) {
    bool stopped = false;
    fv_rpc_server_stop(server, grace_ms, set_flag, &stopped);
    UNTIL(stopped);
}

static void close_rest(void) {
    bool gone = false, closed = false, over = false;
    fv_transport_close(transport, set_flag, &gone);
    UNTIL(gone);
    fv_jobs_stop(p_jobs);
    fv_rpc_channel_close(channel);
    fv_decode_worker_close(worker, set_flag, &closed);
    UNTIL(closed);
    cr_assert_eq(fv_kv_pool_used(p_pool), 0);
    fv_kv_pool_close(p_pool);
    fv_engine_close(&engine);
    fv_engine_close(&p_engine);
    uv_close((uv_handle_t *)&tick, NULL);
    fv_bridge_close(bridge, set_flag, &over);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(over);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

static void close_all(void) {
    UNTIL(worker_is_empty());
    stop_server(1000);
    close_rest();
}

/* ---- a request on the prefill side -------------------------------------------------------- */

typedef enum stage { LAYERS = 0, LAST, COMMIT, STOPPED } stage;

typedef struct handoff {
    fv_job job;
    struct handoff *next;
    /* the prompt, prefilled */
    int32_t n, ids[ROWS + MORE];
    uint8_t seg[ROWS + MORE];
    fv_plan plan;
    fv_kv *kv;
    int32_t max_tokens;
    fv_first_token first;
    uint64_t first_digest;
    /* on its way; the computing thread's, but for `state` and what is set before it changes */
    fv_ship *ship;
    bool hold; /* sends nothing, once there is room */
    bool abandon;
    stage at;
    fv_status status;
    char why[512];
    fv_ticket ticket;
    atomic_int state; /* 1: granted, 2: over */
} handoff;

static handoff *shipping;

static void on_gone(void *user) { atomic_store(&((handoff *)user)->state, 2); }

static void ship_over(handoff *h, fv_status st) {
    fv_ship *ship = h->ship;
    h->status = st;
    if (st != FV_OK) snprintf(h->why, sizeof h->why, "%s", fv_last_error());
    h->ship = NULL;
    h->at = STOPPED;
    fv_ship_close(ship, st == FV_OK && !h->abandon, on_gone, h);
}

static void ship_on(handoff *h) {
    fv_status st = FV_OK;
    bool done = false;
    if (h->at == LAYERS && !h->hold && !h->abandon) {
        st = fv_ship_layers(h->ship, h->plan.shape.n_layer);
        if (st == FV_EBUSY && strstr(fv_last_error(), "has not answered")) return;
        if (st == FV_OK) st = fv_ship_end(h->ship, &h->first);
        h->at = COMMIT;
    }
    if (st == FV_OK) st = fv_ship_done(h->ship, &done);
    if (st != FV_OK || done || h->abandon) {
        h->ticket = *fv_ship_ticket(h->ship);
        ship_over(h, st);
        return;
    }
    static const uint8_t none[16];
    if (atomic_load(&h->state) == 0 && memcmp(fv_ship_ticket(h->ship)->id, none, 16) != 0) {
        h->ticket = *fv_ship_ticket(h->ship);
        atomic_store(&h->state, 1);
    }
}

static double p_work(void *user) {
    (void)user;
    for (handoff *h = shipping; h; h = h->next)
        if (h->at != STOPPED) ship_on(h);
    return -1;
}

static void run_ship(fv_job *job) {
    handoff *h = (handoff *)job;
    fv_ship_request req = {.model = p_engine.fingerprint,
                           .kv = h->kv,
                           .plan = &h->plan,
                           .n = h->n,
                           .ids = h->ids,
                           .seg = h->seg,
                           .max_tokens = h->max_tokens,
                           .sampling = {.repetition_penalty = 1, .top_p = 1}};
    h->next = shipping;
    shipping = h;
    fv_status st = fv_ship_begin(transport, &req, &h->ship);
    if (st != FV_OK) ship_over(h, st);
}

static void run_let_go(fv_job *job) { ((handoff *)job)->hold = false; }
static void run_abandon(fv_job *job) { ((handoff *)job)->abandon = true; }

static void tell(handoff *h, void (*what)(fv_job *)) {
    h->job.run = what;
    cr_assert_eq(fv_jobs_post(p_jobs, &h->job), FV_OK);
}

/* Prompt of TEXT text rows around VISUAL image rows, and n_more ids behind it; prefilled here, on
 * the loop's thread, before anything of it is sent. */
static void prefill(handoff *h, const char *policy, int32_t max_tokens, int32_t n_more,
                    const int32_t *more) {
    int32_t vocab = fv_checkpoint_config(p_engine.ck)->text.vocab;
    int32_t d = fv_checkpoint_config(p_engine.ck)->text.d_model;
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
    fv_plan_shape shape = {.n_layer = fv_checkpoint_config(p_engine.ck)->text.n_layer,
                           .n_kv = fv_checkpoint_config(p_engine.ck)->text.n_kv,
                           .n_visual = VISUAL,
                           .n_text = TEXT + n_more};
    fv_policy p;
    need(fv_policy_parse(policy, &p));
    need(fv_plan_make(&p, &shape, &h->plan));
    need(fv_kv_open(p_pool, &h->kv));
    fv_prefill_request req = {.n = h->n,
                              .ids = h->ids,
                              .seg = h->seg,
                              .embeds = fv_tensor_of(embeds, FV_F32, VISUAL, d),
                              .plan = &h->plan,
                              .kv = h->kv};
    need(fv_prefill_run(p_engine.dec, &req, 1, &(fv_prefill_options){0}, logits));
    fv_logprob *scratch = malloc((size_t)vocab * sizeof *scratch);
    fv_sampling greedy = fv_sampling_default();
    fv_sampled token;
    fv_sample(&greedy, logits, p_engine.n_vocab, h->ids, h->n, (uint64_t)n_more, scratch, &token);
    h->first =
        (fv_first_token){.id = token.id, .logprob = token.logprob, .step = (uint64_t)n_more + 1};
    h->first_digest = fv_logits_digest(logits, vocab);
    free(scratch);
    free(embeds);
    free(logits);
}

static void send_all(handoff *h) {
    tell(h, run_ship);
    UNTIL(atomic_load(&h->state) == 2);
    cr_assert_eq(h->status, FV_OK, "%s", h->why);
}

static void prefill_and_send(handoff *h, const char *policy, int32_t max_tokens) {
    prefill(h, policy, max_tokens, 0, NULL);
    send_all(h);
}

/* Grants room and sends nothing until it is told to. */
static void prefill_and_hold(handoff *h) {
    prefill(h, "", TOKENS, 0, NULL);
    h->hold = true;
    tell(h, run_ship);
    UNTIL(atomic_load(&h->state) >= 1);
    cr_assert_eq(atomic_load(&h->state), 1, "%s", h->why);
}

static void handoff_free(handoff *h) {
    cr_assert_null(h->ship);
    fv_kv_close(h->kv);
}

/* ---- an answer ---------------------------------------------------------------------------- */

typedef struct answer {
    fv_rpc_call *call;
    int32_t n; /* tokens */
    uint32_t ids[MANY], index0;
    uint64_t digest[MANY];
    char text[8192];
    int32_t n_alternatives;
    bool finished, over;
    int reason;
    uint32_t n_generated;
    uint64_t bytes_end;
    struct {
        uint8_t name[16];
        size_t n_name;
        uint32_t keep_ms;
    } kept;
    struct {
        uint32_t n_prompt, n_text, n_images;
        uint64_t bytes_raw, bytes;
        bool transfer;
        char policy[64];
    } report;
    fv_status status;
    grpc_status_code code;
    char why[FV_RPC_TEXT_MAX], refusal[32];
} answer;

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
    a->report.transfer = r->transfer != NULL;
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

typedef Fovea__Handoff__V1__DecodeRequest request;

static void ask_with(answer *a, const request *m, int64_t deadline_ms) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_end};
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Decode/Decode",
                               .events = &events,
                               .user = a,
                               .deadline_ms = deadline_ms,
                               .request = &m->base,
                               .half_close = true};
    need(fv_rpc_call_open(channel, &opt, &a->call));
}

static Fovea__Handoff__V1__Ticket ticket_message;

static request request_for(const fv_ticket *t, int32_t max_tokens) {
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

static void ask(answer *a, const handoff *h, int32_t max_tokens) {
    request m = request_for(&h->ticket, max_tokens);
    ask_with(a, &m, 20000);
}

/* What one process would answer: the same store goes on here. */
static void expect(handoff *h, int32_t max_tokens, answer *out) {
    int32_t ids[ROWS + MORE + 1];
    memcpy(ids, h->ids, (size_t)h->n * sizeof *ids);
    ids[h->n] = h->first.id;
    fv_sequence_options opt = {.sampling = fv_sampling_default(),
                               .max_tokens = max_tokens,
                               .context = 4096,
                               .n_vocab = p_engine.n_vocab};
    fv_sequence *seq;
    fv_stepper *stepper;
    int32_t vocab = fv_checkpoint_config(p_engine.ck)->text.vocab;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    need(fv_sequence_open(&opt, p_engine.tok, ids, h->n + 1, h->n, &seq));
    need(fv_stepper_open(p_engine.dec, &stepper));
    while (fv_sequence_finish(seq) == FV_FINISH_NOT) {
        int32_t n, n_prompt;
        const int32_t *all = fv_sequence_ids(seq, &n, &n_prompt);
        fv_step_seq step = {.kv = h->kv, .n = 1, .ids = &all[n - 1], .pos = n - 1};
        const fv_sampled *token;
        const char *text;
        size_t n_text;
        need(fv_stepper_run(stepper, &step, 1, logits));
        need(fv_sequence_take(seq, logits, &token, &text, &n_text));
        out->digest[out->n] = fv_logits_digest(logits, vocab);
        out->ids[out->n++] = (uint32_t)token->id;
        if (n_text) strncat(out->text, text, n_text);
    }
    out->bytes_end = fv_kv_bytes(h->kv, FV_SEG_VISUAL) + fv_kv_bytes(h->kv, FV_SEG_TEXT);
    fv_stepper_close(stepper);
    fv_sequence_close(seq);
    free(logits);
}

static void assert_same(const answer *got, const answer *want) {
    cr_assert_eq(got->status, FV_OK, "%s", got->why);
    cr_assert_eq(got->n, want->n);
    cr_assert_eq(memcmp(got->ids, want->ids, (size_t)want->n * sizeof *want->ids), 0);
    cr_assert_eq(memcmp(got->digest, want->digest, (size_t)want->n * sizeof *want->digest), 0);
    cr_assert_str_eq(got->text, want->text);
    cr_assert_eq(got->bytes_end, want->bytes_end);
}

/* ---- what goes well ----------------------------------------------------------------------- */

Test(decode_worker, an_answer_is_that_of_one_process_under_every_policy) {
    static const char *const policies[] = {"", "prune=vtw,layer=1",
                                           "select=streaming,sink=1,recent=0.3",
                                           "prune=random,layer=1,keep=0.4,seed=3"};
    open_all(NULL);
    for (int i = 0; i < 4; i++) {
        static handoff h[4];
        static answer got[4], want[4];
        prefill_and_send(&h[i], policies[i], TOKENS);
        ask(&got[i], &h[i], TOKENS);
        UNTIL(got[i].over);
        expect(&h[i], TOKENS, &want[i]);
        assert_same(&got[i], &want[i]);
        cr_assert_eq(got[i].index0, 1, "the first token was the prefill worker's");
        cr_assert_eq(got[i].n, TOKENS - 1);
        cr_assert_eq(got[i].n_generated, TOKENS);
        cr_assert_eq(got[i].reason, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH);
        handoff_free(&h[i]);
    }
    fv_decode_load load = fv_decode_worker_load(worker);
    cr_assert_eq(load.n_done, 4);
    cr_assert_eq(load.tokens_out, 4 * (TOKENS - 1));
    close_all();
}

Test(decode_worker, tokens_may_be_asked_for_before_the_kv_has_come) {
    static handoff h;
    static answer got, want;
    open_all(NULL);
    prefill_and_hold(&h);
    ask(&got, &h, TOKENS);
    UNTIL(fv_decode_worker_load(worker).n_queued == 1);
    cr_assert_not(got.over);
    tell(&h, run_let_go);
    UNTIL(got.over);
    UNTIL(atomic_load(&h.state) == 2);
    expect(&h, TOKENS, &want);
    assert_same(&got, &want);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, neighbours_in_the_batch_change_nothing_also_when_it_is_full) {
    enum { N = 6 };
    static handoff h[N];
    static answer got[N], want[N];
    fv_decode_options opt = fv_decode_options_default();
    opt.batch_max = 2;
    open_all(&opt);
    for (int i = 0; i < N; i++) prefill_and_send(&h[i], i % 2 ? "prune=vtw,layer=1" : "", TOKENS);
    for (int i = 0; i < N; i++) ask(&got[i], &h[i], TOKENS - i);
    for (int i = 0; i < N; i++) {
        UNTIL(got[i].over);
        expect(&h[i], TOKENS - i, &want[i]);
        assert_same(&got[i], &want[i]);
        handoff_free(&h[i]);
    }
    close_all();
}

Test(decode_worker, an_answer_goes_on_behind_tokens_that_are_replayed) {
    static handoff h, again;
    static answer whole, rest;
    open_all(NULL);
    prefill_and_send(&h, "", TOKENS);
    ask(&whole, &h, TOKENS);
    UNTIL(whole.over);
    cr_assert_eq(whole.status, FV_OK, "%s", whole.why);
    int32_t more[3] = {h.first.id, (int32_t)whole.ids[0], (int32_t)whole.ids[1]};
    prefill(&again, "", TOKENS, 3, more);
    cr_assert_eq((uint32_t)again.first.id, whole.ids[2]);
    send_all(&again);
    request m = request_for(&again.ticket, TOKENS);
    m.n_replay = 3;
    m.replay = (uint32_t *)more;
    ask_with(&rest, &m, 20000);
    UNTIL(rest.over);
    cr_assert_eq(rest.status, FV_OK, "%s", rest.why);
    cr_assert_eq(rest.index0, 4);
    cr_assert_eq(rest.n, TOKENS - 4);
    cr_assert_eq(memcmp(rest.ids, whole.ids + 3, (size_t)rest.n * sizeof *rest.ids), 0);
    cr_assert_eq(memcmp(rest.digest, whole.digest + 3, (size_t)rest.n * sizeof *rest.digest), 0);
    cr_assert_eq(rest.n_generated, TOKENS);
    handoff_free(&h);
    handoff_free(&again);
    close_all();
}

Test(decode_worker, a_replay_that_does_not_fit_the_hand_off_is_refused) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_send(&h, "", TOKENS);
    request m = request_for(&h.ticket, TOKENS);
    m.n_replay = 1;
    m.replay = (uint32_t[]){4};
    ask_with(&a, &m, 20000);
    UNTIL(a.over);
    cr_assert_eq(a.status, FV_EINVAL, "%s", a.why);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, stop_strings_and_alternatives_are_as_asked_for) {
    static handoff h[2];
    static answer plain, stopped;
    open_all(NULL);
    prefill_and_send(&h[0], "", TOKENS);
    ask(&plain, &h[0], TOKENS);
    UNTIL(plain.over);
    size_t at = 0; /* the answer's own first letter, wherever that is, shall stop it */
    while (plain.text[at] && !isalpha((unsigned char)plain.text[at])) at++;
    cr_assert_neq(plain.text[at], '\0', "choose another seed");
    char stop[2] = {plain.text[at]}, *stops[] = {stop};
    prefill_and_send(&h[1], "", TOKENS);
    request m = request_for(&h[1].ticket, TOKENS);
    m.n_stop = 1;
    m.stop = stops;
    m.n_logprobs = 3;
    ask_with(&stopped, &m, 20000);
    UNTIL(stopped.over);
    cr_assert_eq(stopped.reason, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP, "%s / %s",
                 plain.text, stop);
    cr_assert_eq(strlen(stopped.text), at, "it ends before the letter");
    cr_assert_eq(stopped.n_alternatives, 3);
    for (int i = 0; i < 2; i++) handoff_free(&h[i]);
    close_all();
}

/* ---- what goes wrong ---------------------------------------------------------------------- */

Test(decode_worker, a_ticket_that_nobody_has_is_not_found) {
    static answer a;
    fv_ticket t = {.epoch = 12};
    open_all(NULL);
    request m = request_for(&t, TOKENS);
    ask_with(&a, &m, 20000);
    UNTIL(a.over);
    cr_assert_eq(a.code, GRPC_STATUS_NOT_FOUND, "%s", a.why);
    cr_assert_str_eq(a.refusal, "unknown_grant");
    close_all();
}

Test(decode_worker, a_ticket_serves_once) {
    static handoff h;
    static answer a, b;
    open_all(NULL);
    prefill_and_send(&h, "", TOKENS);
    ask(&a, &h, TOKENS);
    UNTIL(a.over);
    ask(&b, &h, TOKENS);
    UNTIL(b.over);
    cr_assert_eq(a.status, FV_OK, "%s", a.why);
    cr_assert_eq(b.code, GRPC_STATUS_NOT_FOUND, "%s", b.why);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, requests_that_make_no_sense_are_refused_by_name) {
    enum { N = 9 };
    static answer a[N];
    static char *stops[17];
    static const struct {
        grpc_status_code code;
        const char *words;
    } want[N] = {{GRPC_STATUS_INVALID_ARGUMENT, "a ticket is needed"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "has 3 bytes, not 16"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "has 16 bytes, not 5"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "max_tokens is 0"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "n_logprobs is 21"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "17 stop strings"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "come with it"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "there is none"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "is replayed with the whole"}};
    open_all(NULL);
    for (int i = 0; i < N; i++) {
        fv_ticket t = {.epoch = 1};
        request m = request_for(&t, TOKENS);
        for (int k = 0; k < 17; k++) stops[k] = "x";
        if (i == 0) m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE__NOT_SET;
        if (i == 1) {
            m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
            m.conversation = (ProtobufCBinaryData){3, (uint8_t *)"abc"};
        }
        if (i == 2) m.ticket->id.len = 5;
        if (i == 3) m.max_tokens = 0;
        if (i == 4) m.n_logprobs = 21;
        if (i == 5) m.n_stop = 17, m.stop = stops;
        Fovea__Inference__V1__Sampling sampling = FOVEA__INFERENCE__V1__SAMPLING__INIT;
        if (i == 6) m.sampling = &sampling;
        if (i >= 7) {
            m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
            m.conversation = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
        }
        if (i == 8) m.n_replay = 1, m.replay = (uint32_t[]){4};
        ask_with(&a[i], &m, 20000);
        UNTIL(a[i].over);
        cr_assert_eq(a[i].code, want[i].code, "%d: %s", i, a[i].why);
        cr_assert(strstr(a[i].why, want[i].words), "%d: %s", i, a[i].why);
    }
    close_all();
}

Test(decode_worker, another_checkpoint_is_refused_by_what_differs) {
    static handoff h;
    open_all(NULL);
    strcpy(p_engine.fingerprint, "0123456789abcdef");
    prefill(&h, "", TOKENS, 0, NULL);
    tell(&h, run_ship);
    UNTIL(atomic_load(&h.state) == 2);
    cr_assert_eq(h.status, FV_EUNSUPPORTED, "%s", h.why);
    cr_assert(strstr(h.why, "model differs"), "%s", h.why);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, a_full_pool_says_so_and_has_room_again_when_an_answer_has_ended) {
    static handoff h[3];
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    open_all(NULL); /* how much does one need? */
    prefill_and_send(&h[0], "", TOKENS);
    UNTIL(fv_decode_worker_load(worker).bytes_held > 0);
    opt.kv_bytes = (size_t)fv_decode_worker_load(worker).bytes_held * 3 / 2;
    ask(&a, &h[0], TOKENS);
    UNTIL(a.over);
    handoff_free(&h[0]);
    close_all();
    memset(h, 0, sizeof h);
    memset(&a, 0, sizeof a);
    shipping = NULL;

    open_all(&opt);
    prefill_and_send(&h[0], "", TOKENS);
    prefill(&h[1], "", TOKENS, 0, NULL);
    tell(&h[1], run_ship);
    UNTIL(atomic_load(&h[1].state) == 2);
    cr_assert_eq(h[1].status, FV_EBUSY, "%s", h[1].why);
    ask(&a, &h[0], TOKENS);
    UNTIL(a.over);
    cr_assert_eq(a.status, FV_OK, "%s", a.why);
    UNTIL(worker_is_empty());
    prefill_and_send(&h[2], "", TOKENS);
    memset(&a, 0, sizeof a);
    ask(&a, &h[2], TOKENS);
    UNTIL(a.over);
    for (int i = 0; i < 3; i++) handoff_free(&h[i]);
    close_all();
}

/* ---- who goes away ------------------------------------------------------------------------ */

Test(decode_worker, cancelling_an_answer_frees_what_it_holds) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_send(&h, "", MANY);
    ask(&a, &h, MANY);
    UNTIL(a.n > 2);
    fv_rpc_call_cancel(a.call);
    UNTIL(a.over);
    handoff_free(&h);
    close_all(); /* waits for the worker to be empty */
    cr_assert_not(a.finished);
}

Test(decode_worker, cancelling_before_the_kv_has_come_ends_the_hand_off_too) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_hold(&h);
    ask(&a, &h, TOKENS);
    UNTIL(fv_decode_worker_load(worker).n_queued == 1);
    fv_rpc_call_cancel(a.call);
    UNTIL(worker_is_empty());
    tell(&h, run_let_go);
    UNTIL(atomic_load(&h.state) == 2);
    cr_assert_neq(h.status, FV_OK, "nobody takes it any more");
    handoff_free(&h);
    close_all();
}

Test(decode_worker, a_deadline_frees_what_the_request_holds) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_hold(&h);
    request m = request_for(&h.ticket, TOKENS);
    ask_with(&a, &m, 100);
    UNTIL(a.over);
    cr_assert_eq(a.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    UNTIL(worker_is_empty());
    tell(&h, run_abandon);
    UNTIL(atomic_load(&h.state) == 2);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, a_hand_off_that_is_given_up_fails_the_answer_that_waits_for_it) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_hold(&h);
    ask(&a, &h, TOKENS);
    UNTIL(fv_decode_worker_load(worker).n_queued == 1);
    tell(&h, run_abandon);
    UNTIL(a.over);
    cr_assert_eq(a.code, GRPC_STATUS_UNAVAILABLE, "%s", a.why);
    UNTIL(atomic_load(&h.state) == 2);
    handoff_free(&h);
    close_all();
}

static void note_over(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    (void)c, (void)reply;
    cr_assert_eq(end->status, FV_OK, "%s", end->text);
    *(bool *)user = true;
}

static void unary(const char *path, const ProtobufCMessage *m) {
    bool over = false;
    need(fv_rpc_unary(channel, path, m, 20000, note_over, &over, NULL));
    UNTIL(over);
}

static void release(const fv_ticket *ticket) {
    Fovea__Handoff__V1__Ticket t = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__ReleaseRequest m = FOVEA__HANDOFF__V1__RELEASE_REQUEST__INIT;
    t.id = (ProtobufCBinaryData){sizeof ticket->id, (uint8_t *)(uintptr_t)ticket->id};
    t.epoch = ticket->epoch;
    m.ticket = &t;
    unary("/fovea.handoff.v1.Handoff/Release", &m.base);
}

static void note_grant(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    ProtobufCMessage *m;
    cr_assert_eq(end->status, FV_OK, "%s", end->text);
    need(fv_rpc_call_unpack(c, &fovea__handoff__v1__grant__descriptor, reply, &m));
    const Fovea__Handoff__V1__Grant *g = (const Fovea__Handoff__V1__Grant *)m;
    fv_ticket *ticket = user;
    memcpy(ticket->id, g->ticket->id.data, sizeof ticket->id);
    ticket->epoch = g->ticket->epoch;
}

/* A grant that nobody has opened a stream for. */
static fv_ticket open_room(void) {
    fv_ticket ticket = {.epoch = 0};
    Fovea__Handoff__V1__OpenRequest m = FOVEA__HANDOFF__V1__OPEN_REQUEST__INIT;
    fv_kv_shape s = fv_engine_kv_shape(&p_engine, FV_F32);
    fv_compat compat;
    need(fv_compat_make(&(fv_compat_fields){.model = p_engine.fingerprint,
                                            .n_layer = s.n_layer,
                                            .n_kv = s.n_kv,
                                            .d_head = s.d_head,
                                            .dtype = "f32"},
                        &compat));
    m.compat_hash = compat.hash;
    m.compat = compat.text;
    m.n_text = 3;
    m.max_tokens = 5;
    need(fv_rpc_unary(channel, "/fovea.handoff.v1.Handoff/Open", &m.base, 20000, note_grant,
                      &ticket, NULL));
    UNTIL(ticket.epoch != 0);
    UNTIL(fv_decode_worker_load(worker).bytes_granted > 0);
    return ticket;
}

Test(decode_worker, what_nobody_sends_or_fetches_in_time_is_free_again_without_a_word) {
    static handoff h;
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    opt.grants.lease_s = 0.2;
    opt.grants.claim_s = 0.2;
    open_all(&opt);
    open_room(); /* and is silent then */
    prefill_and_send(&h, "", TOKENS);
    UNTIL(worker_is_empty());
    ask(&a, &h, TOKENS);
    UNTIL(a.over);
    cr_assert_eq(a.code, GRPC_STATUS_NOT_FOUND, "%s", a.why);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, a_sender_that_is_there_keeps_its_grant_however_long_it_computes) {
    static handoff h;
    fv_decode_options opt = fv_decode_options_default();
    opt.grants.lease_s = 0.3;
    open_all(&opt);
    prefill_and_hold(&h);
    uint64_t until = uv_now(&loop) + 1500; /* five leases */
    while (uv_now(&loop) < until) uv_run(&loop, UV_RUN_ONCE);
    cr_assert_gt(fv_decode_worker_load(worker).bytes_granted, 0);
    tell(&h, run_let_go);
    UNTIL(atomic_load(&h.state) == 2);
    cr_assert_eq(h.status, FV_OK, "%s", h.why);
    release(&h.ticket);
    handoff_free(&h);
    close_all();
}

static void on_push_end(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)end;
    *(bool *)fv_rpc_call_user(c) = true;
}

/* Nothing was sent but the sign of life, and no Release comes. */
Test(decode_worker, a_sender_whose_stream_breaks_has_no_grant_any_more) {
    static const fv_rpc_events events = {.on_end = on_push_end};
    fv_decode_options opt = fv_decode_options_default();
    grpc_byte_buffer *alive;
    bool over = false;
    opt.grants.lease_s = 3600;
    open_all(&opt);
    fv_ticket ticket = open_room();
    fv_rpc_call_options push = {.path = "/fovea.handoff.v1.Handoff/Push",
                                .events = &events,
                                .user = &over,
                                .deadline_ms = 20000};
    fv_rpc_call *call;
    need(fv_rpc_call_open(channel, &push, &call));
    need(fv_rpc_frame_alive(&ticket, &alive));
    need(fv_rpc_call_send_buffer(call, alive));
    UNTIL(fv_rpc_call_bytes_queued(call) == 0);
    fv_rpc_call_cancel(call);
    UNTIL(over);
    UNTIL(worker_is_empty());
    close_all();
}

Test(decode_worker, what_is_committed_and_not_fetched_can_be_given_back) {
    static handoff h;
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    opt.grants.claim_s = 3600;
    open_all(&opt);
    prefill_and_send(&h, "", TOKENS);
    cr_assert_gt(fv_decode_worker_load(worker).bytes_held, 0);
    release(&h.ticket);
    UNTIL(worker_is_empty());
    ask(&a, &h, TOKENS);
    UNTIL(a.over);
    cr_assert_eq(a.code, GRPC_STATUS_NOT_FOUND, "%s", a.why);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, a_worker_that_stops_ends_what_runs) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_send(&h, "", MANY);
    ask(&a, &h, MANY);
    UNTIL(a.n > 0);
    stop_server(0);
    UNTIL(a.over);
    handoff_free(&h);
    close_rest();
}

/* ---- conversations ------------------------------------------------------------------------ */

/* A conversation and its measure: all its ids, the prefilled prompt's first. */
typedef struct talk {
    handoff h;
    answer got, want;
    int32_t n, ids[MORE]; /* behind the prompt */
    uint8_t name[16];
    uint32_t new_ids[64];
} talk;

static void note(talk *t, int32_t id) {
    cr_assert_lt(t->n, MORE);
    t->ids[t->n++] = id;
}

/* The answer was kept: it can be gone on from. */
static void note_kept(talk *t) {
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    cr_assert_eq(t->got.kept.n_name, 16);
    memcpy(t->name, t->got.kept.name, sizeof t->name);
    for (int32_t i = 0; i < t->got.n; i++) note(t, (int32_t)t->got.ids[i]);
}

static void begin_talk(talk *t, uint32_t keep_ms) {
    prefill_and_send(&t->h, "", TOKENS);
    request m = request_for(&t->h.ticket, TOKENS);
    m.keep_ms = keep_ms;
    ask_with(&t->got, &m, 20000);
    UNTIL(t->got.over);
    t->n = 0;
    note(t, t->h.first.id);
    note_kept(t);
}

static Fovea__Inference__V1__Prompt prompt_message;
static Fovea__Inference__V1__TokenIds ids_message;

/* A follow-up of n new ids, which are a function of `seed`. */
static request follow_up(talk *t, int32_t n, int32_t seed) {
    request m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    fovea__inference__v1__prompt__init(&prompt_message);
    fovea__inference__v1__token_ids__init(&ids_message);
    for (int32_t i = 0; i < n; i++) t->new_ids[i] = (uint32_t)(3 + (seed * 31 + i * 7) % 200);
    ids_message.id = t->new_ids;
    ids_message.n_id = (size_t)n;
    prompt_message.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt_message.ids = &ids_message;
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
    m.conversation = (ProtobufCBinaryData){sizeof t->name, t->name};
    m.prompt = &prompt_message;
    m.max_tokens = TOKENS;
    m.ignore_eos = true;
    m.digests = true;
    m.keep_ms = 60000;
    return m;
}

static void send_follow_up(talk *t, const request *m) {
    memset(&t->got, 0, sizeof t->got);
    ask_with(&t->got, m, 20000);
}

static void ask_on(talk *t, int32_t n, int32_t seed) {
    request m = follow_up(t, n, seed);
    send_follow_up(t, &m);
    for (int32_t i = 0; i < n; i++) note(t, (int32_t)t->new_ids[i]);
}

/* What a full prefill of all ids, and decoding behind it, says at this point of the talk. */
static void measure(const talk *t, answer *want) {
    static handoff whole;
    memset(&whole, 0, sizeof whole);
    memset(want, 0, sizeof *want);
    prefill(&whole, "", 0, t->n, t->ids);
    want->ids[want->n] = (uint32_t)whole.first.id;
    want->digest[want->n++] = whole.first_digest;
    expect(&whole, TOKENS, want);
    handoff_free(&whole);
}

/* The follow-up has come to its end, and is what a full prefill gives. */
static void check_on(talk *t, int32_t n_new) {
    UNTIL(t->got.over);
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    measure(t, &t->want);
    cr_assert_eq(t->got.index0, 0);
    cr_assert_eq(t->got.n, TOKENS);
    cr_assert_arr_eq(t->got.ids, t->want.ids, TOKENS * sizeof *t->got.ids);
    cr_assert_arr_eq(t->got.digest, t->want.digest, TOKENS * sizeof *t->got.digest);
    cr_assert_eq(t->got.bytes_end, t->want.bytes_end);
    cr_assert_eq(t->got.report.n_prompt, (uint32_t)n_new + 1);
    cr_assert_eq(t->got.report.n_text, (uint32_t)n_new + 1);
    cr_assert_eq(t->got.report.n_images, 0);
    cr_assert_eq(t->got.report.bytes, t->got.report.bytes_raw, "nothing was dropped");
    cr_assert_not(t->got.report.transfer);
    note_kept(t);
}

static void fails(talk *t, grpc_status_code code, const char *words) {
    UNTIL(t->got.over);
    cr_assert_eq(t->got.code, code, "%s", t->got.why);
    cr_assert(strstr(t->got.why, words), "%s", t->got.why);
    cr_assert_eq(t->got.n, 0);
}

/* It says the same as if nothing had happened to it. */
static void goes_on_well(talk *t) {
    ask_on(t, 5, 99);
    check_on(t, 5);
}

static void set_over(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    (void)call;
    (void)reply;
    cr_assert_eq(end->status, FV_OK, "%s", end->text);
    *(bool *)user = true;
}

static void forget(const uint8_t name[16]) {
    Fovea__Handoff__V1__ForgetRequest m = FOVEA__HANDOFF__V1__FORGET_REQUEST__INIT;
    bool over = false;
    m.conversation = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)name};
    need(fv_rpc_unary(channel, "/fovea.handoff.v1.Decode/Forget", &m.base, 20000, set_over, &over,
                      NULL));
    UNTIL(over);
}

static talk talks[3];

static void end_talks(int n) {
    for (int i = 0; i < n; i++) {
        forget(talks[i].name);
        handoff_free(&talks[i].h);
    }
    close_all(); /* waits until the pool is empty */
}

Test(decode_worker, five_turns_on_a_kept_picture_are_those_of_a_full_prefill) {
    static const int32_t news[] = {9, 1, 30, 2}; /* ids that come with each turn */
    open_all(NULL);
    begin_talk(&talks[0], 60000);
    cr_assert_eq(talks[0].got.kept.keep_ms, 60000);
    for (int turn = 0; turn < 4; turn++) {
        ask_on(&talks[0], news[turn], turn);
        check_on(&talks[0], news[turn]);
        UNTIL(fv_decode_worker_load(worker).n_kept == 1);
    }
    end_talks(1);
}

Test(decode_worker, conversations_that_go_on_side_by_side_in_small_steps_do_not_meet) {
    fv_decode_options opt = fv_decode_options_default();
    opt.prompt_rows = 3;
    open_all(&opt);
    for (int i = 0; i < 3; i++) begin_talk(&talks[i], 60000);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 3; i++) ask_on(&talks[i], 11 + 4 * i, 10 * i + turn);
        for (int i = 0; i < 3; i++) check_on(&talks[i], 11 + 4 * i);
    }
    end_talks(3);
}

Test(decode_worker, a_chat_goes_on_with_the_users_turn_and_a_text_as_it_is) {
    Fovea__Inference__V1__Turn turn = FOVEA__INFERENCE__V1__TURN__INIT, *turns[] = {&turn};
    Fovea__Inference__V1__Chat chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    static const char *const said[] = {"</s>USER: What now? ASSISTANT:", " And then?"};
    open_all(NULL);
    begin_talk(&talks[0], 60000);
    turn.role = (char *)"user";
    turn.text = (char *)"What now?";
    chat.template_ = (char *)"vicuna";
    chat.turns = turns;
    chat.n_turns = 1;
    for (int form = 0; form < 2; form++) {
        talk *t = &talks[0];
        int32_t *ids, n;
        request m = follow_up(t, 0, 0);
        prompt_message.form_case = form ? FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT
                                        : FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
        if (form)
            prompt_message.text = (char *)(uintptr_t)said[1];
        else
            prompt_message.chat = &chat;
        need(fv_tokenizer_encode_behind(p_engine.tok, t->ids[t->n - 1], said[form],
                                        strlen(said[form]), &ids, &n));
        send_follow_up(t, &m);
        for (int32_t i = 0; i < n; i++) note(t, ids[i]);
        free(ids);
        check_on(t, n);
    }
    end_talks(1);
}

Test(decode_worker, a_follow_up_that_is_refused_leaves_its_conversation_as_it_was) {
    open_all(NULL);
    uint32_t image = (uint32_t)fv_checkpoint_config(p_engine.ck)->image_token;
    talk *t = &talks[0];
    begin_talk(t, 60000);
    request m = follow_up(t, 0, 0);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the prompt is empty");
    m = follow_up(t, 3, 0);
    t->new_ids[1] = image;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "without new images");
    m = follow_up(t, 3, 0);
    t->new_ids[1] = 1u << 30;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the model has ids");
    static uint32_t long_ids[1 << 16];
    int32_t context = fv_checkpoint_config(p_engine.ck)->text.max_position;
    cr_assert_leq(context, 1 << 16);
    m = follow_up(t, 3, 0);
    ids_message.id = long_ids;
    ids_message.n_id = (size_t)context;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the checkpoint's context is");
    Fovea__Inference__V1__Sampling sampling = FOVEA__INFERENCE__V1__SAMPLING__INIT;
    sampling.temperature = -1;
    m = follow_up(t, 3, 0);
    m.sampling = &sampling;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "temperature");
    goes_on_well(t);
    end_talks(1);
}

Test(decode_worker, a_conversation_that_is_not_there_is_not_found) {
    uint8_t old[16];
    open_all(NULL);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    memcpy(old, t->name, sizeof old);
    goes_on_well(t);
    cr_assert_neq(memcmp(old, t->name, sizeof old), 0, "each answer's end has its own name");
    request m = follow_up(t, 3, 0);
    m.conversation.data = old;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "send the whole of it again");
    forget(t->name);
    m = follow_up(t, 3, 0);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "send the whole of it again");
    end_talks(1);
}

Test(decode_worker, what_is_kept_lasts_for_its_lease_and_no_longer) {
    fv_decode_options opt = fv_decode_options_default();
    opt.keep_s_max = 0.3;
    open_all(&opt);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    cr_assert_eq(t->got.kept.keep_ms, 300, "no longer than the worker allows");
    UNTIL(worker_is_empty());
    request m = follow_up(t, 3, 0);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "not kept any more");
    end_talks(1);
}

Test(decode_worker, without_keep_ms_nothing_is_kept_after_a_follow_up_either) {
    open_all(NULL);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    request m = follow_up(t, 3, 0);
    m.keep_ms = 0;
    send_follow_up(t, &m);
    UNTIL(t->got.over);
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    cr_assert_eq(t->got.kept.n_name, 0);
    cr_assert_eq(t->got.kept.keep_ms, 0);
    UNTIL(worker_is_empty());
    end_talks(1);
}

Test(decode_worker, one_call_at_a_time_goes_on_with_a_conversation) {
    open_all(NULL);
    talk *t = &talks[0];
    static talk other;
    begin_talk(t, 60000);
    request m = follow_up(t, 3, 1);
    m.max_tokens = MANY;
    send_follow_up(t, &m);
    UNTIL(t->got.n > 2);
    m.max_tokens = TOKENS;
    send_follow_up(&other, &m);
    fails(&other, GRPC_STATUS_INVALID_ARGUMENT, "another request goes on");
    UNTIL(t->got.over);
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    cr_assert_eq(t->got.n, MANY);
    memcpy(t->name, t->got.kept.name, sizeof t->name);
    end_talks(1);
}

Test(decode_worker, a_follow_up_cancelled_in_the_middle_ends_its_conversation) {
    open_all(NULL);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    request m = follow_up(t, 3, 1);
    m.max_tokens = MANY;
    send_follow_up(t, &m);
    UNTIL(t->got.n > 2);
    fv_rpc_call_cancel(t->got.call);
    UNTIL(t->got.over);
    UNTIL(worker_is_empty());
    m = follow_up(t, 3, 1);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "not kept any more");
    end_talks(1);
}

Test(decode_worker, a_follow_up_cancelled_before_it_began_leaves_its_conversation) {
    static handoff busy;
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    opt.batch_max = 1;
    open_all(&opt);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    prefill_and_send(&busy, "", MANY);
    ask(&a, &busy, MANY);
    UNTIL(a.n > 0);
    request m = follow_up(t, 3, 1);
    send_follow_up(t, &m);
    UNTIL(fv_decode_worker_load(worker).n_queued == 1 || a.over);
    cr_assert_not(a.over, "it was too quick: make it longer");
    fv_rpc_call_cancel(t->got.call);
    UNTIL(t->got.over);
    UNTIL(fv_decode_worker_load(worker).n_kept == 1);
    fv_rpc_call_cancel(a.call);
    UNTIL(a.over);
    goes_on_well(t);
    handoff_free(&busy);
    end_talks(1);
}

Test(decode_worker, a_follow_up_without_room_is_refused_for_now_and_loses_nothing) {
    fv_decode_options opt = fv_decode_options_default();
    fv_kv_shape shape;
    open_all(NULL); /* how much does one need? */
    shape = fv_engine_kv_shape(&p_engine, FV_F32);
    close_all();
    shipping = NULL;
    opt.kv_bytes = 2 * fv_kv_text_bytes(&shape, ROWS + TOKENS + FV_KV_BLOCK);
    open_all(&opt);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    UNTIL(fv_decode_worker_load(worker).n_kept == 1);
    uint64_t kept = fv_decode_worker_load(worker).bytes_kept;
    request m = follow_up(t, 3, 1);
    m.max_tokens = MANY;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_RESOURCE_EXHAUSTED, "the KV pool is full");
    UNTIL(fv_decode_worker_load(worker).bytes_held == kept);
    goes_on_well(t);
    end_talks(1);
}

Test(decode_worker, a_worker_that_is_about_to_leave_lets_conversations_go) {
    open_all(NULL);
    talk *t = &talks[0];
    begin_talk(t, 60000);
    fv_decode_worker_drain(worker);
    fv_decode_worker_drain(worker);
    UNTIL(worker_is_empty());
    prefill_and_send(&talks[1].h, "", TOKENS);
    request m = request_for(&talks[1].h.ticket, TOKENS);
    m.keep_ms = 60000;
    ask_with(&talks[1].got, &m, 20000);
    UNTIL(talks[1].got.over);
    cr_assert_eq(talks[1].got.status, FV_OK, "%s", talks[1].got.why);
    cr_assert_eq(talks[1].got.kept.n_name, 0);
    end_talks(2);
}

/* ---- the program -------------------------------------------------------------------------- */

static command_result r;

Test(decode_worker, the_program_serves_until_it_is_told_to_stop) {
    command_run(&r,
                FOVEA_BIN
                "/fovea-decode --checkpoint %s --threads 1 --log warn > "
                "%s/out 2>&1 & p=$!; for i in $(seq 200); do grep -q listening %s/out && break; "
                "sleep 0.05; done; kill -TERM $p; wait $p; echo \"ended with $?\"; cat %s/out",
                dir, dir, dir, dir);
    cr_assert(strstr(r.out, "ended with 0"), "%s %s", r.out, r.err);
    cr_assert(strstr(r.out, "listening on 127.0.0.1:"), "%s", r.out);
}

Test(decode_worker, wrong_usage_of_the_program_ends_with_2_and_a_sentence) {
    command_run(&r, FOVEA_BIN "/fovea-decode");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "--checkpoint DIR is needed"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode --checkpoint %s --kv-dtype f64", dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "f32, bf16 or f16"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode --checkpoint /nonexistent");
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.err, "/nonexistent"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode --checkpoint %s --listen nowhere", dir);
    cr_assert_eq(r.status, 2, "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode --help");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "--router HOST:PORT"), "%s", r.out);
}
