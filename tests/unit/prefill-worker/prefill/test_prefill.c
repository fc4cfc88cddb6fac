/* Prefill and decode over the tiny model: exact under batching, chunking, threads and paths, and
 * with the methods that make lengths ragged. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "tests/support/handoff.h"
#include "tests/support/latent.h"
#include "tests/support/policies.h"
#include "tests/support/thorough.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, STEPS = 3 };

/* exact, and policies of the whole table for these prompts */
static policies table;
static int32_t n_method; /* of them, exact and each method alone */

/* Deep enough for layers to form blocks under every map of the lazy stage, and with tokens beyond
 * the window. */
static tiny_shape deep(void) {
    tiny_shape s = tiny_shape_default();
    s.n_layer = 8;
    s.d_ffn = 24;
    s.window = 40;
    return s;
}

static void list_policies(void) {
    tiny_shape s = deep();
    fv_token_span image = {.first = BEFORE, .n = VISUAL, .t = 1, .h = 1, .w = VISUAL};
    fv_plan_shape shape = {.n_layer = s.n_layer,
                           .n_kv = s.n_kv,
                           .d_head = s.d_head,
                           .bytes_value = 4,
                           .n_visual = VISUAL,
                           .n_text = BEFORE + AFTER,
                           .n_span = 1,
                           .span = &image,
                           .latent_layers = LATENT_LAYERS,
                           .latent_rank = LATENT_RANK};
    table.n = 1;
    policies_add_methods(&table, &shape, false);
    n_method = table.n;
    policies_add_words(&table, &shape, false);
    policies_add_together(&table, &shape, false);
}

TestSuite(prefill, .init = list_policies);

/* Logits after prefill and after each of a few decode steps. */
typedef struct trail {
    float logits[STEPS + 1][97];
} trail;

/* The compute type of run_alone. Every test is a process of its own, so a test may set it. */
static fv_compute compute = FV_COMPUTE_F32;

static void run_alone(const char *policy, const char *isa, int32_t threads, int32_t chunk,
                      fv_dtype kv_dtype, trail *out) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, deep(), kv_dtype, isa, threads);
    net.be.compute = compute;
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, policy);
    cr_assert_eq(tiny_prefill(&net, &p, 1, chunk), FV_OK, "%s", fv_last_error());
    memcpy(out->logits[0], p.logits, sizeof out->logits[0]);
    for (int s = 0; s < STEPS; s++) {
        int32_t id = 13 + s;
        tiny_prompt *one = &p;
        cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, s), FV_OK);
        memcpy(out->logits[s + 1], p.logits, sizeof out->logits[0]);
    }
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

static void assert_same(const trail *a, const trail *b, const char *what, const char *policy) {
    for (int s = 0; s <= STEPS; s++)
        cr_assert(same_bits(a->logits[s], b->logits[s], 97), "%s changed step %d of '%s'", what, s,
                  policy);
}

typedef struct interruption {
    tiny_net *net;
    tiny_prompt other;
    int32_t n; /* times that it came */
} interruption;

/* Prefills another prompt in between, from beginning to end. */
static void interrupt(void *user) {
    interruption *i = user;
    void (*between)(void *) = i->net->prefill.between;
    i->net->prefill.between = NULL;
    tiny_prompt_make(i->net, &i->other, 3, 12, 4, 29 + i->n++, "");
    cr_assert_eq(tiny_prefill(i->net, &i->other, 1, 7), FV_OK, "%s", fv_last_error());
    tiny_prompt_free(&i->other);
    i->net->prefill.between = between;
}

