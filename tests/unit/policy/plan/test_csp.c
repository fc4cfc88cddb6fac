/* select=csp: its sizes, its choice against a brute-force implementation of the rule, tokens held
 * twice, and n-softmax in the answer's attention. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/plan/csp.h"
#include "tests/support/handoff.h"

enum { VISUAL = 70, ROWS = 84, HEADS = 4, KV_HEADS = 2, LAYERS = 4, D = 24 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- sizes ------------------------------------------------------------------------------ */

static fv_select_csp_params params_of(const char *policy) {
    fv_policy parsed;
    fv_params params;
    ok(fv_policy_parse(policy, &parsed));
    fv_choice_params(&parsed.stage[FV_STAGE_SELECT], LAYERS, &params);
    return params.select_csp;
}

static fv_csp_sizes sizes(const char *policy, int32_t n_prompt) {
    fv_select_csp_params p = params_of(policy);
    return fv_csp_sizes_of(&p, n_prompt);
}

static void assert_sizes(const char *policy, int32_t n_prompt, fv_csp_sizes want) {
    fv_csp_sizes s = sizes(policy, n_prompt);
    cr_assert(s.budget == want.budget && s.window == want.window && s.recent == want.recent &&
                  s.self == want.self && s.cross == want.cross,
              "%s of %d: %d %d %d %d %d", policy, n_prompt, s.budget, s.window, s.recent, s.self,
              s.cross);
}

Test(csp, sizes_are_those_of_the_paper) {
    assert_sizes("select=csp", 3061, (fv_csp_sizes){612, 306, 306, 153, 153});
    assert_sizes("select=csp,bias=1.5", 3061, (fv_csp_sizes){612, 306, 459, 76, 76});
    assert_sizes("select=csp,bias=0.5", 3061, (fv_csp_sizes){612, 306, 153, 229, 229});
    assert_sizes("select=csp,share=0.1", 5433, (fv_csp_sizes){1086, 543, 543, 488, 54});
    assert_sizes("preset=paper-csp", 3061, (fv_csp_sizes){612, 306, 306, 153, 153});
}

Test(csp, one_share_can_have_all_and_short_prompts_have_little) {
    assert_sizes("select=csp,share=1", 3061, (fv_csp_sizes){612, 306, 306, 0, 306});
    assert_sizes("select=csp,share=0", 3061, (fv_csp_sizes){612, 306, 306, 306, 0});
    assert_sizes("select=csp,bias=10", 100, (fv_csp_sizes){20, 10, 20, 0, 0});
    assert_sizes("select=csp", 9, (fv_csp_sizes){0, 0, 0, 0, 0});
    cr_assert_eq(sizes("select=csp,heavy=0.7,recent=0.3", 11).budget, INT32_MAX);
    for (int32_t n = 0; n < 500; n++) {
        fv_csp_sizes s = sizes("select=csp,heavy=0.23,recent=0.11,share=0.37,bias=1.3", n);
        int32_t chosen = s.self + s.cross;
        cr_assert(chosen <= s.budget - s.recent && chosen >= s.budget - s.recent - 1);
    }
}

/* ---- kept tokens ------------------------------------------------------------------------- */

static void two_images(const tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_lay(net, p, "t5 v35 t3 v35 t6", 11, policy);
}

/* Per layer and KV head, the prompt positions that are kept, ascending. */
typedef struct kept {
    int32_t n, pos[2 * ROWS];
} kept;

static void kept_of(const fv_kv *kv, int32_t layer, int32_t head, kept *out) {
    int32_t at[FV_N_SEG] = {0}, n[FV_N_SEG];
    for (int s = 0; s < FV_N_SEG; s++) n[s] = fv_kv_len(kv, layer, head, (fv_kv_segment)s);
    out->n = 0;
    while (at[0] < n[0] || at[1] < n[1]) {
        const int32_t *v = fv_kv_positions(kv, layer, head, FV_SEG_VISUAL);
        const int32_t *t = fv_kv_positions(kv, layer, head, FV_SEG_TEXT);
        bool text = at[0] == n[0] || (at[1] < n[1] && t[at[1]] < v[at[0]]);
        out->pos[out->n++] = text ? t[at[1]++] : v[at[0]++];
    }
}

/* A token's attention in a layer, per query head and prompt position: the capture of a forward
 * pass that ends with that token. */
