/* prefill-worker/job/prefix.h: after any history of prompts a prompt has the bits that it has without a cache: logits,
 * every byte of its KV, the first token. And who shares. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/cache/prefix.h"
#include "model/synth/synth.h"
#include "prefill-worker/job/prefix.h"
#include "tests/support/handoff.h"
#include "tests/support/policies.h"
#include "tests/support/tensor_file.h"
#include "tests/support/thorough.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"
enum { TEXT = 4096, IMAGES = 4, BATCH = 3, REPLAY = 200, FAMILY = 32, SIDE = 120 };

static fv_engine engine;
static fv_image_cache *images;
static fv_kv_pool *pool;
static fv_prefix_cache *cache;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void open_rig(const char *checkpoint, const char *isa) {
    fv_engine_options opt = {
        .checkpoint = checkpoint, .backend = "cpu", .isa = isa, .threads = 1, .vision = true};
    ok(fv_engine_open(&opt, &engine));
    fv_kv_shape shape = fv_engine_kv_shape(&engine, engine.kv_dtype);
    ok(fv_kv_pool_open(engine.be.device, &shape, 0, &pool));
    ok(fv_image_cache_open(0, &images));
}

static void open_cache(size_t bytes) {
    fv_prefix_cache_close(cache);
    ok(fv_prefix_cache_open(engine.be.device, fv_kv_pool_shape(pool), bytes, &cache));
}

static void close_rig(void) {
    fv_prefix_cache_close(cache);
    cache = NULL;
    cr_assert_eq(fv_kv_pool_used(pool), 0, "nothing is left");
    fv_image_cache_close(images);
    fv_kv_pool_close(pool);
    fv_engine_close(&engine);
}

/* ---- prompts ---------------------------------------------------------------------------- */

static uint8_t pixels[3][SIDE * SIDE * 3];
static fv_image picture[3];

static void draw_pictures(int32_t w, int32_t h) {
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof pixels[k]; i++)
            pixels[k][i] = (uint8_t)(i * (size_t)(2 * k + 3) / 7 + i / 64);
        picture[k] = (fv_image){.rgb = pixels[k], .w = k == 2 ? h : w, .h = k == 2 ? w : h};
    }
}

typedef struct sample {
    char text[TEXT];
    int32_t n_image;
    fv_job_image image[IMAGES];
    int32_t n_replay, replay[REPLAY];
    const char *tenant, *salt;
    const char *policy; /* NULL: exact */
    float *logits;      /* owned by the test */
} sample;

/* Policies that the checkpoint runs, and those of a history beside `exact`. */
static const char *usable[32], *mixed[2];
static int n_usable, n_mixed;

/* Appends n words; equal numbers give equal words. */
static void say(sample *s, int n, int from) {
    size_t at = strlen(s->text);
    for (int i = 0; i < n && at + 16 < TEXT; i++)
        at += (size_t)sprintf(s->text + at, "w%d ", (from + i * i) % 37);
}

static void show(sample *s, int which) {
    const char *mark = fv_layout_image_token(fv_checkpoint_config(engine.ck)->layout.family);
    if (s->n_image == IMAGES || strlen(s->text) + strlen(mark) + 1 > TEXT) return;
    strcat(s->text, mark);
    s->image[s->n_image++] = (fv_job_image){.decoded = &picture[which]};
}

/* Prompts of few parts, so that many begin alike and go on differently at every kind of border. */
static void draw(sample *s) {
    static const char *const names[] = {"", "a"};
    bool sees = fv_checkpoint_config(engine.ck)->has_vision;
    memset(s->text, 0, sizeof s->text);
    s->n_image = s->n_replay = 0;
    s->tenant = names[rand() % 8 == 0];
    s->salt = names[rand() % 8 == 0];
    s->policy = n_mixed && rand() % 3 ? mixed[rand() % n_mixed] : NULL;
    say(s, rand() % 3 ? (sees ? 9 : 40) : 1 + rand() % 40, rand() % 2);
    for (int parts = rand() % 4; parts > 0; parts--) {
        if (sees && rand() % 2) show(s, rand() % 3);
        if (rand() % 2) say(s, 1 + rand() % 30, rand() % 3);
    }
    if (rand() % 8) say(s, 1 + rand() % 12, rand() % 5);
    for (int n = rand() % 4 ? 0 : rand() % 6; n > 0; n--) s->replay[s->n_replay++] = 5 + rand() % 3;
}

