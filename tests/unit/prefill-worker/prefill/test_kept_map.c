/* prefill-worker/prefill/kept_map.c: the tokens that a prefill kept, as sets, and the scores that
 * chose them. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/client/remote.h"
#include "prefill-worker/prefill/kept_map.h"
#include "tests/support/tiny_net.h"

enum { VISUAL = 12, BEFORE = 5 };

typedef struct rig {
    tiny_net net;
    tiny_prompt p;
    fv_arena arena;
    fv_kept_map_watch *watch;
    fv_kept_map kept;
} rig;

static void run(rig *r, const char *policy) {
    *r = (rig){.kept = {0}};
    tiny_net_open(&r->net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&r->net, &r->p, BEFORE, VISUAL, 9, 11, policy);
    cr_assert_eq(fv_kept_map_begin(&r->arena, r->p.seg, r->p.n, NULL, &r->watch), FV_OK);
    r->p.watch = r->watch;
    cr_assert_eq(tiny_prefill(&r->net, &r->p, 1, 7), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_kept_map_end(r->watch, r->p.kv, &r->kept), FV_OK);
}

static void over(rig *r) {
    fv_arena_fini(&r->arena);
    tiny_prompt_free(&r->p);
    tiny_net_close(&r->net);
}

/* Every set is what the KV holds, and the layers are complete. */
static void same_as_store(const rig *r) {
    int32_t next = 0;
    for (int32_t i = 0; i < r->kept.n_group; i++) {
        const fv_kept_map_group *g = &r->kept.group[i];
        cr_assert_eq(g->layer, next);
        next += g->n_layer;
        for (int32_t l = g->layer; l < next; l++) {
            uint8_t heads[VISUAL] = {0};
            for (int32_t h = 0; h < r->kept.n_kv; h++) {
                const int32_t *pos = fv_kv_positions(r->p.kv, l, h, FV_SEG_VISUAL);
                for (int32_t k = 0; k < fv_kv_len(r->p.kv, l, h, FV_SEG_VISUAL); k++)
                    heads[pos[k] - BEFORE]++;
            }
            cr_assert_eq(memcmp(heads, g->heads, VISUAL), 0, "layer %d", l);
        }
    }
    cr_assert_eq(next, fv_kv_get_shape(r->p.kv)->n_layer);
}

Test(kept_map, exact_is_one_set_of_all_tokens_and_no_ranking) {
    rig r;
    run(&r, "");
    same_as_store(&r);
    cr_assert_eq(r.kept.n_visual, VISUAL);
    cr_assert_eq(r.kept.n_group, 1);
    cr_assert_null(r.kept.group[0].score);
    for (int32_t i = 0; i < VISUAL; i++) cr_assert_eq(r.kept.group[0].heads[i], r.kept.n_kv);
    over(&r);
}

Test(kept_map, a_pruner_gives_a_set_for_each_phase_with_the_scores_that_chose_it) {
    rig r;
    run(&r, "prune=fastv,layer=2,keep=0.5");
    same_as_store(&r);
    cr_assert_eq(r.kept.n_group, 2);
    const fv_kept_map_group *g = &r.kept.group[1];
    cr_assert_not_null(g->score);
    uint8_t best = 0, least_kept = 255, most_dropped = 0;
    for (int32_t i = 0; i < VISUAL; i++) {
        uint8_t s = g->score[i];
        cr_assert_gt(s, 0, "every row was there when they were ranked");
        if (s > best) best = s;
        if (g->heads[i] && s < least_kept) least_kept = s;
        if (!g->heads[i] && s > most_dropped) most_dropped = s;
    }
    cr_assert_eq(best, 255);
    cr_assert_geq(least_kept, most_dropped, "what stayed was ranked higher");
    over(&r);
}

Test(kept_map, a_token_pruned_before_a_ranking_has_no_score_in_it) {
    rig r;
    run(&r, "prune=pvtp,layer=1,stride=1,first=0.25,ratio=0.25");
    same_as_store(&r);
    cr_assert_geq(r.kept.n_group, 3);
    const fv_kept_map_group *a = &r.kept.group[1], *b = &r.kept.group[2];
    for (int32_t i = 0; i < VISUAL; i++) cr_assert_eq(b->score[i] == 0, a->heads[i] == 0);
    over(&r);
}

Test(kept_map, heads_that_differ_are_counted) {
    rig r;
    run(&r, "select=streaming,sink=2,recent=0.5,full_heads=0.5");
    same_as_store(&r);
    cr_assert_eq(r.kept.n_group, 1);
    bool all = false, half = false;
    for (int32_t i = 0; i < VISUAL; i++) {
        all |= r.kept.group[0].heads[i] == r.kept.n_kv;
        half |= r.kept.group[0].heads[i] == r.kept.n_kv / 2;
    }
    cr_assert(all && half);
    over(&r);
}

