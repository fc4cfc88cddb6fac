/* Products and row-wise operations: the plain path's bits, except for products that a library
 * computes, which may differ by what rounding x to the weights' type costs. */
#include "tests/ops/run/run.h"

static fv_dtype any_dtype(void) { return (fv_dtype)random_int(0, FV_N_DTYPE - 1); }

/* 0 and 1, sizes around a block's edge, others. */
static int any_size(int most) {
    static const int edges[] = {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    int n = random_int(0, 1) ? edges[random_int(0, 15)] : random_int(1, most);
    return n > most ? most : n;
}

static int at_least_1(int n) { return n ? n : 1; }

/* ---- products -------------------------------------------------------------------------- */

/* one_in: one element of x in so many is a value that breaks careless code; 0: none. */
static void linear_once(device_test *d, int M, int K, const int *N, int n_part, bool accumulate,
                        int one_in) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3)), w[3], b[3], y[3];
    fv_linear_args host = {.x = x.host, .n_part = n_part}, there = {.x = x.there, .n_part = n_part};
    if (one_in) fill_specials(&x.host, one_in);
    send(d, &x);
    for (int i = 0; i < n_part; i++) {
        w[i] = both_normal(d, any_dtype(), N[i], K, 0);
        if (one_in) fill_specials(&w[i].host, 4 * one_in);
        send(d, &w[i]);
        b[i] = random_int(0, 1) ? both_normal(d, any_dtype(), 1, N[i], 0) : both_absent();
        y[i] = both_new(d, FV_F32, M, N[i], random_int(0, 2));
        if (accumulate) {
            fill_normal(&y[i].host, 1);
            send(d, &y[i]);
        }
        host.part[i] = (fv_linear_part){w[i].host, b[i].host, y[i].host, accumulate};
        there.part[i] = (fv_linear_part){w[i].there, b[i].there, y[i].there, accumulate};
    }
    must(d->plain.ops->linear(&d->plain, &host));
    must(d->be.ops->linear(&d->be, &there));
    for (int i = 0; i < n_part; i++) {
        double limit = w[i].host.dtype == FV_BF16 ? 6e-3 : w[i].host.dtype == FV_F16 ? 1e-3 : 1e-5;
        if (d->exact)
            check(same_bits(d, &y[i], "linear"), "linear %d x %d, part %d", M, K, i);
        else {
            double e = M && K ? relative_error(d, &y[i]) : 0;
            check(e < limit, "linear %d x %d, part %d: error %g", M, K, i, e);
        }
    }
    for (int i = 0; i < n_part; i++) {
        both_free(&w[i]);
        both_free(&b[i]);
        both_free(&y[i]);
    }
    both_free(&x);
}

static void test_linear(device_test *d) {
    group(d->exact ? "linear: the bits of the plain path" : "linear by a library: near");
    for (int i = 0; i < cases(on_cpu(d) ? 120 : 60); i++) {
        int N[3] = {at_least_1(any_size(150)), at_least_1(any_size(150)),
                    at_least_1(any_size(150))};
        linear_once(d, any_size(40), at_least_1(any_size(300)), N, random_int(1, 3),
                    random_int(0, 1), on_cpu(d) && i % 3 == 0 ? PICK(5, 50, 500) : 0);
    }
    if (!on_cpu(d)) return;
    group("linear: sums over several blocks of K, outputs of several tiles");
    linear_once(d, 1, 4099, (int[]){37}, 1, false, 0);
    linear_once(d, 7, 2048, (int[]){130}, 1, true, 0);
    linear_once(d, 21, 1537, (int[]){70}, 1, false, 0);
    linear_once(d, 33, 512, (int[]){64}, 1, true, 3000);
    linear_once(d, 203, 530, (int[]){67, 5}, 2, false, 0);
    linear_once(d, 386, 40, (int[]){9}, 1, true, 0);
}

static void matmul_nn_once(device_test *d, int M, int K, int N) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3));
    both w = both_normal(d, any_dtype(), K, N, random_int(0, 3));
    both y = both_new(d, FV_F32, M, N, random_int(0, 3));
    must(d->plain.ops->matmul_nn(&d->plain, &(fv_matmul_nn_args){x.host, w.host, y.host}));
    must(d->be.ops->matmul_nn(&d->be, &(fv_matmul_nn_args){x.there, w.there, y.there}));
    check(same_bits(d, &y, "matmul_nn"), "matmul_nn %d x %d x %d", M, K, N);
    both_free(&x);
    both_free(&w);
    both_free(&y);
}

