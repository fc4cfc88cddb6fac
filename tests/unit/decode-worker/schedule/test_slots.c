/* Answers that lose their slots and get them back (decode-worker/schedule/scheduler.c): which
 * answers are in the batch, and that pauses change no answer. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/scheduler_rig.h"

enum { SLOTS = 2, TOKENS = 40, KEEP_S = 60 };

static scheduler_rig rig;
static asked want, got, follow_want, follow_got, other[12];

static void open_rig(void) { scheduler_rig_open(&rig, SLOTS); }

static void close_rig(void) { scheduler_rig_close(&rig); }

TestSuite(slots, .init = open_rig, .fini = close_rig, .timeout = 240);

static void ask(asked *a, const char *tenant, int32_t max_tokens) {
    *a = (asked){.answer = {.tenant = tenant, .max_tokens = max_tokens, .ignore_eos = true}};
    scheduler_ask(&rig, a, &(asked_prompt){.policy = "", .sampling = fv_sampling_default()});
}

static void step(int n) {
    for (int i = 0; i < n; i++) fv_scheduler_step(rig.answers);
}

static void run_all(void) {
    for (int i = 0; i < 10000 && fv_scheduler_step(rig.answers); i++) {
    }
}

/* ---- order of tenants -------------------------------------------------------------------- */

Test(slots, a_tenant_that_comes_gets_a_slot_in_the_next_step_and_the_youngest_loses_it) {
    for (int i = 0; i < 6; i++) ask(&other[i], "a", TOKENS);
    step(5);
    ask(&got, "b", 8);
    step(1);
    cr_assert_eq(got.answer.phase, FV_ANSWER_RUNNING);
    cr_assert_eq(got.n, 1);
    cr_assert_eq(other[0].answer.phase, FV_ANSWER_RUNNING);
    cr_assert_eq(other[1].answer.phase, FV_ANSWER_PAUSED);
    cr_assert_eq(other[2].answer.phase, FV_ANSWER_READY);
    cr_assert_eq(fv_scheduler_preempted(rig.answers), 1);
    step(6);
    cr_assert_eq(got.over, 1, "8 tokens, of which the first came with the hand-off");
    step(1);
    cr_assert_eq(other[1].answer.phase, FV_ANSWER_RUNNING, "the older goes on first");
    run_all();
    for (int i = 0; i < 6; i++) cr_assert_eq(other[i].n, TOKENS - 1);
}

Test(slots, answers_of_one_tenant_run_in_the_order_in_which_they_came) {
    for (int i = 0; i < 6; i++) ask(&other[i], "a", 5 + i);
    run_all();
    cr_assert_eq(fv_scheduler_preempted(rig.answers), 0);
    for (int i = 1; i < 6; i++) cr_assert_leq(other[i - 1].report.ended_s, other[i].report.ended_s);
}

Test(slots, tenants_by_another_name_for_sharing_share_by_that) {
    for (int i = 0; i < 4; i++) {
        other[i] = (asked){.answer = {.tenant = "",
                                      .share_name = "address 192.0.2.1",
                                      .max_tokens = TOKENS,
                                      .ignore_eos = true}};
        scheduler_ask(&rig, &other[i],
                      &(asked_prompt){.policy = "", .sampling = fv_sampling_default()});
    }
    step(5);
    got = (asked){
        .answer = {
            .tenant = "", .share_name = "address 192.0.2.2", .max_tokens = 8, .ignore_eos = true}};
    scheduler_ask(&rig, &got, &(asked_prompt){.policy = "", .sampling = fv_sampling_default()});
    step(7);
    cr_assert_eq(got.over, 1);
    run_all();
}

/* ---- unread answers ---------------------------------------------------------------------- */

