#ifndef FOVEA_OPTIONS_ROWS_H
#define FOVEA_OPTIONS_ROWS_H

/* ROWS: every option of every program is one row here, by subject; a subject is one file,
 * options/SUBJECT.def. To add an option, add its row to the file of its subject:
 *
 *   INT(name, environment variable or NULL, unit, default or NULL, min, max, programs, help)
 *   FLOAT(likewise)
 *   TEXT(name, variable, value, default, programs, help)     "a|b": the values that completions offer
 *   LIST(name, variable, value, programs, help)              may be given several times
 *   FLAG(name, variable, programs, help)
 *
 * The help is one sentence that begins with its verb. Its program reads the value with fv_options_int and
 * the like. A name stands in two rows if it means something else in other programs. `fovea up` takes the
 * rows of its children too, and passes each option on to the children that have it, unless the row says
 * NOT_UP. Afterwards docs/OPTIONS.md is to be written again: fovea options --markdown > docs/OPTIONS.md */
#include <stdio.h>

#include "options/programs.h"

/* Marks of a row, in the word of its programs. */
enum {
    FV_ROW_KV = 1 << 27,     /* a size of KV, which is in a GPU's memory where one computes */
    FV_ROW_FIRST = 1 << 28,  /* needed on a first day: --help lists it */
    FV_ROW_NOT_UP = 1 << 29, /* `fovea up` sets it itself, or it makes no sense for all children */
    FV_ROW_HIDDEN = 1 << 30, /* in --help-all alone: not for users */
};

typedef struct fv_option_row {
    fv_option option;
    unsigned programs; /* FV_PROGRAM_... | FV_ROW_... */
} fv_option_row;

typedef struct fv_subject {
    const char *title;
    const fv_option_row *rows; /* [n] */
    int n;
} fv_subject;

enum { FV_N_SUBJECT = 10, FV_ROWS_MAX = 256 };
extern const fv_subject fv_subjects[FV_N_SUBJECT];

/* Whether the program takes the row. */
bool fv_row_is_of(const fv_option_row *row, unsigned program);

/* The first row with this name that one of the programs takes, or NULL. */
const fv_option_row *fv_row_find(unsigned programs, const char *name);

/* Copies the program's options to out; returns how many. */
int fv_rows_of(unsigned program, fv_option out[FV_ROWS_MAX]);

#endif
