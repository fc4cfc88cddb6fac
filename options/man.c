/* Man pages, for groff and mandoc. */
#include <ctype.h>

#include "common/version.h"
#include "options/pages.h"
#include "options/rows.h"

/* Prints text that means nothing to the formatter, in short lines. */
static void print_text(FILE *f, const char *text) {
    enum { LINE = 50 };
    int column = 0;
    for (; *text; text++) {
        bool begins = column == 0;
        if (*text == ' ' && column > LINE) {
            fputc('\n', f);
            column = 0;
            continue;
        }
        column++;
        if (begins && (*text == '.' || *text == '\'')) fputs("\\&", f);
        if (*text == '-') fputc('\\', f);
        fputs(*text == '\\' ? "\\e" : (char[]){*text, '\0'}, f);
    }
}

/* The name of a page: fovea-ask for `fovea ask`. */
static void print_name(FILE *f, const char *name, bool upper) {
    for (; *name; name++) {
        int c = *name == ' ' ? '-' : (unsigned char)*name;
        if (c == '-') fputc('\\', f);
        fputc(upper ? toupper(c) : c, f);
    }
}

static void print_head(FILE *f, const char *name, const char *summary, const char *usage,
                       const char *about) {
    fputs(".TH ", f);
    print_name(f, name, true);
    fprintf(f, " 1 \"\" \"fovea %s\" \"User Commands\"\n.SH NAME\n", fv_version());
    print_name(f, name, false);
    fputs(" \\- ", f);
    print_text(f, summary);
    fputs("\n.SH SYNOPSIS\n", f);
    print_text(f, usage);
    fputs("\n.SH DESCRIPTION\n", f);
    print_text(f, about);
    fputc('\n', f);
}

static void print_option(FILE *f, const fv_option *o) {
    char bounds[FV_OPTION_BOUNDS_MAX];
    fputs(".TP\n\\fB\\-\\-", f);
    print_text(f, o->name);
    fputs("\\fR", f);
    if (o->value) fputs(" \\fI", f);
    print_text(f, o->value ? o->value : "");
    fputs(o->value ? "\\fR\n" : "\n", f);
    print_text(f, o->help);
    if (*fv_option_bounds(o, bounds)) {
        fputs("\n[", f);
        print_text(f, bounds);
        fputc(']', f);
    }
    if (o->env) fprintf(f, "\n(%s)", o->env);
    fputc('\n', f);
}

static void print_options(FILE *f, unsigned program) {
    for (int s = 0; s < FV_N_SUBJECT; s++) {
        bool first = true;
        for (int i = 0; i < fv_subjects[s].n; i++) {
            const fv_option_row *row = &fv_subjects[s].rows[i];
            if (!fv_row_is_of(row, program) || row->programs & FV_ROW_HIDDEN) continue;
            if (first) fprintf(f, ".SS %s\n", fv_subjects[s].title);
            first = false;
            print_option(f, &row->option);
        }
    }
}

static void print_see_also(FILE *f, const fv_program *but) {
    fputs(".SH SEE ALSO\n", f);
    if (but) fputs(".BR fovea (1)", f);
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        if (&fv_programs[i] == but) continue;
        fputs(i || but ? but || i ? ",\n.BR " : ".BR " : ".BR ", f);
        print_name(f, fv_programs[i].name, false);
        fputs(" (1)", f);
    }
    fputc('\n', f);
}

static void print_overview(FILE *f) {
    print_head(f, "fovea", "serve vision-language models with compressed visual KV",
               "fovea COMMAND [options]",
               "Asks a model, starts a fleet that serves it, and measures compression policies. "
               "Each command has a page of its own, and so has each program of a fleet.");
    fputs(".SH COMMANDS\n", f);
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        if (!fv_program_is_command(&fv_programs[i])) continue;
        fputs(".TP\n\\fB", f);
        print_text(f, fv_program_word(&fv_programs[i]));
        fputs("\\fR\n", f);
        print_text(f, fv_programs[i].summary);
        fputc('\n', f);
    }
    print_see_also(f, NULL);
}

void fv_options_man(FILE *f, const fv_program *program) {
    if (!program) {
        print_overview(f);
        return;
    }
    print_head(f, program->name, program->summary, program->usage, program->about);
    fputs(".SH OPTIONS\nAn option on the command line overrides\nthe environment variable in "
          "parentheses,\nwhich overrides the default.\n",
          f);
    print_options(f, program->bit);
    fputs(".SH EXIT STATUS\n0: done; 1: failed; 2: wrong usage.\n", f);
    print_see_also(f, program);
}
