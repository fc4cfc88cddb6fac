/* The promises of `exact`, for a random network of each model family and images of different shapes: the
 * same bits in chunks, in a batch, and after a replay; and no byte that the plan did not name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/local_internal.h"
#include "model/synth/synth.h"
#include "tests/support/command.h"
#include "tests/support/tensor_file.h"

enum { N_IMAGE = 3, N_TOKEN = 5, N_TOGETHER = 3, PATH_CAP = 4096 };

static const int32_t sizes[N_IMAGE][2] = {{37, 90}, {170, 41}, {28, 28}};
static fv_image image[N_IMAGE];

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void begin(void) {
    for (int i = 0; i < N_IMAGE; i++) {
        const int32_t w = sizes[i][0], h = sizes[i][1];
        image[i] = (fv_image){.rgb = malloc(3 * (size_t)(w * h)), .w = w, .h = h};
        for (int32_t p = 0; p < 3 * w * h; p++) image[i].rgb[p] = (uint8_t)(p * (i + 7) + p / 100);
    }
}

static void end(void) {
    for (int i = 0; i < N_IMAGE; i++) fv_image_free(&image[i]);
}

TestSuite(families, .init = begin, .fini = end, .timeout = 300);

/* ---- answers -------------------------------------------------------------------------------- */

typedef struct outcome {
    int32_t n, id[N_TOKEN];
    uint64_t digest[N_TOKEN]; /* of each step's logits */
    size_t bytes, bytes_planned;
    bool over;
} outcome;

static fv_status on_token(void *user, const fv_sampled *token) {
    outcome *o = user;
    cr_assert_lt(o->n, N_TOKEN);
    o->id[o->n++] = token->id;
    return FV_OK;
}

static void on_over(void *user, fv_status st, fv_report *report) {
    outcome *o = user;
    ok(st);
    cr_assert(o->n == N_TOKEN && report->n_generated == N_TOKEN);
    memcpy(o->digest, report->digest, sizeof o->digest);
    o->bytes = report->bytes_visual + report->bytes_text;
    o->bytes_planned = report->bytes_bound;
    o->over = true;
}

static const fv_chat_part parts[] = {{.video = true}, {.text = "What differs?"}};
static const double seconds[] = {0, 0.2, 0.4};
static const fv_job_video videos[] = {
    {.clip = {.n = 3, .fps = 5, .seconds = seconds, .n_seconds = 3}},
    {.clip = {.n = 2, .fps = 5}},
    {.clip = {.n = 1, .fps = 5}}};
static bool as_video;

/* Request k has the images from the k-th on, or these are its video. */
static fv_ask ask_of(int k) {
    return (fv_ask){.n_image = N_IMAGE - k,
                    .images = image + k,
                    .n_video = as_video,
                    .videos = &videos[k],
                    .n_part = as_video ? 2 : 0,
                    .part = parts,
                    .question = "What differs?",
                    .sampling = fv_sampling_default(),
                    .max_tokens = N_TOKEN,
                    .ignore_eos = true};
}

static fv_local *open_local(const char *checkpoint, int32_t chunk) {
    const fv_local_options opt = {.checkpoint = checkpoint,
                                  .backend = "cpu",
                                  .isa = "auto",
                                  .threads = 1,
                                  .chunk = chunk,
                                  .at_once = N_TOGETHER};
    fv_local *l;
    ok(fv_local_open(&opt, &l));
    return l;
}

/* Runs requests [from, to) as one batch. */
static void answer(fv_local *l, int from, int to, outcome out[N_TOGETHER]) {
    fv_ask ask[N_TOGETHER];
    int n_over = 0;
    for (int k = from; k < to; k++) {
        const fv_ask_hooks hooks = {.user = &out[k], .token = on_token};
        ask[k] = ask_of(k);
        out[k] = (outcome){0};
        ok(fv_local_begin(l, &ask[k], &hooks, on_over, &out[k]));
    }
    for (int step = 0; step < 1000 && n_over < to - from; step++) {
        fv_local_step(l);
        for (int k = n_over = 0; k < N_TOGETHER; k++) n_over += k >= from && k < to && out[k].over;
    }
    cr_assert_eq(n_over, to - from);
}

