/* Writes rows of keys and values to the blocks of their runs. Only addresses of blocks that a call writes
 * to are staged: a table grows with the rows of the call, not with the cache. */
#include <assert.h>

#include "kernels/cuda/gpu.h"

enum { BLOCK = 128 };

/* A row to write. */
typedef struct row_entry {
    int32_t row;  /* of k and v */
    int32_t run;  /* index of KV head 0's run; head g's is g * step further */
    int32_t step; /* n_seg of its sequence */
    int32_t slot;
} row_entry;

typedef struct run_entry {
    int32_t len;   /* before the call */
    int32_t block; /* index of the block that holds row `len` */
} run_entry;

typedef struct tables {
    row_entry *rows;
    run_entry *tables;
    fv_kv_block *blocks;
    size_t n_row, n_run, n_block;
} tables;

/* Number of blocks from that of row `len` to that of row len + slot. */
static size_t blocks_touched(int32_t len, int32_t slot) {
    return (size_t)((len + slot) / FV_KV_BLOCK - len / FV_KV_BLOCK) + 1;
}

/* The largest slot of a segment's rows, or -1. */
static int32_t last_slot(const fv_kv_write_seq *q, int seg) {
    int32_t last = -1;
    for (int32_t r = 0; r < q->n_rows; r++)
        if (q->seg[r] == seg && q->slot[r] > last) last = q->slot[r];
    return last;
}

static void count(const fv_kv_write_args *a, tables *t) {
    for (int32_t i = 0; i < a->n_seq; i++) {
        const fv_kv_write_seq *q = &a->seqs[i];
        t->n_row += (size_t)q->n_rows;
        t->n_run += (size_t)a->n_kv * (size_t)q->n_seg;
        for (int32_t s = 0; s < q->n_seg; s++) {
            int32_t last = last_slot(q, s);
            for (int32_t g = 0; g < a->n_kv && last >= 0; g++)
                t->n_block += blocks_touched(q->tables[g * q->n_seg + s].len, last);
        }
    }
}

static void fill(const fv_kv_write_args *a, const tables *t) {
    size_t row = 0, run = 0, block = 0;
    for (int32_t i = 0; i < a->n_seq; i++) {
        const fv_kv_write_seq *q = &a->seqs[i];
        for (int32_t r = 0; r < q->n_rows; r++)
            t->rows[row++] = {q->row0 + r, (int32_t)run + q->seg[r], q->n_seg, q->slot[r]};
        for (int32_t k = 0; k < a->n_kv * q->n_seg; k++) {
            const fv_block_table *from = &q->tables[k];
            int32_t last = last_slot(q, k % q->n_seg);
            t->tables[run++] = {from->len, (int32_t)block};
            size_t n = last < 0 ? 0 : blocks_touched(from->len, last);
            for (size_t b = 0; b < n; b++)
                t->blocks[block++] = from->block[(size_t)(from->len / FV_KV_BLOCK) + b];
        }
    }
}

/* A thread block writes one row, all its heads. */
static __global__ void kv_write_kernel(fv_tensor k, fv_tensor v, fv_dtype dtype, int d_head, int n,
                                       const row_entry *rows, const run_entry *runs,
                                       const fv_kv_block *blocks) {
    row_entry e = rows[blockIdx.x];
    for (int i = (int)threadIdx.x; i < n; i += BLOCK) {
        run_entry run = runs[e.run + i / d_head * e.step];
        int j = run.len + e.slot;
        const fv_kv_block *block = &blocks[run.block + j / FV_KV_BLOCK - run.len / FV_KV_BLOCK];
        size_t to = (size_t)(j % FV_KV_BLOCK) * (size_t)d_head + (size_t)(i % d_head);
        for (int half = 0; half < 2; half++) {
            const fv_tensor &from = half ? v : k;
            if (!from.data) continue;
            float x = static_cast<const float *>(from.data)[(size_t)e.row * (size_t)from.ld + i];
            void *at = half ? block->v : block->k;
            if (dtype == FV_F32)
                static_cast<float *>(at)[to] = x;
            else
                static_cast<uint16_t *>(at)[to] = dtype == FV_BF16 ? bf16_of_f32(x) : f16_of_f32(x);
        }
    }
}

static size_t aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

extern "C" fv_status fv_cuda_kv_write(fv_backend *be, const fv_kv_write_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    tables t = {};
    count(a, &t);
    if (t.n_row == 0 || (!a->k.data && !a->v.data)) return FV_OK;
    size_t off_runs = aligned(t.n_row * sizeof *t.rows);
    size_t off_blocks = off_runs + aligned(t.n_run * sizeof *t.tables);
    size_t bytes = off_blocks + t.n_block * sizeof *t.blocks;
    void *host, *device;
    FV_TRY(fv_cuda_stage(c, bytes, &host, &device));
    char *h = static_cast<char *>(host), *d = static_cast<char *>(device);
    t.rows = reinterpret_cast<row_entry *>(h);
    t.tables = reinterpret_cast<run_entry *>(h + off_runs);
    t.blocks = reinterpret_cast<fv_kv_block *>(h + off_blocks);
    fill(a, &t);
    FV_TRY(fv_cuda_stage_send(c, host, device, bytes));
    FV_LAUNCH(kv_write_kernel, dim3((unsigned)t.n_row), dim3(BLOCK), 0, c->stream, a->k, a->v,
              a->kv_dtype, a->d_head, a->n_kv * a->d_head, reinterpret_cast<row_entry *>(d),
              reinterpret_cast<run_entry *>(d + off_runs),
              reinterpret_cast<fv_kv_block *>(d + off_blocks));
    return fv_cuda_launched("kv_write");
}
