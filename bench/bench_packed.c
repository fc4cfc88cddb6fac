/* Packed visual rows at the dimensions of a 7B network (H = Hkv = 32, D = 128, R = 64, bf16), one
 * query row, one sequence, KV that comes from memory: every call takes the next piece of a buffer
 * far beyond any cache.
 *
 *   attend    attention on packed rows against attention on the same rows raw, in pairs:
 *             V side: with keys of rank 1, softmax included, against half of the raw one
 *             whole: anchor blocks of all rows (K1), of 64, 32, 16 and 8 rows, without merging
 *   rebuild   keys and values rebuilt, rotated, written to a cache and attended to; the product's
 *             share of the arithmetic loop
 *   compact   factors of the keys and values of 576 rows, and their writing, against the linear
 *             layers and the attention of one layer's prefill of 640 rows
 *   modes     once, not a timing: what share of the energy of made-up keys each way of rotating
 *             keeps at a rank. Keys: per head and dimension a mean with 60 % of the energy, and 256
 *             directions of random signs and sizes i^-0.8; 576 positions from 5 on, angles of
 *             base 10 000 (1-D RoPE). Made up: real keys decide.
 *
 *     bench_packed --rounds 9 --json results/packed.json */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "kernels/factor.h"

enum { H = 32, D = 128, W = H * D, R = 64, R2 = 16, POSITION0 = 5 };

static void *room(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) exit(1);
    return p;
}

/* ---- one call of each kind ----------------------------------------------------------------- */

