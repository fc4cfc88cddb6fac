#include "tests/e2e/prefill_rig.h"
#include "serving/policy_message.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "model/synth/synth.h"
#include "prefill-worker/service/internal.h"
#include "rpc/message.h"
#include "tests/support/command.h"
#include "tests/support/tokens.h"

#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

char checkpoint[512];
char *test_image;
size_t n_test_image;
prefill_rig workers = {
    .p = {.name = "p0", .kv_dtype = FV_F32, .cache_bytes = 1 << 20, .queue = 32, .batch = 4}};

void make_checkpoint(void) {
    fv_synth_report report;
    snprintf(checkpoint, sizeof checkpoint, "%s/prefill-%d", FOVEA_TEST_TMP, (int)getpid());
    fv_synth_options opt = {.dir = checkpoint, .shape = "tiny", .dtype = FV_F32, .seed = 5};
    cr_assert_eq(fv_synth_write(&opt, &report), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_file_read(IMAGE, 1 << 24, &test_image, &n_test_image), FV_OK);
}

void drop_checkpoint(void) {
    static command_result r;
    free(test_image);
    command_run(&r, "rm -rf '%s'", checkpoint);
}

/* ---- two workers ------------------------------------------------------------------------ */

static void open_engine(fv_engine *e, bool vision) {
    fv_engine_options opt = {
        .checkpoint = checkpoint, .backend = "cpu", .isa = "auto", .threads = 1, .vision = vision};
    cr_assert_eq(fv_engine_open(&opt, e), FV_OK, "%s", fv_last_error());
}

/* Opens both with the options in workers.p and workers.d. */
void open_workers(void) {
    net_open(&workers.net);
    open_engine(&workers.engine, true);
    open_engine(&workers.decode_engine, false);
    workers.p.bridge = workers.net.bridge;
    workers.p.engine = &workers.engine;
    workers.p.callers = workers.prefill_callers = test_callers("p0");
    workers.decode_callers = test_callers("d0");
    cr_assert_eq(fv_prefill_worker_open(&workers.p, &workers.prefill), FV_OK, "%s",
                 fv_last_error());
    fv_decode_options d = fv_decode_options_default();
    d.engine = &workers.decode_engine;
    d.name = "d0";
    d.callers = workers.decode_callers;
    d.kv_dtype = workers.d.kv_dtype;
    d.prefix_bytes = workers.d.prefix_bytes;
    if (workers.d.grants.capacity) d.grants.capacity = workers.d.grants.capacity;
    if (workers.d.grants.attach_s > 0) d.grants.attach_s = workers.d.grants.attach_s;
    if (workers.d.wait_s_max > 0) d.wait_s_max = workers.d.wait_s_max;
    cr_assert_eq(fv_decode_worker_open(workers.net.bridge, &d, &workers.decode), FV_OK, "%s",
                 fv_last_error());
    workers.services[0] = fv_prefill_worker_service(workers.prefill);
    fv_decode_worker_services(workers.decode, workers.services + 1);
    fv_rpc_server_options opt = {
        .listen = "127.0.0.1:0", .services = workers.services, .n_service = 1 + FV_DECODE_SERVICES};
    cr_assert_eq(fv_rpc_server_open(workers.net.bridge, &opt, &workers.server), FV_OK, "%s",
                 fv_last_error());
    snprintf(workers.target, sizeof workers.target, "127.0.0.1:%d",
             fv_rpc_server_port(workers.server));
    cr_assert_eq(fv_rpc_channel_open(workers.net.bridge, workers.target, NULL, &workers.channel),
                 FV_OK);
}

static void set(void *flag) { *(bool *)flag = true; }

/* Asserts that no request is left anywhere. */
void close_workers(void) {
    fv_rpc_channel_close(workers.channel);
    fv_rpc_server_stop(workers.server, 5000, set, &workers.server_done);
    net_wait(&workers.net, &workers.server_done);
    fv_prefill_worker_close(workers.prefill, set, &workers.prefill_done);
    net_wait(&workers.net, &workers.prefill_done);
    fv_decode_worker_close(workers.decode, set, &workers.decode_done);
    net_wait(&workers.net, &workers.decode_done);
    net_close(&workers.net, 1000);
    fv_callers_close(workers.prefill_callers);
    fv_callers_close(workers.decode_callers);
    fv_engine_close(&workers.engine);
    fv_engine_close(&workers.decode_engine);
}

Fovea__Inference__V1__Load prefill_load(void) {
    Fovea__Inference__V1__Load load = FOVEA__INFERENCE__V1__LOAD__INIT;
    fv_prefill_worker_load(workers.prefill, &load);
    return load;
}

void open_workers_with_tier(fv_kv_tier *t) {
    const prefill_rig before = workers;
    workers = (prefill_rig){.p = before.p, .d = before.d};
    workers.p.prefix_bytes = 1 << 24;
    workers.p.tier[0] = t;
    workers.p.n_tier = 1;
    open_workers();
}

static atomic_size_t n_storing;

static void read_storing(fv_job *job) {
    fv_prefill_worker *w = job->owner;
    atomic_store(&n_storing, w->line.bytes_storing + 1);
}

/* The computing thread knows what is on its way to the tier. It may send more than once for a request. */
void wait_for_writes(void) {
    for (int still = 0; still < 20; still++) {
        fv_job job = {.run = read_storing, .owner = workers.prefill};
        atomic_store(&n_storing, 0);
        fv_jobs_post_followup(workers.prefill->jobs, &job);
        while (atomic_load(&n_storing) == 0) net_sleep(&workers.net, 5);
        if (atomic_load(&n_storing) > 1 || prefill_load().bytes_tier_written == 0) still = -1;
    }
}