static void run_interrupted(const char *policy, trail *out) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, deep(), FV_F32, "auto", 1);
    interruption i = {.net = &net};
    net.prefill.between = interrupt;
    net.prefill.user = &i;
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, policy);
    cr_assert_eq(tiny_prefill(&net, &p, 1, 16), FV_OK, "%s", fv_last_error());
    cr_assert_gt(i.n, 4, "%d", i.n);
    *out = (trail){0};
    memcpy(out->logits[0], p.logits, sizeof out->logits[0]);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(prefill, prompts_that_run_between_the_passes_of_another_change_no_bit_of_it) {
    static trail alone, interrupted;
    for (int32_t i = 0; i < n_method; i++) {
        run_alone(table.text[i], "auto", 1, 0, FV_F32, &alone);
        run_interrupted(table.text[i], &interrupted);
        cr_assert_eq(memcmp(alone.logits[0], interrupted.logits[0], sizeof alone.logits[0]), 0,
                     "%s", table.text[i]);
    }
}

Test(prefill, chunk_size_changes_no_bit) {
    static const int32_t chunks[] = {1, 7, 33, 64};
    for (int i = 0; i < table.n; i += thorough() ? 1 : 3) {
        trail whole, cut;
        run_alone(table.text[i], NULL, 1, 0, FV_F32, &whole);
        run_alone(table.text[i], NULL, 1, chunks[i % 4], FV_F32, &cut);
        assert_same(&whole, &cut, "the chunk size", table.text[i]);
    }
}

/* The number of final layers at each report. */
typedef struct groups {
    const tiny_prompt *p;
    int32_t n, upto[8];
    size_t rows[8];
} groups;

static fv_status note_group(void *user, int32_t n_layer) {
    groups *g = user;
    for (int32_t l = 0; l < n_layer; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            g->rows[g->n] += (size_t)fv_kv_len(g->p->kv, l, 1, (fv_kv_segment)seg);
    g->upto[g->n++] = n_layer;
    return FV_OK;
}

static size_t rows_below(const tiny_prompt *p, int32_t n_layer) {
    groups g = {.p = p};
    cr_assert_eq(note_group(&g, n_layer), FV_OK);
    return g.rows[0];
}

/* Layers in the same group as the one before. */
static int32_t joined_layers(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        n += plan->share.source_layer[l] != l || fv_plan_pair(plan, l) != l;
    return n;
}

Test(prefill, groups_of_layers_change_no_bit_and_are_final_when_they_are_said_to_be) {
    for (int i = 0; i < table.n; i += thorough() ? 1 : 4) {
        int32_t group = 1 + i % 3;
        tiny_net net;
        tiny_prompt whole, cut;
        groups g = {.p = &cut};
        tiny_net_open(&net, deep(), FV_F32, NULL, 2);
        tiny_prompt_make(&net, &whole, 5, VISUAL, 9, 11, table.text[i]);
        tiny_prompt_make(&net, &cut, 5, VISUAL, 9, 11, table.text[i]);
        cr_assert_eq(tiny_prefill(&net, &whole, 1, 0), FV_OK);
        net.prefill = (fv_prefill_options){.group = group, .final = note_group, .user = &g};
        cr_assert_eq(tiny_prefill(&net, &cut, 1, 16), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(whole.logits, cut.logits, 97), "'%s' by %d", table.text[i], group);
        cr_assert(same_store(whole.kv, cut.kv), "'%s' by %d", table.text[i], group);
        cr_assert_geq(g.n,
                      cut.plan.pack.first_packed || joined_layers(&cut.plan) > 1 ? 0
                      : group == 1                                               ? 2
                                                                                 : 1,
                      "'%s' by %d", table.text[i], group);
        for (int32_t k = 0; k < g.n; k++) {
            cr_assert(k == 0 || g.upto[k] > g.upto[k - 1]);
            cr_assert_lt(g.upto[k], net.cfg.n_layer);
            cr_assert_eq(fv_plan_pair(&cut.plan, g.upto[k]), g.upto[k], "a pair is cut");
            cr_assert_eq(g.rows[k], rows_below(&cut, g.upto[k]));
        }
        tiny_prompt_free(&whole);
        tiny_prompt_free(&cut);
        tiny_net_close(&net);
    }
}

static fv_status stop_at_two(void *user, int32_t n_layer) {
    (void)user;
    return n_layer < 2 ? FV_OK : FV_FAIL(FV_ECANCELLED, "enough");
}

Test(prefill, the_group_callback_can_end_the_run) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, deep(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, "");
    net.prefill = (fv_prefill_options){.group = 1, .final = stop_at_two};
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_ECANCELLED);
    cr_assert_gt(fv_kv_len(p.kv, 1, 0, FV_SEG_TEXT), 0);
    cr_assert_eq(fv_kv_len(p.kv, 2, 0, FV_SEG_TEXT), 0, "nothing is computed after it");
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(prefill, threads_change_no_bit) {
    for (int i = 0; i < table.n; i += thorough() ? 1 : 3) {
        trail one, many;
        run_alone(table.text[i], NULL, 1, 16, FV_F32, &one);
        run_alone(table.text[i], NULL, 2 + i % 2, 16, FV_F32, &many);
        assert_same(&one, &many, "the number of threads", table.text[i]);
    }
}

