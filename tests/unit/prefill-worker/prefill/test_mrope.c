/* Positions in a grid (M-RoPE) through prefill and decoding. unit/policy tests every policy with
 * them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "kv/packed.h"
#include "tests/support/packed_error.h"
#include "tests/support/tiny_net.h"

enum { VOCAB = 97, STEPS = 4 };
static const char *const layout = "t5 v35 t3 v24 t6";

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void prefill(tiny_net *net, tiny_prompt *p, const char *in_layout, const char *policy,
                    int32_t chunk) {
    tiny_prompt_lay(net, p, in_layout, 11, policy);
    ok(tiny_prefill(net, p, 1, chunk));
}

Test(mrope, text_alone_has_the_bits_of_one_dimensional_positions) {
    tiny_net one, three;
    tiny_prompt a, b;
    tiny_net_open(&one, tiny_shape_default(), FV_F32, NULL, 1);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        tiny_net_open(&three, tiny_shape_mrope(interleaved), FV_F32, NULL, 1);
        prefill(&one, &a, "t20", "", 0);
        prefill(&three, &b, "t20", "", 0);
        cr_assert(same_bits(a.logits, b.logits, VOCAB));
        tiny_prompt_free(&a);
        tiny_prompt_free(&b);
        prefill(&one, &a, layout, "", 0);
        prefill(&three, &b, layout, "", 0);
        cr_assert_not(same_bits(a.logits, b.logits, VOCAB), "images make a difference");
        tiny_prompt_free(&a);
        tiny_prompt_free(&b);
        tiny_net_close(&three);
    }
    tiny_net_close(&one);
}

static void rotate_back(const fv_rope *rope, fv_rope_pos at, const float *k, double *out) {
    float c[FV_ROPE_MAX_HALF], s[FV_ROPE_MAX_HALF];
    fv_rope_angles(rope, &at, 1, c, s);
    for (int32_t i = 0; i < rope->half; i++) {
        double x = (double)k[i], y = (double)k[i + rope->half];
        out[i] = x * (double)c[i] + y * (double)s[i];
        out[i + rope->half] = y * (double)c[i] - x * (double)s[i];
    }
}

/* Layer 0 has the same keys before rotation, with either kind of position. */
Test(mrope, keys_are_rotated_by_their_places_in_the_grid) {
    tiny_net one, three;
    tiny_prompt a, b;
    fv_rope rope[2];
    int32_t d = tiny_shape_default().d_head;
    tiny_net_open(&one, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_net_open(&three, tiny_shape_mrope(true), FV_F32, NULL, 1);
    fv_rope_init(&rope[0], &one.cfg.rope, d);
    fv_rope_init(&rope[1], &three.cfg.rope, d);
    prefill(&one, &a, layout, "", 0);
    prefill(&three, &b, layout, "", 7);
    cr_assert_eq(b.rope_map.n_grid, 2);
    for (int seg = 0; seg < FV_N_SEG; seg++)
        for (int32_t j = 0; j < fv_kv_len(b.kv, 0, 1, (fv_kv_segment)seg); j++) {
            int32_t at = fv_kv_positions(b.kv, 0, 1, (fv_kv_segment)seg)[j];
            double x[2 * FV_ROPE_MAX_HALF], y[2 * FV_ROPE_MAX_HALF];
            void *k[2];
            fv_kv_contiguous(a.kv, 0, 1, (fv_kv_segment)seg, false, j, j + 1, &k[0]);
            fv_kv_contiguous(b.kv, 0, 1, (fv_kv_segment)seg, false, j, j + 1, &k[1]);
            rotate_back(&rope[0], (fv_rope_pos){at, at, at}, k[0], x);
            rotate_back(&rope[1], fv_rope_map_at(&b.rope_map, at), k[1], y);
            for (int32_t i = 0; i < d; i++) cr_assert_float_eq(x[i], y[i], 1e-5, "token %d", at);
        }
    tiny_prompt_free(&a);
    tiny_prompt_free(&b);
    tiny_net_close(&one);
    tiny_net_close(&three);
}

/* Positions of the answer go on from the greatest of the prompt, in decoding and in a resumed answer. */
Test(mrope, a_resumed_answer_and_decoding_have_the_same_bits) {
    static const int32_t ids[STEPS] = {7, 1, 90, 3};
    static const char *const policies[] = {
        "", "prune=fastv,layer=1,keep=0.5", "prune=pdrop,second=1,third=2,fourth=3",
        "pack=svd,rank_k=20,rank_v=20,gain=0;expand=attention,rank=0.5",
        "select=csp,heavy=0.3,recent=0.2"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        tiny_net net;
        tiny_prompt p, q, *one = &p;
        tiny_net_open(&net, tiny_shape_mrope(i % 2), FV_F32, NULL, 1);
        prefill(&net, &p, "t5 v35 t6", policies[i], 0);
        cr_assert_eq(p.rope_map.delta, 7 - 35);
        for (int32_t t = 0; t < STEPS; t++) {
            ok(tiny_step(&net, &one, 1, &ids[t], 1, t));
        }
        tiny_prompt_again(&net, &q, &p, policies[i], ids, STEPS);
        ok(tiny_prefill(&net, &q, 1, 9));
        cr_assert_eq(q.rope_map.delta, p.rope_map.delta);
        cr_assert(same_bits(p.logits, q.logits, VOCAB), "%s", policies[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&q);
        tiny_net_close(&net);
    }
}

Test(mrope, all_instruction_sets_have_the_same_bits) {
    static const char *const isa[] = {"plain", "avx2", "avx512", "avx512bf16"};
    tiny_net net;
    tiny_prompt want, p;
    tiny_net_open(&net, tiny_shape_mrope(true), FV_F32, isa[0], 1);
    prefill(&net, &want, layout, "", 0);
    for (int i = 1; i < 4; i++) {
        tiny_net other;
        fv_backend be;
        if (fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1, .isa = isa[i]}))
            continue; /* not on this CPU */
        fv_backend_close(&be);
        tiny_net_open(&other, tiny_shape_mrope(true), FV_F32, isa[i], 2);
        prefill(&other, &p, layout, "", 13);
        cr_assert(same_bits(want.logits, p.logits, VOCAB), "%s", isa[i]);
        tiny_prompt_free(&p);
        tiny_net_close(&other);
    }
    tiny_prompt_free(&want);
    tiny_net_close(&net);
}

