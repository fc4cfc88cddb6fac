/* The prefill worker against a decode worker, both in this process on one loop and over loopback:
 * what goes through is what one process says, and what fails leaves nothing behind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/local.h"
#include "common/file.h"
#include "decode-worker/worker.h"
#include "handoff.pb-c.h"
#include "model/synth.h"
#include "prefill-worker/worker.h"
#include "tests/support/command.h"
#include "tests/support/net.h"
#include "wire/rpc_message.h"

#define PICTURE FOVEA_TEST_DATA "/golden/demo.png"
#define QUESTION "USER: <image>\nwhat is in this picture? ASSISTANT:"
enum { N_TOKEN = 6 };

typedef Fovea__Handoff__V1__PrefillRequest prefill_request;
typedef Fovea__Inference__V1__GenerateRequest generate_request;

static char dir[512]; /* this test's own checkpoint */
static char *picture;
static size_t n_picture;

static void make_checkpoint(void) {
    fv_synth_report report;
    snprintf(dir, sizeof dir, "%s/prefill-%d", FOVEA_TEST_TMP, (int)getpid());
    fv_synth_options opt = {.dir = dir, .shape = "tiny", .dtype = FV_F32, .seed = 5};
    cr_assert_eq(fv_synth_write(&opt, &report), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_file_read(PICTURE, 1 << 24, &picture, &n_picture), FV_OK);
}

static void drop_checkpoint(void) {
    static command_result r;
    free(picture);
    command_run(&r, "rm -rf '%s'", dir);
}

TestSuite(prefill_worker, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 120);

/* ---- two workers ------------------------------------------------------------------------ */

typedef struct workers {
    net net; /* loop and bridge; its own service is not used */
    fv_engine engine, decode_engine;
    fv_prefill_worker *prefill;
    fv_decode_worker *decode;
    fv_rpc_service services[1 + FV_DECODE_SERVICES];
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    char target[64];
    bool server_done, prefill_done, decode_done;
    fv_prefill_worker_options p;
    fv_decode_options d;
} workers;

static workers w = {
    .p = {.name = "p0", .kv_dtype = FV_F32, .cache_bytes = 1 << 20, .queue = 32, .batch = 4}};

static void open_engine(fv_engine *e, bool vision) {
    fv_engine_options opt = {
        .checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1, .vision = vision};
    cr_assert_eq(fv_engine_open(&opt, e), FV_OK, "%s", fv_last_error());
}

/* With the options that a test has put into w.p and w.d. */
static void open_workers(void) {
    net_open(&w.net);
    open_engine(&w.engine, true);
    open_engine(&w.decode_engine, false);
    w.p.bridge = w.net.bridge;
    w.p.engine = &w.engine;
    cr_assert_eq(fv_prefill_worker_open(&w.p, &w.prefill), FV_OK, "%s", fv_last_error());
    fv_decode_options d = fv_decode_options_default();
    d.engine = &w.decode_engine;
    d.name = "d0";
    d.kv_dtype = w.d.kv_dtype;
    if (w.d.grants.capacity) d.grants.capacity = w.d.grants.capacity;
    if (w.d.grants.claim_s > 0) d.grants.claim_s = w.d.grants.claim_s;
    cr_assert_eq(fv_decode_worker_open(w.net.bridge, &d, &w.decode), FV_OK, "%s", fv_last_error());
    w.services[0] = fv_prefill_worker_service(w.prefill);
    fv_decode_worker_services(w.decode, w.services + 1);
    fv_rpc_server_options opt = {
        .listen = "127.0.0.1:0", .services = w.services, .n_service = 1 + FV_DECODE_SERVICES};
    cr_assert_eq(fv_rpc_server_open(w.net.bridge, &opt, &w.server), FV_OK, "%s", fv_last_error());
    snprintf(w.target, sizeof w.target, "127.0.0.1:%d", fv_rpc_server_port(w.server));
    cr_assert_eq(fv_rpc_channel_open(w.net.bridge, w.target, NULL, &w.channel), FV_OK);
}

static void set(void *flag) { *(bool *)flag = true; }

/* Nothing may be left of any request. */
static void close_workers(void) {
    fv_rpc_channel_close(w.channel);
    fv_rpc_server_stop(w.server, 5000, set, &w.server_done);
    net_wait(&w.net, &w.server_done);
    fv_prefill_worker_close(w.prefill, set, &w.prefill_done);
    net_wait(&w.net, &w.prefill_done);
    fv_decode_worker_close(w.decode, set, &w.decode_done);
    net_wait(&w.net, &w.decode_done);
    net_close(&w.net, 1000);
    fv_engine_close(&w.engine);
    fv_engine_close(&w.decode_engine);
}

