/* Complete answers that finalize (decode-worker/schedule/scheduler.c): each layer of text keys is
 * factored again between two steps, so that other answers continue; dropping an answer meanwhile
 * leaves nothing behind. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/scheduler_rig.h"

enum { TOKENS = 12, KEEP_S = 60 };

#define POLICY "pack=svd,gain=0,compress_text=keys,rank_text=6,recompress=8"

static scheduler_rig rig;

static void open_rig(void) { scheduler_rig_open(&rig, 8); }

static void close_rig(void) { scheduler_rig_close(&rig); }

TestSuite(finalizing, .init = open_rig, .fini = close_rig, .timeout = 240);

static void ask(asked *a, const char *policy, int32_t max_tokens, double keep_s) {
    *a = (asked){.answer = {.keep_s = keep_s, .max_tokens = max_tokens, .ignore_eos = true}};
    scheduler_ask(&rig, a, &(asked_prompt){.policy = policy, .sampling = fv_sampling_default()});
}

static void run_until(const asked *a, fv_answer_phase phase) {
    scheduler_run_until(&rig, a, phase);
}

static asked one, other;

Test(finalizing, a_kept_answer_ends_when_its_layers_are_done_and_others_go_on_meanwhile) {
    int32_t n_layer = fv_engine_kv_shape(&rig.engine, FV_F32).n_layer;
    ask(&one, POLICY, TOKENS, KEEP_S);
    ask(&other, "", 4 * TOKENS, 0);
    run_until(&one, FV_ANSWER_FINALIZING);
    cr_assert_eq(one.n, TOKENS - 1);
    for (int32_t l = 0; l < n_layer; l++) {
        int32_t n = other.n;
        cr_assert_eq(one.over, 0, "layer %d", l);
        cr_assert(fv_scheduler_step(rig.answers));
        cr_assert_eq(other.n, n + 1, "a token and a layer, turn by turn");
    }
    cr_assert_eq(one.over, 1);
    cr_assert_eq(one.status, FV_OK);
    cr_assert_eq(one.report.recompressed.n_layer, n_layer);
    cr_assert_gt(one.report.recompressed.bytes, 0);
    cr_assert_gt(one.report.keep_s, 0);
    cr_assert_eq(fv_conversations_kept(rig.conversations), 1);
    run_until(&other, FV_ANSWER_NONE);
    cr_assert_eq(other.status, FV_OK);
    cr_assert_eq(other.report.recompressed.n_layer, 0);
}

Test(finalizing, what_is_not_to_be_kept_ends_at_once) {
    ask(&one, POLICY, TOKENS, 0);
    ask(&other, "pack=svd,gain=0,compress_text=keys,rank_text=6", TOKENS, KEEP_S);
    for (int i = 0; i < TOKENS - 1; i++) fv_scheduler_step(rig.answers);
    cr_assert_eq(one.over, 1);
    cr_assert_eq(one.report.recompressed.n_layer, 0);
    cr_assert_eq(other.over, 1, "it waits for no rows");
    cr_assert_gt(other.report.keep_s, 0);
}

Test(finalizing, one_that_is_dropped_in_the_middle_leaves_nothing) {
    ask(&one, POLICY, TOKENS, KEEP_S);
    ask(&other, POLICY, TOKENS + 3, KEEP_S);
    run_until(&one, FV_ANSWER_FINALIZING);
    cr_assert(fv_scheduler_step(rig.answers), "one layer of it");
    cr_assert_eq(one.answer.phase, FV_ANSWER_FINALIZING);
    fv_scheduler_drop(rig.answers, &one.answer);
    cr_assert_eq(one.over, 0, "without a word");
    cr_assert_eq(one.answer.phase, FV_ANSWER_NONE);
    run_until(&other, FV_ANSWER_NONE);
    cr_assert_eq(other.status, FV_OK);
    cr_assert_eq(fv_conversations_kept(rig.conversations), 1);
    cr_assert_eq(fv_kv_pool_used(rig.pool), fv_conversations_bytes(rig.conversations));
}

/* A follow-up that is dropped while it finalizes has changed its conversation, which therefore
 * ends. */
Test(finalizing, a_follow_up_that_is_dropped_then_ends_its_conversation) {
    static const int32_t ids[] = {7, 8, 9};
    ask(&one, POLICY, TOKENS, KEEP_S);
    run_until(&one, FV_ANSWER_NONE);
    other = (asked){.answer = {.follows = true,
                               .prompt = {.kind = FV_PROMPT_IDS, .n_id = 3, .id = ids},
                               .sampling = fv_sampling_default(),
                               .keep_s = KEEP_S,
                               .max_tokens = TOKENS,
                               .ignore_eos = true}};
    memcpy(other.answer.conversation, one.report.conversation, sizeof other.answer.conversation);
    fv_scheduler_add(rig.answers, &other.answer);
    run_until(&other, FV_ANSWER_FINALIZING);
    fv_scheduler_drop(rig.answers, &other.answer);
    cr_assert_eq(fv_conversations_kept(rig.conversations), 0);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
}
