#ifndef FOVEA_CLI_CLIENT_REPORT_H
#define FOVEA_CLI_CLIENT_REPORT_H

/* Prints a request's report as text or JSON. */
#include <jansson.h>
#include <stdio.h>

#include "cli/client/local.h"

/* The process or fleet that answered. */
typedef struct fv_report_source {
    const char *checkpoint;                     /* fingerprint */
    const char *isa;                            /* NULL: a fleet, whose workers have their own */
    const char *prefill_worker, *decode_worker; /* NULL: none */
} fv_report_source;

fv_report_source fv_report_source_local(const fv_local *local);

/* The report as a JSON object (json_decref it); NULL: out of memory. Bytes in bytes, times in
 * seconds, digests as 16 hex digits each. */
json_t *fv_report_json(const fv_report_source *source, const fv_report *r);

/* Prints a few lines: tokens in and kept, bytes raw and held, seconds, bypassed stages. */
void fv_report_print(FILE *f, const fv_report_source *source, const fv_report *r);

#endif
