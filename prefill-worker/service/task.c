/* Prepares a request for prefill and requests memory at a decode worker. Errors of a request are
 * found here, before anything is computed for it. On the computing thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "packed/text_codes.h"
#include "prefill-worker/service/internal.h"
#include "serving/policy_message.h"
#include "serving/worker/model_info.h"
#include "serving/worker/request.h"

enum { IDS_MAX = 1 << 20 }; /* of a prompt that is cut to fit the context */

/* ---- the request ------------------------------------------------------------------------ */

/* Returns the time by which a chat must be rendered. */
static double chat_until(const fv_task *t) {
    double most_s = fv_clock_s() + FV_CHAT_SECONDS;
    return t->deadline_s > 0 && t->deadline_s < most_s ? t->deadline_s : most_s;
}

static fv_status read_images(fv_task *t) {
    const fv_generate_message *r = t->msg->request;
    fv_job_image *image;
    FV_TRY(FV_ARENA_NEW(&t->arena, r->n_images, image));
    for (size_t i = 0; i < r->n_images; i++)
        image[i] = (fv_job_image){.bytes = r->images[i]->data.data, .n = r->images[i]->data.len};
    t->prefill.n_image = (int32_t)r->n_images;
    t->prefill.image = image;
    return FV_OK;
}

static int32_t narrow(uint32_t n) { return n <= INT32_MAX ? (int32_t)n : INT32_MAX; }

static fv_status read_videos(fv_task *t) {
    const fv_generate_message *r = t->msg->request;
    fv_job_video *video;
    FV_TRY(FV_ARENA_NEW(&t->arena, r->n_videos, video));
    for (size_t i = 0; i < r->n_videos; i++)
        video[i] = (fv_job_video){.first = narrow(r->videos[i]->first_image),
                                  .clip = {.n = narrow(r->videos[i]->n_frames),
                                           .fps = r->videos[i]->fps,
                                           .seconds = r->videos[i]->seconds,
                                           .n_seconds = r->videos[i]->n_seconds}};
    t->prefill.n_video = (int32_t)r->n_videos;
    t->prefill.video = video;
    return FV_OK;
}

