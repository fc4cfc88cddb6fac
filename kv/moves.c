/* Rows of a store that are to move, collected and then moved in one operation of the device. */
#include <stdlib.h>

#include "kv/internal.h"

/* Makes room for one more element; `most` is the capacity of *at. */
static fv_status grow(void *at, int32_t n, int32_t *most, size_t size) {
    if (n < *most) return FV_OK;
    const int32_t want = *most ? 2 * *most : 256;
    void *p = realloc(*(void **)at, (size_t)want * size);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory to move %d KV rows", want);
    *(void **)at = p;
    *most = want;
    return FV_OK;
}

fv_status fv_kv_moves_add(fv_kv *kv, void *to, const void *from) {
    fv_kv_moves *m = &kv->moves;
    FV_TRY(grow(&m->move, m->n, &m->most, sizeof *m->move));
    m->move[m->n++] = (fv_row_move){to, from};
    return FV_OK;
}

fv_status fv_kv_moves_end(fv_kv *kv) {
    fv_kv_moves *m = &kv->moves;
    if (m->n == (m->n_chain ? m->end[m->n_chain - 1] : 0)) return FV_OK;
    FV_TRY(grow(&m->end, m->n_chain, &m->most_chain, sizeof *m->end));
    m->end[m->n_chain++] = m->n;
    return FV_OK;
}

void fv_kv_moves_forget(fv_kv *kv) { kv->moves.n = kv->moves.n_chain = 0; }

void fv_kv_moves_fini(fv_kv *kv) {
    free(kv->moves.move);
    free(kv->moves.end);
    kv->moves = (fv_kv_moves){0};
}

fv_status fv_kv_settle(fv_kv *kv) {
    const fv_row_moves rows = {.bytes = fv_kv_row_bytes(kv->account.shape),
                               .n_chain = kv->moves.n_chain,
                               .end = kv->moves.end,
                               .move = kv->moves.move};
    fv_status st = fv_device_move_rows(kv->account.device, &rows);
    fv_kv_moves_forget(kv);
    return st;
}
