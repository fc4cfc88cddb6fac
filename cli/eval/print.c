/* Prints a line for each task and policy. */
#include "cli/eval/print.h"

#include <math.h>

#include "cli/client/table.h"

static const double PERCENT = 100, MS = 1e3, KIB = 1.0 / 1024;

static void cells(fv_table *t, const char *const *head, int32_t n) {
    fv_table_init(t, n);
    for (int32_t i = 0; i < n; i++) fv_table_cell(t, "%s", head[i]);
}

static void interval_cell(fv_table *t, fv_interval v, const char *value_format) {
    char value[32];
    snprintf(value, sizeof value, value_format, PERCENT * v.value);
    fv_table_cell(t, "%s [%.1f, %.1f]", value, PERCENT * v.low, PERCENT * v.high);
}

static fv_status print_scores(FILE *f, const fv_results *r) {
    static const char *const head[] = {"task", "policy", "items", "chance", "score", "difference"};
    fv_table t;
    cells(&t, head, 6);
    for (int32_t g = 0; g < r->n_group; g++) {
        for (int32_t p = 0; p < r->results_log->head->n_policy; p++) {
            const fv_group_result *x = &r->policy[p].group[g];
            fv_table_cell(&t, "%s", p == 0 ? r->group[g].name : "");
            fv_table_cell(&t, "%d", p + 1);
            fv_table_cell(&t, "%d", x->n);
            fv_table_cell(&t, "%.1f", PERCENT * r->group[g].chance);
            interval_cell(&t, x->score, "%.1f");
            if (p == 0)
                fv_table_cell(&t, "-");
            else
                interval_cell(&t, x->less, "%+.1f");
        }
    }
    fprintf(f,
            "scores in percent with 95 %% intervals; differences to policy 1 on the same items\n");
    fv_status st = fv_table_print(f, &t);
    fv_table_fini(&t);
    return st;
}

static void spread_cells(fv_table *t, const fv_spread *s) {
    fv_table_number(t, s->n ? MS * s->p50 : (double)NAN, 2);
    fv_table_number(t, s->n ? MS * s->p90 : (double)NAN, 2);
}

static fv_status print_costs(FILE *f, const fv_results *r) {
    static const char *const head[] = {"policy",   "exact",    "held",     "at end",  "sent",
                                       "TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90"};
    fv_table t;
    cells(&t, head, 9);
    for (int32_t p = 0; p < r->results_log->head->n_policy; p++) {
        const fv_group_result *all = &r->policy[p].group[r->n_group - 1];
        fv_table_cell(&t, "%d", p + 1);
        fv_table_number(&t, KIB * all->bytes_exact, 1);
        fv_table_number(&t, KIB * all->bytes_visual, 1);
        fv_table_number(&t, KIB * all->bytes_visual_end, 1);
        fv_table_number(&t, KIB * all->bytes_sent, 1);
        spread_cells(&t, &r->policy[p].ttft_s);
        spread_cells(&t, &r->policy[p].tpot_s);
    }
    fprintf(f, "visual KV per item, mean, in KiB; sent: in the hand-off, including text; TTFT and "
               "TPOT in ms\n");
    fv_status st = fv_table_print(f, &t);
    fv_table_fini(&t);
    return st;
}

fv_status fv_eval_print(FILE *f, const fv_results *r) {
    for (int32_t p = 0; p < r->results_log->head->n_policy; p++)
        fprintf(f, "policy %d: %s\n", p + 1, r->results_log->head->policy[p]);
    fputc('\n', f);
    FV_TRY(print_scores(f, r));
    fputc('\n', f);
    FV_TRY(print_costs(f, r));
    for (int32_t p = 0; p < r->results_log->head->n_policy; p++)
        if (r->policy[p].note)
            fprintf(f, "policy %d, on %d items: %s\n", p + 1, r->policy[p].n_note,
                    r->policy[p].note);
    return FV_OK;
}