/* A block's anchor is the triple of its first index: keys are relative to it alone. The second block
 * begins inside the first image, the fourth inside the second. */
Test(mrope, compressed_keys_are_relative_to_the_triple_of_their_block) {
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, tiny_shape_mrope(true), FV_F32, NULL, 1);
    prefill(&net, &raw, layout, "", 0);
    prefill(&net, &p, layout, "pack=svd,rank_k=48,rank_v=48,gain=0,block=16", 0);
    const fv_kv_packed *at = fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL);
    cr_assert_eq(at->rows.n, 59);
    for (int32_t a = 0; a < at->rows.n_anchor; a++) cr_assert_eq(at->anchor[a], 5 + 16 * a);
    cr_assert_lt(packed_error(raw.kv, at, 0, FV_PACKED_K, &net.cfg.rope), 1e-4);
    tiny_prompt_free(&p);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

static float most_off(const float *a, const float *b) {
    float most = 0;
    for (int32_t i = 0; i < VOCAB; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) most = fabsf(a[i] - b[i]);
    return most;
}

/* Stages that keep every token give exact's bits, except vta, which reorders tokens: it gives
 * exact's numbers. */
Test(mrope, what_keeps_every_token_is_exact) {
    static const int32_t ids[STEPS] = {7, 1, 90, 3};
    static const char *const policies[] = {
        "prune=fastv,layer=1,keep=1",    "prune=pdrop,second=1,third=2,fourth=3,ratio=1",
        "prune=random,layer=1,keep=1",   "prune=grid,layer=1,keep=1",
        "select=csp,heavy=1,recent=1",   "select=snapkv,heavy=1,recent=1",
        "select=h2o,heavy=1,recent=1",   "select=streaming,sink=100",
        "lazy=vla,map=given,blocks=1-1", "evict=vta,tau=100000",
        "prune=pvtp,first=0,ratio=0",    "prune=fitprune,target=given,schedule=0/0",
        "select=roco,heavy=1,recent=1",  "select=lookm,heavy=1,recent=1",
        "select=knorm,heavy=1,recent=1", "select=random,heavy=1,recent=1",
        "lazy=gla,map=given,blocks=2-2"};
    tiny_net net;
    tiny_net_open(&net, tiny_shape_mrope(true), FV_F32, NULL, 1);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        tiny_prompt exact, p, *both[2] = {&exact, &p};
        prefill(&net, &exact, layout, "", 0);
        prefill(&net, &p, layout, policies[i], 9);
        for (int32_t t = 0; t < STEPS; t++) {
            float off = most_off(exact.logits, p.logits);
            cr_assert(off <= (strncmp(policies[i], "evict", 5) ? 0 : 1e-4F), "%s at %d: %g",
                      policies[i], t, (double)off);
            ok(tiny_step(&net, both, 2, &ids[t], 1, t));
        }
        tiny_prompt_free(&exact);
        tiny_prompt_free(&p);
    }
    tiny_net_close(&net);
}

/* The remaining tokens of an image keep their places in it. */
Test(mrope, nothing_is_renumbered_in_a_grid) {
    for (int grid = 0; grid < 2; grid++) {
        tiny_net net;
        tiny_prompt as_planned, never;
        static const char pdrop[] = "prune=pdrop,second=1,third=2,fourth=3";
        tiny_net_open(&net, tiny_shape_either(grid), FV_F32, NULL, 1);
        prefill(&net, &as_planned, layout, pdrop, 0);
        tiny_prompt_lay(&net, &never, layout, 11, pdrop);
        cr_assert(never.plan.prune.renumbers);
        never.plan.prune.renumbers = false;
        ok(tiny_prefill(&net, &never, 1, 0));
        cr_assert_eq(same_bits(as_planned.logits, never.logits, VOCAB), grid);
        tiny_prompt_free(&as_planned);
        tiny_prompt_free(&never);
        tiny_net_close(&net);
    }
}
