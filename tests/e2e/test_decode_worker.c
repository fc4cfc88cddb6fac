/* The decode worker over a real connection, as a prefill worker and a router see it. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "tests/e2e/decode_rig.h"
#include "tests/support/command.h"
#include "tests/support/fleet_token.h"
#include "transport/frame.h"
#include "transport/grpc.h"

TestSuite(decode_worker, .init = write_checkpoint, .fini = remove_checkpoint, .timeout = 240);

/* ---- success ----------------------------------------------------------------------------- */

Test(decode_worker, an_answer_is_that_of_one_process_under_every_policy) {
    enum { N = 7 };
    static const char *const policies[N] = {"",
                                            "prune=vtw,layer=1",
                                            "select=streaming,sink=1,recent=0.3",
                                            "prune=random,layer=1,keep=0.4,seed=3",
                                            "lazy=gla,map=given,blocks=0-1",
                                            "evict=h2o,heavy=0.3",
                                            "prune=pvtp,layer=1,stride=1;evict=vta,tau=9"};
    uint64_t evicted = 0;
    open_all(NULL);
    for (int i = 0; i < N; i++) {
        static handoff h[N];
        static answer got[N], want[N];
        prefill_and_send(&h[i], policies[i], TOKENS);
        ask(&got[i], &h[i], TOKENS);
        UNTIL(got[i].over);
        expect(&h[i], TOKENS, &want[i]);
        assert_same(&got[i], &want[i]);
        cr_assert_eq(got[i].index0, 1, "the first token was the prefill worker's");
        cr_assert_eq(got[i].n, TOKENS - 1);
        cr_assert_eq(got[i].n_generated, TOKENS);
        cr_assert_eq(got[i].reason, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH);
        cr_assert_eq(got[i].report.entries_evicted, fv_evict_count(h[i].kv));
        cr_assert_eq(got[i].report.entries_evicted > 0, i >= N - 2);
        evicted += got[i].report.entries_evicted;
        handoff_free(&h[i]);
    }
    Fovea__Inference__V1__Load load = fv_decode_worker_load(rig.worker);
    cr_assert_eq(load.n_done, N);
    cr_assert_eq(load.tokens_out, N * (TOKENS - 1));
    cr_assert_eq(load.entries_evicted, evicted, "%lu of %lu", load.entries_evicted, evicted);
    close_all();
}