static fv_status read_request(fv_task *t) {
    const fv_prefill_message *m = t->msg;
    const fv_generate_message *r = m->request;
    fv_prefill_line *l = &t->worker->line;
    const fv_engine *e = l->engine;
    int32_t context = fv_checkpoint_config(e->ck)->text.max_position, *replay;
    uint32_t tokens = r->max_tokens ? r->max_tokens : FV_MAX_TOKENS_DEFAULT;
    if (r->conversation.len)
        return FV_FAIL(FV_EINVAL,
                       "a kept conversation continues on the decode worker that holds it");
    t->prefill = (fv_prefill_job){.engine = e,
                                  .cache = l->cache,
                                  .owner = m->tenant,
                                  .adapter = fv_adapters_named(&e->adapters, r->model),
                                  .pool = l->pool,
                                  .prefixes = r->cache_off ? NULL : l->prefixes,
                                  .salt = r->cache_salt,
                                  .generation = fv_engine_generation_options(
                                      e, r->ignore_eos && !fv_request_constrained(r->rules)),
                                  .until_s = chat_until(t),
                                  .want_kept = r->kept_tokens,
                                  .want_digest = r->digests};
    fv_prefill_job *j = &t->prefill;
    j->generation.sampling = fv_request_sampling(r->sampling, r->n_logprobs);
    j->generation.max_tokens = tokens < INT32_MAX ? (int32_t)tokens : INT32_MAX;
    j->generation.n_stop = (int32_t)r->n_stop;
    j->generation.stop = (const char *const *)r->stop;
    j->generation.show_special = r->special_tokens;
    j->generation.include_stop = r->include_stop;
    j->generation.continue_text = r->continue_text;
    FV_TRY(fv_request_rules(r->rules, t->msg->reasoning, &t->arena, &j->generation.rules));
    j->generation.rules.compiled = fv_forms_result(&t->form);
    FV_TRY(fv_policy_from_message(r->policy, &j->policy));
    FV_TRY(read_images(t));
    FV_TRY(read_videos(t));
    FV_TRY(fv_request_prompt(r->prompt, j->n_image, r->truncate_case ? IDS_MAX : context, &t->arena,
                             &j->form));
    fv_request_special(r->special_case, r->add_special_tokens, &j->form);
    if (r->image_bounds) {
        j->pixels_min = r->image_bounds->pixels_min;
        j->pixels_max = r->image_bounds->pixels_max;
    }
    FV_TRY(fv_request_ids(m->replay, m->n_replay, context, &t->arena, &replay));
    j->n_replay = (int32_t)m->n_replay;
    j->replay = replay;
    j->want_scores = r->prompt_alternatives_case && m->n_replay == 0;
    j->n_score_top = narrow(r->prompt_alternatives_case ? r->prompt_logprobs : 0);
    j->n_prompt_most = narrow(r->truncate_case ? r->truncate_prompt_tokens : 0);
    return FV_OK;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Bounds the bytes of the blocks of codes that text becomes, beside its remaining rows. */
static size_t coded_text(const fv_plan *plan, const fv_kv_shape *s) {
    fv_text_width w = {s->n_kv, s->d_head, s->dtype};
    if (plan->pack.text.bits == 0) return 0;
    return (size_t)s->n_layer *
           (size_t)fv_text_codes_most(&plan->pack.text, plan->shape.n_text, 0, &w, true);
}

/* Bounds the store's size at any time and checks it. All entries of a layer count, because the select stage
 * runs only after a group of layers. */
static fv_status check_room(fv_task *t) {
    const fv_plan *plan = &t->prefill.plan;
    const fv_kv_shape *s = fv_kv_pool_shape(t->worker->line.pool);
    size_t row = 2 * (size_t)s->d_head * fv_dtype_bytes(s->dtype) * (size_t)s->n_kv;
    t->bytes_peak = fv_kv_text_bytes(s, plan->shape.n_text + plan->select.dup_max, 0);
    for (int32_t l = 0; l < s->n_layer; l++)
        t->bytes_peak += row * (size_t)(plan->visual[l] + plan->select.dup_max);
    size_t limit = t->probe ? 0 : t->worker->opt.kv_bytes;
    t->bytes_peak += fv_plan_count(plan).tables + coded_text(plan, s);
    if (limit && t->bytes_peak > limit)
        return FV_FAIL(FV_ENOMEM,
                       "the prompt needs %zu bytes of KV, but this worker has %zu: shorten the "
                       "prompt, or start the worker with a larger --kv-bytes",
                       t->bytes_peak, limit);
    return FV_OK;
}

static uint32_t milliseconds(double s) {
    return s <= 0 ? 0 : s < 1e-3 * UINT32_MAX ? (uint32_t)(1e3 * s) : UINT32_MAX;
}

/* Tells the decode worker the request's age, because it serves the oldest first, and how long it may wait. */
static fv_grant_request asking_of(const fv_task *t, double now_s) {
    return (fv_grant_request){.request_id = t->msg->request->request_id,
                              .age_ms = milliseconds(now_s - t->born_s),
                              .wait_ms = milliseconds(t->until_s - now_s),
                              .tenant = t->msg->tenant,
                              .tenant_bytes = t->msg->tenant_kv_bytes,
                              .reserve_all = t->msg->reserve_all,
                              .open_ended = t->msg->open_ended,
                              .n_replay = (uint32_t)t->msg->n_replay,
                              .bytes_replay = t->worker->opt.kv_bytes,
                              .open_token = t->msg->open_token,
                              .pair_token = t->msg->pair_token,
                              .trace = t->span.context};
}

/* Requests memory at the decode worker, unless there is none or the first token must be the last. */
static fv_status ask_for_room(fv_task *t) {
    const fv_prefill_job *j = &t->prefill;
    const fv_kv_shape *s = fv_kv_get_shape(j->kv);
    int32_t n_text = j->prompt.n_text + j->plan.select.dup_max;
    t->bytes_bound = t->bytes_peak - fv_kv_text_bytes(s, n_text, 0) +
                     fv_kv_text_bytes(s, n_text + (j->n_left > 0 ? j->n_left : 0), 0);
    t->state = FV_TASK_READY;
    if (!t->transport || j->n_left < 2) return FV_OK;
    t->opened_s = fv_clock_s();
    fv_export_request req = fv_prefill_job_export(j);
    req.asking = asking_of(t, t->opened_s);
    req.may_leave_rest = fv_task_offers_rest(t);
    t->state = FV_TASK_OPENING;
    return fv_fail_origin(fv_export_begin(t->transport, &req, &t->ship), FV_ORIGIN_HANDOFF);
}

fv_status fv_task_ask_for_memory(fv_task *t) {
    FV_TRY(fv_task_name_prompt(t));
    return t->state == FV_TASK_READING ? FV_OK : ask_for_room(t);
}

/* Completes the prompt and requests memory. Condensed images are encoded first, because their number of
 * tokens is part of the prompt. If the task is READING afterwards, call this again when they are encoded. */
fv_status fv_task_prepare_rest(fv_task *t) {
    fv_prefill_job *j = &t->prefill;
    if (fv_prefill_job_condenses(j)) FV_TRY(fv_task_encode(t));
    if (t->state == FV_TASK_READING) return FV_OK;
    FV_TRY(fv_fail_caller(fv_prefill_job_begin(j)));
    if (j->finish != FV_FINISH_NOT) return FV_OK;
    FV_TRY(check_room(t));
    return fv_task_ask_for_memory(t);
}

fv_status fv_task_prepare(fv_task *t) {
    if (!t->probe) FV_TRY(fv_fail_caller(read_request(t)));
    FV_TRY(fv_fail_caller(fv_prefill_job_open(&t->prefill)));
    if (fv_prefill_job_condenses(&t->prefill)) FV_TRY(fv_task_read_images(t));
    return t->state == FV_TASK_READING ? FV_OK : fv_task_prepare_rest(t);
}

static void on_gone(void *kv) { fv_kv_close(kv); }

/* Frees what the task holds. The store is freed later, when the network has released its memory, so a
 * silent peer delays no other task. */
void fv_task_release(fv_task *t, bool keep) {
    fv_task_drop_fetch(t);
    fv_export_close(t->ship, keep, on_gone, t->prefill.kv);
    t->ship = NULL;
    t->prefill.kv = NULL;
    fv_prefill_job_release(&t->prefill);
}

void fv_task_fini(fv_task *t) {
    fv_prefill_job_free(&t->prefill);
    fv_forms_release(&t->form);
    fv_arena_fini(&t->arena);
    fv_arena_fini(&t->told_arena);
}