static void attention_of_row(tiny_net *net, const tiny_prompt *p, int32_t row, int32_t layer,
                             float n, double attention[HEADS][ROWS]) {
    tiny_prompt cut = *p;
    float capture[HEADS * ROWS] = {0};
    int32_t column[FV_N_SEG] = {0}, pos[ROWS], d = net->cfg.d_model;
    float *x = calloc((size_t)(ROWS * d), sizeof *x);
    fv_kv *kv;
    cr_assert(x);
    cut.n = row + 1;
    ok(fv_kv_open(net->pool, &kv));
    for (int32_t l = 1; l <= layer; l++)
        if (p->plan.share.source_layer[l] != l)
            fv_kv_borrow(kv, l, p->plan.share.source_layer[l], p->plan.share.text);
    for (int32_t i = 0, v = 0; i <= row; i++) {
        pos[i] = i;
        if (p->seg[i] == FV_SEG_VISUAL)
            memcpy(x + i * d, p->embeds + (v++) * d, (size_t)d * sizeof *x);
        else
            ok(fv_decoder_embed(net->dec, &p->ids[i], 1, fv_tensor_of(x + i * d, FV_F32, 1, d)));
    }
    for (int32_t l = 0; l <= layer; l++) ok(fv_kv_extent(kv, l, VISUAL));
    fv_forward_capture one = {
        .layer = layer, .n_row = 1, .n = n, .text = VISUAL, .n_key = ROWS, .p = capture};
    fv_forward_seq seq = {.kv = kv,
                          .n_rows = cut.n,
                          .pos = pos,
                          .seg = p->seg,
                          .wanted = 1,
                          .n_capture = 1,
                          .capture = &one};
    fv_forward_batch pass = {.x = fv_tensor_of(x, FV_F32, cut.n, d), .n_seq = 1, .seq = &seq};
    ok(fv_decoder_layers(net->dec, &pass, 0, layer + 1));
    for (int32_t i = 0; i <= row; i++) {
        int32_t at = p->seg[i] == FV_SEG_TEXT ? VISUAL + column[1]++ : column[0]++;
        for (int32_t h = 0; h < HEADS; h++) attention[h][i] = (double)capture[h * ROWS + at];
    }
    fv_kv_close(kv);
    free(x);
}

/* The rule, token by token: the `keep` best of [0, n) by score, lower positions first among
 * equals. */
static void best(const double *score, int32_t n, int32_t keep, uint8_t *times) {
    bool taken[ROWS] = {false};
    for (int32_t k = 0; k < keep; k++) {
        int32_t top = -1;
        for (int32_t i = 0; i < n; i++)
            if (!taken[i] && (top < 0 || score[i] > score[top])) top = i;
        taken[top] = true;
        times[top]++;
    }
}

typedef struct rule {
    fv_csp_sizes s;
    float n;
    bool shared, max, twice;
} rule;

/* The attention from one layer's window to each token that may be pruned, per query head: [same
 * modality]. */
static void add_scores(const tiny_prompt *p, double attention[ROWS][HEADS][ROWS], const rule *r,
                       int32_t head, double score[2][ROWS]) {
    int32_t h0 = r->shared ? 0 : 2 * head, h1 = r->shared ? HEADS : 2 * head + 2;
    for (int32_t j = 0; j < ROWS - r->s.recent; j++)
        for (int same = 0; same < 2; same++) {
            double sum = 0, top = 0;
            for (int32_t h = h0; h < h1; h++) {
                double of_head = 0;
                for (int32_t i = ROWS - r->s.window; i < ROWS; i++)
                    if ((p->seg[i] == p->seg[j]) == same) of_head += attention[i][h][j];
                sum += of_head;
                top = of_head > top ? of_head : top;
            }
            score[same][j] += r->max ? top : sum / (h1 - h0);
        }
}

/* The rule for layer l: scores are summed over its block; where text keys are not shared, the text
 * tokens of each list are replaced by the best of the layer's own ranking. */
