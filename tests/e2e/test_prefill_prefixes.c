/* The prefill worker keeps the KV of prompts: a later prompt that begins alike has the same tokens, and nothing of the
 * kept part is read, encoded or computed again. */
#include <stdio.h>
#include <string.h>

#include "tests/e2e/prefill_rig.h"

#define OTHER "USER: <image>\nwhat else is in this picture, and why? ASSISTANT:"
enum { MANY = 9 };

static heard p, d;
static asking a;
static truth t;

static void open_keeping(size_t bytes) {
    workers.p.prefix_bytes = bytes;
    open_workers();
}

TestSuite(prefill_prefixes, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 240);

static void forget(heard *h) {
    fv_arena_fini(&h->arena);
    *h = (heard){0};
}

static const Fovea__Inference__V1__Report *ask(const char *text) { return ask_text(&p, &a, text); }

static uint32_t cached(const char *text) { return ask(text)->n_prompt_cached; }

Test(prefill_prefixes, a_second_question_about_an_image_is_answered_as_without_the_first) {
    uint64_t alone;
    open_keeping(0);
    ask_about_image(&a, workers.target);
    cr_assert_eq(cached(OTHER), 0);
    alone = first_digest(&p);
    cr_assert_eq(prefill_load().bytes_prefix, 0);
    close_workers();

    static const prefill_rig none;
    fv_prefill_worker_options opt = workers.p;
    workers = none;
    workers.p = opt;
    open_keeping(1 << 24);
    ask_about_image(&a, workers.target);
    ask_one_process(&t, "");
    const Fovea__Inference__V1__Report *r = ask(QUESTION);
    cr_assert_eq(r->n_prompt_cached, 0);
    cr_assert_str_eq(r->cache_tier, "");
    cr_assert_eq(first_digest(&p), t.report.digest[0]);

    r = ask(OTHER);
    cr_assert_geq(r->n_prompt_cached, r->n_visual);
    cr_assert_lt(r->n_prompt_cached, r->n_prompt);
    cr_assert_eq(p.begun->n_prompt_cached, r->n_prompt_cached);
    cr_assert_str_eq(r->cache_tier, "prefill");
    cr_assert_gt(r->seconds_saved, 0);
    cr_assert_eq(r->seconds_preprocess, 0, "the image is not decoded");
    cr_assert_eq(r->seconds_vision, 0, "nor encoded");
    cr_assert_eq(r->n_images_cached, 1);
    cr_assert_eq(first_digest(&p), alone);

    r = ask(QUESTION);
    cr_assert_geq(r->n_prompt_cached, r->n_visual);
    cr_assert_eq(first_digest(&p), t.report.digest[0]);
    cr_assert_eq(r->bytes_visual, t.report.bytes_visual);
    cr_assert_eq(r->bytes_text, t.report.bytes_text);
    cr_assert_eq(r->transfer->bytes_sent, t.report.bytes_sent);
    decode(&d, p.begun->ticket);
    cr_assert_eq(d.n_id, N_TOKEN - 1);
    cr_assert_arr_eq(d.id, t.id + 1, sizeof d.id[0] * (N_TOKEN - 1));
    cr_assert_arr_eq(d.digest, t.report.digest + 1, sizeof d.digest[0] * (N_TOKEN - 1));
    cr_assert_gt(prefill_load().bytes_prefix, 0);
    close_workers();
}