static void syrk_once(device_test *d, int M, int K) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3));
    size_t bytes = (size_t)M * (size_t)M * sizeof(double);
    double *g = room(bytes), *there = room(bytes);
    memset(g, 0xff, bytes);
    memset(there, 0xff, bytes);
    must(d->plain.ops->syrk(&d->plain, &(fv_syrk_args){x.host, g}));
    must(d->be.ops->syrk(&d->be, &(fv_syrk_args){x.there, there}));
    check(memcmp(g, there, bytes) == 0, "syrk %d x %d", M, K);
    both_free(&x);
    free(g);
    free(there);
}

static void test_matmul_nn(device_test *d) {
    group("matmul_nn: the bits of the plain path");
    for (int i = 0; i < cases(30); i++)
        matmul_nn_once(d, any_size(40), any_size(80), any_size(300));
}

static void test_syrk(device_test *d) {
    group("syrk: the bits of the plain path, and nothing above the diagonal");
    for (int i = 0; i < cases(30); i++) syrk_once(d, any_size(40), any_size(200));
}

/* ---- row-wise -------------------------------------------------------------------------- */

static void norm_once(device_test *d, int M, int K, bool rms, bool in_place) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3));
    if (random_int(0, 3) == 0) {
        fill_specials(&x.host, 40);
        send(d, &x);
    }
    both w = both_normal(d, any_dtype(), 1, K, 0);
    both b = rms ? both_absent() : both_normal(d, any_dtype(), 1, K, 0);
    both y = in_place ? x : both_new(d, FV_F32, M, K, random_int(0, 3));
    fv_norm_args a = {.x = x.host, .w = w.host, .b = b.host, .y = y.host, .eps = 1e-5f, .rms = rms};
    must(d->plain.ops->norm(&d->plain, &a));
    a.x = x.there, a.w = w.there, a.b = b.there, a.y = y.there;
    must(d->be.ops->norm(&d->be, &a));
    check(same_bits(d, &y, "norm"), "norm %d x %d, rms %d", M, K, rms);
    if (!in_place) both_free(&y);
    both_free(&x);
    both_free(&w);
    both_free(&b);
}

static void activate_once(device_test *d, fv_activation act, int M, int K) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3));
    fill_normal(&x.host, 4);
    fill_specials(&x.host, 20);
    send(d, &x);
    both gate = random_int(0, 1) ? both_normal(d, FV_F32, M, K, random_int(0, 3)) : both_absent();
    both y = random_int(0, 1) ? x : both_normal(d, FV_F32, M, K, random_int(0, 3));
    bool accumulate = random_int(0, 1);
    if (random_int(0, 1)) gate.host.ld = gate.there.ld = 0; /* the first row for all */
    fv_activate_args a = {act, x.host, gate.host, y.host, accumulate};
    must(d->plain.ops->activate(&d->plain, &a));
    a = (fv_activate_args){act, x.there, gate.there, y.there, accumulate};
    must(d->be.ops->activate(&d->be, &a));
    check(same_bits(d, &y, "activate"), "activation %d, %d x %d", act, M, K);
    if (y.host.data != x.host.data) both_free(&y);
    both_free(&x);
    both_free(&gate);
}

static void rope_once(device_test *d, int M, int n_head, int half) {
    both x = both_normal(d, FV_F32, M, n_head * 2 * half, random_int(0, 3));
    both c = both_normal(d, FV_F32, M, half, random_int(0, 2));
    both s = both_normal(d, FV_F32, M, half, random_int(0, 2));
    must(d->plain.ops->rope(&d->plain, &(fv_rope_args){x.host, c.host, s.host, n_head}));
    must(d->be.ops->rope(&d->be, &(fv_rope_args){x.there, c.there, s.there, n_head}));
    check(same_bits(d, &x, "rope"), "rope %d x %d x %d", M, n_head, half);
    both_free(&x);
    both_free(&c);
    both_free(&s);
}

