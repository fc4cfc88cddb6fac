/* Answers that run drafts (decode-worker/schedule/batch.c, drafts.c): tokens, texts, log-probabilities, digests and KV
 * are those of the same answers without drafts, whether drafts are right or wrong. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/scheduler_rig.h"

enum { SLOTS = 3, TOKENS = 60, KEEP_S = 60 };

static scheduler_rig rig;
static asked want, got, follow_want, follow_got, other[8];

static void open_rig(void) {
    scheduler_rig_open(&rig, SLOTS);
    fv_batch_weigh_drafts(fv_scheduler_batch(rig.answers), false);
}

static void close_rig(void) { scheduler_rig_close(&rig); }

TestSuite(drafts, .init = open_rig, .fini = close_rig, .timeout = 120);

static void run_all(void) {
    for (int i = 0; i < 10000 && fv_scheduler_step(rig.answers); i++) {
    }
}

/* ---- a source that is right as often as it is told ---------------------------------------- */

typedef struct knowing {
    const asked *answer; /* as it will be */
    int32_t n_prompt;
    int32_t wrong_every; /* each such token of the answer is guessed wrong; 0: none */
} knowing;

static int32_t token_of(const asked *a, int32_t i) {
    bool given = !a->answer.follows && !a->answer.first_held;
    if (given && i == 0) return a->first.id;
    i -= given;
    return i < a->n ? a->token[i].id : -1;
}

static void draft_known(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    const knowing *k = user;
    (void)ids;
    for (int32_t at = n - k->n_prompt; out->n < most; at++) {
        int32_t id = token_of(k->answer, at);
        if (id < 0) break;
        out->id[out->n++] = k->wrong_every && at % k->wrong_every == 0 ? id ^ 1 : id;
    }
}

static void know(asked *a, knowing *k, const asked *truth, int32_t wrong_every) {
    int32_t n;
    *k = (knowing){.answer = truth, .wrong_every = wrong_every};
    cr_assert(a->answer.lookup, "it runs drafts");
    fv_generation_ids(a->answer.seq, &n, &k->n_prompt);
    a->answer.spec.source = (fv_draft_source){draft_known, k};
}

/* ---- the same answers ---------------------------------------------------------------------- */

static void assert_tokens(const asked *a, const asked *b, int32_t from, const char *what) {
    cr_assert_eq(a->over, 1);
    cr_assert_eq(a->status, FV_OK, "%s", what);
    cr_assert_eq(a->n, b->n - from, "%s: %d tokens, not %d", what, (int)a->n, (int)b->n - from);
    cr_assert_eq(a->report.finish, b->report.finish, "%s", what);
    for (int32_t i = 0; i < a->n; i++) {
        const fv_sampled *s = &a->token[i], *t = &b->token[from + i];
        cr_assert_eq(s->id, t->id, "%s: token %d", what, (int)i);
        cr_assert_eq(a->digest[i], b->digest[from + i], "%s: token %d", what, (int)i);
        cr_assert_eq(memcmp(&s->logprob, &t->logprob, sizeof s->logprob), 0);
        cr_assert_eq(s->text_offset, t->text_offset);
        cr_assert_eq(s->n_top, t->n_top);
        cr_assert_eq(memcmp(s->top, t->top, (size_t)s->n_top * sizeof s->top[0]), 0);
    }
}

static void assert_same(const asked *a, const asked *b, const char *what) {
    assert_tokens(a, b, 0, what);
    cr_assert_str_eq(a->text, b->text, "%s", what);
    cr_assert_eq(a->report.n_generated, b->report.n_generated);
    cr_assert_eq(a->report.bytes_text_end, b->report.bytes_text_end, "%s", what);
    cr_assert_eq(a->report.bytes_visual_end, b->report.bytes_visual_end, "%s", what);
}

static fv_sampling seeded(void) {
    fv_sampling s = fv_sampling_default();
    s.temperature = 0.9F;
    s.top_p = 0.95F;
    s.repetition_penalty = 1.1F;
    s.frequency_penalty = 0.2F;
    s.seed = 77;
    return s;
}

static void ask(asked *a, const char *policy, bool first_held, bool speculate) {
    *a = (asked){.answer = {.keep_s = KEEP_S,
                            .max_tokens = TOKENS,
                            .first_held = first_held,
                            .ignore_eos = true,
                            .digests = true,
                            .speculate = speculate,
                            .sampling = {.n_logprobs = 3}}};
    scheduler_ask(&rig, a, &(asked_prompt){.policy = policy, .image = true, .sampling = seeded()});
}

