/* Eviction from latent layers: which rows stay in each layer of a group. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kv/packed.h"
#include "model/net/anneal.h"
#include "model/net/expand.h"
#include "model/net/unpack.h"
#include "tests/support/tiny_net.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9 };

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

/* Each layer has its own number of rows left, which are the first rows of the group's first
 * layer. */
static void assert_left(const fv_kv *kv, double share, const int32_t *had) {
    for (int32_t l = 0; l < 4; l++) {
        const fv_kv_packed *at = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        int32_t left = (int32_t)(share * had[l] + 1e-9);
        cr_assert_eq(at ? at->n_alive : 0, left, "layer %d has %d of %d", l, at ? at->n_alive : 0,
                     had[l]);
        if (!at) continue;
        const fv_kv_packed *lead = fv_kv_packed_of(kv, at->source_layer, FV_SEG_VISUAL);
        cr_assert(at->n_alive <= at->rows.n && at->rows.n <= lead->rows.n);
        cr_assert_eq(lead->part[FV_PACKED_K].shape.n, lead->rows.n);
        cr_assert(memcmp(at->pos, lead->pos, (size_t)at->rows.n * sizeof *at->pos) == 0);
        cr_assert(at == lead || at->part[FV_PACKED_K].base == lead->part[FV_PACKED_K].data);
    }
}

/* Evicts by rank, and by the importance of a group's rows together. */
Test(latent_leaves, layers_of_a_group_let_go_of_their_own_numbers) {
    for (int i = 0; i < 4; i++) {
        tiny_net net;
        tiny_prompt p;
        int32_t had[4], order = i % 2 ? FV_ANNEAL_IMPORTANCE : FV_ANNEAL_RANK;
        tiny_shape shape = tiny_shape_default();
        shape.latent_layers = i < 2 ? 2 : 4;
        tiny_net_open(&net, shape, FV_F32, NULL, 1);
        prefill(&net, &p,
                "prune=pvtp,layer=1,stride=8,first=0.4;pack=latent,budget=0.2;expand=attention;"
                "evict=vta,shallow=rank_by_first_tap");
        for (int32_t l = 0; l < 4; l++) had[l] = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL)->rows.n;
        size_t before = fv_kv_packed_bytes(p.kv, 0, FV_SEG_VISUAL);
        for (double share = 0.95; share > 0.1; share -= 0.17) {
            cr_assert_eq(fv_anneal(p.kv, share, (fv_anneal_order)order), FV_OK, "%s",
                         fv_last_error());
            assert_left(p.kv, share, had);
        }
        cr_assert_lt(fv_kv_packed_bytes(p.kv, 0, FV_SEG_VISUAL), before);
        cr_assert_eq(fv_anneal(p.kv, 0, (fv_anneal_order)order), FV_OK);
        for (int32_t l = 0; l < 4; l++) cr_assert_null(fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL));
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

/* The most important rows of either layer stay, and the second's are the first's first ones. */
Test(latent_leaves, the_important_rows_of_a_group_stay) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &p, "prune=fastv,layer=1,keep=0.5;pack=latent,budget=0.2;evict=importance");
    fv_kv_packed *at[2] = {fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL),
                           fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL)};
    int32_t few = at[1]->rows.n, wanted[4] = {at[0]->pos[few - 1], at[0]->pos[3],
                                              at[0]->pos[VISUAL - 1], at[0]->pos[few]};
    for (int32_t j = 0; j < VISUAL; j++) at[0]->importance[j] = 0.1f;
    for (int32_t j = 0; j < few; j++) at[1]->importance[j] = 0.1f;
    at[0]->importance[few - 1] = at[1]->importance[few - 1] = 9;
    at[1]->importance[3] = 8;
    at[0]->importance[VISUAL - 1] = 7;
    at[0]->importance[few] = 6;
    cr_assert_eq(fv_expand_keep(p.kv, 4.0 / VISUAL), FV_OK, "%s", fv_last_error());
    cr_assert(at[0]->rows.n == 4 && at[1]->rows.n == 2, "%d and %d", at[0]->rows.n, at[1]->rows.n);
    for (int32_t j = 0; j < 4; j++) cr_assert_eq(at[0]->pos[j], wanted[j], "row %d", j);
    for (int32_t j = 0; j < 2; j++) cr_assert_eq(at[1]->pos[j], wanted[j], "row %d", j);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Eviction changes no bit of the remaining rows, until so few are left that they are rebuilt. */
Test(latent_leaves, rows_that_stay_keep_their_bits) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &p, "pack=latent,budget=0.1");
    int32_t W = net.cfg.n_kv * net.cfg.d_head, idx[VISUAL / 3];
    float *before[2], *now = malloc((size_t)W * 4);
    for (int k = 0; k < 2; k++) { /* both layers of the group */
        before[k] = malloc((size_t)(VISUAL * W) * 4);
        fv_latent_read(&fv_kv_packed_of(p.kv, 2 + k, FV_SEG_VISUAL)->part[FV_PACKED_V], 0, VISUAL,
                       before[k]);
    }
    for (int32_t i = 0; i < VISUAL / 3; i++) idx[i] = 3 * i + 1;
    cr_assert_eq(fv_kv_packed_keep(p.kv, 2, idx, VISUAL / 3), FV_OK);
    for (int k = 0; k < 2; k++) {
        const fv_kv_packed *at = fv_kv_packed_of(p.kv, 2 + k, FV_SEG_VISUAL);
        cr_assert_eq(at->rows.n, VISUAL / 3);
        for (int32_t i = 0; i < VISUAL / 3; i++) {
            fv_latent_read(&at->part[FV_PACKED_V], i, 1, now);
            cr_assert(memcmp(now, before[k] + (size_t)(idx[i] * W), (size_t)W * 4) == 0,
                      "layer %d, row %d", 2 + k, i);
        }
        free(before[k]);
    }
    cr_assert_eq(fv_kv_packed_keep(p.kv, 2, (int32_t[]){4}, 1), FV_OK);
    fv_rope rope;
    fv_rope_init(&rope, &net.cfg.rope, net.cfg.d_head);
    cr_assert_eq(fv_unpack(p.kv, &net.be, &rope), FV_OK, "%s", fv_last_error());
    free(now);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}
