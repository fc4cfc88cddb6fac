/* Answers that are complete and finalize (decode-worker/schedule/scheduler.c): a layer of text keys is
 * factored anew between two steps, so that others go on meanwhile; and whoever leaves then leaves
 * nothing.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode-worker/schedule/scheduler.h"
#include "model/synth/synth.h"
#include "prefill-worker/job/job.h"
#include "tests/support/command.h"

enum { PROMPT = 40, TOKENS = 12, KEEP_S = 60 };

#define POLICY "pack=svd,gain=0,compress_text=keys,rank_text=6,recompress=8"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static struct {
    char dir[512];
    fv_engine engine;
    fv_kv_pool *p_pool, *pool;
    fv_receiver *receiver;
    fv_transport *transport;
    fv_conversations *conversations;
    fv_scheduler *answers;
} rig;

/* An answer and its events. */
typedef struct asked {
    fv_answer answer; /* first */
    int32_t n;
    int over;
    fv_status status;
    fv_answer_report report;
} asked;

static fv_status on_token(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest) {
    (void)index, (void)e, (void)digest;
    ((asked *)x)->n++;
    return FV_OK;
}

static void on_over(fv_answer *x, fv_status st, const fv_answer_report *r) {
    asked *a = (asked *)x;
    a->over++;
    a->status = st;
    a->report = *r;
}

static void open_rig(void) {
    static const fv_scheduler_hooks hooks = {.token = on_token, .over = on_over};
    fv_synth_report report;
    snprintf(rig.dir, sizeof rig.dir, "%s/finalizing-%d", FOVEA_TEST_TMP, (int)getpid());
    ok(fv_synth_write(
        &(fv_synth_options){.dir = rig.dir, .shape = "tiny", .dtype = FV_F32, .seed = 5}, &report));
    ok(fv_engine_open(
        &(fv_engine_options){.checkpoint = rig.dir, .backend = "cpu", .isa = "auto", .threads = 1},
        &rig.engine));
    const fv_text_config *text = &fv_checkpoint_config(rig.engine.ck)->text;
    fv_kv_shape shape = fv_engine_kv_shape(&rig.engine, FV_F32);
    ok(fv_kv_pool_open(rig.engine.be.device, &shape, 0, &rig.p_pool));
    ok(fv_kv_pool_open(rig.engine.be.device, &shape, 0, &rig.pool));
    ok(fv_receiver_open(&(fv_receiver_options){.pool = rig.pool,
                                               .model = rig.engine.fingerprint,
                                               .n_vocab = text->vocab,
                                               .n_group = text->n_head / text->n_kv,
                                               .max_position = text->max_position,
                                               .grants = fv_grants_options_default()},
                        &rig.receiver));
    ok(fv_transport_inproc(fv_receiver_sink(rig.receiver), &rig.transport));
    ok(fv_conversations_open(&(fv_conversations_options){.keep_s_max = 600}, &rig.conversations));
    ok(fv_scheduler_open(&rig.engine, rig.receiver, rig.conversations, 8, 64, &hooks,
                         &rig.answers));
}

/* Nothing is held but what is kept, which goes too. */
static void close_rig(void) {
    static command_result r;
    fv_scheduler_close(rig.answers);
    cr_assert_eq(fv_kv_pool_used(rig.pool), fv_conversations_bytes(rig.conversations));
    fv_conversations_close(rig.conversations);
    fv_transport_close(rig.transport, NULL, NULL);
    fv_receiver_close(rig.receiver);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    fv_kv_pool_close(rig.pool);
    fv_kv_pool_close(rig.p_pool);
    fv_engine_close(&rig.engine);
    command_run(&r, "rm -rf '%s'", rig.dir);
}

TestSuite(finalizing, .init = open_rig, .fini = close_rig, .timeout = 60);

/* A prompt of text, prefilled, sent and asked to be answered with so many tokens. */
static void ask(asked *a, const char *policy, int32_t max_tokens, double keep_s) {
    float *logits =
        malloc((size_t)fv_checkpoint_config(rig.engine.ck)->text.vocab * sizeof *logits);
    int32_t ids[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) ids[i] = 5 + i * 3 % 100;
    fv_prefill_job job = {.engine = &rig.engine,
                          .pool = rig.p_pool,
                          .form = {.kind = FV_PROMPT_IDS, .n_id = PROMPT, .id = ids},
                          .generation = fv_engine_generation_options(&rig.engine, true)},
                   *one_job = &job;
    job.generation.max_tokens = max_tokens;
    ok(fv_policy_parse(policy, &job.policy));
    ok(fv_prefill_job_prepare(&job));
    ok(fv_prefill_jobs_run(&one_job, 1, &(fv_prefill_options){0}, logits));
    fv_export_request out = fv_prefill_job_export(&job);
    fv_export *ship;
    bool done;
    ok(fv_export_begin(rig.transport, &out, &ship));
    ok(fv_export_layers(ship, fv_kv_get_shape(job.kv)->n_layer));
    ok(fv_export_end(ship, &(fv_first_token){.id = 9, .step = 1}));
    ok(fv_export_done(ship, &done));
    cr_assert(done);
    *a = (asked){.answer = {.ticket = *fv_export_ticket(ship),
                            .keep_s = keep_s,
                            .max_tokens = max_tokens,
                            .ignore_eos = true}};
    fv_export_close(ship, true, NULL, NULL);
    fv_prefill_job_free(&job);
    free(logits);
    fv_scheduler_add(rig.answers, &a->answer);
}

static void run_until(const asked *a, fv_answer_phase phase) {
    for (int i = 0; i < 1000 && a->answer.phase != phase; i++) fv_scheduler_step(rig.answers);
    cr_assert_eq(a->answer.phase, phase);
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

/* A follow-up that is dropped while it finalizes had added to its conversation, which ends. */
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
