/* Columns: values beside the rows of a store, moved as rows move. One thread at a time. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

void fv_kv_add_column(fv_kv *kv, fv_kv_column column, size_t bytes) {
    assert(!kv->state[0].cap);
    kv->column_bytes[column] = bytes;
}

size_t fv_kv_column_bytes(const fv_kv *kv, fv_kv_column column) { return kv->column_bytes[column]; }

void *fv_kv_values(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                   fv_kv_column column) {
    return kv->state[fv_kv_run_at(kv, layer, head, seg)].column[column];
}

static char *value_of(const fv_kv *kv, const fv_kv_run_state *st, int c, int32_t row) {
    return (char *)st->column[c] + (size_t)row * kv->column_bytes[c];
}

fv_status fv_kv_columns_grow(const fv_kv *kv, fv_kv_run_state *st, int32_t n) {
    if (n <= st->cap) return FV_OK;
    int32_t cap = st->cap * 2 > n ? st->cap * 2 : n;
    for (int c = 0; c < FV_N_KV_COLUMN; c++) {
        if (kv->column_bytes[c] == 0) continue;
        void *grown = realloc(st->column[c], (size_t)cap * kv->column_bytes[c]);
        if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for values of %d rows", cap);
        st->column[c] = grown;
    }
    st->cap = cap;
    return FV_OK;
}

void fv_kv_columns_append(const fv_kv *kv, fv_kv_run_state *st, int32_t len, const int32_t *pos,
                          int32_t n) {
    memcpy(value_of(kv, st, FV_KV_POSITION, len), pos, (size_t)n * sizeof *pos);
    for (int c = FV_KV_POSITION + 1; c < FV_N_KV_COLUMN; c++)
        if (st->column[c]) memset(value_of(kv, st, c, len), 0, (size_t)n * kv->column_bytes[c]);
}

void fv_kv_columns_move(const fv_kv *kv, fv_kv_run_state *st, int32_t to, int32_t from) {
    for (int c = 0; c < FV_N_KV_COLUMN && to != from; c++)
        if (st->column[c])
            memcpy(value_of(kv, st, c, to), value_of(kv, st, c, from), kv->column_bytes[c]);
}

fv_status fv_kv_columns_order(const fv_kv *kv, fv_kv_run_state *st, const int32_t *idx, int32_t n) {
    fv_kv_run_state to = {0};
    fv_status status = fv_kv_columns_grow(kv, &to, n > 0 ? n : 1);
    for (int c = 0; c < FV_N_KV_COLUMN && status == FV_OK; c++)
        for (int32_t j = 0; j < n && to.column[c]; j++)
            memcpy(value_of(kv, &to, c, j), value_of(kv, st, c, idx[j]), kv->column_bytes[c]);
    fv_kv_columns_free(status == FV_OK ? st : &to);
    if (status != FV_OK) return status;
    memcpy(st->column, to.column, sizeof st->column);
    st->cap = to.cap;
    return FV_OK;
}

void fv_kv_columns_free(fv_kv_run_state *st) {
    for (int c = 0; c < FV_N_KV_COLUMN; c++) free(st->column[c]);
}
