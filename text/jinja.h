#ifndef FOVEA_TEXT_JINJA_H
#define FOVEA_TEXT_JINJA_H

/* A JINJA PROGRAM in one spelling, so that two programs can be compared as text.
 *
 * Nothing is executed. What is unified cannot change what a program renders: comments are left
 * out, white space inside a tag becomes one blank between tokens, strings are quoted with ', and
 * one newline at the end of the program goes, as Jinja drops it. All else stays, white space
 * between tags and the marks that trim it included: programs that differ in those are different,
 * even where they would render the same. */
#include "common/status.h"

/* Gives *out (free it): NUL-terminated, and equal for two programs only if both render the same.
 * FV_EDATA: a tag or a string has no end. */
fv_status fv_jinja_spelling(const char *program, char **out);

#endif
