/* The slots of a decode worker over a real connection: a client that does not read its answer has
 * none, and a new tenant gets one. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/e2e/decode_rig.h"

TestSuite(decode_slots, .init = write_checkpoint, .fini = remove_checkpoint, .timeout = 240);

static Fovea__Inference__V1__Load load(void) { return fv_decode_worker_load(rig.worker); }

static void ask_by(answer *a, handoff *h, int32_t max_tokens, const char *share) {
    request m = request_for(&h->ticket, max_tokens);
    m.share = (char *)(uintptr_t)share;
    ask_with(a, &m, 60000);
}

/* Asks for long messages, and reads none of them. */
static void ask_without_reading(answer *a, handoff *h) {
    request m = request_for(&h->ticket, LONG);
    m.n_logprobs = 20;
    m.token_texts = true;
    ask_with(a, &m, 60000);
    fv_rpc_call_pause(a->call);
}

/* Waits until the answer is paused because its buffers are full, and not because the loop was slow
 * for a moment. */
static void wait_held(void) {
    for (uint64_t tokens = 0, before = 1; tokens != before;) {
        UNTIL(load().n_unread == 1);
        before = load().tokens_out;
        run_loop_ms(700);
        tokens = load().n_unread == 1 ? load().tokens_out : before + 1;
    }
}

Test(decode_slots, who_does_not_read_has_no_slot_and_gets_the_same_answer_later) {
    static handoff h, another;
    static answer got, want, next;
    fv_decode_options opt = fv_decode_options_default();
    opt.batch_max = 1;
    open_all(&opt);
    prefill_and_send(&h, "", LONG);
    ask_without_reading(&got, &h);
    wait_held();
    cr_assert_leq(got.n, 1);
    uint64_t tokens = load().tokens_out;
    cr_assert_lt(tokens, LONG);
    cr_assert_eq(load().n_running, 0);
    cr_assert_eq(load().n_paused, 1);
    cr_assert_gt(load().bytes_held, 0);
    prefill_and_send(&another, "", TOKENS);
    ask(&next, &another, TOKENS);
    UNTIL(next.over);
    cr_assert_eq(next.n, TOKENS - 1, "it has the slot, of which there is one");
    /* The network may take a little more of the paused answer meanwhile, but never all of it. */
    cr_assert_lt(load().tokens_out, LONG + TOKENS - 1, "an answer is made for who does not read");
    fv_rpc_call_resume(got.call);
    UNTIL(got.over);
    expect(&h, LONG, &want);
    assert_same(&got, &want);
    UNTIL(load().n_unread == 0);
    handoff_free(&h);
    handoff_free(&another);
    close_all();
}

Test(decode_slots, who_does_not_read_and_goes_away_leaves_nothing) {
    static handoff h;
    static answer got;
    open_all(NULL);
    prefill_and_send(&h, "", LONG);
    ask_without_reading(&got, &h);
    UNTIL(load().n_unread == 1);
    fv_rpc_call_cancel(got.call);
    UNTIL(got.over && worker_is_empty());
    UNTIL(load().n_unread == 0);
    handoff_free(&h);
    close_all();
}

Test(decode_slots, another_tenants_answer_comes_in_at_once_and_the_paused_one_is_the_same) {
    enum { N = 3 };
    static handoff h[N + 1];
    static answer got[N + 1], want[N + 1];
    fv_decode_options opt = fv_decode_options_default();
    opt.batch_max = N;
    open_all(&opt);
    for (int i = 0; i <= N; i++)
        prefill_and_send(&h[i], i == 1 ? "evict=h2o,heavy=0.3" : "", i < N ? LONG : TOKENS);
    for (int i = 0; i < N; i++) ask_by(&got[i], &h[i], LONG, "address 192.0.2.1");
    UNTIL(load().n_running == N);
    ask_by(&got[N], &h[N], TOKENS, "address 192.0.2.2");
    UNTIL(got[N].over);
    for (int i = 0; i < N; i++) cr_assert_not(got[i].over);
    for (int i = 0; i <= N; i++) {
        UNTIL(got[i].over);
        expect(&h[i], i < N ? LONG : TOKENS, &want[i]);
        assert_same(&got[i], &want[i]);
        handoff_free(&h[i]);
    }
    close_all();
}

Test(decode_slots, a_name_or_a_weight_that_cannot_be_is_refused) {
    static handoff h;
    static answer got;
    char name[200];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    open_all(NULL);
    prefill_and_send(&h, "", TOKENS);
    ask_by(&got, &h, TOKENS, name);
    UNTIL(got.over);
    cr_assert_eq(got.status, FV_EINVAL, "%s", got.why);
    request m = request_for(&h.ticket, TOKENS);
    m.tenant_weight = -1;
    got = (answer){0};
    ask_with(&got, &m, 20000);
    UNTIL(got.over);
    cr_assert_eq(got.status, FV_EINVAL, "%s", got.why);
    release(&h.ticket);
    UNTIL(worker_is_empty());
    handoff_free(&h);
    close_all();
}