static Fovea__Inference__V1__Load prefill_load(void) {
    Fovea__Inference__V1__Load load = FOVEA__INFERENCE__V1__LOAD__INIT;
    fv_prefill_worker_load(w.prefill, &load);
    return load;
}

/* Until neither worker holds anything for anybody. */
static void wait_for_nothing_held(void) {
    Fovea__Inference__V1__Load mine = FOVEA__INFERENCE__V1__LOAD__INIT;
    fv_decode_load theirs = {0};
    for (int i = 0; i < 300; i++) {
        mine = prefill_load();
        theirs = fv_decode_worker_load(w.decode);
        if (mine.n_running + mine.n_queued == 0 && mine.bytes_held == 0 &&
            theirs.bytes_granted == 0 && theirs.bytes_held == 0)
            return;
        net_sleep(&w.net, 10);
    }
    cr_assert_fail("held after three seconds: %u running, %u queued, %zu bytes here; %zu granted, "
                   "%zu held there",
                   mine.n_running, mine.n_queued, (size_t)mine.bytes_held,
                   (size_t)theirs.bytes_granted, (size_t)theirs.bytes_held);
}

/* ---- a request -------------------------------------------------------------------------- */

typedef struct asking {
    prefill_request m;
    generate_request g;
    Fovea__Inference__V1__Prompt prompt;
    Fovea__Inference__V1__Image image, *images[1];
} asking;

/* The demo picture and a question about it. */
static void ask_about_picture(asking *a, const char *decode_address) {
    fovea__handoff__v1__prefill_request__init(&a->m);
    fovea__inference__v1__generate_request__init(&a->g);
    fovea__inference__v1__prompt__init(&a->prompt);
    fovea__inference__v1__image__init(&a->image);
    a->m.request = &a->g;
    a->m.decode_address = (char *)(uintptr_t)decode_address;
    a->g.request_id = (char *)"r";
    a->g.prompt = &a->prompt;
    a->prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    a->prompt.text = (char *)QUESTION;
    a->image.data = (ProtobufCBinaryData){n_picture, (uint8_t *)picture};
    a->images[0] = &a->image;
    a->g.images = a->images;
    a->g.n_images = 1;
    a->g.max_tokens = N_TOKEN;
    a->g.ignore_eos = true;
    a->g.digests = true;
}

/* What a call of either worker said. */
typedef struct heard {
    fv_rpc_call *call;
    fv_arena arena;
    char order[8]; /* B, F, H as they came */
    int32_t n_event;
    const Fovea__Handoff__V1__Begun *begun;
    const Fovea__Handoff__V1__FirstToken *first;
    const Fovea__Inference__V1__Report *report;
    int32_t n_id;
    uint32_t id[N_TOKEN]; /* of Decode */
    uint64_t digest[N_TOKEN];
    bool over;
    fv_rpc_end end;
    char why[FV_RPC_TEXT_MAX], refusal[64];
} heard;

static fv_status on_prefilled(fv_rpc_call *c, grpc_byte_buffer *message) {
    heard *h = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_unpack(&fovea__handoff__v1__prefill_event__descriptor, message, &h->arena, &m));
    const Fovea__Handoff__V1__PrefillEvent *e = (const Fovea__Handoff__V1__PrefillEvent *)m;
    cr_assert_lt(h->n_event, 7);
    switch (e->event_case) {
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN:
        h->order[h->n_event++] = 'B';
        h->begun = e->begun;
        break;
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_FIRST_TOKEN:
        h->order[h->n_event++] = 'F';
        h->first = e->first_token;
        break;
    default: h->order[h->n_event++] = 'H'; h->report = e->handed_off->report;
    }
    return FV_OK;
}

static fv_status on_decoded(fv_rpc_call *c, grpc_byte_buffer *message) {
    heard *h = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_unpack(&fovea__inference__v1__generate_event__descriptor, message, &h->arena, &m));
    const Fovea__Inference__V1__GenerateEvent *e = (const Fovea__Inference__V1__GenerateEvent *)m;
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS)
        for (size_t i = 0; i < e->tokens->n_tokens; i++) {
            h->digest[h->n_id] = e->tokens->tokens[i]->digest;
            h->id[h->n_id++] = e->tokens->tokens[i]->id;
        }
    else if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED)
        h->report = e->finished->report;
    return FV_OK;
}