static void brute(const tiny_prompt *p, double attention[LAYERS][ROWS][HEADS][ROWS], const rule *r,
                  int32_t l, int32_t head, kept *out) {
    double block[2][ROWS] = {{0}}, own[2][ROWS] = {{0}};
    uint8_t times[ROWS] = {0};
    int32_t end = ROWS - r->s.recent, in_block = 0;
    for (int32_t k = 0; k < LAYERS; k++) {
        if (p->plan.share.source_layer[k] != p->plan.share.source_layer[l]) continue;
        add_scores(p, attention[k], r, head, block);
        in_block++;
    }
    add_scores(p, attention[l], r, head, own);
    for (int same = 0; same < 2; same++) {
        uint8_t list[ROWS] = {0}, text[ROWS] = {0};
        int32_t n_text = 0;
        best(block[same], end, same ? r->s.self : r->s.cross, list);
        for (int32_t j = 0; j < end; j++) {
            n_text += list[j] && p->seg[j] == FV_SEG_TEXT;
            if (p->seg[j] == FV_SEG_VISUAL) own[same][j] = -1;
        }
        best(own[same], end, n_text, text);
        bool apart = in_block > 1 && !p->plan.share.text;
        for (int32_t j = 0; j < end; j++)
            times[j] += apart && p->seg[j] == FV_SEG_TEXT ? text[j] : list[j];
    }
    out->n = 0;
    for (int32_t i = 0; i < ROWS; i++) {
        if (i >= end) times[i] = 1;
        for (int k = 0; k < (r->twice ? times[i] : times[i] > 0); k++) out->pos[out->n++] = i;
    }
}

static void assert_brute(const char *policy, int32_t chunk) {
    static double attention[LAYERS][ROWS][HEADS][ROWS];
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    two_images(&net, &p, policy);
    fv_select_csp_params c = params_of(policy);
    rule r = {.s = fv_csp_sizes_of(&c, ROWS),
              .n = (float)c.nsoftmax_select,
              .shared = c.heads_shared,
              .max = c.group_max,
              .twice = c.dup_official};
    ok(tiny_prefill(&net, &p, 1, chunk));
    for (int32_t l = 0; l < LAYERS; l++)
        for (int32_t i = ROWS - r.s.window; i < ROWS; i++)
            attention_of_row(&net, &p, i, l, r.n, attention[l][i]);
    for (int32_t l = 0; l < LAYERS; l++)
        for (int32_t g = 0; g < KV_HEADS; g++) {
            kept want, got;
            brute(&p, attention, &r, l, g, &want);
            kept_of(p.kv, l, g, &got);
            cr_assert_eq(got.n, want.n, "%s layer %d head %d: %d rows, not %d", policy, l, g, got.n,
                         want.n);
            cr_assert_eq(memcmp(got.pos, want.pos, (size_t)got.n * sizeof *got.pos), 0,
                         "%s layer %d head %d", policy, l, g);
        }
    fv_plan_bytes most = fv_plan_count(&p.plan);
    cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), most.visual);
    cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL) + fv_kv_bytes(p.kv, FV_SEG_TEXT), most.held);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(csp, it_keeps_what_a_brute_force_reading_keeps) {
    assert_brute("select=csp,heavy=0.3,recent=0.2", 0);
    assert_brute("select=csp,heavy=0.3,recent=0.2,nsoftmax_select=0,share=0.8", 11);
    assert_brute("select=csp,heavy=0.4,recent=0.25,nsoftmax_select=30,dup=official", 1);
    assert_brute("select=csp,heavy=0.2,recent=0.3,bias=0.5,heads=shared,dup=official", 29);
    assert_brute("select=csp,heavy=0.2,recent=0.1,group=max", 7);
}

Test(csp, layers_that_share_keys_choose_by_their_mean_and_keep_texts_of_their_own) {
    assert_brute("lazy=vla,map=given,blocks=1-3;select=csp,heavy=0.3,recent=0.2", 0);
    assert_brute("lazy=vla,map=given,blocks=0-1/2-3;select=csp,heavy=0.2,recent=0.3,bias=0.5,"
                 "dup=official,group=max",
                 13);
    assert_brute("lazy=gla,map=given,blocks=1-3;select=csp,heavy=0.3,recent=0.2,dup=official", 0);
    assert_brute("lazy=gla,map=given,blocks=0-2;select=csp,heavy=0.2,heads=shared,share=0.8", 29);
}

