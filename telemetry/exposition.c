/* Prints the text of a scrape. The two formats differ in the names of counters above their samples,
 * in units, in exemplars and in the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics_internal.h"

static const char total[] = "_total";

/* A counter's name without _total: its family in OpenMetrics. */
static int family_length(const fv_metric_info *info, bool openmetrics) {
    size_t n = strlen(info->name);
    return (int)(openmetrics && info->type == FV_TYPE_COUNTER ? n - strlen(total) : n);
}

static bool ends_with(const char *text, int n, const char *end) {
    int n_end = (int)strlen(end);
    return n > n_end && text[n - n_end - 1] == '_' &&
           memcmp(text + n - n_end, end, (size_t)n_end) == 0;
}

static void print_head(FILE *f, const fv_metric_info *info, bool openmetrics) {
    int n = family_length(info, openmetrics);
    fprintf(f, "# TYPE %.*s %s\n", n, info->name, fv_metric_type_name(info->type));
    if (openmetrics && *info->unit && ends_with(info->name, n, info->unit))
        fprintf(f, "# UNIT %.*s %s\n", n, info->name, info->unit);
    fprintf(f, "# HELP %.*s %s\n", n, info->name, info->help);
}

/* Prints as many digits as needed to read back the same number. */
static void print_number(FILE *f, double x) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", x);
    if (strtod(text, NULL) != x) snprintf(text, sizeof text, "%.17g", x);
    fputs(text, f);
}

/* A bound as OpenMetrics writes it: 1.0, not 1. */
static void print_bound(FILE *f, double x) { fprintf(f, x == floor(x) ? "%.1f" : "%g", x); }

static void print_labels(FILE *f, const fv_metric_info *info, int32_t series, const double *bound,
                         bool bucket) {
    int32_t n_second = fv_label_count(info->label[1]),
            at[2] = {series / n_second, series % n_second};
    const char *between = "{";
    for (int i = 0; i < 2; i++) {
        if (info->label[i] == FV_LABEL_NONE) continue;
        fprintf(f, "%s%s=\"%s\"", between, fv_label_name(info->label[i]),
                fv_label_value(info->label[i], at[i]));
        between = ",";
    }
    if (bucket) {
        fprintf(f, "%sle=\"", between);
        if (bound)
            print_bound(f, *bound);
        else
            fputs("+Inf", f);
        fputs("\"", f);
        between = ",";
    }
    if (*between == ',') fputs("}", f);
    fputs(" ", f);
}

static void print_exemplar(FILE *f, fv_metric m, int32_t series, int32_t bucket) {
    char id[2 * FV_TRACE_ID_BYTES + 1];
    fv_exemplar x;
    if (!fv_metric_exemplar(m, series, bucket, &x)) return;
    fv_trace_id_print(&x.trace, id);
    fprintf(f, " # {trace_id=\"%s\"} ", id);
    print_number(f, x.value);
    fprintf(f, " %.3f", x.time_s);
}

static void print_histogram(FILE *f, fv_metric m, int32_t series, bool openmetrics) {
    const fv_metric_info *info = fv_metric_get_info(m);
    int32_t n;
    const double *bound = fv_metric_bounds(info->type, &n);
    uint64_t count = 0;
    double sum = fv_metric_sum(m, series);
    for (int32_t i = 0; i <= n; i++) {
        count += fv_metric_bucket(m, series, i);
        fprintf(f, "%s_bucket", info->name);
        print_labels(f, info, series, i < n ? &bound[i] : NULL, true);
        fprintf(f, "%llu", (unsigned long long)count);
        if (openmetrics) print_exemplar(f, m, series, i);
        fputs("\n", f);
    }
    fprintf(f, "%s_sum", info->name);
    print_labels(f, info, series, NULL, false);
    print_number(f, sum);
    fprintf(f, "\n%s_count", info->name);
    print_labels(f, info, series, NULL, false);
    fprintf(f, "%llu\n", (unsigned long long)count);
}

static bool has_labels(const fv_metric_info *info, int32_t series) {
    int32_t n_second = fv_label_count(info->label[1]);
    return fv_label_value(info->label[0], series / n_second) &&
           fv_label_value(info->label[1], series % n_second);
}

static void print_metric(FILE *f, fv_metric m, bool openmetrics) {
    const fv_metric_info *info = fv_metric_get_info(m);
    int32_t n = fv_metric_series(m, fv_label_count(info->label[0]), 0);
    print_head(f, info, openmetrics);
    for (int32_t series = 0; series < n; series++) {
        if (!has_labels(info, series)) continue;
        if (info->type >= FV_TYPE_LATENCY) {
            print_histogram(f, m, series, openmetrics);
            continue;
        }
        fputs(info->name, f);
        print_labels(f, info, series, NULL, false);
        print_number(f, fv_metric_value(m, series));
        fputs("\n", f);
    }
}

void fv_metrics_print(FILE *f, bool openmetrics) {
    for (int m = 0; m < FV_N_METRIC; m++)
        if (fv_metric_has((fv_metric)m)) print_metric(f, (fv_metric)m, openmetrics);
    if (openmetrics) fputs("# EOF\n", f);
}
