/* cli/client/local_run.c on the checkpoint that ships: kept conversations, and the first token computed
 * from the retained KV. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/local_internal.h"
#include "common/file.h"
#include "decode-worker/conversations/conversations.h"
#include "tests/support/tiny_net.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"
#define QUESTION "Name the color of the square."
#define CAPTION "Describe the picture."

static fv_local *l;
static fv_image image;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void begin(void) {
    fv_local_options opt = {
        .checkpoint = NANO, .backend = "cpu", .isa = "auto", .threads = 1, .at_once = 2};
    char *bytes;
    size_t n;
    ok(fv_local_open(&opt, &l));
    ok(fv_file_read(NANO "/picture.png", (size_t)1 << 20, &bytes, &n));
    ok(fv_image_decode(bytes, n, NULL, &image));
    free(bytes);
}

static void end(void) {
    fv_image_free(&image);
    fv_local_close(l);
}

TestSuite(local, .init = begin, .fini = end, .timeout = 300);

static fv_ask ask_of(const char *policy, const fv_chat_turn *turns, int32_t n, int32_t max_tokens) {
    fv_ask ask = {.n_image = 1,
                  .images = &image,
                  .n_turn = n,
                  .turns = turns,
                  .sampling = fv_sampling_default(),
                  .max_tokens = max_tokens,
                  .ignore_eos = true};
    ok(fv_policy_parse(policy, &ask.policy));
    return ask;
}

static fv_report answer(const fv_ask *ask) {
    fv_report r = {0};
    ok(fv_local_ask(l, ask, NULL, &r));
    return r;
}

/* Counts the tokens, from the first on, that were chosen from the same logits. */
static int32_t same_steps(const fv_report *a, const fv_report *b) {
    int32_t n = 0;
    while (n < a->n_generated && n < b->n_generated && a->digest[n] == b->digest[n]) n++;
    return n;
}

static fv_report ask_first(const char *policy, bool held, int32_t max_tokens) {
    static const fv_chat_turn turn[] = {{.role = "user", .text = CAPTION, .n_image = 1}};
    fv_ask ask = ask_of(policy, turn, 1, max_tokens);
    ask.first_held = held;
    return answer(&ask);
}

/* ---- the first token ---------------------------------------------------------------------- */

static void first_differs(const char *policy, bool differs) {
    fv_report served = ask_first(policy, false, 6), held = ask_first(policy, true, 6);
    cr_assert_eq(same_steps(&served, &held), differs ? 0 : 6, "%s", policy);
    cr_assert_eq(served.bytes_visual, held.bytes_visual, "%s: after prefill", policy);
    cr_assert_eq(served.bytes_text, held.bytes_text, "%s", policy);
    cr_assert_eq(served.bytes_sent, held.bytes_sent, "%s: what crosses is what is served", policy);
    if (!strstr(policy, "evict")) { /* which tokens of which segment are pruned then depends on
                                     * data */
        cr_assert_eq(served.bytes_visual_end, held.bytes_visual_end, "%s", policy);
        cr_assert_eq(served.bytes_text_end, held.bytes_text_end, "%s", policy);
    }
    fv_report_free(&served);
    fv_report_free(&held);
}

Test(local, the_first_token_comes_from_what_was_selected_or_not_evicted) {
    first_differs("select=csp", true);
    first_differs("select=csp,recent=0,bias=0", true);
    first_differs("select=snapkv", true);
    first_differs("select=lookm", true);
    first_differs("select=random,heavy=0.3", true);
    first_differs("evict=h2o", true);
    first_differs("evict=tova,keep=0.2", true);
    first_differs("evict=scissorhands", true);
    first_differs("evict=vta,tau=2", true);
    first_differs("select=h2o,heavy=0.4;evict=h2o,heavy=0.2", true);
}

Test(local, the_first_token_is_the_prefills_where_nothing_left) {
    first_differs("", false);
    first_differs("prune=random,layer=4", false);
    first_differs("condense=hired", false);
}

/* Prefill can compute the first token from factors itself, and must give the same. */
Test(local, the_first_token_from_factors_is_that_of_first_packed) {
    static const char *const packs[] = {"pack=svd,rank_k=12,rank_v=12,bits=4",
                                        "pack=svd,rank_k=16,rank_v=16,compress_text=keys,gain=0",
                                        "pack=quant,bits=4", "pack=minicache,start=0"};
    for (int i = 0; i < 4; i++) {
        char packed[200];
        snprintf(packed, sizeof packed, "%s,first=packed", packs[i]);
        fv_report a = ask_first(packs[i], true, 6), b = ask_first(packed, false, 6);
        fv_report served = ask_first(packs[i], false, 6);
        cr_assert_eq(same_steps(&a, &b), 6, "%s", packs[i]);
        cr_assert_eq(same_steps(&a, &served), 0, "%s", packs[i]);
        fv_report_free(&a);
        fv_report_free(&b);
        fv_report_free(&served);
    }
    first_differs("pack=svd,rank_k=12,rank_v=12,bits=4;evict=vta,tau=3", true);
}

Test(local, a_prompt_that_ends_with_an_image_has_no_token_to_run_again) {
    fv_ask ask = {.n_image = 1,
                  .images = &image,
                  .question = "What is this? <image>",
                  .raw = true,
                  .sampling = fv_sampling_default(),
                  .max_tokens = 2,
                  .first_held = true};
    ok(fv_policy_parse("select=snapkv", &ask.policy));
    fv_report r = {0};
    cr_assert_eq(fv_local_ask(l, &ask, NULL, &r), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "after the image"), "%s", fv_last_error());
}