static bool runs_here(const char *isa) {
    fv_backend be;
    fv_backend_options opt = {.n_threads = 1, .isa = isa};
    if (fv_backend_open(&be, "cpu", &opt) != FV_OK) {
        fprintf(stderr, "skip: %s: %s\n", isa, fv_last_error());
        return false;
    }
    fv_backend_close(&be);
    return true;
}

Test(prefill, every_cpu_path_gives_the_same_bits) {
    static const char *const paths[] = {"avx2", "avx512", "avx512bf16"};
    for (int i = 0; i < n_method; i += thorough() ? 1 : 3) {
        trail plain, fast;
        run_alone(table.text[i], "plain", 2, 32, FV_BF16, &plain);
        for (int k = 0; k < 3; k++) {
            if (!runs_here(paths[k])) continue;
            run_alone(table.text[i], paths[k], 2, 32, FV_BF16, &fast);
            assert_same(&plain, &fast, paths[k], table.text[i]);
        }
    }
}

Test(prefill, in_bf16_too_paths_chunks_and_threads_change_no_bit) {
    static const char *const paths[] = {"plain", "avx2", "avx512", "avx512bf16"};
    static const int32_t chunks[] = {1, 7, 33, 64};
    trail f32, best, other;
    run_alone("", NULL, 1, 0, FV_BF16, &f32);
    compute = FV_COMPUTE_BF16;
    run_alone("", NULL, 1, 0, FV_BF16, &best);
    cr_assert(!same_bits(f32.logits[0], best.logits[0], 97), "it was computed in f32");
    for (int i = 0; i < table.n; i += thorough() ? 1 : 7) {
        if (!runs_here(paths[i % 4])) continue;
        run_alone(table.text[i], NULL, 1, 0, FV_BF16, &best);
        run_alone(table.text[i], paths[i % 4], 1 + i % 2, chunks[i % 4], FV_BF16, &other);
        assert_same(&best, &other, paths[i % 4], table.text[i]);
    }
}

/* Sixteen policies of the table, from the k-th on, each for a prompt of its own. */
static void make_sixteen(const tiny_net *net, tiny_prompt p[16], int32_t k) {
    for (int32_t b = 0; b < 16; b++)
        tiny_prompt_make(net, &p[b], 1 + b, b == 9 ? 0 : 20 + 5 * b, 2 + b % 5, 100 + (uint64_t)b,
                         table.text[(k + b) % table.n]);
}

Test(prefill, a_request_among_sixteen_gives_the_same_bits_as_alone) {
    tiny_net net;
    tiny_prompt batch[16], alone[16], *list[16];
    for (int32_t b = 0; b < 16; b++) list[b] = &batch[b];
    tiny_net_open(&net, deep(), FV_F32, NULL, 2);
    for (int32_t k = 0; k < table.n; k += 16) {
        make_sixteen(&net, batch, k);
        make_sixteen(&net, alone, k);
        cr_assert_eq(tiny_prefill(&net, batch, 16, 50), FV_OK, "%s", fv_last_error());
        for (int s = 0; s <= STEPS; s++) {
            int32_t id = 13 + s;
            for (int32_t b = 0; b < 16; b++) {
                tiny_prompt *one = &alone[b];
                cr_assert_eq(s ? tiny_step(&net, &one, 1, &id, 1, s - 1)
                               : tiny_prefill(&net, one, 1, 0),
                             FV_OK, "%s", fv_last_error());
            }
            if (s) cr_assert_eq(tiny_step(&net, list, 16, &id, 1, s - 1), FV_OK);
            for (int32_t b = 0; b < 16; b++)
                cr_assert(same_bits(alone[b].logits, batch[b].logits, 97), "step %d of '%s'", s,
                          table.text[(k + b) % table.n]);
        }
        for (int32_t b = 0; b < 16; b++) {
            tiny_prompt_free(&batch[b]);
            tiny_prompt_free(&alone[b]);
        }
    }
    tiny_net_close(&net);
}

