#include "tests/support/scheduler_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/synth/synth.h"
#include "tests/support/command.h"

enum { PROMPT = 40, SIDE = 24 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static fv_status on_token(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest) {
    asked *a = (asked *)x;
    size_t n_text = strlen(a->text);
    (void)index;
    cr_assert(a->n < ASKED_TOKENS && n_text + e->n_text < ASKED_TEXT);
    a->digest[a->n] = digest;
    a->token[a->n++] = *e->token;
    memcpy(a->text + n_text, e->text, e->n_text);
    return FV_OK;
}

static void on_over(fv_answer *x, fv_status st, const fv_answer_report *r) {
    asked *a = (asked *)x;
    a->over++;
    a->status = st;
    a->report = *r;
}

void scheduler_rig_open(scheduler_rig *r, int32_t batch_max) {
    static const fv_scheduler_hooks hooks = {.token = on_token, .over = on_over};
    fv_synth_report report;
    *r = (scheduler_rig){0};
    snprintf(r->dir, sizeof r->dir, "%s/scheduler-%d", FOVEA_TEST_TMP, (int)getpid());
    ok(fv_synth_write(
        &(fv_synth_options){.dir = r->dir, .shape = "tiny-gqa", .dtype = FV_F32, .seed = 5},
        &report));
    ok(fv_engine_open(
        &(fv_engine_options){
            .checkpoint = r->dir, .backend = "cpu", .isa = "auto", .threads = 1, .vision = true},
        &r->engine));
    const fv_text_config *text = &fv_checkpoint_config(r->engine.ck)->text;
    fv_kv_shape shape = fv_engine_kv_shape(&r->engine, FV_F32);
    ok(fv_kv_pool_open(r->engine.be.device, &shape, 0, &r->p_pool));
    ok(fv_kv_pool_open(r->engine.be.device, &shape, 0, &r->pool));
    ok(fv_image_cache_open((size_t)1 << 20, &r->cache));
    ok(fv_receiver_open(&(fv_receiver_options){.pool = r->pool,
                                               .model = r->engine.fingerprint,
                                               .n_vocab = text->vocab,
                                               .n_group = text->n_head / text->n_kv,
                                               .max_position = text->max_position,
                                               .grants = fv_grants_options_default()},
                        &r->receiver));
    ok(fv_transport_inproc(fv_receiver_sink(r->receiver), &r->transport));
    ok(fv_conversations_open(&(fv_conversations_options){.keep_s_max = 600}, &r->conversations));
    ok(fv_scheduler_open(&r->engine, r->receiver, r->conversations, batch_max, 64, &hooks,
                         &r->answers));
}

void scheduler_rig_close(scheduler_rig *r) {
    static command_result rm;
    fv_scheduler_close(r->answers);
    cr_assert_eq(fv_kv_pool_used(r->pool), fv_conversations_bytes(r->conversations));
    fv_conversations_close(r->conversations);
    fv_transport_close(r->transport, NULL, NULL);
    fv_receiver_close(r->receiver);
    cr_assert_eq(fv_kv_pool_used(r->pool), 0);
    fv_image_cache_close(r->cache);
    fv_kv_pool_close(r->pool);
    fv_kv_pool_close(r->p_pool);
    fv_engine_close(&r->engine);
    command_run(&rm, "rm -rf '%s'", r->dir);
}

static void prefill(scheduler_rig *r, fv_prefill_job *job, fv_sampled *first) {
    float *logits = malloc((size_t)fv_checkpoint_config(r->engine.ck)->text.vocab * sizeof *logits);
    cr_assert(logits);
    ok(fv_prefill_job_prepare(job));
    ok(fv_prefill_job_encode_all(job));
    ok(fv_prefill_jobs_run(&job, 1, &(fv_prefill_options){.chunk = 16}, logits));
    ok(fv_prefill_job_end(job));
    ok(fv_prefill_job_first(job, logits));
    *first = job->token;
    free(logits);
}

void scheduler_ask(scheduler_rig *r, asked *a, const asked_prompt *prompt) {
    static uint8_t pixels[SIDE * SIDE * 3];
    static const fv_image image = {.rgb = pixels, .w = SIDE, .h = SIDE};
    static const fv_job_image images[] = {{.decoded = &image}};
    static const fv_chat_turn turn = {.role = "user", .text = "What is this?", .n_image = 1};
    int32_t ids[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) ids[i] = 5 + i * 3 % 100;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i / SIDE * 7);
    fv_prefill_job job = {.engine = &r->engine,
                          .cache = r->cache,
                          .pool = r->p_pool,
                          .form = {.kind = FV_PROMPT_IDS, .n_id = PROMPT, .id = ids},
                          .generation =
                              fv_engine_generation_options(&r->engine, a->answer.ignore_eos)};
    if (prompt->image) {
        job.form = (fv_prompt_form){.chat_template = "", .n_turn = 1, .turn = &turn};
        job.n_image = 1;
        job.image = images;
    }
    job.generation.sampling = prompt->sampling;
    job.generation.max_tokens = a->answer.max_tokens;
    ok(fv_policy_parse(prompt->policy, &job.policy));
    fv_sampled first;
    prefill(r, &job, &first);
    fv_export_request out = fv_prefill_job_export(&job);
    fv_export *ship;
    bool done;
    ok(fv_export_begin(r->transport, &out, &ship));
    ok(fv_export_layers(ship, fv_kv_get_shape(job.kv)->n_layer));
    ok(fv_export_end(ship, &(fv_first_token){.id = first.id, .step = 1}));
    ok(fv_export_done(ship, &done));
    cr_assert(done);
    a->answer.ticket = *fv_export_ticket(ship);
    fv_export_close(ship, true, NULL, NULL);
    fv_prefill_job_free(&job);
    fv_scheduler_add(r->answers, &a->answer);
}

void scheduler_run_until(scheduler_rig *r, const asked *a, fv_answer_phase phase) {
    for (int i = 0; i < 4000 && a->answer.phase != phase; i++) fv_scheduler_step(r->answers);
    cr_assert_eq(a->answer.phase, phase, "it is %d: %s", (int)a->answer.phase, fv_last_error());
}
