/* compress_text=keys|all: text of the prompt and of the answer as codes (model/net/text_codes.h). The
 * plan, the KV after prefill, the wire, and the answer as it grows. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/text_codes.h"
#include "packed/text_codes.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"
#include "tests/support/packed_error.h"
#include "tests/support/planned.h"
#include "tests/support/stream.h"

enum { BEFORE = 20, VISUAL = 40, AFTER = 27, TEXT = BEFORE + AFTER, LAYERS = 4, ANSWER = 53 };

#define CODES "pack=quant,compress_text=all,bits_text=4,recompress=16"
#define KEYS "pack=quant,compress_text=keys,recompress=16"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- the plan ---------------------------------------------------------------------------- */

static const fv_plan_shape llava = {
    .n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 50, .d_head = 128, .bytes_value = 2};

Test(text_codes, the_plan_counts_codes_and_two_rows) {
    fv_token_span image = {.first = 5, .n = 576};
    fv_text_width w = {32, 128, FV_BF16};
    fv_plan_shape shape = llava;
    shape.n_span = 1;
    shape.span = &image;
    fv_plan off = plan_of("pack=quant", shape), on = plan_of(CODES, shape);
    cr_expect_eq(on.pack.text.bits, 4);
    cr_expect_eq(on.pack.text.again, 16);
    cr_expect_eq(fv_plan_count(&on).visual, fv_plan_count(&off).visual);
    cr_expect_eq(fv_plan_count(&on).held,
                 fv_plan_count(&on).visual +
                     32 * (fv_text_block_bytes(&on.pack.text, 48, &w, true) +
                           fv_text_row_bytes(2, &w, true)));
    cr_expect_gt(fv_plan_count(&on).tables, fv_plan_count(&off).tables);
    image.first = 50; /* all text is ahead of the prompt's last token */
    on = plan_of(CODES, shape);
    cr_expect_eq(fv_plan_count(&on).held,
                 fv_plan_count(&on).visual +
                     32 * (fv_text_block_bytes(&on.pack.text, 49, &w, true) +
                           fv_text_row_bytes(1, &w, true)));
}

Test(text_codes, periods_are_whole_tiles_and_text_alone_is_packed_too) {
    fv_plan_shape text = llava;
    text.n_visual = 0;
    fv_plan plan = plan_of("pack=quant,compress_text=keys,recompress=17", text);
    cr_expect(plan.pack.text.again == 32 && plan.pack.text.bits == 8 && !plan.pack.text.values);
    cr_expect(!plan.pack.any && fv_plan_packs_any(&plan) && fv_plan_sees_less(&plan));
    cr_expect(strstr(plan.note[FV_STAGE_PACK], "nothing to visual tokens here: the prompt has no"),
              "%s", plan.note[FV_STAGE_PACK]);
    plan = plan_of("pack=svd,compress_text=all,bits_text=4,recompress=48", text);
    cr_expect(plan.pack.text.bits == 4 && plan.pack.text.values && plan.pack.text_keys.rank == 0);
    cr_expect_eq(plan_of("pack=latent,compress_text=all,recompress=0", text).pack.text.again, 0);
    plan = plan_of("pack=latent,compress_text=all", llava);
    cr_expect(plan.pack.text.bits == 8 && plan.pack.text.again == 48);
    cr_expect(strstr(plan.note[FV_STAGE_PACK], "to visual tokens here: the checkpoint has no"),
              "%s", plan.note[FV_STAGE_PACK]);
}

Test(text_codes, a_bound_on_tokens_is_a_bound_on_bytes) {
    fv_plan_shape shape = llava;
    shape.n_text = 120;
    shape.text_bound = true;
    fv_plan most = plan_of(CODES, shape);
    shape.text_bound = false;
    for (shape.n_text = 0; shape.n_text <= 120; shape.n_text++) {
        fv_plan plan = plan_of(CODES, shape);
        cr_assert_leq(fv_plan_count(&plan).held, fv_plan_count(&most).held, "%d", shape.n_text);
    }
}

/* ---- the KV after prefill ---------------------------------------------------------------- */

