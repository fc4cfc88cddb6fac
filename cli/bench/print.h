#ifndef FOVEA_CLI_BENCH_PRINT_H
#define FOVEA_CLI_BENCH_PRINT_H

/* What `fovea bench` measured, as tables and as JSON. */
#include <jansson.h>

#include "cli/bench/load.h"

/* One row with what it was measured under. */
typedef struct fv_bench_result {
    const char *policy;  /* "exact", or as it was given */
    int32_t concurrency; /* 0: open loop */
    double rate;
    bool goodput; /* there was a limit to meet */
    fv_bench_row row;
} fv_bench_result;

/* Two tables, speed and bytes, the resources of this process, and a line for each kind of failure;
 * `head` is printed above the names. */
fv_status fv_bench_print(FILE *f, const char *head, fv_bench_result *results, int32_t n);

/* The same and more: times in ms, bytes per request; each a {n, mean, min, p1, ... p99.9, max}, or
 * null where nothing was measured. NULL: out of memory. */
json_t *fv_bench_json(fv_bench_result *result);

#endif
