/* Models whose last layers share keys and values, and which have per-layer embeddings (model/net/decoder.c,
 * layer_inputs.c): the same bits in chunks, groups of layers, batches and passes of some layers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_net.h"

enum { LAYERS = 4, SHARERS = 3, VOCAB = 97, WINDOW = 6 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void open_net(tiny_net *net) {
    tiny_shape shape = tiny_shape_default();
    shape.n_layer = LAYERS;
    shape.sharers = SHARERS;
    shape.window = WINDOW;
    tiny_net_open(net, shape, FV_BF16, NULL, 1);
    cr_assert_eq(fv_text_kv_layer(&net->cfg, LAYERS), LAYERS - 2);
    cr_assert_eq(fv_text_kv_layer(&net->cfg, LAYERS + 1), LAYERS - 1);
}

Test(sharers, a_prompt_has_the_same_bits_in_chunks_groups_and_among_others) {
    static const int32_t chunks[] = {1, 7, 33};
    tiny_net net;
    tiny_prompt one[3], cut[3];
    open_net(&net);
    for (int b = 0; b < 3; b++) {
        tiny_prompt_make(&net, &one[b], 4 + b, 20 * b, 9 - b, 5 + (uint64_t)b, "");
        ok(tiny_prefill(&net, &one[b], 1, 0));
    }
    for (int i = 0; i < 3; i++)
        for (net.prefill.group = 0; net.prefill.group < 3; net.prefill.group++) {
            for (int b = 0; b < 3; b++)
                tiny_prompt_make(&net, &cut[b], 4 + b, 20 * b, 9 - b, 5 + (uint64_t)b, "");
            ok(tiny_prefill(&net, cut, 3, chunks[i]));
            for (int b = 0; b < 3; b++) {
                cr_assert(same_bits(one[b].logits, cut[b].logits, VOCAB),
                          "prompt %d in chunks of %d, %d layers", b, chunks[i], net.prefill.group);
                tiny_prompt_free(&cut[b]);
            }
        }
    for (int b = 0; b < 3; b++) tiny_prompt_free(&one[b]);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

/* Row by row, a prompt gives what its beginnings give; so a row sees none after it. */
Test(sharers, all_rows_have_the_logits_of_the_prompt_that_ends_with_them) {
    enum { N = 14 };
    static float rows[N * VOCAB];
    tiny_net net;
    tiny_prompt p, begin;
    open_net(&net);
    for (int32_t chunk = 0; chunk < 7; chunk += 3) {
        tiny_prompt_make(&net, &p, N, 0, 0, 5, "");
        p.row_logits = rows;
        ok(tiny_prefill(&net, &p, 1, chunk));
        cr_assert(same_bits(rows + (size_t)(N - 1) * VOCAB, p.logits, VOCAB));
        for (int32_t n = 1; n < N; n++) {
            tiny_prompt_make(&net, &begin, n, 0, 0, 5, "");
            memcpy(begin.ids, p.ids, (size_t)n * sizeof *p.ids);
            ok(tiny_prefill(&net, &begin, 1, 0));
            cr_assert(same_bits(rows + (size_t)(n - 1) * VOCAB, begin.logits, VOCAB),
                      "row %d in chunks of %d", n - 1, chunk);
            tiny_prompt_free(&begin);
        }
        tiny_prompt_free(&p);
    }
    tiny_net_close(&net);
}

/* Runs rows [from, to) of x through layers [l0, l1), every row wanted; gives those that left the last one. */
static void run_some(tiny_net *net, const tiny_prompt *p, fv_tensor x, int32_t from, int32_t to,
                     int32_t l0, int32_t l1, fv_tensor out) {
    int32_t pos[32];
    for (int32_t i = 0; i < p->n; i++) pos[i] = i;
    fv_forward_seq seq = {.kv = p->kv,
                          .n_rows = to - from,
                          .pos = pos + from,
                          .seg = p->seg + from,
                          .ids = p->ids,
                          .wanted = to - from};
    fv_forward_batch pass = {.x = fv_tensor_rows(x, from, to - from), .n_seq = 1, .seq = &seq};
    ok(fv_decoder_layers(net->dec, &pass, l0, l1));
    if (l1 == LAYERS)
        memcpy(fv_tensor_rows(out, from, to - from).data, pass.out.data,
               (size_t)((to - from) * x.cols) * sizeof(float));
}