static fv_prefill_job job_of(const sample *s, fv_prefix_cache *prefixes) {
    fv_prefill_job j = {.engine = &engine,
                        .cache = images,
                        .owner = s->tenant,
                        .salt = s->salt,
                        .pool = pool,
                        .prefixes = prefixes,
                        .form = {.kind = FV_PROMPT_TEXT, .text = s->text},
                        .n_image = s->n_image,
                        .image = s->image,
                        .n_replay = s->n_replay,
                        .replay = s->replay,
                        .generation = fv_engine_generation_options(&engine, true)};
    j.generation.max_tokens = REPLAY + 32;
    ok(fv_policy_parse(s->policy ? s->policy : "", &j.policy));
    return j;
}

/* Takes what is kept, as the worker does. */
static void take(fv_prefill_job *j) {
    uint64_t bytes;
    if (!fv_prefill_job_caches(j)) return;
    if (fv_prefill_job_undigested(j)) {
        ok(fv_prefill_job_digest_begin(j, &bytes));
        ok(fv_prefill_job_digest(j));
    }
    ok(fv_prefill_job_chain(j));
    ok(fv_prefill_job_take_prefix(j));
}

/* Runs n jobs together and ends them but for their stores. */
static void run(fv_prefill_job *job, int32_t n, int32_t chunk, int32_t group, float *logits) {
    fv_prefill_job *list[BATCH];
    size_t vocab = (size_t)fv_checkpoint_config(engine.ck)->text.vocab;
    for (int32_t i = 0; i < n; i++) {
        if (fv_prefill_job_condenses(&job[i])) ok(fv_prefill_job_encode_all(&job[i]));
        ok(fv_prefill_job_begin(&job[i]));
        take(&job[i]);
        ok(fv_prefill_job_encode_all(&job[i]));
        list[i] = &job[i];
    }
    ok(fv_prefill_jobs_run(list, n, &(fv_prefill_options){.chunk = chunk, .group = group}, logits));
    for (int32_t i = 0; i < n; i++) {
        ok(fv_prefill_job_end(&job[i]));
        ok(fv_prefill_job_first(&job[i], logits + (size_t)i * vocab));
    }
}

/* Counts of a history. */
typedef struct tally {
    int hits, skipped, partial, under;
} tally;

static void expect_alike(const fv_prefill_job *hit, const fv_prefill_job *miss, const float *a,
                         const float *b, const sample *s) {
    size_t vocab = (size_t)fv_checkpoint_config(engine.ck)->text.vocab;
    cr_assert(same_bits(a, b, vocab), "%d of %d rows kept: %s", hit->prefix.rows, hit->prompt.n,
              s->text);
    cr_assert(same_store(hit->kv, miss->kv), "%d of %d rows kept: %s", hit->prefix.rows,
              hit->prompt.n, s->text);
    cr_assert_eq(hit->token.id, miss->token.id);
    cr_assert_eq(hit->bytes_visual, miss->bytes_visual);
    cr_assert_eq(hit->bytes_text, miss->bytes_text);
    cr_assert_eq(memcmp(hit->visual_tokens, miss->visual_tokens, sizeof hit->visual_tokens), 0);
}

static void count(tally *t, const fv_prefill_job *j) {
    t->hits += j->prefix.rows > 0;
    t->under += j->prefix.rows > 0 && !fv_policy_is_exact(&j->policy);
    t->skipped += j->n_skip;
    for (int32_t i = 0; i < j->prompt.n_span; i++)
        t->partial += !fv_prefill_job_condenses(j) && j->prefix.rows > j->prompt.span[i].first &&
                      j->n_skip < j->n_item && j->prompt.span[i].image == j->n_skip;
}

