/* fovea: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static const command commands[] = {
    {"ask", fv_cli_ask, "answer a question about pictures"},
    {"trace", fv_cli_trace, "the same, keeping every intermediate result as .npy files"},
    {"up", fv_cli_up, "start a fleet on this machine: a router and workers"},
    {"eval", fv_cli_eval, "examine a checkpoint under compression policies"},
    {"calibrate", fv_cli_calibrate, "measure which layers of a checkpoint may share attention"},
    {"bench", fv_cli_bench, "measure a fleet: times, throughput, bytes"},
    {"policies", fv_cli_policies, "list compression methods, their parameters, and presets"},
    {"synth", fv_cli_synth, "write a checkpoint with random weights"},
};

static void print_help(FILE *f) {
    fputs("usage: fovea COMMAND [options]\n\ncommands:\n", f);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].help);
    fputs("\n`fovea COMMAND --help` lists a command's options.\n", f);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "fovea: there is no command '%s'; `fovea --help` lists them\n", argv[1]);
    return 2;
}