static void index_select_once(device_test *d, int vocab, int n, int K) {
    both table = both_normal(d, any_dtype(), vocab, K, random_int(0, 2));
    both y = both_new(d, FV_F32, n, K, random_int(0, 2));
    int32_t *ids = room((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++) ids[i] = random_int(0, vocab - 1);
    must(d->plain.ops->index_select(&d->plain, &(fv_index_select_args){table.host, y.host, ids}));
    must(d->be.ops->index_select(&d->be, &(fv_index_select_args){table.there, y.there, ids}));
    for (int i = 0; i < n; i++) ids[i] = 1 << 30; /* it has been consumed */
    check(same_bits(d, &y, "index_select"), "index_select %d of %d x %d", n, vocab, K);
    both_free(&table);
    both_free(&y);
    free(ids);
}

static void test_norm(device_test *d) {
    group("norm: the bits of the plain path");
    for (int i = 0; i < cases(on_cpu(d) ? 80 : 40); i++)
        norm_once(d, any_size(20), at_least_1(any_size(1100)), random_int(0, 1), random_int(0, 1));
    norm_once(d, 2, 8192, true, true); /* the longest row that a GPU's shared memory holds, and a */
    norm_once(d, 2, 8193, false, false); /* longer one */
}

/* Activations of 4096 numbers, every 16381th bit pattern from `bits` on. */
static void activate_sweep(device_test *d, uint32_t bits) {
    both x = both_new(d, FV_F32, 1, 4096, 0), y = both_new(d, FV_F32, 1, 4096, 0);
    for (int i = 0; i < 4096; i++, bits += 16381) memcpy((float *)x.host.data + i, &bits, 4);
    send(d, &x);
    for (fv_activation act = 0; act < FV_N_ACT; act++) {
        fv_activate_args a = {.act = act, .x = x.host, .y = y.host};
        must(d->plain.ops->activate(&d->plain, &a));
        a.x = x.there, a.y = y.there;
        must(d->be.ops->activate(&d->be, &a));
        check(same_bits(d, &y, "activate"), "activation %d from %#x on", (int)act, bits);
    }
    both_free(&x);
    both_free(&y);
}

static void test_activate(device_test *d) {
    group("activate: the bits of the plain path");
    for (int i = 0; i < cases(on_cpu(d) ? 100 : 40); i++)
        activate_once(d, (fv_activation)(i % FV_N_ACT), any_size(40), any_size(1000));
    for (uint32_t i = 0; i < (on_cpu(d) ? 64 : 1); i++) activate_sweep(d, i * 4096 * 16381);
}

static void test_rope(device_test *d) {
    group("rope: the bits of the plain path");
    for (int i = 0; i < cases(40); i++)
        rope_once(d, any_size(60), random_int(1, 7), random_int(1, 64));
}

static void test_index_select(device_test *d) {
    group("index_select: the bits of the plain path");
    for (int i = 0; i < cases(40); i++)
        index_select_once(d, at_least_1(any_size(50)), any_size(50), any_size(600));
    for (fv_dtype t = FV_BF16; t <= FV_F16; t++) { /* every pattern */
        both table = both_new(d, t, 1, 65536, 0), y = both_new(d, FV_F32, 1, 65536, 0);
        for (int i = 0; i < 65536; i++) ((uint16_t *)table.host.data)[i] = (uint16_t)i;
        send(d, &table);
        int32_t id = 0;
        must(d->plain.ops->index_select(&d->plain,
                                        &(fv_index_select_args){table.host, y.host, &id}));
        must(d->be.ops->index_select(&d->be, &(fv_index_select_args){table.there, y.there, &id}));
        check(same_bits(d, &y, "index_select"), "all patterns of %s", fv_dtype_name(t));
        both_free(&table);
        both_free(&y);
    }
}

/* ---- kv_write -------------------------------------------------------------------------- */

/* All blocks of a case are consecutive in one tensor, so one comparison shows what was written and
 * what was not. */
static void kv_write_once(device_test *d, int n_seq, int n_kv, int D) {
    enum { MAX_SEQ = 3, MAX_RUN = 3 * 4 * FV_ATTN_MAX_SEG, BLOCKS = 4, MAX_ROWS = 90 };
    static uint8_t seg[MAX_SEQ][MAX_ROWS];
    static int32_t slot[MAX_SEQ][MAX_ROWS];
    static fv_kv_block block[2][MAX_RUN * BLOCKS]; /* on the host, on the device */
    static fv_block_table run[2][MAX_RUN];
    fv_kv_write_seq seqs[2][MAX_SEQ];
    fv_dtype dtype = any_dtype();
    both kv = both_new(d, dtype, MAX_RUN * BLOCKS * 2 * FV_KV_BLOCK, D, 0);
    for (int i = 0; i < MAX_RUN * BLOCKS; i++)
        for (int side = 0; side < 2; side++) {
            const fv_tensor *t = side ? &kv.there : &kv.host;
            block[side][i].k = fv_tensor_rows(*t, (2 * i) * FV_KV_BLOCK, 1).data;
            block[side][i].v = fv_tensor_rows(*t, (2 * i + 1) * FV_KV_BLOCK, 1).data;
        }
    int rows = 0, n_run = 0;
    for (int s = 0; s < n_seq; s++) {
        int n = random_int(0, MAX_ROWS), n_seg = random_int(1, FV_ATTN_MAX_SEG);
        int next[FV_ATTN_MAX_SEG] = {0};
        for (int r = 0; r < n; r++) {
            seg[s][r] = (uint8_t)random_int(0, n_seg - 1);
            slot[s][r] = next[seg[s][r]]++;
        }
        for (int side = 0; side < 2; side++)
            seqs[side][s] = (fv_kv_write_seq){rows, n, n_seg, &run[side][n_run], seg[s], slot[s]};
        for (int k = 0; k < n_kv * n_seg; k++, n_run++) {
            int32_t len = random_int(0, BLOCKS * FV_KV_BLOCK - MAX_ROWS);
            for (int side = 0; side < 2; side++)
                run[side][n_run] = (fv_block_table){&block[side][n_run * BLOCKS], len};
        }
        rows += n;
    }
    both k = both_normal(d, FV_F32, rows, n_kv * D, random_int(0, 2)), v = k;
    fill_specials(&k.host, 10);
    send(d, &k);
    if (random_int(0, 2)) v = both_normal(d, FV_F32, rows, n_kv * D, random_int(0, 2));
    bool only_k = random_int(0, 3) == 0;
    fv_kv_write_args a = {.k = k.host,
                          .v = only_k ? (fv_tensor){0} : v.host,
                          .kv_dtype = dtype,
                          .n_kv = n_kv,
                          .d_head = D,
                          .n_seq = n_seq,
                          .seqs = seqs[0]};
    must(d->plain.ops->kv_write(&d->plain, &a));
    a.k = k.there, a.seqs = seqs[1];
    if (!only_k) a.v = v.there;
    must(d->be.ops->kv_write(&d->be, &a));
    memset(seg, 0xff, sizeof seg); /* tables have been consumed */
    memset(run[1], 0xff, sizeof run[1]);
    memset(block[1], 0xff, sizeof block[1]);
    check(same_bits(d, &kv, "kv_write"), "kv_write: %d sequences, %d heads of %d", n_seq, n_kv, D);
    if (v.host.data != k.host.data) both_free(&v);
    both_free(&k);
    both_free(&kv);
}

static void test_kv_write(device_test *d) {
    group("kv_write: ragged runs, some segments, three types");
    for (int i = 0; i < cases(on_cpu(d) ? 40 : 12); i++)
        kv_write_once(d, random_int(0, 3), random_int(1, 4), random_int(1, 20));
}

/* ---- speed ------------------------------------------------------------------------------ */

/* Times a row, a batch and a prompt through the matrices of a 7B network. */
static void perf_linear(device_test *d) {
    static const int shapes[][2] = {{4096, 4096}, {11008, 4096}, {4096, 11008}}, Ms[] = {1, 8, 640};
    for (int i = 0; i < 3 * FV_N_DTYPE; i++) {
        int N = shapes[i / FV_N_DTYPE][0], K = shapes[i / FV_N_DTYPE][1];
        fv_dtype t = (fv_dtype)(i % FV_N_DTYPE);
        both w = both_normal(d, t, N, K, 0);
        for (int m = 0; m < 3; m++) {
            int M = Ms[m];
            both x = both_normal(d, FV_F32, M, K, 0), y = both_new(d, FV_F32, M, N, 0);
            fv_linear_args a = {.x = x.there, .n_part = 1, .part = {{.w = w.there, .y = y.there}}};
            report(seconds_of(d, d->be.ops->linear, a), 2.0 * M * N * K,
                   (double)tensor_bytes(&w.host), "[%d, %d] x [%d, %d]^T %s", M, K, N, K,
                   fv_dtype_name(t));
            both_free(&x);
            both_free(&y);
        }
        both_free(&w);
    }
}

/* The products of factors of 576 x 4096 at rank 64. */
static void perf_matmul_nn(device_test *d) {
    enum { M = 80, K = 576, N = 4096 };
    both x = both_normal(d, FV_F32, M, K, 0), w = both_normal(d, FV_F32, K, N, 0);
    both y = both_new(d, FV_F32, M, N, 0);
    fv_matmul_nn_args a = {x.there, w.there, y.there};
    report(seconds_of(d, d->be.ops->matmul_nn, a), 2.0 * M * K * N, (double)tensor_bytes(&w.host),
           "[%d, %d] x [%d, %d]", M, K, K, N);
    both_free(&x);
    both_free(&w);
    both_free(&y);
}

static void perf_syrk(device_test *d) {
    enum { M = 88, K = 4096 };
    both x = both_normal(d, FV_F32, M, K, 0);
    double *g = room(sizeof *g * M * M);
    fv_syrk_args a = {x.there, g};
    report(seconds_of(d, d->be.ops->syrk, a), (double)M * M * K, (double)tensor_bytes(&x.host),
           "[%d, %d]", M, K);
    free(g);
    both_free(&x);
}

/* Times one row and many rows of 4096 numbers. */
static void perf_rows(device_test *d, int which) {
    enum { K = 4096, HALF = 64 };
    for (int M = 1; M <= 640; M += 639) {
        both x = both_normal(d, FV_F32, M, K, 0), w = both_normal(d, FV_F32, 1, K, 0);
        both y = both_new(d, FV_F32, M, K, 0), c = both_normal(d, FV_F32, M, HALF, 0);
        int32_t *ids = room((size_t)M * sizeof *ids);
        for (int i = 0; i < M; i++) ids[i] = random_int(0, M - 1);
        fv_norm_args norm = {.x = x.there, .w = w.there, .y = y.there, .eps = 1e-5f, .rms = true};
        fv_activate_args act = {FV_ACT_SILU, x.there, x.there, y.there, false};
        fv_rope_args rope = {x.there, c.there, c.there, K / 2 / HALF};
        fv_index_select_args select = {x.there, y.there, ids};
        double s = which == 0   ? seconds_of(d, d->be.ops->norm, norm)
                   : which == 1 ? seconds_of(d, d->be.ops->activate, act)
                   : which == 2 ? seconds_of(d, d->be.ops->rope, rope)
                                : seconds_of(d, d->be.ops->index_select, select);
        report(s, 0, (which == 1 ? 12.0 : 8.0) * M * K, "[%d, %d]", M, K);
        free(ids);
        both_free(&x);
        both_free(&w);
        both_free(&y);
        both_free(&c);
    }
}

/* Keys and values of one decoded row, and of a prompt, into bf16 blocks of 32 heads. */
static void perf_kv_write(device_test *d) {
    enum { KV = 32, D = 128, BLOCKS = 640 / FV_KV_BLOCK };
    static fv_kv_block block[KV * BLOCKS];
    static fv_block_table run[KV];
    static uint8_t seg[640];
    static int32_t slot[640];
    both kv = both_new(d, FV_BF16, KV * BLOCKS * 2 * FV_KV_BLOCK, D, 0);
    for (int i = 0; i < KV * BLOCKS; i++)
        block[i] = (fv_kv_block){fv_tensor_rows(kv.there, 2 * i * FV_KV_BLOCK, 1).data,
                                 fv_tensor_rows(kv.there, (2 * i + 1) * FV_KV_BLOCK, 1).data};
    for (int g = 0; g < KV; g++) run[g] = (fv_block_table){&block[g * BLOCKS], 0};
    for (int r = 0; r < 640; r++) slot[r] = r;
    for (int M = 1; M <= 640; M += 639) {
        both k = both_normal(d, FV_F32, M, KV * D, 0), v = both_normal(d, FV_F32, M, KV * D, 0);
        fv_kv_write_seq seq = {0, M, 1, run, seg, slot};
        fv_kv_write_args a = {k.there, v.there, FV_BF16, KV, D, 1, &seq};
        report(seconds_of(d, d->be.ops->kv_write, a), 0, 12.0 * M * KV * D,
               "%d rows, %d heads of %d, bf16", M, KV, D);
        both_free(&k);
        both_free(&v);
    }
    both_free(&kv);
}

static void perf_norm(device_test *d) { perf_rows(d, 0); }
static void perf_activate(device_test *d) { perf_rows(d, 1); }
static void perf_rope(device_test *d) { perf_rows(d, 2); }
static void perf_index_select(device_test *d) { perf_rows(d, 3); }

const op op_linear = {"linear",
                      "exact: bits; a library: 6e-3 of the norm in bf16, 1e-3 in f16, 1e-5",
                      test_linear, perf_linear};
const op op_matmul_nn = {"matmul_nn", "bits", test_matmul_nn, perf_matmul_nn};
const op op_syrk = {"syrk", "bits", test_syrk, perf_syrk};
const op op_norm = {"norm", "bits", test_norm, perf_norm};
const op op_activate = {"activate", "bits", test_activate, perf_activate};
const op op_rope = {"rope", "bits", test_rope, perf_rope};
const op op_index_select = {"index_select", "bits", test_index_select, perf_index_select};
const op op_kv_write = {"kv_write", "bits", test_kv_write, perf_kv_write};