/* A block under vla has one set of image tokens, and its layers may have different text. */
Test(csp, a_block_shares_image_tokens_and_its_texts_differ) {
    tiny_net net;
    tiny_prompt p;
    int32_t apart = 0;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    two_images(&net, &p, "lazy=vla,map=given,blocks=0-3;select=csp,heavy=0.1,recent=0.05");
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int32_t l = 1; l < LAYERS; l++)
        for (int32_t g = 0; g < KV_HEADS; g++)
            for (int seg = 0; seg < FV_N_SEG; seg++) {
                fv_kv_segment s = (fv_kv_segment)seg;
                int32_t n = fv_kv_len(p.kv, l, g, s), n0 = fv_kv_len(p.kv, 0, g, s);
                bool same =
                    n == n0 && memcmp(fv_kv_positions(p.kv, l, g, s),
                                      fv_kv_positions(p.kv, 0, g, s), (size_t)n * sizeof n) == 0;
                if (s == FV_SEG_VISUAL) cr_assert(same, "layer %d head %d", l, g);
                apart += !same;
            }
    cr_assert_gt(apart, 0);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* n-softmax with n close to 0 is softmax: the same tokens. */
Test(csp, a_vanishing_n_chooses_as_softmax_does) {
    static const char *const policies[] = {"select=csp,heavy=0.3,recent=0.2,nsoftmax_select=0",
                                           "select=csp,heavy=0.3,recent=0.2,nsoftmax_select=1e-6",
                                           "select=csp,heavy=0.3,recent=0.2,nsoftmax_select=1000"};
    tiny_net net;
    tiny_prompt p[3];
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 3; i++) {
        two_images(&net, &p[i], policies[i]);
        ok(tiny_prefill(&net, &p[i], 1, 0));
    }
    cr_assert(same_store(p[0].kv, p[1].kv));
    cr_assert_not(same_store(p[0].kv, p[2].kv), "and a large one weighs rows of the window anew");
    for (int i = 0; i < 3; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

/* All tokens of one modality, softmax: the last tokens' attention alone decides. */
Test(csp, without_its_split_it_is_snapkv_without_pooling) {
    static const char *const policies[] = {
        "select=csp,heavy=0.3,recent=0.2,share=0,nsoftmax_select=0",
        "select=snapkv,heavy=0.3,recent=0.2,kernel=1"};
    tiny_net net;
    tiny_prompt p[2];
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 2; i++) {
        tiny_prompt_lay(&net, &p[i], "t60", 11, policies[i]);
        ok(tiny_prefill(&net, &p[i], 1, 0));
        cr_assert_eq(fv_kv_len(p[i].kv, 1, 1, FV_SEG_TEXT), 30);
    }
    cr_assert(same_store(p[0].kv, p[1].kv));
    for (int i = 0; i < 2; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

/* ---- tokens held twice ------------------------------------------------------------------- */

Test(csp, a_token_held_twice_weighs_twice) {
    tiny_net net;
    tiny_prompt p;
    float q[HEADS * D], o[HEADS * D], lse[HEADS];
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    two_images(&net, &p, "select=csp,heavy=0.4,recent=0.1,dup=official");
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int32_t i = 0; i < HEADS * D; i++) q[i] = sinf((float)(i * i));
    int32_t doubled = 0;
    for (int32_t l = 0; l < LAYERS; l++) {
        fv_attn_seq seq = {.n_rows = 1, .n_seg = FV_N_SEG, .tables = fv_kv_runs(p.kv, l)};
        fv_attn_args a = {.q = fv_tensor_of(q, FV_F32, 1, HEADS * D),
                          .o = fv_tensor_of(o, FV_F32, 1, HEADS * D),
                          .lse = fv_tensor_of(lse, FV_F32, 1, HEADS),
                          .kv_dtype = FV_F32,
                          .n_head = HEADS,
                          .n_kv = KV_HEADS,
                          .d_head = D,
                          .n_seq = 1,
                          .scale = 0.2f,
                          .seqs = &seq};
        ok(net.be.ops->attention(&net.be, &a));
        for (int32_t h = 0; h < HEADS; h++) {
            double sum = 0, want[D] = {0};
            for (int s = 0; s < FV_N_SEG; s++) {
                int32_t n = fv_kv_len(p.kv, l, h / 2, (fv_kv_segment)s);
                const int32_t *pos = fv_kv_positions(p.kv, l, h / 2, (fv_kv_segment)s);
                for (int32_t j = 0; j < n; j++) {
                    void *k, *v;
                    double dot = 0, w = 1;
                    if (j > 0 && pos[j] == pos[j - 1]) continue; /* once, with weight 2 */
                    if (j + 1 < n && pos[j + 1] == pos[j]) w = 2, doubled++;
                    fv_kv_contiguous(p.kv, l, h / 2, (fv_kv_segment)s, false, j, n, &k);
                    fv_kv_contiguous(p.kv, l, h / 2, (fv_kv_segment)s, true, j, n, &v);
                    for (int32_t d = 0; d < D; d++)
                        dot += (double)q[h * D + d] * (double)((float *)k)[d];
                    w *= exp(dot * 0.2);
                    sum += w;
                    for (int32_t d = 0; d < D; d++) want[d] += w * (double)((float *)v)[d];
                }
            }
            for (int32_t d = 0; d < D; d++)
                cr_assert_float_eq(o[h * D + d], want[d] / sum, 1e-5, "layer %d head %d", l, h);
        }
    }
    cr_assert_gt(doubled, 0, "some row was chosen both ways");
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

Test(csp, tokens_of_both_modalities_can_be_held_twice) {
    int32_t idx[] = {0, 0, 1, 2, 2, 3, 3, 4, 5, 5, 9, 13, 13}, n = 13;
    tiny_net net;
    tiny_prompt p, q;
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, "");
    tiny_prompt_make(&net, &q, 5, VISUAL, 9, 11, "");
    ok(tiny_prefill(&net, &p, 1, 0));
    ok(tiny_prefill(&net, &q, 1, 0));
    const int32_t *each[KV_HEADS] = {idx, idx};
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        ok(fv_kv_keep(p.kv, 1, (fv_kv_segment)seg, each, (int32_t[]){n, n}));
        for (int32_t g = 0; g < KV_HEADS; g++) {
            int32_t len = fv_kv_len(q.kv, 1, g, (fv_kv_segment)seg);
            cr_assert_eq(fv_kv_len(p.kv, 1, g, (fv_kv_segment)seg), n);
            for (int32_t j = 0; j < n; j++)
                for (int value = 0; value < 2; value++) {
                    void *got, *want;
                    fv_kv_contiguous(p.kv, 1, g, (fv_kv_segment)seg, value, j, n, &got);
                    fv_kv_contiguous(q.kv, 1, g, (fv_kv_segment)seg, value, idx[j], len, &want);
                    cr_assert_eq(memcmp(got, want, D * 2), 0, "segment %d row %d", seg, j);
                    cr_assert_eq(fv_kv_positions(p.kv, 1, g, (fv_kv_segment)seg)[j],
                                 fv_kv_positions(q.kv, 1, g, (fv_kv_segment)seg)[idx[j]]);
                }
        }
    }
    int32_t all[2 * 14], m = 0;
    for (int32_t j = 0; j < 14; j++) all[m++] = j, all[m++] = j;
    const int32_t *twice[KV_HEADS] = {all, all};
    ok(fv_kv_keep(p.kv, 2, FV_SEG_TEXT, twice, (int32_t[]){m, m}));
    cr_assert_eq(fv_kv_len(p.kv, 2, 1, FV_SEG_TEXT), 28);
    tiny_prompt_free(&p);
    tiny_prompt_free(&q);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

/* ---- the plan --------------------------------------------------------------------------- */

Test(csp, the_plan_counts_what_official_holds_and_bounds_what_union_holds) {
    static const char *const policies[] = {"select=csp,heavy=0.4,recent=0.1,dup=official",
                                           "select=csp,heavy=0.4,recent=0.1"};
    size_t held[2];
    for (int i = 0; i < 2; i++) {
        tiny_net net;
        tiny_prompt p;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        two_images(&net, &p, policies[i]);
        ok(tiny_prefill(&net, &p, 1, 0));
        fv_plan_bytes most = fv_plan_count(&p.plan);
        held[i] = fv_kv_bytes(p.kv, FV_SEG_VISUAL) + fv_kv_bytes(p.kv, FV_SEG_TEXT);
        cr_assert_eq(p.plan.exact_counts, i == 0);
        if (i == 0) cr_assert_eq(held[i], most.held);
        cr_assert_leq(held[i], most.held);
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), most.visual);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
    cr_assert_lt(held[1], held[0], "what is chosen both ways is held once");
}

