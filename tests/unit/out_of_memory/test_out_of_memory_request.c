/* A whole request with an image and a question, whose n-th allocation fails, for every n: the
 * prefill job, the hand-off, and the scheduler's generation, which is kept as a conversation and
 * followed up. It ends with FV_ENOMEM, or with the usual tokens; and nothing of it is left, in
 * memory or in a KV pool. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode-worker/schedule/scheduler.h"
#include "model/synth/synth.h"
#include "prefill-worker/job/job.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/command.h"
#include "tests/support/thorough.h"

enum { TOKENS = 4, STEPS_MAX = 1000, SIDE = 24, KEEP_S = 60 };

static char dir[512];
static fv_engine engine;

/* Both workers, without a request yet. */
typedef struct fleet_rig {
    fv_kv_pool *p_pool, *d_pool;
    fv_image_cache *cache;
    fv_receiver *receiver;
    fv_transport *transport;
    fv_conversations *conversations;
    fv_scheduler *scheduler;
    float *logits; /* [vocab] */
} fleet_rig;

typedef struct request {
    fv_answer answer; /* first */
    fv_prefill_job job;
    fv_export *transfer;
    bool over;
    fv_status status; /* of the answer */
    fv_answer_report report;
    int32_t n, ids[2 * TOKENS]; /* of the answer, and of the one that follows */
} request;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void open_engine(void) {
    fv_synth_report report;
    snprintf(dir, sizeof dir, "%s/out-of-memory-%d", FOVEA_TEST_TMP, (int)getpid());
    ok(fv_synth_write(
        &(fv_synth_options){.dir = dir, .shape = "tiny-gqa", .dtype = FV_F32, .seed = 5}, &report));
    ok(fv_engine_open(
        &(fv_engine_options){
            .checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1, .vision = true},
        &engine));
}

static void close_engine(void) {
    static command_result r;
    fv_engine_close(&engine);
    command_run(&r, "rm -rf '%s'", dir);
}

static void add_token(request *r, int32_t id) {
    cr_assert_lt(r->n, 2 * TOKENS);
    r->ids[r->n++] = id;
}

static fv_status on_token(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest) {
    (void)index, (void)digest;
    add_token((request *)x, e->token->id);
    return FV_OK;
}

static void on_over(fv_answer *x, fv_status st, const fv_answer_report *report) {
    request *r = (request *)x;
    r->report = *report;
    r->over = true;
    r->status = st;
}

static void open_rig(fleet_rig *rig) {
    static const fv_scheduler_hooks hooks = {.token = on_token, .over = on_over};
    const fv_text_config *text = &fv_checkpoint_config(engine.ck)->text;
    fv_kv_shape shape = fv_engine_kv_shape(&engine, FV_F32);
    ok(fv_kv_pool_open(engine.be.device, &shape, 0, &rig->p_pool));
    ok(fv_kv_pool_open(engine.be.device, &shape, 0, &rig->d_pool));
    ok(fv_image_cache_open((size_t)1 << 20, &rig->cache));
    ok(fv_receiver_open(&(fv_receiver_options){.pool = rig->d_pool,
                                               .model = engine.fingerprint,
                                               .n_vocab = text->vocab,
                                               .n_group = text->n_head / text->n_kv,
                                               .max_position = text->max_position,
                                               .grants = fv_grants_options_default()},
                        &rig->receiver));
    ok(fv_transport_inproc(fv_receiver_sink(rig->receiver), &rig->transport));
    ok(fv_conversations_open(&(fv_conversations_options){.keep_s_max = 600}, &rig->conversations));
    ok(fv_scheduler_open(&engine, rig->receiver, rig->conversations, 2, 64, &hooks,
                         &rig->scheduler));
    rig->logits = malloc((size_t)text->vocab * sizeof *rig->logits);
    cr_assert(rig->logits);
}

/* Closes the rig and its kept conversations; asserts that nothing else was left. */
static void close_rig(fleet_rig *rig) {
    fv_scheduler_close(rig->scheduler);
    cr_assert_eq(fv_kv_pool_used(rig->p_pool), 0);
    cr_assert_eq(fv_kv_pool_used(rig->d_pool), fv_conversations_bytes(rig->conversations));
    fv_conversations_close(rig->conversations);
    fv_transport_close(rig->transport, NULL, NULL);
    fv_receiver_close(rig->receiver);
    cr_assert_eq(fv_kv_pool_used(rig->d_pool), 0);
    fv_image_cache_close(rig->cache);
    fv_kv_pool_close(rig->d_pool);
    fv_kv_pool_close(rig->p_pool);
    free(rig->logits);
}

static fv_status prefill(fleet_rig *rig, request *r) {
    fv_prefill_job *job = &r->job;
    FV_TRY(fv_prefill_job_prepare(job));
    FV_TRY(fv_prefill_job_encode_all(job));
    FV_TRY(fv_prefill_jobs_run(&job, 1, &(fv_prefill_options){.chunk = 16}, rig->logits));
    FV_TRY(fv_prefill_job_end(job));
    FV_TRY(fv_prefill_job_first(job, rig->logits));
    add_token(r, job->token.id);
    return FV_OK;
}

