/* The text of --help from rows. Columns are counted in bytes: help is ASCII. */
#include <string.h>

#include "common/options.h"

enum { WIDTH = 80, COLUMN = 27 };

void fv_print_wrapped(FILE *f, const char *text, int at, int indent) {
    int column = at;
    for (const char *word = text; *word;) {
        int n = (int)strcspn(word, " ");
        if (column > indent && column > at && column + 1 + n > WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (word > text) {
            fputc(' ', f);
            column++;
        }
        fprintf(f, "%.*s", n, word);
        column += n;
        word += n + (word[n] == ' ');
    }
    fputc('\n', f);
}

static bool has_range(const fv_option *row) {
    bool number = row->type == FV_OPTION_INT || row->type == FV_OPTION_FLOAT;
    return number && (row->min != 0 || row->max != 0);
}

const char *fv_option_bounds(const fv_option *row, char out[FV_OPTION_BOUNDS_MAX]) {
    const char *text = row->fallback ? row->fallback : "";
    int n = snprintf(out, FV_OPTION_BOUNDS_MAX, "%s%s", text, *text && has_range(row) ? "; " : "");
    if (has_range(row) && n >= 0 && n < FV_OPTION_BOUNDS_MAX)
        snprintf(out + n, (size_t)(FV_OPTION_BOUNDS_MAX - n),
                 row->type == FV_OPTION_INT ? "%.0f..%.0f" : "%g..%g", row->min, row->max);
    return out;
}

void fv_option_print(FILE *f, const fv_option *row, bool all) {
    char head[96], bounds[FV_OPTION_BOUNDS_MAX], text[1024];
    snprintf(bounds, sizeof bounds, "%s", row->fallback ? row->fallback : "");
    if (all) fv_option_bounds(row, bounds);
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", row->help, *bounds ? " [" : "", bounds,
             *bounds ? "]" : "", all && row->env ? " (" : "", all && row->env ? row->env : "",
             all && row->env ? ")" : "");
    int n = snprintf(head, sizeof head, "  --%s%s%s", row->name, row->value ? " " : "",
                     row->value ? row->value : "");
    if (n >= COLUMN)
        fprintf(f, "%s\n%*s", head, COLUMN, "");
    else
        fprintf(f, "%-*s", COLUMN, head);
    fv_print_wrapped(f, text, COLUMN, COLUMN);
}

void fv_options_print_help(FILE *f, const char *usage, const char *about, const fv_option *table,
                           int n) {
    fprintf(f, "usage: %s\n\n%s\n\noptions:\n", usage, about);
    for (int i = 0; i < n; i++) fv_option_print(f, &table[i], true);
    fprintf(f, "  %-24s %s\n", "--help", "print this text");
}