Test(prefill, decoding_a_token_equals_a_prompt_that_is_one_longer) {
    static const char *const whole[] = {"", "lazy=vla,map=given,blocks=1-3",
                                        "lazy=gla,map=given,blocks=1-3"};
    for (int i = 0; i < 3; i++) {
        tiny_net net;
        tiny_prompt longer, p, *one = &p;
        tiny_net_open(&net, deep(), FV_F32, NULL, 2);
        tiny_prompt_make(&net, &longer, 5, VISUAL, 12, 11, whole[i]);
        tiny_prompt_make(&net, &p, 5, VISUAL, 12, 11, whole[i]);
        p.n -= 3;
        p.plan.shape.n_text -= 3;
        cr_assert_eq(tiny_prefill(&net, &longer, 1, 0), FV_OK);
        cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_OK);
        for (int s = 0; s < 3; s++)
            cr_assert_eq(tiny_step(&net, &one, 1, &longer.ids[p.n + s], 1, s), FV_OK);
        cr_assert(same_bits(longer.logits, p.logits, 97), "%s", whole[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&longer);
        tiny_net_close(&net);
    }
}

/* Logits of a row are those of the prompt that ends with it, whatever runs beside it; asking for them changes
 * nothing else. */
Test(prefill, logits_of_every_row_are_those_of_the_prompt_up_to_it) {
    static const int32_t chunks[] = {0, 1, 7};
    static float rows[(5 + VISUAL + 12) * 97];
    for (int c = 0; c < 3; c++) {
        tiny_net net;
        tiny_prompt p[2], shorter;
        tiny_net_open(&net, deep(), FV_F32, NULL, 2);
        tiny_prompt_make(&net, &p[0], 5, VISUAL, 12, 11, "");
        tiny_prompt_make(&net, &p[1], 5, VISUAL, 9, 4, "");
        p[0].row_logits = rows;
        memset(rows, 0, sizeof rows);
        cr_assert_eq(tiny_prefill(&net, p, 2, chunks[c]), FV_OK);
        cr_assert(same_bits(p[0].logits, rows + (size_t)(p[0].n - 1) * 97, 97));
        for (int32_t n = p[0].n - 4; n <= p[0].n; n++) {
            tiny_prompt_make(&net, &shorter, 5, VISUAL, 12, 11, "");
            shorter.n = n;
            shorter.plan.shape.n_text -= p[0].n - n;
            cr_assert_eq(tiny_prefill(&net, &shorter, 1, 0), FV_OK);
            cr_assert(same_bits(shorter.logits, rows + (size_t)(n - 1) * 97, 97), "row %d", n - 1);
            tiny_prompt_free(&shorter);
        }
        tiny_prompt_free(&p[0]);
        tiny_prompt_free(&p[1]);
        tiny_net_close(&net);
    }
}

