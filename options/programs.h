#ifndef FOVEA_OPTIONS_PROGRAMS_H
#define FOVEA_OPTIONS_PROGRAMS_H

/* PROGRAMS: the daemons, and the commands of `fovea`. The rows of options (options/rows.h) name the
 * programs that take them by these bits. */
#include <stdio.h>

#include "common/options.h"

enum {
    FV_PROGRAM_ROUTER = 1 << 0,
    FV_PROGRAM_PREFILL = 1 << 1,
    FV_PROGRAM_DECODE = 1 << 2,
    FV_PROGRAM_GATEWAY = 1 << 3,
    FV_PROGRAM_UP = 1 << 4,
    FV_PROGRAM_ASK = 1 << 5,
    FV_PROGRAM_TRACE = 1 << 6,
    FV_PROGRAM_EVAL = 1 << 7,
    FV_PROGRAM_BENCH = 1 << 8,
    FV_PROGRAM_CALIBRATE = 1 << 9,
    FV_PROGRAM_POLICIES = 1 << 10,
    FV_PROGRAM_PLAN = 1 << 11,
    FV_PROGRAM_SYNTH = 1 << 12,
    FV_PROGRAM_QUANTIZE = 1 << 13,
    FV_PROGRAM_OPTIONS = 1 << 14,
    FV_PROGRAM_INSPECT = 1 << 15,
    /* The programs that `fovea up` starts. */
    FV_PROGRAM_CHILDREN =
        FV_PROGRAM_ROUTER | FV_PROGRAM_PREFILL | FV_PROGRAM_DECODE | FV_PROGRAM_GATEWAY,
};

typedef struct fv_program {
    unsigned bit;
    const char *name;    /* "fovea-router"; a command: "fovea ask" */
    const char *summary; /* one line, for lists of programs */
    const char *usage;   /* the command line */
    const char *about;   /* a paragraph without line breaks */
} fv_program;

enum { FV_N_PROGRAM = 16 };
extern const fv_program fv_programs[FV_N_PROGRAM];

/* The program with this bit; there must be one. */
const fv_program *fv_program_of(unsigned bit);

/* The last word of its name: "fovea-router", "ask". */
const char *fv_program_word(const fv_program *p);
static inline bool fv_program_is_command(const fv_program *p) {
    return fv_program_word(p) != p->name;
}

/* Parses argv[1..argc-1] by the rows of the program, as fv_options_parse does; free *out with
 * fv_options_free. */
fv_status fv_program_parse(unsigned program, int argc, char **argv, fv_options **out);

/* Prints the help: the options that the program needs most, or all of them by subject. */
void fv_program_print_help(FILE *f, unsigned program, bool all);

#endif
