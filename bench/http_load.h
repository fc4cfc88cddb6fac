#ifndef FOVEA_BENCH_HTTP_LOAD_H
#define FOVEA_BENCH_HTTP_LOAD_H

/* HTTP LOAD: the closed loop of fv_bench_run (cli/bench/load.h) over streams of
 * /v1/chat/completions; each client keeps one connection. Any error aborts. */
#include "cli/bench/load.h"

/* Runs the load on a gateway at "HOST:PORT". Sets n_ok, n_token, seconds, ttft_s (to the first
 * text) and e2e_s of the row. */
void http_load_run(const char *address, const fv_bench_load *load, uint64_t *number,
                   fv_bench_row *row);

#endif