/* Answers a batch with the cache and without, in other batches and chunks. False: a prompt is too long. */
static bool answer(tally *t) {
    size_t vocab = (size_t)fv_checkpoint_config(engine.ck)->text.vocab;
    float *a = malloc(BATCH * vocab * sizeof *a), *b = malloc(vocab * sizeof *b);
    sample s[BATCH];
    fv_prefill_job hit[BATCH];
    int32_t n = 1 + rand() % BATCH, fit = 0;
    for (int32_t i = 0; i < n; i++) {
        draw(&s[fit]);
        hit[fit] = job_of(&s[fit], cache);
        /* a policy that drops tokens needs text at the end */
        bool ends_with_image =
            s[fit].policy && (!*s[fit].text || !strchr(" ", s[fit].text[strlen(s[fit].text) - 1]));
        if (!ends_with_image && fv_prefill_job_open(&hit[fit]) == FV_OK)
            fit++;
        else
            fv_prefill_job_free(&hit[fit]);
    }
    if (fit) run(hit, fit, rand() % 2 ? 0 : 1 + rand() % 90, rand() % 3, a);
    for (int32_t i = 0; i < fit; i++) {
        fv_prefill_job miss = job_of(&s[i], NULL);
        ok(fv_prefill_job_open(&miss));
        run(&miss, 1, rand() % 2 ? 0 : 1 + rand() % 90, rand() % 3, b);
        expect_alike(&hit[i], &miss, a + (size_t)i * vocab, b, &s[i]);
        count(t, &hit[i]);
        fv_prefill_job_keep_prefix(&hit[i], 1e-3);
        fv_prefill_job_free(&miss);
    }
    for (int32_t i = 0; i < fit; i++) fv_prefill_job_free(&hit[i]);
    free(a);
    free(b);
    return fit > 0;
}

/* ---- policies of a history ------------------------------------------------------------------- */

static bool runs(const char *policy) {
    sample s = {.tenant = "", .salt = "", .policy = policy};
    say(&s, 9, 0);
    if (fv_checkpoint_config(engine.ck)->has_vision) show(&s, 0);
    say(&s, 20, 1);
    fv_prefill_job j = job_of(&s, NULL);
    bool good = fv_prefill_job_open(&j) == FV_OK;
    if (good && fv_prefill_job_condenses(&j)) good = fv_prefill_job_encode_all(&j) == FV_OK;
    good = good && fv_prefill_job_begin(&j) == FV_OK;
    fv_prefill_job_free(&j);
    return good;
}

static void find_usable(void) {
    static const char *const all[] = {"prune=fastv,layer=1",
                                      "prune=fastv,layer=2;pack=svd,gain=0,rank_k=8,rank_v=8",
                                      "prune=fastv,layer=1,mode=mask",
                                      "prune=vtw,layer=2",
                                      "prune=vtw,layer=1;evict=tova",
                                      "prune=random,layer=2,keep=0.3;select=streaming",
                                      "prune=pvtp,layer=1,stride=1",
                                      "prune=pdrop,second=1,third=2,fourth=2",
                                      "prune=sparsevlm",
                                      "prune=visipruner,shallow=1,detect=1,l2=0.05",
                                      "prune=visipruner,shallow=2,detect=2,first=half",
                                      "prune=grid,layer=2,keep=0.4;evict=h2o",
                                      "condense=prumerge",
                                      "condense=prumerge;prune=random,layer=2",
                                      "lazy=gla,map=given,blocks=0-1",
                                      "lazy=vla,map=given,blocks=1-2",
                                      "lazy=gla,map=given,blocks=1-2;prune=fastv,layer=1",
                                      "pack=quant,bits=4",
                                      "pack=svd,gain=0,rank_k=8,rank_v=8;expand=attention",
                                      "select=snapkv",
                                      "evict=vta"};
    n_usable = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (runs(all[i])) usable[n_usable++] = all[i];
}

/* ---- families ------------------------------------------------------------------------------ */

typedef struct family {
    char name[FAMILY], shape[16];
    int dtype;
} family;

