#ifndef FOVEA_CLI_REPORT_H
#define FOVEA_CLI_REPORT_H

/* The report of a request, for people and for programs. */
#include <jansson.h>
#include <stdio.h>

#include "cli/local.h"

/* The report as a JSON object, or NULL when memory runs out. Give it back with json_decref.
 * Bytes in bytes, times in seconds, digests as 16 hex digits each. */
json_t *fv_report_json(const fv_local *local, const fv_report *r);

/* A few lines: tokens in and kept, bytes raw and held, seconds, what was bypassed. */
void fv_report_print(FILE *f, const fv_local *local, const fv_report *r);

#endif
