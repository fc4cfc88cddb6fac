#ifndef FOVEA_BENCH_PROGRAM_H
#define FOVEA_BENCH_PROGRAM_H

/* What all benchmarks share: the command line, failures, JSON files, time. Errors go to stderr, after
 * the program's name, and end it. */
#include <jansson.h>
#include <sys/types.h>

#include "common/options.h"

/* Ends the program with status 1 and the message of a failed call. */
void bench_must(fv_status s);

/* The command line; the caller frees it. Ends the program: after --help, which prints `usage`, `about`
 * and the table, with 0; when it is wrong, with 2. */
fv_options *bench_options(const fv_option *table, int n, int argc, char **argv, const char *usage,
                          const char *about);

/* Writes `json` to the file of option --json, if that is given, and releases it. */
void bench_write_json(const fv_options *o, json_t *json);

/* Seconds for which all threads of a process (0: this one) have computed: unlike the time on the
 * clock, hardly longer when the machine does other things too. */
double bench_cpu_s(pid_t pid);

/* Sorts v; returns the middle. */
double bench_median(double *v, int n);

#endif
