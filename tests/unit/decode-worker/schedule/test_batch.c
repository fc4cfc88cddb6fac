/* text/generation.c and batch.c: generation ends as it should, and requests that join, leave or
 * fail do not change others. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/schedule/batch.h"
#include "tests/support/llama_tokenizer.h"
#include "tests/support/tiny_net.h"

TestSuite(batch, .init = open_tokenizer, .fini = close_tokenizer);

enum { VOCAB = 400, NET_VOCAB = 97 };

static fv_generation_options options(int32_t max_tokens) {
    return (fv_generation_options){.sampling = fv_sampling_default(),
                                   .max_tokens = max_tokens,
                                   .context = 4096,
                                   .n_vocab = VOCAB};
}

static fv_generation *open_sequence(const fv_generation_options *opt, const int32_t *ids,
                                    int32_t n) {
    fv_generation *s;
    cr_assert_eq(fv_generation_open(opt, tok, ids, n, n, &s), FV_OK, "%s", fv_last_error());
    return s;
}

/* Makes the generation choose `id`; returns the text it emits. */
static const char *choose(fv_generation *s, int32_t id) {
    static char shown[256];
    float logits[VOCAB] = {0};
    const fv_sampled *token;
    const char *text;
    size_t n;
    logits[id] = 5;
    cr_assert_eq(fv_generation_take(s, logits, &token, &text, &n), FV_OK, "%s", fv_last_error());
    cr_assert_eq(token->id, id);
    snprintf(shown, sizeof shown, "%.*s", (int)n, text);
    return shown;
}

/* The id of a token that is one character. */
static int32_t char_id(const char *c) {
    int32_t id = fv_tokenizer_id(tok, c);
    cr_assert(id >= 0 && id < VOCAB, "%s is %d", c, id);
    return id;
}

/* Texts end at their first NUL on the wire. */
Test(batch, sequence_shows_no_nul) {
    int32_t prompt[] = {1, 5, 6};
    fv_generation_options opt = options(8);
    fv_generation *s = open_sequence(&opt, prompt, 3);
    cr_assert_str_eq(choose(s, char_id("a")), "a");
    cr_assert_str_eq(choose(s, char_id("<0x00>")), "");
    cr_assert_str_eq(choose(s, char_id("b")), "\xEF\xBF\xBD"
                                              "b");
    fv_generation_close(s);
}

Test(batch, sequence_takes_the_tokens_that_are_forced_and_then_its_own) {
    int32_t prompt[] = {1, 5, 6}, forced[] = {char_id("a"), char_id("b")};
    fv_generation_options opt = options(8);
    opt.n_forced = 2;
    opt.forced = forced;
    fv_generation *s = open_sequence(&opt, prompt, 3);
    float logits[VOCAB] = {0};
    const fv_sampled *token;
    const char *text;
    size_t n;
    logits[char_id("c")] = 5;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fv_generation_take(s, logits, &token, &text, &n), FV_OK);
        cr_assert_eq(token->id, i < 2 ? forced[i] : char_id("c"));
        double total = log(exp(5) + VOCAB - 1);
        cr_assert_float_eq(token->logprob, (i < 2 ? 0 : 5) - total, 1e-4, "token %d: %g", i,
                           (double)token->logprob);
    }
    fv_generation_close(s);
    forced[1] = VOCAB;
    cr_assert_eq(fv_generation_open(&opt, tok, prompt, 3, 3, &s), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "forced token"), "%s", fv_last_error());
}