static uint64_t first_digest(const heard *h) { return h->first->tokens->tokens[0]->digest; }

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    heard *h = fv_rpc_call_user(c);
    const char *value;
    size_t n;
    h->over = true;
    h->end = *end;
    h->call = NULL;
    snprintf(h->why, sizeof h->why, "%s", end->text);
    if (fv_rpc_call_metadata(c, "fovea-refusal", &value, &n))
        snprintf(h->refusal, sizeof h->refusal, "%.*s", (int)n, value);
}

static void call(heard *h, const char *path,
                 fv_status (*on_message)(fv_rpc_call *, grpc_byte_buffer *),
                 const ProtobufCMessage *m, int64_t deadline_ms) {
    static fv_rpc_events events[2];
    fv_rpc_events *ev = &events[on_message == on_decoded];
    *ev = (fv_rpc_events){.on_message = on_message, .on_end = on_end};
    fv_rpc_call_options opt = {.path = path,
                               .events = ev,
                               .user = h,
                               .deadline_ms = deadline_ms,
                               .request = m,
                               .half_close = true};
    cr_assert_eq(fv_rpc_call_open(w.channel, &opt, &h->call), FV_OK, "%s", fv_last_error());
}

static void begin(heard *h, const asking *a) {
    call(h, "/fovea.handoff.v1.Prefill/Prefill", on_prefilled, &a->m.base, 20000);
}

static void run(heard *h, const asking *a) {
    begin(h, a);
    net_wait(&w.net, &h->over);
}

static void run_well(heard *h, const asking *a) {
    run(h, a);
    cr_assert_eq(h->end.status, FV_OK, "%s", h->why);
}

/* Collects what came behind the first token. */
static void decode(heard *h, const Fovea__Handoff__V1__Ticket *ticket) {
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    m.request_id = (char *)"r";
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
    m.ticket = (Fovea__Handoff__V1__Ticket *)(uintptr_t)ticket;
    m.max_tokens = N_TOKEN;
    m.ignore_eos = true;
    m.digests = true;
    call(h, "/fovea.handoff.v1.Decode/Decode", on_decoded, &m.base, 20000);
    net_wait(&w.net, &h->over);
    cr_assert_eq(h->end.status, FV_OK, "%s", h->why);
}

/* ---- the same in one process ------------------------------------------------------------ */

typedef struct truth {
    int32_t n;
    uint32_t id[N_TOKEN];
    fv_report report;
} truth;

static fv_status note_token(void *user, const fv_sampled *token) {
    truth *t = user;
    t->id[t->n++] = (uint32_t)token->id;
    return FV_OK;
}

static void ask_one_process(truth *t, const char *policy) {
    fv_local *local;
    fv_image image;
    fv_local_options opt = {.checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1};
    cr_assert_eq(fv_local_open(&opt, &local), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_image_decode(picture, n_picture, NULL, &image), FV_OK);
    fv_ask ask = {.n_image = 1,
                  .images = &image,
                  .question = QUESTION,
                  .raw = true,
                  .sampling = fv_sampling_default(),
                  .max_tokens = N_TOKEN,
                  .ignore_eos = true};
    cr_assert_eq(fv_policy_parse(policy, &ask.policy), FV_OK);
    fv_ask_hooks hooks = {.user = t, .token = note_token};
    cr_assert_eq(fv_local_ask(local, &ask, &hooks, &t->report), FV_OK, "%s", fv_last_error());
    cr_assert_eq(t->n, N_TOKEN);
    fv_image_free(&image);
    fv_local_close(local);
}

/* ---- what goes through ------------------------------------------------------------------ */

static heard p, d;
static asking a;
static truth t;

Test(prefill_worker, an_answer_over_two_workers_is_that_of_one_process) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_picture(&a, w.target);
    run_well(&p, &a);
    cr_assert_str_eq(p.order, "BFH");
    cr_assert_eq(p.first->tokens->tokens[0]->id, t.id[0]);
    cr_assert_eq(p.first->tokens->index, 0);
    cr_assert_eq(p.first->finish, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_UNSPECIFIED);
    cr_assert_eq(first_digest(&p), t.report.digest[0]);
    decode(&d, p.begun->ticket);
    cr_assert_eq(d.n_id, N_TOKEN - 1);
    cr_assert_arr_eq(d.id, t.id + 1, sizeof d.id[0] * (N_TOKEN - 1));
    cr_assert_arr_eq(d.digest, t.report.digest + 1, sizeof d.digest[0] * (N_TOKEN - 1));
    wait_for_nothing_held();
    close_workers();
}

