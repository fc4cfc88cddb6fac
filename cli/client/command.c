/* Starts and ends commands. */
#include <stdio.h>

#include "cli/client/command.h"
#include "common/log.h"

int fv_cli_end(const fv_command *c, fv_status st) {
    if (st == FV_OK) return 0;
    fprintf(stderr, "%s: %s\n", fv_program_of(c->program)->name, fv_last_error());
    FV_LOG(DEBUG, GENERAL, "born=%s status=%s", fv_last_error_where(), fv_status_grpc_name(st));
    return st == FV_EINVAL ? 2 : 1;
}

int fv_cli_run(const fv_command *c, int argc, char **argv) {
    fv_options *o;
    int rc = 0;
    if (fv_program_parse(c->program, argc, argv, &o) != FV_OK) {
        fprintf(stderr, "%s: %s\n", fv_program_of(c->program)->name, fv_last_error());
        return 2;
    }
    if (fv_options_help_wanted(o))
        fv_program_print_help(stdout, c->program, fv_options_help_all_wanted(o));
    else
        rc = c->run(o);
    fv_options_free(o);
    return rc;
}