Test(batch, sequence_ends_at_max_tokens_at_the_context_and_at_eos) {
    int32_t prompt[] = {1, 5, 6}, eos[] = {9, 11};
    fv_generation_options opt = options(2);
    fv_generation *s = open_sequence(&opt, prompt, 3);
    choose(s, char_id("a"));
    cr_assert_eq(fv_generation_finish(s), FV_FINISH_NOT);
    choose(s, char_id("a"));
    cr_assert_eq(fv_generation_finish(s), FV_FINISH_LENGTH);
    fv_generation_close(s);
    opt.max_tokens = 100;
    opt.context = 4;
    s = open_sequence(&opt, prompt, 3);
    choose(s, char_id("a"));
    cr_assert_eq(fv_generation_finish(s), FV_FINISH_LENGTH);
    fv_generation_close(s);
    opt.context = 100;
    opt.eos = eos;
    opt.n_eos = 2;
    s = open_sequence(&opt, prompt, 3);
    choose(s, char_id("a"));
    cr_assert_str_empty(choose(s, 11), "the end is not shown");
    cr_assert_eq(fv_generation_finish(s), FV_FINISH_EOS);
    fv_generation_close(s);
}

Test(batch, sequence_a_stop_string_over_two_tokens_is_never_shown) {
    const char *stop = "bc";
    int32_t prompt[] = {1};
    fv_generation_options opt = options(10);
    opt.stop = &stop;
    opt.n_stop = 1;
    fv_generation *s = open_sequence(&opt, prompt, 1);
    choose(s, char_id("a"));
    cr_assert_null(strchr(choose(s, char_id("b")), 'b'), "it may become the stop string");
    cr_assert_null(strchr(choose(s, char_id("c")), 'c'));
    cr_assert_eq(fv_generation_finish(s), FV_FINISH_STOP);
    fv_generation_close(s);
}

Test(batch, sequence_text_held_back_is_shown_when_the_answer_ends) {
    const char *stop = "bc";
    int32_t prompt[] = {1};
    fv_generation_options opt = options(2);
    opt.stop = &stop;
    opt.n_stop = 1;
    fv_generation *s = open_sequence(&opt, prompt, 1);
    choose(s, char_id("a"));
    cr_assert_not_null(strchr(choose(s, char_id("b")), 'b'));
    fv_generation_close(s);
}

Test(batch, sequence_another_worker_goes_on_where_one_stopped) {
    const char *stop = "bc";
    int32_t prompt[] = {1}, so_far[] = {1, char_id("a"), char_id("b")};
    fv_generation_options opt = options(10);
    opt.stop = &stop;
    opt.n_stop = 1;
    opt.sampling.temperature = 2;
    opt.sampling.seed = 4;
    fv_generation *whole = open_sequence(&opt, prompt, 1), *rest;
    cr_assert_eq(fv_generation_open(&opt, tok, so_far, 3, 1, &rest), FV_OK);
    /* Sampling continues at the right step, and a partial stop string is remembered. */
    float even[VOCAB] = {0};
    const fv_sampled *a, *b;
    const char *text;
    size_t n;
    float first[VOCAB] = {0}, second[VOCAB] = {0};
    first[so_far[1]] = second[so_far[2]] = 1e4f;
    cr_assert_eq(fv_generation_take(whole, first, &a, &text, &n), FV_OK);
    cr_assert_eq(fv_generation_take(whole, second, &a, &text, &n), FV_OK);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fv_generation_take(whole, even, &a, &text, &n), FV_OK);
        cr_assert_eq(fv_generation_take(rest, even, &b, &text, &n), FV_OK);
        cr_assert_eq(a->id, b->id);
    }
    fv_generation_close(whole);
    fv_generation_close(rest);
    cr_assert_eq(fv_generation_open(&opt, tok, so_far, 3, 1, &rest), FV_OK);
    float hash[VOCAB] = {0};
    hash[char_id("c")] = 1e4f;
    cr_assert_eq(fv_generation_take(rest, hash, &b, &text, &n), FV_OK);
    cr_assert_eq(fv_generation_finish(rest), FV_FINISH_STOP);
    fv_generation_close(rest);
}

static fv_finish ended(const fv_generation_options *opt, const int32_t *ids, int32_t n) {
    fv_finish f;
    cr_assert_eq(fv_generation_ended(opt, tok, ids, n, 1, &f), FV_OK, "%s", fv_last_error());
    return f;
}

