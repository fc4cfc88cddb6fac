#ifndef FOVEA_CLI_CLIENT_TABLE_H
#define FOVEA_CLI_CLIENT_TABLE_H

/* TABLE of text: cells are added row by row, and each column is as wide as its widest cell. The
 * first column is left-aligned, the others right-aligned. ASCII. */
#include <stdint.h>
#include <stdio.h>

#include "common/arena.h"

typedef struct fv_table {
    int32_t n_col;
    /* private */
    fv_arena arena;
    char **cell; /* [n], owned */
    int32_t n;
    size_t cap;
    fv_status status;
} fv_table;

void fv_table_init(fv_table *t, int32_t n_col);
void fv_table_fini(fv_table *t);

/* Adds the next cell, in the next row if this one is full. fv_table_print reports failures. */
void fv_table_cell(fv_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "-" for NAN */
void fv_table_number(fv_table *t, double v, int32_t digits);

/* FV_ENOMEM: a cell did not fit into memory; nothing is printed. */
fv_status fv_table_print(FILE *f, const fv_table *t);

#endif
