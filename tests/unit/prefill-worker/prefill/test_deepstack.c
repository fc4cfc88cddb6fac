/* Deepstack: parts of the embeddings that are added after the first layers go with the tokens that
 * pruning keeps, in chunks and in batches. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "tests/support/evict.h"
#include "tests/support/tiny_net.h"

enum { VOCAB = 97, PARTS = 3 };
static const char *const layout = "t5 v35 t3 v24 t6";

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

typedef struct wide {
    tiny_prompt p;
    float *embeds; /* [visual tokens, PARTS * d] */
} wide;

static wide make(const tiny_net *net, const char *in_layout, const char *policy) {
    wide w;
    tiny_prompt_lay(net, &w.p, in_layout, 11, policy);
    size_t d = (size_t)net->cfg.d_model, n = (size_t)w.p.n_visual;
    w.embeds = malloc(n * PARTS * d * sizeof *w.embeds);
    cr_assert_not_null(w.embeds);
    for (size_t i = 0; i < n; i++)
        for (size_t part = 0; part < PARTS; part++)
            for (size_t c = 0; c < d; c++)
                w.embeds[(i * PARTS + part) * d + c] =
                    w.p.embeds[((i + 7 * part) % n) * d + c] * (part ? 0.5F : 1);
    return w;
}

static void run(tiny_net *net, wide *w, int32_t chunk) {
    ok(fv_kv_open(net->pool, &w->p.kv));
    fv_prefill_request req = {
        .n = w->p.n,
        .n_answer = w->p.n_answer,
        .ids = w->p.ids,
        .seg = w->p.seg,
        .rope_map = w->p.rope_map,
        .embeds = fv_tensor_of(w->embeds, FV_F32, w->p.n_visual, PARTS * net->cfg.d_model),
        .plan = &w->p.plan,
        .kv = w->p.kv,
        .packed = &w->p.packed};
    ok(fv_prefill_run(net->dec, &req, 1, &(fv_prefill_options){.chunk = chunk}, w->p.logits));
}

static void finish(wide *w) {
    free(w->embeds);
    tiny_prompt_free(&w->p);
}

/* Marks the visual tokens that the last layer holds. */
static void mark_kept(const wide *w, bool *kept) {
    const int32_t last = w->p.plan.shape.n_layer - 1;
    const int32_t *pos = fv_kv_positions(w->p.kv, last, 0, FV_SEG_VISUAL);
    const int32_t n = fv_kv_len(w->p.kv, last, 0, FV_SEG_VISUAL);
    for (int32_t i = 0, at = 0, row = 0; i < w->p.n && at < n; i++) {
        if (w->p.seg[i] != FV_SEG_VISUAL) continue;
        kept[row++] = pos[at] == i;
        at += pos[at] == i;
    }
}

/* Writes NaN into the parts added after layer 1, for tokens that were dropped before. */
static void spoil(const tiny_net *net, wide *w, const bool *kept) {
    const size_t d = (size_t)net->cfg.d_model;
    for (int32_t i = 0; i < w->p.n_visual; i++)
        for (size_t c = 0; !kept[i] && c < d; c++) w->embeds[((size_t)i * PARTS + 2) * d + c] = NAN;
}

Test(deepstack, parts_go_with_the_tokens_that_are_kept) {
    static const char *const policies[] = {"prune=grid,layer=1,keep=0.4",
                                           "prune=random,layer=1,keep=0.3",
                                           "prune=fastv,layer=1,keep=0.5"};
    tiny_net net;
    tiny_net_open(&net, tiny_shape_mrope(true), FV_F32, NULL, 1);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        wide a = make(&net, layout, policies[i]), b = make(&net, layout, policies[i]),
             c = make(&net, layout, policies[i]);
        bool kept[64] = {0};
        int32_t one = 0;
        cr_assert_leq(a.p.n_visual, 64);
        run(&net, &a, 0);
        mark_kept(&a, kept);
        while (!kept[one]) one++;
        spoil(&net, &b, kept);
        run(&net, &b, 5);
        cr_expect(same_bits(a.p.logits, b.p.logits, VOCAB), "%s", policies[i]);
        c.embeds[((size_t)one * PARTS + 2) * (size_t)net.cfg.d_model] += 1;
        run(&net, &c, 0);
        cr_expect_not(same_bits(a.p.logits, c.p.logits, VOCAB), "%s", policies[i]);
        finish(&a), finish(&b), finish(&c);
    }
    tiny_net_close(&net);
}

/* Prefills the prompt and tokens of its answer, which are text without added parts. */
Test(deepstack, a_resumed_answer_has_the_same_bits) {
    static const int32_t ids[] = {7, 1, 90};
    static const char *const policies[] = {"", "prune=fastv,layer=1,keep=0.5",
                                           "prune=grid,layer=2,keep=0.4;evict=vta,tau=6"};
    tiny_net net;
    tiny_net_open(&net, tiny_shape_mrope(true), FV_F32, NULL, 1);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        wide a, b;
        a = make(&net, "t5 v35 t6", policies[i]);
        run(&net, &a, 0);
        tiny_prompt *one = &a.p;
        fv_evict e;
        ok(evict_init(&e, policies[i], a.p.n));
        for (int32_t t = 0; t < 3; t++) {
            ok(fv_evict_step(&e, a.p.kv, t + 1));
            ok(tiny_step(&net, &one, 1, &ids[t], 1, t));
        }
        tiny_prompt_again(&net, &b.p, &a.p, policies[i], ids, 3);
        b.embeds = a.embeds;
        run(&net, &b, 9);
        cr_expect(same_bits(a.p.logits, b.p.logits, VOCAB), "%s", policies[i]);
        finish(&a);
        tiny_prompt_free(&b.p);
    }
    tiny_net_close(&net);
}

Test(deepstack, each_part_counts_and_keeping_all_is_exact) {
    tiny_net net;
    tiny_net_open(&net, tiny_shape_mrope(true), FV_F32, NULL, 1);
    wide exact = make(&net, layout, ""), all = make(&net, layout, "prune=fastv,layer=1,keep=1");
    run(&net, &exact, 0);
    run(&net, &all, 3);
    cr_expect(same_bits(exact.p.logits, all.p.logits, VOCAB));
    for (int part = 0; part < PARTS; part++) {
        wide other = make(&net, layout, "");
        other.embeds[part * net.cfg.d_model] += 1;
        run(&net, &other, 0);
        cr_expect_not(same_bits(exact.p.logits, other.p.logits, VOCAB), "part %d", part);
        finish(&other);
    }
    finish(&exact), finish(&all);
    tiny_net_close(&net);
}
