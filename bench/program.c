/* See program.h. */
#include "bench/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void fail(int status) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, fv_last_error());
    exit(status);
}

void bench_must(fv_status s) {
    if (s != FV_OK) fail(1);
}

fv_options *bench_options(const fv_option *table, int n, int argc, char **argv, const char *usage,
                          const char *about) {
    fv_options *o;
    if (fv_options_parse(table, n, argc, argv, &o) != FV_OK) fail(2);
    if (!fv_options_help_wanted(o)) return o;
    fv_options_print_help(stdout, usage, about, table, n);
    fv_options_free(o);
    exit(0);
}

void bench_write_json(const fv_options *o, json_t *json) {
    const char *path = fv_options_string(o, "json");
    if (path && (!json || json_dump_file(json, path, JSON_INDENT(2)) != 0))
        bench_must(FV_FAIL(FV_EIO, "cannot write %s", path));
    json_decref(json);
}

double bench_cpu_s(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        bench_must(FV_FAIL(FV_EIO, "process %d has ended", (int)pid));
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}
