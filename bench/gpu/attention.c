/* Attention on raw bf16 rows, with the shapes of decode steps and of prefill. */
#include <math.h>
#include <stdlib.h>

#include "bench/gpu/rig.h"

typedef struct attention {
    fv_attn_args a[2]; /* alternating between two caches */
    fv_attn_seq *seqs;
    fv_block_table *tables;
    fv_kv_block *blocks;
    int32_t *masked_tail;
} attention;

/* B sequences, each with n_rows query rows over L keys; the rows' own keys are the last. */
typedef struct attention_shape {
    const char *key, *name;
    int32_t B, n_rows, L, H, Hkv, D, calls;
} attention_shape;

static fv_status do_attention(void *arg, int32_t call) {
    attention *t = arg;
    return rig.be.ops->attention(&rig.be, &t->a[call % 2]);
}

/* Fills the KV cache of one side with consecutive blocks. */
static void lay_side(attention *t, const attention_shape *s, int32_t side, fv_buf *buf) {
    int32_t per_run = (s->L + FV_KV_BLOCK - 1) / FV_KV_BLOCK, n_run = s->B * s->Hkv;
    fv_tensor kv = bench_tensor(FV_BF16, 2 * n_run * per_run * FV_KV_BLOCK, s->D, buf);
    fv_kv_block *block = t->blocks + (size_t)side * (size_t)(n_run * per_run);
    fv_block_table *run = t->tables + side * n_run;
    for (int32_t i = 0; i < n_run * per_run; i++)
        block[i] = (fv_kv_block){fv_tensor_rows(kv, 2 * i * FV_KV_BLOCK, 1).data,
                                 fv_tensor_rows(kv, (2 * i + 1) * FV_KV_BLOCK, 1).data};
    for (int32_t i = 0; i < n_run; i++) run[i] = (fv_block_table){block + i * per_run, s->L};
    for (int32_t i = 0; i < s->B; i++)
        t->seqs[side * s->B + i] =
            (fv_attn_seq){.row0 = i * s->n_rows,
                          .n_rows = s->n_rows,
                          .n_seg = 1,
                          .tables = run + i * s->Hkv,
                          .masked_tail = s->n_rows > 1 ? t->masked_tail : NULL};
}

static void measure(attention_shape s) {
    if (rig.small) {
        s.L = s.L < 100 ? s.L : 100;
        s.n_rows = s.n_rows < 9 ? s.n_rows : 9;
        s.B = s.B < 3 ? s.B : 3;
        s.H = 4, s.Hkv = 2, s.D = 64;
    }
    fv_buf cache[2], q_buf, o_buf;
    size_t n_run = (size_t)(s.B * s.Hkv), per_run = (size_t)(s.L / FV_KV_BLOCK + 1);
    attention t = {.seqs = zeroed((size_t)(2 * s.B), sizeof *t.seqs),
                   .tables = zeroed(2 * n_run, sizeof *t.tables),
                   .blocks = zeroed(2 * n_run * per_run, sizeof *t.blocks),
                   .masked_tail = zeroed((size_t)s.n_rows, sizeof *t.masked_tail)};
    for (int32_t i = 0; i < s.n_rows; i++) t.masked_tail[i] = s.n_rows - 1 - i;
    fv_tensor q = bench_tensor(FV_F32, s.B * s.n_rows, s.H * s.D, &q_buf);
    fv_tensor o = bench_tensor(FV_F32, s.B * s.n_rows, s.H * s.D, &o_buf);
    for (int32_t side = 0; side < 2; side++) {
        lay_side(&t, &s, side, &cache[side]);
        t.a[side] = (fv_attn_args){.q = q,
                                   .o = o,
                                   .kv_dtype = FV_BF16,
                                   .n_head = s.H,
                                   .n_kv = s.Hkv,
                                   .d_head = s.D,
                                   .n_seq = s.B,
                                   .scale = 1 / sqrtf((float)s.D),
                                   .seqs = &t.seqs[side * s.B]};
    }
    double pairs = (double)s.B * s.n_rows * ((double)s.L - (s.n_rows - 1) / 2.0);
    double bytes = 4.0 * s.B * s.Hkv * s.D * s.L + 8.0 * s.B * s.n_rows * s.H * s.D;
    bench_row(s.key, s.name, bench_seconds(do_attention, &t, s.calls), bytes, 4 * pairs * s.H * s.D,
              NO_AIM);
    for (int32_t i = 0; i < 2; i++) fv_buf_free(&cache[i]);
    fv_buf_free(&q_buf);
    fv_buf_free(&o_buf);
    free(t.seqs);
    free(t.tables);
    free(t.blocks);
    free(t.masked_tail);
}

void bench_attention(void) {
    static const attention_shape shapes[] = {
        {"full_1x640", "attention, decode, 1 x 640 keys", 1, 1, 640, 32, 32, 128, 100},
        {"full_16x640", "attention, decode, 16 x 640 keys", 16, 1, 640, 32, 32, 128, 50},
        {"full_64x640", "attention, decode, 64 x 640 keys", 64, 1, 640, 32, 32, 128, 20},
        {"full_16x4096", "attention, decode, 16 x 4096 keys", 16, 1, 4096, 32, 32, 128, 20},
        {"gqa_64x4096", "attention, decode, 64 x 4096, 8 KV heads", 64, 1, 4096, 32, 8, 128, 20},
        {"prefill_640", "attention, prefill, 640 rows", 1, 640, 640, 32, 32, 128, 20},
        {"prefill_4096", "attention, prefill, 4096 rows", 1, 4096, 4096, 32, 32, 128, 5},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) measure(shapes[i]);
}