/* ---- n-softmax in the answer's attention -------------------------------------------------- */

static void answer(const char *policy, bool over_the_wire, float *logits) {
    handoff_rig rig;
    tiny_prompt p, *one = &p;
    fv_received got = {0};
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    two_images(&rig.net, &p, policy);
    ok(tiny_prefill(&rig.net, &p, 1, 0));
    if (over_the_wire) {
        ok(rig_send(&rig, &p, 8, 1, &got, NULL));
        cr_assert(same_store(p.kv, got.kv));
        fv_kv_close(p.kv);
        p.kv = got.kv;
        got.kv = NULL;
    }
    for (int s = 0; s < 3; s++) {
        int32_t id = 13 + s;
        ok(tiny_step(&rig.net, &one, 1, &id, 1, s));
    }
    memcpy(logits, p.logits, 97 * sizeof *logits);
    fv_received_free(&got);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

Test(csp, n_softmax_of_the_answer_travels_with_the_policy) {
    float here[97], there[97], plain[97], every[97], exact[97];
    fv_policy all;
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 4, .n_kv = 2, .n_visual = VISUAL, .n_text = 14};
    const char *policy = "select=csp,heavy=0.3,recent=0.1,dup=official,nsoftmax_decode=2";
    answer(policy, false, here);
    answer(policy, true, there);
    cr_assert(same_bits(here, there, 97));
    answer("select=csp,heavy=0.3,recent=0.1,dup=official", true, plain);
    cr_assert_not(same_bits(here, plain, 97));
    answer("select=csp,heavy=0.5,recent=0.5,nsoftmax_decode=2", true, every);
    answer("", true, exact);
    cr_assert_not(same_bits(every, exact, 97), "n does not depend on rows that were let go");
    ok(fv_policy_parse("select=csp,heavy=0.5,recent=0.5,nsoftmax_decode=2", &all));
    ok(fv_plan_make(&all, &shape, &plan));
    cr_assert(!plan.select.count && plan.note[FV_STAGE_SELECT][0] == '\0');
    answer("select=csp,heavy=0.5,recent=0.5", true, every);
    cr_assert(same_bits(every, exact, 97));
}

