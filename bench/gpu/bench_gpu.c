/* How near the CUDA plugin comes to what its GPU can do, at the shapes of LLaVA-1.5-7B.
 *
 *     bench_gpu PLUGIN_DIR [ROUNDS]
 *
 * Two ceilings are measured in the same run, first: bytes read and written per second by a large
 * copy on the device, and bf16 products per second of an 8192^3 matrix product. A row calls one
 * operation many times between two waits for the device and divides, takes the next of several
 * weights or caches each time (together beyond the L2 cache), and is the median of ROUNDS such
 * times. Numbers are random: zeros run faster. On the emulated plugin sizes shrink and times mean
 * nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kernels/ops.h"
#include "kernels/plugin.h"

enum { MAX_ROUND = 99, MAX_SET = 64 };

static fv_backend be;
static int n_round = 9;
static bool small;                     /* emulated: only that everything runs */
static double copy_rate, product_rate; /* bytes/s, flop/s: the ceilings */

static void must(fv_status s) {
    if (s == FV_OK) return;
    fprintf(stderr, "bench_gpu: %s\n", fv_last_error());
    exit(1);
}

/* ---- memory ---------------------------------------------------------------------------- */

/* [rows, cols] of random numbers on the device. */
static fv_tensor tensor(fv_dtype dtype, int rows, int cols, fv_buf *buf) {
    static uint64_t state = 1;
    size_t n = (size_t)rows * (size_t)cols, bytes = n * fv_dtype_bytes(dtype);
    char *host = malloc(bytes);
    if (!host) must(FV_FAIL(FV_ENOMEM, "out of memory"));
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float f = (float)((double)(state >> 40) / (1 << 23) - 1) * 0.05f;
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        if (dtype == FV_F32)
            memcpy(host + i * 4, &f, 4);
        else
            memcpy(host + i * 2, (char *)&u + 2, 2); /* bf16, cut off */
    }
    must(fv_buf_alloc(be.device, bytes, FV_BUF_DEVICE, buf));
    must(be.device->ops->copy_async(be.device, buf->data, host, bytes));
    must(be.ops->sync(&be));
    free(host);
    return fv_tensor_of(buf->data, dtype, rows, cols);
}

/* ---- time ------------------------------------------------------------------------------ */

typedef fv_status work_fn(void *arg, int call);

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a call: median over rounds of the mean over `calls`. */
static double seconds(work_fn *work, void *arg, int calls) {
    double t[MAX_ROUND];
    if (small) calls = 1;
    for (int i = 0; i < (small ? 1 : 3); i++) must(work(arg, i));
    for (int r = 0; r < n_round; r++) {
        must(be.ops->sync(&be));
        double begin = fv_clock_s();
        for (int i = 0; i < calls; i++) must(work(arg, i));
        must(be.ops->sync(&be));
        t[r] = (fv_clock_s() - begin) / calls;
    }
    qsort(t, (size_t)n_round, sizeof *t, by_value);
    return t[n_round / 2];
}

static void row(const char *name, double s, double bytes, double flop) {
    double floor_bytes = copy_rate > 0 ? bytes / copy_rate : 0;
    double floor_flop = product_rate > 0 ? flop / product_rate : 0;
    double floor = fmax(floor_bytes, floor_flop);
    printf("%-44s %10.1f us %9.1f GB/s %9.2f TFLOP/s %6.1f %% of %s\n", name, s * 1e6,
           bytes / s * 1e-9, flop / s * 1e-12, 100 * floor / s,
           floor_flop > floor_bytes ? "products" : "bandwidth");
    fflush(stdout);
}

/* ---- ceilings -------------------------------------------------------------------------- */

typedef struct copy {
    fv_buf from, to;
} copy;

static fv_status do_copy(void *arg, int call) {
    copy *c = arg;
    (void)call;
    return be.device->ops->copy_async(be.device, c->to.data, c->from.data, c->to.bytes);
}

static void measure_copy(void) {
    copy c;
    fv_tensor t = tensor(FV_F32, small ? 64 : 1 << 14, 1 << 14, &c.from);
    double bytes = (double)t.rows * t.cols * 4;
    must(fv_buf_alloc(be.device, (size_t)bytes, FV_BUF_DEVICE, &c.to));
    double s = seconds(do_copy, &c, 20);
    copy_rate = 2 * bytes / s;
    row("copy on the device (ceiling)", s, 2 * bytes, 0);
    fv_buf_free(&c.from);
    fv_buf_free(&c.to);
}

/* ---- linear ---------------------------------------------------------------------------- */

typedef struct linear {
    fv_linear_args a;
    fv_tensor w[MAX_SET];
    fv_buf w_buf[MAX_SET], x_buf, y_buf;
    int n_set;
} linear;

