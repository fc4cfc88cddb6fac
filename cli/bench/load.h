#ifndef FOVEA_CLI_BENCH_LOAD_H
#define FOVEA_CLI_BENCH_LOAD_H

/* LOAD on a fleet: many requests from one thread, and their measured times.
 *
 *   closed loop  `concurrency` clients, each of which sends its next request after its answer
 *   open loop    requests arrive at random times, `rate` per second on average, whether or not the
 *                fleet keeps up
 *
 * Times are the client's: TTFT from the request's due time to its first token, ITL between tokens
 * (0 between those of one message), TPOT = (E2E - TTFT) / (tokens - 1). Requests that were refused,
 * late or failed are counted but not measured.
 *
 * While requests arrive the load is steady; after the last one the fleet runs empty. Throughput is
 * the number of answers in the steady time, divided by that time. */
#include "cli/bench/samples.h"
#include "cli/client/remote.h"

typedef struct fv_bench_load {
    const Fovea__Inference__V1__Policy *policy;
    const char *policy_text; /* for the progress bar */
    const char *prompt;      /* follows the request's own number */
    int32_t n_image;
    Fovea__Inference__V1__Image *const *images; /* [n_image] one per request, in turn */
    int32_t max_tokens;
    bool ignore_eos;
    Fovea__Inference__V1__TokenRules *rules; /* the form of the answers; NULL: none */
    char *variables;                         /* of the chat template, a JSON object; NULL: none */
    bool speculate; /* answers run drafts as the worker is set; otherwise none does */
    bool cached;    /* prompts use what is kept of earlier ones; otherwise each is computed whole */
    int32_t n_request;
    int32_t concurrency; /* at most n_request */
    double rate;         /* per second; 0: closed loop */
    uint64_t seed;       /* of the random times and the prompts */
    int64_t deadline_ms; /* of each request, from its due time */
    double ttft_ms,
        itl_ms; /* limits of a good request for its first token and for each other token; 0: none */
    bool progress;
} fv_bench_load;

/* Failures of one code. */
typedef struct fv_bench_error {
    int32_t n;
    char first[256]; /* message of the first one */
} fv_bench_error;

enum { FV_BENCH_CODES = 17 }; /* gRPC's */

typedef struct fv_bench_row {
    /* Answered; RESOURCE_EXHAUSTED; DEADLINE_EXCEEDED; all other failures; answered within the
     * limits. */
    int32_t n_ok, n_refused, n_late, n_failed, n_good;
    double seconds;   /* from the first request to the last answer; summed over runs */
    double steady_s;  /* until the last request began; summed over runs */
    int32_t n_steady; /* good answers in that time */
    double cpu_s;     /* CPU time of this process: the load that it causes itself */
    fv_samples lag_s; /* delay of requests because this process was busy */
    uint64_t n_token, n_prompt_row;
    fv_samples ttft_s, tpot_s, itl_s, e2e_s;
    fv_samples bytes_raw, bytes_sent, bytes_resident, bytes_end; /* per request, from its report */
    fv_samples open_s, send_s, exposed_s, commit_s, attach_s;    /* stages of the hand-off */
    fv_bench_error errors[FV_BENCH_CODES];
} fv_bench_row; /* {0} is empty and may be freed */

/* The prompt of request `number`: all differ and have the same length. */
enum { FV_BENCH_PROMPT_MORE = 64 }; /* bytes beyond those of the text */
void fv_bench_prompt(const fv_bench_load *load, uint64_t number, char *out);

/* Runs the requests to their end. `number` counts requests over several runs, so that no prompt is
 * repeated. Failures of requests are in the row; the returned status is this process's own. */
fv_status fv_bench_run(fv_remote *r, const fv_bench_load *load, uint64_t *number,
                       fv_bench_row *row);
void fv_bench_row_free(fv_bench_row *row);

#endif