/* The last layer, and those that share, in a pass of their own, when the store of the layer before has the whole
 * prompt already. */
Test(sharers, a_row_sees_no_later_row_of_a_layer_that_ran_before_the_pass) {
    enum { N = 12, CUT = 5 };
    tiny_net net;
    tiny_prompt p[2];
    float *made[2];
    open_net(&net);
    const int32_t d = net.cfg.d_model;
    for (int split = 0; split < 2; split++) {
        float *x = malloc((size_t)(N * d) * sizeof *x);
        made[split] = malloc((size_t)(N * d) * sizeof *x);
        const fv_tensor rows = fv_tensor_of(x, FV_F32, N, d),
                        out = fv_tensor_of(made[split], FV_F32, N, d);
        tiny_prompt_make(&net, &p[split], N, 0, 0, 5, "");
        ok(fv_kv_open(net.pool, &p[split].kv));
        for (int32_t l = 0; l < LAYERS; l++) ok(fv_kv_extent(p[split].kv, l, 0));
        ok(fv_decoder_embed(net.dec, p[split].ids, N, rows));
        if (split == 0) {
            run_some(&net, &p[0], rows, 0, N, 0, LAYERS, out);
        } else {
            run_some(&net, &p[1], rows, 0, N, 0, LAYERS - 1, out);
            run_some(&net, &p[1], rows, 0, CUT, LAYERS - 1, LAYERS, out);
            run_some(&net, &p[1], rows, CUT, N, LAYERS - 1, LAYERS, out);
        }
        free(x);
    }
    cr_assert(same_bits(made[0], made[1], (size_t)(N * d)));
    for (int i = 0; i < 2; i++) {
        tiny_prompt_free(&p[i]);
        free(made[i]);
    }
    tiny_net_close(&net);
}

Test(sharers, decoding_goes_on_where_prefill_ended) {
    static const int32_t answer[] = {3, 14, 15, 92, 65, 35};
    enum { MORE = sizeof answer / sizeof *answer };
    tiny_net net;
    tiny_prompt p, q, *one = &p;
    open_net(&net);
    tiny_prompt_make(&net, &p, 5, 30, 6, 3, "");
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int i = 0; i < MORE; i++) ok(tiny_step(&net, &one, 1, &answer[i], 1, i));
    tiny_prompt_again(&net, &q, &p, "", answer, MORE);
    ok(tiny_prefill(&net, &q, 1, 11));
    cr_assert(same_bits(p.logits, q.logits, VOCAB));
    tiny_prompt_free(&q);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Tokens that a policy drops ahead of the last layer stay in the store of the layer before, which layers that share
 * read: a policy that drops none changes no bit, one that does changes some. */
Test(sharers, what_is_dropped_late_is_still_seen_where_it_is_held) {
    static float rows[41 * VOCAB];
    tiny_net net;
    tiny_prompt p[3];
    static const char *const policies[] = {"", "prune=random,layer=3,keep=1",
                                           "prune=random,layer=3,keep=0.5"};
    open_net(&net);
    for (int i = 0; i < 3; i++) {
        tiny_prompt_make(&net, &p[i], 5, 30, 6, 3, policies[i]);
        ok(tiny_prefill(&net, &p[i], 1, 7));
    }
    cr_assert(same_bits(p[0].logits, p[1].logits, VOCAB));
    cr_assert_not(same_bits(p[0].logits, p[2].logits, VOCAB));
    cr_assert_eq(fv_kv_len(p[2].kv, 2, 0, FV_SEG_VISUAL), 30);
    cr_assert_eq(fv_kv_len(p[2].kv, 3, 0, FV_SEG_VISUAL), 15);
    for (int i = 0; i < 3; i++) tiny_prompt_free(&p[i]);
    tiny_prompt_make(&net, &p[0], 5, 30, 6, 3, policies[2]);
    p[0].row_logits = rows;
    cr_assert_eq(tiny_prefill(&net, &p[0], 1, 7), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "choose an earlier layer"), "%s", fv_last_error());
    tiny_prompt_free(&p[0]);
    tiny_net_close(&net);
}
