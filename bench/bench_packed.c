/* Compares packed visual tokens with unpacked ones at the dimensions of a 7B network
 * (packed_case.h; rank 64).
 *
 *   attend    attention on packed and on raw rows, in pairs:
 *             V side: with keys of rank 1, softmax included, against half the time of raw rows
 *             whole: one anchor block (K1), the default and other block lengths, without merging;
 *             codes of 8 and 4 bits, keys before and after rotation
 *   rebuild   keys and values rebuilt, rotated, written to a KV cache and read by attention; some
 *             tokens at a time, so that rows are written while still in the CPU cache; the
 *             product's rate relative to the FMA loop
 *   compact   factoring and writing the keys and values of 576 tokens, against the linear layers
 *             and attention of one layer in a prefill of 640 tokens
 *
 *     bench_packed --rounds 9 --json results/packed.json */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/packed_case.h"
#include "factor/factor.h"
#include "packed/lowrank.h"

enum { H = CASE_HEADS, D = CASE_D, W = CASE_WIDTH, R = CASE_RANK, R2 = 16 };

/* ---- attend ---------------------------------------------------------------------------- */

/* Measures a pair: raw rows, packed rows, raw rows again; uses the mean of the raw times. */
static void measure_pair(bench *b, const char *what, packed_case c, double share) {
    int calls = c.n < 1000 ? 24 : 6;
    char name[64];
    double before = case_raw_s(b, c.n, calls), packed = case_packed_s(b, c, calls * 4);
    double raw = 0.5 * (before + case_raw_s(b, c.n, calls)) * share;
    snprintf(name, sizeof name, "%s, %d rows", what, c.n);
    bench_note(b, name, "us", packed, 1e-6, BENCH_NO_LIMIT);
    bench_note(b, "    raw / packed", "x", raw / packed, 1, BENCH_NO_LIMIT);
}

static void measure_codes(bench *b, int n, int bits, bool turned) {
    int calls = n < 1000 ? 24 : 6;
    char name[64];
    double before = case_raw_s(b, n, calls), codes = case_codes_s(b, n, bits, turned, calls * 2);
    double raw = 0.5 * (before + case_raw_s(b, n, calls));
    snprintf(name, sizeof name, "codes of %d bits, keys %s, %d rows", bits,
             turned ? "before rotation" : "rotated", n);
    bench_note(b, name, "us", codes, 1e-6, BENCH_NO_LIMIT);
    bench_note(b, "    raw / codes", "x", raw / codes, 1, BENCH_NO_LIMIT);
}

static void measure_attend(bench *b) {
    static const int lengths[] = {576, 4096}, others[] = {128, 32, 16, 8};
    for (int i = 0; i < 2; i++) {
        int n = lengths[i], step = case_default_step();
        char name[64];
        bench_measure_read(b);
        double s = case_raw_s(b, n, n < 1000 ? 24 : 6);
        snprintf(name, sizeof name, "raw, %d rows", n);
        bench_note(b, name, "GB/s", 2.0 * n * W * 2 / s, 1e9, BENCH_READ);
        measure_pair(b, "V side", (packed_case){n, 0, 1, R, 16}, 0.5);
        measure_pair(b, "V side, 3/4 of the rows at rank 16", (packed_case){n, 0, 1, R2, 16}, 0.5);
        snprintf(name, sizeof name, "whole, the default, anchors %d apart", step);
        measure_pair(b, name, (packed_case){n, step, R, R, 16}, 1);
        measure_pair(b, "whole, the default, 8 bits", (packed_case){n, step, R, R, 8}, 1);
        measure_pair(b, "whole, the default, 4 bits", (packed_case){n, step, R, R, 4}, 1);
        measure_pair(b, "whole, K1", (packed_case){n, 0, R, R, 16}, 1);
        for (int x = 0; x < 4; x++) {
            snprintf(name, sizeof name, "whole, anchors %d apart", others[x]);
            measure_pair(b, name, (packed_case){n, others[x], R, R, 16}, 1);
        }
        for (int bits = 8; bits >= 4; bits -= 4)
            for (int turned = 1; turned >= 0; turned--) measure_codes(b, n, bits, turned);
    }
}

/* ---- rebuild --------------------------------------------------------------------------- */

enum { REBUILT = 48 }; /* rows at a time: 768 KiB, with their inputs half of L2 */

/* Buffers for rebuilding, apart from the factors. */
typedef struct rebuild {
    fv_tensor u, y, cos, sin, q, o; /* u [n, R]; y, cos, sin: a chunk of rows */
    fv_block_table tables[H];
    int32_t slot[REBUILT];
    uint8_t seg[REBUILT];
    double product_s;
} rebuild;

