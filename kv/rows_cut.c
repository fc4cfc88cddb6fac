/* Takes the newest text rows back. Only lengths change, so the rows' memory is there for those that come next. One
 * thread at a time. */
#include <assert.h>

#include "kv/internal.h"

void fv_kv_cut(fv_kv *kv, int32_t n) {
    const fv_kv_shape *s = kv->account.shape;
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int32_t g = 0; g < s->n_kv; g++) {
            fv_block_table *run = &kv->run[fv_kv_run_at(kv, l, g, FV_SEG_TEXT)];
            assert(run->len - n >= fv_kv_shared_rows(kv, FV_SEG_TEXT));
            run->len -= n;
        }
    fv_kv_check(kv, -1);
}
