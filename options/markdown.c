/* docs/OPTIONS.md: a table for each subject. */
#include <string.h>

#include "options/pages.h"
#include "options/rows.h"

static const struct group {
    unsigned programs;
    const char *word;
} groups[] = {
    {FV_PROGRAM_CHILDREN, "all daemons"},
    {FV_PROGRAM_ROUTER, "router"},
    {FV_PROGRAM_PREFILL | FV_PROGRAM_DECODE, "workers"},
    {FV_PROGRAM_PREFILL, "prefill"},
    {FV_PROGRAM_DECODE, "decode"},
    {FV_PROGRAM_GATEWAY, "gateway"},
    {FV_PROGRAM_UP, "up"},
};

static void print_programs(FILE *f, const fv_option_row *row) {
    unsigned left = row->programs;
    const char *comma = "";
    if (fv_row_is_of(row, FV_PROGRAM_UP)) left |= FV_PROGRAM_UP;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if ((left & groups[i].programs) != groups[i].programs) continue;
        fprintf(f, "%s%s", comma, groups[i].word);
        left &= ~groups[i].programs;
        comma = ", ";
    }
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        if (!(left & fv_programs[i].bit)) continue;
        fprintf(f, "%s%s", comma, fv_program_word(&fv_programs[i]));
        comma = ", ";
    }
}

/* Prints text in a cell of a table. */
static void print_cell(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '|' || *text == '<') fputc('\\', f);
        fputc(*text, f);
    }
}

static void print_row(FILE *f, const fv_option_row *row) {
    const fv_option *o = &row->option;
    char bounds[FV_OPTION_BOUNDS_MAX];
    fprintf(f, "| `--%s%s", o->name, o->value ? " " : "");
    print_cell(f, o->value ? o->value : "");
    fputs("` | ", f);
    print_programs(f, row);
    fprintf(f, " | %s | ", fv_option_bounds(o, bounds));
    if (o->env) fprintf(f, "`%s`", o->env);
    fputs(" | ", f);
    print_cell(f, o->help);
    fputs(" |\n", f);
}

void fv_options_markdown(FILE *f) {
    fputs("# Options\n\n"
          "This page is made by `fovea options --markdown` from the rows in `options/`; man pages "
          "and completions of bash and zsh are made of the same rows and installed.\n\n"
          "`--name VALUE` and `--name=VALUE` are the same; a flag has no value. An option on the "
          "command line overrides its environment variable, which overrides the default. "
          "`--help` lists the options that a program needs most, `--help-all` all of them. MS are "
          "milliseconds.\n\n"
          "`fovea up` takes the options of the daemons that it starts and passes each to those "
          "that have it.\n\n"
          "A default such as `--deadline-ms / 4, within 5000..30000` is a quarter of the deadline, "
          "at least 5 s and at most 30 s. It follows from the `--deadline-ms` of the same program: "
          "give the router and the workers of a fleet the same one.\n",
          f);
    for (int s = 0; s < FV_N_SUBJECT; s++) {
        fprintf(f,
                "\n## %s\n\n| option | of | default; range | variable | what it does |\n"
                "|---|---|---|---|---|\n",
                fv_subjects[s].title);
        for (int i = 0; i < fv_subjects[s].n; i++)
            if (!(fv_subjects[s].rows[i].programs & FV_ROW_HIDDEN))
                print_row(f, &fv_subjects[s].rows[i]);
    }
}