static void expect_same(const outcome *a, const outcome *b, const char *family, const char *how) {
    cr_expect_eq(memcmp(a->digest, b->digest, sizeof a->digest), 0, "%s: %s changes bits", family,
                 how);
    cr_expect_eq(a->bytes, b->bytes, "%s: %s changes bytes", family, how);
}

/* Runs request 0 again as a replay, after the first tokens. */
static void expect_replay(fv_local *l, const outcome *want, const char *family) {
    const fv_chat_turn turn = {.role = "user",
                               .text = as_video ? NULL : "What differs?",
                               .n_image = as_video ? 0 : N_IMAGE,
                               .n_part = as_video ? 2 : 0,
                               .part = parts};
    fv_job_image images[N_IMAGE];
    for (int i = 0; i < N_IMAGE; i++) images[i] = (fv_job_image){.decoded = &image[i]};
    const int32_t vocab = fv_local_config(l)->text.vocab;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    for (int32_t n = 1; n < N_TOKEN; n += 2) {
        fv_prefill_job job = {.engine = &l->engine,
                              .cache = l->images,
                              .pool = l->prefill_pool,
                              .form = {.chat_template = "", .n_turn = 1, .turn = &turn},
                              .n_image = N_IMAGE,
                              .image = images,
                              .n_video = as_video,
                              .video = videos,
                              .generation = fv_engine_generation_options(&l->engine, true),
                              .n_replay = n,
                              .replay = want->id,
                              .want_digest = true},
                       *jobs = &job;
        job.generation.max_tokens = N_TOKEN;
        job.generation.sampling = fv_sampling_default();
        ok(fv_prefill_job_prepare(&job));
        ok(fv_prefill_job_encode_all(&job));
        ok(fv_prefill_jobs_run(&jobs, 1, &(fv_prefill_options){0}, logits));
        ok(fv_prefill_job_end(&job));
        ok(fv_prefill_job_first(&job, logits));
        cr_expect_eq(job.digest, want->digest[n], "%s: after %d replayed tokens", family, n);
        cr_expect_eq(job.token.id, want->id[n]);
        fv_prefill_job_free(&job);
    }
    free(logits);
}

/* Compression is refused: compressed tokens cannot slide out of a window, and have one RoPE. */
static void expect_no_pack(fv_local *l) {
    fv_ask ask = ask_of(0);
    fv_report report;
    ok(fv_policy_parse("pack=svd", &ask.policy));
    if (fv_checkpoint_config(l->engine.ck)->text.two_ropes) {
        cr_expect_eq(fv_local_ask(l, &ask, NULL, &report), FV_EUNSUPPORTED);
        cr_expect(strstr(fv_last_error(),
                         "pack=svd: this model's sliding-window layers use another RoPE"),
                  "%s", fv_last_error());
        return;
    }
    cr_expect_eq(fv_local_ask(l, &ask, NULL, &report), FV_EINVAL);
    cr_expect(strstr(fv_last_error(), "pack=svd: the prompt has") &&
                  strstr(fv_last_error(), "sliding window 40"),
              "%s", fv_last_error());
}

/* A family, with another text model than its own unless `text` is NULL, whose attention slides if
 * `window` is not 0. */
static void expect_exact(const char *family, const char *text, int32_t window) {
    const char *name = text ? text : family;
    static command_result r;
    char dir[PATH_CAP];
    fv_synth_report made;
    outcome alone[N_TOGETHER], other[N_TOGETHER];
    scratch_dir(dir, sizeof dir);
    ok(fv_synth_write(
        &(fv_synth_options){
            .dir = dir, .shape = "tiny", .family = family, .text_family = text, .force = true},
        &made));
    if (window)
        command_run(&r,
                    "sed -i 's/\"sliding_window\": *null/\"sliding_window\":%d/' '%s/config.json'",
                    window, dir);
    fv_local *l = open_local(dir, 0);
    if (window) cr_expect_eq(fv_checkpoint_config(l->engine.ck)->text.window, window);
    for (int k = 0; k < N_TOGETHER; k++) {
        answer(l, k, k + 1, alone);
        cr_expect_eq(alone[k].bytes, alone[k].bytes_planned, "%s: %zu bytes, planned %zu", name,
                     alone[k].bytes, alone[k].bytes_planned);
    }
    cr_expect_neq(memcmp(alone[0].digest, alone[1].digest, sizeof alone[0].digest), 0);
    answer(l, 0, N_TOGETHER, other);
    for (int k = 0; k < N_TOGETHER; k++) expect_same(&alone[k], &other[k], name, "a batch");
    expect_replay(l, &alone[0], name);
    if (window) expect_no_pack(l);
    fv_local_close(l);
    l = open_local(dir, 7);
    answer(l, 0, N_TOGETHER, other);
    for (int k = 0; k < N_TOGETHER; k++) expect_same(&alone[k], &other[k], name, "chunks");
    fv_local_close(l);
    command_run(&r, "rm -rf '%s'", dir);
}

