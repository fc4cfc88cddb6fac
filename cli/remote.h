#ifndef FOVEA_CLI_REMOTE_H
#define FOVEA_CLI_REMOTE_H

/* A CLIENT: the same request as in cli/local.h, answered by a fleet. One thread, which runs the
 * client's loop while it waits. */
#include "cli/local.h"
#include "inference.pb-c.h"

typedef struct fv_remote fv_remote; /* opaque */

/* Connects when it is first asked something. FV_EINVAL: `target` is no HOST:PORT. */
fv_status fv_remote_open(const char *target, fv_remote **out);
void fv_remote_close(fv_remote *r); /* NULL is fine */

/* The fingerprint of the model there; borrowed until close. */
fv_status fv_remote_fingerprint(fv_remote *r, const char **out);

/* How many workers are ready, and what they have to do. */
typedef struct fv_fleet_count {
    int32_t n_prefill, n_decode;
    int32_t n_queued, n_running; /* requests at the router */
    uint64_t bytes_used;         /* of the workers' KV: promised or held */
} fv_fleet_count;
fv_status fv_remote_fleet(fv_remote *r, fv_fleet_count *out);

/* Runs one request to its end; the hooks text and token are called as it goes on. */
fv_status fv_remote_ask(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                        const fv_ask_hooks *hooks, fv_report *report);

/* The workers that answered the last request; "" where there was none. Borrowed until the next. */
const char *fv_remote_prefill_worker(const fv_remote *r);
const char *fv_remote_decode_worker(const fv_remote *r);

/* What a fleet reports, as one process would have (cli/report.h prints it). */
fv_status fv_report_from_message(const Fovea__Inference__V1__Report *m,
                                 Fovea__Inference__V1__FinishReason finish, fv_report *out);

#endif