Test(prefill_prefixes, requests_that_come_together_compute_the_image_once) {
    static heard many[MANY];
    static asking asks[MANY];
    static char texts[MANY][80];
    int computed = 0;
    open_keeping(1 << 24);
    for (int i = 0; i < MANY; i++) {
        ask_about_image(&asks[i], workers.target);
        snprintf(texts[i], sizeof texts[i], "USER: <image>\nwhat is thing %d? ASSISTANT:", i);
        asks[i].prompt.text = texts[i];
        begin(&many[i], &asks[i]);
    }
    for (int i = 0; i < MANY; i++) {
        net_wait(&workers.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
        computed += many[i].report->n_prompt_cached == 0;
    }
    cr_assert_eq(computed, 1, "%d of %d computed the image", computed, MANY);
    for (int i = 0; i < MANY; i++) {
        ask_about_image(&a, workers.target);
        a.g.cache_off = true;
        cr_assert_eq(cached(texts[i]), 0);
        cr_assert_eq(first_digest(&p), first_digest(&many[i]), "%s", texts[i]);
    }
    close_workers();
}

/* Asks the same of the worker MANY times at once; returns the number of runs that this took. */
static uint64_t run_at_once(void) {
    static heard many[MANY];
    static asking asks[MANY];
    uint64_t before = fv_engine_layers_run(&workers.engine);
    for (int i = 0; i < MANY; i++) {
        forget(&many[i]);
        ask_about_image(&asks[i], workers.target);
        begin(&many[i], &asks[i]);
    }
    for (int i = 0; i < MANY; i++) {
        net_wait(&workers.net, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
        cr_assert_eq(many[i].report->n_prompt_cached, 0);
        cr_assert_eq(first_digest(&many[i]), first_digest(&many[0]));
    }
    return (fv_engine_layers_run(&workers.engine) - before) /
           (uint64_t)fv_checkpoint_config(workers.engine.ck)->text.n_layer;
}

/* The first one is waited for; when it cannot be kept, the others do not wait for each other. On a slow machine they
 * may arrive one after the other, so some tries are allowed. */
Test(prefill_prefixes, prompts_too_long_to_be_kept_are_answered_together) {
    uint64_t runs = MANY;
    open_keeping(1000);
    for (int i = 0; i < 20 && runs == MANY; i++) runs = run_at_once();
    cr_assert_lt(runs, MANY);
    close_workers();
}

Test(prefill_prefixes, a_request_that_is_cancelled_leaves_no_other_waiting) {
    static heard many[MANY];
    static asking asks[MANY];
    open_keeping(1 << 24);
    for (int i = 0; i < MANY; i++) {
        ask_about_image(&asks[i], workers.target);
        begin(&many[i], &asks[i]);
    }
    for (int i = 0; i < MANY; i += 2) fv_rpc_call_cancel(many[i].call);
    for (int i = 0; i < MANY; i++) {
        net_wait(&workers.net, &many[i].over);
        if (i % 2) cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
    }
    close_workers();
}

Test(prefill_prefixes, cache_off_neither_reads_nor_writes) {
    open_keeping(1 << 24);
    ask_about_image(&a, workers.target);
    a.g.cache_off = true;
    for (int i = 0; i < 2; i++) cr_assert_eq(cached(QUESTION), 0);
    a.g.cache_off = false;
    cr_assert_eq(cached(QUESTION), 0, "nothing was written");
    a.g.cache_off = true;
    cr_assert_eq(cached(QUESTION), 0, "nothing is read");
    a.g.cache_off = false;
    cr_assert_gt(cached(QUESTION), 0);
    close_workers();
}

Test(prefill_prefixes, tenants_and_salts_share_nothing) {
    open_keeping(1 << 24);
    ask_about_image(&a, workers.target);
    cr_assert_eq(cached(QUESTION), 0);
    a.m.tenant = (char *)"other";
    cr_assert_eq(cached(QUESTION), 0);
    cr_assert_gt(cached(QUESTION), 0);
    a.m.tenant = (char *)"";
    a.g.cache_salt = (char *)"other";
    cr_assert_eq(cached(QUESTION), 0);
    cr_assert_gt(cached(QUESTION), 0);
    a.g.cache_salt = (char *)"";
    cr_assert_gt(cached(QUESTION), 0);
    close_workers();
}

Test(prefill_prefixes, log_probabilities_of_the_prompt_need_all_of_it) {
    open_keeping(1 << 24);
    ask_about_image(&a, workers.target);
    (void)cached(QUESTION);
    a.g.prompt_alternatives_case =
        FOVEA__INFERENCE__V1__GENERATE_REQUEST__PROMPT_ALTERNATIVES_PROMPT_LOGPROBS;
    a.g.prompt_logprobs = 2;
    cr_assert_eq(cached(QUESTION), 0);
    close_workers();
}

Test(prefill_prefixes, a_replay_uses_what_the_first_attempt_has_kept) {
    open_keeping(1 << 24);
    ask_one_process(&t, "");
    ask_about_image(&a, workers.target);
    (void)cached(QUESTION);
    a.m.replay = t.id;
    a.m.n_replay = 2;
    const Fovea__Inference__V1__Report *r = ask(QUESTION);
    cr_assert_geq(r->n_prompt_cached, r->n_visual);
    cr_assert_eq(p.first->tokens->tokens[0]->id, t.id[2]);
    cr_assert_eq(first_digest(&p), t.report.digest[2]);
    close_workers();
}

/* Policies that drop tokens after a layer, condense images, or share keys: as without a cache, and without the image. */
Test(prefill_prefixes, a_second_question_under_a_policy_is_answered_as_without_the_first) {
    static const char *const policies[] = {"prune=fastv,layer=1,keep=0.5", "prune=vtw,layer=2",
                                           "condense=prumerge", "lazy=gla,map=given,blocks=1-2",
                                           "prune=random,layer=2;pack=quant"};
    enum { N = sizeof policies / sizeof *policies };
    uint64_t alone[N];
    for (int with = 0; with < 2; with++) {
        open_keeping(with ? 1 << 24 : 0);
        for (int i = 0; i < N; i++) {
            fv_arena arena = {0};
            ask_about_image(&a, workers.target);
            ask_under(&a, policies[i], &arena);
            a.g.cache_salt = (char *)(uintptr_t)policies[i]; /* some share their prefixes */
            if (with) cr_assert_eq(cached(QUESTION), 0, "%s", policies[i]);
            const Fovea__Inference__V1__Report *r = ask(OTHER);
            fv_arena_fini(&arena);
            if (!with) {
                alone[i] = first_digest(&p);
                cr_assert_eq(r->n_prompt_cached, 0);
                continue;
            }
            cr_assert_geq(r->n_prompt_cached, r->n_visual, "%s", policies[i]);
            cr_assert_eq(r->seconds_vision, 0, "%s: the image is not encoded", policies[i]);
            cr_assert_eq(first_digest(&p), alone[i], "%s", policies[i]);
        }
        close_workers();
        static const prefill_rig none;
        fv_prefill_worker_options opt = workers.p;
        workers = none;
        workers.p = opt;
    }
}