Test(prefill, a_step_of_several_tokens_equals_as_many_steps_of_one) {
    for (int i = 0; i < table.n; i += thorough() ? 1 : 3) {
        tiny_net net;
        tiny_prompt p, q, *a = &p, *b = &q;
        int32_t ids[5] = {3, 1, 4, 1, 5};
        tiny_net_open(&net, deep(), FV_F16, NULL, 2);
        tiny_prompt_make(&net, &p, 5, VISUAL, 60, 11, table.text[i]);
        tiny_prompt_make(&net, &q, 5, VISUAL, 60, 11, table.text[i]);
        cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_OK);
        cr_assert_eq(tiny_prefill(&net, &q, 1, 0), FV_OK);
        cr_assert_eq(tiny_step(&net, &a, 1, ids, 5, 0), FV_OK);
        for (int s = 0; s < 5; s++) cr_assert_eq(tiny_step(&net, &b, 1, &ids[s], 1, s), FV_OK);
        /* Attention is accumulated step by step where tokens are read or evicted by it. */
        if (!p.plan.pack.observed && !p.plan.evict.accum.kind)
            cr_assert(same_bits(p.logits, q.logits, 97), "%s", table.text[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&q);
        tiny_net_close(&net);
    }
}

/* ---- the KV that methods leave --------------------------------------------------------- */

static void with_prompt(const char *policy, void (*check)(const tiny_prompt *p)) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, policy);
    cr_assert_eq(tiny_prefill(&net, &p, 1, 13), FV_OK, "%s", fv_last_error());
    check(&p);
    fv_plan_bytes bytes = fv_plan_count(&p.plan);
    size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
    cr_assert_eq(visual + fv_kv_bytes(p.kv, FV_SEG_TEXT), bytes.held, "what the plan says is held");
    cr_assert_leq(visual, bytes.visual);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

static void check_vtw(const tiny_prompt *p) {
    for (int32_t l = 0; l < 4; l++)
        for (int32_t g = 0; g < 2; g++) {
            cr_assert_eq(fv_kv_len(p->kv, l, g, FV_SEG_VISUAL), l < 2 ? VISUAL : 0);
            cr_assert_eq(fv_kv_len(p->kv, l, g, FV_SEG_TEXT), 14);
        }
}
Test(prefill, vtw_leaves_no_visual_token_from_its_layer_on) {
    with_prompt("prune=vtw,layer=2", check_vtw);
}

static void check_random(const tiny_prompt *p) {
    const int32_t *kept = fv_kv_positions(p->kv, 1, 0, FV_SEG_VISUAL);
    for (int32_t l = 0; l < 4; l++)
        for (int32_t g = 0; g < 2; g++) {
            int32_t n = fv_kv_len(p->kv, l, g, FV_SEG_VISUAL);
            cr_assert_eq(n, l < 1 ? VISUAL : 28);
            const int32_t *pos = fv_kv_positions(p->kv, l, g, FV_SEG_VISUAL);
            for (int32_t i = 0; i < n; i++) cr_assert(pos[i] >= 5 && pos[i] < 5 + VISUAL);
            for (int32_t i = 1; i < n; i++) cr_assert_gt(pos[i], pos[i - 1]);
            if (l >= 1) cr_assert_eq(memcmp(pos, kept, 28 * sizeof *pos), 0, "one subset");
        }
    cr_assert_gt(kept[27] - kept[0], 40, "spread over the image, not a block");
}
Test(prefill, random_keeps_one_subset_in_ascending_order) {
    with_prompt("prune=random,layer=1,keep=0.4,seed=3", check_random);
}

static void check_streaming(const tiny_prompt *p) {
    for (int32_t l = 0; l < 4; l++) {
        cr_assert_eq(fv_kv_len(p->kv, l, 0, FV_SEG_VISUAL), VISUAL, "a whole head");
        cr_assert_eq(fv_kv_len(p->kv, l, 0, FV_SEG_TEXT), 14);
        /* 84 tokens: 3 sinks and the last 21, of which 9 are text and 12 visual */
        cr_assert_eq(fv_kv_len(p->kv, l, 1, FV_SEG_TEXT), 12);
        cr_assert_eq(fv_kv_len(p->kv, l, 1, FV_SEG_VISUAL), 12);
        const int32_t *text = fv_kv_positions(p->kv, l, 1, FV_SEG_TEXT);
        const int32_t *visual = fv_kv_positions(p->kv, l, 1, FV_SEG_VISUAL);
        for (int32_t i = 0; i < 3; i++) cr_assert_eq(text[i], i);
        for (int32_t i = 3; i < 12; i++) cr_assert_eq(text[i], 75 + i - 3);
        for (int32_t i = 0; i < 12; i++) cr_assert_eq(visual[i], 63 + i);
    }
}
Test(prefill, streaming_keeps_sinks_and_recent_tokens_per_head) {
    with_prompt("select=streaming,sink=3,recent=0.25,full_heads=0.5", check_streaming);
}

