#ifndef FOVEA_BENCH_HTTP_LOAD_H
#define FOVEA_BENCH_HTTP_LOAD_H

/* HTTP LOAD: the closed loop of fv_bench_run (cli/bench/load.h) as streams of /v1/chat/completions, each client
 * with a connection that it keeps. Any error aborts. */
#include "cli/bench/load.h"

/* address: "HOST:PORT" of a gateway. Of the row: n_ok, n_token, seconds, ttft_s (to the first text), e2e_s. */
void http_load_run(const char *address, const fv_bench_load *load, uint64_t *number,
                   fv_bench_row *row);

#endif