static fv_status do_linear(void *arg, int call) {
    linear *l = arg;
    l->a.part[0].w = l->w[call % l->n_set];
    return be.ops->linear(&be, &l->a);
}

/* Weights of together 512 MiB at least: an L2 cache holds a tenth of that. */
static double measure_linear(const char *name, int M, int N, int K, int calls) {
    linear *l = calloc(1, sizeof *l);
    if (!l) must(FV_FAIL(FV_ENOMEM, "out of memory"));
    if (small) M = M < 4 ? M : 4, N = 64, K = 64;
    double w_bytes = 2.0 * N * K, flop = 2.0 * M * N * K;
    l->n_set = small ? 1 : (int)fmin(MAX_SET, 1 + 512e6 / w_bytes);
    for (int i = 0; i < l->n_set; i++) l->w[i] = tensor(FV_BF16, N, K, &l->w_buf[i]);
    l->a = (fv_linear_args){.x = tensor(FV_F32, M, K, &l->x_buf), .n_part = 1};
    l->a.part[0].y = tensor(FV_F32, M, N, &l->y_buf);
    double s = seconds(do_linear, l, calls);
    if (product_rate == 0) product_rate = flop / s;
    row(name, s, w_bytes + 4.0 * M * (N + K), flop);
    for (int i = 0; i < l->n_set; i++) fv_buf_free(&l->w_buf[i]);
    fv_buf_free(&l->x_buf);
    fv_buf_free(&l->y_buf);
    free(l);
    return s;
}

/* ---- row-wise -------------------------------------------------------------------------- */

static fv_status do_norm(void *arg, int call) {
    (void)call;
    return be.ops->norm(&be, arg);
}

static fv_status do_activate(void *arg, int call) {
    (void)call;
    return be.ops->activate(&be, arg);
}

static void measure_rowwise(int M) {
    fv_buf b[4];
    char name[64];
    int d = small ? 64 : 4096, m = small ? 96 : 11008;
    if (small) M = M < 4 ? M : 4;
    fv_tensor x = tensor(FV_F32, M, d, &b[0]), y = tensor(FV_F32, M, d, &b[1]);
    fv_norm_args norm = {
        .x = x, .w = tensor(FV_BF16, 1, d, &b[2]), .y = y, .eps = 1e-5f, .rms = true};
    snprintf(name, sizeof name, "rms norm, %d rows of %d", M, d);
    row(name, seconds(do_norm, &norm, 200), 8.0 * M * d, 0);
    fv_tensor g = tensor(FV_F32, M, m, &b[3]);
    fv_activate_args act = {FV_ACT_SILU, g, g, g};
    snprintf(name, sizeof name, "silu and gate, %d rows of %d", M, m);
    row(name, seconds(do_activate, &act, 200), 8.0 * M * m, 0);
    for (int i = 0; i < 4; i++) fv_buf_free(&b[i]);
}

/* ---- attention ------------------------------------------------------------------------- */

typedef struct attention {
    fv_attn_args a[2]; /* two caches by turns */
    fv_attn_seq *seqs;
    fv_kv_run *runs;
    fv_kv_block *blocks;
    int32_t *hidden;
} attention;

static fv_status do_attention(void *arg, int call) {
    attention *t = arg;
    return be.ops->attention(&be, &t->a[call % 2]);
}