static struct criterion_test_params list_families(void) {
    static const char *const names[] = {"llava",    "llava_next", "llava_onevision", "idefics3",
                                        "internvl", "mistral3",   "qwen2_vl",        "qwen2_5_vl",
                                        "qwen3_vl", "gemma3",     "qwen3",           "mobilevlm"};
    size_t n = sizeof names / sizeof *names;
    family *list = cr_calloc(2 * n, sizeof *list);
    for (size_t i = 0; i < 2 * n; i++) {
        list[i].dtype = i % 2 ? FV_BF16 : FV_F32;
        strcpy(list[i].name, names[i / 2]);
        strcpy(list[i].shape, i % 2 ? "tiny-gqa" : "tiny");
    }
    return cr_make_param_array(family, list, 2 * n);
}

/* Opens a checkpoint of a family, with n_layer text layers (0: the shape's). */
static void open_family(const family *f, int32_t n_layer) {
    char dir[4096];
    fv_synth_report report;
    scratch_dir(dir, sizeof dir);
    fv_synth_options opt = {.dir = dir,
                            .shape = f->shape,
                            .family = f->name,
                            .n_layer = n_layer,
                            .dtype = (fv_dtype)f->dtype,
                            .seed = 3};
    ok(fv_synth_write(&opt, &report));
    open_rig(dir, "auto");
    srand((unsigned)f->dtype + 17);
}

ParameterizedTestParameters(job_prefix, a_hit_has_the_bits_of_a_miss) { return list_families(); }

ParameterizedTest(const family *f, job_prefix, a_hit_has_the_bits_of_a_miss, .timeout = 600) {
    tally t = {0};
    const int n = thorough() ? 150 : 18; /* batches of each round */
    open_family(f, 0);
    for (int round = 0; round < 3; round++) {
        static const size_t bytes[] = {1 << 26, 1 << 19, 1 << 17};
        draw_pictures(30 + rand() % 60, 30 + rand() % 60);
        open_cache(bytes[round]);
        for (int i = 0; i < n; i += sanitized_step(3)) (void)answer(&t);
        cr_assert_leq(fv_prefix_cache_count(cache).bytes, bytes[round]);
    }
    const int least = sanitized_step(3) > 1 ? 0 : n; /* a part of a history may hit little */
    cr_assert_gt(t.hits, least ? least - 4 : 0, "%s: %d hits", f->name, t.hits);
    if (fv_checkpoint_config(engine.ck)->has_vision)
        cr_assert_geq(t.skipped, least / 6, "%s: %d images were not read", f->name, t.skipped);
    close_rig();
}

ParameterizedTestParameters(job_prefix, a_hit_has_them_under_any_policy_and_beside_others) {
    return list_families();
}

/* Each round mixes `exact` and two policies, in a cache that soon gives prompts up. */
ParameterizedTest(const family *f, job_prefix, a_hit_has_them_under_any_policy_and_beside_others,
                  .timeout = 600) {
    tally t = {0};
    const int n = thorough() ? 60 : 7; /* batches of each round */
    open_family(f, 4);
    draw_pictures(60, 40);
    find_usable();
    const int n_all = n_usable;
    cr_assert_geq(n_all, 8, "%s runs %d policies", f->name, n_all);
    /* each type of numbers tries every second policy */
    for (int round = f->dtype == FV_BF16; round < n_all; round += 2 * sanitized_step(3)) {
        n_mixed = 2;
        mixed[0] = usable[round];
        mixed[1] = usable[rand() % n_all];
        open_cache(round % 3 ? 1 << 26 : 1 << 18);
        for (int i = 0; i < n; i++) (void)answer(&t);
    }
    n_mixed = 0;
    cr_assert(sanitized_step(3) > 1 || (t.hits > 3 && t.under > 0),
              "%s: %d hits, %d under a policy", f->name, t.hits, t.under);
    close_rig();
}

/* ---- nano ---------------------------------------------------------------------------------- */

static void open_nano(void) {
    open_rig(NANO, "auto");
    open_cache(1 << 28);
    draw_pictures(80, 60);
}

/* A text with an image after the first `before` words. */
static sample question(int before, int which, int after, int from) {
    sample s = {.tenant = "", .salt = ""};
    say(&s, before, 0);
    if (which >= 0) show(&s, which);
    say(&s, after, from);
    return s;
}

