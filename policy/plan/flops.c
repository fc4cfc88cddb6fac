/* Multiply-adds of a layer with n tokens, width d, H query and Hkv KV heads of D, and FFN width m:
 *     projections  n d (H + 2 Hkv) D + n H D d
 *     attention    2 H D pairs        (scores, and the weighted sum of values)
 *     FFN          3 n d m
 *     gate         n d H D            (where there is one)
 * (attention is on rows of the store, which may be wider than the projections: model/net/heads_internal.h)
 * and those of its recurrent layers, which grow with n alone. Layers that share keys and values run for one
 * token, so they count with FV_FLOPS_EXECUTED only.
 *
 * A layer that uses queries and keys of another (Q Cache, section 3.2) does not project them: for
 * all tokens with lazy=gla, for visual tokens with lazy=vla. Its attention stays. */
#include "policy/plan/flops.h"

const char *fv_flops_rule_name(fv_flops_rule rule) {
    static const char *const name[FV_N_FLOPS_RULE] = {"executed", "square", "visual"};
    return name[rule];
}

double fv_plan_flops(const fv_plan *plan, const fv_flops_net *net, fv_flops_rule rule) {
    const fv_plan_shape *s = &plan->shape;
    double d = net->d_model, wide = (double)net->n_head * s->d_head;
    double narrow = (double)s->n_kv * s->d_head, text = rule == FV_FLOPS_VISUAL ? 0 : s->n_text;
    double sum = 0, n = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        double visual = plan->visual[l];
        n = visual + text;
        double reused = 0;
        if (plan->share.source_layer[l] != l) reused = plan->share.text ? n : visual;
        double pairs = rule == FV_FLOPS_EXECUTED ? n * (n + 1) / 2 : n * n;
        double q = wide, k = narrow, v = narrow;
        if (net->heads_of) q = net->heads_of[l].q, k = net->heads_of[l].k, v = net->heads_of[l].v;
        sum += n * d * (2 * q + k + v) - reused * d * (q + k);
        double ffn = net->ffn_of ? (double)net->ffn_of[l] : net->d_ffn;
        sum += 2 * wide * pairs + 3 * n * d * ffn;
        sum += n * (net->recurrent + (net->gated ? d * wide : 0));
    }
    if (rule == FV_FLOPS_EXECUTED)
        sum += net->sharers + net->n_sharer * 2 * wide * n + d * net->vocab;
    if (rule == FV_FLOPS_SQUARE) sum += n * d * net->vocab;
    return rule == FV_FLOPS_VISUAL ? sum : 2 * sum;
}
