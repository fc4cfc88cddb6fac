#ifndef FOVEA_CLI_COMMANDS_H
#define FOVEA_CLI_COMMANDS_H

/* The commands of `fovea`. Each takes the arguments behind its own name (argv[0] is the name) and
 * returns the exit status: 0 done, 1 failed, 2 wrong usage; errors are one line on stderr. */

int fv_cli_ask(int argc, char **argv);
int fv_cli_trace(int argc, char **argv);
int fv_cli_up(int argc, char **argv);
int fv_cli_bench(int argc, char **argv);
int fv_cli_eval(int argc, char **argv);
int fv_cli_calibrate(int argc, char **argv);
int fv_cli_policies(int argc, char **argv);
int fv_cli_synth(int argc, char **argv);

/* Prints "fovea <command>: <last error>" and returns the exit status that fits: 2 when the
 * caller can mend the command (FV_EINVAL), 1 otherwise. */
int fv_cli_fail(const char *command, int status);
/* Likewise, for a command line that could not be read: 2. */
int fv_cli_usage(const char *command);

#endif
