/* decode-worker/conversations/recompress.c: keys of later text are merged into the prompt's
 * factors. Tests when, the cost, the error, and that nothing but the conversation matters. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/conversations/recompress.h"
#include "kv/packed.h"
#include "tests/support/handoff.h"
#include "tests/support/packed_error.h"
#include "tests/support/recompress_turn.h"

enum { BEFORE = 60, VISUAL = 40, AFTER = 70, TEXT = BEFORE + AFTER, LAYERS = 4, VOCAB = 97 };

#define KEYS ",compress_text=keys,rank_text="
#define WHOLE "pack=svd,rank_k=48,rank_v=48,gain=0.6,recompress=1" KEYS "48"
#define LOW "pack=svd,rank_k=9,rank_v=9,gain=0,block=16,recompress=1" KEYS "12"

TestSuite(recompress, .timeout = 240);

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- a conversation ------------------------------------------------------------------ */

static void start(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    ok(tiny_prefill(net, p, 1, 0));
}

/* Tokens of a turn that follow the first `at`, in pieces of at most `piece`. */
static void say(tiny_net *net, tiny_prompt *p, int32_t at, int32_t n, int32_t piece) {
    int32_t ids[256];
    cr_assert_leq(n, 256);
    for (int32_t i = 0; i < n; i++) ids[i] = (5 + (at + i) * 29) % VOCAB;
    for (int32_t i = 0; i < n; i += piece) {
        int32_t now = n - i < piece ? n - i : piece;
        ok(tiny_step(net, &p, 1, ids + i, now, at + i));
    }
}

static fv_recompress_report recompress(tiny_net *net, fv_kv *kv, const char *policy) {
    return recompress_turn(net->dec, kv, policy);
}

static float most_off(const float *a, const float *b) {
    float most = 0;
    for (int32_t i = 0; i < VOCAB; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) most = fabsf(a[i] - b[i]);
    return most;
}

/* ---- the result ---------------------------------------------------------------------- */