static void start(tiny_net *net, tiny_prompt *p, int32_t visual, const char *policy,
                  int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, visual, AFTER, 11, policy);
    ok(tiny_prefill(net, p, 1, chunk));
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

Test(text_codes, text_but_for_its_first_and_last_token_is_codes) {
    static const char *const policies[] = {CODES, KEYS, "pack=latent,compress_text=all"};
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    start(&net, &raw, VISUAL, "", 0);
    for (int i = 0; i < 3; i++) {
        start(&net, &p, VISUAL, policies[i], i % 2 ? 7 : 0);
        cr_assert(same_bits(raw.logits, p.logits, 97), "the first token comes from the rows");
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_TEXT);
            cr_assert(at && !at->next && at->rows.n == TEXT - 2 && at->source_layer == l);
            cr_assert_eq(fv_kv_len(p.kv, l, 1, FV_SEG_TEXT), 2);
            const int32_t *pos = fv_kv_positions(p.kv, l, 1, FV_SEG_TEXT);
            cr_assert(pos[0] == 0 && pos[1] == p.n - 1);
            double k = packed_error(raw.kv, at, l, FV_PACKED_K, &net.cfg.rope);
            double v = packed_error(raw.kv, at, l, FV_PACKED_V, &net.cfg.rope);
            double said = (double)p.packed.layer[l].error_text;
            cr_assert_eq(p.packed.layer[l].code_text, i == 0 ? 4 : 8);
            cr_assert_float_eq(fmax(k, v), said, 1e-6, "layer %d: %g and %g, not %g", l, k, v,
                               said);
            cr_assert_lt(said, i == 0 ? 0.2 : 0.02);
            if (i == 1) cr_assert_eq(v, 0);
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

static const char *const many[] = {
    CODES,
    KEYS,
    "pack=quant,bits=4,compress_text=all,recompress=0",
    "pack=quant,compress_text=all,bits_text=4,recompress=32,first=packed",
    "pack=latent,compress_text=all,bits_text=4,recompress=16",
    "pack=svd,rank_k=9,rank_v=9,gain=0,compress_text=all,recompress=16;expand=attention",
    "lazy=vla,map=given,blocks=1-3;" CODES,
    "lazy=gla,map=given,blocks=0-1/2-3;" CODES ",first=packed",
    "lazy=gla,map=given,blocks=0-1/2-3;" KEYS,
    CODES ";evict=vta,tau=5,layer=1",
    "prune=visipruner,shallow=2,kv_shallow=drop;" CODES,
    "select=csp,heads=shared,heavy=0.3,recent=0.1;" CODES,
    "select=random,heads=shared,heavy=0.5;lazy=vla,map=given,blocks=1-3;" CODES ",first=packed",
};
enum { MANY = sizeof many / sizeof many[0] };

/* Tells whether a policy's bytes are exact: no number depends on data. */
static bool is_known(int i) { return i < 10; }

Test(text_codes, bytes_are_those_of_the_plan_in_the_pool_on_the_wire_and_where_they_arrive,
     .timeout = 240) {
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16, FV_F16};
    for (int i = 0; i < 3 * MANY; i++) {
        const char *policy = many[i / 3];
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = dtypes[i % 3]});
        start(&rig.net, &p, i % 2 ? VISUAL : 0, policy, 0);
        cr_assert_not_null(fv_kv_packed_of(p.kv, 2, FV_SEG_TEXT), "%s", policy);
        fv_plan_bytes plan = fv_plan_count(&p.plan);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL), text = fv_kv_bytes(p.kv, FV_SEG_TEXT);
        cr_assert_leq(visual + text, plan.held, "%s", policy);
        if (is_known(i / 3))
            cr_assert_eq(visual + text, plan.held, "%s: %zu", policy, visual + text);
        cr_assert_leq(fv_kv_packed_tables(p.kv), plan.tables, "%s", policy);
        cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(rig.net.pool));
        ok(rig_send(&rig, &p, ANSWER, 0, &got, NULL));
        cr_assert(same_store(p.kv, got.kv), "%s", policy);
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), visual);
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_TEXT), text);
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0);
        rig_close(&rig);
    }
}

