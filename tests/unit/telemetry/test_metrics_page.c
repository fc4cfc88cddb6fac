/* docs/METRICS.md must have the tables of the table of metrics. The expected page is written to the
 * tests' folder; the text around the tables is the page's own. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "telemetry/metrics.h"

static const char begin[] = "<!-- telemetry/metrics.def -->\n", end[] = "<!-- end -->\n";

static const char *daemons_of(unsigned d) {
    static const struct {
        unsigned daemons;
        const char *text;
    } texts[] = {
        {FV_DAEMON_ROUTER, "router"},
        {FV_DAEMON_PREFILL, "prefill"},
        {FV_DAEMON_DECODE, "decode"},
        {FV_DAEMON_GATEWAY, "gateway"},
        {FV_DAEMON_PREFILL | FV_DAEMON_DECODE, "prefill, decode"},
        {FV_DAEMON_ROUTER | FV_DAEMON_PREFILL | FV_DAEMON_DECODE, "router, prefill, decode"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].daemons == d) return texts[i].text;
    return "all";
}

static void print_metrics(FILE *f) {
    fputs("| name | type | unit | labels | daemons | meaning |\n|---|---|---|---|---|---|\n", f);
    for (int m = 0; m < FV_N_METRIC; m++) {
        const fv_metric_info *i = fv_metric_get_info((fv_metric)m);
        bool two = i->label[1] != FV_LABEL_NONE;
        fprintf(f, "| `%s` | %s | %s | %s%s%s | %s | ", i->name, fv_metric_type_name(i->type),
                i->unit, fv_label_name(i->label[0]), two ? ", " : "", fv_label_name(i->label[1]),
                daemons_of(i->daemons));
        for (const char *c = i->help; *c; c++) fprintf(f, *c == '|' ? "\\%c" : "%c", *c);
        fputs(" |\n", f);
    }
}

static void print_labels(FILE *f) {
    fputs("\n| label | of | values |\n|---|---|---|\n", f);
    for (int l = FV_LABEL_PRESET; l < FV_N_LABEL; l++) {
        const char *between = "";
        fprintf(f, "| %s | ", fv_label_name((fv_label)l));
        for (int m = 0; m < FV_N_METRIC; m++) {
            const fv_metric_info *i = fv_metric_get_info((fv_metric)m);
            if ((int)i->label[0] != l && (int)i->label[1] != l) continue;
            fprintf(f, "%s`%s`", between, i->name);
            between = ", ";
        }
        fputs(" |", f);
        between = " ";
        for (int32_t i = 0; i < fv_label_count((fv_label)l); i++) {
            const char *value = fv_label_value((fv_label)l, i);
            if (!value) continue;
            fprintf(f, "%s%s", between, value);
            between = ", ";
        }
        fputs(" |\n", f);
    }
}

static void print_buckets(FILE *f) {
    fputs("\n| histograms | buckets up to |\n|---|---|\n", f);
    for (int t = FV_TYPE_LATENCY; t <= FV_TYPE_ERROR; t++) {
        const char *between = "";
        int32_t n;
        const double *bound = fv_metric_bounds((fv_metric_type)t, &n);
        fputs("| ", f);
        for (int m = 0; m < FV_N_METRIC; m++) {
            const fv_metric_info *i = fv_metric_get_info((fv_metric)m);
            if ((int)i->type != t) continue;
            fprintf(f, "%s`%s`", between, i->name);
            between = ", ";
        }
        fputs(" |", f);
        for (int32_t i = 0; i < n; i++) fprintf(f, "%s%g", i ? ", " : " ", bound[i]);
        fputs(", +Inf |\n", f);
    }
}

Test(metrics_page, its_tables_are_those_of_the_program) {
    static const char page[] = FOVEA_TEST_DATA "/../docs/METRICS.md",
                      fresh[] = FOVEA_TEST_TMP "/METRICS.md";
    char *text, *have;
    size_t n, n_have;
    cr_assert_eq(fv_file_read(page, 1 << 20, &have, &n_have), FV_OK, "%s", fv_last_error());
    char *from = strstr(have, begin), *to = from ? strstr(from, end) : NULL;
    cr_assert(from && to, "%s has no table between %s and %s", page, begin, end);
    FILE *f = open_memstream(&text, &n);
    fwrite(have, 1, (size_t)(from - have) + strlen(begin), f);
    fputs("\n", f);
    print_metrics(f);
    print_labels(f);
    print_buckets(f);
    fputs("\n", f);
    fputs(to, f);
    fclose(f);
    cr_assert_eq(fv_file_write(fresh, text, n), FV_OK, "%s", fv_last_error());
    cr_assert(n == n_have && memcmp(text, have, n) == 0,
              "docs/METRICS.md differs from the program's table: cp %s docs/METRICS.md", fresh);
    free(text);
    free(have);
}

/* Names must not change: users' programs have them. */
Test(metrics_page, names_follow_the_rules_of_prometheus) {
    for (int m = 0; m < FV_N_METRIC; m++) {
        const fv_metric_info *i = fv_metric_get_info((fv_metric)m);
        const char *total = strstr(i->name, "_total");
        bool vllm = strncmp(i->name, "vllm:", 5) == 0;
        cr_assert(vllm || strncmp(i->name, "fovea_", 6) == 0, "%s", i->name);
        cr_assert_eq(total && !total[6], i->type == FV_TYPE_COUNTER, "%s", i->name);
        cr_assert_eq(i->help[strlen(i->help) - 1], '.', "%s", i->name);
        cr_assert_null(strpbrk(i->help, "\\\n"), "%s", i->name);
        for (int j = 0; j < m; j++)
            cr_assert_str_neq(fv_metric_get_info((fv_metric)j)->name, i->name);
        char ending[32];
        snprintf(ending, sizeof ending, "_%s%s", i->unit,
                 i->type == FV_TYPE_COUNTER ? "_total" : "");
        bool base = strcmp(i->unit, "seconds") == 0 || strcmp(i->unit, "bytes") == 0;
        size_t n = strlen(i->name), n_ending = strlen(ending);
        cr_assert(!base || strcmp(i->name + n - n_ending, ending) == 0, "%s", i->name);
    }
}
