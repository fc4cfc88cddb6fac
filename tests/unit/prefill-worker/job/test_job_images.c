/* prefill-worker/job/images.c: a repeated image gets its cached tokens, and no other image does. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "prefill-worker/job/job.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"
enum { SIDE = 24 };

static fv_engine engine;
static fv_image_cache *cache, *nothing; /* which caches nothing */
static fv_kv_pool *pool;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void begin(void) {
    fv_engine_options opt = {
        .checkpoint = NANO, .backend = "cpu", .isa = "auto", .threads = 1, .vision = true};
    ok(fv_engine_open(&opt, &engine));
    fv_kv_shape shape = fv_engine_kv_shape(&engine, FV_F32);
    ok(fv_kv_pool_open(engine.be.device, &shape, 0, &pool));
    ok(fv_image_cache_open((size_t)64 << 20, &cache));
    ok(fv_image_cache_open(0, &nothing));
}

static void end(void) {
    fv_image_cache_close(nothing);
    fv_image_cache_close(cache);
    fv_kv_pool_close(pool);
    fv_engine_close(&engine);
}

TestSuite(job_images, .init = begin, .fini = end, .timeout = 300);

static uint8_t pixels[2][SIDE * SIDE * 3];

/* Makes stripes; the same bytes with other sides are another image. */
static fv_image stripes(int which, int32_t w, int32_t h) {
    for (size_t i = 0; i < sizeof pixels[which]; i++)
        pixels[which][i] = (uint8_t)((i / SIDE) * 7 * (size_t)(which + 1));
    return (fv_image){.rgb = pixels[which], .w = w, .h = h};
}

/* A job that has encoded n images and has not started prefill. */
static fv_prefill_job encoded(const fv_image *images, int32_t n, const char *policy,
                              fv_image_cache *in) {
    static fv_job_image image[2];
    for (int32_t i = 0; i < n; i++) image[i] = (fv_job_image){.decoded = &images[i]};
    fv_chat_turn turn = {.role = "user", .text = "What is this?", .n_image = n};
    fv_prefill_job job = {.engine = &engine,
                          .cache = in,
                          .pool = pool,
                          .form = {.chat_template = "", .n_turn = 1, .turn = &turn},
                          .n_image = n,
                          .image = image,
                          .generation = fv_engine_generation_options(&engine, true)};
    job.generation.max_tokens = 1;
    ok(fv_policy_parse(policy, &job.policy));
    ok(fv_prefill_job_open(&job));
    ok(fv_prefill_job_encode_all(&job));
    return job;
}

static void same(fv_prefill_job *a, fv_prefill_job *b) {
    const fv_encoded *x = &a->encoded, *y = &b->encoded;
    cr_assert_eq(x->embeds.bytes, y->embeds.bytes);
    cr_assert_eq(memcmp(x->embeds.data, y->embeds.data, x->embeds.bytes), 0);
    fv_prefill_job_free(a);
    fv_prefill_job_free(b);
}

Test(job_images, tokens_are_those_of_the_tower_the_first_time_and_again) {
    fv_image images[2] = {stripes(0, SIDE, SIDE), stripes(1, SIDE, SIDE)};
    fv_prefill_job first = encoded(images, 1, "", cache), both = encoded(images, 2, "", cache);
    fv_prefill_job again = encoded(images, 2, "", cache);
    fv_prefill_job anew = encoded(images, 1, "", nothing), two = encoded(images, 2, "", nothing);
    cr_assert(first.s_vision > 0 && first.n_cached == 0);
    cr_assert(both.s_vision > 0 && both.n_cached == 1);
    cr_assert(again.s_vision == 0 && again.s_preprocess == 0 && again.n_cached == 2);
    same(&first, &anew);
    cr_assert_eq(
        memcmp(again.encoded.embeds.data, both.encoded.embeds.data, both.encoded.embeds.bytes), 0);
    fv_prefill_job_free(&again);
    same(&both, &two);
}

Test(job_images, the_same_bytes_with_other_sides_are_another_image) {
    fv_image square = stripes(0, SIDE, SIDE), wide = stripes(0, 2 * SIDE, SIDE / 2);
    fv_prefill_job a = encoded(&square, 1, "", cache), b = encoded(&wide, 1, "", cache);
    fv_prefill_job anew = encoded(&wide, 1, "", nothing);
    cr_assert(a.n_cached == 0 && b.n_cached == 0);
    cr_assert_neq(memcmp(a.encoded.embeds.data, b.encoded.embeds.data, a.encoded.embeds.bytes), 0);
    fv_prefill_job_free(&a);
    same(&b, &anew);
}