Test(recompress, at_full_rank_a_conversation_of_many_turns_stays_that_of_exact) {
    static const char *const policies[][2] = {
        {"", WHOLE},
        {"", WHOLE ",block=0"},
        {"", WHOLE ",block=1,first=packed"},
        {"lazy=gla,map=given,blocks=1-2", "lazy=gla,map=given,blocks=1-2;" WHOLE}};
    for (int i = 0; i < 8; i++) {
        tiny_net net;
        tiny_prompt raw, p;
        tiny_net_open(&net, tiny_shape_either(i < 4), FV_F32, NULL, 1);
        start(&net, &raw, policies[i % 4][0]);
        start(&net, &p, policies[i % 4][1]);
        int32_t waits = p.plan.pack.first_packed, at = 0;
        for (int turn = 0; turn < 6; turn++) {
            int32_t n = 20 + 9 * turn;
            say(&net, &raw, at, n, n);
            say(&net, &p, at, n, n);
            float off = most_off(raw.logits, p.logits);
            cr_assert_lt(off, 4e-3f, "%s, turn %d: %g", policies[i % 4][1], turn, (double)off);
            fv_recompress_report r = recompress(&net, p.kv, policies[i % 4][1]);
            at += n;
            cr_assert_eq(r.n_layer, LAYERS, "%s, turn %d", policies[i % 4][1], turn);
            cr_assert_eq(r.rows, (uint64_t)(LAYERS * (n + waits)));
            cr_assert_lt(r.error, 2e-3f); /* of rounding: a difference of squares */
            waits = 0;
            for (int32_t l = 0; l < LAYERS; l++) {
                cr_assert_eq(fv_kv_packed_of(p.kv, l, FV_SEG_TEXT)->rows.n, TEXT + at);
                cr_assert_eq(fv_kv_len(p.kv, l, 1, FV_SEG_TEXT), 0);
            }
        }
        tiny_prompt_free(&raw);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

Test(recompress, a_low_rank_changes_what_follows) {
    tiny_net net;
    tiny_prompt p, as_it_was;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    start(&net, &p, LOW);
    start(&net, &as_it_was, LOW);
    say(&net, &p, 0, 64, 64);
    say(&net, &as_it_was, 0, 64, 64);
    cr_assert_eq(recompress(&net, p.kv, LOW).n_layer, LAYERS);
    say(&net, &p, 64, 1, 1);
    say(&net, &as_it_was, 64, 1, 1);
    cr_assert_gt(most_off(p.logits, as_it_was.logits), 1e-4f);
    tiny_prompt_free(&p);
    tiny_prompt_free(&as_it_was);
    tiny_net_close(&net);
}

/* ---- the error ----------------------------------------------------------------------- */

/* Copies the waiting tokens of one KV into another, which holds all of them. */
static void note_rows(fv_kv *truth, fv_kv *kv) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    size_t row = (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    for (int32_t l = 0; l < s->n_layer; l++) {
        int32_t n = fv_kv_len(kv, l, 0, FV_SEG_TEXT), had = fv_kv_len(truth, l, 0, FV_SEG_TEXT);
        ok(fv_kv_reserve(truth, l, n));
        ok(fv_kv_append(truth, l, FV_SEG_TEXT, fv_kv_positions(kv, l, 0, FV_SEG_TEXT), n));
        for (int32_t g = 0; g < s->n_kv; g++)
            for (int32_t j = 0; j < 2 * n; j++) {
                void *from, *to;
                fv_kv_contiguous(kv, l, g, FV_SEG_TEXT, j & 1, j / 2, n, &from);
                fv_kv_contiguous(truth, l, g, FV_SEG_TEXT, j & 1, had + j / 2, had + n, &to);
                memcpy(to, from, row);
            }
    }
}

/* ||K|| of a layer's text tokens. */
static double norm(fv_kv *kv, int32_t layer) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    double sum = 0;
    for (int32_t g = 0; g < s->n_kv; g++)
        for (int32_t j = 0, n = fv_kv_len(kv, layer, g, FV_SEG_TEXT); j < n; j++) {
            void *at;
            fv_kv_contiguous(kv, layer, g, FV_SEG_TEXT, false, j, n, &at);
            for (int32_t d = 0; d < s->d_head; d++) sum += pow((double)((float *)at)[d], 2);
        }
    return sqrt(sum);
}

/* ||K - U B|| of a layer's compressed tokens. */
static double lost(tiny_net *net, fv_kv *truth, const fv_kv *kv, int32_t layer) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_TEXT);
    double share = packed_error(truth, p, layer, FV_PACKED_K, &net->cfg.rope);
    cr_assert_eq(p->rows.n, fv_kv_len(truth, layer, 0, FV_SEG_TEXT));
    cr_assert_eq(packed_error(truth, p, layer, FV_PACKED_V, &net->cfg.rope), 0,
                 "values have all "
                 "their bits");
    return share * norm(truth, layer);
}

/* Each step adds no more than its own truncation error, so the total error is at most their sum,
 * and never less than that of the best matrix of this rank for all tokens. */