/* The tiny checkpoint's layers leave one by one, or all together: the same arrives. */
Test(prefill_worker, layers_leave_in_groups_while_later_ones_are_computed) {
    uint64_t frames[2];
    ask_one_process(&t, "");
    for (int i = 0; i < 2; i++) {
        static const workers none;
        fv_prefill_worker_options opt = w.p;
        w = none;
        w.p = opt;
        w.p.ship_layers = i == 0 ? 1 : 256;
        open_workers();
        ask_about_picture(&a, w.target);
        run_well(&p, &a);
        decode(&d, p.begun->ticket);
        cr_assert_arr_eq(d.id, t.id + 1, sizeof d.id[0] * (N_TOKEN - 1));
        const Fovea__Inference__V1__Transfer *x = p.report->transfer;
        frames[i] = x->n_frames;
        cr_assert_eq(x->bytes_sent, t.report.bytes_sent);
        cr_assert_gt(x->seconds_open, 0);
        cr_assert_gt(x->seconds_exposed, x->seconds_commit);
        if (i == 0) cr_assert_gt(x->seconds_send, 0);
        fv_arena_fini(&p.arena);
        fv_arena_fini(&d.arena);
        p = d = (heard){0};
        wait_for_nothing_held();
        close_workers();
    }
    cr_assert_geq(frames[0], frames[1] + (uint64_t)t.report.n_layer - 1);
}

Test(prefill_worker, its_half_of_the_report_is_that_of_one_process) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_picture(&a, w.target);
    run_well(&p, &a);
    const Fovea__Inference__V1__Report *r = p.report;
    cr_assert_eq(r->n_prompt, (uint32_t)t.report.n_prompt);
    cr_assert_eq(r->n_visual, (uint32_t)t.report.n_visual);
    cr_assert_eq(r->n_text, (uint32_t)t.report.n_text);
    cr_assert_eq(r->n_images, 1);
    cr_assert_eq(r->bytes_raw, t.report.bytes_raw);
    cr_assert_eq(r->bytes_bound, t.report.bytes_bound);
    cr_assert_eq(r->bytes_visual, t.report.bytes_visual);
    cr_assert_eq(r->bytes_text, t.report.bytes_text);
    cr_assert_eq(r->n_visual_rows, (size_t)t.report.n_layer);
    cr_assert_str_eq(r->transfer->transport, "grpc");
    cr_assert_eq(r->transfer->bytes_sent, t.report.bytes_sent);
    cr_assert_str_eq(r->prefill_worker, "p0");
    cr_assert(p.begun->bytes_bound >= r->bytes_visual + r->bytes_text);
    close_workers();
}

Test(prefill_worker, a_policy_is_carried_out_and_reported) {
    Fovea__Inference__V1__Param keep = FOVEA__INFERENCE__V1__PARAM__INIT,
                                layer = FOVEA__INFERENCE__V1__PARAM__INIT,
                                *params[] = {&layer, &keep};
    Fovea__Inference__V1__StagePolicy stage = FOVEA__INFERENCE__V1__STAGE_POLICY__INIT,
                                      *stages[] = {&stage};
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    layer.name = (char *)"layer";
    layer.value = 1;
    keep.name = (char *)"keep";
    keep.value = 0.5;
    stage.stage = (char *)"prune";
    stage.method = (char *)"random";
    stage.params = params;
    stage.n_params = 2;
    policy.stages = stages;
    policy.n_stages = 1;
    open_workers();
    ask_one_process(&t, "prune=random,layer=1,keep=0.5");
    ask_about_picture(&a, w.target);
    a.g.policy = &policy;
    run_well(&p, &a);
    cr_assert_str_eq(p.report->policy, t.report.policy);
    cr_assert_eq(first_digest(&p), t.report.digest[0]);
    for (int32_t l = 0; l < t.report.n_layer; l++)
        cr_assert_eq(p.report->visual_rows[l], (uint32_t)t.report.visual_rows[l]);
    cr_assert_lt(p.report->bytes_visual, p.report->bytes_raw);
    close_workers();
}