Test(decode_worker, tokens_may_be_asked_for_before_the_kv_has_come) {
    static handoff h;
    static answer got, want;
    open_all(NULL);
    prefill_and_hold(&h);
    ask(&got, &h, TOKENS);
    UNTIL(fv_decode_worker_load(rig.worker).n_queued == 1);
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

Test(decode_worker, an_answer_continues_after_replayed_tokens) {
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
    size_t at = 0; /* the stop string is the answer's own first letter, wherever that is */
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

/* ---- failures ---------------------------------------------------------------------------- */

Test(decode_worker, an_unknown_ticket_is_not_found) {
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

Test(decode_worker, invalid_requests_are_refused_by_name) {
    enum { N = 9 };
    static answer a[N];
    static char *stops[17];
    static const struct {
        grpc_status_code code;
        const char *words;
    } want[N] = {{GRPC_STATUS_INVALID_ARGUMENT, "the source is missing"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "has 3 bytes; it must have 16"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "has 5 bytes; it must have 16"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "max_tokens is 0"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "n_logprobs is 21"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "17 stop strings"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "the hand-off brings them"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "has no prompt"},
                 {GRPC_STATUS_INVALID_ARGUMENT, "cannot be replayed in a kept"}};
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
    strcpy(rig.p_engine.fingerprint, "0123456789abcdef");
    prefill(&h, "", TOKENS, 0, NULL);
    tell(&h, run_ship);
    UNTIL(atomic_load(&h.state) == 2);
    cr_assert_eq(h.status, FV_EUNSUPPORTED, "%s", h.why);
    cr_assert(strstr(h.why, "model is 0123456789abcdef, and must be"), "%s", h.why);
    handoff_free(&h);
    close_all();
}

Test(decode_worker, a_full_pool_is_busy_until_an_answer_has_ended) {
    static handoff h[3];
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    open_all(NULL); /* how much memory does one need? */
    prefill_and_send(&h[0], "", TOKENS);
    UNTIL(fv_decode_worker_load(rig.worker).bytes_held > 0);
    opt.kv_bytes = (size_t)fv_decode_worker_load(rig.worker).bytes_held * 3 / 2;
    ask(&a, &h[0], TOKENS);
    UNTIL(a.over);
    handoff_free(&h[0]);
    close_all();
    memset(h, 0, sizeof h);
    memset(&a, 0, sizeof a);
    rig.exporting = NULL;

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

/* ---- disconnects -------------------------------------------------------------------------- */

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
    close_all(); /* waits until the worker holds nothing */
    cr_assert_not(a.finished);
}

Test(decode_worker, cancelling_before_the_kv_has_come_ends_the_hand_off_too) {
    static handoff h;
    static answer a;
    open_all(NULL);
    prefill_and_hold(&h);
    ask(&a, &h, TOKENS);
    UNTIL(fv_decode_worker_load(rig.worker).n_queued == 1);
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
    UNTIL(fv_decode_worker_load(rig.worker).n_queued == 1);
    tell(&h, run_abandon);
    UNTIL(a.over);
    cr_assert_eq(a.code, GRPC_STATUS_UNAVAILABLE, "%s", a.why);
    UNTIL(atomic_load(&h.state) == 2);
    handoff_free(&h);
    close_all();
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

/* Gets a grant for which no stream is ever opened. */
static fv_ticket open_room(void) {
    fv_ticket ticket = {.epoch = 0};
    Fovea__Handoff__V1__OpenRequest m = FOVEA__HANDOFF__V1__OPEN_REQUEST__INIT;
    fv_kv_shape s = fv_engine_kv_shape(&rig.p_engine, FV_F32);
    fv_compat compat;
    need(fv_compat_make(&(fv_compat_fields){.model = rig.p_engine.fingerprint,
                                            .n_layer = s.n_layer,
                                            .n_kv = s.n_kv,
                                            .d_head = s.d_head,
                                            .dtype = "f32",
                                            .compute = "f32"},
                        &compat));
    m.compat_hash = compat.hash;
    m.compat = compat.text;
    m.n_text = 3;
    m.max_tokens = 5;
    fv_rpc_metadata token = token_for("/fovea.handoff.v1.Handoff/Open", NULL);
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Handoff/Open",
                               .request = &m.base,
                               .deadline_ms = 20000,
                               .metadata = &token,
                               .n_metadata = 1};
    need(fv_rpc_unary_with(rig.channel, &opt, note_grant, &ticket, NULL));
    UNTIL(ticket.epoch != 0);
    UNTIL(fv_decode_worker_load(rig.worker).bytes_granted > 0);
    return ticket;
}

Test(decode_worker, what_is_not_sent_or_attached_in_time_is_released) {
    static handoff h;
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    opt.grants.lease_s = 0.2;
    opt.grants.attach_s = 0.2;
    open_all(&opt);
    open_room(); /* and sends nothing more */
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
    opt.grants.lease_s = 1; /* long enough for renewals to arrive in time on a busy machine */
    open_all(&opt);
    prefill_and_hold(&h);
    run_loop_ms(2500);
    cr_assert_gt(fv_decode_worker_load(rig.worker).bytes_granted, 0);
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

/* The sender has sent only a keep-alive, and no Release. */
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
    need(fv_rpc_call_open(rig.channel, &push, &call));
    need(fv_rpc_frame_alive(&ticket, &alive));
    need(fv_rpc_call_send_buffer(call, alive));
    UNTIL(fv_rpc_call_bytes_queued(call) == 0);
    run_loop_ms(300); /* a cancellation may overtake what was sent just before it */
    fv_rpc_call_cancel(call);
    UNTIL(over);
    UNTIL(worker_is_empty());
    close_all();
}

Test(decode_worker, what_is_committed_and_not_attached_can_be_released) {
    static handoff h;
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    opt.grants.attach_s = 3600;
    open_all(&opt);
    prefill_and_send(&h, "", TOKENS);
    cr_assert_gt(fv_decode_worker_load(rig.worker).bytes_held, 0);
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

/* ---- the program -------------------------------------------------------------------------- */

static command_result r;

Test(decode_worker, the_program_serves_until_it_is_told_to_stop) {
    command_run(&r,
                FOVEA_BIN
                "/fovea-decode" FLEET_TOKEN_FILE "--checkpoint %s --threads 1 --log warn > "
                "%s/out 2>&1 & p=$!; for i in $(seq 200); do grep -qs listening %s/out && break; "
                "sleep 0.05; done; kill -TERM $p; wait $p; echo \"ended with $?\"; cat %s/out",
                rig.dir, rig.dir, rig.dir, rig.dir);
    cr_assert(strstr(r.out, "ended with 0"), "%s %s", r.out, r.err);
    cr_assert(strstr(r.out, "listening on 127.0.0.1:"), "%s", r.out);
}

/* Starts the program with a KV pool of this size; returns its output. */
static const char *start_with_kv(const char *program, const char *kv_bytes) {
    command_run(&r,
                "rm -f %s/out; " FOVEA_BIN "/%s" FLEET_TOKEN_FILE
                "--checkpoint %s --threads 1 --log warn --kv-bytes %s > "
                "%s/out 2>&1 & p=$!; for i in $(seq 2000); do grep -qs listening %s/out && break; "
                "sleep 0.05; done; kill -TERM $p; wait $p; cat %s/out",
                rig.dir, program, rig.dir, kv_bytes, rig.dir, rig.dir, rig.dir);
    return r.out;
}

Test(decode_worker, a_worker_warns_at_its_start_where_its_kv_pool_does_not_fit_into_memory) {
    static const char *const programs[] = {"fovea-decode", "fovea-prefill"};
    for (int i = 0; i < 2; i++) {
        char most[32];
        snprintf(most, sizeof most, "%zu", fv_memory_limit());
        const char *said = start_with_kv(programs[i], most);
        cr_assert(strstr(said, "event=memory-short"), "%s: %s", programs[i], said);
        cr_assert(strstr(said, "set --kv-bytes to at most "), "%s: %s", programs[i], said);
        cr_assert(strstr(said, "listening on"), "%s: %s", programs[i], said);
        said = start_with_kv(programs[i], "1000000");
        cr_assert(strstr(said, "listening on") && !strstr(said, "memory-short"), "%s: %s",
                  programs[i], said);
    }
}

Test(decode_worker, wrong_usage_of_the_program_ends_with_2_and_a_sentence) {
    command_run(&r,
                FOVEA_BIN "/fovea-decode" FLEET_TOKEN_FILE
                          "--checkpoint %s --kv-bytes 1000000000000000",
                rig.dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "--kv-bytes 1000000000000000: this machine"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "--checkpoint MODEL is needed"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode" FLEET_TOKEN_FILE "--checkpoint %s --kv-dtype f64",
                rig.dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "f32, bf16 or f16"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode" FLEET_TOKEN_FILE "--checkpoint /nonexistent");
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.err, "/nonexistent"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode" FLEET_TOKEN_FILE "--checkpoint %s --listen nowhere",
                rig.dir);
    cr_assert_eq(r.status, 2, "%s", r.err);
    command_run(
        &r, "timeout 60 " FOVEA_BIN "/fovea-decode" FLEET_TOKEN_FILE "--checkpoint %s --name %0*d",
        rig.dir, 65, 0);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "--name must have 1..64 characters"), "%s", r.err);
    command_run(&r, FOVEA_BIN "/fovea-decode --help");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "--router HOST:PORT"), "%s", r.out);
}