/* ---- resuming an answer ------------------------------------------------------------------- */

/* The last 6 tokens stand for an answer: what the prompt chose stays, and they attend to that
 * alone. */
Test(csp, a_resumed_answer_finds_what_its_prompt_kept) {
    enum { ANSWER = 6 };
    static const char *const policies[] = {
        "select=csp,heavy=0.4,recent=0.1,dup=official,nsoftmax_decode=1",
        "select=csp",
        "select=streaming,sink=2,recent=0.3",
        "select=h2o",
        "select=snapkv,heavy=0.2",
        "prune=visipruner,filter=1,l2=0.05,kv_shallow=drop",
        "lazy=vla,map=given,blocks=1-3;select=csp,heavy=0.4,recent=0.1,dup=official"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        tiny_net net;
        tiny_prompt whole, cut, *one = &whole;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
        tiny_prompt_make(&net, &whole, 5, 64, 15, 11, policies[i]);
        tiny_prompt_make(&net, &cut, 5, 64, 15, 11, policies[i]);
        fv_plan_shape shape = cut.plan.shape;
        cut.n_answer = shape.n_answer = ANSWER;
        ok(fv_plan_make(&cut.plan.policy, &shape, &cut.plan));
        shape.n_answer = 0;
        shape.n_text -= ANSWER;
        whole.n -= ANSWER;
        ok(fv_plan_make(&whole.plan.policy, &shape, &whole.plan));
        ok(tiny_prefill(&net, &whole, 1, 0));
        ok(tiny_prefill(&net, &cut, 1, 10));
        for (int s = 0; s < ANSWER; s++) ok(tiny_step(&net, &one, 1, &cut.ids[whole.n + s], 1, s));
        cr_assert(same_bits(whole.logits, cut.logits, 97), "%s", policies[i]);
        cr_assert(same_store(whole.kv, cut.kv), "%s", policies[i]);
        tiny_prompt_free(&whole);
        tiny_prompt_free(&cut);
        tiny_net_close(&net);
    }
}
