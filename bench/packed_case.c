/* See packed_case.h. */
#include "bench/packed_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed/forms.h"
#include "policy/policy.h"

enum { H = CASE_HEADS, D = CASE_D, W = CASE_WIDTH, R = CASE_RANK, POSITION0 = 5 };

void *case_alloc(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) exit(1);
    return p;
}

int case_default_step(void) {
    fv_policy policy;
    fv_params params;
    bench_must(fv_policy_parse("pack=svd", &policy));
    fv_choice_params(&policy.stage[FV_STAGE_PACK], 32, &params);
    return params.pack_svd.block;
}

fv_attn_args case_attn(fv_tensor q, fv_tensor o, const fv_attn_seq *seq) {
    return (fv_attn_args){.q = q,
                          .o = o,
                          .kv_dtype = FV_BF16,
                          .n_head = H,
                          .n_kv = H,
                          .d_head = D,
                          .n_seq = 1,
                          .scale = 0.1f,
                          .seqs = seq};
}

double case_raw_s(bench *b, int n, int calls) {
    int n_block = (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    fv_kv_block *blocks = case_alloc((size_t)(H * n_block) * sizeof *blocks);
    fv_block_table runs[H];
    fv_attn_seq seq = {.n_rows = 1, .n_seg = 1, .tables = runs};
    fv_attn_args a = case_attn(bench_activations(1, W), bench_activations(1, W), &seq);
    for (int g = 0; g < H; g++) runs[g] = (fv_block_table){blocks + (ptrdiff_t)g * n_block, n};
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

/* Makes anchors that are `step` rows apart, with their angles; 0: keys are already rotated. */
static fv_packed_rows make_rows(int n, int step) {
    int n_anchor = step ? (n + step - 1) / step : 1, half = D / 2;
    int32_t *first = case_alloc((size_t)(n_anchor + 1) * sizeof *first);
    float *angles = case_alloc((size_t)(2 * n_anchor * half) * sizeof *angles), *sines;
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

/* Returns the mean seconds of a call of `op` on these shapes; every call reads other memory. Frees
 * the rows' arrays. */
static double packed_s(bench *b, fv_status (*op)(fv_backend *, const fv_attn_packed_args *),
                       const fv_packed_shape shape[2], fv_packed_rows rows, float scale,
                       int calls) {
    fv_packed_part part[2] = {{.shape = shape[0]}, {.shape = shape[1]}};
    fv_packed_seq seq = {.n_rows = 1, .k = &part[0], .v = &part[1], .rows = &rows};
    fv_attn_packed_args a = {.q = bench_activations(1, W),
                             .o = bench_activations(1, W),
                             .n_head = H,
                             .n_kv = H,
                             .d_head = D,
                             .n_seq = 1,
                             .scale = scale,
                             .seqs = &seq};
    double sum = 0;
    for (int i = 0; i < calls; i++) {
        for (int k = 0; k < 2; k++) part[k].data = bench_memory(b, fv_packed_bytes(&shape[k]));
        double t0 = bench_now_s();
        bench_must(op(&b->be, &a));
        sum += bench_now_s() - t0;
    }
    free(a.q.data);
    free(a.o.data);
    free_rows(&rows);
    return sum / calls;
}

/* The buffer's bytes are large numbers when read as codes: a smaller scale keeps the probabilities
 * of all rows normal numbers, as in a real network. */
double case_packed_s(bench *b, packed_case c, int calls) {
    fv_packed_rows rows = make_rows(c.n, c.step);
    if (c.rank2_v < R) {
        /* the first quarter has full rank: rows are ordered by rank */
        uint8_t *group = case_alloc((size_t)c.n);
        memset(group + c.n / 4, 1, (size_t)(c.n - c.n / 4));
        rows.group = group;
    }
    fv_packed_shape k = {.n = c.n,
                         .n_kv = H,
                         .d_head = D,
                         .dtype = FV_BF16,
                         .kind = FV_PACKED_K,
                         .lowrank = {c.rank_k, c.rank_k, (uint8_t)c.bits}};
    fv_packed_shape v = k;
    v.kind = FV_PACKED_V;
    v.lowrank.rank = R;
    v.lowrank.rank2 = c.rank2_v;
    return packed_s(b, b->be.ops->attn_lowrank, (fv_packed_shape[]){k, v}, rows,
                    c.bits == 16 ? 0.1f : 1e-6f, calls);
}

double case_codes_s(bench *b, int n, int bits, bool turned, int calls) {
    fv_packed_rows rows = make_rows(n, 0);
    size_t angles = fv_packed_tiles((size_t)n) * FV_PACKED_TILE * (D / 2);
    if (turned) {
        float *x = case_alloc(2 * angles * sizeof *x);
        rows.cos = x;
        rows.sin = x + angles;
    }
    fv_packed_shape k = {.n = n,
                         .n_kv = H,
                         .d_head = D,
                         .dtype = FV_BF16,
                         .kind = FV_PACKED_K,
                         .form = FV_PACKED_QUANTIZED,
                         .codes.bits = (uint8_t)bits};
    fv_packed_shape v = k;
    v.kind = FV_PACKED_V;
    return packed_s(b, b->be.ops->attn_quantized, (fv_packed_shape[]){k, v}, rows, 1e-6f, calls);
}

/* ---- made-up keys ---------------------------------------------------------------------- */

static uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

fv_tensor case_keys(bench *b, int n) {
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
    bench_must(b->be.ops->matmul_nn(&b->be, &(fv_matmul_nn_args){a, c, keys}));
    float mean = (float)sqrt(left * 0.6 / 0.4);
    for (int d = 0; d < W; d++) {
        float m = random_bits(&state) >> 63 ? mean : -mean;
        for (int j = 0; j < n; j++) ((float *)keys.data)[(size_t)j * W + (size_t)d] += m;
    }
    free(a.data);
    free(c.data);
    return keys;
}

fv_tensor case_rotated(bench *b, fv_tensor keys, int step) {
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
