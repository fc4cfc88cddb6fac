/* A device's linear and row-wise operations against the plain ones: the same bits for all but
 * products that a library computes, and those within what rounding x to the weights' type costs. */
#include "tests/ops/device_test.h"

static fv_dtype any_dtype(void) { return (fv_dtype)random_int(0, FV_N_DTYPE - 1); }

/* 0 and 1, sizes about a block's edge, others. */
static int any_size(int most) {
    static const int edges[] = {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    int n = random_int(0, 1) ? edges[random_int(0, 15)] : random_int(1, most);
    return n > most ? most : n;
}

static int at_least_1(int n) { return n ? n : 1; }

/* ---- products -------------------------------------------------------------------------- */

static void linear_once(device_test *d, int M, int K, int n_part, bool accumulate) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3)), w[3], b[3], y[3];
    fv_linear_args host = {.x = x.host, .n_part = n_part}, there = {.x = x.there, .n_part = n_part};
    for (int i = 0; i < n_part; i++) {
        int N = at_least_1(any_size(150));
        w[i] = both_normal(d, any_dtype(), N, K, 0);
        b[i] = random_int(0, 1) ? both_normal(d, any_dtype(), 1, N, 0) : both_absent();
        y[i] = both_new(d, FV_F32, M, N, random_int(0, 2));
        if (accumulate) {
            fill_normal(&y[i].host, 1);
            send(d, &y[i]);
        }
        host.part[i] = (fv_linear_part){w[i].host, b[i].host, y[i].host, accumulate};
        there.part[i] = (fv_linear_part){w[i].there, b[i].there, y[i].there, accumulate};
    }
    must(d->plain.ops->linear(&d->plain, &host));
    must(d->gpu.ops->linear(&d->gpu, &there));
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
    group(d->exact ? "linear, exact: the bits of the CPU" : "linear by a library: near");
    for (int i = 0; i < 60; i++)
        linear_once(d, any_size(40), at_least_1(any_size(300)), random_int(1, 3), random_int(0, 1));
}

static void matmul_nn_once(device_test *d, int M, int K, int N) {
    both x = both_normal(d, FV_F32, M, K, random_int(0, 3));
    both w = both_normal(d, any_dtype(), K, N, random_int(0, 3));
    both y = both_new(d, FV_F32, M, N, random_int(0, 3));
    must(d->plain.ops->matmul_nn(&d->plain, &(fv_matmul_nn_args){x.host, w.host, y.host}));
    must(d->gpu.ops->matmul_nn(&d->gpu, &(fv_matmul_nn_args){x.there, w.there, y.there}));
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
    must(d->gpu.ops->syrk(&d->gpu, &(fv_syrk_args){x.there, there}));
    check(memcmp(g, there, bytes) == 0, "syrk %d x %d", M, K);
    both_free(&x);
    free(g);
    free(there);
}

static void test_products(device_test *d) {
    group("matmul_nn and syrk: the bits of the CPU, and nothing above the diagonal");
    for (int i = 0; i < 30; i++) {
        matmul_nn_once(d, any_size(40), any_size(80), any_size(300));
        syrk_once(d, any_size(40), any_size(200));
    }
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
    must(d->gpu.ops->norm(&d->gpu, &a));
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
    both y = random_int(0, 1) ? x : both_new(d, FV_F32, M, K, random_int(0, 3));
    fv_activate_args a = {act, x.host, gate.host, y.host};
    must(d->plain.ops->activate(&d->plain, &a));
    a = (fv_activate_args){act, x.there, gate.there, y.there};
    must(d->gpu.ops->activate(&d->gpu, &a));
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
    must(d->gpu.ops->rope(&d->gpu, &(fv_rope_args){x.there, c.there, s.there, n_head}));
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
    must(d->gpu.ops->index_select(&d->gpu, &(fv_index_select_args){table.there, y.there, ids}));
    for (int i = 0; i < n; i++) ids[i] = 1 << 30; /* it has been taken */
    check(same_bits(d, &y, "index_select"), "index_select %d of %d x %d", n, vocab, K);
    both_free(&table);
    both_free(&y);
    free(ids);
}

static void test_rowwise(device_test *d) {
    group("norm, activate, rope, index_select: the bits of the CPU");
    for (int i = 0; i < 40; i++) {
        norm_once(d, any_size(20), at_least_1(any_size(700)), random_int(0, 1), random_int(0, 1));
        activate_once(d, (fv_activation)random_int(0, FV_N_ACT - 1), any_size(20), any_size(300));
        rope_once(d, any_size(20), random_int(1, 5), random_int(1, 40));
        index_select_once(d, at_least_1(any_size(50)), any_size(20), any_size(200));
    }
    norm_once(d, 2, 8192, true, true); /* the longest row that shared memory holds, and a longer */
    norm_once(d, 2, 8193, false, false);
}

/* ---- kv_write -------------------------------------------------------------------------- */

/* All blocks of a case lie one behind the other in one tensor, so that one comparison sees what
 * was written and what was not. */
static void kv_write_once(device_test *d, int n_seq, int n_kv, int D) {
    enum { MAX_SEQ = 3, MAX_RUN = 3 * 4 * FV_ATTN_MAX_SEG, BLOCKS = 4, MAX_ROWS = 90 };
    static uint8_t seg[MAX_SEQ][MAX_ROWS];
    static int32_t slot[MAX_SEQ][MAX_ROWS];
    static fv_kv_block block[2][MAX_RUN * BLOCKS]; /* here, there */
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
    must(d->gpu.ops->kv_write(&d->gpu, &a));
    memset(seg, 0xff, sizeof seg); /* tables have been taken */
    memset(run[1], 0xff, sizeof run[1]);
    memset(block[1], 0xff, sizeof block[1]);
    check(same_bits(d, &kv, "kv_write"), "kv_write: %d sequences, %d heads of %d", n_seq, n_kv, D);
    if (v.host.data != k.host.data) both_free(&v);
    both_free(&k);
    both_free(&kv);
}

static void test_kv_write(device_test *d) {
    group("kv_write: ragged runs, some segments, three types");
    for (int i = 0; i < 12; i++)
        kv_write_once(d, random_int(0, 3), random_int(1, 4), random_int(1, 20));
}

int main(void) {
    static const char *const isa[] = {"exact", "auto"};
    for (int i = 0; i < 2; i++) {
        device_test d = device_open(isa[i]);
        test_linear(&d);
        if (i == 0) {
            test_products(&d);
            test_rowwise(&d);
            test_kv_write(&d);
        }
        group_end();
        device_close(&d);
    }
    return summary();
}
