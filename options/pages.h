#ifndef FOVEA_OPTIONS_PAGES_H
#define FOVEA_OPTIONS_PAGES_H

/* PAGES made of the rows of options: docs/OPTIONS.md, man pages, and completions of bash and zsh. Hidden rows
 * are left out. */
#include <stdio.h>

#include "options/programs.h"

void fv_options_markdown(FILE *f);

/* The man page of a program in section 1; NULL: of `fovea` itself, which lists the commands. */
void fv_options_man(FILE *f, const fv_program *program);

/* A script that completes all programs. */
void fv_options_bash(FILE *f);
void fv_options_zsh(FILE *f);

#endif