Test(prefill_worker, requests_that_come_together_do_not_change_each_other) {
    enum { N = 9 };
    static heard many[N];
    static asking asks[N];
    open_workers();
    ask_one_process(&t, "");
    for (int i = 0; i < N; i++) {
        ask_about_picture(&asks[i], w.target);
        if (i % 2) asks[i].prompt.text = (char *)"<image> something else, and longer: why?";
        begin(&many[i], &asks[i]);
    }
    for (int i = 0; i < N; i++) {
        net_wait(&w.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
        cr_assert_str_eq(many[i].order, "BFH");
        cr_assert_eq(first_digest(&many[i]), first_digest(&many[i % 2]));
    }
    cr_assert_eq(first_digest(&many[0]), t.report.digest[0]);
    cr_assert_neq(first_digest(&many[1]), t.report.digest[0]);
    cr_assert_eq(prefill_load().n_done, N);
    close_workers();
}

Test(prefill_worker, a_pool_with_room_for_one_prompt_serves_many_in_turn) {
    enum { N = 5 };
    static heard many[N];
    open_workers();
    ask_about_picture(&a, w.target);
    run_well(&p, &a);
    size_t one = p.report->bytes_raw;
    close_workers();

    w = (workers){.p = w.p};
    w.p.kv_bytes = 2 * one; /* pages are taken whole */
    open_workers();
    a.m.decode_address = w.target;
    for (int i = 0; i < N; i++) begin(&many[i], &a);
    for (int i = 0; i < N; i++) {
        net_wait(&w.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
    }
    close_workers();
}

Test(prefill_worker, a_picture_that_comes_again_is_not_encoded_again) {
    static heard again;
    open_workers();
    ask_about_picture(&a, w.target);
    run_well(&p, &a);
    run_well(&again, &a);
    cr_assert_gt(p.report->seconds_vision, 0);
    cr_assert_eq(again.report->seconds_vision, 0);
    cr_assert_eq(first_digest(&again), first_digest(&p));
    close_workers();
}

Test(prefill_worker, an_answer_of_one_token_is_handed_to_nobody) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_picture(&a, "");
    a.g.max_tokens = 1;
    a.g.n_logprobs = 3;
    run_well(&p, &a);
    cr_assert_str_eq(p.order, "FH");
    const Fovea__Inference__V1__Token *token = p.first->tokens->tokens[0];
    cr_assert_eq(token->id, t.id[0]);
    cr_assert_eq(token->n_alternatives, 3);
    cr_assert_eq(token->alternatives[0]->id, t.id[0], "greedy takes the likeliest");
    cr_assert_eq(p.first->finish, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH);
    cr_assert_null(p.report->transfer);
    cr_assert_eq(p.report->n_generated, 1);
    close_workers();
}

Test(prefill_worker, for_one_token_no_room_is_asked_for) {
    open_workers();
    ask_about_picture(&a, "127.0.0.1:1"); /* nobody is there */
    a.g.max_tokens = 1;
    run_well(&p, &a);
    cr_assert_str_eq(p.order, "FH");
    close_workers();
}

Test(prefill_worker, a_replay_goes_on_where_the_client_was) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_picture(&a, w.target);
    a.m.replay = t.id;
    a.m.n_replay = 3;
    run_well(&p, &a);
    cr_assert_eq(p.first->tokens->index, 3);
    cr_assert_eq(p.first->tokens->tokens[0]->id, t.id[3]);
    cr_assert_eq(first_digest(&p), t.report.digest[3]);
    close_workers();
}

Test(prefill_worker, a_replay_keeps_the_rows_that_its_question_chose) {
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    static heard each[N_TOKEN];
    policy.preset = (char *)"paper-fastv";
    open_workers();
    ask_one_process(&t, "preset=paper-fastv");
    for (size_t n = 1; n < N_TOKEN; n++) {
        ask_about_picture(&a, w.target);
        a.g.policy = &policy;
        a.m.replay = t.id;
        a.m.n_replay = n;
        run_well(&each[n], &a);
        cr_assert_eq(each[n].first->tokens->tokens[0]->id, t.id[n]);
        cr_assert_eq(first_digest(&each[n]), t.report.digest[n], "behind %zu tokens", n);
    }
    close_workers();
}

Test(prefill_worker, a_replay_of_a_whole_answer_says_how_it_ended) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_picture(&a, w.target);
    a.m.replay = t.id;
    a.m.n_replay = N_TOKEN;
    run_well(&p, &a);
    cr_assert_str_eq(p.order, "FH");
    cr_assert_null(p.first->tokens);
    cr_assert_eq(p.first->finish, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH);
    close_workers();
}

