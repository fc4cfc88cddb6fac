/* Text in columns. */
#include "cli/client/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

enum { CELL_BYTES = 512 };

void fv_table_init(fv_table *t, int32_t n_col) { *t = (fv_table){.n_col = n_col}; }

void fv_table_fini(fv_table *t) {
    fv_arena_fini(&t->arena);
    free(t->cell);
    *t = (fv_table){0};
}

static fv_status add(fv_table *t, const char *text) {
    FV_TRY(fv_grow(&t->cell, &t->cap, (size_t)t->n + 1, sizeof *t->cell));
    FV_TRY(fv_arena_strndup(&t->arena, text, strlen(text), &t->cell[t->n]));
    t->n++;
    return FV_OK;
}

void fv_table_cell(fv_table *t, const char *fmt, ...) {
    char text[CELL_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (t->status == FV_OK) t->status = add(t, text);
}

void fv_table_number(fv_table *t, double v, int32_t digits) {
    if (isnan(v))
        fv_table_cell(t, "-");
    else
        fv_table_cell(t, "%.*f", (int)digits, v);
}

static int width(const fv_table *t, int32_t col) {
    int most = 0;
    for (int32_t i = col; i < t->n; i += t->n_col) {
        int n = (int)strlen(t->cell[i]);
        if (n > most) most = n;
    }
    return most;
}

fv_status fv_table_print(FILE *f, const fv_table *t) {
    FV_TRY(t->status);
    for (int32_t i = 0; i < t->n; i++) {
        int32_t col = i % t->n_col;
        if (col == 0)
            fprintf(f, "%-*s", width(t, 0), t->cell[i]);
        else
            fprintf(f, "  %*s", width(t, col), t->cell[i]);
        if (col == t->n_col - 1 || i == t->n - 1) fputc('\n', f);
    }
    return FV_OK;
}
