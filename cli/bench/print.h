#ifndef FOVEA_CLI_BENCH_PRINT_H
#define FOVEA_CLI_BENCH_PRINT_H

/* Results of `fovea bench` as tables and as JSON. */
#include <jansson.h>

#include "cli/bench/load.h"

/* A row with the settings under which it was measured. */
typedef struct fv_bench_result {
    const char *policy;  /* "exact", or as given */
    int32_t concurrency; /* 0: open loop */
    double rate;
    bool goodput; /* a limit was set */
    fv_bench_row row;
} fv_bench_result;

/* Prints two tables, speed and bytes, the resources of this process, and a line per kind of
 * failure; `head` is printed above the names. */
fv_status fv_bench_print(FILE *f, const char *head, fv_bench_result *results, int32_t n);

/* The same with more detail: times in ms, bytes per request; each a {n, mean, min, p1, ... p99.9,
 * max}, or null without measurements. NULL: out of memory. */
json_t *fv_bench_json(fv_bench_result *result);

#endif