/* Waits until neither worker holds any request. */
void wait_for_nothing_held(void) {
    Fovea__Inference__V1__Load mine = FOVEA__INFERENCE__V1__LOAD__INIT;
    Fovea__Inference__V1__Load theirs = FOVEA__INFERENCE__V1__LOAD__INIT;
    /* A cancellation may cross a grant on the wire; the grant then ends with its first lease. */
    for (int i = 0; i < 1500; i++) {
        mine = prefill_load();
        theirs = fv_decode_worker_load(workers.decode);
        if (mine.n_running + mine.n_queued == 0 && mine.bytes_held == 0 &&
            theirs.bytes_granted == 0 && theirs.bytes_held == 0)
            return;
        net_sleep(&workers.net, 10);
    }
    cr_assert_fail("held after 15 seconds: %u running, %u queued, %zu bytes here; %zu granted, "
                   "%zu held there",
                   mine.n_running, mine.n_queued, (size_t)mine.bytes_held,
                   (size_t)theirs.bytes_granted, (size_t)theirs.bytes_held);
}

/* ---- a request -------------------------------------------------------------------------- */

/* The demo image and a question about it. */
void ask_about_image(asking *a, const char *decode_address) {
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
    a->image.data = (ProtobufCBinaryData){n_test_image, (uint8_t *)test_image};
    a->images[0] = &a->image;
    a->g.images = a->images;
    a->g.n_images = 1;
    a->g.max_tokens = N_TOKEN;
    a->g.ignore_eos = true;
    a->g.digests = true;
}

void ask_under(asking *a, const char *policy, fv_arena *arena) {
    fv_policy parsed;
    cr_assert_eq(fv_policy_parse(policy, &parsed), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_policy_to_message(&parsed, arena, &a->g.policy), FV_OK);
}

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

uint64_t first_digest(const heard *h) { return h->first->tokens->tokens[0]->digest; }

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
                 const ProtobufCMessage *m, const fv_rpc_metadata *token, int64_t deadline_ms) {
    static fv_rpc_events events[2];
    fv_rpc_events *ev = &events[on_message == on_decoded];
    *ev = (fv_rpc_events){.on_message = on_message, .on_end = on_end};
    fv_rpc_call_options opt = {.path = path,
                               .events = ev,
                               .user = h,
                               .deadline_ms = deadline_ms,
                               .metadata = token,
                               .n_metadata = token != NULL,
                               .request = m,
                               .half_close = true};
    cr_assert_eq(fv_rpc_call_open(workers.channel, &opt, &h->call), FV_OK, "%s", fv_last_error());
}

/* Begins the request as the router does, with call tokens for the prefill worker's own calls. */
void begin_within(heard *h, const asking *a, int64_t deadline_ms) {
    static const char path[] = "/fovea.handoff.v1.Prefill/Prefill";
    const char *id = a->g.request_id;
    prefill_request m = a->m;
    m.open_token = (char *)(uintptr_t)test_token(workers.decode_callers, "d0",
                                                 "/fovea.handoff.v1.Handoff/Open", id, NULL);
    m.pair_token = (char *)(uintptr_t)test_token(workers.decode_callers, "d0",
                                                 "/fovea.handoff.v1.Handoff/Pair", NULL, NULL);
    fv_rpc_metadata token =
        test_metadata(workers.prefill_callers, "p0", path, m.request ? id : NULL, m.decode_address);
    call(h, path, on_prefilled, &m.base, &token, deadline_ms);
}

void begin(heard *h, const asking *a) { begin_within(h, a, 20000); }

void run(heard *h, const asking *a) {
    begin(h, a);
    net_wait(&workers.net, &h->over);
}

void run_well(heard *h, const asking *a) {
    run(h, a);
    cr_assert_eq(h->end.status, FV_OK, "%s", h->why);
}

const Fovea__Inference__V1__Report *ask_text(heard *h, asking *a, const char *text) {
    fv_arena_fini(&h->arena);
    *h = (heard){0};
    a->prompt.text = (char *)(uintptr_t)text;
    run_well(h, a);
    return h->report;
}

/* Collects the tokens after the first. */
void decode(heard *h, const Fovea__Handoff__V1__Ticket *ticket) {
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    m.request_id = (char *)"r";
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
    m.ticket = (Fovea__Handoff__V1__Ticket *)(uintptr_t)ticket;
    m.max_tokens = N_TOKEN;
    m.ignore_eos = true;
    m.digests = true;
    call(h, "/fovea.handoff.v1.Decode/Decode", on_decoded, &m.base, NULL, 20000);
    net_wait(&workers.net, &h->over);
    cr_assert_eq(h->end.status, FV_OK, "%s", h->why);
}

/* ---- the same in one process ------------------------------------------------------------ */

static fv_status note_token(void *user, const fv_sampled *token) {
    truth *t = user;
    t->id[t->n++] = (uint32_t)token->id;
    return FV_OK;
}

void ask_one_process(truth *t, const char *policy) {
    fv_local *local;
    fv_image image;
    fv_local_options opt = {
        .checkpoint = checkpoint, .backend = "cpu", .isa = "auto", .threads = 1};
    cr_assert_eq(fv_local_open(&opt, &local), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_image_decode(test_image, n_test_image, NULL, &image), FV_OK);
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