Test(slots, an_answer_that_is_not_read_gives_its_slot_away_and_goes_on_when_it_is) {
    for (int i = 0; i < 3; i++) ask(&other[i], "a", TOKENS);
    step(4);
    fv_scheduler_hold(rig.answers, &other[0].answer, true);
    fv_scheduler_hold(rig.answers, &other[0].answer, true); /* again is fine */
    cr_assert_eq(other[0].answer.phase, FV_ANSWER_PAUSED);
    cr_assert_eq(fv_scheduler_unread(rig.answers), 1);
    size_t held = fv_kv_bytes_held(other[0].answer.session->kv);
    run_all();
    cr_assert_eq(other[0].n, 4, "none is chosen for nobody");
    cr_assert_eq(fv_kv_bytes_held(other[0].answer.session->kv), held);
    cr_assert_eq(other[1].over + other[2].over, 2, "the others had its slot");
    cr_assert_not(fv_scheduler_step(rig.answers), "there is nothing to do");
    fv_scheduler_hold(rig.answers, &other[0].answer, false);
    cr_assert_eq(fv_scheduler_unread(rig.answers), 0);
    run_all();
    cr_assert_eq(other[0].n, TOKENS - 1);
    fv_scheduler_hold(rig.answers, &other[0].answer, true); /* it is over */
}

Test(slots, an_answer_that_is_dropped_while_it_is_paused_leaves_nothing) {
    ask(&other[0], "a", TOKENS);
    ask(&other[1], "a", TOKENS);
    step(4);
    fv_scheduler_hold(rig.answers, &other[0].answer, true);
    fv_scheduler_drop(rig.answers, &other[0].answer);
    fv_scheduler_drop(rig.answers, &other[1].answer);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    cr_assert_eq(fv_scheduler_unread(rig.answers), 0);
    cr_assert_eq(other[0].over, 0);
}

/* ---- the same tokens ---------------------------------------------------------------------- */

static void assert_same(const asked *a, const asked *b, const char *what) {
    cr_assert_eq(a->over, 1);
    cr_assert_eq(a->status, FV_OK);
    cr_assert_eq(a->n, b->n, "%s: %d tokens, not %d", what, (int)a->n, (int)b->n);
    cr_assert_eq(a->report.finish, b->report.finish, "%s", what);
    cr_assert_str_eq(a->text, b->text, "%s", what);
    cr_assert_eq(a->report.entries_evicted, b->report.entries_evicted, "%s", what);
    cr_assert_eq(a->report.bytes_text_end, b->report.bytes_text_end, "%s", what);
    cr_assert_eq(a->report.bytes_visual_end, b->report.bytes_visual_end, "%s", what);
    for (int32_t i = 0; i < a->n; i++) {
        const fv_sampled *s = &a->token[i], *t = &b->token[i];
        cr_assert_eq(s->id, t->id, "%s: token %d", what, (int)i);
        cr_assert_eq(a->digest[i], b->digest[i], "%s: token %d", what, (int)i);
        cr_assert_eq(memcmp(&s->logprob, &t->logprob, sizeof s->logprob), 0);
        cr_assert_eq(s->n_top, t->n_top);
        cr_assert_eq(memcmp(s->top, t->top, (size_t)s->n_top * sizeof s->top[0]), 0);
    }
}

static const char *const stops[] = {"never said at all"};
static const int32_t more[] = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};

static void ask_all(asked *a, const char *policy, bool first_held) {
    fv_sampling sampling = fv_sampling_default();
    sampling.temperature = 0.9F;
    sampling.top_p = 0.95F;
    sampling.repetition_penalty = 1.1F;
    sampling.frequency_penalty = 0.2F;
    sampling.seed = 77;
    *a = (asked){.answer = {.share_name = "a",
                            .keep_s = KEEP_S,
                            .max_tokens = TOKENS,
                            .n_stop = 1,
                            .stop = stops,
                            .first_held = first_held,
                            .ignore_eos = true,
                            .digests = true,
                            .sampling = {.n_logprobs = 3}}};
    scheduler_ask(&rig, a, &(asked_prompt){.policy = policy, .image = true, .sampling = sampling});
}

static void follow(asked *a, const asked *before) {
    *a = (asked){
        .answer = {
            .share_name = "a",
            .follows = true,
            .prompt = {.kind = FV_PROMPT_IDS, .n_id = sizeof more / sizeof *more, .id = more},
            .sampling = fv_sampling_default(),
            .max_tokens = TOKENS,
            .ignore_eos = true,
            .digests = true}};
    a->answer.sampling.n_logprobs = 2;
    memcpy(a->answer.conversation, before->report.conversation, sizeof a->answer.conversation);
    fv_scheduler_add(rig.answers, &a->answer);
}