/* ---- the answer -------------------------------------------------------------------------- */

static fv_text_codes text_of(const char *policy, int32_t n_prompt) {
    fv_policy p;
    fv_decode_plan plan;
    ok(fv_policy_parse(policy, &p));
    fv_decode_plan_make(&p, n_prompt, &plan);
    return (fv_text_codes){.rule = plan.text, .n_prompt = n_prompt};
}

static int32_t id_of(int32_t t) { return 13 + t * 7 % 80; }

/* Runs token t of the answer, counted from 0, as a decode worker does, batched with others. */
static void run(tiny_net *net, tiny_prompt **all, int32_t n, fv_text_codes *text, fv_evict *e,
                int32_t t) {
    int32_t id = id_of(t);
    tiny_prompt *p = all[0];
    ok(fv_text_codes_step(text, net->dec, p->kv, p->n + t));
    ok(fv_evict_step(e, p->kv, t + 1));
    ok(tiny_step(net, all, n, &id, 1, t));
}

Test(text_codes, each_period_adds_a_block_and_leaves_the_others_alone) {
    static const int32_t period[] = {0, 16, 32, 48};
    for (int i = 0; i < 4; i++) {
        tiny_net net;
        tiny_prompt p, *one = &p;
        fv_evict e;
        fv_text_codes text;
        char policy[128];
        void *was = NULL;
        size_t bytes = 0;
        snprintf(policy, sizeof policy, "pack=quant,compress_text=all,bits_text=4%s%d",
                 ",recompress=", period[i]);
        tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
        start(&net, &p, VISUAL, policy, 0);
        text = text_of(policy, p.n);
        ok(evict_init(&e, policy, p.n));
        fv_text_width w = {2, 24, FV_BF16};
        for (int32_t t = 0; t < ANSWER; t++) {
            run(&net, &one, 1, &text, &e, t);
            int32_t times = period[i] ? t / period[i] : 0;
            fv_text_held h = fv_text_storage(&text.rule, TEXT, t + 1, times, &w, true);
            cr_assert_eq(fv_kv_len(p.kv, 1, 0, FV_SEG_TEXT), h.raw, "at %d", t);
            cr_assert_eq(fv_kv_packed_bytes(p.kv, 1, FV_SEG_TEXT), h.codes);
            const fv_kv_packed *first = fv_kv_packed_of(p.kv, 1, FV_SEG_TEXT);
            if (!was) {
                bytes = fv_packed_bytes(&first->part[0].shape);
                was = malloc(bytes);
                memcpy(was, first->part[0].data, bytes);
            }
            cr_assert_eq(memcmp(was, first->part[0].data, bytes), 0);
        }
        cr_assert_eq(text.report.rows,
                     (uint64_t)(period[i] ? LAYERS * ((ANSWER - 1) / period[i]) * period[i] : 0));
        cr_assert_eq(text.report.n_layer, period[i] ? LAYERS : 0);
        free(was);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

/* Batched, in chunks, after a hand-off, and as an answer resumed after any of its tokens. */
Test(text_codes, an_answer_has_the_same_bits_wherever_it_runs, .timeout = 240) {
    for (int i = 0; i < MANY; i++) {
        handoff_rig rig;
        tiny_prompt p, oob[3], there, again, *one;
        fv_evict e[2];
        fv_received got;
        fv_text_codes text[2];
        float logits[97];
        int32_t visual = i % 2 ? VISUAL : VISUAL - 9, more[ANSWER];
        rig_open(&rig, &(rig_options){.dtype = FV_BF16});
        start(&rig.net, &p, visual, many[i], 0);
        tiny_prompt_make(&rig.net, &oob[0], BEFORE, visual, AFTER, 11, many[i]);
        tiny_prompt_make(&rig.net, &oob[1], 3, 20, 9, 5, "prune=vtw,layer=1");
        tiny_prompt_make(&rig.net, &oob[2], 40, 30, 50, 6, KEYS);
        ok(tiny_prefill(&rig.net, oob, 3, 16));
        cr_assert(same_store(p.kv, oob[0].kv), "%s", many[i]);
        ok(rig_send(&rig, &p, ANSWER, 1, &got, NULL));
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        for (int b = 0; b < 2; b++) {
            ok(evict_init(&e[b], many[i], p.n));
            text[b] = text_of(many[i], p.n);
        }
        tiny_prompt *all[3] = {&there, &oob[1], &oob[2]};
        for (int32_t t = 0; t < ANSWER; t++) {
            more[t] = id_of(t);
            one = &p;
            run(&rig.net, &one, 1, &text[0], &e[0], t);
            run(&rig.net, all, 3, &text[1], &e[1], t);
            cr_assert(same_bits(p.logits, logits, 97), "%s at %d", many[i], t);
            if (t % 8 && t % 16 != 15) continue;
            tiny_prompt_again(&rig.net, &again, &p, many[i], more, t + 1);
            ok(tiny_prefill(&rig.net, &again, 1, 7));
            cr_assert(same_bits(p.logits, again.logits, 97), "%s at %d", many[i], t);
            cr_assert(same_store(p.kv, again.kv), "%s at %d", many[i], t);
            fv_plan_bytes plan = fv_plan_count(&again.plan);
            size_t held = fv_kv_bytes(again.kv, FV_SEG_VISUAL) + fv_kv_bytes(again.kv, FV_SEG_TEXT);
            cr_assert_leq(held, plan.held, "%s at %d", many[i], t);
            if (is_known(i) && i != 9) cr_assert_eq(held, plan.held, "%s at %d", many[i], t);
            cr_assert_leq(fv_kv_packed_tables(again.kv), plan.tables, "%s at %d", many[i], t);
            tiny_prompt_free(&again);
        }
        cr_assert(same_store(p.kv, got.kv), "%s", many[i]);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        for (int b = 0; b < 3; b++) tiny_prompt_free(&oob[b]);
        rig_close(&rig);
    }
}

/* A pool of just the granted bytes holds the whole answer, resumed or not. */
Test(text_codes, an_answer_never_needs_more_than_was_granted, .timeout = 240) {
    for (int i = 0; i < 2 * MANY; i++) {
        const char *policy = many[i / 2];
        handoff_rig rig;
        tiny_prompt p, q, there, *one = &there;
        fv_evict e;
        fv_received got;
        float logits[97];
        int32_t done = i % 2 ? 21 : 0, more[ANSWER];
        rig_stream s;
        rig_open(&rig, &(rig_options){.dtype = FV_BF16});
        start(&rig.net, &p, VISUAL, policy, 0);
        for (int32_t t = 0; t < ANSWER; t++) more[t] = id_of(t);
        tiny_prompt_again(&rig.net, &q, &p, policy, more, done);
        ok(tiny_prefill(&rig.net, &q, 1, 0));
        rig_capture(&rig, &q, ANSWER - done, &s);
        size_t room = rig_room(&rig, &s);
        free(s.bytes);
        fv_kv_pool *whole = rig.pool;
        ok(rig_send(&rig, &q, ANSWER - done, 0, &got, NULL));
        fv_text_codes text = text_of(policy, p.n);
        ok(fv_text_codes_reserve(&text, got.kv, q.n, ANSWER - done));
        size_t set_aside = fv_kv_pool_used(whole);
        cr_assert_leq(set_aside, room, "%s", policy);
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        ok(evict_init(&e, policy, p.n));
        for (int32_t t = done; t < ANSWER; t++) {
            run(&rig.net, &one, 1, &text, &e, t);
            cr_assert_leq(fv_kv_pool_used(whole), set_aside, "%s at %d", policy, t);
        }
        fv_received_free(&got);
        tiny_prompt_free(&q);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

/* ---- refusals ---------------------------------------------------------------------------- */

static fv_status deliver(handoff_rig *rig, const rig_stream *s) {
    fv_received got = {0};
    fv_status st = rig_deliver(rig->receiver, &s->hello, s->bytes, s->n, 1000, &got);
    fv_received_free(&got);
    return st;
}

/* Delivers a stream with a change in the n-th text section of a type and correct checksums. */
static fv_status deliver_changed(handoff_rig *rig, const rig_stream *s, uint32_t which, int n,
                                 size_t at, uint32_t x) {
    rig_stream copy = *s;
    uint32_t type, length;
    copy.bytes = malloc(s->n);
    memcpy(copy.bytes, s->bytes, s->n);
    uint8_t *p = copy.bytes;
    for (;; p += FV_SECTION_HEADER + length) {
        memcpy(&type, p + 4, 4);
        memcpy(&length, p + 40, 4);
        if (type == which && n-- == 0) break;
    }
    memcpy(p + FV_SECTION_HEADER + at, &x, 4);
    rig_put_right(copy.bytes, copy.n, s->hello.compat.hash);
    fv_status st = deliver(rig, &copy);
    free(copy.bytes);
    return st;
}

Test(text_codes, sections_that_lie_about_text_are_refused) {
    enum {
        N_AT = 0,
        SOURCE_AT = 8,
        FLAGS_AT = 12,
        K_AT = 16,
        V_AT = 32,
        FIRST_AT = 52,
        POS_AT = 64
    };
    handoff_rig rig;
    tiny_prompt p, q;
    rig_stream s;
    int32_t more[40];
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    start(&rig.net, &p, 0, CODES, 0);
    for (int32_t t = 0; t < 40; t++) more[t] = id_of(t);
    tiny_prompt_again(&rig.net, &q, &p, CODES, more, 40);
    ok(tiny_prefill(&rig.net, &q, 1, 0));
    const fv_kv_packed *at = fv_kv_packed_of(q.kv, 0, FV_SEG_TEXT);
    cr_assert(at->next && at->next->next && !at->next->next->next);
    const struct {
        uint32_t type;
        int n; /* block, or section */
        size_t at;
        uint32_t x;
    } lies[] = {{FV_SECTION_PACKED, 0, N_AT, TEXT - 1}, {FV_SECTION_PACKED, 1, N_AT, 15},
                {FV_SECTION_PACKED, 0, SOURCE_AT, 1},   {FV_SECTION_PACKED, 0, FLAGS_AT, 0},
                {FV_SECTION_PACKED, 0, FLAGS_AT, 1},    {FV_SECTION_PACKED, 1, FLAGS_AT, 5},
                {FV_SECTION_PACKED, 0, K_AT, 4},        {FV_SECTION_PACKED, 0, K_AT + 8, 8},
                {FV_SECTION_PACKED, 0, V_AT + 8, 16},   {FV_SECTION_PACKED, 2, V_AT + 8, 8},
                {FV_SECTION_PACKED, 0, K_AT + 12, 1},   {FV_SECTION_PACKED, 0, FIRST_AT, 1},
                {FV_SECTION_PACKED, 1, POS_AT, 3},      {FV_SECTION_PACKED, 1, POS_AT, UINT32_MAX},
                {FV_SECTION_POSITIONS, 0, 0, 1},        {FV_SECTION_POSITIONS, 0, 4, 2},
                {FV_SECTION_ROWS, 0, 4, TEXT},          {FV_SECTION_ROWS, 0, 12, 3}};
    rig_capture(&rig, &q, ANSWER, &s);
    cr_assert_eq(deliver(&rig, &s), FV_OK, "as it was: %s", fv_last_error());
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fv_refusal why = fv_refusal_of(
            deliver_changed(&rig, &s, lies[i].type, lies[i].n, lies[i].at, lies[i].x));
        cr_assert(why == FV_REFUSED_MALFORMED || why == FV_REFUSED_OVER_BUDGET, "%zu: %s", i,
                  fv_refusal_name(why));
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    }
    free(s.bytes);
    tiny_prompt_free(&q);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

Test(text_codes, non_finite_tokens_end_their_request) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, BEFORE, VISUAL, AFTER, 11, "pack=latent,compress_text=all");
    p.embeds[40] = NAN;
    ok(tiny_prefill(&net, &p, 1, 0));
    cr_assert_eq(p.packed.status, FV_EINVAL);
    cr_assert(strstr(p.packed.text, "text keys of layer 1") ||
                  strstr(p.packed.text, "text values of layer 1"),
              "%s", p.packed.text);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}
