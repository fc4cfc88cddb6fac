#ifndef FOVEA_CLI_CLIENT_COMMAND_H
#define FOVEA_CLI_CLIENT_COMMAND_H

/* The commands of `fovea`. */
#include "common/options.h"

typedef struct fv_command {
    const char *name;
    const char *summary;       /* a line of `fovea help` */
    const char *usage, *about; /* of its own help: the command line, a paragraph, */
    const fv_option *table;    /* and [n_option] */
    int n_option;
    int (*run)(const fv_options *o); /* the exit status */
} fv_command;

extern const fv_command fv_cli_ask, fv_cli_trace, fv_cli_up, fv_cli_eval, fv_cli_calibrate,
    fv_cli_bench, fv_cli_policies, fv_cli_plan, fv_cli_synth, fv_cli_quantize;

/* Reads the arguments after the command's name (argv[0] is the name), prints its help when they ask
 * for it, or runs it. Returns the exit status: 0 done, 1 failed, 2 wrong usage. */
int fv_cli_run(const fv_command *c, int argc, char **argv);

/* The exit status of a command that ended with `st`. A failure prints "fovea <command>: <last error>"
 * first: 2 when the caller can mend the command (FV_EINVAL), 1 otherwise. */
int fv_cli_end(const fv_command *c, fv_status st);

#endif
