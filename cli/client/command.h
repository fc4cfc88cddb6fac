#ifndef FOVEA_CLI_CLIENT_COMMAND_H
#define FOVEA_CLI_CLIENT_COMMAND_H

/* The commands of `fovea`. */
#include "options/programs.h"

typedef struct fv_command {
    unsigned program;                /* FV_PROGRAM_...: its name, its texts and its options */
    int (*run)(const fv_options *o); /* returns the exit status */
    /* The word after the options is the checkpoint, if --checkpoint is not given. */
    bool takes_checkpoint;
} fv_command;

extern const fv_command fv_cli_ask, fv_cli_trace, fv_cli_up, fv_cli_eval, fv_cli_calibrate,
    fv_cli_bench, fv_cli_policies, fv_cli_plan, fv_cli_synth, fv_cli_quantize, fv_cli_inspect,
    fv_cli_options;

/* Parses the arguments after the command's name (argv[0] is the name), prints the command's help if
 * requested, or finds its checkpoint and runs it. --checkpoint has its path then, also where ORG/NAME was given. Returns the exit status: 0 done, 1 failed, 2 wrong usage. */
int fv_cli_run(const fv_command *c, int argc, char **argv);

/* Exit status of a command that ended with `st`. Prints "fovea <command>: <last error>" after a
 * failure. Returns 2 if the user can correct the command (FV_EINVAL), 1 for other failures. */
int fv_cli_end(const fv_command *c, fv_status st);

#endif