Test(prefill_worker, ids_say_the_same_as_their_text) {
    int32_t *ids, n;
    static uint32_t said[256];
    Fovea__Inference__V1__TokenIds m = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    static heard by_ids;
    open_workers();
    ask_about_picture(&a, w.target);
    run_well(&p, &a);
    cr_assert_eq(fv_tokenizer_encode(w.engine.tok, QUESTION, strlen(QUESTION), true, &ids, &n),
                 FV_OK);
    for (int32_t i = 0; i < n; i++) said[i] = (uint32_t)ids[i];
    free(ids);
    m.id = said;
    m.n_id = (size_t)n;
    a.prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    a.prompt.ids = &m;
    run_well(&by_ids, &a);
    cr_assert_eq(first_digest(&by_ids), first_digest(&p));
    close_workers();
}

/* ---- what is refused -------------------------------------------------------------------- */

/* The request fails with this status and these words, and nothing is left of it. */
static void fails_with(fv_status st, const char *words) {
    run(&p, &a);
    cr_assert_eq(p.end.status, st, "%s: %s", fv_status_name(p.end.status), p.why);
    cr_assert(strstr(p.why, words), "%s", p.why);
    cr_assert_null(p.first);
    wait_for_nothing_held();
    close_workers();
}

static void prepare(void) {
    open_workers();
    ask_about_picture(&a, w.target);
}

Test(prefill_worker, a_broken_picture_is_the_clients_mistake_and_named) {
    prepare();
    a.image.data.len = n_picture / 2;
    fails_with(FV_EINVAL, "image 0");
}

Test(prefill_worker, bytes_that_are_no_picture_are_the_clients_mistake) {
    prepare();
    a.image.data = (ProtobufCBinaryData){4, (uint8_t *)"what"};
    fails_with(FV_EINVAL, "image 0");
}

Test(prefill_worker, a_picture_that_the_prompt_does_not_mention_is_refused) {
    prepare();
    a.prompt.text = (char *)"no picture here";
    fails_with(FV_EINVAL, "<image>");
}

Test(prefill_worker, a_request_without_a_prompt_is_refused) {
    prepare();
    a.g.prompt = NULL;
    fails_with(FV_EINVAL, "no prompt");
}

Test(prefill_worker, a_call_without_a_request_is_refused) {
    prepare();
    a.m.request = NULL;
    fails_with(FV_EINVAL, "request");
}

Test(prefill_worker, an_id_that_the_model_does_not_have_is_refused) {
    static uint32_t ids[] = {1, 4000000000u};
    Fovea__Inference__V1__TokenIds m = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    prepare();
    m.id = ids;
    m.n_id = 2;
    a.g.n_images = 0;
    a.prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    a.prompt.ids = &m;
    fails_with(FV_EINVAL, "id 1");
}

Test(prefill_worker, a_policy_that_does_not_exist_is_refused) {
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    prepare();
    policy.preset = (char *)"magic";
    a.g.policy = &policy;
    fails_with(FV_EINVAL, "magic");
}

Test(prefill_worker, sampling_out_of_range_is_refused) {
    Fovea__Inference__V1__Sampling s = FOVEA__INFERENCE__V1__SAMPLING__INIT;
    prepare();
    s.temperature = -1;
    a.g.sampling = &s;
    fails_with(FV_EINVAL, "temperature");
}

Test(prefill_worker, a_kept_conversation_does_not_go_on_here) {
    prepare();
    a.g.conversation = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
    fails_with(FV_EINVAL, "on a decode worker");
}

Test(prefill_worker, a_decode_address_that_is_none_is_refused) {
    prepare();
    a.m.decode_address = (char *)"nowhere";
    fails_with(FV_EINVAL, "nowhere");
}

Test(prefill_worker, a_replay_longer_than_the_answer_is_refused) {
    static uint32_t ids[N_TOKEN + 1];
    prepare();
    a.m.replay = ids;
    a.m.n_replay = N_TOKEN + 1;
    fails_with(FV_EINVAL, "already has");
}

Test(prefill_worker, a_prompt_that_never_fits_is_too_large_now_and_later) {
    w.p.kv_bytes = 1000;
    prepare();
    fails_with(FV_ENOMEM, "--kv-bytes");
}

/* ---- the other side --------------------------------------------------------------------- */