/* Answers alone; returns the rows that were kept. */
static int32_t kept_rows(const sample *s, const char *policy, int32_t *n_skip) {
    size_t vocab = (size_t)fv_checkpoint_config(engine.ck)->text.vocab;
    float *logits = malloc(vocab * sizeof *logits);
    fv_prefill_job j = job_of(s, cache);
    ok(fv_policy_parse(policy, &j.policy));
    ok(fv_prefill_job_open(&j));
    run(&j, 1, 0, 0, logits);
    int32_t rows = j.prefix.rows;
    if (n_skip) *n_skip = j.n_skip;
    fv_prefill_job_keep_prefix(&j, 1e-3);
    fv_prefill_job_free(&j);
    free(logits);
    return rows;
}

Test(job_prefix, another_question_about_an_image_computes_the_question_alone) {
    open_nano();
    sample first = question(5, 0, 6, 0), second = question(5, 0, 9, 1),
           other = question(5, 1, 6, 0);
    int32_t skipped = -1;
    cr_assert_eq(kept_rows(&first, "", &skipped), 0);
    cr_assert_eq(skipped, 0);
    int32_t rows = kept_rows(&second, "", &skipped);
    cr_assert_eq(skipped, 1, "the image is not read");
    cr_assert_gt(rows, 144);
    cr_assert_eq(kept_rows(&first, "", NULL), rows);
    cr_assert_lt(kept_rows(&other, "", &skipped), 20);
    cr_assert_eq(skipped, 0);
    close_rig();
}

Test(job_prefix, other_tenants_and_other_salts_share_nothing) {
    open_nano();
    sample s = question(5, 0, 6, 0);
    (void)kept_rows(&s, "", NULL);
    s.tenant = "other";
    cr_assert_eq(kept_rows(&s, "", NULL), 0);
    s.tenant = "";
    s.salt = "other";
    cr_assert_eq(kept_rows(&s, "", NULL), 0, "the salt is not a tenant");
    s.salt = "";
    cr_assert_gt(kept_rows(&s, "", NULL), 0);
    close_rig();
}

/* ---- policies ------------------------------------------------------------------------------ */

static fv_prefill_job job_under(const sample *s, const char *policy, fv_prefix_cache *prefixes) {
    fv_prefill_job j = job_of(s, prefixes);
    ok(fv_policy_parse(policy, &j.policy));
    return j;
}

/* Answers a prompt under a policy with the cache and without. Returns the rows that were kept. */
static int32_t same_under(const sample *s, const char *policy, bool keep) {
    size_t vocab = (size_t)fv_checkpoint_config(engine.ck)->text.vocab;
    float *a = malloc(vocab * sizeof *a), *b = malloc(vocab * sizeof *b);
    fv_prefill_job hit = job_under(s, policy, cache), miss = job_under(s, policy, NULL);
    ok(fv_prefill_job_open(&hit));
    ok(fv_prefill_job_open(&miss));
    run(&hit, 1, 31, 2, a);
    run(&miss, 1, 0, 0, b);
    cr_assert(same_bits(a, b, vocab), "%s: logits, %d rows kept", policy, hit.prefix.rows);
    cr_assert(same_store(hit.kv, miss.kv), "%s: KV, %d rows kept", policy, hit.prefix.rows);
    cr_assert_eq(memcmp(&hit.stats, &miss.stats, sizeof hit.stats), 0, "%s", policy);
    if (keep) fv_prefill_job_keep_prefix(&hit, 1e-3);
    int32_t rows = hit.prefix.rows;
    fv_prefill_job_free(&hit);
    fv_prefill_job_free(&miss);
    free(a);
    free(b);
    return rows;
}

