#ifndef FOVEA_COMMON_OPTIONS_H
#define FOVEA_COMMON_OPTIONS_H

/* Command-line options: one table row each. Parsing, the environment and --help all come
 * from the table.
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
    const char *value;    /* name of the value in --help; NULL for a flag */
    const char *fallback; /* default as text; NULL: none */
    const char *help;
    double min, max;
} fv_option;

typedef struct fv_options fv_options; /* opaque; borrows table and argv */

/* Parses argv[1..argc-1]. FV_EINVAL names an unknown option (and suggests a similar one), a missing
 * value, or a value out of range with the allowed range. Every table has --help without listing
 * it. */
fv_status fv_options_parse(const fv_option *table, int n, int argc, char **argv, fv_options **out);
void fv_options_free(fv_options *o); /* NULL is fine */

bool fv_options_help_wanted(const fv_options *o);

/* `name` must be in the table. An option that was not given and has no default is false, 0,
 * or NULL. Strings are borrowed from argv, the environment or the table. */
bool fv_options_given(const fv_options *o, const char *name); /* on the command line or in the
                                                               * environment */
bool fv_options_flag(const fv_options *o, const char *name);
int64_t fv_options_int(const fv_options *o, const char *name);
double fv_options_float(const fv_options *o, const char *name);
const char *fv_options_string(const fv_options *o, const char *name);
int fv_options_list(const fv_options *o, const char *name, const char *const **items);
/* Overwrites the values of a list of secrets where the program got them, in its arguments and in the
 * environment, where others can read them (ps, /proc), and removes the variable, so that children do
 * not get it. The list's strings have changed then. Before other threads start. */
void fv_options_wipe(const fv_options *o, const char *name);
int fv_options_positional(const fv_options *o, const char *const **items);

/* Prints "usage: <usage>", the paragraph `about`, and for each option a line with default and
 * variable. */
void fv_options_print_help(FILE *f, const char *usage, const char *about, const fv_option *table,
                           int n);

#endif