static void make_tables(fv_block_table *tables, int n) {
    int n_block = (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    for (int g = 0; g < H; g++) {
        tables[g] = (fv_block_table){case_alloc((size_t)n_block * sizeof(fv_kv_block)), 0};
        for (int x = 0; x < n_block; x++) {
            char *rows = case_alloc((size_t)4 * FV_KV_BLOCK * D);
            tables[g].block[x] = (fv_kv_block){rows, rows + (ptrdiff_t)2 * FV_KV_BLOCK * D};
        }
    }
}

static void free_tables(fv_block_table *tables, int n) {
    for (int g = 0; g < H; g++) {
        for (int x = 0; x < (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK; x++) free(tables[g].block[x].k);
        free(tables[g].block);
    }
}

static rebuild rebuild_open(int n) {
    rebuild r = {.u = bench_activations(n, R),
                 .y = bench_activations(REBUILT, W),
                 .cos = bench_activations(REBUILT, D / 2),
                 .sin = bench_activations(REBUILT, D / 2),
                 .q = bench_activations(1, W),
                 .o = bench_activations(1, W)};
    for (int j = 0; j < REBUILT; j++) r.slot[j] = j;
    make_tables(r.tables, n);
    return r;
}

static void rebuild_close(rebuild *r, int n) {
    fv_tensor *all[] = {&r->u, &r->y, &r->cos, &r->sin, &r->q, &r->o};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    free_tables(r->tables, n);
}

/* Rebuilds keys or values of rows [j, j + n) from their factors and writes them to the cache. */
static void rebuild_rows(bench *b, rebuild *r, fv_tensor basis, bool value, int j, int n) {
    fv_tensor y = fv_tensor_rows(r->y, 0, n);
    fv_matmul_nn_args product = {fv_tensor_rows(r->u, j, n), basis, y};
    double t0 = bench_now_s();
    bench_must(b->be.ops->matmul_nn(&b->be, &product));
    r->product_s += bench_now_s() - t0;
    fv_rope_args rope = {y, fv_tensor_rows(r->cos, 0, n), fv_tensor_rows(r->sin, 0, n), H};
    if (!value) bench_must(b->be.ops->rope(&b->be, &rope));
    fv_kv_write_seq to = {
        .n_rows = n, .n_seg = 1, .tables = r->tables, .seg = r->seg, .slot = r->slot};
    fv_kv_write_args write = {.k = value ? (fv_tensor){0} : y,
                              .v = value ? y : (fv_tensor){0},
                              .kv_dtype = FV_BF16,
                              .n_kv = H,
                              .d_head = D,
                              .n_seq = 1,
                              .seqs = &to};
    for (int g = 0; g < H; g++) r->tables[g].len = j;
    bench_must(b->be.ops->kv_write(&b->be, &write));
}

/* Rebuilds all rows from cold factors and runs one row's attention; returns seconds. */
static double rebuild_s(bench *b, rebuild *r, int n) {
    fv_tensor basis[2] = {bench_weight(b, FV_BF16, R, W), bench_weight(b, FV_BF16, R, W)};
    fv_attn_seq seq = {.n_rows = 1, .n_seg = 1, .tables = r->tables};
    fv_attn_args a = case_attn(r->q, r->o, &seq);
    double t0 = bench_now_s();
    for (int j = 0; j < n; j += REBUILT)
        for (int value = 0; value < 2; value++)
            rebuild_rows(b, r, basis[value], value, j, n - j < REBUILT ? n - j : REBUILT);
    for (int g = 0; g < H; g++) r->tables[g].len = n;
    bench_must(b->be.ops->attention(&b->be, &a));
    return bench_now_s() - t0;
}

static void measure_rebuild(bench *b) {
    static const int lengths[] = {576, 4096};
    char name[64];
    for (int i = 0; i < 2; i++) {
        int n = lengths[i], step = case_default_step();
        rebuild r = rebuild_open(n);
        bench_measure_fma(b);
        double whole = rebuild_s(b, &r, n);
        double packed = case_packed_s(b, (packed_case){n, step, R, R, 16}, 12);
        snprintf(name, sizeof name, "rebuild, attend, %d rows", n);
        bench_note(b, name, "us", whole, 1e-6, BENCH_NO_LIMIT);
        bench_note(b, "    its product", "GFLOP/s", 4.0 * n * R * W / r.product_s, 1e9, BENCH_FMA);
        bench_note(b, "    rebuild / packed, the default", "x", whole / packed, 1, BENCH_NO_LIMIT);
        rebuild_close(&r, n);
    }
}

/* ---- compact --------------------------------------------------------------------------- */

static fv_packed_shape factors_shape(int n, fv_packed_kind kind) {
    return (fv_packed_shape){.n = n,
                             .lowrank.rank = R,
                             .lowrank.rank2 = R,
                             .n_kv = H,
                             .d_head = D,
                             .dtype = FV_BF16,
                             .kind = kind,
                             .lowrank.bits = 16};
}

/* Factors one matrix and writes the result; returns seconds. */
static double compact_s(bench *b, fv_arena *arena, const fv_tensor *m, fv_packed_kind kind,
                        void *to, int *steps) {
    fv_factor_goal goal = {.rank = R, .seed = 1};
    fv_packed_shape s = factors_shape(m->rows, kind);
    fv_factor f;
    double t0 = bench_now_s();
    bench_must(fv_factorise(&b->be, arena, m, &goal, &f));
    s.lowrank.rank = s.lowrank.rank2 = f.rank;
    fv_packed_write(&s, f.u, f.basis, to);
    fv_arena_reset(arena);
    *steps = f.steps;
    return bench_now_s() - t0;
}

/* Runs the linear layers and attention of one layer on M rows with bf16 weights; returns
 * seconds. */
static double prefill_s(bench *b, int M) {
    static const int shapes[][2] = {{W, W},     {W, W},     {W, W},    {W, W},
                                    {11008, W}, {11008, W}, {W, 11008}};
    fv_tensor x = bench_activations(M, 11008), y = bench_activations(M, 11008);
    fv_tensor q = bench_activations(M, W), o = bench_activations(M, W);
    fv_block_table tables[H];
    make_tables(tables, M);
    int32_t *masked_tail = case_alloc((size_t)M * sizeof *masked_tail);
    for (int i = 0; i < M; i++) masked_tail[i] = M - 1 - i;
    for (int g = 0; g < H; g++) tables[g].len = M;
    fv_attn_seq seq = {.n_rows = M, .n_seg = 1, .tables = tables, .masked_tail = masked_tail};
    fv_attn_args attn = case_attn(q, o, &seq);
    double t0 = bench_now_s();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fv_linear_args a = {.n_part = 1,
                            .x = fv_tensor_of(x.data, FV_F32, M, shapes[i][1]),
                            .part = {{.w = bench_weight(b, FV_BF16, shapes[i][0], shapes[i][1]),
                                      .y = fv_tensor_of(y.data, FV_F32, M, shapes[i][0])}}};
        bench_must(b->be.ops->linear(&b->be, &a));
    }
    bench_must(b->be.ops->attention(&b->be, &attn));
    double s = bench_now_s() - t0;
    free_tables(tables, M);
    free(masked_tail);
    free(q.data);
    free(o.data);
    free(x.data);
    free(y.data);
    return s;
}

static void measure_compact(bench *b) {
    enum { N = 576, ROWS = 640 };
    fv_tensor keys = case_keys(b, N), local = case_rotated(b, keys, case_default_step());
    fv_arena arena = {0};
    fv_packed_shape shape = factors_shape(N, FV_PACKED_K);
    void *to = case_alloc(fv_packed_bytes(&shape));
    int steps_k, steps_v;
    compact_s(b, &arena, &local, FV_PACKED_K, to, &steps_k); /* grow the arena first */
    double k = compact_s(b, &arena, &local, FV_PACKED_K, to, &steps_k);
    double v = compact_s(b, &arena, &keys, FV_PACKED_V, to, &steps_v);
    double prefill = prefill_s(b, ROWS);
    bench_note(b, "factors of 576 keys, bf16", "ms", k, 1e-3, BENCH_NO_LIMIT);
    bench_note(b, "    iterations", "", steps_k, 1, BENCH_NO_LIMIT);
    bench_note(b, "factors of 576 values, bf16", "ms", v, 1e-3, BENCH_NO_LIMIT);
    bench_note(b, "    iterations", "", steps_v, 1, BENCH_NO_LIMIT);
    bench_note(b, "prefill of one layer, 640 rows", "ms", prefill, 1e-3, BENCH_NO_LIMIT);
    bench_note(b, "    compaction of prefill", "%", (k + v) / prefill, 1e-2, BENCH_NO_LIMIT);
    fv_arena_fini(&arena);
    free(to);
    free(keys.data);
    free(local.data);
}

int main(int argc, char **argv) {
    static bench b;
    bench_open(&b, argc, argv, "bench_packed [options]     only: attend, rebuild, compact",
               "Packed visual rows against raw ones.");
    for (b.round = 0; b.round < b.n_round; b.round++) {
        b.next_row = 0;
        if (bench_wants(&b, "attend")) measure_attend(&b);
        if (bench_wants(&b, "rebuild")) measure_rebuild(&b);
        if (bench_wants(&b, "compact")) measure_compact(&b);
    }
    bench_report(&b);
    bench_close(&b);
    return 0;
}
