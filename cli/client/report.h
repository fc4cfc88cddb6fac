#ifndef FOVEA_CLI_CLIENT_REPORT_H
#define FOVEA_CLI_CLIENT_REPORT_H

/* The report of a request, for people and for programs. */
#include <jansson.h>
#include <stdio.h>

#include "cli/client/local.h"

/* Who answered: one process, or a fleet. */
typedef struct fv_report_source {
    const char *checkpoint;                     /* fingerprint */
    const char *isa;                            /* NULL: a fleet's workers have their own */
    const char *prefill_worker, *decode_worker; /* NULL: there were none */
} fv_report_source;

fv_report_source fv_report_source_local(const fv_local *local);

/* The report as a JSON object, or NULL when memory runs out. Give it back with json_decref.
 * Bytes in bytes, times in seconds, digests as 16 hex digits each. */
json_t *fv_report_json(const fv_report_source *source, const fv_report *r);

/* A few lines: tokens in and kept, bytes raw and held, seconds, what was bypassed. */
void fv_report_print(FILE *f, const fv_report_source *source, const fv_report *r);

#endif
