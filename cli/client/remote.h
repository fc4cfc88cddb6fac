#ifndef FOVEA_CLI_CLIENT_REMOTE_H
#define FOVEA_CLI_CLIENT_REMOTE_H

/* A CLIENT of a fleet, for the same requests as cli/client/local.h. One thread, which runs the
 * client's loop while it waits. */
#include "cli/client/local.h"
#include "common/options.h"
#include "inference.pb-c.h"
#include "rpc/client.h"

typedef struct fv_remote fv_remote; /* opaque */

/* The fleet to connect to, and its credentials. Borrowed. */
typedef struct fv_remote_options {
    const char *target; /* "HOST:PORT" */
    fv_tls_files tls;   /* ca NULL: plain text; "system": the system's authorities */
    const char *name;   /* expected in the server's certificate; NULL: the target's host */
    const char *key;    /* file with an API key or a JWT; NULL: none */
    const char *model;  /* name or fingerprint; NULL: "", the only model */
} fv_remote_options;

fv_remote_options
fv_remote_options_of(const fv_options *o); /* from --to, --model, --api-key-file and --tls-... */

/* Opens a client, which connects at its first call. FV_EINVAL: the target is no HOST:PORT, or a TLS
 * file is missing. */
fv_status fv_remote_open(const fv_remote_options *opt, fv_remote **out);
void fv_remote_close(fv_remote *r); /* NULL is fine */

/* Facts about the fleet's model that a client needs. */
typedef struct fv_remote_model {
    char fingerprint[64];
    uint32_t keep_ms_max; /* longest time for which a conversation may be kept; 0: none is kept */
    int32_t n_kv;
    fv_layout_config layout; /* layout of images; family NONE: the model reads text only */
} fv_remote_model;
fv_status fv_remote_get_model(fv_remote *r, fv_remote_model *out);

/* Ready workers and their load. */
typedef struct fv_fleet_count {
    int32_t n_prefill, n_decode;
    int32_t n_queued, n_running; /* requests at the router */
    uint64_t bytes_used;         /* KV of the workers: promised or held */
} fv_fleet_count;
fv_status fv_remote_fleet(fv_remote *r, fv_fleet_count *out);

/* ---- many requests at once --------------------------------------------------------------- */

/* Callbacks during a request; messages are borrowed for the call. A failure ends the request with
 * that status. */
typedef struct fv_remote_events {
    void (*accepted)(void *user, const Fovea__Inference__V1__Accepted *m); /* may be NULL */
    fv_status (*tokens)(void *user, const Fovea__Inference__V1__Tokens *t);
    fv_status (*finished)(void *user, const Fovea__Inference__V1__Finished *f);
    /* Always called last. fv_last_error() says who failed and why; end->text is only the reason. */
    void (*over)(void *user, fv_status st, const fv_rpc_end *end);
} fv_remote_events;

/* Begins a request, which runs with the loop; no callback is called before this returns. The
 * message may be freed then; the events must stay valid. */
fv_status fv_remote_begin(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                          int64_t deadline_ms, const fv_remote_events *events, void *user);

uv_loop_t *fv_remote_loop(fv_remote *r); /* run it UV_RUN_ONCE until all requests are over */

/* ---- one request at a time --------------------------------------------------------------- */

/* The workers that answered, and the kept conversation. */
typedef struct fv_remote_outcome {
    char prefill[128], decode[128]; /* names of workers; "": none */
    uint8_t conversation[512];      /* [n_conversation] its handle; 0: not kept */
    size_t n_conversation;
} fv_remote_outcome;

/* Runs one request to its end. Calls the hooks text and token, and at the end kept, if requested,
 * without n_kv and layout, which belong to the model. */
fv_status fv_remote_ask(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                        const fv_ask_hooks *hooks, fv_remote_outcome *outcome, fv_report *report);

/* Parses Report.kept, without n_kv; *out is in the arena and borrows from the message. FV_EDATA:
 * groups are not the layers in order, or not of the prompt's visual tokens. */
fv_status fv_kept_map_from_message(const Fovea__Inference__V1__Report *m, fv_arena *arena,
                                   fv_kept_map *out);

/* Converts a fleet's report to the form of a local one (cli/client/report.h prints it). */
fv_status fv_report_from_message(const Fovea__Inference__V1__Report *m,
                                 Fovea__Inference__V1__FinishReason finish, fv_report *out);

#endif
