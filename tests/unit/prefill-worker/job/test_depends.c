/* Methods declare what they depend on (policy/depends.h), and that is true: another input changes no bit of an image's
 * tokens in the KV store. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/packed.h"
#include "model/synth/synth.h"
#include "policy/depends.h"
#include "prefill-worker/job/job.h"
#include "tests/support/handoff.h"
#include "tests/support/latent.h"
#include "tests/support/policies.h"
#include "tests/support/tensor_file.h"

enum { SIDE = 64, TEXT = 1024 };

static fv_engine engine;
static fv_image_cache *images;
static fv_kv_pool *pool;
static uint8_t pixels[3][SIDE * SIDE * 3];
static fv_image picture[3];

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void open_rig(void) {
    char dir[4096];
    fv_synth_report report;
    scratch_dir(dir, sizeof dir);
    fv_synth_options synth = {.dir = dir,
                              .shape = "tiny-gqa",
                              .family = "llava",
                              .n_layer = 12,
                              .dtype = FV_F32,
                              .seed = 5};
    ok(fv_synth_write(&synth, &report));
    latent_write(dir);
    fv_engine_options opt = {.checkpoint = dir, .backend = "cpu", .threads = 1, .vision = true};
    ok(fv_engine_open(&opt, &engine));
    fv_kv_shape shape = fv_engine_kv_shape(&engine, engine.kv_dtype);
    ok(fv_kv_pool_open(engine.be.device, &shape, 0, &pool));
    ok(fv_image_cache_open(0, &images));
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof pixels[k]; i++)
            pixels[k][i] = (uint8_t)(i * (size_t)(2 * k + 3) / 7 + i / 64);
        picture[k] = (fv_image){.rgb = pixels[k], .w = SIDE, .h = SIDE};
    }
}

static void close_rig(void) {
    cr_assert_eq(fv_kv_pool_used(pool), 0, "nothing is left");
    fv_image_cache_close(images);
    fv_kv_pool_close(pool);
    fv_engine_close(&engine);
}

/* A prompt: text, an image, text, other images, a question, and an answer that is resumed. */
typedef struct prompt {
    int own, other, n_other, word, n_word, answer, n_answer;
} prompt;

static const prompt first = {.own = 0, .other = 1, .n_other = 1, .n_word = 12, .n_answer = 3};

/* The prompt with one input changed. */
static prompt changed(fv_input input) {
    prompt p = first;
    switch (input) {
    case FV_INPUT_OWN: p.own = 2; break;
    case FV_INPUT_IMAGES: p.other = 2; break;
    case FV_INPUT_LENGTH: p.n_word += 40; break;
    case FV_INPUT_QUESTION: p.word = 7; break;
    default: p.answer = 5; break;
    }
    return p;
}

typedef struct answered {
    char text[TEXT];
    fv_job_image image[4];
    int32_t replay[4];
    fv_prefill_job job;
} answered;

static void say(char *text, int n, int from) {
    size_t at = strlen(text);
    for (int i = 0; i < n && at + 16 < TEXT; i++)
        at += (size_t)sprintf(text + at, "w%d ", 10 + (from + i * i) % 37);
}

static void run(answered *a, const prompt *p, const char *policy) {
    const char *mark = fv_layout_image_token(fv_checkpoint_config(engine.ck)->layout.family);
    float *logits = malloc((size_t)fv_checkpoint_config(engine.ck)->text.vocab * sizeof *logits);
    fv_prefill_job *j = &a->job;
    *a = (answered){.image = {{.decoded = &picture[p->own]}}};
    say(a->text, 5, 0);
    strcat(a->text, mark);
    say(a->text, 3, 2);
    for (int i = 0; i < p->n_other; i++) {
        strcat(a->text, mark);
        a->image[1 + i].decoded = &picture[p->other];
    }
    say(a->text, p->n_word, p->word);
    for (int i = 0; i < p->n_answer; i++) a->replay[i] = 9 + p->answer + i;
    *j = (fv_prefill_job){.engine = &engine,
                          .cache = images,
                          .pool = pool,
                          .form = {.kind = FV_PROMPT_TEXT, .text = a->text},
                          .n_image = 1 + p->n_other,
                          .image = a->image,
                          .n_replay = p->n_answer,
                          .replay = a->replay,
                          .generation = fv_engine_generation_options(&engine, true)};
    j->generation.max_tokens = 16;
    ok(fv_policy_parse(policy, &j->policy));
    ok(fv_prefill_job_prepare(j));
    ok(fv_prefill_job_encode_all(j));
    ok(fv_prefill_jobs_run(&j, 1, &(fv_prefill_options){0}, logits));
    ok(fv_prefill_job_end(j));
    free(logits);
}

/* ---- the first image's tokens ----------------------------------------------------------------- */

static int32_t image_end(const fv_prefill_job *j) {
    const fv_token_span *s = &j->prompt.span[0];
    return s->first + s->n;
}

