/* Lazy layers in the decoder: whose queries and keys they use, and that nothing else changes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/handoff.h"

enum { VISUAL = 70, ROWS = 84, HEADS = 4, LAYERS = 4, SOURCE_LAYER = 1, LAZY = 2 };

typedef enum sharing { DENSE, VLA, GLA } sharing;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* The last token's attention in each layer, and the logits after it. */
typedef struct outcome {
    float capture[LAYERS][HEADS * ROWS];
    float logits[97];
} outcome;

/* Runs a prompt in one call through all layers; LAZY reuses the queries and keys of SOURCE. */
static void run(tiny_net *net, const tiny_prompt *p, sharing how, outcome *out) {
    int32_t d = net->cfg.d_model, n = p->n, pos[ROWS];
    float *x = malloc((size_t)n * (size_t)d * sizeof *x);
    fv_kv *kv;
    cr_assert(x);
    ok(fv_kv_open(net->pool, &kv));
    if (how != DENSE) fv_kv_borrow(kv, LAZY, SOURCE_LAYER, how == GLA);
    for (int32_t i = 0, v = 0; i < n; i++) {
        float *row = x + (size_t)i * (size_t)d;
        pos[i] = i;
        if (p->seg[i] == FV_SEG_VISUAL)
            memcpy(row, p->embeds + (size_t)v++ * (size_t)d, (size_t)d * sizeof *row);
        else
            ok(fv_decoder_embed(net->dec, &p->ids[i], 1, fv_tensor_of(row, FV_F32, 1, d)));
    }
    fv_forward_capture captures[LAYERS];
    memset(out, 0, sizeof *out);
    for (int32_t l = 0; l < LAYERS; l++) {
        ok(fv_kv_extent(kv, l, p->n_visual));
        captures[l] = (fv_forward_capture){
            .layer = l, .n_row = 1, .text = p->n_visual, .n_key = n, .p = out->capture[l]};
    }
    fv_forward_seq seq = {.kv = kv,
                          .n_rows = n,
                          .pos = pos,
                          .seg = p->seg,
                          .wanted = 1,
                          .n_capture = LAYERS,
                          .capture = captures};
    fv_forward_batch pass = {.x = fv_tensor_of(x, FV_F32, n, d), .n_seq = 1, .seq = &seq};
    ok(fv_decoder_layers(net->dec, &pass, 0, LAYERS));
    ok(fv_decoder_logits(net->dec, pass.out, out->logits));
    fv_kv_close(kv);
    free(x);
}

static void make(tiny_net *net, tiny_prompt *p) {
    tiny_net_open(net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(net, p, 5, VISUAL, 9, 11, "");
}

static void done(tiny_net *net, tiny_prompt *p) {
    tiny_prompt_free(p);
    tiny_net_close(net);
}

static void copy(fv_tensor to, fv_tensor from) {
    memcpy(to.data, from.data, (size_t)from.rows * (size_t)from.cols * sizeof(float));
}

static void zero(fv_tensor t) {
    memset(t.data, 0, (size_t)t.rows * (size_t)t.cols * sizeof(float));
}

/* A source layer that leaves the residual stream unchanged, and a lazy layer with the source
 * layer's projections: what it reuses is what it would have computed. */
Test(lazy, sharing_with_a_layer_of_the_same_weights_and_inputs_changes_no_bit) {
    static outcome dense, lazy;
    tiny_net net;
    tiny_prompt p;
    make(&net, &p);
    fv_text_layer *source_layer = &net.w.layer[SOURCE_LAYER], *follower = &net.w.layer[LAZY];
    zero(source_layer->o);
    zero(source_layer->down);
    copy(follower->attn_norm, source_layer->attn_norm);
    copy(follower->q, source_layer->q);
    copy(follower->k, source_layer->k);
    run(&net, &p, DENSE, &dense);
    for (sharing how = VLA; how <= GLA; how++) {
        run(&net, &p, how, &lazy);
        cr_assert(same_bits(dense.logits, lazy.logits, 97));
        for (int l = 0; l < LAYERS; l++)
            cr_assert(same_bits(dense.capture[l], lazy.capture[l], HEADS * ROWS), "layer %d", l);
    }
    done(&net, &p);
}

Test(lazy, gla_attends_as_its_source_layer_and_vla_to_other_texts) {
    static outcome dense, vla, gla;
    tiny_net net;
    tiny_prompt p;
    make(&net, &p);
    run(&net, &p, DENSE, &dense);
    run(&net, &p, VLA, &vla);
    run(&net, &p, GLA, &gla);
    cr_assert(same_bits(gla.capture[LAZY], gla.capture[SOURCE_LAYER], HEADS * ROWS));
    cr_assert(same_bits(dense.capture[SOURCE_LAYER], gla.capture[SOURCE_LAYER], HEADS * ROWS));
    cr_assert_not(same_bits(vla.capture[LAZY], vla.capture[SOURCE_LAYER], HEADS * ROWS));
    cr_assert_not(same_bits(vla.capture[LAZY], dense.capture[LAZY], HEADS * ROWS));
    cr_assert_not(same_bits(vla.logits, gla.logits, 97));
    cr_assert_not(same_bits(vla.logits, dense.logits, 97));
    done(&net, &p);
}

/* Nothing of the image may come from the lazy layer's own projections, and all of the text must. */
Test(lazy, a_lazy_layer_projects_only_tokens_that_it_does_not_share) {
    static outcome before, after;
    for (sharing how = VLA; how <= GLA; how++) {
        tiny_net net;
        tiny_prompt p;
        make(&net, &p);
        run(&net, &p, how, &before);
        zero(net.w.layer[LAZY].q);
        zero(net.w.layer[LAZY].k);
        run(&net, &p, how, &after);
        cr_assert_eq(same_bits(before.logits, after.logits, 97), how == GLA);
        done(&net, &p);
    }
}