/* Raw rows: seconds of one call. */
static double raw_s(bench *b, int n, int calls) {
    int n_block = (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    fv_kv_block *blocks = room((size_t)(H * n_block) * sizeof *blocks);
    fv_kv_run runs[H];
    fv_attn_seq seq = {.n_rows = 1, .n_seg = 1, .runs = runs};
    fv_attn_args a = {.q = bench_activations(1, W),
                      .o = bench_activations(1, W),
                      .kv_dtype = FV_BF16,
                      .n_head = H,
                      .n_kv = H,
                      .d_head = D,
                      .n_seq = 1,
                      .scale = 0.1f,
                      .seqs = &seq};
    for (int g = 0; g < H; g++) runs[g] = (fv_kv_run){blocks + (ptrdiff_t)g * n_block, n};
    double sum = 0;
    for (int i = 0; i < calls; i++) {
        for (int x = 0; x < H * n_block; x++) {
            blocks[x].k = bench_weight(b, FV_BF16, FV_KV_BLOCK, D).data;
            blocks[x].v = bench_weight(b, FV_BF16, FV_KV_BLOCK, D).data;
        }
        double t0 = bench_now_s();
        bench_must(b->be.ops->attention(&b->be, &a));
        sum += bench_now_s() - t0;
    }
    free(a.q.data);
    free(a.o.data);
    free(blocks);
    return sum / calls;
}

/* Angles of anchors that are `step` rows apart; step = 0: keys are rotated already. */
static fv_packed_rows make_rows(int n, int step) {
    int n_anchor = step ? (n + step - 1) / step : 1, half = D / 2;
    int32_t *first = room((size_t)(n_anchor + 1) * sizeof *first);
    float *angles = room((size_t)(2 * n_anchor * half) * sizeof *angles), *sines;
    sines = angles + (ptrdiff_t)n_anchor * half;
    for (int a = 0; a < n_anchor; a++) {
        first[a] = a * step;
        for (int i = 0; i < half; i++) {
            double x = (POSITION0 + a * step) * pow(1e4, -2.0 * i / D);
            angles[a * half + i] = (float)cos(x);
            sines[a * half + i] = (float)sin(x);
        }
    }
    first[n_anchor] = n;
    fv_packed_rows rows = {.n = n, .n_anchor = n_anchor, .first = first};
    if (step) rows.cos = angles, rows.sin = sines;
    if (!step) free(angles);
    return rows;
}

static void free_rows(const fv_packed_rows *rows) {
    free((void *)(uintptr_t)rows->first);
    free((void *)(uintptr_t)rows->cos);
    free((void *)(uintptr_t)rows->group);
}

typedef struct packed_case {
    int n, step, rank_k, rank2_v, bits;
} packed_case;

static fv_packed_part next_part(bench *b, const packed_case *c, fv_packed_kind kind) {
    bool value = kind == FV_PACKED_V;
    int rank = value ? R : c->rank_k;
    fv_packed_part p = {.shape = {.n = c->n,
                                  .rank = rank,
                                  .rank2 = value ? c->rank2_v : rank,
                                  .n_kv = H,
                                  .d_head = D,
                                  .dtype = FV_BF16,
                                  .kind = kind,
                                  .bits = (uint8_t)c->bits}};
    p.data = bench_memory(b, fv_packed_bytes(&p.shape));
    return p;
}

static double packed_s(bench *b, packed_case c, int calls) {
    fv_packed_rows rows = make_rows(c.n, c.step);
    if (c.rank2_v <
        R) { /* the first quarter at full rank, as rows in the order of their rank are */
        uint8_t *group = room((size_t)c.n);
        memset(group + c.n / 4, 1, (size_t)(c.n - c.n / 4));
        rows.group = group;
    }
    fv_packed_part k, v;
    fv_packed_seq seq = {.n_rows = 1, .k = &k, .v = &v, .rows = &rows};
    fv_attn_packed_args a = {.q = bench_activations(1, W),
                             .o = bench_activations(1, W),
                             .n_head = H,
                             .n_kv = H,
                             .d_head = D,
                             .n_seq = 1,
                             .scale = 0.1f,
                             .seqs = &seq};
    double sum = 0;
    for (int i = 0; i < calls; i++) {
        k = next_part(b, &c, FV_PACKED_K);
        v = next_part(b, &c, FV_PACKED_V);
        double t0 = bench_now_s();
        bench_must(b->be.ops->attn_packed(&b->be, &a));
        sum += bench_now_s() - t0;
    }
    free(a.q.data);
    free(a.o.data);
    free_rows(&rows);
    return sum / calls;
}

/* ---- attend ---------------------------------------------------------------------------- */

/* A pair: raw rows, then packed ones, then raw rows again; the mean of the raw ones counts. */
static void measure_pair(bench *b, const char *what, packed_case c, double share) {
    int calls = c.n < 1000 ? 24 : 6;
    char name[64];
    double before = raw_s(b, c.n, calls), packed = packed_s(b, c, calls * 4);
    double raw = 0.5 * (before + raw_s(b, c.n, calls)) * share;
    snprintf(name, sizeof name, "%s, %d rows", what, c.n);
    bench_note(b, name, "us", packed, 1e-6, BENCH_NO_LIMIT);
    bench_note(b, "    raw / packed", "x", raw / packed, 1, BENCH_NO_LIMIT);
}

static void measure_attend(bench *b) {
    static const int lengths[] = {576, 4096};
    for (int i = 0; i < 2; i++) {
        int n = lengths[i];
        char name[64];
        bench_measure_read(b);
        double s = raw_s(b, n, n < 1000 ? 24 : 6);
        snprintf(name, sizeof name, "raw, %d rows", n);
        bench_note(b, name, "GB/s", 2.0 * n * W * 2 / s, 1e9, BENCH_READ);
        measure_pair(b, "V side", (packed_case){n, 0, 1, R, 16}, 0.5);
        measure_pair(b, "V side, 3/4 of the rows at rank 16", (packed_case){n, 0, 1, R2, 16}, 0.5);
        measure_pair(b, "whole, K1", (packed_case){n, 0, R, R, 16}, 1);
        measure_pair(b, "whole, anchors 64 apart", (packed_case){n, 64, R, R, 16}, 1);
        measure_pair(b, "whole, anchors 32 apart", (packed_case){n, 32, R, R, 16}, 1);
        measure_pair(b, "whole, anchors 16 apart", (packed_case){n, 16, R, R, 16}, 1);
        measure_pair(b, "whole, anchors 8 apart", (packed_case){n, 8, R, R, 16}, 1);
        measure_pair(b, "whole, anchors 32 apart, 8 bits", (packed_case){n, 32, R, R, 8}, 1);
        measure_pair(b, "whole, anchors 32 apart, 4 bits", (packed_case){n, 32, R, R, 4}, 1);
    }
}

/* ---- rebuild --------------------------------------------------------------------------- */

/* What rebuilding needs beside the factors. */
typedef struct rebuild {
    fv_tensor u, k, v, cos, sin, q, o;
    fv_kv_run runs[H];
    int32_t *slot;
    uint8_t *seg;
} rebuild;

static rebuild rebuild_open(int n) {
    int n_block = (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    rebuild r = {.u = bench_activations(n, R),
                 .k = bench_activations(n, W),
                 .v = bench_activations(n, W),
                 .cos = bench_activations(n, D / 2),
                 .sin = bench_activations(n, D / 2),
                 .q = bench_activations(1, W),
                 .o = bench_activations(1, W),
                 .slot = room((size_t)n * sizeof *r.slot),
                 .seg = room((size_t)n)};
    for (int j = 0; j < n; j++) r.slot[j] = j;
    for (int g = 0; g < H; g++) {
        r.runs[g].block = room((size_t)n_block * sizeof(fv_kv_block));
        for (int x = 0; x < n_block; x++) {
            char *rows = room((size_t)4 * FV_KV_BLOCK * D);
            r.runs[g].block[x] = (fv_kv_block){rows, rows + (ptrdiff_t)2 * FV_KV_BLOCK * D};
        }
    }
    return r;
}

static void rebuild_close(rebuild *r, int n) {
    fv_tensor *all[] = {&r->u, &r->k, &r->v, &r->cos, &r->sin, &r->q, &r->o};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    for (int g = 0; g < H; g++) {
        for (int x = 0; x < (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK; x++) free(r->runs[g].block[x].k);
        free(r->runs[g].block);
    }
    free(r->slot);
    free(r->seg);
}

/* One matrix from its factors, the basis cold; seconds. */
static double rebuild_product(bench *b, const rebuild *r, fv_tensor y) {
    fv_combine_args a = {.x = r->u, .w = bench_weight(b, FV_BF16, R, W), .y = y};
    double t0 = bench_now_s();
    bench_must(b->be.ops->combine(&b->be, &a));
    return bench_now_s() - t0;
}

static double rebuild_rest(bench *b, rebuild *r, int n) {
    fv_rope_args rope = {.x = r->k, .cos = r->cos, .sin = r->sin, .n_head = H};
    fv_kv_write_seq to = {.n_rows = n, .n_seg = 1, .runs = r->runs, .seg = r->seg, .slot = r->slot};
    fv_kv_write_args write = {
        .k = r->k, .v = r->v, .kv_dtype = FV_BF16, .n_kv = H, .d_head = D, .n_seq = 1, .seqs = &to};
    fv_attn_seq seq = {.n_rows = 1, .n_seg = 1, .runs = r->runs};
    fv_attn_args a = {.q = r->q,
                      .o = r->o,
                      .kv_dtype = FV_BF16,
                      .n_head = H,
                      .n_kv = H,
                      .d_head = D,
                      .n_seq = 1,
                      .scale = 0.1f,
                      .seqs = &seq};
    double t0 = bench_now_s();
    bench_must(b->be.ops->rope(&b->be, &rope));
    for (int g = 0; g < H; g++) r->runs[g].len = 0;
    bench_must(b->be.ops->kv_write(&b->be, &write));
    for (int g = 0; g < H; g++) r->runs[g].len = n;
    bench_must(b->be.ops->attention(&b->be, &a));
    return bench_now_s() - t0;
}

static void measure_rebuild(bench *b) {
    static const int lengths[] = {576, 4096};
    char name[64];
    for (int i = 0; i < 2; i++) {
        int n = lengths[i];
        rebuild r = rebuild_open(n);
        bench_measure_fma(b);
        double product = rebuild_product(b, &r, r.k) + rebuild_product(b, &r, r.v);
        double whole = product + rebuild_rest(b, &r, n);
        double packed = packed_s(b, (packed_case){n, 32, R, R, 16}, 12);
        snprintf(name, sizeof name, "rebuild, attend, %d rows", n);
        bench_note(b, name, "us", whole, 1e-6, BENCH_NO_LIMIT);
        bench_note(b, "    its product", "GFLOP/s", 4.0 * n * R * W / product, 1e9, BENCH_FMA);
        bench_note(b, "    rebuild / packed, anchors 32 apart", "x", whole / packed, 1,
                   BENCH_NO_LIMIT);
        rebuild_close(&r, n);
    }
}

/* ---- made-up keys ---------------------------------------------------------------------- */

static uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Keys [n, W] before rotation, as the head of this file words it. */
static fv_tensor make_keys(bench *b, int n) {
    enum { DIRECTIONS = 256 };
    uint64_t state = 11;
    double left = 0;
    fv_tensor a = bench_activations(n, DIRECTIONS), c = bench_activations(DIRECTIONS, W);
    fv_tensor keys = bench_activations(n, W);
    for (int i = 0; i < DIRECTIONS; i++) left += pow(i + 1, -1.6);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < DIRECTIONS; i++)
            ((float *)a.data)[j * DIRECTIONS + i] =
                (float)(pow(i + 1, -0.8) * (random_bits(&state) >> 63 ? 1 : -1));
    for (int i = 0; i < DIRECTIONS * W; i++)
        ((float *)c.data)[i] = random_bits(&state) >> 63 ? 1.0f : -1.0f;
    bench_must(b->be.ops->combine(&b->be, &(fv_combine_args){a, c, keys}));
    float mean = (float)sqrt(left * 0.6 / 0.4);
    for (int d = 0; d < W; d++) {
        float m = random_bits(&state) >> 63 ? mean : -mean;
        for (int j = 0; j < n; j++) ((float *)keys.data)[(size_t)j * W + (size_t)d] += m;
    }
    free(a.data);
    free(c.data);
    return keys;
}

/* Keys rotated by their distance to their anchors, `step` rows apart (0: to position 0). */
static fv_tensor rotated(bench *b, fv_tensor keys, int step) {
    int n = keys.rows;
    fv_tensor y = bench_activations(n, W), c = bench_activations(n, D / 2);
    fv_tensor s = bench_activations(n, D / 2);
    memcpy(y.data, keys.data, (size_t)n * W * sizeof(float));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < D / 2; i++) {
            double x = (step ? j % step : POSITION0 + j) * pow(1e4, -2.0 * i / D);
            ((float *)c.data)[j * D / 2 + i] = (float)cos(x);
            ((float *)s.data)[j * D / 2 + i] = (float)sin(x);
        }
    bench_must(b->be.ops->rope(&b->be, &(fv_rope_args){y, c, s, H}));
    free(c.data);
    free(s.data);
    return y;
}

/* ---- compact --------------------------------------------------------------------------- */

/* Factors of one matrix and their bytes; seconds. */
static double compact_s(bench *b, fv_arena *arena, const fv_tensor *m, fv_packed_kind kind,
                        void *to, int *steps) {
    fv_factor_goal goal = {.rank = R, .seed = 1};
    fv_packed_shape s = {m->rows, R, R, H, D, FV_BF16, kind, 16};
    fv_factor f;
    double t0 = bench_now_s();
    bench_must(fv_factorise(&b->be, arena, m, &goal, &f));
    s.rank = s.rank2 = f.rank;
    fv_packed_write(&s, f.u, f.basis, to);
    fv_arena_reset(arena);
    *steps = f.steps;
    return bench_now_s() - t0;
}

/* The linear layers and the attention of one layer, M rows, bf16 weights; seconds. */
static double prefill_s(bench *b, int M) {
    static const int shapes[][2] = {{W, W},     {W, W},     {W, W},    {W, W},
                                    {11008, W}, {11008, W}, {W, 11008}};
    fv_tensor x = bench_activations(M, 11008), y = bench_activations(M, 11008);
    rebuild r = rebuild_open(M);
    int32_t *hidden = room((size_t)M * sizeof *hidden);
    for (int i = 0; i < M; i++) hidden[i] = M - 1 - i;
    for (int g = 0; g < H; g++) r.runs[g].len = M;
    fv_attn_seq seq = {.n_rows = M, .n_seg = 1, .runs = r.runs, .hidden = hidden};
    fv_attn_args attn = {.q = r.k,
                         .o = r.v,
                         .kv_dtype = FV_BF16,
                         .n_head = H,
                         .n_kv = H,
                         .d_head = D,
                         .n_seq = 1,
                         .scale = 0.1f,
                         .seqs = &seq};
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
    rebuild_close(&r, M);
    free(hidden);
    free(x.data);
    free(y.data);
    return s;
}

static void measure_compact(bench *b) {
    enum { N = 576, ROWS = 640 };
    fv_tensor keys = make_keys(b, N), local = rotated(b, keys, 32);
    fv_arena arena = {0};
    void *to = room(fv_packed_bytes(&(fv_packed_shape){N, R, R, H, D, FV_BF16, FV_PACKED_K, 16}));
    int steps_k, steps_v;
    compact_s(b, &arena, &local, FV_PACKED_K, to, &steps_k); /* the arena has its memory now */
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

/* ---- modes ----------------------------------------------------------------------------- */

static void print_modes(bench *b) {
    static const int steps[] = {1, 8, 16, 32, 64, 128, 0}, ranks[] = {32, 64, 128};
    enum { N = 576 };
    fv_tensor keys = make_keys(b, N);
    fv_arena arena = {0};
    printf("\nenergy kept of %d made-up keys, bytes of the keys' part, MFLOP and us of one row's K "
           "side\n%-22s %6s %8s %9s %8s %8s\n",
           N, "anchors", "rank", "energy", "bytes", "MFLOP", "us");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        fv_tensor m = rotated(b, keys, steps[i]);
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
            fv_factor f;
            fv_factor_goal goal = {.rank = ranks[r], .seed = 1};
            bench_must(fv_factorise(&b->be, &arena, &m, &goal, &f));
            fv_packed_shape s = {N, ranks[r], ranks[r], H, D, FV_BF16, FV_PACKED_K, 16};
            int n_anchor = steps[i] ? (N + steps[i] - 1) / steps[i] : 1;
            double us[5];
            for (int k = 0; k < 5; k++)
                us[k] = 1e6 * (packed_s(b, (packed_case){N, steps[i], ranks[r], R, 16}, 4) -
                               packed_s(b, (packed_case){N, 0, 1, R, 16}, 4));
            char name[32];
            snprintf(name, sizeof name, steps[i] ? "%d apart" : "one (K1)", steps[i]);
            printf("%-22s %6d %8.3f %9zu %8.1f %8.0f\n", steps[i] == 1 ? "every row (K0)" : name,
                   ranks[r], 1 - f.error * f.error, fv_packed_bytes(&s),
                   (double)fv_packed_flops_k(&s, H, n_anchor) * 1e-6, bench_median(us, 5));
            fv_arena_reset(&arena);
        }
        free(m.data);
    }
    fv_arena_fini(&arena);
    free(keys.data);
}

int main(int argc, char **argv) {
    static bench b;
    if (!bench_open(&b, argc, argv,
                    "bench_packed [options]     only: attend, rebuild, compact, modes",
                    "Packed visual rows against raw ones."))
        return 0;
    for (b.round = 0; b.round < b.n_round; b.round++) {
        b.next_row = 0;
        if (bench_wants(&b, "attend")) measure_attend(&b);
        if (bench_wants(&b, "rebuild")) measure_rebuild(&b);
        if (bench_wants(&b, "compact")) measure_compact(&b);
    }
    bench_report(&b);
    if (bench_wants(&b, "modes")) print_modes(&b);
    bench_close(&b);
    return 0;
}