/* Compares the rows of the first image in a head's raw rows; `bits`: also their keys and values. */
static bool same_raw(const fv_prefill_job *a, const fv_prefill_job *b, int32_t l, int32_t g,
                     bool bits) {
    const fv_kv_shape *s = fv_kv_get_shape(a->kv);
    size_t row = (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    int32_t n[2] = {fv_kv_held(a->kv, l, g, FV_SEG_VISUAL), fv_kv_held(b->kv, l, g, FV_SEG_VISUAL)};
    const int32_t *pos[2] = {fv_kv_positions(a->kv, l, g, FV_SEG_VISUAL),
                             fv_kv_positions(b->kv, l, g, FV_SEG_VISUAL)};
    for (int32_t i = 0, k = 0;; i++, k++) {
        while (i < n[0] && pos[0][i] >= image_end(a)) i++;
        while (k < n[1] && pos[1][k] >= image_end(b)) k++;
        if (i == n[0] || k == n[1]) return i == n[0] && k == n[1];
        if (pos[0][i] != pos[1][k]) return false;
        for (int value = 0; bits && value < 2; value++) {
            void *x, *y;
            fv_kv_contiguous(a->kv, l, g, FV_SEG_VISUAL, value, i, n[0], &x);
            fv_kv_contiguous(b->kv, l, g, FV_SEG_VISUAL, value, k, n[1], &y);
            if (memcmp(x, y, row) != 0) return false;
        }
    }
}

/* Compares packed layers as a whole: no method that packs leaves out `other images`. */
static bool same_packed(const fv_kv_packed *a, const fv_kv_packed *b, bool bits) {
    if (!a || !b) return a == b;
    if (a->rows.n != b->rows.n || memcmp(a->pos, b->pos, (size_t)a->rows.n * 4) != 0) return false;
    for (int k = 0; bits && k < 2; k++) {
        const fv_packed_shape *s = &a->part[k].shape, *t = &b->part[k].shape;
        size_t bytes = fv_packed_sent_bytes(s); /* of what is borrowed: 0 */
        if (fv_packed_bytes(s) != fv_packed_bytes(t) ||
            (bytes && memcmp(a->part[k].data, b->part[k].data, bytes) != 0))
            return false;
    }
    return true;
}

static bool same_image(const fv_prefill_job *a, const fv_prefill_job *b, bool bits) {
    const fv_kv_shape *s = fv_kv_get_shape(a->kv);
    for (int32_t l = 0; l < s->n_layer; l++) {
        if (!same_packed(fv_kv_packed_of(a->kv, l, FV_SEG_VISUAL),
                         fv_kv_packed_of(b->kv, l, FV_SEG_VISUAL), bits))
            return false;
        for (int32_t g = 0; g < s->n_kv; g++)
            if (!same_raw(a, b, l, g, bits)) return false;
    }
    return true;
}

/* ---- methods ---------------------------------------------------------------------------------- */

static uint32_t inputs_of(const fv_policy *p) {
    uint32_t inputs = 0;
    for (int s = 0; s < FV_N_STAGE; s++) inputs |= fv_choice_inputs(&p->stage[s]);
    return inputs;
}

/* A change of length is one of the question, too. */
static bool depends(uint32_t inputs, fv_input on) {
    uint32_t touched = on == FV_INPUT_LENGTH ? FV_INPUT_LENGTH | FV_INPUT_QUESTION : (uint32_t)on;
    return inputs & touched;
}

/* Tries a policy; `moved[i]` counts the policies that input i has changed. */
static void check(const char *policy, int32_t moved[FV_N_INPUT]) {
    static answered base, other;
    fv_policy parsed;
    ok(fv_policy_parse(policy, &parsed));
    run(&base, &first, policy);
    for (int32_t i = 0; i < FV_N_INPUT; i++) {
        const fv_input input = (fv_input)(1 << i);
        const prompt p = changed(input);
        run(&other, &p, policy);
        if (input != FV_INPUT_LENGTH && input != FV_INPUT_OWN && input != FV_INPUT_IMAGES)
            cr_assert_eq(base.job.prompt.n, other.job.prompt.n, "only `%s` differs",
                         fv_input_name(i));
        /* The image's own content is in its keys and values, so only the choice of tokens is compared. */
        bool same = same_image(&base.job, &other.job, input != FV_INPUT_OWN);
        cr_assert(same || depends(inputs_of(&parsed), input),
                  "%s: an image's tokens change with `%s`", policy, fv_input_name(i));
        moved[i] += !same;
        fv_prefill_job_free(&other.job);
    }
    fv_prefill_job_free(&base.job);
}

Test(depends, what_a_method_does_not_depend_on_changes_no_bit_of_an_image, .timeout = 600) {
    static policies list;
    static answered plain;
    int32_t moved[FV_N_INPUT] = {0};
    open_rig();
    run(&plain, &first, "");
    const fv_plan_shape shape = plain.job.plan.shape;
    policies_add_methods(&list, &shape, false);
    policies_add_words(&list, &shape, false);
    for (int32_t i = 0; i < list.n; i++) check(list.text[i], moved);
    fv_prefill_job_free(&plain.job);
    cr_assert_gt(list.n, 60);
    for (int32_t i = 0; i < FV_N_INPUT - 1; i++)
        cr_assert_gt(moved[i], 5, "`%s` has changed %d policies of %d", fv_input_name(i), moved[i],
                     list.n);
    close_rig();
}

Test(depends, images_are_condensed_by_their_own_content) {
    static const char *const names[] = {"condense=hired", "condense=prumerge",
                                        "condense=prumerge_plus"};
    int32_t moved[FV_N_INPUT] = {0};
    open_rig();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check(names[i], moved);
    close_rig();
}