/* Rows that any policy reads were computed as `exact` computes it, and `exact` reads the rows that it leaves with its own bits. */
Test(job_prefix, policies_that_act_after_layers_share_with_exact_and_all_keep_their_bits,
     .timeout = 600) {
    static policies list;
    static const char *const after_layers[] = {"pack=quant,bits=4", "pack=svd,rank_k=8,rank_v=8",
                                               "pack=minicache",    "select=h2o",
                                               "select=snapkv",     "select=random",
                                               "select=knorm",      "select=streaming",
                                               "select=roco",       "evict=h2o"};
    int32_t n_read = 0;
    open_nano();
    sample s = question(5, 0, 12, 0), other = question(5, 0, 30, 1);
    policies_add_presets(&list, true);
    for (size_t i = 0; i < sizeof after_layers / sizeof *after_layers; i++)
        strcpy(list.text[list.n++], after_layers[i]);
    for (int32_t i = 0; i < list.n; i += sanitized_step(5)) {
        const char *policy = list.text[i];
        open_cache(1 << 28);
        cr_assert_eq(same_under(&s, "", true), 0);
        int32_t read = same_under(&other, policy, false);
        open_cache(1 << 28);
        cr_assert_eq(same_under(&s, policy, true), 0);
        int32_t left = same_under(&other, "", false);
        cr_assert(read <= left, "%s reads %d rows and leaves %d", policy, read, left);
        sample replayed = other;
        replayed.n_replay = 2;
        replayed.replay[0] = replayed.replay[1] = 7;
        (void)same_under(&replayed, policy, true);
        (void)same_under(&replayed, policy, false);
        n_read += read > 0;
    }
    cr_assert_gt(n_read, list.n / sanitized_step(5) / 4, "%d of %d policies have read", n_read,
                 list.n);
    close_rig();
}

Test(job_prefix, an_answer_that_is_replayed_again_is_computed_from_where_it_has_grown,
     .timeout = 300) {
    static const char *const forms[] = {"", "quality", "select=snapkv", "evict=vta,tau=20"};
    open_nano();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        sample s = question(5, 0, 6, 0);
        open_cache(1 << 28);
        for (int k = 0; k < REPLAY; k++) s.replay[k] = 5 + k % 7;
        s.n_replay = 100;
        cr_assert_eq(same_under(&s, forms[i], true), 0);
        s.n_replay = 150;
        int32_t rows = same_under(&s, forms[i], false);
        cr_assert_gt(rows, 0, "%s", forms[i]);
        if (!*forms[i]) cr_assert_gt(rows, 144 + 64, "%d rows, of the answer too", rows);
    }
    close_rig();
}

/* Policies whose first layer with fewer tokens is the same share a prefix: it does not depend on how they choose. */
Test(job_prefix, policies_that_drop_tokens_run_their_prefix_from_there_on_only, .timeout = 300) {
    static const char *const names[] = {"prune=fastv,layer=6",
                                        "prune=vtw,layer=6",
                                        "prune=grid,layer=6,keep=0.3",
                                        "prune=pvtp,layer=6,stride=2",
                                        "prune=fastv,layer=6;pack=svd,rank_k=8,rank_v=8;evict=vta",
                                        "prune=fastv,layer=6;select=snapkv",
                                        "prune=fastv,layer=6,mode=mask",
                                        "prune=random,layer=6;select=h2o"};
    const size_t n = sizeof names / sizeof *names;
    open_nano();
    sample s = question(5, 0, 12, 0), other = question(5, 0, 30, 1);
    for (size_t i = 0; i < n; i++) {
        open_cache(1 << 28);
        cr_assert_eq(same_under(&s, names[i], true), 0);
        const int64_t kept = fv_prefix_cache_count(cache).n_segment;
        cr_assert_gt(kept, 0, "%s has written", names[i]);
        cr_assert_eq(same_under(&other, "", false), 0, "exact has read of %s", names[i]);
        for (size_t k = 0; k < n; k++) {
            /* select=h2o looks at all rows */
            int32_t rows = same_under(&other, names[k], false);
            cr_assert(rows > 144 || strstr(names[k], "h2o"), "%s reads %d rows of %s", names[k],
                      rows, names[i]);
        }
        cr_assert_eq(same_under(&other, "prune=fastv,layer=7", false), 0, "another layer");
    }
    close_rig();
}

Test(job_prefix, a_prefix_before_a_layer_takes_the_memory_of_the_layers_before_it) {
    open_nano();
    sample s = question(5, 0, 12, 0);
    (void)kept_rows(&s, "", NULL);
    const size_t whole = fv_prefix_cache_count(cache).bytes;
    open_cache(1 << 28);
    (void)kept_rows(&s, "prune=fastv,layer=3", NULL);
    cr_assert_lt(fv_prefix_cache_count(cache).bytes, whole / 2);
    close_rig();
}