Test(batch, sequence_the_tokens_alone_say_how_the_answer_ended) {
    const char *stop = "bc";
    int32_t eos = char_id("d"), ids[] = {1, char_id("a"), char_id("b"), char_id("c"), eos};
    fv_generation_options opt = options(4);
    cr_assert_eq(ended(&opt, ids, 1), FV_FINISH_NOT);
    cr_assert_eq(ended(&opt, ids, 4), FV_FINISH_NOT);
    cr_assert_eq(ended(&opt, ids, 5), FV_FINISH_LENGTH);
    opt.eos = &eos;
    opt.n_eos = 1;
    cr_assert_eq(ended(&opt, ids, 5), FV_FINISH_EOS, "also where it is the last one that fits");
    opt.stop = &stop;
    opt.n_stop = 1;
    cr_assert_eq(ended(&opt, ids, 3), FV_FINISH_NOT);
    cr_assert_eq(ended(&opt, ids, 4), FV_FINISH_STOP);
    opt.context = 3;
    cr_assert_eq(ended(&opt, ids, 3), FV_FINISH_LENGTH);
    opt.max_tokens = 1;
    fv_finish f;
    cr_assert_eq(fv_generation_ended(&opt, tok, ids, 3, 1, &f), FV_EINVAL);
}

Test(batch, sequence_logits_that_are_not_finite_end_it_with_an_error) {
    int32_t prompt[] = {1};
    fv_generation_options opt = options(10);
    fv_generation *s = open_sequence(&opt, prompt, 1);
    float logits[VOCAB] = {0};
    const fv_sampled *token;
    const char *text;
    size_t n;
    logits[VOCAB - 1] = NAN;
    cr_assert_eq(fv_generation_take(s, logits, &token, &text, &n), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "NaN or infinity"));
    fv_generation_close(s);
}

Test(batch, sequence_options_out_of_range_are_refused) {
    int32_t ids[] = {1, 2, 3};
    fv_generation *s;
    fv_generation_options opt = options(0);
    cr_assert_eq(fv_generation_open(&opt, tok, ids, 1, 1, &s), FV_EINVAL);
    opt = options(2);
    cr_assert_eq(fv_generation_open(&opt, tok, ids, 3, 1, &s), FV_EINVAL, "already complete");
}

/* ---- batch ----------------------------------------------------------------------------- */

enum { N = 5, TOKENS = 12 };

/* Tokens of each request, in order. */
typedef struct answers {
    int32_t id[N][TOKENS + 1], n[N];
    fv_status status[N];
} answers;

static void on_event(void *ctx, const fv_batch_event *e) {
    answers *a = ctx;
    int32_t i = *(int32_t *)e->user;
    a->status[i] = e->status;
    if (e->status == FV_OK)
        a->id[i][a->n[i]++] = e->token->id;
    else
        cr_assert(strstr(fv_last_error(), "NaN or infinity"), "%s", fv_last_error());
}

/* Generates for `which` prompts; prompt i joins before step join[i]. poison: one request's keys
 * turn NaN. */
