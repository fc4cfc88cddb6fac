/* Drafts by a smaller model (decode-worker/speculate/draft_model.c): the answers are those without it, whether it is
 * always right, being the same model, or hardly ever. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "decode-worker/schedule/drafts.h"
#include "model/synth/synth.h"
#include "tests/support/command.h"
#include "tests/support/scheduler_rig.h"

enum { SLOTS = 3, TOKENS = 60, KEEP_S = 60 };

static scheduler_rig rig;
static asked want, got, follow_want, follow_got;
static fv_engine engine;
static fv_draft_model *model;
static char dir[600];

static void open_rig(void) {
    scheduler_rig_open(&rig, SLOTS);
    fv_batch_weigh_drafts(fv_scheduler_batch(rig.answers), false);
}

/* Opens a model of this seed to draft; 5 is the rig's own. */
static void draft_with(uint64_t seed, size_t kv_bytes) {
    fv_synth_report report;
    snprintf(dir, sizeof dir, "%s/draft-%d", FOVEA_TEST_TMP, (int)getpid());
    cr_assert_eq(
        fv_synth_write(
            &(fv_synth_options){.dir = dir, .shape = "tiny-gqa", .dtype = FV_F32, .seed = seed},
            &report),
        FV_OK, "%s", fv_last_error());
    cr_assert_eq(
        fv_engine_open(&(fv_engine_options){.checkpoint = dir, .backend = "cpu", .threads = 1},
                       &engine),
        FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_draft_check_vocabulary(&engine, &rig.engine), FV_OK, "%s", fv_last_error());
    fv_kv_shape shape = fv_engine_kv_shape(&engine, FV_F32);
    cr_assert_eq(fv_draft_model_open(engine.dec, &shape, engine.n_vocab, kv_bytes, &model), FV_OK);
    fv_scheduler_draft_with(rig.answers, model);
}

static void close_rig(void) {
    static command_result rm;
    scheduler_rig_close(&rig);
    fv_draft_model_close(model);
    if (model) fv_engine_close(&engine);
    if (dir[0]) command_run(&rm, "rm -rf '%s'", dir);
}

TestSuite(draft_model, .init = open_rig, .fini = close_rig, .timeout = 120);

static void run_all(void) {
    for (int i = 0; i < 10000 && fv_scheduler_step(rig.answers); i++) {
    }
}

static void find_none(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    (void)user, (void)ids, (void)n, (void)most, (void)out;
}

static void ask(asked *a, bool image, bool speculate, fv_sampling sampling) {
    *a = (asked){.answer = {.keep_s = KEEP_S,
                            .max_tokens = TOKENS,
                            .ignore_eos = true,
                            .digests = true,
                            .speculate = speculate}};
    scheduler_ask(&rig, a, &(asked_prompt){.policy = "", .image = image, .sampling = sampling});
    if (speculate) a->answer.spec.source.draft = find_none; /* so that the model is asked */
}

static void follow(asked *a, const asked *before, bool speculate) {
    static const int32_t more[] = {7, 8, 9, 10, 11, 12, 13};
    *a = (asked){
        .answer = {
            .follows = true,
            .prompt = {.kind = FV_PROMPT_IDS, .n_id = sizeof more / sizeof *more, .id = more},
            .sampling = fv_sampling_default(),
            .max_tokens = TOKENS,
            .ignore_eos = true,
            .speculate = speculate,
            .digests = true}};
    memcpy(a->answer.conversation, before->report.conversation, sizeof a->answer.conversation);
    fv_scheduler_add(rig.answers, &a->answer);
    if (speculate) a->answer.spec.source.draft = find_none;
}

static void assert_same(const asked *a, const asked *b) {
    cr_assert_eq(a->over, 1);
    cr_assert_eq(a->status, FV_OK);
    cr_assert_eq(a->n, b->n);
    cr_assert_str_eq(a->text, b->text);
    for (int32_t i = 0; i < a->n; i++) {
        cr_assert_eq(a->token[i].id, b->token[i].id, "token %d", (int)i);
        cr_assert_eq(a->digest[i], b->digest[i], "token %d", (int)i);
    }
}