/* B sequences with n_rows query rows each over L keys, of which the rows' own come last. */
static void measure_attention(const char *name, int B, int n_rows, int L, int H, int Hkv, int D,
                              int calls) {
    if (!be.ops->attention) return;
    if (small) L = L < 100 ? L : 100, n_rows = n_rows < 9 ? n_rows : 9, H = 4, Hkv = 2, D = 16;
    fv_buf cache[2], q_buf, o_buf;
    int per_run = (L + FV_KV_BLOCK - 1) / FV_KV_BLOCK, n_run = B * Hkv;
    attention t = {.seqs = calloc((size_t)(2 * B), sizeof *t.seqs),
                   .runs = calloc((size_t)(2 * n_run), sizeof *t.runs),
                   .blocks = calloc((size_t)(2 * n_run * per_run), sizeof *t.blocks),
                   .hidden = calloc((size_t)n_rows, sizeof *t.hidden)};
    if (!t.seqs || !t.runs || !t.blocks || !t.hidden) must(FV_FAIL(FV_ENOMEM, "out of memory"));
    for (int i = 0; i < n_rows; i++) t.hidden[i] = n_rows - 1 - i;
    fv_tensor q = tensor(FV_F32, B * n_rows, H * D, &q_buf), o = q;
    o = tensor(FV_F32, B * n_rows, H * D, &o_buf);
    for (int side = 0; side < 2; side++) {
        fv_tensor kv = tensor(FV_BF16, 2 * n_run * per_run * FV_KV_BLOCK, D, &cache[side]);
        for (int i = 0; i < n_run * per_run; i++)
            t.blocks[side * n_run * per_run + i] =
                (fv_kv_block){fv_tensor_rows(kv, 2 * i * FV_KV_BLOCK, 1).data,
                              fv_tensor_rows(kv, (2 * i + 1) * FV_KV_BLOCK, 1).data};
        for (int i = 0; i < n_run; i++)
            t.runs[side * n_run + i] = (fv_kv_run){&t.blocks[(side * n_run + i) * per_run], L};
        for (int i = 0; i < B; i++)
            t.seqs[side * B + i] = (fv_attn_seq){.row0 = i * n_rows,
                                                 .n_rows = n_rows,
                                                 .n_seg = 1,
                                                 .runs = &t.runs[side * n_run + i * Hkv],
                                                 .hidden = n_rows > 1 ? t.hidden : NULL};
        t.a[side] = (fv_attn_args){.q = q,
                                   .o = o,
                                   .kv_dtype = FV_BF16,
                                   .n_head = H,
                                   .n_kv = Hkv,
                                   .d_head = D,
                                   .n_seq = B,
                                   .scale = 1 / sqrtf((float)D),
                                   .seqs = &t.seqs[side * B]};
    }
    double pairs = (double)B * (n_rows * ((double)L - n_rows) + n_rows * (n_rows + 1.0) / 2);
    row(name, seconds(do_attention, &t, calls),
        (double)B * Hkv * D * L * 4 + 8.0 * B * n_rows * H * D, 4 * pairs * H * D);
    for (int i = 0; i < 2; i++) fv_buf_free(&cache[i]);
    fv_buf_free(&q_buf);
    fv_buf_free(&o_buf);
    free(t.seqs);
    free(t.runs);
    free(t.blocks);
    free(t.hidden);
}

/* ---- attention on packed rows ----------------------------------------------------------- */

typedef struct packed {
    fv_attn_packed_args a[2]; /* two sets of factors by turns */
    fv_packed_part *parts;    /* [2, B] keys and values */
    fv_packed_seq *seqs;      /* [2, B] */
    fv_packed_rows rows;
    fv_buf buf[8];
    int n_buf;
} packed;

static fv_status do_packed(void *arg, int call) {
    packed *t = arg;
    return be.ops->attn_packed(&be, &t->a[call % 2]);
}

/* n rows in anchor blocks of 64, all alive. */
static void packed_rows(packed *t, int n, int D) {
    enum { ANCHOR = 64 };
    int n_anchor = (n + ANCHOR - 1) / ANCHOR;
    int32_t *first = malloc((size_t)(n_anchor + 1) * sizeof *first);
    if (!first) must(FV_FAIL(FV_ENOMEM, "out of memory"));
    for (int i = 0; i <= n_anchor; i++) first[i] = i * ANCHOR < n ? i * ANCHOR : n;
    size_t bytes = (size_t)(n_anchor + 1) * sizeof *first;
    fv_buf *buf = &t->buf[t->n_buf++];
    must(fv_buf_alloc(be.device, bytes, FV_BUF_DEVICE, buf));
    must(be.device->ops->copy_async(be.device, buf->data, first, bytes));
    must(be.ops->sync(&be));
    free(first);
    t->rows = (fv_packed_rows){.n = n, .n_anchor = n_anchor, .first = buf->data};
    t->rows.cos = tensor(FV_F32, n_anchor, D / 2, &t->buf[t->n_buf++]).data;
    t->rows.sin = tensor(FV_F32, n_anchor, D / 2, &t->buf[t->n_buf++]).data;
}