/* A token that is pruned and runs again is unchanged, for every head and as often as before. */
static void comes_back(const char *policy) {
    enum { LAYERS = 4, HEADS = 2, ROWS = 5 + 30 + 9, VOCAB = 97 };
    tiny_net net;
    tiny_prompt p, *one = &p;
    fv_rerun again = {0};
    int32_t before[LAYERS][HEADS];
    float logits[VOCAB];
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, 5, 30, 9, 11, policy);
    ok(tiny_prefill(&net, &p, 1, 0));
    memcpy(logits, p.logits, sizeof logits);
    for (int32_t i = 0; i < LAYERS; i++)
        for (int32_t g = 0; g < HEADS; g++) before[i][g] = fv_kv_len(p.kv, i, g, FV_SEG_TEXT);
    ok(fv_rerun_take_out(&again, p.kv, ROWS - 1));
    for (int32_t i = 0; i < LAYERS; i++)
        for (int32_t g = 0; g < HEADS; g++)
            for (int32_t j = 0; j < fv_kv_len(p.kv, i, g, FV_SEG_TEXT); j++)
                cr_assert_lt(fv_kv_positions(p.kv, i, g, FV_SEG_TEXT)[j], ROWS - 1);
    ok(tiny_step(&net, &one, 1, &p.ids[ROWS - 1], 1, -1));
    ok(fv_rerun_put_back(&again, p.kv));
    for (int32_t i = 0; i < LAYERS; i++)
        for (int32_t g = 0; g < HEADS; g++)
            cr_assert_eq(fv_kv_len(p.kv, i, g, FV_SEG_TEXT), before[i][g], "%s: layer %d", policy,
                         i);
    cr_assert_eq(same_bits(logits, p.logits, VOCAB), !p.plan.select.count, "%s", policy);
    fv_rerun_free(&again);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

Test(local, a_token_that_runs_again_is_held_as_often_as_before) {
    comes_back("");
    comes_back("prune=fastv,layer=2,keep=0.5");
    comes_back("lazy=gla,map=given,blocks=0-1/2-3");
    comes_back("select=csp,heavy=0.9,recent=0,bias=0,dup=official");
    comes_back("select=csp,heavy=0.2,recent=0,bias=0");
    comes_back("select=random,heavy=0.3,recent=0");
}

/* ---- conversations ------------------------------------------------------------------------ */

static const fv_chat_turn first_turn = {.role = "user", .text = QUESTION, .n_image = 1};

static fv_report ask_and_keep(const char *policy) {
    fv_ask ask = ask_of(policy, &first_turn, 1, 16);
    ask.ignore_eos = false;
    ask.keep = true;
    fv_report r = answer(&ask);
    cr_assert(r.kept);
    cr_assert_eq(fv_conversations_kept(l->conversations), 1);
    return r;
}

/* Asks the second question, on the kept KV or after the whole conversation so far. */
static fv_report go_on(const char *policy, const uint8_t *name) {
    const fv_chat_turn whole[] = {
        first_turn, {.role = "assistant", .text = "white"}, {.role = "user", .text = CAPTION}};
    fv_ask ask = name ? ask_of(policy, &whole[2], 1, 12) : ask_of(policy, whole, 3, 12);
    ask.conversation = name;
    return answer(&ask);
}

Test(local, a_kept_conversation_goes_on_as_the_whole_chat_would_under_exact) {
    fv_report first = ask_and_keep("");
    fv_report kept = go_on("", first.conversation), whole = go_on("", NULL);
    cr_assert_eq(same_steps(&kept, &whole), 12);
    cr_assert_eq(kept.bytes_visual_end, whole.bytes_visual_end);
    cr_assert_lt(kept.n_prompt, 40, "the question alone, not %d rows", kept.n_prompt);
    cr_assert_eq(fv_conversations_kept(l->conversations), 0, "nobody asked for it to stay");
    fv_report_free(&first);
    fv_report_free(&kept);
    fv_report_free(&whole);
}

Test(local, what_an_earlier_question_let_go_stays_away) {
    static const char *const policies[] = {"select=snapkv", "evict=tova,keep=0.2",
                                           "evict=vta,tau=3", "pack=svd,rank_k=8,rank_v=8,bits=4"};
    for (int i = 0; i < 4; i++) {
        fv_report first = ask_and_keep(policies[i]);
        fv_report kept = go_on(policies[i], first.conversation), whole = go_on(policies[i], NULL);
        cr_assert_eq(same_steps(&kept, &whole), 0, "%s", policies[i]);
        cr_assert_leq(kept.bytes_visual_end, first.bytes_visual_end, "%s", policies[i]);
        fv_report_free(&first);
        fv_report_free(&kept);
        fv_report_free(&whole);
    }
}

Test(local, a_name_stands_for_one_answer) {
    fv_report first = ask_and_keep("select=snapkv"), r = {0};
    fv_ask ask = ask_of("", &first_turn, 1, 4);
    uint8_t other[16] = {1};
    ask.conversation = other;
    cr_assert_eq(fv_local_ask(l, &ask, NULL, &r), FV_ENOTFOUND);
    ask.conversation = first.conversation;
    ask.n_turn = 0; /* nothing is asked: the KV stays as it was */
    cr_assert_eq(fv_local_ask(l, &ask, NULL, &r), FV_EINVAL, "%s", fv_last_error());
    fv_report second = go_on("", first.conversation);
    ask.n_turn = 1;
    cr_assert_eq(fv_local_ask(l, &ask, NULL, &r), FV_ENOTFOUND);
    fv_report_free(&first);
    fv_report_free(&second);
}