Test(recompress, each_time_adds_no_more_than_what_it_leaves_out) {
    static const char *const policies[] = {LOW, LOW ",block=0", LOW ",energy=0.8"};
    for (int i = 0; i < 3; i++) {
        tiny_net net;
        tiny_prompt truth, p, best;
        double before[LAYERS];
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        start(&net, &truth, "");
        start(&net, &p, policies[i]);
        for (int32_t l = 0; l < LAYERS; l++) before[l] = lost(&net, truth.kv, p.kv, l);
        for (int32_t turn = 0, at = 0; turn < 6; turn++, at += 30) {
            say(&net, &p, at, 30, 30);
            note_rows(truth.kv, p.kv);
            fv_recompress_report r = recompress(&net, p.kv, policies[i]);
            cr_assert_eq(r.n_layer, LAYERS);
            cr_assert(r.error > 0.01f && r.error < 1);
            for (int32_t l = 0; l < LAYERS; l++) {
                double now = lost(&net, truth.kv, p.kv, l), all = norm(truth.kv, l);
                double most = before[l] + (double)r.error * (all + before[l]);
                cr_assert_leq(now, most * (1 + 1e-5), "%s, turn %d, layer %d: %g of %g and %g",
                              policies[i], turn, l, now, most, all);
                before[l] = now;
            }
        }
        /* all tokens at once: raw KV, factored for the first time */
        ok(fv_kv_open(net.pool, &best.kv));
        note_rows(best.kv, truth.kv);
        cr_assert_eq(recompress(&net, best.kv, policies[i]).n_layer, LAYERS);
        for (int32_t l = 0; l < LAYERS; l++) {
            double least = lost(&net, truth.kv, best.kv, l);
            cr_assert_geq(before[l], 0.99 * least, "%s, layer %d", policies[i], l);
            cr_assert_leq(before[l], 3 * least, "%s, layer %d: %g, at once %g", policies[i], l,
                          before[l], least);
        }
        fv_kv_close(best.kv);
        tiny_prompt_free(&truth);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

/* The pool bytes of tokens, compressed or not, without the tables that list them. */
static size_t rows_bytes(const fv_kv *kv) { return fv_kv_bytes_held(kv) - fv_kv_packed_tables(kv); }

/* The energy share applies to all tokens, not to what the turn before kept. */
Test(recompress, the_share_that_is_kept_does_not_shrink_from_turn_to_turn) {
    const char *policy = "pack=svd,gain=0,block=16,energy=0.8,recompress=1" KEYS "80";
    tiny_shape shape = tiny_shape_default();
    tiny_net net;
    tiny_prompt truth, p;
    shape.n_kv = 4;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    start(&net, &truth, "");
    start(&net, &p, policy);
    for (int32_t turn = 0, at = 0; turn < 4; turn++, at += 64) {
        say(&net, &p, at, 64, 64);
        note_rows(truth.kv, p.kv);
        cr_assert_eq(recompress(&net, p.kv, policy).n_layer, LAYERS);
        for (int32_t l = 0; l < LAYERS; l++) {
            double share = lost(&net, truth.kv, p.kv, l) / norm(truth.kv, l);
            cr_assert_lt(
                fv_kv_packed_of(p.kv, l, FV_SEG_TEXT)->part[FV_PACKED_K].shape.lowrank.rank, 80);
            cr_assert_leq(share * share, 0.2 * 1.05, "turn %d, layer %d: %g", turn, l,
                          share * share);
        }
    }
    tiny_prompt_free(&truth);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* ---- when ---------------------------------------------------------------------------- */

/* Returns how many layers are factored after a text prompt of n tokens and `more`. */
static int32_t layers_done(const char *policy, int32_t n, int32_t more) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, 0, 0, n, 11, policy);
    ok(tiny_prefill(&net, &p, 1, 0));
    say(&net, &p, 0, more, more);
    size_t held = rows_bytes(p.kv);
    fv_recompress_report r = recompress(&net, p.kv, policy);
    cr_assert_eq(held - rows_bytes(p.kv), r.bytes);
    cr_assert_eq(r.bytes > 0, r.n_layer > 0);
    cr_assert_eq(r.rows > 0, r.n_layer > 0);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
    return r.n_layer;
}

Test(recompress, it_runs_once_enough_tokens_wait) {
    const char *at_64 = "pack=svd,gain=0,recompress=64" KEYS "12";
    cr_assert_eq(layers_done(at_64, 130, 63), 0);
    cr_assert_eq(layers_done(at_64, 130, 64), LAYERS);
    cr_assert_eq(layers_done(at_64, 130, 100), LAYERS);
    cr_assert_eq(layers_done("pack=svd,gain=0" KEYS "12", 130, 200), 0, "0: never");
    cr_assert_eq(layers_done("", 130, 200), 0);
}

/* 80 tokens of 48 numbers are 3 840; at rank 20, 20 (80 + 48) = 2 560. */
Test(recompress, a_prompt_that_was_too_short_is_packed_when_its_text_has_grown) {
    cr_assert_eq(layers_done("pack=svd,gain=1.5,recompress=20" KEYS "20", 20, 40), 0);
    cr_assert_eq(layers_done("pack=svd,gain=1.5,recompress=20" KEYS "20", 20, 60), LAYERS);
    cr_assert_eq(layers_done("pack=svd,gain=1.6,recompress=20" KEYS "20", 20, 60), 0);
}

/* At rank 48 a whole page of keys becomes larger: 48 (8 + 64 + 48) numbers, in tiles, instead of 8
 * (8 + 48) and 64 * 48. */
Test(recompress, it_is_not_done_where_it_would_take_more) {
    cr_assert_eq(layers_done("pack=svd,gain=0,recompress=1" KEYS "48", 8, 64), 0);
    cr_assert_eq(layers_done("pack=svd,gain=0,recompress=1" KEYS "12", 8, 64), LAYERS);
}

/* ---- independence of everything else ------------------------------------------------- */

static const char *const many[] = {
    LOW,
    LOW ",bits=8",
    LOW ",bits=4,block=64",
    "pack=svd,rank_k=9,rank_v=9,gain=0,energy=0.8,recompress=1" KEYS "16",
    LOW ",first=packed;expand=attention",
    "prune=visipruner,shallow=2,kv_shallow=drop;" LOW,
    "lazy=vla,map=given,blocks=1-3;" LOW,
    "lazy=gla,map=given,blocks=0-1/2-3;" LOW ",first=packed",
    "select=csp,heads=shared,heavy=0.3,recent=0.1;" LOW,
    LOW ";expand=attention;evict=vta,tau=5,order=ema,layer=1,shallow=rank_by_first_tap",
};
enum { MANY = sizeof many / sizeof many[0] };

/* Fills the pool to the last byte, as other requests would. */
static void fill_pool(fv_kv_pool *pool, size_t limit, fv_kv **other) {
    ok(fv_kv_open(pool, other));
    ok(fv_kv_reserve_bytes(*other, limit - fv_kv_pool_used(pool)));
    cr_assert_eq(fv_kv_reserve_bytes(*other, 1), FV_EBUSY);
}

/* The same conversation twice: in one process, alone, in whole turns, with enough memory; and after
 * a hand-off, batched with others, in pieces, in a full pool. */
Test(recompress, the_same_turns_have_the_same_bits_wherever_they_run) {
    enum { LIMIT = 4 << 20 };
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16, FV_F16};
    for (int i = 0; i < MANY; i++) {
        handoff_rig rig;
        tiny_prompt p, there, oob;
        fv_received got;
        float logits[VOCAB];
        rig_open(&rig, &(rig_options){.dtype = dtypes[i % 3], .pool_bytes = LIMIT});
        start(&rig.net, &p, many[i]);
        tiny_prompt_make(&rig.net, &oob, 3, 20, 9, 5, "prune=vtw,layer=1");
        ok(tiny_prefill(&rig.net, &oob, 1, 0));
        ok(rig_send(&rig, &p, 200, 1, &got, NULL));
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        for (int32_t turn = 0, at = 0; turn < 3; turn++, at += 50) {
            fv_kv *other;
            tiny_prompt *both[2] = {&oob, &there};
            int32_t last = (5 + (at + 49) * 29) % VOCAB;
            say(&rig.net, &p, at, 49, 49);
            say(&rig.net, &there, at, 49,
                strstr(many[i], "expand") ? 49 : 16); /* pieces are turns */
            tiny_prompt *one = &p;
            ok(tiny_step(&rig.net, &one, 1, &last, 1, at + 49));
            ok(tiny_step(&rig.net, both, 2, &last, 1, at + 49));
            cr_assert(same_bits(p.logits, logits, VOCAB), "%s, turn %d", many[i], turn);
            fv_recompress_report a = recompress(&rig.net, p.kv, many[i]);
            fv_kv_release_unused(got.kv,
                                 0); /* as at the end of a turn, before other requests start */
            fill_pool(rig.pool, LIMIT, &other);
            fv_recompress_report b = recompress(&rig.net, got.kv, many[i]);
            fv_kv_close(other);
            cr_assert_gt(a.n_layer, 0, "%s", many[i]);
            cr_assert(a.n_layer == b.n_layer && a.rows == b.rows && a.error == b.error, "%s",
                      many[i]);
            cr_assert(same_store(p.kv, got.kv), "%s, turn %d", many[i], turn);
            cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_bytes_held(got.kv));
            cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        }
        fv_received_free(&got);
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
        tiny_prompt_free(&p);
        tiny_prompt_free(&oob);
        cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0);
        rig_close(&rig);
    }
}

