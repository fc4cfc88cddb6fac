/* Appends keys and values to the cache, element by element. */
#include "kernels/cpu/plain/plain.h"

static void store(void *to, fv_dtype t, size_t i, float x) {
    switch (t) {
    case FV_BF16: ((uint16_t *)to)[i] = bf16_of_f32(x); break;
    case FV_F16: ((uint16_t *)to)[i] = f16_of_f32(x); break;
    default: ((float *)to)[i] = x;
    }
}

/* Appends KV head g of row r of one sequence. */
static void write_head(const fv_kv_write_args *a, const fv_kv_write_seq *q, int64_t r, int32_t g) {
    const fv_block_table *table = &q->tables[g * q->n_seg + q->seg[r]];
    int32_t entry = table->len + q->slot[r], D = a->d_head;
    const fv_kv_block *block = &table->block[entry / FV_KV_BLOCK];
    for (int32_t d = 0; d < D; d++) {
        size_t at = (size_t)(entry % FV_KV_BLOCK) * (size_t)D + (size_t)d;
        if (a->k.data) store(block->k, a->kv_dtype, at, row_f32(&a->k, q->row0 + r)[g * D + d]);
        if (a->v.data) store(block->v, a->kv_dtype, at, row_f32(&a->v, q->row0 + r)[g * D + d]);
    }
}

void fv_plain_kv_write(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_kv_write_args *a = args;
    (void)scratch;
    for (int32_t s = 0; s < a->n_seq; s++) {
        int64_t n = a->seqs[s].n_rows;
        for (int64_t r = begin < 0 ? 0 : begin; r < end && r < n; r++)
            for (int32_t g = 0; g < a->n_kv; g++) write_head(a, &a->seqs[s], r, g);
        begin -= n;
        end -= n;
    }
}

fv_status fv_check_kv_write(const void *args, fv_cpu_rows *out) {
    const fv_kv_write_args *a = args;
    FV_TRY(need_f32(&a->k, "kv_write's k"));
    FV_TRY(need_f32(&a->v, "kv_write's v"));
    const fv_tensor *some = a->v.data ? &a->v : &a->k;
    assert(!a->k.data || !a->v.data || same_shape(&a->k, &a->v));
    assert(some->cols == a->n_kv * a->d_head);
    int64_t rows = 0;
    for (int i = 0; i < a->n_seq; i++) rows += a->seqs[i].n_rows;
    *out = (fv_cpu_rows){rows, some->cols};
    return FV_OK;
}
