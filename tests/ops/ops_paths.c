/* Every path of the CPU backend gives the bits of the plain one, with 1, 2 and 3 threads.
 *
 * Random shapes, among them 0, 1 and odd tails, all dtypes, and values that break careless code
 * (infinities, NaN, subnormals, signed zeros). Outputs must agree bit for bit; only the payload
 * of a NaN is free. Memory that must not be read or written lies behind a sanitizer's fence or
 * holds NaN. */
#include "tests/ops/attention_case.h"
#include "tests/ops/ops_test.h"

enum { MAX_VARIANT = 9 };

static variant variants[MAX_VARIANT];
static int n_variant;

/* Runs `op` on every variant with *y holding `before` and compares what it leaves there. */
typedef fv_status (*run_fn)(fv_backend *be, const void *args);

static void compare(run_fn run, const void *args, const fv_tensor *y, const char *what) {
    size_t bytes = tensor_bytes(y), n = bytes / 4;
    float *before = room(bytes), *expected = room(bytes);
    memcpy(before, y->data, bytes);
    for (int v = 0; v < n_variant; v++) {
        memcpy(y->data, before, bytes);
        must(run(&variants[v].be, args));
        if (v == 0) memcpy(expected, y->data, bytes);
        long at = first_difference(y->data, expected, n);
        check(at < 0, "%s on %s: element %ld is %a, plain gives %a", what, variants[v].name, at,
              at < 0 ? 0.0 : (double)((float *)y->data)[at], at < 0 ? 0.0 : (double)expected[at]);
    }
    memcpy(y->data, before, bytes);
    free(before);
    free(expected);
}

static fv_dtype random_dtype(void) { return (fv_dtype)random_int(0, FV_N_DTYPE - 1); }

/* One of a list of sizes. */
#define PICK(...)                                                                                  \
    ((const int[]){__VA_ARGS__}[random_int(0, sizeof((int[]){__VA_ARGS__}) / sizeof(int) - 1)])

/* ---- linear ---------------------------------------------------------------------------- */

static fv_status run_linear(fv_backend *be, const void *args) { return be->ops->linear(be, args); }

/* All outputs are bands of one matrix, so that one comparison sees them and the gaps. */
static void linear_case(int M, int K, const int *N, int n_part, int one_in) {
    int total = 0;
    fv_linear_args a = {.x = tensor_new(FV_F32, M, K, random_int(0, 3)), .n_part = n_part};
    for (int p = 0; p < n_part; p++) total += N[p] + 1;
    fv_tensor y = tensor_new(FV_F32, M, total, random_int(0, 2));
    fill_normal(&a.x, 1);
    if (one_in) fill_specials(&a.x, one_in);
    for (size_t i = 0; i < tensor_bytes(&y) / 4; i++) ((float *)y.data)[i] = random_normal();
    for (int p = 0, column = 0; p < n_part; column += N[p++] + 1) {
        fv_linear_part *part = &a.part[p];
        part->w = tensor_new(random_dtype(), N[p], K, 0);
        fill_normal(&part->w, 0.3f);
        if (one_in) fill_specials(&part->w, one_in * 4);
        if (random_int(0, 1)) {
            part->bias = tensor_new(random_dtype(), 1, N[p], 0);
            fill_normal(&part->bias, 1);
        }
        part->accumulate = random_int(0, 1);
        part->y = y;
        part->y.data = (float *)y.data + column;
        part->y.cols = N[p];
    }
    char what[64];
    snprintf(what, sizeof what, "linear M=%d K=%d N=%d parts=%d", M, K, N[0], n_part);
    compare(run_linear, &a, &y, what);
    for (int p = 0; p < n_part; p++) {
        free(a.part[p].w.data);
        free(a.part[p].bias.data);
    }
    free(a.x.data);
    free(y.data);
}

