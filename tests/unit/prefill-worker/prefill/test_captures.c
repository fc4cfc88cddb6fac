/* Attention captures: what the decoder reports for a prompt's last token, that it does not change
 * the result, and what fastv does with it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/handoff.h"

enum { VISUAL = 70, ROWS = 84, HEADS = 4, LAYERS = 4 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* 5 text tokens, 35 of an image, 3 of text, 35 of another image, 6 of text. */
static void two_images(const tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_lay(net, p, "t5 v35 t3 v35 t6", 11, policy);
}

/* Runs layers [0, layer] over the whole prompt in one call; capture [HEADS, p->n] is that layer's.
 * Returns the KV. */
static fv_kv *capture_layer(tiny_net *net, const tiny_prompt *p, int32_t layer, float *capture) {
    int32_t d = net->cfg.d_model, n = p->n, *pos = malloc((size_t)n * sizeof *pos);
    float *x = malloc((size_t)n * (size_t)d * sizeof *x);
    fv_kv *kv;
    cr_assert(pos && x);
    ok(fv_kv_open(net->pool, &kv));
    for (int32_t i = 0, v = 0; i < n; i++) {
        float *row = x + (size_t)i * (size_t)d;
        pos[i] = i;
        if (p->seg[i] == FV_SEG_VISUAL)
            memcpy(row, p->embeds + (size_t)v++ * (size_t)d, (size_t)d * sizeof *row);
        else
            ok(fv_decoder_embed(net->dec, &p->ids[i], 1, fv_tensor_of(row, FV_F32, 1, d)));
    }
    for (int32_t l = 0; l <= layer; l++) ok(fv_kv_extent(kv, l, p->n_visual));
    memset(capture, 0, sizeof *capture * HEADS * (size_t)n);
    fv_forward_capture one = {
        .layer = layer, .n_row = 1, .text = p->n_visual, .n_key = n, .p = capture};
    fv_forward_seq seq = {.kv = kv,
                          .n_rows = n,
                          .pos = pos,
                          .seg = p->seg,
                          .wanted = 1,
                          .n_capture = 1,
                          .capture = &one};
    fv_forward_batch pass = {.x = fv_tensor_of(x, FV_F32, n, d), .n_seq = 1, .seq = &seq};
    ok(fv_decoder_layers(net->dec, &pass, 0, layer + 1));
    ok(net->be.ops->sync(&net->be));
    free(x);
    free(pos);
    return kv;
}

/* ---- contents of a capture --------------------------------------------------------------- */

/* The last token's query of head h in layer 0, rotated, from the weights, in double. */
static void query(const tiny_net *net, const tiny_prompt *p, int32_t h, double *q) {
    int32_t d = net->cfg.d_model, D = net->cfg.d_head, half = D / 2, at = p->n - 1;
    const float *x = (const float *)net->w.embed.data + (size_t)p->ids[at] * (size_t)d;
    const float *w = net->w.layer[0].q.data, *g = net->w.layer[0].attn_norm.data;
    double square = 0, raw[64], angle_cos, angle_sin;
    for (int32_t i = 0; i < d; i++) square += (double)x[i] * (double)x[i];
    double norm = sqrt(square / d + (double)net->cfg.rms_eps);
    for (int32_t k = 0; k < D; k++) {
        raw[k] = 0;
        for (int32_t i = 0; i < d; i++)
            raw[k] += (double)w[(size_t)(h * D + k) * (size_t)d + (size_t)i] * (double)g[i] *
                      (double)x[i] / norm;
    }
    for (int32_t k = 0; k < half; k++) {
        double angle = at * pow(10000, -2.0 * k / D);
        angle_cos = cos(angle);
        angle_sin = sin(angle);
        q[k] = raw[k] * angle_cos - raw[k + half] * angle_sin;
        q[k + half] = raw[k + half] * angle_cos + raw[k] * angle_sin;
    }
}

/* The probabilities of that query over the keys in the KV, visual keys first. */
static void probabilities(const fv_kv *kv, int32_t head, int32_t D, const double *q, double *p) {
    double sum = 0;
    int32_t column = 0;
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        int32_t len = fv_kv_len(kv, 0, head, (fv_kv_segment)seg);
        for (int32_t j = 0; j < len; j++, column++) {
            void *k;
            double dot = 0;
            fv_kv_contiguous(kv, 0, head, (fv_kv_segment)seg, false, j, len, &k);
            for (int32_t i = 0; i < D; i++) dot += q[i] * (double)((float *)k)[i];
            sum += p[column] = exp(dot / sqrt(D));
        }
    }
    for (int32_t j = 0; j < column; j++) p[j] /= sum;
}

