/* Attention on packed rows in rank space: one query row per sequence, each with its own factors.
 * The bytes are those of the factors with their bases, the queries and the results. */
#include <math.h>
#include <stdlib.h>

#include "bench/gpu/rig.h"
#include "packed/lowrank.h"

typedef struct packed {
    fv_attn_packed_args a[2]; /* alternating between two sets */
    fv_packed_part *parts;    /* [2, B] keys and values */
    fv_packed_seq *seqs;      /* [2, B] */
    fv_packed_rows rows;
    fv_buf buf[8];
    int32_t n_buf;
} packed;

typedef struct packed_shape {
    const char *key, *name;
    int32_t B, n, H, Hkv, D, R, bits, calls, aim;
} packed_shape;

static fv_status do_packed(void *arg, int32_t call) {
    packed *t = arg;
    return rig.be.ops->attn_lowrank(&rig.be, &t->a[call % 2]);
}

/* Lays out n live rows in anchor blocks of 64. */
static void lay_rows(packed *t, int32_t n, int32_t D) {
    enum { ANCHOR = 64 };
    int32_t n_anchor = (n + ANCHOR - 1) / ANCHOR;
    int32_t *first = zeroed((size_t)(n_anchor + 1), sizeof *first);
    for (int32_t i = 0; i <= n_anchor; i++) first[i] = i * ANCHOR < n ? i * ANCHOR : n;
    size_t bytes = (size_t)(n_anchor + 1) * sizeof *first;
    fv_buf *buf = &t->buf[t->n_buf++];
    fv_device *dev = rig.be.device;
    must(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, buf));
    must(dev->ops->copy_async(dev, buf->data, first, bytes));
    must(rig.be.ops->sync(&rig.be));
    free(first);
    t->rows = (fv_packed_rows){.n = n, .n_anchor = n_anchor, .first = buf->data};
    t->rows.cos = bench_tensor(FV_F32, n_anchor, D / 2, &t->buf[t->n_buf++]).data;
    t->rows.sin = bench_tensor(FV_F32, n_anchor, D / 2, &t->buf[t->n_buf++]).data;
}

/* Allocates the factors of one side. */
static void lay_side(packed *t, const packed_shape *c, const fv_packed_shape s[2], int32_t side) {
    size_t of_keys = fv_packed_bytes(&s[0]), bytes = of_keys + fv_packed_bytes(&s[1]);
    fv_tensor all = bench_tensor(FV_BF16, c->B, (int32_t)(bytes / 2), &t->buf[t->n_buf++]);
    for (int32_t i = 0; i < c->B; i++) {
        fv_packed_part *part = &t->parts[2 * (side * c->B + i)];
        char *data = fv_tensor_rows(all, i, 1).data;
        part[0] = (fv_packed_part){.shape = s[0], .data = data};
        part[1] = (fv_packed_part){.shape = s[1], .data = data + of_keys};
        t->seqs[side * c->B + i] =
            (fv_packed_seq){.row0 = i, .n_rows = 1, .k = &part[0], .v = &part[1], .rows = &t->rows};
    }
}

static void measure(packed_shape c) {
    if (rig.small) c.B = 2, c.n = 100, c.H = 4, c.Hkv = 2, c.D = 32, c.R = 16;
    fv_packed_shape s[2] = {{.n = c.n, .n_kv = c.Hkv, .d_head = c.D}};
    s[0].dtype = FV_BF16;
    s[0].lowrank = (fv_lowrank_shape){c.R, c.R, (uint8_t)c.bits};
    s[1] = s[0];
    s[1].kind = FV_PACKED_V;
    packed t = {.parts = zeroed((size_t)(4 * c.B), sizeof *t.parts),
                .seqs = zeroed((size_t)(2 * c.B), sizeof *t.seqs)};
    lay_rows(&t, c.n, c.D);
    fv_tensor q = bench_tensor(FV_F32, c.B, c.H * c.D, &t.buf[t.n_buf++]);
    fv_tensor o = bench_tensor(FV_F32, c.B, c.H * c.D, &t.buf[t.n_buf++]);
    for (int32_t side = 0; side < 2; side++) {
        lay_side(&t, &c, s, side);
        t.a[side] = (fv_attn_packed_args){.q = q,
                                          .o = o,
                                          .n_head = c.H,
                                          .n_kv = c.Hkv,
                                          .d_head = c.D,
                                          .n_seq = c.B,
                                          .scale = 1 / sqrtf((float)c.D),
                                          .seqs = &t.seqs[side * c.B]};
    }
    size_t read = fv_packed_read_bytes(&s[0], 0) + fv_packed_read_bytes(&s[1], 0);
    int64_t flop =
        fv_packed_flops_k(&s[0], c.H, t.rows.n_anchor) + fv_packed_flops_v(&s[1], c.H, 0);
    bench_row(c.key, c.name, bench_seconds(do_packed, &t, c.calls),
              (double)c.B * ((double)read + 8.0 * c.H * c.D), (double)c.B * (double)flop, c.aim);
    for (int32_t i = 0; i < t.n_buf; i++) fv_buf_free(&t.buf[i]);
    free(t.parts);
    free(t.seqs);
}

void bench_packed(void) {
    static const packed_shape shapes[] = {
        {"packed_16x576", "packed, 16 x 576 rows, rank 64, bf16", 16, 576, 32, 32, 128, 64, 16, 50,
         NO_AIM},
        {"packed_16x4096", "packed, 16 x 4096 rows, rank 64, bf16", 16, 4096, 32, 32, 128, 64, 16,
         50, AIM_PACKED},
        {"packed_32x4096", "packed, 32 x 4096 rows, rank 64, bf16", 32, 4096, 32, 32, 128, 64, 16,
         30, AIM_PACKED},
        {"packed_64x4096", "packed, 64 x 4096 rows, rank 64, bf16", 64, 4096, 32, 32, 128, 64, 16,
         20, AIM_PACKED},
        {"packed8_16x4096", "packed, 16 x 4096 rows, rank 64, 8 bits", 16, 4096, 32, 32, 128, 64, 8,
         50, NO_AIM},
        {"packed4_16x4096", "packed, 16 x 4096 rows, rank 64, 4 bits", 16, 4096, 32, 32, 128, 64, 4,
         50, NO_AIM},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) measure(shapes[i]);
}