static fv_status hand_off(fleet_rig *rig, request *r) {
    bool done;
    fv_export_request out = fv_prefill_job_export(&r->job);
    FV_TRY(fv_export_begin(rig->transport, &out, &r->transfer));
    FV_TRY(fv_export_layers(r->transfer, fv_kv_get_shape(r->job.kv)->n_layer));
    FV_TRY(fv_export_end(r->transfer, &(fv_first_token){.id = r->job.token.id, .step = 1}));
    FV_TRY(fv_export_done(r->transfer, &done));
    r->answer.ticket = *fv_export_ticket(r->transfer);
    return FV_OK;
}

static fv_status answer(fleet_rig *rig, request *r) {
    r->over = false;
    fv_scheduler_add(rig->scheduler, &r->answer);
    for (int i = 0; i < STEPS_MAX && !r->over; i++) fv_scheduler_step(rig->scheduler);
    cr_assert(r->over, "the answer goes on and on");
    return r->status;
}

/* Asks a follow-up in the kept conversation, if there is one. */
static fv_status follow_up(fleet_rig *rig, request *r) {
    static const int32_t ids[] = {7, 8, 9};
    if (r->report.keep_s == 0) return FV_OK;
    r->answer = (fv_answer){.follows = true,
                            .prompt = {.kind = FV_PROMPT_IDS, .n_id = 3, .id = ids},
                            .sampling = fv_sampling_default(),
                            .max_tokens = TOKENS,
                            .ignore_eos = true};
    memcpy(r->answer.conversation, r->report.conversation, sizeof r->answer.conversation);
    return answer(rig, r);
}

static fv_status run(fleet_rig *rig, request *r) {
    FV_TRY(prefill(rig, r));
    FV_TRY(hand_off(rig, r));
    FV_TRY(answer(rig, r));
    return follow_up(rig, r);
}

/* Returns whether the n-th allocation was reached. */
static bool attempt(const char *policy, int64_t n, fv_status *st, request *out) {
    static uint8_t pixels[SIDE * SIDE * 3];
    static const fv_image image = {.rgb = pixels, .w = SIDE, .h = SIDE};
    static const fv_job_image images[] = {{.decoded = &image}};
    static const fv_chat_turn turn = {.role = "user", .text = "What is this?", .n_image = 1};
    int64_t live = alloc_live();
    fleet_rig rig = {0};
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i / SIDE * 7);
    open_rig(&rig);
    request r = {.answer = {.keep_s = KEEP_S, .max_tokens = TOKENS, .ignore_eos = true},
                 .job = {.engine = &engine,
                         .cache = rig.cache,
                         .pool = rig.p_pool,
                         .form = {.chat_template = "", .n_turn = 1, .turn = &turn},
                         .n_image = 1,
                         .image = images,
                         .want_kept = true,
                         .generation = fv_engine_generation_options(&engine, true)}};
    r.job.generation.max_tokens = TOKENS;
    ok(fv_policy_parse(policy, &r.job.policy));
    alloc_fail_begin(n);
    *st = run(&rig, &r);
    bool came = alloc_fail_end();
    fv_export_close(r.transfer, true, NULL, NULL);
    fv_prefill_job_free(&r.job);
    close_rig(&rig);
    *out = r;
    /* The first request makes the engine allocate its scratch memory. */
    if (came || *st != FV_OK)
        cr_assert_eq(alloc_live(), live, "%s, allocation %lld: %lld are left", policy, (long long)n,
                     (long long)(alloc_live() - live));
    return came;
}

static void each_allocation(const char *policy) {
    request want, got;
    int32_t n_failed = 0;
    fv_status st;
    attempt(policy, INT64_MAX, &st, &want);
    cr_assert_eq(st, FV_OK, "%s: %s", policy, fv_last_error());
    cr_assert_eq(want.n, 2 * TOKENS, "%s", policy);
    for (int64_t n = 1; attempt(policy, n, &st, &got); n += sanitized_step(3)) {
        n_failed += st != FV_OK;
        cr_assert(st == FV_OK || st == FV_ENOMEM, "%s, allocation %lld: %s, %s", policy,
                  (long long)n, fv_status_name(st), fv_last_error());
        if (st != FV_OK) continue;
        cr_assert_eq(got.n, got.report.keep_s == 0 && got.n < want.n ? TOKENS : want.n);
        cr_assert_eq(memcmp(got.ids, want.ids, (size_t)got.n * sizeof got.ids[0]), 0,
                     "%s, allocation %lld: another answer", policy, (long long)n);
    }
    cr_assert_gt(n_failed * sanitized_step(3), 100, "%s: the request allocates", policy);
}

TestSuite(out_of_memory_request, .init = open_engine, .fini = close_engine, .timeout = 300);

Test(out_of_memory_request, exact) { each_allocation(""); }

Test(out_of_memory_request, tokens_that_are_condensed_pruned_selected_and_evicted) {
    each_allocation("condense=prumerge;prune=fastv,layer=1,keep=0.5;select=csp,heavy=0.3");
    each_allocation("evict=h2o,heavy=0.3,recent=0.3");
    each_allocation("lazy=vla,map=given,blocks=0-1;evict=vta,layer=1,tau=6");
}

Test(out_of_memory_request, compressed_layers_and_text_keys_that_are_compressed_again) {
    each_allocation("pack=svd,rank_k=4,rank_v=4,gain=0,compress_text=keys,rank_text=4,"
                    "recompress=1;expand=attention");
    each_allocation("pack=quant,first=packed");
    each_allocation("pack=minicache,start=0");
}
