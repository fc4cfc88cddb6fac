/* Models with recurrent layers: their state after prefill, in chunks and batches, after pruning, and as
 * decoding and follow-ups go on from it (model/net/recurrent.c). */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_net.h"

enum { LAYERS = 3, VOCAB = 97, MORE = 6 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void open_net(tiny_net *net) {
    tiny_shape shape = {.n_layer = LAYERS,
                        .n_head = 4,
                        .n_kv = 2,
                        .d_head = 24,
                        .d_ffn = 70,
                        .vocab = VOCAB,
                        .recurrent = 2};
    tiny_net_open(net, shape, FV_BF16, NULL, 1);
}

static bool same_state(const tiny_prompt *a, const tiny_prompt *b, int32_t layer) {
    return memcmp(fv_kv_state(a->kv, layer), fv_kv_state(b->kv, layer),
                  fv_kv_get_shape(a->kv)->state_bytes) == 0;
}

static bool same_end(const tiny_prompt *a, const tiny_prompt *b) {
    bool same = same_bits(a->logits, b->logits, VOCAB);
    for (int32_t l = 0; l < LAYERS; l++) same = same && same_state(a, b, l);
    return same;
}

Test(recurrent, a_prompt_has_the_same_state_in_chunks_and_among_others) {
    static const int32_t chunks[] = {1, 7, 33};
    tiny_net net;
    tiny_prompt one[3], cut[3];
    open_net(&net);
    for (int b = 0; b < 3; b++) {
        tiny_prompt_make(&net, &one[b], 4 + b, 20 * b, 9 - b, 5 + (uint64_t)b, "");
        ok(tiny_prefill(&net, &one[b], 1, 0));
    }
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        for (int b = 0; b < 3; b++)
            tiny_prompt_make(&net, &cut[b], 4 + b, 20 * b, 9 - b, 5 + (uint64_t)b, "");
        ok(tiny_prefill(&net, cut, 3, chunks[i]));
        for (int b = 0; b < 3; b++) {
            cr_assert(same_end(&one[b], &cut[b]), "prompt %d in chunks of %d", b, chunks[i]);
            tiny_prompt_free(&cut[b]);
        }
    }
    cr_assert_not(same_state(&one[0], &one[1], 0));
    for (int b = 0; b < 3; b++) tiny_prompt_free(&one[b]);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

/* Tokens of an answer and of a turn after it leave the state that one prompt of all of them leaves. */
Test(recurrent, decoding_and_a_follow_up_go_on_where_prefill_ended) {
    static const int32_t answer[MORE] = {3, 14, 15, 92, 65, 35}, turn[] = {89, 79, 32, 38};
    enum { TURN = sizeof turn / sizeof *turn };
    int32_t all[MORE + TURN];
    tiny_net net;
    tiny_prompt p, q, *one = &p;
    open_net(&net);
    tiny_prompt_make(&net, &p, 5, 30, 6, 3, "");
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int i = 0; i < MORE; i++) ok(tiny_step(&net, &one, 1, &answer[i], 1, i));
    ok(tiny_step(&net, &one, 1, turn, TURN, MORE));
    memcpy(all, answer, sizeof answer);
    memcpy(all + MORE, turn, sizeof turn);
    tiny_prompt_again(&net, &q, &p, "", all, MORE + TURN);
    ok(tiny_prefill(&net, &q, 1, 11));
    cr_assert(same_end(&p, &q));
    tiny_prompt_free(&q);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Runs the prompt's text alone from layer `from` on, with what layers before it made of all tokens. */
static void run_text_from(tiny_net *net, const tiny_prompt *p, int32_t from, fv_kv *kv,
                          float *logits) {
    int32_t d = net->cfg.d_model, n_text = 0;
    size_t row = (size_t)d * sizeof(float);
    int32_t *pos = malloc((size_t)p->n * sizeof *pos), *ids = malloc((size_t)p->n * sizeof *ids);
    float *x = malloc((size_t)p->n * row);
    for (int32_t i = 0, v = 0; i < p->n; i++) {
        pos[i] = i;
        ok(fv_decoder_embed(net->dec, &p->ids[i], 1,
                            fv_tensor_of(x + (size_t)i * (size_t)d, FV_F32, 1, d)));
        if (p->seg[i] == FV_SEG_VISUAL)
            memcpy(x + (size_t)i * (size_t)d, p->embeds + (size_t)v++ * (size_t)d, row);
    }
    for (int32_t l = 0; l < LAYERS; l++) ok(fv_kv_extent(kv, l, l < from ? p->n_visual : 0));
    fv_forward_seq all = {.kv = kv, .n_rows = p->n, .pos = pos, .seg = p->seg, .wanted = p->n};
    fv_forward_batch pass = {.x = fv_tensor_of(x, FV_F32, p->n, d), .n_seq = 1, .seq = &all};
    ok(fv_decoder_layers(net->dec, &pass, 0, from));
    for (int32_t i = 0; i < p->n; i++)
        if (p->seg[i] == FV_SEG_TEXT) {
            memmove(x + (size_t)n_text * (size_t)d, x + (size_t)i * (size_t)d, row);
            pos[n_text++] = i;
        }
    uint8_t *text = malloc((size_t)n_text);
    memset(text, FV_SEG_TEXT, (size_t)n_text);
    fv_forward_seq rest = {.kv = kv, .n_rows = n_text, .pos = pos, .seg = text, .wanted = 1};
    pass = (fv_forward_batch){.x = fv_tensor_of(x, FV_F32, n_text, d), .n_seq = 1, .seq = &rest};
    ok(fv_decoder_layers(net->dec, &pass, from, LAYERS));
    ok(fv_decoder_logits(net->dec, pass.out, logits));
    free(text);
    free(pos);
    free(ids);
    free(x);
}

Test(recurrent, dropped_tokens_are_in_no_state_of_later_layers) {
    tiny_net net;
    tiny_prompt exact, vtw;
    open_net(&net);
    tiny_prompt_make(&net, &exact, 5, 30, 6, 3, "");
    tiny_prompt_make(&net, &vtw, 5, 30, 6, 3, "prune=vtw,layer=1");
    ok(tiny_prefill(&net, &exact, 1, 0));
    ok(tiny_prefill(&net, &vtw, 1, 8));
    cr_assert(same_state(&exact, &vtw, 0), "the layers before keep what they had");
    cr_assert_not(same_state(&exact, &vtw, 1));
    tiny_prompt by_hand = {.logits = malloc(VOCAB * sizeof(float))};
    ok(fv_kv_open(net.pool, &by_hand.kv));
    run_text_from(&net, &vtw, 1, by_hand.kv, by_hand.logits);
    cr_assert(same_end(&vtw, &by_hand));
    fv_kv_close(by_hand.kv);
    free(by_hand.logits);
    tiny_prompt_free(&exact);
    tiny_prompt_free(&vtw);
    tiny_net_close(&net);
}

Test(recurrent, what_is_evicted_or_compressed_later_stays_in_the_state) {
    static const char *const policies[] = {"select=streaming,sink=2,recent=0.3,full_heads=0",
                                           "pack=quant", "pack=svd,rank_k=8,rank_v=8,gain=0",
                                           "evict=tova,keep=0.3", "lazy=gla,map=given,blocks=1-2"};
    tiny_net net;
    tiny_prompt exact, p;
    open_net(&net);
    tiny_prompt_make(&net, &exact, 5, 30, 6, 3, "");
    ok(tiny_prefill(&net, &exact, 1, 0));
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        tiny_prompt_make(&net, &p, 5, 30, 6, 3, policies[i]);
        ok(tiny_prefill(&net, &p, 1, 0));
        for (int32_t l = 0; l < (i == 4 ? 2 : LAYERS); l++)
            cr_assert(same_state(&exact, &p, l), "%s, layer %d", policies[i], l);
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&exact);
    tiny_net_close(&net);
}

Test(recurrent, rows_without_their_state_are_refused) {
    tiny_net net;
    tiny_prompt p, *one = &p;
    int32_t pos = 0, id = 5;
    open_net(&net);
    tiny_prompt_make(&net, &p, 5, 0, 6, 3, "");
    ok(fv_kv_open(net.pool, &p.kv));
    ok(fv_kv_reserve(p.kv, 0, 1));
    ok(fv_kv_append(p.kv, 0, FV_SEG_TEXT, &pos, 1));
    cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, 0), FV_EFATAL);
    cr_assert(strstr(fv_last_error(), "not the state of its recurrent layers"), "%s",
              fv_last_error());
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}
