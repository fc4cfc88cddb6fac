/* The prefill worker: requests that succeed give the output of one process; and the program
 * itself. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode-worker/service/internal.h"
#include "tests/e2e/prefill_rig.h"
#include "tests/support/command.h"
#include "tests/support/fleet_token.h"

static heard p, d;
static asking a;
static truth t;

TestSuite(prefill_worker, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 240);

/* ---- success ----------------------------------------------------------------------------- */

Test(prefill_worker, an_answer_over_two_workers_is_that_of_one_process) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_image(&a, workers.target);
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

/* The tiny checkpoint's layers are sent one by one, or all together: the same arrives. */
Test(prefill_worker, layers_leave_in_groups_while_later_ones_are_computed) {
    uint64_t frames[2];
    ask_one_process(&t, "");
    for (int i = 0; i < 2; i++) {
        static const prefill_rig none;
        fv_prefill_worker_options opt = workers.p;
        workers = none;
        workers.p = opt;
        workers.p.export_layers = i == 0 ? 1 : 256;
        open_workers();
        ask_about_image(&a, workers.target);
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
    ask_about_image(&a, workers.target);
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
    cr_assert_eq(r->n_visual_tokens, (size_t)t.report.n_layer);
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
    ask_about_image(&a, workers.target);
    a.g.policy = &policy;
    run_well(&p, &a);
    cr_assert_str_eq(p.report->policy, t.report.policy);
    cr_assert_eq(first_digest(&p), t.report.digest[0]);
    for (int32_t l = 0; l < t.report.n_layer; l++)
        cr_assert_eq(p.report->visual_tokens[l], (uint32_t)t.report.visual_tokens[l]);
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
        ask_about_image(&asks[i], workers.target);
        if (i % 2) asks[i].prompt.text = (char *)"<image> something else, and longer: why?";
        begin(&many[i], &asks[i]);
    }
    for (int i = 0; i < N; i++) {
        net_wait(&workers.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
        cr_assert_str_eq(many[i].order, "BFH");
        cr_assert_eq(first_digest(&many[i]), first_digest(&many[i % 2]));
    }
    cr_assert_eq(first_digest(&many[0]), t.report.digest[0]);
    cr_assert_neq(first_digest(&many[1]), t.report.digest[0]);
    cr_assert_eq(prefill_load().n_done, N);
    close_workers();
}

Test(prefill_worker, a_pool_for_one_prompt_serves_many_in_turn) {
    enum { N = 5 };
    static heard many[N];
    open_workers();
    ask_about_image(&a, workers.target);
    run_well(&p, &a);
    size_t one = p.report->bytes_raw;
    close_workers();

    workers = (prefill_rig){.p = workers.p};
    workers.p.kv_bytes = 2 * one; /* memory comes in whole pages */
    open_workers();
    a.m.decode_address = workers.target;
    for (int i = 0; i < N; i++) begin(&many[i], &a);
    for (int i = 0; i < N; i++) {
        net_wait(&workers.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
    }
    close_workers();
}

Test(prefill_worker, a_image_that_comes_again_is_not_encoded_again) {
    static heard again;
    open_workers();
    ask_about_image(&a, workers.target);
    run_well(&p, &a);
    run_well(&again, &a);
    cr_assert_gt(p.report->seconds_vision, 0);
    cr_assert_eq(again.report->seconds_vision, 0);
    cr_assert_eq(first_digest(&again), first_digest(&p));
    close_workers();
}

Test(prefill_worker, an_answer_of_one_token_needs_no_hand_off) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_image(&a, "");
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

Test(prefill_worker, for_one_token_no_grant_is_asked_for) {
    open_workers();
    ask_about_image(&a, "127.0.0.1:1"); /* nobody listens there */
    a.g.max_tokens = 1;
    run_well(&p, &a);
    cr_assert_str_eq(p.order, "FH");
    close_workers();
}

Test(prefill_worker, a_replay_goes_on_where_the_client_was) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_image(&a, workers.target);
    a.m.replay = t.id;
    a.m.n_replay = 3;
    run_well(&p, &a);
    cr_assert_eq(p.first->tokens->index, 3);
    cr_assert_eq(p.first->tokens->tokens[0]->id, t.id[3]);
    cr_assert_eq(first_digest(&p), t.report.digest[3]);
    close_workers();
}

Test(prefill_worker, a_replay_keeps_the_tokens_that_its_question_chose) {
    Fovea__Inference__V1__Policy policy = FOVEA__INFERENCE__V1__POLICY__INIT;
    static heard each[N_TOKEN];
    policy.preset = (char *)"paper-fastv";
    open_workers();
    ask_one_process(&t, "preset=paper-fastv");
    for (size_t n = 1; n < N_TOKEN; n++) {
        ask_about_image(&a, workers.target);
        a.g.policy = &policy;
        a.m.replay = t.id;
        a.m.n_replay = n;
        run_well(&each[n], &a);
        cr_assert_eq(each[n].first->tokens->tokens[0]->id, t.id[n]);
        cr_assert_eq(first_digest(&each[n]), t.report.digest[n], "after %zu tokens", n);
    }
    close_workers();
}

Test(prefill_worker, a_replay_of_a_whole_answer_says_how_it_ended) {
    open_workers();
    ask_one_process(&t, "");
    ask_about_image(&a, workers.target);
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
    ask_about_image(&a, workers.target);
    run_well(&p, &a);
    cr_assert_eq(
        fv_tokenizer_encode(workers.engine.tok, QUESTION, strlen(QUESTION), true, &ids, &n), FV_OK);
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

/* ---- the program ------------------------------------------------------------------------ */

static atomic_bool closing;

/* Blocks until the worker is being closed, and a little longer. */
static void nap(fv_job *job) {
    (void)job;
    while (!atomic_load(&closing)) usleep(1000);
    usleep(300000);
}

Test(prefill_worker, a_grant_that_nobody_wants_may_be_a_decode_workers_last_word) {
    static fv_job busy = {.run = nap};
    open_workers();
    fv_jobs *jobs = workers.decode->jobs;
    fv_jobs_post_followup(jobs, &busy);
    ask_about_image(&a, workers.target);
    begin(&p, &a);
    while (fv_jobs_waiting(jobs) == 0) net_sleep(&workers.net, 1);
    fv_rpc_call_cancel(p.call);
    net_wait(&workers.net, &p.over);
    atomic_store(&closing, true);
    close_workers(); /* the worker is told to stop and the call is over before the grant */
}

static command_result r;

Test(prefill_worker, the_program_says_where_it_listens_and_ends_well_when_told_to) {
    command_run(&r,
                "cd %s; timeout 120 " FOVEA_BIN "/fovea-prefill" FLEET_TOKEN_FILE
                "--checkpoint . --log warn >said & p=$!; "
                "for i in $(seq 1000); do grep -q listening said && break; sleep 0.1; done; "
                "kill -TERM $p; wait $p; echo status=$?; cat said",
                checkpoint);
    cr_assert(strstr(r.out, "listening on 127.0.0.1:"), "%s", r.out);
    cr_assert(strstr(r.out, "status=0"), "%s %s", r.out, r.err);
}

static void program_fails(const char *args, int status, const char *words) {
    command_run(&r, "timeout 30 " FOVEA_BIN "/fovea-prefill" FLEET_TOKEN_FILE "%s", args);
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
    snprintf(args, sizeof args, "--checkpoint %s --threads 1 --name %0*d", checkpoint, 65, 0);
    program_fails(args, 2, "--name");
}

Test(prefill_worker, the_program_cannot_listen_where_it_may_not) {
    char args[600];
    snprintf(args, sizeof args, "--checkpoint %s --listen 192.0.2.1:1 --insecure", checkpoint);
    program_fails(args, 1, "192.0.2.1:1");
}

Test(prefill_worker, the_program_refuses_an_invalid_router_address) {
    char args[600];
    snprintf(args, sizeof args, "--checkpoint %s --router nowhere --log error", checkpoint);
    program_fails(args, 2, "nowhere");
    snprintf(args, sizeof args, "--checkpoint %s --router unix:/tmp/fleet", checkpoint);
    program_fails(args, 2, "write HOST:PORT");
    snprintf(args, sizeof args, "--checkpoint %s --advertise unix:8201", checkpoint);
    program_fails(args, 2, "write HOST:PORT");
}

Test(prefill_worker, the_program_needs_the_fleets_secret) {
    command_run(&r, "timeout 30 " FOVEA_BIN "/fovea-prefill --checkpoint %s", checkpoint);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "head -c 32 /dev/urandom | base64"), "%s", r.err);
    command_run(&r,
                "cd %s; echo too short >short; timeout 30 " FOVEA_BIN
                "/fovea-prefill --checkpoint . --fleet-token-file short",
                checkpoint);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "short: a fleet's secret has 32 to"), "%s", r.err);
}