Test(job_prefix, whatever_shapes_the_rows_tells_prefixes_apart, .timeout = 300) {
    static const char *const names[] = {"condense=hired",
                                        "condense=prumerge_plus",
                                        "lazy=vla",
                                        "lazy=gla",
                                        "lazy=gla,map=paper_like",
                                        "condense=hired;prune=fastv,layer=6;pack=svd,rank_k=8",
                                        "prune=fastv,layer=9;lazy=vla",
                                        "prune=visipruner,detect=5",
                                        "prune=visipruner,detect=5,self=drop,kv_shallow=drop"};
    const size_t n = sizeof names / sizeof *names;
    open_nano();
    sample s = question(5, 0, 12, 0), other = question(5, 0, 30, 1);
    for (size_t i = 0; i < n; i++) {
        open_cache(1 << 28);
        cr_assert_eq(same_under(&s, names[i], true), 0);
        for (size_t k = 0; k < n; k++) {
            int32_t rows = same_under(&other, names[k], false);
            cr_assert_eq(rows > 0, k == i, "%s reads %d rows of %s", names[k], rows, names[i]);
        }
        cr_assert_eq(same_under(&other, "", false), 0, "exact has read of %s", names[i]);
    }
    close_rig();
}

Test(job_prefix, what_depends_on_all_tokens_of_a_layer_neither_reads_nor_writes) {
    static const char *const names[] = {"prune=random,layer=0", "prune=visipruner,first=half",
                                        "prune=sparsevlm"};
    open_nano();
    sample s = question(5, 0, 12, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)kept_rows(&s, names[i], NULL);
        cr_assert_eq(fv_prefix_cache_count(cache).n_segment, 0, "%s has written", names[i]);
    }
    (void)kept_rows(&s, "", NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert_eq(kept_rows(&s, names[i], NULL), 0, "%s has read", names[i]);
    close_rig();
}

Test(job_prefix, observers_see_all_rows) {
    open_nano();
    sample s = question(5, 0, 6, 0);
    float mass[FV_PLAN_MAX_LAYERS];
    (void)kept_rows(&s, "", NULL);
    for (int i = 0; i < 4; i++) {
        fv_prefill_job j = job_of(&s, i ? cache : NULL);
        j.want_scores = i == 1;
        j.want_features = i == 2;
        if (i == 3) j.prefill.visual_mass = mass;
        ok(fv_prefill_job_open(&j));
        ok(fv_prefill_job_begin(&j));
        cr_assert(!fv_prefill_job_caches(&j), "%d", i);
        fv_prefill_job_free(&j);
    }
    close_rig();
}

Test(job_prefix, a_prefix_that_is_taken_survives_whatever_is_kept_meanwhile) {
    open_nano();
    open_cache(8 << 20);
    sample s = question(5, 0, 6, 0);
    size_t vocab = (size_t)fv_checkpoint_config(engine.ck)->text.vocab;
    float *a = malloc(vocab * sizeof *a), *b = malloc(vocab * sizeof *b);
    (void)kept_rows(&s, "", NULL);
    fv_prefill_job hit = job_of(&s, cache), miss = job_of(&s, NULL), *list = &hit;
    ok(fv_prefill_job_open(&hit));
    ok(fv_prefill_job_begin(&hit));
    take(&hit);
    cr_assert_gt(hit.prefix.rows, 144);
    for (int i = 1; i < 8; i++) {
        sample other = question(5 + i, i % 3, 20, i);
        (void)kept_rows(&other, "", NULL);
    }
    cr_assert_gt(fv_prefix_cache_count(cache).given_up, 0);
    ok(fv_prefill_job_encode_all(&hit));
    ok(fv_prefill_jobs_run(&list, 1, &(fv_prefill_options){0}, a));
    ok(fv_prefill_job_open(&miss));
    run(&miss, 1, 0, 0, b);
    cr_assert(same_bits(a, b, vocab));
    cr_assert(same_store(hit.kv, miss.kv));
    fv_prefill_job_free(&hit);
    fv_prefill_job_free(&miss);
    free(a);
    free(b);
    close_rig();
}
