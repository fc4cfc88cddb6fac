/* Heads: grouped keys and values give the results of separate copies, and no rule depends on a
 * head's number. Networks are made from others by copying and moving heads. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"

enum { HEADS = 4, D = 24, VOCAB = 97, STEPS = 3 };
static const char *const layout = "t5 v35 t3 v35 t6";

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void open_net(tiny_net *net, int32_t n_kv) {
    tiny_shape s = tiny_shape_default();
    s.n_kv = n_kv;
    tiny_net_open(net, s, FV_F32, NULL, 1);
}

/* Rows of a projection of head `from`, copied to head `to`. */
static void copy_head(fv_tensor to, int32_t to_head, fv_tensor from, int32_t from_head) {
    size_t n = (size_t)D * (size_t)from.cols;
    cr_assert_eq(to.cols, from.cols);
    memcpy((float *)to.data + (size_t)to_head * n, (float *)from.data + (size_t)from_head * n,
           n * sizeof(float));
}

/* The same of the output projection, whose columns are heads. */
static void copy_head_out(fv_tensor to, int32_t to_head, fv_tensor from, int32_t from_head) {
    for (int32_t i = 0; i < to.rows; i++)
        memcpy((float *)to.data + i * to.cols + to_head * D,
               (float *)from.data + i * from.cols + from_head * D, D * sizeof(float));
}

static void copy(fv_tensor to, fv_tensor from) {
    cr_assert(to.rows == from.rows && to.cols == from.cols);
    memcpy(to.data, from.data, (size_t)to.rows * (size_t)to.cols * sizeof(float));
}

/* All weights that belong to no single head. */
static void copy_rest(tiny_net *to, const tiny_net *from) {
    copy(to->w.embed, from->w.embed);
    copy(to->w.norm, from->w.norm);
    copy(to->w.head, from->w.head);
    for (int32_t l = 0; l < from->cfg.n_layer; l++) {
        fv_text_layer *t = &to->w.layer[l];
        const fv_text_layer *f = &from->w.layer[l];
        copy(t->attn_norm, f->attn_norm);
        copy(t->mlp_norm, f->mlp_norm);
        copy(t->gate, f->gate);
        copy(t->up, f->up);
        copy(t->down, f->down);
    }
}

/* Query head h of `to` is head query[h] of `from`, KV head g is kv[g]. */
static void copy_heads(tiny_net *to, const tiny_net *from, const int32_t *query,
                       const int32_t *kv) {
    copy_rest(to, from);
    for (int32_t l = 0; l < from->cfg.n_layer; l++) {
        fv_text_layer *t = &to->w.layer[l];
        const fv_text_layer *f = &from->w.layer[l];
        for (int32_t h = 0; h < HEADS; h++) {
            copy_head(t->q, h, f->q, query[h]);
            copy_head_out(t->o, h, f->o, query[h]);
        }
        for (int32_t g = 0; g < to->cfg.n_kv; g++) {
            copy_head(t->k, g, f->k, kv[g]);
            copy_head(t->v, g, f->v, kv[g]);
        }
    }
}

typedef struct outcome {
    tiny_prompt p;
    float logits[STEPS + 1][VOCAB];
} outcome;

static void run(tiny_net *net, const char *policy, outcome *out) {
    fv_evict evict;
    char text[FV_POLICY_TEXT_MAX];
    tiny_prompt *one = &out->p;
    tiny_prompt_lay(net, one, layout, 11, policy);
    ok(tiny_prefill(net, one, 1, 0));
    fv_policy_print(&one->plan.policy, text);
    ok(evict_init(&evict, text, one->n));
    memcpy(out->logits[0], one->logits, sizeof out->logits[0]);
    for (int32_t t = 1; t <= STEPS; t++) {
        int32_t id = 13 + t;
        ok(fv_evict_step(&evict, one->kv, t));
        ok(tiny_step(net, &one, 1, &id, 1, t - 1));
        memcpy(out->logits[t], one->logits, sizeof out->logits[t]);
    }
}

static void assert_near(const outcome *a, const outcome *b, const char *what) {
    for (int32_t t = 0; t <= STEPS; t++)
        for (int v = 0; v < VOCAB; v++)
            cr_assert_lt(fabsf(a->logits[t][v] - b->logits[t][v]), 2e-5f, "%s at %d", what, t);
}

static void assert_same_rows(const outcome *a, int32_t head_a, const outcome *b, int32_t head_b,
                             const char *what) {
    for (int32_t l = 0; l < a->p.plan.shape.n_layer; l++)
        for (int s = 0; s < FV_N_SEG; s++) {
            fv_kv_segment seg = (fv_kv_segment)s;
            int32_t n = fv_kv_len(a->p.kv, l, head_a, seg);
            cr_assert_eq(n, fv_kv_len(b->p.kv, l, head_b, seg), "%s, layer %d", what, l);
            if (n == 0) continue;
            cr_assert_eq(memcmp(fv_kv_positions(a->p.kv, l, head_a, seg),
                                fv_kv_positions(b->p.kv, l, head_b, seg), (size_t)n * 4),
                         0, "%s, layer %d", what, l);
        }
}

/* Two query heads per KV head, against a network in which each has a copy of its own. */
Test(heads, grouped_heads_equal_separate_copies) {
    static const char *const policies[] = {
        "",
        "prune=fastv,layer=2,keep=0.3",
        "prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.2;evict=vta,tau=4",
        "prune=visipruner,filter=1,l2=0.3",
        "select=csp,heavy=0.3,recent=0.2,heads=shared",
        "lazy=vla,map=given,blocks=1-2",
        "lazy=gla,map=given,blocks=0-3"};
    static const int32_t query[] = {0, 1, 2, 3}, kv[] = {0, 0, 1, 1};
    tiny_net grouped, each;
    open_net(&grouped, 2);
    open_net(&each, HEADS);
    copy_heads(&each, &grouped, query, kv);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        outcome a, b;
        run(&grouped, policies[i], &a);
        run(&each, policies[i], &b);
        assert_near(&a, &b, policies[i]);
        for (int32_t h = 0; h < HEADS; h++) assert_same_rows(&a, h / 2, &b, h, policies[i]);
        tiny_prompt_free(&a.p);
        tiny_prompt_free(&b.p);
    }
    tiny_net_close(&each);
    tiny_net_close(&grouped);
}

/* KV heads change places, and query heads within each. */
Test(heads, rules_do_not_depend_on_head_numbers) {
    static const char *const policies[] = {
        "prune=fastv,layer=2,keep=0.3", "prune=visipruner,filter=1,l2=0.3",
        "select=csp,heavy=0.3,recent=0.2,dup=official", "select=csp,heavy=0.3,recent=0.2,group=max",
        "select=csp,heavy=0.3,recent=0.2,heads=shared"};
    static const int32_t query[] = {3, 2, 1, 0}, kv[] = {1, 0};
    tiny_net net, turned;
    open_net(&net, 2);
    open_net(&turned, 2);
    copy_heads(&turned, &net, query, kv);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        outcome a, b;
        run(&net, policies[i], &a);
        run(&turned, policies[i], &b);
        assert_near(&a, &b, policies[i]);
        for (int32_t g = 0; g < 2; g++) assert_same_rows(&a, g, &b, 1 - g, policies[i]);
        tiny_prompt_free(&a.p);
        tiny_prompt_free(&b.p);
    }
    tiny_net_close(&turned);
    tiny_net_close(&net);
}