/* A worker was lost in the middle of an answer: another one prefills the prompt and the tokens so
 * far, and its turn ends with the same tokens. */
Test(recompress, a_resumed_answer_ends_with_the_same_tokens) {
    enum { SAID = 20 };
    int32_t said[SAID];
    for (int32_t i = 0; i < SAID; i++) said[i] = (5 + i * 29) % VOCAB; /* as say() does */
    for (int i = 0; i < MANY - 1; i++) { /* the last one evicts tokens as the answer grows */
        tiny_net net;
        tiny_prompt p, again;
        tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
        start(&net, &p, many[i]);
        say(&net, &p, 0, SAID, 1);
        tiny_prompt_again(&net, &again, &p, many[i], said, SAID);
        ok(tiny_prefill(&net, &again, 1, 7));
        cr_assert_gt(recompress(&net, p.kv, many[i]).n_layer, 0, "%s", many[i]);
        recompress(&net, again.kv, many[i]);
        cr_assert(same_store(p.kv, again.kv), "%s", many[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&again);
        tiny_net_close(&net);
    }
}

/* Twelve turns of 64 tokens: each frees whole pages, and memory grows by factors alone. */
Test(recompress, pages_go_back_to_the_pool) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, 0, 0, TEXT, 11, LOW);
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int32_t turn = 0, at = 0; turn < 12; turn++, at += 64) {
        say(&net, &p, at, 64, 64);
        size_t used = fv_kv_pool_used(net.pool), tables = fv_kv_packed_tables(p.kv);
        fv_recompress_report r = recompress(&net, p.kv, LOW);
        /* keys of 64 tokens at rank 12 for 48 channels; values are still uncompressed */
        cr_assert_eq(r.bytes, (size_t)LAYERS * 64 * (48 - 12) * sizeof(float));
        tables = fv_kv_packed_tables(p.kv) - tables;
        cr_assert_eq(used - fv_kv_pool_used(net.pool), r.bytes - tables);
        cr_assert_eq(fv_kv_bytes_held(p.kv),
                     fv_kv_bytes(p.kv, FV_SEG_TEXT) + fv_kv_packed_tables(p.kv), "no page is left");
    }
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

Test(recompress, tokens_that_cannot_be_factored_stay_uncompressed) {
    tiny_net net;
    tiny_prompt p;
    void *at;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    start(&net, &p, LOW);
    say(&net, &p, 0, 64, 64);
    fv_kv_contiguous(p.kv, 2, 1, FV_SEG_TEXT, false, 5, 64, &at);
    ((float *)at)[3] = INFINITY;
    fv_recompress_report r = recompress(&net, p.kv, LOW);
    cr_assert_eq(r.n_layer, LAYERS - 1);
    cr_assert_eq(fv_kv_len(p.kv, 2, 0, FV_SEG_TEXT), 64);
    cr_assert_eq(fv_kv_packed_of(p.kv, 2, FV_SEG_TEXT)->rows.n, TEXT);
    cr_assert_eq(fv_kv_packed_of(p.kv, 3, FV_SEG_TEXT)->rows.n, TEXT + 64);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}
