#ifndef FOVEA_COMMON_OPTIONS_H
#define FOVEA_COMMON_OPTIONS_H

/* Command-line options: one table row each. Parsing, the environment and --help all come
 * from the table. The options of the programs are in options/rows.h; a benchmark has a table of its own:
 *
 *   static const fv_option table[] = {
 *       {"max-tokens", "FOVEA_MAX_TOKENS", FV_OPTION_INT, "N", "128", "maximum number of generated tokens", 1, 65536},
 *       {"json", NULL, FV_OPTION_FLAG, NULL, NULL, "one JSON object instead of text"},
 *   };
 *
 * "--name value" and "--name=value" are the same; "--" ends the options; other arguments are
 * positional, in order. A value on the command line overrides the environment, which overrides the
 * default. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"

typedef enum fv_option_type {
    FV_OPTION_FLAG = 0, /* no value; in the environment 1/true/yes or 0/false/no */
    FV_OPTION_INT,      /* min..max, both 0: any */
    FV_OPTION_FLOAT,    /* min..max, both 0: any */
    FV_OPTION_STRING,
    FV_OPTION_LIST, /* a string that may be given several times; environment: one value */
} fv_option_type;

typedef struct fv_option {
    const char *name; /* long name without dashes */
    const char *env;  /* environment variable, or NULL */
    fv_option_type type;
    const char *value;    /* the value in --help: its unit, its kind, or "a|b"; NULL for a flag */
    const char *fallback; /* default as text; NULL: none; or derived, as below */
    const char *help;
    double min, max;
} fv_option;

/* The default of an INT may follow from another INT of the table: "--deadline-ms / 4, within 5000..30000"
 * is a quarter of --deadline-ms, not less than 5000 and not more than 30000. */

typedef struct fv_options fv_options; /* opaque; borrows the strings of table and argv */

/* Parses argv[1..argc-1]. FV_EINVAL names an unknown option (and suggests a similar one), a missing
 * value, or a value out of range with the allowed range. Where several rows have one name, each of them must
 * accept the value, and the first gives the default. Every table has --help and --help-all without listing
 * them. */
fv_status fv_options_parse(const fv_option *table, int n, int argc, char **argv, fv_options **out);
void fv_options_free(fv_options *o); /* NULL is fine */

bool fv_options_help_wanted(const fv_options *o);     /* --help or --help-all */
bool fv_options_help_all_wanted(const fv_options *o); /* --help-all */

/* `name` must be in the table. An option that was not given and has no default is false, 0,
 * or NULL. Strings are borrowed from argv, the environment or the table. */
bool fv_options_given(const fv_options *o, const char *name); /* on the command line or in the
                                                               * environment */
bool fv_options_typed(const fv_options *o, const char *name); /* on the command line */
bool fv_options_flag(const fv_options *o, const char *name);
int64_t fv_options_int(const fv_options *o, const char *name);
double fv_options_float(const fv_options *o, const char *name);
const char *fv_options_string(const fv_options *o, const char *name);
int fv_options_list(const fv_options *o, const char *name, const char *const **items);
/* Overwrites the values of a list of secrets where the program got them, in its arguments and in the
 * environment, where others can read them (ps, /proc), and removes the variable, so that children do
 * not get it. The list's strings have changed then. Before other threads start. */
void fv_options_wipe(const fv_options *o, const char *name);
/* Gives a STRING another value, a copy, as if it had been typed: for a program that has found out what the
 * user's value stands for. Strings that were borrowed from an earlier call are gone. Before other threads
 * start. */
fv_status fv_options_set(fv_options *o, const char *name, const char *value);
int fv_options_positional(const fv_options *o, const char *const **items);

/* Prints an option: "--name VALUE  help [default]", wrapped at 80 columns; with `all` also its range and
 * its environment variable, "[default; min..max] (VARIABLE)". */
void fv_option_print(FILE *f, const fv_option *row, bool all);

/* Prints "usage: <usage>", the paragraph `about`, and each option of the table. */
void fv_options_print_help(FILE *f, const char *usage, const char *about, const fv_option *table,
                           int n);

/* The default and the range, "default; min..max", or "" if there is neither. Returns out. */
enum { FV_OPTION_BOUNDS_MAX = 256 };
const char *fv_option_bounds(const fv_option *row, char out[FV_OPTION_BOUNDS_MAX]);

/* Prints the words of `text` in lines of at most 80 columns; all but the first line are indented, the first
 * one begins at column `at`. */
void fv_print_wrapped(FILE *f, const char *text, int at, int indent);

#endif
