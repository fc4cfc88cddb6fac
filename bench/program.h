#ifndef FOVEA_BENCH_PROGRAM_H
#define FOVEA_BENCH_PROGRAM_H

/* Shared by all benchmarks: the command line, failures, JSON files, time. Errors go to stderr after
 * the program's name and end the program. */
#include <jansson.h>
#include <sys/types.h>

#include "common/options.h"

/* Ends the program with status 1 and the message of a failed call. */
void bench_must(fv_status s);

/* Parses the command line; the caller frees the result. After --help, which prints `usage`, `about`
 * and the table, ends the program with status 0; on a wrong command line, with 2. */
fv_options *bench_options(const fv_option *table, int n, int argc, char **argv, const char *usage,
                          const char *about);

/* Writes `json` to the file of option --json, if given; releases `json`. */
void bench_write_json(const fv_options *o, json_t *json);

/* Returns the CPU seconds of all threads of a process (0: this one), which other load hardly
 * changes. */
double bench_cpu_s(pid_t pid);

/* Sorts v; returns its median. */
double bench_median(double *v, int n);

#endif
