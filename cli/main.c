/* fovea: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "common/suggest.h"
#include "common/version.h"

static const fv_command *const commands[] = {&fv_cli_ask,      &fv_cli_trace,     &fv_cli_up,
                                             &fv_cli_eval,     &fv_cli_calibrate, &fv_cli_bench,
                                             &fv_cli_policies, &fv_cli_plan,      &fv_cli_synth,
                                             &fv_cli_quantize, &fv_cli_inspect,   &fv_cli_options};

enum { N_COMMAND = sizeof commands / sizeof commands[0] };

static const char *name_of(const fv_command *c) {
    return fv_program_word(fv_program_of(c->program));
}

static void print_help(FILE *f) {
    fputs("usage: fovea COMMAND [options]\n\ncommands:\n", f);
    for (int i = 0; i < N_COMMAND; i++)
        fprintf(f, "  %-9s %s\n", name_of(commands[i]),
                fv_program_of(commands[i]->program)->summary);
    fputs("  help      this text, or `fovea help COMMAND`: the command's options\n"
          "  version   the version, as --version\n"
          "\n`fovea COMMAND --help` lists the options that a command needs most, --help-all all.\n",
          f);
}

static const fv_command *find(const char *name) {
    for (int i = 0; i < N_COMMAND; i++)
        if (strcmp(name, name_of(commands[i])) == 0) return commands[i];
    return NULL;
}

static int unknown(const char *name) {
    char hint[FV_SUGGEST_MAX];
    fv_suggestion near = fv_suggest_for(name, strlen(name));
    for (int i = 0; i < N_COMMAND; i++) fv_suggest_try(&near, name_of(commands[i]));
    fv_suggest_try(&near, "help");
    fv_suggest_try(&near, "version");
    fprintf(stderr, "fovea: unknown command '%s'%s (`fovea help` lists them)\n", name,
            fv_suggest_text(&near, hint));
    return 2;
}

/* `fovea help`, `fovea help COMMAND`. */
static int help(int argc, char **argv) {
    static char option[] = "--help";
    if (argc > 2) {
        fprintf(stderr, "fovea help: expected at most one command, got %d\n", argc - 1);
        return 2;
    }
    if (argc < 2) {
        print_help(stdout);
        return 0;
    }
    const fv_command *c = find(argv[1]);
    return c ? fv_cli_run(c, 2, (char *[]){argv[1], option, NULL}) : unknown(argv[1]);
}

static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("fovea %s\n", fv_version());
        return 0;
    }
    const fv_command *c = find(name);
    return c ? fv_cli_run(c, argc - 1, argv + 1) : unknown(name);
}

/* Output printed last may still fail to be written, for example on a full disk. */
int main(int argc, char **argv) {
    int rc = run(argc, argv);
    if (rc != 0 && ferror(stdout)) return rc; /* already reported, or irrelevant */
    if (fv_output_flush() != FV_OK) {
        fprintf(stderr, "fovea: %s\n", fv_last_error());
        rc = 1;
    }
    return rc == 0 && ferror(stderr) ? 1 : rc;
}