static void follow(asked *a, const asked *before, bool speculate) {
    static const int32_t more[] = {7, 8, 9, 10, 11, 12, 13};
    *a = (asked){
        .answer = {
            .follows = true,
            .prompt = {.kind = FV_PROMPT_IDS, .n_id = sizeof more / sizeof *more, .id = more},
            .sampling = fv_sampling_default(),
            .max_tokens = TOKENS,
            .ignore_eos = true,
            .speculate = speculate,
            .digests = true}};
    memcpy(a->answer.conversation, before->report.conversation, sizeof a->answer.conversation);
    fv_scheduler_add(rig.answers, &a->answer);
}

/* Runs the answer to its end while others come and go, and its reader pauses; returns its steps. */
static int32_t run_among_others(asked *a) {
    int32_t n = 0, steps = 0;
    for (int i = 0; i < 4000 && !a->over; i++) {
        if (i % 5 == 0 && n < 8) {
            other[n] = (asked){
                .answer = {.max_tokens = 6 + n % 5, .ignore_eos = true, .speculate = n % 2 == 0}};
            scheduler_ask(&rig, &other[n],
                          &(asked_prompt){.policy = "", .salt = n, .sampling = seeded()});
            n++;
        }
        if (i % 11 == 3) fv_scheduler_hold(rig.answers, &a->answer, true);
        if (i % 11 == 5) fv_scheduler_hold(rig.answers, &a->answer, false);
        steps += a->answer.phase == FV_ANSWER_RUNNING;
        fv_scheduler_step(rig.answers);
    }
    run_all();
    return steps;
}

/* Every third draft's token is wrong, then every one, then none. */
static void same(const char *policy, bool first_held) {
    static const int32_t wrong[] = {3, 1, 0};
    knowing k, again;
    ask(&want, policy, first_held, false);
    run_all();
    cr_assert_eq(want.status, FV_OK, "%s", fv_last_error());
    follow(&follow_want, &want, false);
    run_all();
    cr_assert_eq(want.report.n_drafted, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ask(&got, policy, first_held, true);
        know(&got, &k, &want, wrong[i]);
        int32_t steps = run_among_others(&got);
        assert_same(&got, &want, policy);
        cr_assert_gt(got.report.n_drafted, 0);
        if (wrong[i] == 1) cr_assert_eq(got.report.n_drafts_kept, 0);
        if (wrong[i] == 0) {
            cr_assert_eq(got.report.n_drafts_kept, got.report.n_drafted);
            cr_assert_lt(steps, TOKENS / 2, "%s: %d steps", policy, (int)steps);
        }
        follow(&follow_got, &got, true);
        know(&follow_got, &again, &follow_want, wrong[i]);
        run_all();
        assert_same(&follow_got, &follow_want, policy);
    }
}

Test(drafts, an_exact_answer_is_the_same) { same("", false); }

Test(drafts, an_answer_with_packed_kv_is_the_same) { same("pack=quant", false); }

Test(drafts, an_answer_whose_text_is_compressed_as_it_grows_is_the_same) {
    same("pack=svd,rank_k=4,rank_v=4,gain=0,compress_text=keys,rank_text=4,recompress=8", false);
}

Test(drafts, an_answer_of_pruned_and_selected_tokens_is_the_same) {
    same("select=csp,heavy=0.3", true);
    same("prune=fastv,layer=1,keep=0.5", false);
}

Test(drafts, an_answer_of_lazy_layers_is_the_same) { same("lazy=gla,map=given,blocks=0-1", false); }

/* A prompt that repeats, by the lookup itself. */
Test(drafts, what_the_lookup_finds_changes_nothing) {
    fv_sampling greedy = fv_sampling_default();
    for (int speculate = 0; speculate < 2; speculate++) {
        asked *a = speculate ? &got : &want;
        *a = (asked){.answer = {.max_tokens = 150,
                                .ignore_eos = true,
                                .digests = true,
                                .speculate = speculate == 1}};
        scheduler_ask(&rig, a, &(asked_prompt){.policy = "", .sampling = greedy});
        run_all();
    }
    assert_same(&got, &want, "lookup");
    cr_assert_gt(got.report.n_drafted, 0, "a network of random weights repeats itself");
}

/* A token that cannot be given ends the answer with that failure, whatever its step has after it. */
Test(drafts, an_answer_that_lost_a_token_is_not_complete) {
    knowing k;
    ask(&want, "", false, false);
    run_all();
    for (int32_t i = 1; i <= 10; i++) {
        ask(&got, "", false, true);
        know(&got, &k, &want, 0);
        got.fail_at = want.n - i;
        run_all();
        cr_assert_eq(got.over, 1);
        cr_assert_eq(got.status, FV_ENOMEM, "%d tokens before the last", (int)i);
        cr_assert_eq(got.n, want.n - i - 1, "none after the one that was lost");
    }
}

/* ---- how answers end ------------------------------------------------------------------------ */