static void test_linear(void) {
    group("linear: every path gives the bits of the plain path");
    for (int i = 0; i < 120; i++) {
        int N[3] = {PICK(1, 2, 3, 4, 5, 7, 16, 63, 64, 65, 130), PICK(1, 3, 8, 70), PICK(1, 6, 17)};
        int M = PICK(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 18, 19, 24, 31, 40);
        int K = PICK(1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 100, 255);
        linear_case(M, K, N, random_int(1, 3), i % 3 == 0 ? PICK(5, 50, 500) : 0);
    }
    group("linear: sums that span several blocks of K, outputs that span several tiles");
    linear_case(1, 4099, (int[]){37}, 1, 0);
    linear_case(7, 2048, (int[]){130}, 1, 0);
    linear_case(21, 1537, (int[]){70}, 1, 0);
    linear_case(33, 512, (int[]){64}, 1, 3000);
    linear_case(203, 530, (int[]){67, 5}, 2, 0);
    linear_case(386, 40, (int[]){9}, 1, 0);
}

/* ---- row-wise -------------------------------------------------------------------------- */

static fv_status run_norm(fv_backend *be, const void *args) { return be->ops->norm(be, args); }

static void test_norm(void) {
    group("norm: every path gives the bits of the plain path");
    for (int i = 0; i < 80; i++) {
        int M = PICK(0, 1, 2, 5, 70), K = PICK(1, 3, 15, 16, 17, 100, 255, 256, 257, 1024, 1030);
        bool rms = random_int(0, 1);
        fv_norm_args a = {.x = tensor_new(FV_F32, M, K, random_int(0, 3)),
                          .w = tensor_new(random_dtype(), 1, K, 0),
                          .eps = 1e-6f,
                          .rms = rms};
        fill_normal(&a.x, 3);
        if (i % 4 == 0) fill_specials(&a.x, 300);
        fill_normal(&a.w, 1);
        if (!rms) {
            a.b = tensor_new(random_dtype(), 1, K, 0);
            fill_normal(&a.b, 1);
        }
        a.y = i % 2 ? a.x : tensor_new(FV_F32, M, K, 0);
        if (!(i % 2)) fill_normal(&a.y, 1);
        if (i % 2)
            for (size_t j = 0; j < tensor_bytes(&a.x) / 4; j++)
                ((float *)a.x.data)[j] = random_normal();
        compare(run_norm, &a, &a.y, rms ? "rms norm" : "layer norm");
        if (a.y.data != a.x.data) free(a.y.data);
        free(a.x.data);
        free(a.w.data);
        free(a.b.data);
    }
}

static fv_status run_activate(fv_backend *be, const void *args) {
    return be->ops->activate(be, args);
}

static void test_activate(void) {
    group("activate: every path gives the bits of the plain path");
    for (int i = 0; i < 100; i++) {
        int M = PICK(0, 1, 3, 40), K = PICK(1, 7, 16, 33, 255, 256, 257, 1000);
        fv_activate_args a = {.act = (fv_activation)(i % FV_N_ACT),
                              .x = tensor_new(FV_F32, M, K, 2)};
        for (size_t j = 0; j < tensor_bytes(&a.x) / 4; j++)
            ((float *)a.x.data)[j] = random_normal() * (i % 2 ? 3.0f : 40.0f);
        if (i % 3 == 0) fill_specials(&a.x, 10);
        if (random_int(0, 1)) {
            a.gate = tensor_new(FV_F32, M, K, 1);
            fill_normal(&a.gate, 1);
        }
        bool in_place = random_int(0, 1);
        a.y = in_place ? a.x : tensor_new(FV_F32, M, K, 0);
        if (!in_place) fill_normal(&a.y, 1);
        compare(run_activate, &a, &a.y, "activate");
        if (!in_place) free(a.y.data);
        free(a.x.data);
        free(a.gate.data);
    }
    group("activate: the same on a sweep over all float bit patterns");
    enum { WIDTH = 4096 };
    fv_tensor x = tensor_new(FV_F32, 1, WIDTH, 0), y = tensor_new(FV_F32, 1, WIDTH, 0);
    memset(y.data, 0, sizeof(float) * WIDTH);
    uint32_t bits = 0;
    for (int chunk = 0; chunk < 64; chunk++) {
        for (int i = 0; i < WIDTH; i++, bits += 16381) memcpy((float *)x.data + i, &bits, 4);
        fv_activate_args a = {.act = (fv_activation)(chunk % FV_N_ACT), .x = x, .y = y};
        for (a.act = 0; a.act < FV_N_ACT; a.act++) compare(run_activate, &a, &y, "activate sweep");
    }
    free(x.data);
    free(y.data);
}

