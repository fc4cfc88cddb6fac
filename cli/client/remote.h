#ifndef FOVEA_CLI_CLIENT_REMOTE_H
#define FOVEA_CLI_CLIENT_REMOTE_H

/* A CLIENT: the same request as in cli/client/local.h, answered by a fleet. One thread, which runs the
 * client's loop while it waits. */
#include "cli/client/local.h"
#include "common/options.h"
#include "inference.pb-c.h"
#include "rpc/client.h"

typedef struct fv_remote fv_remote; /* opaque */

/* Rows of a table with --to. */
/* clang-format off */
#define FV_REMOTE_OPTIONS                                                                          \
    {"tls-ca", "FOVEA_TLS_CA", FV_OPTION_STRING, "FILE", NULL,                                     \
     "with --to: use TLS, and trust these PEM certificates; system: those of the system", 0, 0},   \
    {"tls-cert", "FOVEA_TLS_CERT", FV_OPTION_STRING, "FILE", NULL,                                 \
     "with --tls-ca: the client's own PEM certificate chain", 0, 0},                               \
    {"tls-key", "FOVEA_TLS_KEY", FV_OPTION_STRING, "FILE", NULL, "and its private key", 0, 0},     \
    {"tls-name", "FOVEA_TLS_NAME", FV_OPTION_STRING, "NAME", NULL,                                 \
     "with --tls-ca: DNS name in the server's certificate; default: the host of --to", 0, 0},      \
    {"api-key-file", "FOVEA_API_KEY_FILE", FV_OPTION_STRING, "FILE", NULL,                         \
     "with --to: file with an API key or a JWT to show", 0, 0},                                     \
    {"model", "FOVEA_MODEL", FV_OPTION_STRING, "NAME", "",                                         \
     "with --to: name or fingerprint of the model; needed where there are several", 0, 0}
/* clang-format on */

/* Who is asked, and how it is known. Borrowed. */
typedef struct fv_remote_options {
    const char *target; /* "HOST:PORT" */
    fv_tls_files tls;   /* ca NULL: plain text; "system": the system's authorities */
    const char *name;   /* in the server's certificate; NULL: the target's host */
    const char *key;    /* file with an API key or a JWT; NULL: none is shown */
    const char *model;  /* its name or fingerprint; NULL: "", the only one */
} fv_remote_options;

fv_remote_options fv_remote_options_of(const fv_options *o); /* of --to and the rows above */

/* Connects when it is first asked something. FV_EINVAL: the target is no HOST:PORT, or a file of
 * TLS is missing. */
fv_status fv_remote_open(const fv_remote_options *opt, fv_remote **out);
void fv_remote_close(fv_remote *r); /* NULL is fine */

/* Of the model there, what a client needs. */
typedef struct fv_remote_model {
    char fingerprint[64];
    uint32_t keep_ms_max; /* longest time that a conversation may be kept; 0: none is */
    int32_t n_kv;
    fv_layout_config layout; /* of images; the family is NONE where the model reads text only */
} fv_remote_model;
fv_status fv_remote_get_model(fv_remote *r, fv_remote_model *out);

/* How many workers are ready, and what they have to do. */
typedef struct fv_fleet_count {
    int32_t n_prefill, n_decode;
    int32_t n_queued, n_running; /* requests at the router */
    uint64_t bytes_used;         /* of the workers' KV: promised or held */
} fv_fleet_count;
fv_status fv_remote_fleet(fv_remote *r, fv_fleet_count *out);

/* ---- many requests at once --------------------------------------------------------------- */

/* What a request says as it goes on; messages are borrowed for the call. A failure that one returns
 * ends the request with it. */
typedef struct fv_remote_events {
    void (*accepted)(void *user, const Fovea__Inference__V1__Accepted *m); /* may be NULL */
    fv_status (*tokens)(void *user, const Fovea__Inference__V1__Tokens *t);
    fv_status (*finished)(void *user, const Fovea__Inference__V1__Finished *f);
    /* Last, in any case. fv_last_error() says who failed and why; end->text is only the why. */
    void (*over)(void *user, fv_status st, const fv_rpc_end *end);
} fv_remote_events;

/* Begins a request, which goes on while the loop runs; nothing is called before this returns. The
 * message may go then; the events must stay. */
fv_status fv_remote_begin(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                          int64_t deadline_ms, const fv_remote_events *events, void *user);

uv_loop_t *fv_remote_loop(fv_remote *r); /* run it UV_RUN_ONCE until all are over */

/* ---- one that is waited for -------------------------------------------------------------- */

/* Who answered, and what was kept. */
typedef struct fv_remote_outcome {
    char prefill[128], decode[128]; /* workers; "" where there was none */
    uint8_t conversation[512];      /* [n_conversation] its name; 0: nothing was kept */
    size_t n_conversation;
} fv_remote_outcome;

/* Runs one request to its end; calls the hooks text and token on the way, and kept at the
 * end, if requested: without n_kv and fit, which belong to the model. */
fv_status fv_remote_ask(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                        const fv_ask_hooks *hooks, fv_remote_outcome *outcome, fv_report *report);

/* Report.kept, without n_kv; *out is in the arena and borrows from the message.
 * FV_EDATA: groups that are not the layers in order, or not of the prompt's visual tokens. */
fv_status fv_kept_map_from_message(const Fovea__Inference__V1__Report *m, fv_arena *arena,
                                   fv_kept_map *out);

/* What a fleet reports, as one process would have (cli/client/report.h prints it). */
fv_status fv_report_from_message(const Fovea__Inference__V1__Report *m,
                                 Fovea__Inference__V1__FinishReason finish, fv_report *out);

#endif
