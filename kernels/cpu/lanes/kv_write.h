#ifndef FOVEA_KERNELS_CPU_LANES_KV_WRITE_H
#define FOVEA_KERNELS_CPU_LANES_KV_WRITE_H

/* Appends keys and values to the cache; compilers vectorize the narrowing. */
#include "common/convert.h"
#include "kernels/cpu/path.h"

static void kv_write(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_kv_write_args *a = args;
    (void)scratch;
    size_t D = (size_t)a->d_head, bytes = D * fv_dtype_bytes(a->kv_dtype);
    int64_t first = 0; /* item number of the sequence's row 0 */
    for (int32_t i = 0; i < a->n_seq; first += a->seqs[i++].n_rows) {
        const fv_kv_write_seq *q = &a->seqs[i];
        int64_t r0 = begin > first ? begin - first : 0;
        int64_t r1 = end - first < q->n_rows ? end - first : q->n_rows;
        for (int64_t r = r0; r < r1; r++)
            for (int32_t g = 0; g < a->n_kv; g++) {
                const fv_block_table *run = &q->tables[g * q->n_seg + q->seg[r]];
                size_t j = (size_t)run->len + (size_t)q->slot[r];
                const fv_kv_block *block = &run->block[j / FV_KV_BLOCK];
                size_t at = j % FV_KV_BLOCK * bytes;
                int64_t row = q->row0 + r;
                size_t col = (size_t)g * D;
                if (a->k.data)
                    narrow_row(row_f32(&a->k, row) + col, D, a->kv_dtype, (char *)block->k + at);
                if (a->v.data)
                    narrow_row(row_f32(&a->v, row) + col, D, a->kv_dtype, (char *)block->v + at);
            }
    }
}

#endif