static fv_status run_rope(fv_backend *be, const void *args) { return be->ops->rope(be, args); }

static void test_rope(void) {
    group("rope: every path gives the bits of the plain path");
    for (int i = 0; i < 40; i++) {
        int M = PICK(0, 1, 2, 60), half = PICK(1, 4, 5, 8, 32, 40, 64), n_head = PICK(1, 2, 7);
        fv_rope_args a = {.x = tensor_new(FV_F32, M, n_head * 2 * half, random_int(0, 5)),
                          .cos = tensor_new(FV_F32, M, half, 0),
                          .sin = tensor_new(FV_F32, M, half, 0),
                          .n_head = n_head};
        for (size_t j = 0; j < tensor_bytes(&a.x) / 4; j++)
            ((float *)a.x.data)[j] = random_normal();
        fill_normal(&a.cos, 0.7f);
        fill_normal(&a.sin, 0.7f);
        compare(run_rope, &a, &a.x, "rope");
        free(a.x.data);
        free(a.cos.data);
        free(a.sin.data);
    }
}

static fv_status run_index_select(fv_backend *be, const void *args) {
    return be->ops->index_select(be, args);
}

static void test_index_select(void) {
    group("index_select: every path gives the bits of the plain path");
    for (int i = 0; i < 40; i++) {
        int vocab = PICK(1, 5, 300), K = PICK(1, 15, 16, 33, 600), n = PICK(0, 1, 4, 50);
        int32_t *ids = room((size_t)n * sizeof *ids);
        fv_index_select_args a = {.table = tensor_new(random_dtype(), vocab, K, 0),
                                  .y = tensor_new(FV_F32, n, K, random_int(0, 1)),
                                  .ids = ids};
        for (int j = 0; j < n; j++) ids[j] = random_int(0, vocab - 1);
        fill_normal(&a.table, 1);
        fill_specials(&a.table, 20);
        for (size_t j = 0; j < tensor_bytes(&a.y) / 4; j++)
            ((float *)a.y.data)[j] = random_normal();
        compare(run_index_select, &a, &a.y, "index_select");
        free(ids);
        free(a.table.data);
        free(a.y.data);
    }
    group("index_select: all 65536 bf16 and f16 patterns");
    for (fv_dtype t = FV_BF16; t <= FV_F16; t++) {
        int32_t id = 0;
        fv_index_select_args a = {
            .table = tensor_new(t, 1, 65536, 0), .y = tensor_new(FV_F32, 1, 65536, 0), .ids = &id};
        memset(a.y.data, 0, tensor_bytes(&a.y));
        for (int j = 0; j < 65536; j++) ((uint16_t *)a.table.data)[j] = (uint16_t)j;
        compare(run_index_select, &a, &a.y, "index_select of all patterns");
        free(a.table.data);
        free(a.y.data);
    }
}

/* ---- KV and attention ------------------------------------------------------------------ */

static fv_status run_attention(fv_backend *be, const void *c) {
    return attention_case_run(be, (attention_case *)(uintptr_t)c);
}