static void answer(const bool *which, const int32_t *join, int32_t poison, answers *out) {
    tiny_net net;
    tiny_prompt p[N];
    fv_generation *seq[N];
    fv_batch *batch;
    int32_t index[N];
    *out = (answers){0};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    cr_assert_eq(fv_batch_open(net.dec, N, 1, &batch), FV_OK);
    for (int32_t i = 0; i < N; i++) {
        if (!which[i]) continue;
        index[i] = i;
        tiny_prompt_make(&net, &p[i], 3 + i, i % 2 ? 30 : 0, 4, 50 + (uint64_t)i, "");
        cr_assert_eq(tiny_prefill(&net, &p[i], 1, 0), FV_OK);
        fv_generation_options opt = options(TOKENS - 2 * i);
        opt.n_vocab = NET_VOCAB;
        opt.sampling.temperature = 1;
        opt.sampling.seed = (uint64_t)i;
        seq[i] = open_sequence(&opt, p[i].ids, p[i].n);
        const fv_sampled *token;
        const char *text;
        size_t n;
        cr_assert_eq(fv_generation_take(seq[i], p[i].logits, &token, &text, &n), FV_OK);
        out->id[i][out->n[i]++] = token->id;
    }
    for (int32_t step = 0; step < 30; step++) {
        for (int32_t i = 0; i < N; i++) {
            if (!which[i] || join[i] != step) continue;
            cr_assert_eq(fv_batch_join(batch, seq[i], p[i].kv, NULL, NULL, p[i].n, &index[i]),
                         FV_OK);
            if (i == poison) *(float *)fv_kv_runs(p[i].kv, 0)[FV_SEG_TEXT].block[0].k = NAN;
        }
        cr_assert_eq(fv_batch_step(batch, on_event, out), FV_OK, "%s", fv_last_error());
    }
    cr_assert_eq(fv_batch_count(batch), 0);
    for (int32_t i = 0; i < N; i++) {
        if (!which[i]) continue;
        fv_generation_close(seq[i]);
        tiny_prompt_free(&p[i]);
    }
    fv_batch_close(batch);
    tiny_net_close(&net);
}

Test(batch, an_answer_is_the_same_alone_and_among_those_who_come_and_go) {
    static const bool all[N] = {true, true, true, true, true};
    static const int32_t join[N] = {0, 2, 1, 5, 0};
    answers together, alone;
    answer(all, join, -1, &together);
    for (int32_t i = 0; i < N; i++) {
        bool one[N] = {false};
        one[i] = true;
        answer(one, join, -1, &alone);
        cr_assert_eq(together.n[i], TOKENS - 2 * i);
        cr_assert_eq(alone.n[i], together.n[i]);
        cr_assert_eq(memcmp(alone.id[i], together.id[i], sizeof alone.id[i]), 0, "answer %d", i);
    }
}

Test(batch, one_that_fails_leaves_and_the_others_continue) {
    static const bool all[N] = {true, true, true, true, true};
    static const int32_t join[N] = {0, 0, 0, 0, 0};
    answers good, bad;
    answer(all, join, -1, &good);
    answer(all, join, 2, &bad);
    for (int32_t i = 0; i < N; i++) {
        if (i == 2) {
            cr_assert_eq(bad.status[i], FV_EDATA);
            cr_assert_eq(bad.n[i], 1, "only the token before");
        } else {
            cr_assert_eq(memcmp(good.id[i], bad.id[i], sizeof good.id[i]), 0, "answer %d", i);
        }
    }
}

Test(batch, a_full_batch_says_so_and_leaving_makes_room) {
    tiny_net net;
    fv_batch *batch;
    int32_t prompt[] = {1};
    fv_generation_options opt = options(4);
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    cr_assert_eq(fv_batch_open(net.dec, 1, 1, &batch), FV_OK);
    fv_generation *a = open_sequence(&opt, prompt, 1), *b = open_sequence(&opt, prompt, 1);
    cr_assert_eq(fv_batch_join(batch, a, NULL, NULL, NULL, 0, NULL), FV_OK);
    cr_assert_eq(fv_batch_join(batch, b, NULL, NULL, NULL, 0, NULL), FV_EBUSY);
    fv_batch_leave(batch, b); /* no longer there */
    fv_batch_leave(batch, a);
    cr_assert_eq(fv_batch_join(batch, b, NULL, NULL, NULL, 0, NULL), FV_OK);
    fv_batch_leave(batch, b);
    fv_generation_close(a);
    fv_generation_close(b);
    fv_batch_close(batch);
    tiny_net_close(&net);
}

/* ---- prompts that join later ------------------------------------------------------------ */

enum { HELD = 40, NEW = 23, WHOLE = HELD + NEW };