Test(prefill_worker, a_decode_worker_that_is_not_there_is_unavailable) {
    prepare();
    a.m.decode_address = (char *)"127.0.0.1:1";
    fails_with(FV_EIO, "127.0.0.1:1");
}

Test(prefill_worker, a_decode_worker_of_another_kind_is_named_with_what_differs) {
    w.d.kv_dtype = FV_BF16;
    prepare();
    run(&p, &a);
    cr_assert_eq(p.end.status, FV_EUNSUPPORTED, "%s", p.why);
    cr_assert(strstr(p.why, "bf16"), "%s", p.why);
    cr_assert_str_eq(p.refusal, "incompatible");
    cr_assert_eq(p.n_event, 0);
    close_workers();
}

Test(prefill_worker, a_full_decode_worker_is_busy_and_nothing_was_computed) {
    static heard second;
    w.d.grants.capacity = 1;
    prepare();
    run_well(&p, &a); /* committed, and not collected */
    uint64_t rows = prefill_load().tokens_in;
    run(&second, &a);
    cr_assert_eq(second.end.status, FV_EBUSY, "%s", second.why);
    cr_assert_str_eq(second.refusal, "no_room");
    cr_assert_geq(second.end.retry_ms, 0);
    cr_assert_eq(second.n_event, 0);
    cr_assert_eq(prefill_load().tokens_in, rows);
    close_workers();
}

/* ---- ending early ----------------------------------------------------------------------- */

Test(prefill_worker, a_cancelled_call_gives_everything_back) {
    static heard many[8];
    w.d.grants.claim_s = 0.5; /* what is committed when its call ends waits so long for a claim */
    prepare();
    for (int i = 0; i < 8; i++) begin(&many[i], &a);
    for (int i = 0; i < 8; i++) {
        if (i % 2) net_sleep(&w.net, 1); /* some of them have got further than others */
        if (many[i].call) fv_rpc_call_cancel(many[i].call);
    }
    for (int i = 0; i < 8; i++) net_wait(&w.net, &many[i].over);
    for (int i = 0; i < 8; i++)
        if (many[i].end.status == FV_OK) decode(&d, many[i].begun->ticket), d = (heard){0};
    wait_for_nothing_held();
    run_well(&p, &a);
    close_workers();
}

Test(prefill_worker, a_deadline_gives_everything_back) {
    static heard many[8];
    w.d.grants.claim_s = 0.5; /* what is committed when its call ends waits so long for a claim */
    prepare();
    for (int i = 0; i < 8; i++)
        call(&many[i], "/fovea.handoff.v1.Prefill/Prefill", on_prefilled, &a.m.base, 1 + i);
    for (int i = 0; i < 8; i++) net_wait(&w.net, &many[i].over);
    for (int i = 0; i < 8; i++)
        if (many[i].end.status == FV_OK) decode(&d, many[i].begun->ticket), d = (heard){0};
    wait_for_nothing_held();
    close_workers();
}

