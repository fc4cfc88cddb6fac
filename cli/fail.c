/* How commands end when something went wrong. */
#include <stdio.h>

#include "cli/commands.h"
#include "common/log.h"

int fv_cli_fail(const char *command, int status) {
    fprintf(stderr, "fovea %s: %s\n", command, fv_last_error());
    FV_LOG(DEBUG, GENERAL, "born=%s status=%s", fv_last_error_where(),
           fv_status_grpc_name((fv_status)status));
    return status == FV_EINVAL ? 2 : 1;
}

int fv_cli_usage(const char *command) {
    fprintf(stderr, "fovea %s: %s\n", command, fv_last_error());
    return 2;
}