/* The result for one prompt. */
typedef struct witness {
    float logits[NET_VOCAB];
    int32_t n_token, steps; /* tokens chosen; steps until the first one */
} witness;

static void on_witness(void *ctx, const fv_batch_event *e) {
    witness *w = e->user;
    (void)ctx;
    cr_assert_eq(e->status, FV_OK);
    if (w && w->n_token++ == 0) memcpy(w->logits, e->logits, sizeof w->logits);
}

/* Prefills the first n tokens of a prompt and opens a generation over all of them. */
static fv_generation *hold(tiny_net *net, const tiny_prompt *whole, int32_t n, tiny_prompt *part) {
    *part = *whole;
    part->n = n;
    part->kv = NULL;
    part->logits = malloc(NET_VOCAB * sizeof *part->logits);
    cr_assert(part->logits);
    cr_assert_eq(tiny_prefill(net, part, 1, 0), FV_OK, "%s", fv_last_error());
    fv_generation_options opt = options(TOKENS);
    opt.n_vocab = NET_VOCAB;
    return open_sequence(&opt, whole->ids, whole->n);
}

static void let_go(tiny_prompt *part, fv_generation *seq) {
    fv_generation_close(seq);
    fv_kv_close(part->kv);
    free(part->logits);
}

/* The prompt continues from HELD tokens, alone or with one neighbour that decodes and another that
 * prefills too. The one that decodes gets a token in every step. */
static void go_on(tiny_net *net, const tiny_prompt *whole, int32_t prompt_tokens, bool alone,
                  witness *out) {
    tiny_prompt part[3];
    fv_generation *seq[3];
    fv_batch *batch;
    witness neighbour[2] = {0};
    *out = (witness){0};
    cr_assert_eq(fv_batch_open(net->dec, 3, prompt_tokens, &batch), FV_OK);
    seq[0] = hold(net, whole, HELD, &part[0]);
    seq[1] = hold(net, whole, WHOLE - 1, &part[1]);
    seq[2] = hold(net, whole, HELD + 3, &part[2]);
    if (!alone)
        cr_assert_eq(fv_batch_join(batch, seq[1], part[1].kv, NULL, NULL, WHOLE - 1, &neighbour[0]),
                     0);
    cr_assert_eq(fv_batch_join(batch, seq[0], part[0].kv, NULL, NULL, HELD, out), FV_OK);
    if (!alone)
        cr_assert_eq(fv_batch_join(batch, seq[2], part[2].kv, NULL, NULL, HELD + 3, &neighbour[1]),
                     0);
    while (out->n_token == 0 && out->steps++ <= WHOLE)
        cr_assert_eq(fv_batch_step(batch, on_witness, NULL), FV_OK, "%s", fv_last_error());
    if (!alone) cr_assert_eq(neighbour[0].n_token, out->steps < TOKENS ? out->steps : TOKENS);
    for (int i = 0; i < 3; i++) {
        fv_batch_leave(batch, seq[i]);
        let_go(&part[i], seq[i]);
    }
    fv_batch_close(batch);
}

Test(batch, chunking_and_neighbours_change_no_bit_of_a_prompt) {
    static const int32_t cut[] = {1, 2, 7, NEW - 1, NEW, 256};
    tiny_net net;
    tiny_prompt whole;
    witness w;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &whole, 3, 30, WHOLE - 33, 77, "");
    cr_assert_eq(tiny_prefill(&net, &whole, 1, 0), FV_OK);
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        for (int alone = 0; alone < 2; alone++) {
            go_on(&net, &whole, cut[i], alone, &w);
            cr_assert(same_bits(w.logits, whole.logits, NET_VOCAB), "%d rows a step", cut[i]);
            if (alone) cr_assert_eq(w.steps, (NEW + cut[i] - 1) / cut[i]);
        }
    tiny_prompt_free(&whole);
    tiny_net_close(&net);
}