/* Tokens, in units of a key or a value of one head: 4 layers of 2 heads. */
static size_t parts_held(const char *policy, int32_t visual) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, 5, visual, 9, 11, policy);
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_OK, "%s", fv_last_error());
    size_t bytes = fv_kv_bytes(p.kv, FV_SEG_VISUAL) + fv_kv_bytes(p.kv, FV_SEG_TEXT);
    cr_assert_eq(bytes, fv_plan_count(&p.plan).held);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
    return bytes / (24 * sizeof(float));
}

/* Saved KV: n / 2N of all under GLA, and of the image tokens' share under VLA. */
Test(prefill, lazy_layers_hold_the_bytes_of_the_formula) {
    size_t all = (size_t)2 * 4 * 2 * (VISUAL + 14), n = 2;
    cr_assert_eq(parts_held("", VISUAL), all);
    cr_assert_eq(parts_held("lazy=gla,map=given,blocks=1-3", VISUAL), all - all * n / 8);
    cr_assert_eq(parts_held("lazy=vla,map=given,blocks=1-3", VISUAL),
                 all - all * n / 8 * VISUAL / (VISUAL + 14));
}

Test(prefill, a_prompt_without_images_is_exact_under_vla_and_not_under_gla) {
    tiny_net net;
    tiny_prompt p[3];
    static const char *const text[] = {"", "lazy=vla,map=given,blocks=1-3",
                                       "lazy=gla,map=given,blocks=1-3"};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 3; i++) tiny_prompt_make(&net, &p[i], 20, 0, 9, 11, text[i]);
    cr_assert_eq(tiny_prefill(&net, p, 3, 0), FV_OK);
    cr_assert(same_bits(p[0].logits, p[1].logits, 97));
    cr_assert(strstr(p[1].plan.note[FV_STAGE_LAZY], "no image"));
    cr_assert_not(same_bits(p[0].logits, p[2].logits, 97));
    for (int i = 0; i < 3; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

static const char *const sharings[] = {
    "lazy=vla,map=given,blocks=0-3",
    "lazy=gla,map=given,blocks=0-3",
    "lazy=gla,map=given,blocks=1-3;select=streaming,sink=2,recent=0.3,full_heads=0",
    "lazy=vla,map=given,blocks=0-3;select=csp,heavy=0.3,recent=0.2,dup=official",
    "lazy=gla,map=given,blocks=1-3;select=csp,heavy=0.2,recent=0.1,heads=shared",
    "prune=visipruner,filter=0,l2=0.05;lazy=vla,map=given,blocks=0-3;evict=vta"};
enum { N_SHARING = sizeof sharings / sizeof sharings[0] };

/* Tokens of one request are pruned inside another's block: its queries are carried over. */
Test(prefill, other_requests_may_interrupt_a_block_at_any_chunk) {
    tiny_net net;
    tiny_prompt alone, p[3];
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
    for (int how = 0; how < N_SHARING; how++)
        for (int32_t chunk = 0; chunk <= 40; chunk += 20) {
            tiny_prompt_make(&net, &alone, 5, VISUAL, 9, 11, sharings[how]);
            tiny_prompt_make(&net, &p[0], 4, 30, 5, 7, "prune=grid,layer=2,keep=0.5");
            tiny_prompt_make(&net, &p[1], 5, VISUAL, 9, 11, sharings[how]);
            tiny_prompt_make(&net, &p[2], 4, 30, 5, 8, "prune=vtw,layer=3");
            cr_assert_eq(tiny_prefill(&net, &alone, 1, 0), FV_OK);
            cr_assert_eq(tiny_prefill(&net, p, 3, chunk), FV_OK, "%s", fv_last_error());
            cr_assert(same_bits(alone.logits, p[1].logits, 97), "%s by %d", sharings[how], chunk);
            cr_assert(same_store(alone.kv, p[1].kv), "%s by %d", sharings[how], chunk);
            tiny_prompt_free(&alone);
            for (int i = 0; i < 3; i++) tiny_prompt_free(&p[i]);
        }
    tiny_net_close(&net);
}

Test(prefill, identity_settings_change_no_bit) {
    static const char *const identity[] = {"prune=random,layer=1,keep=1",
                                           "prune=grid,layer=0,keep=1",
                                           "prune=fastv,layer=1,keep=1",
                                           "prune=pvtp,first=0,ratio=0",
                                           "prune=visipruner,shallow=0,cos=-1",
                                           "prune=pdrop,ratio=1",
                                           "prune=fitprune,target=given,schedule=0",
                                           "select=streaming,sink=0,recent=1,full_heads=0",
                                           "select=streaming,sink=0,recent=0.1,full_heads=1",
                                           "select=snapkv,heavy=0.4,recent=0.6",
                                           "select=snapkv,window=2,capacity=84",
                                           "select=h2o,heavy=0.99,recent=0.01",
                                           "select=roco,heavy=0.5,recent=0.5",
                                           "select=knorm,heavy=1",
                                           "select=lookm,heavy=0.9",
                                           "select=random,heavy=1",
                                           "select=csp,heavy=0.3,recent=0.7",
                                           "lazy=vla,map=given,blocks=0-0/2-2",
                                           "lazy=gla,map=given,blocks=1-1",
                                           "pack=svd,gain=1000;expand=attention;evict=importance"};
    trail exact, other;
    run_alone("", NULL, 2, 0, FV_F32, &exact);
    for (size_t i = 0; i < sizeof identity / sizeof identity[0]; i++) {
        run_alone(identity[i], NULL, 2, 0, FV_F32, &other);
        assert_same(&exact, &other, "an identity setting", identity[i]);
    }
}

Test(prefill, random_subset_follows_its_seed) {
    trail a, b;
    run_alone("prune=random,layer=1,keep=0.4,seed=3", NULL, 2, 0, FV_F32, &a);
    run_alone("prune=random,layer=1,keep=0.4,seed=4", NULL, 2, 0, FV_F32, &b);
    cr_assert_not(same_bits(a.logits[0], b.logits[0], 97));
}

Test(prefill, nan_in_one_prompt_stays_in_that_prompt) {
    tiny_net net;
    tiny_prompt p[2];
    trail alone;
    run_alone("", NULL, 1, 0, FV_F32, &alone);
    tiny_net_open(&net, deep(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p[0], 3, 20, 4, 1, "");
    tiny_prompt_make(&net, &p[1], 5, VISUAL, 9, 11, "");
    p[0].embeds[7] = NAN;
    cr_assert_eq(tiny_prefill(&net, p, 2, 0), FV_OK);
    cr_assert(isnan(p[0].logits[0]));
    cr_assert(same_bits(alone.logits[0], p[1].logits, 97));
    tiny_prompt_free(&p[0]);
    tiny_prompt_free(&p[1]);
    tiny_net_close(&net);
}

Test(prefill, a_prompt_that_ends_with_an_image_cannot_be_pruned) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, 3, 20, 0, 1, "prune=vtw,layer=1");
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_EINVAL);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(prefill, a_full_pool_refuses_and_releases_everything) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    fv_kv_pool *small;
    fv_kv_shape shape = {.n_layer = 4, .n_kv = 2, .d_head = 24, .dtype = FV_F32};
    cr_assert_eq(fv_kv_pool_open(net.be.device, &shape, 40000, &small), FV_OK);
    fv_kv_pool *big = net.pool;
    net.pool = small;
    tiny_prompt_make(&net, &p, 3, VISUAL, 4, 1, "");
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_EBUSY);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(small), 0);
    fv_kv_pool_close(small);
    net.pool = big;
    tiny_net_close(&net);
}
