#ifndef FOVEA_CLI_CLIENT_OUTPUT_H
#define FOVEA_CLI_CLIENT_OUTPUT_H

/* OUTPUT: a command's output is written completely, or the command reports that it is not. */
#include <jansson.h>

#include "common/status.h"

/* Checks before work begins that `path` can be written: opens it for writing without changing it,
 * and removes it if it did not exist. NULL is fine. FV_EIO or FV_ENOTFOUND, with the reason.
 */
fv_status fv_output_check(const char *path);

/* Prints a JSON object or list and a newline to standard output; fv_output_flush reports failures.
 */
void fv_output_json(const json_t *json);

/* Writes it into a file: either the file is complete, or the error names it. */
fv_status fv_output_json_file(const json_t *json, const char *path);

/* Flushes everything printed so far. FV_EIO: part of it was lost. */
fv_status fv_output_flush(void);

#endif