static void test_attention(void) {
    group("attention and its sums: every path gives the bits of the plain path");
    for (int i = 0; i < 160; i++) {
        attention_shape s = attention_shape_random();
        attention_case c = attention_case_new(&s);
        char what[128];
        snprintf(what, sizeof what, "attention %s D=%d Hkv=%d G=%d rows<=%d len<=%d seg<=%d",
                 fv_dtype_name(s.dtype), s.D, s.n_kv, s.group, s.max_rows, s.max_len, s.max_seg);
        if (i % 8 == 0) fill_specials(&c.args.q, 2000);
        compare(run_attention, &c, &c.out, what);
        attention_case_free(&c);
    }
}

static fv_status run_kv_write(fv_backend *be, const void *args) {
    return be->ops->kv_write(be, args);
}

/* Two sequences, one segment of 100 rows; all blocks lie in one array of floats. */
static void test_kv_write(void) {
    group("kv_write: every path gives the bits of the plain path");
    for (int i = 0; i < 40; i++) {
        enum { N_BLOCK = 3 };
        int D = PICK(1, 8, 10, 16, 33, 64), n_kv = random_int(1, 3), n_seg = random_int(1, 2);
        fv_dtype t = random_dtype();
        size_t bytes = (size_t)FV_KV_BLOCK * (size_t)D * fv_dtype_bytes(t);
        size_t n_block = (size_t)(2 * n_kv * n_seg * N_BLOCK);
        fv_tensor store =
            fv_tensor_of(room(2 * n_block * bytes), FV_F32, 1, (int32_t)(2 * n_block * bytes / 4));
        memset(store.data, 0x11, 2 * n_block * bytes);
        fv_kv_block *blocks = room(n_block * sizeof *blocks);
        for (size_t b = 0; b < n_block; b++) {
            blocks[b].k = (char *)store.data + 2 * b * bytes;
            blocks[b].v = (char *)store.data + (2 * b + 1) * bytes;
        }
        fv_block_table *runs = room((size_t)(2 * n_kv * n_seg) * sizeof *runs);
        for (int r = 0; r < 2 * n_kv * n_seg; r++)
            runs[r] = (fv_block_table){.block = blocks + r * N_BLOCK, .len = random_int(0, 70)};
        int n_rows[2] = {random_int(0, 50), random_int(0, 50)};
        int M = n_rows[0] + n_rows[1] + 1;
        uint8_t seg[102];
        int32_t slot[102], next[2][2] = {{0}};
        for (int q = 0, r = 0; q < 2; q++)
            for (int j = 0; j < n_rows[q]; j++, r++) {
                seg[r] = (uint8_t)random_int(0, n_seg - 1);
                slot[r] = next[q][seg[r]]++;
            }
        fv_kv_write_seq seqs[2];
        for (int q = 0; q < 2; q++)
            seqs[q] = (fv_kv_write_seq){.row0 = q * (n_rows[0] + 1),
                                        .n_rows = n_rows[q],
                                        .n_seg = n_seg,
                                        .tables = runs + q * n_kv * n_seg,
                                        .seg = seg + q * n_rows[0],
                                        .slot = slot + q * n_rows[0]};
        fv_kv_write_args a = {.k = tensor_new(FV_F32, M, n_kv * D, 2),
                              .v = tensor_new(FV_F32, M, n_kv * D, 0),
                              .kv_dtype = t,
                              .n_kv = n_kv,
                              .d_head = D,
                              .n_seq = 2,
                              .seqs = seqs};
        fill_normal(&a.k, 1);
        fill_normal(&a.v, 1);
        fill_specials(&a.k, 10);
        compare(run_kv_write, &a, &store, "kv_write");
        free(store.data);
        free(blocks);
        free(runs);
        free(a.k.data);
        free(a.v.data);
    }
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2, 3}, 3);
    test_linear();
    test_norm();
    test_activate();
    test_rope();
    test_index_select();
    test_attention();
    test_kv_write();
    variants_close(variants, n_variant);
    return summary();
}
