#include "tests/support/scheduler_rig.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "model/synth/synth.h"
#include "tests/support/command.h"

enum { PROMPT = 40, SIDE = 24 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static fv_status on_token(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest) {
    asked *a = (asked *)x;
    size_t n_text = strlen(a->text);
    (void)index;
    if (a->fail_at == a->n + 1) {
        a->fail_at = 0; /* for those after it there is */
        return FV_FAIL(FV_ENOMEM, "out of memory for a token");
    }
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

/* ---- the sink ------------------------------------------------------------------------------ */

static scheduler_rig *rig_of(fv_sink *s) {
    return (scheduler_rig *)((char *)s - offsetof(scheduler_rig, sink));
}

static fv_sink *real(fv_sink *s) { return fv_receiver_sink(rig_of(s)->receiver); }

static fv_status offer(fv_sink *s, const fv_hello *hello, fv_grant *out) {
    scheduler_rig *r = rig_of(s);
    fv_hello h = *hello;
    fv_decode_plan plan;
    h.tokens_reserved = (uint32_t)r->asking->reserve;
    FV_TRY(fv_receiver_check(r->receiver, &h, &plan));
    h.arrived_s = r->asking->arrived_s > 0 ? r->asking->arrived_s : fv_clock_s();
    return fv_receiver_offer(r->receiver, &h, &plan, out);
}

static fv_status frame(fv_sink *s, const fv_ticket *ticket, uint64_t seq, const fv_piece *piece,
                       int32_t n) {
    return real(s)->ops->frame(real(s), ticket, seq, piece, n);
}

static fv_status oob(fv_sink *s, const fv_ticket *ticket, uint64_t seq, const void *bytes, size_t n,
                     uint32_t crc) {
    return real(s)->ops->oob(real(s), ticket, seq, bytes, n, crc);
}

static fv_status commit(fv_sink *s, const fv_ticket *ticket, uint64_t n) {
    return real(s)->ops->commit(real(s), ticket, n);
}

static fv_status renew(fv_sink *s, const fv_ticket *ticket) {
    return real(s)->ops->renew(real(s), ticket);
}

static void give_up(fv_sink *s, const fv_ticket *ticket) { real(s)->ops->abort(real(s), ticket); }

static const fv_sink_ops sink_ops = {
    .offer = offer, .frame = frame, .oob = oob, .commit = commit, .renew = renew, .abort = give_up};

/* ---- the rig ------------------------------------------------------------------------------- */

void scheduler_rig_open(scheduler_rig *r, int32_t batch_max) {
    scheduler_rig_open_with(r, batch_max, 0);
}

void scheduler_rig_open_with(scheduler_rig *r, int32_t batch_max, size_t kv_bytes) {
    static const fv_scheduler_hooks hooks = {.token = on_token, .over = on_over};
    fv_synth_report report;
    *r = (scheduler_rig){.sink = {&sink_ops}};
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
    ok(fv_kv_pool_open(r->engine.be.device, &shape, kv_bytes, &r->pool));
    ok(fv_image_cache_open((size_t)1 << 20, &r->cache));
    ok(fv_receiver_open(&(fv_receiver_options){.pool = r->pool,
                                               .model = r->engine.fingerprint,
                                               .n_vocab = text->vocab,
                                               .n_group = text->n_head / text->n_kv,
                                               .max_position = text->max_position,
                                               .grants = fv_grants_options_default()},
                        &r->receiver));
    ok(fv_transport_inproc(&r->sink, &r->transport));
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

bool scheduler_try(scheduler_rig *r, asked *a, const asked_prompt *prompt) {
    static uint8_t pixels[SIDE * SIDE * 3];
    static const fv_image image = {.rgb = pixels, .w = SIDE, .h = SIDE};
    static const fv_job_image images[] = {{.decoded = &image}};
    static const fv_chat_turn turn = {.role = "user", .text = "What is this?", .n_image = 1};
    int32_t ids[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) ids[i] = 5 + (i * 3 + prompt->salt * 7) % 100;
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
    job.n_replay = prompt->n_replay;
    job.replay = prompt->replay;
    ok(fv_policy_parse(prompt->policy, &job.policy));
    prefill(r, &job, &a->first);
    fv_export_request out = fv_prefill_job_export(&job);
    fv_export *ship;
    bool done;
    r->asking = prompt;
    fv_status st = fv_export_begin(r->transport, &out, &ship);
    if (st == FV_EBUSY) {
        fv_prefill_job_free(&job);
        return false;
    }
    ok(st);
    ok(fv_export_layers(ship, fv_kv_get_shape(job.kv)->n_layer));
    ok(fv_export_end(ship,
                     &(fv_first_token){.id = a->first.id, .step = (uint64_t)prompt->n_replay + 1}));
    ok(fv_export_done(ship, &done));
    cr_assert(done);
    a->answer.ticket = *fv_export_ticket(ship);
    fv_export_close(ship, true, NULL, NULL);
    fv_prefill_job_free(&job);
    fv_scheduler_add(r->answers, &a->answer);
    return true;
}

void scheduler_ask(scheduler_rig *r, asked *a, const asked_prompt *prompt) {
    cr_assert(scheduler_try(r, a, prompt), "%s", fv_last_error());
}

void scheduler_run_until(scheduler_rig *r, const asked *a, fv_answer_phase phase) {
    for (int i = 0; i < 4000 && a->answer.phase != phase; i++) fv_scheduler_step(r->answers);
    cr_assert_eq(a->answer.phase, phase, "it is %d: %s", (int)a->answer.phase, fv_last_error());
}
