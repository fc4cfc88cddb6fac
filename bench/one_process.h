#ifndef FOVEA_BENCH_ONE_PROCESS_H
#define FOVEA_BENCH_ONE_PROCESS_H

/* ONE PROCESS that serves many clients with both workers' stages and no network: the baseline for a
 * fleet of one prefill and one decode worker.
 *
 *   waiting --up to 4 together--> prefill --first token--> batch --step by step--> answer
 *
 * Waiting requests go first, as in most servers: no other request gets a token during their
 * prefill. There is no hand-off: decode continues in the KV store that prefill filled. */
#include "cli/bench/load.h"
#include "model/engine.h"

typedef struct one_process one_process; /* opaque */

/* Opens the process. `image` is the image of all requests, or NULL; it is encoded once, as with a
 * prefill worker's cache. */
fv_status one_process_open(const char *checkpoint, const char *image, one_process **out);
void one_process_close(one_process *p); /* NULL is fine */

/* Runs the closed loop of fv_bench_run with clients that cost no time. Answers run to
 * max_tokens. */
fv_status one_process_run(one_process *p, const fv_bench_load *load, uint64_t *number,
                          fv_bench_row *row);

#endif
