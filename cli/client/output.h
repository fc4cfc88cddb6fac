#ifndef FOVEA_CLI_CLIENT_OUTPUT_H
#define FOVEA_CLI_CLIENT_OUTPUT_H

/* OUTPUT: what a command writes has arrived, or the command says that it has not. */
#include <jansson.h>

#include "common/status.h"

/* Checks before work begins that `path` can be written: opens it for writing without changing it,
 * and removes it if it was not there. NULL is fine. FV_EIO or FV_ENOTFOUND, with the reason.
 */
fv_status fv_output_check(const char *path);

/* Prints a JSON object or list and a newline to standard output; fv_output_flush reports failures.
 */
void fv_output_json(const json_t *json);

/* The same into a file, which is complete then, or the error names it. */
fv_status fv_output_json_file(const json_t *json, const char *path);

/* Everything printed so far has left this process. FV_EIO: a part of it was lost. */
fv_status fv_output_flush(void);

#endif
