/* Sums over the results log, by group. */
#include "eval/suite/results.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ----------------------------------------------------------------------------- */

static void add_group(fv_results *r, const char *name, bool one_task, const bool has[FV_N_TASK]) {
    fv_group *g = &r->group[r->n_group++];
    int32_t n = 0;
    *g = (fv_group){.name = name, .one_task = one_task};
    memcpy(g->has, has, sizeof g->has);
    for (int32_t t = 0; t < FV_N_TASK; t++) {
        if (!has[t]) continue;
        g->chance += fv_suite_chance(&r->results_log->head->suite, t);
        g->task = t;
        n++;
    }
    g->chance /= n;
}

static void make_groups(fv_results *r) {
    const fv_suite *e = &r->results_log->head->suite;
    bool all[FV_N_TASK] = {false}, hops[FV_N_TASK] = {false};
    int32_t n_hop = 0;
    for (int32_t i = 0; i < e->n_task; i++) {
        bool only[FV_N_TASK] = {false};
        bool hop = !e->benchmark && fv_task_describe(e->task[i])->two_hop;
        only[e->task[i]] = all[e->task[i]] = true;
        hops[e->task[i]] = hop;
        n_hop += hop;
        add_group(r, fv_suite_task_name(e, e->task[i]), true, only);
    }
    if (n_hop > 1) add_group(r, "two-hop", false, hops);
    if (e->n_task > 1) add_group(r, "all", false, all);
}

/* ---- sums ------------------------------------------------------------------------------- */

static const fv_item_score *item_score_of(const fv_results_log *s, int32_t policy, int32_t item) {
    int32_t at = fv_results_log_at(s, policy, item);
    return s->done[at] ? &s->item_score[at] : NULL;
}

typedef struct scratch {
    double *a, *b; /* [n_item] */
} scratch;

static void sum_group(const fv_results *r, const fv_group *g, int32_t policy, scratch *x,
                      fv_group_result *out) {
    const fv_results_log *s = r->results_log;
    double sum = 0;
    int32_t n_both = 0, n_sent = 0;
    for (int32_t i = 0; i < s->head->suite.n_item; i++) {
        const fv_item_score *m = item_score_of(s, policy, i), *first = item_score_of(s, 0, i);
        if (!m || !g->has[fv_suite_task_of(&s->head->suite, i)]) continue;
        out->n++;
        sum += fv_item_score_mean(m);
        out->bytes_exact += m->bytes_exact;
        out->bytes_visual += m->bytes_visual;
        out->bytes_visual_end += m->bytes_visual_end;
        out->bytes_sent += m->bytes_sent;
        n_sent += m->bytes_sent > 0;
        if (!first) continue;
        x->a[n_both] = fv_item_score_mean(m);
        x->b[n_both++] = fv_item_score_mean(first);
    }
    out->score = fv_interval_wilson(sum, out->n);
    out->less = fv_interval_paired(x->a, x->b, n_both);
    int32_t n = out->n ? out->n : 1;
    out->bytes_exact /= n;
    out->bytes_visual /= n;
    out->bytes_visual_end /= n;
    out->bytes_sent /= n_sent ? n_sent : 1;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Interpolates linearly between two values. */
static double quantile(const double *v, int32_t n, double q) {
    double at = q * (n - 1);
    int32_t i = (int32_t)at;
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}

static fv_spread spread_of(double *v, int32_t n) {
    fv_spread s = {.n = n};
    if (n == 0) return s;
    qsort(v, (size_t)n, sizeof *v, ascending);
    for (int32_t i = 0; i < n; i++) s.mean += v[i] / n;
    s.p10 = quantile(v, n, 0.1);
    s.p50 = quantile(v, n, 0.5);
    s.p90 = quantile(v, n, 0.9);
    return s;
}

static void sum_policy(const fv_results *r, int32_t policy, scratch *x) {
    const fv_results_log *s = r->results_log;
    fv_policy_result *out = &r->policy[policy];
    int32_t n_first = 0, n_other = 0;
    for (int32_t g = 0; g < r->n_group; g++) sum_group(r, &r->group[g], policy, x, &out->group[g]);
    for (int32_t i = 0; i < s->head->suite.n_item; i++) {
        const fv_item_score *m = item_score_of(s, policy, i);
        if (!m) continue;
        x->a[n_first++] = m->ttft_s;
        if (m->tpot_s >= 0) x->b[n_other++] = m->tpot_s;
        if (m->note && !out->note) out->note = m->note;
        out->n_note += m->note != NULL;
    }
    out->ttft_s = spread_of(x->a, n_first);
    out->tpot_s = spread_of(x->b, n_other);
}

fv_status fv_results_make(const fv_results_log *results_log, fv_results *out) {
    size_t n = (size_t)results_log->head->suite.n_item;
    fv_results r = {.results_log = results_log};
    scratch x = {malloc(n * sizeof(double)), malloc(n * sizeof(double))};
    r.policy = calloc((size_t)results_log->head->n_policy, sizeof *r.policy);
    bool good = x.a && x.b && r.policy;
    if (good) {
        make_groups(&r);
        for (int32_t p = 0; p < results_log->head->n_policy; p++) sum_policy(&r, p, &x);
        *out = r;
    } else {
        free(r.policy);
    }
    free(x.a);
    free(x.b);
    return good ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the results of %zu items", n);
}

void fv_results_free(fv_results *r) {
    free(r->policy);
    *r = (fv_results){0};
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *interval_json(fv_interval v) {
    return json_pack("{s:f, s:f, s:f}", "value", v.value, "low", v.low, "high", v.high);
}

static json_t *spread_json(const fv_spread *s) {
    static const double MS = 1e3;
    if (s->n == 0) return json_null();
    return json_pack("{s:i, s:f, s:f, s:f, s:f}", "n", s->n, "mean", MS * s->mean, "p10",
                     MS * s->p10, "p50", MS * s->p50, "p90", MS * s->p90);
}

static json_t *group_json(const fv_suite *suite, const fv_group *g, const fv_group_result *r,
                          bool first) {
    const char *measure = g->one_task ? fv_suite_measure(suite, g->task) : "mean score";
    return json_pack(
        "{s:s, s:s, s:i, s:f, s:o, s:o, s:{s:f, s:f, s:f, s:f}}", "group", g->name, "measure",
        measure, "n", r->n, "chance", g->chance, "score", interval_json(r->score), "difference",
        first ? json_null() : interval_json(r->less), "kv_bytes", "visual_exact", r->bytes_exact,
        "visual", r->bytes_visual, "visual_end", r->bytes_visual_end, "sent", r->bytes_sent);
}

static json_t *policy_json(const fv_results *r, int32_t p) {
    const fv_policy_result *result = &r->policy[p];
    const fv_results_log_head *head = r->results_log->head;
    json_t *groups = json_array();
    for (int32_t g = 0; g < r->n_group; g++)
        json_array_append_new(groups,
                              group_json(&head->suite, &r->group[g], &result->group[g], p == 0));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:s?, s:i}", "policy", head->policy[p], "name",
                     head->name ? head->name[p] : head->policy[p], "groups", groups, "ttft_ms",
                     spread_json(&result->ttft_s), "tpot_ms", spread_json(&result->tpot_s), "note",
                     result->note, "items_with_note", result->n_note);
}

json_t *fv_results_json(const fv_results *r) {
    json_t *policies = json_array();
    for (int32_t p = 0; p < r->results_log->head->n_policy; p++)
        json_array_append_new(policies, policy_json(r, p));
    return json_pack("{s:o, s:o}", "eval", fv_results_log_head_json(r->results_log->head),
                     "results", policies);
}