Test(families, an_image_token_outside_of_the_vocabulary_must_be_in_the_tokenizer) {
    static command_result r;
    char dir[PATH_CAP];
    fv_synth_report made;
    fv_local *l;
    scratch_dir(dir, sizeof dir);
    ok(fv_synth_write(&(fv_synth_options){.dir = dir, .shape = "tiny", .family = "mobilevlm"},
                      &made));
    command_run(&r, "sed -i 's/\"<image>\"/\"<picture>\"/' '%s/tokenizer.json'", dir);
    const fv_local_options opt = {.checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1};
    cr_assert_eq(fv_local_open(&opt, &l), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "tokenizer.json must have '<image>' as id 480"), "%s",
              fv_last_error());
}

Test(families, an_image_token_that_config_json_leaves_out_is_the_tokenizers) {
    static command_result r;
    char dir[PATH_CAP];
    fv_synth_report made;
    fv_local *l;
    scratch_dir(dir, sizeof dir);
    ok(fv_synth_write(&(fv_synth_options){.dir = dir, .shape = "tiny", .family = "internvl_chat"},
                      &made));
    command_run(&r, "sed -i 's/\"<video>\"/\"<|im_end|>\"/' '%s/tokenizer.json'", dir);
    l = open_local(dir, 0);
    const fv_model_config *cfg = fv_checkpoint_config(l->engine.ck);
    cr_assert_eq(cfg->image_token, 496);
    cr_assert(cfg->n_eos == 2 && cfg->eos[1] == 497, "the template's end of a turn ends an answer");
    fv_local_close(l);
    command_run(&r, "sed -i 's/\"<IMG_CONTEXT>\"/\"<picture>\"/' '%s/tokenizer.json'", dir);
    const fv_local_options opt = {.checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 1};
    cr_assert_eq(fv_local_open(&opt, &l), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "tokenizer.json must have '<IMG_CONTEXT>'"), "%s",
              fv_last_error());
}

Test(families, exact_has_the_same_bits_in_chunks_among_others_and_after_a_replay) {
    const fv_family *f;
    for (int32_t i = 0; (f = fv_family_at(i)); i++) expect_exact(f->name, NULL, 0);
    expect_exact("llava", "qwen3_vl_text", 0);
    expect_exact("llava", "qwen3_vl_moe_text", 0);
    expect_exact("llava", "ministral3", 0);
    expect_exact("llava_next", "granite", 0);
    expect_exact("llava", "phi3", 0);
    expect_exact("llava", "mistral", 40);
    expect_exact("llava", "gemma3_text", 40);
}

static void expect_one_size(void) {
    static command_result r;
    char dir[PATH_CAP];
    fv_synth_report made;
    fv_report report;
    fv_ask ask = ask_of(0);
    scratch_dir(dir, sizeof dir);
    ok(fv_synth_write(&(fv_synth_options){.dir = dir, .shape = "tiny", .family = "qwen3_vl"},
                      &made));
    fv_local *l = open_local(dir, 0);
    cr_expect_eq(fv_local_ask(l, &ask, NULL, &report), FV_EINVAL);
    cr_expect(strstr(fv_last_error(), "image 1: a frame of 170 x 41 pixels in a video of 37 x 90"),
              "%s", fv_last_error());
    fv_local_close(l);
    command_run(&r, "rm -rf '%s'", dir);
}

Test(families, a_video_has_the_same_bits_in_chunks_among_others_and_after_a_replay) {
    static const char *const families[] = {"qwen2_vl",     "qwen2_5_vl", "qwen3_vl",
                                           "qwen3_vl_moe", "qwen3_5",    "video_llava"};
    as_video = true;
    expect_one_size();
    for (int i = 0; i < N_IMAGE; i++) image[i].w = image[i].h = 28;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        expect_exact(families[i], NULL, 0);
}