/* While the answer runs, other tenants' answers start and end, and its reader pauses and
 * resumes. */
static int32_t disturb(asked *a) {
    static const char *const tenants[] = {"b", "c", "d"};
    int32_t n_pause = 0, n = 0;
    bool ran = false;
    for (int i = 0; i < 4000 && !a->over; i++) {
        if (i % 7 == 0 && n < 12) {
            ask(&other[n], tenants[n % 3], 6 + n % 5);
            n++;
        }
        if (i % 11 == 3) fv_scheduler_hold(rig.answers, &a->answer, true);
        if (i % 11 == 6) fv_scheduler_hold(rig.answers, &a->answer, false);
        fv_scheduler_step(rig.answers);
        n_pause += ran && a->answer.phase == FV_ANSWER_PAUSED;
        ran = a->answer.phase == FV_ANSWER_RUNNING;
    }
    fv_scheduler_hold(rig.answers, &a->answer, false);
    run_all();
    return n_pause;
}

static void same(const char *policy, bool first_held) {
    ask_all(&want, policy, first_held);
    run_all();
    cr_assert_gt(want.report.keep_s, 0);
    follow(&follow_want, &want);
    run_all();
    cr_assert_eq(follow_want.status, FV_OK, "%s", fv_last_error());
    ask_all(&got, policy, first_held);
    cr_assert_gt(disturb(&got), 3, "%s: it was paused again and again", policy);
    assert_same(&got, &want, policy);
    follow(&follow_got, &got);
    cr_assert_gt(disturb(&follow_got), 3);
    assert_same(&follow_got, &follow_want, policy);
    cr_assert_eq(follow_got.report.n_prompt, follow_want.report.n_prompt);
}

Test(slots, an_exact_answer_is_the_same) { same("", false); }

Test(slots, an_answer_with_packed_kv_is_the_same) {
    same("pack=svd,rank_k=4,rank_v=4,gain=0,compress_text=keys,rank_text=4,recompress=8", false);
    same("pack=quant", false);
}

Test(slots, an_answer_that_evicts_is_the_same) {
    same("evict=vta,layer=1,tau=16", false);
    same("evict=h2o,heavy=0.3,recent=0.3", false);
}

Test(slots, an_answer_whose_first_token_comes_from_what_is_held_is_the_same) {
    same("select=csp,heavy=0.3", true);
}

/* A stop string ends an answer even if a pause divides it. */
Test(slots, a_stop_string_that_a_pause_divides_is_found) {
    static char piece[32];
    const char *const stop = piece;
    ask_all(&want, "", false);
    run_all();
    size_t n = strlen(want.text);
    cr_assert_gt(n, 30);
    memcpy(piece, want.text + n / 2, 12);
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        fv_sampling sampling = want.answer.sampling;
        asked *a = disturbed ? &got : &follow_want;
        *a = (asked){.answer = {.share_name = "a",
                                .max_tokens = TOKENS,
                                .n_stop = 1,
                                .stop = &stop,
                                .ignore_eos = true,
                                .digests = true}};
        scheduler_ask(&rig, a, &(asked_prompt){.policy = "", .image = true, .sampling = sampling});
        if (disturbed)
            disturb(a);
        else
            run_all();
    }
    cr_assert_eq(got.report.finish, FV_FINISH_STOP);
    assert_same(&got, &follow_want, "stop");
}

/* A follow-up that has begun has changed its conversation, which ends with it; a follow-up that has
 * not begun leaves it kept. */
Test(slots, a_paused_follow_up_that_is_dropped_ends_its_conversation) {
    ask_all(&want, "", false);
    run_all();
    follow(&follow_want, &want);
    fv_scheduler_drop(rig.answers, &follow_want.answer);
    cr_assert_eq(fv_conversations_kept(rig.conversations), 1);
    follow(&follow_want, &want);
    step(3);
    fv_scheduler_hold(rig.answers, &follow_want.answer, true);
    fv_scheduler_drop(rig.answers, &follow_want.answer);
    cr_assert_eq(fv_conversations_kept(rig.conversations), 0);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
}
