#ifndef FOVEA_BENCH_ONE_PROCESS_H
#define FOVEA_BENCH_ONE_PROCESS_H

/* ONE PROCESS that serves many clients with both workers' parts and no network: what a fleet
 * of one prefill and one decode worker is measured against.
 *
 *   who waits --up to 4 together--> prefill --first token--> batch --step by step--> answer
 *
 * Those who wait go first, as in most servers: while they are prefilled, nobody else gets a token.
 * Nothing is handed off: decoding goes on in the store that prefill has filled. */
#include "cli/bench/load.h"
#include "model/engine.h"

typedef struct one_process one_process; /* opaque */

/* `image` is the image of all requests, or NULL; it is encoded once, as a prefill worker's cache
 * does. */
fv_status one_process_open(const char *checkpoint, const char *image, one_process **out);
void one_process_close(one_process *p); /* NULL is fine */

/* The closed loop of fv_bench_run, with clients that take no time. Answers go on to max_tokens. */
fv_status one_process_run(one_process *p, const fv_bench_load *load, uint64_t *number,
                          fv_bench_row *row);

#endif
