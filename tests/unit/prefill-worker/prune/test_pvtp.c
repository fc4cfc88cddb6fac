/* prune=pvtp over the tiny model: which tokens each step keeps, against the same steps done by
 * hand, layer by layer. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/prune/prune.h"
#include "tests/support/handoff.h"

enum { LAYERS = 4, HEADS = 4, VISUAL = 40, ROWS = 60 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* Two images of 20 tokens each with text around them, 60 tokens in all. */
static void two_images(const tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_make(net, p, 3, VISUAL, ROWS - VISUAL - 3, 5, policy);
    memset(p->seg, FV_SEG_TEXT, ROWS);
    memset(p->seg + 3, FV_SEG_VISUAL, VISUAL / 2);
    memset(p->seg + 30, FV_SEG_VISUAL, VISUAL / 2);
}

/* The residual stream of a prompt, and its tokens. */
typedef struct stream {
    int32_t n, pos[ROWS];
    uint8_t seg[ROWS];
    float *x; /* [n, d] */
} stream;

static void embed(tiny_net *net, const tiny_prompt *p, stream *s) {
    size_t d = (size_t)net->cfg.d_model;
    s->n = p->n;
    s->x = malloc((size_t)p->n * d * sizeof *s->x);
    cr_assert_not_null(s->x);
    for (int32_t i = 0, v = 0; i < p->n; i++) {
        s->pos[i] = i;
        s->seg[i] = p->seg[i];
        if (p->seg[i] == FV_SEG_VISUAL)
            memcpy(s->x + (size_t)i * d, p->embeds + (size_t)v++ * d, d * sizeof *s->x);
        else
            ok(fv_decoder_embed(net->dec, &p->ids[i], 1,
                                fv_tensor_of(s->x + (size_t)i * d, FV_F32, 1, (int32_t)d)));
    }
}

static int32_t n_visual(const stream *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) n += s->seg[i] == FV_SEG_VISUAL;
    return n;
}

/* Runs a layer over all tokens; capture [H, n]. */
static void run_layer(tiny_net *net, fv_kv *kv, stream *s, int32_t layer, float *capture) {
    fv_forward_capture one = {
        .layer = layer, .n_row = 1, .text = n_visual(s), .n_key = s->n, .p = capture};
    fv_forward_seq seq = {.kv = kv,
                          .n_rows = s->n,
                          .pos = s->pos,
                          .seg = s->seg,
                          .wanted = s->n,
                          .n_capture = 1,
                          .capture = &one};
    fv_forward_batch pass = {
        .x = fv_tensor_of(s->x, FV_F32, s->n, net->cfg.d_model), .n_seq = 1, .seq = &seq};
    memset(capture, 0, sizeof(float) * HEADS * (size_t)s->n);
    ok(fv_kv_extent(kv, layer, n_visual(s)));
    ok(fv_decoder_layers(net->dec, &pass, layer, layer + 1));
    ok(net->be.ops->sync(&net->be));
}

/* Keeps the `keep` visual tokens with the highest mean over heads, and every text token. */
static void drop(stream *s, const float *capture, int32_t keep, int32_t d) {
    int32_t kept[ROWS], to = 0, n = n_visual(s);
    float mean[ROWS];
    fv_prune_head_mean(capture, HEADS, s->n, n, mean);
    fv_top(mean, n, keep, kept);
    for (int32_t i = 0, v = 0, k = 0; i < s->n; i++) {
        bool visual = s->seg[i] == FV_SEG_VISUAL;
        bool stays = !visual || (k < keep && kept[k] == v);
        v += visual;
        k += visual && stays;
        if (!stays) continue;
        s->pos[to] = s->pos[i];
        s->seg[to] = s->seg[i];
        memmove(s->x + (size_t)to++ * (size_t)d, s->x + (size_t)i * (size_t)d,
                (size_t)d * sizeof *s->x);
    }
    s->n = to;
}

/* The plan's steps by hand; every layer's KV must hold the same tokens. */
static void assert_steps(const char *policy, int32_t chunk) {
    tiny_net net;
    tiny_prompt p;
    stream s;
    fv_kv *kv;
    float capture[HEADS * ROWS];
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    two_images(&net, &p, policy);
    ok(tiny_prefill(&net, &p, 1, chunk));
    ok(fv_kv_open(net.pool, &kv));
    embed(&net, &p, &s);
    for (int32_t l = 0, e = 0; l < LAYERS; l++) {
        if (e < p.plan.prune.n_edit && p.plan.prune.edit[e].layer == l)
            drop(&s, capture, p.plan.prune.edit[e++].keep, net.cfg.d_model);
        run_layer(&net, kv, &s, l, capture);
        cr_assert_eq(n_visual(&s), p.plan.visual[l]);
        for (int32_t g = 0; g < net.cfg.n_kv; g++) {
            int32_t n = fv_kv_len(p.kv, l, g, FV_SEG_VISUAL);
            cr_assert_eq(n, p.plan.visual[l]);
            cr_assert_eq(fv_kv_len(p.kv, l, g, FV_SEG_TEXT), ROWS - VISUAL);
            const int32_t *got = fv_kv_positions(p.kv, l, g, FV_SEG_VISUAL);
            const int32_t *want = fv_kv_positions(kv, l, g, FV_SEG_VISUAL);
            cr_assert(n == 0 || memcmp(got, want, (size_t)n * sizeof *got) == 0, "%s, layer %d",
                      policy, l);
        }
    }
    free(s.x);
    fv_kv_close(kv);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(pvtp, each_step_keeps_what_the_layer_before_it_attends_to_most) {
    assert_steps("prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.2", 0);
    assert_steps("prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.2", 7);
    assert_steps("prune=pvtp,layer=2,stride=1,first=0.5,ratio=0.4", 16);
    assert_steps("prune=pvtp,layer=1,stride=2,first=0.2,ratio=0.8", 0);
    assert_steps("prune=pvtp", 0);
}

Test(pvtp, what_a_step_leaves_was_there_before) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    two_images(&net, &p, "prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.2");
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int32_t l = 1; l < LAYERS; l++) {
        const int32_t *more = fv_kv_positions(p.kv, l - 1, 0, FV_SEG_VISUAL);
        const int32_t *less = fv_kv_positions(p.kv, l, 0, FV_SEG_VISUAL);
        int32_t n = fv_kv_len(p.kv, l, 0, FV_SEG_VISUAL), i = 0;
        cr_assert_lt(n, fv_kv_len(p.kv, l - 1, 0, FV_SEG_VISUAL));
        for (int32_t k = 0; k < n; k++, i++)
            while (more[i] != less[k]) cr_assert_lt(++i, fv_kv_len(p.kv, l - 1, 0, FV_SEG_VISUAL));
    }
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(pvtp, with_a_stride_beyond_the_depth_it_is_fastv) {
    tiny_net net;
    tiny_prompt p, q;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    two_images(&net, &p, "prune=pvtp,layer=2,stride=9");
    two_images(&net, &q, "prune=fastv,layer=2,keep=0.5");
    ok(tiny_prefill(&net, &p, 1, 0));
    ok(tiny_prefill(&net, &q, 1, 0));
    cr_assert(same_bits(p.logits, q.logits, 97));
    cr_assert(same_store(p.kv, q.kv));
    tiny_prompt_free(&p);
    tiny_prompt_free(&q);
    tiny_net_close(&net);
}