/* A network of one layer runs the special case of the last layer, where most tokens stop early. */
static void assert_capture_is_softmax(int32_t n_layer) {
    tiny_net net;
    tiny_prompt p;
    tiny_shape shape = tiny_shape_default();
    float capture[HEADS * ROWS];
    double q[64], want[ROWS];
    shape.n_layer = n_layer;
    tiny_net_open(&net, shape, FV_F32, NULL, 2);
    two_images(&net, &p, "");
    fv_kv *kv = capture_layer(&net, &p, 0, capture);
    for (int32_t h = 0; h < HEADS; h++) {
        query(&net, &p, h, q);
        probabilities(kv, h / 2, shape.d_head, q, want);
        for (int32_t j = 0; j < ROWS; j++)
            cr_assert_float_eq(capture[h * ROWS + j], want[j], 2e-6, "head %d key %d: %g, not %g",
                               h, j, (double)capture[h * ROWS + j], want[j]);
    }
    fv_kv_close(kv);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(captures, a_capture_is_the_softmax_of_the_last_token_per_head) {
    assert_capture_is_softmax(LAYERS);
}

Test(captures, the_last_layer_gives_the_same_though_most_tokens_stop_there) {
    assert_capture_is_softmax(1);
}

/* ---- the share of attention on visual tokens ---------------------------------------------- */

typedef struct answer {
    float logits[97], mass[LAYERS];
} answer;

static answer prefill_with_mass(const char *policy, int32_t chunk, int32_t group, bool wanted) {
    answer a = {.mass = {-1, -1, -1, -1}};
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    two_images(&net, &p, policy);
    if (wanted) p.visual_mass = a.mass;
    net.prefill.group = group;
    ok(tiny_prefill(&net, &p, 1, chunk));
    memcpy(a.logits, p.logits, sizeof a.logits);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
    return a;
}

Test(captures, asking_changes_no_bit_of_the_logits_and_chunks_no_bit_of_the_captures) {
    static const char *const policies[] = {"",
                                           "prune=fastv,layer=2,keep=0.3",
                                           "prune=vtw,layer=2",
                                           "select=streaming,sink=2",
                                           "select=csp",
                                           "select=h2o"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        answer without = prefill_with_mass(policies[i], 0, 0, false);
        answer with = prefill_with_mass(policies[i], 0, 0, true);
        cr_assert(same_bits(without.logits, with.logits, 97), "%s", policies[i]);
        static const int32_t chunks[] = {1, 7, 83, 84};
        for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
            answer cut = prefill_with_mass(policies[i], chunks[c], (int32_t)c, true);
            cr_assert(same_bits(with.logits, cut.logits, 97), "%s", policies[i]);
            cr_assert(same_bits(with.mass, cut.mass, LAYERS), "%s by %d", policies[i], chunks[c]);
        }
    }
}

