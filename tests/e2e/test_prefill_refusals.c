/* Requests that the prefill worker refuses, that fail on the decode side, or that end early. Each
 * case gives a reason and leaves nothing behind. */
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include "grammar/result_internal.h"
#include "prefill-worker/service/internal.h"
#include "tests/e2e/prefill_rig.h"

static heard p, d;
static asking a;

TestSuite(prefill_refusals, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 240);

/* ---- refusals ---------------------------------------------------------------------------- */

/* The request fails with this status and this text, and leaves nothing behind. */
static void fails_with(fv_status st, const char *words) {
    run(&p, &a);
    cr_assert_eq(p.end.status, st, "%s: %s", fv_status_name(p.end.status), p.why);
    cr_assert(strstr(p.why, words), "%s", p.why);
    cr_assert_null(p.first);
    wait_for_nothing_held();
    if (fv_status_is_callers(st))
        cr_assert_eq(prefill_load().n_failed, 0, "a wrong request is no failure of the worker's");
    close_workers();
}

static void prepare(void) {
    open_workers();
    ask_about_image(&a, workers.target);
}

Test(prefill_refusals, a_broken_image_is_the_clients_mistake_and_named) {
    prepare();
    a.image.data.len = n_test_image / 2;
    fails_with(FV_EINVAL, "image 0");
}

Test(prefill_refusals, bytes_that_are_no_image_are_the_clients_mistake) {
    prepare();
    a.image.data = (ProtobufCBinaryData){4, (uint8_t *)"what"};
    fails_with(FV_EINVAL, "image 0");
}

Test(prefill_refusals, a_image_that_the_prompt_does_not_mention_is_refused) {
    prepare();
    a.prompt.text = (char *)"no picture here";
    fails_with(FV_EINVAL, "<image>");
}

Test(prefill_refusals, text_far_longer_than_the_context_is_refused_by_its_bytes) {
    static char text[4 << 20];
    prepare();
    memset(text, 'a', sizeof text - 1);
    memcpy(text, "<image>", 7);
    a.prompt.text = text;
    fails_with(FV_EINVAL, "the text has 4194303 bytes");
}

Test(prefill_refusals, a_request_without_a_prompt_is_refused) {
    prepare();
    a.g.prompt = NULL;
    fails_with(FV_EINVAL, "no prompt");
}

Test(prefill_refusals, a_call_without_a_request_is_refused) {
    prepare();
    a.m.request = NULL;
    fails_with(FV_EINVAL, "request");
}