Test(kept_map, a_prompt_without_images_is_one_empty_set) {
    rig r = {.kept = {0}};
    tiny_net_open(&r.net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&r.net, &r.p, 4, 0, 0, 3, "");
    cr_assert_eq(fv_kept_map_begin(&r.arena, r.p.seg, r.p.n, NULL, &r.watch), FV_OK);
    cr_assert_eq(tiny_prefill(&r.net, &r.p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_kept_map_end(r.watch, r.p.kv, &r.kept), FV_OK);
    cr_assert_eq(r.kept.n_visual, 0);
    cr_assert_eq(r.kept.n_group, 1);
    over(&r);
}

/* Tokens 3 and 1 of an image of four, and one made of the others: the overlay shows four. */
Test(kept_map, condensed_tokens_are_shown_at_their_source) {
    static const uint8_t seg[] = {FV_SEG_TEXT, FV_SEG_VISUAL, FV_SEG_VISUAL, FV_SEG_VISUAL,
                                  FV_SEG_TEXT};
    static const int32_t source[] = {3, 1, -1}, pos[] = {1, 2, 3};
    static const float attention[] = {1, 4, 2};
    fv_kept_map_rows rows = {4, source};
    fv_arena arena = {0};
    fv_kept_map_watch *watch;
    fv_kv_pool *pool;
    fv_kv *kv;
    fv_kept_map kept;
    fv_kv_shape shape = {.n_layer = 2, .n_kv = 2, .d_head = 4, .dtype = FV_F32};
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool), FV_OK);
    cr_assert_eq(fv_kv_open(pool, &kv), FV_OK);
    for (int32_t l = 0; l < 2; l++) {
        cr_assert_eq(fv_kv_extent(kv, l, 3 - l), FV_OK);
        cr_assert_eq(fv_kv_append(kv, l, FV_SEG_VISUAL, pos + l, 3 - l), FV_OK);
    }
    cr_assert_eq(fv_kept_map_begin(&arena, seg, 5, &rows, &watch), FV_OK);
    cr_assert_eq(fv_kept_map_ranked(watch, 0, attention, pos, 3), FV_OK);
    cr_assert_eq(fv_kept_map_end(watch, kv, &kept), FV_OK);
    cr_assert(kept.n_visual == 4 && kept.n_group == 2);
    cr_assert_eq(memcmp(kept.group[0].heads, (uint8_t[]){0, 2, 0, 2}, 4), 0);
    cr_assert_eq(memcmp(kept.group[1].heads, (uint8_t[]){0, 2, 0, 0}, 4), 0);
    cr_assert(kept.group[1].score[1] == 255 && kept.group[1].score[3] > 0);
    cr_assert(kept.group[1].score[0] == 0 && kept.group[1].score[2] == 0);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
    fv_arena_fini(&arena);
}

/* ---- over the network ------------------------------------------------------------------- */

Test(kept_map, sets_that_do_not_fit_together_are_broken_messages) {
    uint8_t bytes[4] = {1, 2, 2, 1};
    uint32_t rows[3] = {4, 4, 4};
    Fovea__Inference__V1__KeptTokens a = FOVEA__INFERENCE__V1__KEPT_TOKENS__INIT, b = a;
    Fovea__Inference__V1__KeptTokens *list[2] = {&a, &b};
    Fovea__Inference__V1__Report m = FOVEA__INFERENCE__V1__REPORT__INIT;
    fv_arena arena = {0};
    fv_kept_map kept;
    a.n_layer = 1;
    b.layer = 1;
    b.n_layer = 2;
    a.heads = b.heads = b.score = (ProtobufCBinaryData){4, bytes};
    m.n_visual = 2;
    m.n_encoded = 4;
    m.n_visual_tokens = 3;
    m.visual_tokens = rows;
    m.n_kept = 2;
    m.kept = list;
    cr_assert_eq(fv_kept_map_from_message(&m, &arena, &kept), FV_OK, "%s", fv_last_error());
    cr_assert(kept.n_group == 2 && !kept.group[0].score && kept.group[1].score == bytes);
    b.layer = 2;
    cr_assert_eq(fv_kept_map_from_message(&m, &arena, &kept), FV_EDATA);
    b.layer = 1;
    b.n_layer = 3;
    cr_assert_eq(fv_kept_map_from_message(&m, &arena, &kept), FV_EDATA,
                 "more layers than there are");
    b.n_layer = 2;
    b.score.len = 3;
    cr_assert_eq(fv_kept_map_from_message(&m, &arena, &kept), FV_EDATA, "a row without a score");
    m.n_kept = 0;
    cr_assert_eq(fv_kept_map_from_message(&m, &arena, &kept), FV_EDATA, "nothing came");
    fv_arena_fini(&arena);
}