Test(captures, the_share_on_visual_tokens_is_the_sum_over_their_columns) {
    tiny_net net;
    tiny_prompt p;
    float capture[HEADS * ROWS];
    answer a = prefill_with_mass("", 13, 2, true);
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    two_images(&net, &p, "");
    for (int32_t l = 0; l < LAYERS; l++) {
        double mass = 0;
        fv_kv_close(capture_layer(&net, &p, l, capture));
        for (int32_t h = 0; h < HEADS; h++)
            for (int32_t j = 0; j < VISUAL; j++) mass += (double)capture[h * ROWS + j] / HEADS;
        cr_assert_float_eq(a.mass[l], mass, 1e-6, "layer %d: %g, not %g", l, (double)a.mass[l],
                           mass);
        cr_assert(mass > 0.1 && mass < 1);
    }
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(captures, layers_without_visual_tokens_have_no_share) {
    answer a = prefill_with_mass("prune=vtw,layer=2", 0, 0, true);
    cr_assert(a.mass[0] > 0 && a.mass[1] > 0 && a.mass[2] == 0 && a.mass[3] == 0);
}

Test(captures, neighbours_in_a_batch_change_no_bit_of_a_capture) {
    enum { N = 5 };
    tiny_net net;
    tiny_prompt p[N];
    float mass[N][LAYERS];
    answer alone = prefill_with_mass("prune=fastv,layer=2,keep=0.3", 0, 0, true);
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    for (int b = 0; b < N; b++) {
        if (b == 2)
            two_images(&net, &p[b], "prune=fastv,layer=2,keep=0.3");
        else
            tiny_prompt_make(&net, &p[b], 3 + b, 30 * b, 4, (uint64_t)b, "prune=fastv,layer=1");
        if (b != 1) p[b].visual_mass = mass[b];
    }
    ok(tiny_prefill(&net, p, N, 50));
    cr_assert(same_bits(alone.logits, p[2].logits, 97));
    cr_assert(same_bits(alone.mass, mass[2], LAYERS));
    for (int32_t l = 0; l < LAYERS; l++) cr_assert_eq(mass[0][l], 0, "a prompt of text alone");
    for (int b = 0; b < N; b++) tiny_prompt_free(&p[b]);
    tiny_net_close(&net);
}

/* ---- fastv ----------------------------------------------------------------------------- */

static const float *ranked;

static int higher_first(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (ranked[i] != ranked[j]) return ranked[i] > ranked[j] ? -1 : 1;
    return i - j;
}

static int ascending(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* Prompt positions of the `keep` visual tokens that receive most from the captured layer's last
 * token. */
static void best(const tiny_prompt *p, const float *capture, int32_t keep, int32_t *pos) {
    float mean[VISUAL];
    int32_t order[VISUAL], at[VISUAL];
    for (int32_t i = 0, v = 0; i < p->n; i++)
        if (p->seg[i] == FV_SEG_VISUAL) at[v++] = i;
    for (int32_t j = 0; j < VISUAL; j++) {
        double sum = 0;
        for (int32_t h = 0; h < HEADS; h++) sum += (double)capture[h * p->n + j];
        mean[j] = (float)(sum / HEADS);
        order[j] = j;
    }
    ranked = mean;
    qsort(order, VISUAL, sizeof *order, higher_first);
    qsort(order, (size_t)keep, sizeof *order, ascending);
    for (int32_t k = 0; k < keep; k++) pos[k] = at[order[k]];
}

Test(captures, fastv_keeps_what_the_layer_before_it_attends_to_most) {
    tiny_net net;
    float capture[HEADS * ROWS];
    int32_t want[VISUAL];
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    for (int32_t layer = 1; layer < LAYERS; layer++) {
        tiny_prompt p;
        char policy[64];
        snprintf(policy, sizeof policy, "prune=fastv,layer=%d,keep=0.35", layer);
        two_images(&net, &p, policy);
        ok(tiny_prefill(&net, &p, 1, 17));
        fv_kv_close(capture_layer(&net, &p, layer - 1, capture));
        best(&p, capture, 24, want);
        for (int32_t l = 0; l < LAYERS; l++)
            for (int32_t g = 0; g < 2; g++) {
                int32_t n = fv_kv_len(p.kv, l, g, FV_SEG_VISUAL);
                cr_assert_eq(n, l < layer ? VISUAL : 24);
                const int32_t *pos = fv_kv_positions(p.kv, l, g, FV_SEG_VISUAL);
                if (l >= layer)
                    cr_assert_eq(memcmp(pos, want, 24 * sizeof *pos), 0, "layer %d of %d", l,
                                 layer);
            }
        tiny_prompt_free(&p);
    }
    tiny_net_close(&net);
}

/* The last 6 tokens stand for an answer; without them the prompt ends after token 77. */
Test(captures, a_resumed_answer_keeps_the_tokens_that_its_prompt_chose) {
    enum { ANSWER = 6 };
    static const int32_t chunks[] = {0, 1, 10, 79};
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        tiny_net net;
        tiny_prompt whole, cut[3], *one = &whole;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
        for (int b = 0; b < 3; b++) {
            if (b != 1) tiny_prompt_make(&net, &cut[b], 4, 30, 5, 3, "prune=fastv,layer=2");
            if (b == 1) tiny_prompt_make(&net, &cut[b], 5, 64, 15, 11, "prune=fastv,layer=2");
            cut[b].n_answer = b == 1 ? ANSWER : 0;
        }
        tiny_prompt_make(&net, &whole, 5, 64, 15, 11, "prune=fastv,layer=2");
        whole.n -= ANSWER;
        whole.plan.shape.n_text -= ANSWER;
        ok(tiny_prefill(&net, &whole, 1, 0));
        ok(tiny_prefill(&net, cut, 3, chunks[c]));
        for (int s = 0; s < ANSWER; s++)
            ok(tiny_step(&net, &one, 1, &cut[1].ids[whole.n + s], 1, s));
        cr_assert(same_bits(whole.logits, cut[1].logits, 97), "chunk %d", chunks[c]);
        cr_assert(same_store(whole.kv, cut[1].kv), "chunk %d", chunks[c]);
        tiny_prompt_free(&whole);
        for (int b = 0; b < 3; b++) tiny_prompt_free(&cut[b]);
        tiny_net_close(&net);
    }
}

Test(captures, fastv_follows_the_question_and_grid_does_not) {
    static const char *const policies[] = {"prune=fastv,layer=2,keep=0.35", "prune=grid,layer=2"};
    tiny_net net;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 2; i++) {
        tiny_prompt p, q;
        two_images(&net, &p, policies[i]);
        two_images(&net, &q, policies[i]);
        q.ids[q.n - 1] = (p.ids[p.n - 1] + 40) % 97;
        ok(tiny_prefill(&net, &p, 1, 0));
        ok(tiny_prefill(&net, &q, 1, 0));
        int32_t n = fv_kv_len(p.kv, 3, 0, FV_SEG_VISUAL);
        const int32_t *a = fv_kv_positions(p.kv, 3, 0, FV_SEG_VISUAL);
        const int32_t *b = fv_kv_positions(q.kv, 3, 0, FV_SEG_VISUAL);
        bool same = memcmp(a, b, (size_t)n * sizeof *a) == 0;
        cr_assert_eq(same, i == 1, "%s", policies[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&q);
    }
    tiny_net_close(&net);
}

Test(captures, nan_in_a_prompt_leaves_as_many_tokens_as_the_plan_says) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    two_images(&net, &p, "prune=fastv,layer=2,keep=0.35");
    p.embeds[7] = NAN;
    ok(tiny_prefill(&net, &p, 1, 0));
    cr_assert_eq(fv_kv_len(p.kv, 2, 0, FV_SEG_VISUAL), 24);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}