Test(prefill_refusals, an_id_that_the_model_does_not_have_is_refused) {
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

Test(prefill_refusals, a_policy_that_does_not_exist_is_refused) {
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    prepare();
    policy.preset = (char *)"magic";
    a.g.policy = &policy;
    fails_with(FV_EINVAL, "magic");
}

Test(prefill_refusals, sampling_out_of_range_is_refused) {
    Fovea__Inference__V1__Sampling s = FOVEA__INFERENCE__V1__SAMPLING__INIT;
    prepare();
    s.temperature = -1;
    a.g.sampling = &s;
    fails_with(FV_EINVAL, "temperature");
}

Test(prefill_refusals, a_kept_conversation_does_not_go_on_here) {
    prepare();
    a.g.conversation = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
    fails_with(FV_EINVAL, "on the decode worker");
}

Test(prefill_refusals, an_invalid_decode_address_is_refused) {
    prepare();
    a.m.decode_address = (char *)"nowhere";
    fails_with(FV_EINVAL, "nowhere");
}

Test(prefill_refusals, a_replay_longer_than_the_answer_is_refused) {
    static uint32_t ids[N_TOKEN + 1];
    prepare();
    a.m.replay = ids;
    a.m.n_replay = N_TOKEN + 1;
    fails_with(FV_EINVAL, "already has");
}

Test(prefill_refusals, a_prompt_that_never_fits_is_too_large_now_and_later) {
    workers.p.kv_bytes = 1000;
    prepare();
    fails_with(FV_ENOMEM, "--kv-bytes");
}

/* ---- the decode side -------------------------------------------------------------------- */

Test(prefill_refusals, a_missing_decode_worker_is_unavailable) {
    prepare();
    a.m.decode_address = (char *)"127.0.0.1:1";
    fails_with(FV_EIO, "127.0.0.1:1");
}

Test(prefill_refusals, a_decode_worker_of_another_kind_is_named_with_what_differs) {
    workers.d.kv_dtype = FV_BF16;
    prepare();
    run(&p, &a);
    cr_assert_eq(p.end.status, FV_EUNSUPPORTED, "%s", p.why);
    cr_assert(strstr(p.why, "bf16"), "%s", p.why);
    cr_assert_str_eq(p.refusal, "incompatible");
    cr_assert_eq(p.n_event, 0);
    close_workers();
}

Test(prefill_refusals, a_full_decode_worker_is_busy_and_nothing_was_computed) {
    static heard second;
    workers.d.grants.capacity = 1;
    workers.d.wait_s_max = 0.05;
    prepare();
    run_well(&p, &a); /* committed, and never attached */
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

Test(prefill_refusals, a_cancelled_call_gives_everything_back) {
    static heard many[8];
    workers.d.grants.attach_s =
        0.5; /* how long a committed hand-off waits to be attached once its call has ended */
    prepare();
    for (int i = 0; i < 8; i++) begin(&many[i], &a);
    for (int i = 0; i < 8; i++) {
        if (i % 2) net_sleep(&workers.net, 1); /* so that requests reach different stages */
        if (many[i].call) fv_rpc_call_cancel(many[i].call);
    }
    for (int i = 0; i < 8; i++) net_wait(&workers.net, &many[i].over);
    for (int i = 0; i < 8; i++)
        if (many[i].end.status == FV_OK) decode(&d, many[i].begun->ticket), d = (heard){0};
    wait_for_nothing_held();
    run_well(&p, &a);
    close_workers();
}

Test(prefill_refusals, a_deadline_gives_everything_back) {
    static heard many[8];
    workers.d.grants.attach_s =
        0.5; /* how long a committed hand-off waits to be attached once its call has ended */
    prepare();
    for (int i = 0; i < 8; i++) begin_within(&many[i], &a, 1 + i);
    for (int i = 0; i < 8; i++) net_wait(&workers.net, &many[i].over);
    for (int i = 0; i < 8; i++)
        if (many[i].end.status == FV_OK) decode(&d, many[i].begun->ticket), d = (heard){0};
    wait_for_nothing_held();
    close_workers();
}

Test(prefill_refusals, a_form_for_which_there_is_no_memory_ends_its_request_and_says_so) {
    Fovea__Inference__V1__TokenRules rules = FOVEA__INFERENCE__V1__TOKEN_RULES__INIT;
    Fovea__Inference__V1__Constraint form = FOVEA__INFERENCE__V1__CONSTRAINT__INIT;
    const size_t most = fv_grammar_waiting_max;
    prepare();
    form.kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX;
    form.regex = (char *)"(.|\\n)*";
    rules.constraint = &form;
    a.g.rules = &rules;
    fv_grammar_waiting_max = 0;
    fails_with(FV_ENOMEM, "ask again later");
    fv_grammar_waiting_max = most;
}

/* ---- the computing thread, blocked ---- */

static sem_t held;

static void hold(fv_job *job) {
    (void)job;
    sem_wait(&held);
}

/* The computing thread must find the deadline itself: the loop, which would tell it, does not run
 * here, as when it is busy with calls. */
Test(prefill_refusals, a_request_that_expired_in_the_queue_is_not_prefilled) {
    fv_job job = {.run = hold};
    prepare();
    a.g.max_tokens = 1;
    sem_init(&held, 0, 0);
    cr_assert_eq(fv_jobs_post(workers.prefill->jobs, &job), FV_OK);
    while (fv_jobs_waiting(workers.prefill->jobs) > 0) usleep(1000);
    begin_within(&p, &a, 3000);
    for (int i = 0; i < 2900 && fv_jobs_waiting(workers.prefill->jobs) == 0; i++)
        net_sleep(&workers.net, 1);
    cr_assert_eq(fv_jobs_waiting(workers.prefill->jobs), 1);
    usleep(3050000);
    sem_post(&held);
    usleep(300000); /* the time in which it would be computed */
    cr_assert_eq(prefill_load().tokens_in, 0);
    net_wait(&workers.net, &p.over);
    cr_assert_eq(p.end.code, GRPC_STATUS_DEADLINE_EXCEEDED, "%s", p.why);
    wait_for_nothing_held();
    cr_assert_eq(prefill_load().tokens_in, 0);
    cr_assert_eq(prefill_load().n_failed, 1);
    p = (heard){0};
    run_well(&p, &a); /* and the next one is served */
    cr_assert_gt(prefill_load().tokens_in, 0);
    close_workers();
}

/* A decode worker that grants and never reads a frame. */
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

Test(prefill_refusals, a_mute_decode_worker_holds_up_nobody_else_and_fails_by_itself) {
    static heard stuck[3];
    workers.net.services[workers.net.n_service++] =
        (fv_rpc_service){mute, sizeof mute / sizeof mute[0], NULL, NULL};
    open_workers();
    ask_about_image(&a, workers.net.target);
    for (int i = 0; i < 3; i++) begin(&stuck[i], &a);
    for (int i = 0; i < 3; i++) net_wait_for(&workers.net, &stuck[i].n_event, 2); /* first tokens */
    a.m.decode_address = workers.target;
    run_well(&p, &a);
    decode(&d, p.begun->ticket);
    cr_assert_eq(d.n_id, N_TOKEN - 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_not(stuck[i].over && stuck[i].end.status == FV_OK);
        net_wait(&workers.net, &stuck[i].over);
        cr_assert_eq(stuck[i].end.status, FV_EIO, "%s", stuck[i].why);
        cr_assert(strstr(stuck[i].why, "accepted no data"), "%s", stuck[i].why);
    }
    wait_for_nothing_held();
    close_workers();
}

Test(prefill_refusals, one_request_too_many_is_asked_to_come_back) {
    enum { N = 12 };
    static heard many[N];
    int32_t done = 0, busy = 0;
    workers.p.queue = 2;
    prepare();
    for (int i = 0; i < N; i++) begin(&many[i], &a);
    for (int i = 0; i < N; i++) {
        net_wait(&workers.net, &many[i].over);
        done += many[i].end.status == FV_OK;
        busy += many[i].end.status == FV_EBUSY;
        if (many[i].end.status == FV_EBUSY) cr_assert_geq(many[i].end.retry_ms, 0);
    }
    cr_assert_eq(done + busy, N);
    cr_assert_geq(done, 2);
    cr_assert_geq(busy, 1);
    close_workers();
}

Test(prefill_refusals, closing_with_requests_under_way_ends_them) {
    static heard many[4];
    prepare();
    for (int i = 0; i < 4; i++) begin(&many[i], &a);
    close_workers(); /* the server lets them finish */
    for (int i = 0; i < 4; i++) cr_assert(many[i].over);
}