Test(job_images, condensed_tokens_are_kept_beside_the_others) {
    static const char hired[] = "condense=hired,keep=0.5";
    fv_image images[2] = {stripes(0, SIDE, SIDE), stripes(1, SIDE, SIDE)};
    fv_prefill_job whole = encoded(images, 2, "", cache), job[2];
    for (int i = 0; i < 2; i++) job[i] = encoded(images, 2, hired, cache);
    cr_assert_gt(job[0].s_vision, 0);
    cr_assert_eq(job[1].s_vision, 0, "the second time they are there");
    size_t row = (size_t)fv_checkpoint_config(engine.ck)->text.d_model * sizeof(float);
    for (int i = 0; i < 2; i++) {
        const fv_encoded *e = &job[i].encoded;
        cr_assert(e->n_row == 144 && e->each[0] == 72 && e->each[1] == 72);
        for (int32_t r = 0; r < e->n_row; r++)
            cr_assert_eq(memcmp((char *)e->embeds.data + (size_t)r * row,
                                (char *)whole.encoded.embeds.data + (size_t)e->source[r] * row,
                                row),
                         0);
        fv_prefill_job_free(&job[i]);
    }
    fv_prefill_job_free(&whole);
}

/* An adaptive method keeps different numbers of two images, and pdrop keeps a share of each. */
Test(job_images, images_that_were_condensed_to_different_sizes_are_pruned_each_by_itself) {
    static float logits[1 << 16];
    static uint8_t grey[SIDE * SIDE * 3];
    fv_image images[2] = {stripes(0, SIDE, SIDE), {.rgb = grey, .w = SIDE, .h = SIDE}};
    fv_prefill_job job = encoded(images, 2, "condense=prumerge;prune=pdrop", cache), *one = &job;
    cr_assert_leq(fv_checkpoint_config(engine.ck)->text.vocab, 1 << 16);
    ok(fv_prefill_job_begin(&job));
    const fv_token_span *at = job.prompt.span;
    cr_assert(at[0].n == job.encoded.each[0] && at[1].n == job.encoded.each[1]);
    cr_assert_neq(at[0].n, at[1].n);
    cr_assert_eq(at[0].n + at[1].n, job.prompt.n_visual);
    for (int i = 0; i < 2; i++)
        for (int32_t r = 0; r < at[i].n; r++)
            cr_assert_eq(job.prompt.seg[at[i].first + r], FV_SEG_VISUAL);
    ok(fv_prefill_jobs_run(&one, 1, &(fv_prefill_options){0}, logits));
    ok(fv_prefill_job_end(&job));
    int32_t last = job.plan.shape.n_layer - 1, held[2] = {0};
    const int32_t *pos = fv_kv_positions(job.kv, last, 0, FV_SEG_VISUAL);
    for (int32_t r = 0; r < fv_kv_len(job.kv, last, 0, FV_SEG_VISUAL); r++)
        held[pos[r] >= at[1].first]++;
    cr_assert(held[0] == at[0].n / 8 && held[1] == at[1].n / 8, "%d of %d, %d of %d", held[0],
              at[0].n, held[1], at[1].n);
    fv_prefill_job_free(&job);
}

/* With features requested nothing comes from the cache, and the tokens are the same. */
Test(job_images, features_come_from_the_tower_itself) {
    fv_image images[2] = {stripes(0, SIDE, SIDE), stripes(1, SIDE, SIDE)};
    fv_prefill_job plain = encoded(images, 2, "", cache), seen = encoded(images, 2, "", cache);
    bool done;
    int32_t n;
    fv_encoded_free(&seen.encoded);
    seen.want_features = true;
    ok(fv_prefill_job_unread(&seen, &n));
    cr_assert_eq(n, 2);
    ok(fv_prefill_job_encode_all(&seen));
    ok(fv_prefill_job_encode(&seen, &done));
    cr_assert(done && seen.encoded.features.bytes > 0 && seen.encoded.pixels);
    same(&plain, &seen);
}

/* The message says which file is not an image. */
Test(job_images, a_broken_file_is_named) {
    char *picture;
    size_t n;
    ok(fv_file_read(NANO "/picture.png", 1 << 20, &picture, &n));
    fv_job_image image = {.bytes = picture, .n = n / 2}; /* the header is fine */
    fv_chat_turn turn = {.role = "user", .text = "What is this?", .n_image = 1};
    const fv_prefill_job asked = {.engine = &engine,
                                  .cache = cache,
                                  .pool = pool,
                                  .form = {.chat_template = "", .n_turn = 1, .turn = &turn},
                                  .n_image = 1,
                                  .image = &image,
                                  .generation = fv_engine_generation_options(&engine, true)};
    fv_prefill_job job = asked;
    ok(fv_prefill_job_open(&job));
    cr_assert_eq(fv_prefill_job_encode_all(&job), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "image 0: "), "%s", fv_last_error());
    fv_prefill_job_free(&job);
    job = asked;
    image.n = 4; /* now the header is broken, which is known before anything is decoded */
    cr_assert_eq(fv_prefill_job_open(&job), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "image 0: "), "%s", fv_last_error());
    fv_prefill_job_free(&job);
    free(picture);
}
