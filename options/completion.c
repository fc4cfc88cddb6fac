/* Completions of bash and zsh. */
#include <string.h>

#include "options/pages.h"
#include "options/rows.h"

/* Calls `print` for each option of the program once, however many rows have its name. */
static void each_option(FILE *f, unsigned program, void (*print)(FILE *f, const fv_option *o)) {
    fv_option seen[FV_ROWS_MAX];
    int n = 0;
    for (int s = 0; s < FV_N_SUBJECT; s++)
        for (int i = 0; i < fv_subjects[s].n; i++) {
            const fv_option_row *row = &fv_subjects[s].rows[i];
            int k = 0;
            if (!fv_row_is_of(row, program) || row->programs & FV_ROW_HIDDEN) continue;
            while (k < n && strcmp(seen[k].name, row->option.name) != 0) k++;
            if (k < n) continue;
            seen[n++] = row->option;
            print(f, &row->option);
        }
}

static bool is_path(const fv_option *o) {
    return o->value && (strncmp(o->value, "FILE", 4) == 0 || strcmp(o->value, "DIR") == 0 ||
                        strcmp(o->value, "MODEL") == 0);
}

/* ---- bash ------------------------------------------------------------------------------- */

/* " --name", and after a colon what its value is: @ a file, or words. */
static void print_bash_word(FILE *f, const fv_option *o) {
    fprintf(f, " --%s", o->name);
    if (!o->value) return;
    fputc(':', f);
    if (is_path(o)) fputc('@', f);
    if (!strchr(o->value, '|')) return;
    for (const char *c = o->value; *c; c++) fputc(*c == '|' ? ',' : *c, f);
}

void fv_options_bash(FILE *f) {
    fputs("# Completion of fovea's programs for bash; made by `fovea options --bash`.\n"
          "_fovea() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local program=${COMP_WORDS[0]##*/} options= word\n"
          "    if [ \"$program\" = fovea ]; then\n"
          "        if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "            COMPREPLY=($(compgen -W 'help version",
          f);
    for (int i = 0; i < FV_N_PROGRAM; i++)
        if (fv_program_is_command(&fv_programs[i]))
            fprintf(f, " %s", fv_program_word(&fv_programs[i]));
    fputs("' -- \"$current\"))\n"
          "            return\n"
          "        fi\n"
          "        program+=\" ${COMP_WORDS[1]}\"\n"
          "    fi\n"
          "    case $program in\n",
          f);
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        fprintf(f, "    '%s') options='--help --help-all", fv_programs[i].name);
        each_option(f, fv_programs[i].bit, print_bash_word);
        fputs("' ;;\n", f);
    }
    fputs("    esac\n"
          "    for word in $options; do\n"
          "        case $word in\n"
          "        \"$previous:@\") COMPREPLY=($(compgen -f -- \"$current\")) && return ;;\n"
          "        \"$previous:\"*)\n"
          "            word=${word#*:}\n"
          "            COMPREPLY=($(compgen -W \"${word//,/ }\" -- \"$current\"))\n"
          "            return\n"
          "            ;;\n"
          "        esac\n"
          "    done\n"
          "    for word in $options; do\n"
          "        if [[ ${word%%:*} == \"$current\"* ]]; then COMPREPLY+=(\"${word%%:*}\"); fi\n"
          "    done\n"
          "}\n"
          "complete -o filenames -o bashdefault -F _fovea fovea",
          f);
    for (int i = 0; i < FV_N_PROGRAM; i++)
        if (!fv_program_is_command(&fv_programs[i])) fprintf(f, " %s", fv_programs[i].name);
    fputc('\n', f);
}

/* ---- zsh -------------------------------------------------------------------------------- */

/* Text in single quotes, inside a specification of _arguments. */
static void print_zsh_text(FILE *f, const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) fputc('\\', f);
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, f);
    }
}

static void print_zsh_word(FILE *f, const fv_option *o) {
    fprintf(f, " \\\n            '%s--%s[", o->type == FV_OPTION_LIST ? "*" : "", o->name);
    print_zsh_text(f, o->help);
    fputc(']', f);
    if (o->value) {
        fputc(':', f);
        print_zsh_text(f, o->value);
        fputc(':', f);
        if (is_path(o)) fputs("_files", f);
        if (strchr(o->value, '|')) {
            fputc('(', f);
            for (const char *c = o->value; *c; c++) fputc(*c == '|' ? ' ' : *c, f);
            fputc(')', f);
        }
    }
    fputc('\'', f);
}

void fv_options_zsh(FILE *f) {
    fputs("#compdef fovea", f);
    for (int i = 0; i < FV_N_PROGRAM; i++)
        if (!fv_program_is_command(&fv_programs[i])) fprintf(f, " %s", fv_programs[i].name);
    fputs("\n# Completion of fovea's programs for zsh; made by `fovea options --zsh`.\n"
          "_fovea() {\n"
          "    local program=$service\n"
          "    if [[ $program == fovea ]]; then\n"
          "        if (( CURRENT == 2 )); then\n"
          "            local -a commands=(\n",
          f);
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        if (!fv_program_is_command(&fv_programs[i])) continue;
        fprintf(f, "                '%s:", fv_program_word(&fv_programs[i]));
        print_zsh_text(f, fv_programs[i].summary);
        fputs("'\n", f);
    }
    fputs("                'help:list a command'\\''s options' 'version:print the version'\n"
          "            )\n"
          "            _describe command commands\n"
          "            return\n"
          "        fi\n"
          "        program+=\" $words[2]\"\n"
          "        shift words\n"
          "        (( CURRENT-- ))\n"
          "    fi\n"
          "    case $program in\n",
          f);
    for (int i = 0; i < FV_N_PROGRAM; i++) {
        fprintf(f, "    '%s')\n        _arguments '--help' '--help-all'", fv_programs[i].name);
        each_option(f, fv_programs[i].bit, print_zsh_word);
        fputs("\n        ;;\n", f);
    }
    fputs("    esac\n"
          "}\n"
          "_fovea \"$@\"\n",
          f);
}