/* Random weights may choose the token of an image, and what follows it would be a prompt with one. */
static void same(fv_sampling sampling) {
    sampling.n_bias = 1;
    sampling.bias[0] = (fv_logit_bias){fv_checkpoint_config(rig.engine.ck)->image_token, -100};
    ask(&want, false, false, sampling);
    run_all();
    follow(&follow_want, &want, false);
    run_all();
    ask(&got, false, true, sampling);
    run_all();
    assert_same(&got, &want);
    cr_assert_gt(got.report.n_drafted, 0);
    follow(&follow_got, &got, true);
    run_all();
    assert_same(&follow_got, &follow_want);
}

/* A model that is the answer's own is right, unless the likeliest token is one that the request forbids. */
Test(draft_model, the_same_model_is_right) {
    draft_with(5, 0);
    same(fv_sampling_default());
    cr_assert_gt(got.report.n_drafts_kept, TOKENS / 2);
    cr_assert_gt(follow_got.report.n_drafts_kept, TOKENS / 2);
    cr_assert_geq(2 * got.report.n_drafts_kept, got.report.n_drafted);
}

Test(draft_model, another_model_is_mostly_wrong_and_the_answer_the_same) {
    draft_with(6, 0);
    same(fv_sampling_default());
    cr_assert_lt(got.report.n_drafts_kept, got.report.n_drafted);
}

Test(draft_model, sampled_answers_are_the_same) {
    fv_sampling s = fv_sampling_default();
    s.temperature = 0.8F;
    s.seed = 3;
    draft_with(5, 0);
    same(s);
}

Test(draft_model, answers_run_beside_one_another) {
    asked *all[] = {&got, &follow_got, &follow_want};
    draft_with(5, 0);
    ask(&want, false, false, fv_sampling_default());
    run_all();
    for (int i = 0; i < 3; i++) ask(all[i], false, true, fv_sampling_default());
    run_all();
    for (int i = 0; i < 3; i++) assert_same(all[i], &want);
}

Test(draft_model, without_memory_for_it_an_answer_goes_on_without_drafts) {
    draft_with(5, 100000);
    ask(&want, false, false, fv_sampling_default());
    run_all();
    ask(&got, false, true, fv_sampling_default());
    run_all();
    assert_same(&got, &want);
}

Test(draft_model, prompts_with_images_do_not_ask_it) {
    draft_with(5, 0);
    ask(&want, true, false, fv_sampling_default());
    run_all();
    ask(&got, true, true, fv_sampling_default());
    cr_assert_null(got.answer.drafter);
    cr_assert_not_null(got.answer.lookup);
    run_all();
    assert_same(&got, &want);
    cr_assert_eq(got.report.n_drafted, 0);
}

/* ---- which steps ask it --------------------------------------------------------------------- */

static int32_t asked_for;

static void draft_as_asked(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    (void)user, (void)ids, (void)n;
    asked_for = most;
    out->n = most;
}

Test(draft_model, as_many_tokens_are_asked_for_as_are_worth_their_time) {
    fv_speculation s = {.source = {find_none, NULL}, .model = {draft_as_asked, NULL}, .n_vocab = 9};
    fv_speculation *one = &s;
    fv_step_costs c = {0};
    fv_speculation_propose(&s, NULL, 5, 8);
    cr_assert(s.is_open && s.draft.n == 8 && asked_for == 0, "nothing was asked yet");
    cr_assert_eq(fv_speculation_trim(&one, 1, 1, &c), 0, "no step was measured");
    fv_speculation_fill(&s, NULL, 5);
    cr_assert_eq(asked_for, 0);
    for (int i = 0; i < 8; i++) {
        fv_step_costs_note(&c, 1, 8, 0.10);
        fv_step_costs_note(&c, 1, 4, 0.06);
        fv_step_costs_note(&c, 1, 2, 0.03);
        fv_step_costs_note(&c, 1, 1, 0.022);
        fv_step_costs_note(&c, 1, 0, 0.02);
    }
    fv_speculation_propose(&s, NULL, 5, 8);
    int32_t n = fv_speculation_trim(&one, 1, 1, &c);
    cr_assert(n > 0 && n < 4, "%d", (int)n);
    fv_speculation_fill(&s, NULL, 5);
    cr_assert_eq(asked_for, n);
    cr_assert_eq(s.draft.n, n);
    cr_assert_eq(s.draft.grade, FV_DRAFT_MODEL_GRADE);
}