/* A stop string, max_tokens or EOS ends an answer among drafts that would be right. */
Test(drafts, an_answer_that_ends_among_drafts_ends_where_it_would) {
    static char piece[32];
    const char *const stop = piece;
    knowing k;
    ask(&want, "", false, false);
    run_all();
    size_t n = strlen(want.text);
    cr_assert_gt(n, 30);
    memcpy(piece, want.text + n / 2, 12);
    for (int speculate = 0; speculate < 2; speculate++) {
        asked *a = speculate ? &got : &follow_want;
        *a = (asked){.answer = {.keep_s = KEEP_S,
                                .max_tokens = TOKENS,
                                .n_stop = 1,
                                .stop = &stop,
                                .ignore_eos = true,
                                .digests = true,
                                .speculate = speculate == 1,
                                .sampling = {.n_logprobs = 3}}};
        scheduler_ask(&rig, a, &(asked_prompt){.policy = "", .image = true, .sampling = seeded()});
        if (speculate) know(a, &k, &want, 0);
        run_all();
    }
    cr_assert_eq(got.report.finish, FV_FINISH_STOP);
    assert_same(&got, &follow_want, "stop");
    follow(&other[0], &follow_want, false);
    run_all();
    follow(&follow_got, &got, true);
    run_all();
    assert_same(&follow_got, &other[0], "the conversation goes on from the same KV");
}

Test(drafts, structured_output_is_the_same) {
    static const char pattern[] = "[0-9a-f]{40,200}";
    knowing k;
    for (int speculate = 0; speculate < 2; speculate++) {
        asked *a = speculate ? &got : &want;
        *a = (asked){.answer = {.max_tokens = TOKENS,
                                .first_held = true,
                                .digests = true,
                                .speculate = speculate == 1,
                                .rules = {.grammar = {.kind = FV_GRAMMAR_REGEX,
                                                      .text = pattern,
                                                      .n_text = sizeof pattern - 1}}}};
        scheduler_ask(&rig, a, &(asked_prompt){.policy = "", .sampling = seeded()});
        if (speculate) know(a, &k, &want, 4);
        run_all();
    }
    assert_same(&got, &want, "grammar");
    cr_assert_gt(strlen(got.text), 20);
    cr_assert_eq(strspn(got.text, "0123456789abcdef"), strlen(got.text), "%s", got.text);
    cr_assert_gt(got.report.n_drafts_kept, 0);
}

/* A replay drafts from its own place and gives the tokens that were to come. */
Test(drafts, a_replay_goes_on_as_the_answer_would_have) {
    int32_t replay[20];
    knowing k;
    ask(&want, "", false, false);
    run_all();
    for (int32_t i = 0; i < 20; i++) replay[i] = token_of(&want, i);
    got = (asked){.answer = {.max_tokens = TOKENS,
                             .ignore_eos = true,
                             .digests = true,
                             .speculate = true,
                             .n_replay = 20,
                             .replay = (const uint32_t *)replay,
                             .sampling = {.n_logprobs = 3}}};
    scheduler_ask(
        &rig, &got,
        &(asked_prompt){
            .policy = "", .image = true, .sampling = seeded(), .n_replay = 20, .replay = replay});
    know(&got, &k, &want, 5);
    run_all();
    cr_assert_eq(got.first.id, want.token[19].id);
    assert_tokens(&got, &want, 20, "replay");
    cr_assert_gt(got.report.n_drafts_kept, 0);
}

/* ---- where drafts do not run ---------------------------------------------------------------- */

Test(drafts, policies_whose_past_remembers_drafts_run_none) {
    static const char *const policies[] = {"evict=vta,layer=1,tau=16",
                                           "evict=h2o,heavy=0.3,recent=0.3",
                                           "pack=svd,rank_k=4,rank_v=4,gain=0;expand=attention"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        ask(&want, policies[i], false, false);
        run_all();
        ask(&got, policies[i], false, true);
        cr_assert_null(got.answer.lookup, "%s", policies[i]);
        run_all();
        assert_same(&got, &want, policies[i]);
    }
}

/* Memory is granted for a few tokens at a time. */
Test(drafts, an_answer_that_grows_drafts_within_its_memory) {
    knowing k;
    ask(&want, "", false, false);
    run_all();
    got = (asked){.answer = {.keep_s = KEEP_S,
                             .max_tokens = TOKENS,
                             .ignore_eos = true,
                             .digests = true,
                             .speculate = true,
                             .sampling = {.n_logprobs = 3}}};
    scheduler_ask(&rig, &got,
                  &(asked_prompt){.policy = "", .image = true, .sampling = seeded(), .reserve = 5});
    know(&got, &k, &want, 0);
    run_all();
    assert_same(&got, &want, "growth");
    cr_assert_gt(got.report.n_drafts_kept, 20);
}