/* A decode worker that grants room, and never reads a frame. */
static fv_status mute_open(fv_rpc_call *c, grpc_byte_buffer *m) {
    uint8_t id[16] = "nobody is there";
    Fovea__Handoff__V1__Ticket ticket = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__Grant g = FOVEA__HANDOFF__V1__GRANT__INIT;
    (void)m;
    ticket.id = (ProtobufCBinaryData){sizeof id, id};
    g.ticket = &ticket;
    g.frame_max = 1000;
    g.deadline_ms = 1000;
    FV_TRY(fv_rpc_call_send(c, &g.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static fv_status mute_push(fv_rpc_call *c, grpc_byte_buffer *m) {
    (void)m;
    fv_rpc_call_pause(c);
    return FV_OK;
}

static fv_status mute_release(fv_rpc_call *c, grpc_byte_buffer *m) {
    Fovea__Handoff__V1__ReleaseReply r = FOVEA__HANDOFF__V1__RELEASE_REPLY__INIT;
    (void)m;
    FV_TRY(fv_rpc_call_send(c, &r.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static const fv_rpc_method mute[] = {
    {.path = "/fovea.handoff.v1.Handoff/Open",
     .kind = FV_RPC_UNARY,
     .events = {.on_message = mute_open}},
    {.path = "/fovea.handoff.v1.Handoff/Push",
     .kind = FV_RPC_CLIENT_STREAM,
     .events = {.on_message = mute_push}},
    {.path = "/fovea.handoff.v1.Handoff/Release",
     .kind = FV_RPC_UNARY,
     .events = {.on_message = mute_release}},
};

Test(prefill_worker, a_mute_decode_worker_holds_up_nobody_else_and_fails_by_itself) {
    static heard stuck[3];
    w.net.services[w.net.n_service++] =
        (fv_rpc_service){mute, sizeof mute / sizeof mute[0], NULL, NULL};
    open_workers();
    ask_about_picture(&a, w.net.target);
    for (int i = 0; i < 3; i++) begin(&stuck[i], &a);
    for (int i = 0; i < 3; i++) net_wait_for(&w.net, &stuck[i].n_event, 2); /* first tokens */
    a.m.decode_address = w.target;
    run_well(&p, &a);
    decode(&d, p.begun->ticket);
    cr_assert_eq(d.n_id, N_TOKEN - 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_not(stuck[i].over && stuck[i].end.status == FV_OK);
        net_wait(&w.net, &stuck[i].over);
        cr_assert_eq(stuck[i].end.status, FV_EIO, "%s", stuck[i].why);
        cr_assert(strstr(stuck[i].why, "taken nothing"), "%s", stuck[i].why);
    }
    wait_for_nothing_held();
    close_workers();
}

Test(prefill_worker, one_request_too_many_is_asked_to_come_back) {
    enum { N = 12 };
    static heard many[N];
    int32_t done = 0, busy = 0;
    w.p.queue = 2;
    prepare();
    for (int i = 0; i < N; i++) begin(&many[i], &a);
    for (int i = 0; i < N; i++) {
        net_wait(&w.net, &many[i].over);
        done += many[i].end.status == FV_OK;
        busy += many[i].end.status == FV_EBUSY;
        if (many[i].end.status == FV_EBUSY) cr_assert_geq(many[i].end.retry_ms, 0);
    }
    cr_assert_eq(done + busy, N);
    cr_assert_geq(done, 2);
    cr_assert_geq(busy, 1);
    close_workers();
}

Test(prefill_worker, closing_with_requests_under_way_ends_them) {
    static heard many[4];
    prepare();
    for (int i = 0; i < 4; i++) begin(&many[i], &a);
    close_workers(); /* the server lets them come to their end */
    for (int i = 0; i < 4; i++) cr_assert(many[i].over);
}

/* ---- the program ------------------------------------------------------------------------ */

static command_result r;

Test(prefill_worker, the_program_says_where_it_listens_and_ends_well_when_told_to) {
    command_run(&r,
                "cd %s; timeout 120 " FOVEA_BIN
                "/fovea-prefill --checkpoint . --log warn >said & p=$!; "
                "for i in $(seq 1000); do grep -q listening said && break; sleep 0.1; done; "
                "kill -TERM $p; wait $p; echo status=$?; cat said",
                dir);
    cr_assert(strstr(r.out, "listening on 127.0.0.1:"), "%s", r.out);
    cr_assert(strstr(r.out, "status=0"), "%s %s", r.out, r.err);
}

static void program_fails(const char *args, int status, const char *words) {
    command_run(&r, "timeout 30 " FOVEA_BIN "/fovea-prefill %s", args);
    cr_assert_eq(r.status, status, "%s gave %d: %s", args, r.status, r.err);
    cr_assert(strstr(r.err, words), "%s said: %s", args, r.err);
}

Test(prefill_worker, the_program_needs_a_checkpoint) { program_fails("", 2, "--checkpoint"); }

Test(prefill_worker, the_program_names_an_option_that_it_does_not_know) {
    program_fails("--nothing", 2, "--nothing");
    program_fails("nothing", 2, "'nothing' is not an option");
}

Test(prefill_worker, the_program_takes_no_name_that_is_too_long) {
    char args[800];
    snprintf(args, sizeof args, "--checkpoint %s --threads 1 --name %0*d", dir, 65, 0);
    program_fails(args, 2, "--name");
}

Test(prefill_worker, the_program_cannot_listen_where_it_may_not) {
    char args[600];
    snprintf(args, sizeof args, "--checkpoint %s --listen 192.0.2.1:1", dir);
    program_fails(args, 1, "192.0.2.1:1");
}

Test(prefill_worker, the_program_does_not_take_an_address_of_a_router_that_is_none) {
    char args[600];
    snprintf(args, sizeof args, "--checkpoint %s --router nowhere --log error", dir);
    program_fails(args, 2, "nowhere");
}