/* B sequences of one query row each over n packed rows, each with factors of its own. */
static void measure_packed(const char *name, int B, int n, int H, int Hkv, int D, int R, int bits,
                           int calls) {
    if (!be.ops->attn_packed) return;
    if (small) B = 2, n = 100, H = 4, Hkv = 2, D = 32, R = 16;
    fv_packed_shape s[2] = {{.n = n, .rank = R, .rank2 = R, .n_kv = Hkv, .d_head = D}};
    s[0].dtype = FV_BF16;
    s[0].bits = (uint8_t)bits;
    s[1] = s[0];
    s[1].kind = FV_PACKED_V;
    packed t = {.parts = calloc((size_t)(4 * B), sizeof *t.parts),
                .seqs = calloc((size_t)(2 * B), sizeof *t.seqs)};
    if (!t.parts || !t.seqs) must(FV_FAIL(FV_ENOMEM, "out of memory"));
    packed_rows(&t, n, D);
    fv_tensor q = tensor(FV_F32, B, H * D, &t.buf[t.n_buf++]);
    fv_tensor o = tensor(FV_F32, B, H * D, &t.buf[t.n_buf++]);
    size_t bytes[2] = {fv_packed_bytes(&s[0]), fv_packed_bytes(&s[1])}, read = 0;
    for (int side = 0; side < 2; side++) {
        fv_tensor all = tensor(FV_BF16, B, (int)((bytes[0] + bytes[1]) / 2), &t.buf[t.n_buf++]);
        for (int i = 0; i < B; i++) {
            fv_packed_part *part = &t.parts[2 * (side * B + i)];
            char *data = fv_tensor_rows(all, i, 1).data;
            part[0] = (fv_packed_part){s[0], data, NULL};
            part[1] = (fv_packed_part){s[1], data + bytes[0], NULL};
            t.seqs[side * B + i] = (fv_packed_seq){
                .row0 = i, .n_rows = 1, .k = &part[0], .v = &part[1], .rows = &t.rows};
        }
        t.a[side] = (fv_attn_packed_args){.q = q,
                                          .o = o,
                                          .n_head = H,
                                          .n_kv = Hkv,
                                          .d_head = D,
                                          .n_seq = B,
                                          .scale = 1 / sqrtf((float)D),
                                          .seqs = &t.seqs[side * B]};
    }
    for (int i = 0; i < 2; i++) read += fv_packed_read_bytes(&s[i], 0);
    int64_t flop = fv_packed_flops_k(&s[0], H, t.rows.n_anchor) + fv_packed_flops_v(&s[1], H, 0);
    row(name, seconds(do_packed, &t, calls), (double)B * ((double)read + 8.0 * H * D),
        (double)B * (double)flop);
    for (int i = 0; i < t.n_buf; i++) fv_buf_free(&t.buf[i]);
    free(t.parts);
    free(t.seqs);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_gpu PLUGIN_DIR [ROUNDS]\n");
        return 2;
    }
    if (argc == 3) n_round = atoi(argv[2]);
    if (n_round < 1 || n_round > MAX_ROUND) n_round = 9;
    fv_plugin_set_dir(argv[1]);
    must(fv_backend_open(&be, "cuda", NULL));
    small = strstr(argv[1], "emulated") != NULL;
    if (small) printf("emulated: times mean nothing\n");
    measure_copy();
    measure_linear("linear 8192 x 8192 x 8192 (ceiling)", 8192, 8192, 8192, 10);
    static const int batches[] = {1, 16, 64, 640, 4096};
    char name[64];
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        int M = batches[i], calls = M > 64 ? 20 : 100;
        snprintf(name, sizeof name, "linear %d rows, q k v: 4096 -> 12288", M);
        measure_linear(name, M, 12288, 4096, calls);
        snprintf(name, sizeof name, "linear %d rows, down: 11008 -> 4096", M);
        measure_linear(name, M, 4096, 11008, calls);
        measure_rowwise(M);
    }
    measure_attention("attention, decode, 1 x 640 keys", 1, 1, 640, 32, 32, 128, 100);
    measure_attention("attention, decode, 16 x 640 keys", 16, 1, 640, 32, 32, 128, 50);
    measure_attention("attention, decode, 64 x 640 keys", 64, 1, 640, 32, 32, 128, 20);
    measure_attention("attention, decode, 16 x 4096 keys", 16, 1, 4096, 32, 32, 128, 20);
    measure_attention("attention, decode, 64 x 4096, 8 KV heads", 64, 1, 4096, 32, 8, 128, 20);
    measure_attention("attention, prefill, 640 rows", 1, 640, 640, 32, 32, 128, 20);
    measure_attention("attention, prefill, 4096 rows", 1, 4096, 4096, 32, 32, 128, 5);
    measure_packed("packed, 16 x 576 rows, rank 64, bf16", 16, 576, 32, 32, 128, 64, 16, 50);
    measure_packed("packed, 16 x 4096 rows, rank 64, bf16", 16, 4096, 32, 32, 128, 64, 16, 50);
    measure_packed("packed, 16 x 4096 rows, rank 64, 8 bits", 16, 4096, 32, 32, 128, 64, 8, 50);
    measure_packed("packed, 16 x 4096 rows, rank 64, 4 bits", 16, 4096, 32, 32, 128, 64, 4, 50);
    measure_packed("packed, 64 x 4096 rows, rank 64, bf16", 64, 4096, 32, 32, 128, 64, 16, 20);
    fv_backend_close(&be);
    return 0;
}
