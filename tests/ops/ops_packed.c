/* Compressed blocks: attn_lowrank, merge and importance.
 *
 * Every path gives the plain path's bits; the plain path equals rebuilding keys and values from the
 * same factors and attending to them in double, for each order of factoring and rotation, for mixed
 * ranks, for pruned tokens, and for 16, 8 and 4 bits. Data that must not be read is NaN: tokens
 * that are not valid, and the second tier of tokens at the lower rank. */
#include "tests/ops/ops_test.h"
#include "tests/ops/packed_case.h"

enum { MAX_VARIANT = 12 };

static variant variants[MAX_VARIANT];
static int n_variant;

/* ---- the plain path against double --------------------------------------------------- */

/* Rebuilds token j of a factored matrix, all heads, at the rank at which it is read. */
static void rebuild(const block *b, const fv_packed_part *p, const float *u, const float *basis,
                    int32_t j, double *out) {
    size_t W = fv_packed_width(&p->shape);
    int32_t all = fv_packed_is_rows(&p->shape) ? (int32_t)W : p->shape.lowrank.rank, rank = all;
    if (b->rows.group && b->group[j] && p->shape.lowrank.rank > 0) rank = p->shape.lowrank.rank2;
    for (size_t d = 0; d < W; d++) out[d] = 0;
    for (int32_t r = 0; r < rank; r++)
        for (size_t d = 0; d < W; d++)
            out[d] += (double)u[j * all + r] * (double)basis[(size_t)r * W + d];
}

/* The key of one head, rotated by its block's anchor: what an uncompressed cache would hold. */
static double rebuilt_score(const call *c, const block *b, int32_t j, int row, int h,
                            const double *key) {
    int D = c->args.d_head, half = D / 2, g = h / (c->args.n_head / c->args.n_kv), a = 0;
    double sum = 0;
    while (j >= b->first[a + 1]) a++;
    for (int d = 0; d < D; d++) {
        double k = key[g * D + d];
        if (b->rows.cos) {
            int i = d % half;
            double cs = (double)b->cos[a * half + i], sn = (double)b->sin[a * half + i];
            double other = key[g * D + (d < half ? d + half : d - half)];
            k = d < half ? k * cs - other * sn : k * cs + other * sn;
        }
        sum += get(&c->q, row, h * D + d) * k;
    }
    return sum * (double)c->args.scale;
}

/* Checks a query row and head of sequence i by rebuilding keys and values. */
static void check_head(const call *c, int i, int row, int h, double *const *keys,
                       double *const *values) {
    const fv_packed_seq *seq = &c->seqs[i];
    const block *b = c->blocks[i];
    int D = c->args.d_head, g = h / (c->args.n_head / c->args.n_kv), n = b->rows.n;
    double *s = room((size_t)n * sizeof *s), top = (double)-INFINITY, l = 0;
    for (int j = 0; j < n; j++) {
        s[j] = is_alive(b, j) ? rebuilt_score(c, b, j, seq->row0 + row, h, keys[j])
                              : (double)-INFINITY;
        top = fmax(top, s[j]);
    }
    for (int j = 0; j < n; j++) l += top > (double)-INFINITY ? exp(s[j] - top) : 0;
    for (int d = 0; d < D; d++) {
        double o = 0, got = get(&c->args.o, seq->row0 + row, h * D + d);
        for (int j = 0; l > 0 && j < n; j++)
            if (s[j] > (double)-INFINITY) o += exp(s[j] - top) / l * values[j][g * D + d];
        check(fabs(o - got) < 2e-5 * (1 + fabs(o)), "o: %g instead of %g", got, o);
    }
    double lse = l > 0 ? top + log(l) : (double)-INFINITY,
           got = get(&c->args.lse, seq->row0 + row, h);
    check(lse == got || fabs(lse - got) < 2e-5 * (1 + fabs(lse)), "lse: %g not %g", got, lse);
    int captured = row - (seq->n_rows - seq->score_rows);
    const float *line =
        captured < 0 ? NULL : seq->score + (h * seq->score_rows + captured) * seq->score_ld;
    for (int j = 0; line && j < seq->score_ld; j++) {
        double expected = j < n ? s[j] : (double)-INFINITY, is = (double)line[j];
        check(expected == is || fabs(expected - is) < 2e-5 * (1 + fabs(expected)),
              "score: %g not %g", is, expected);
    }
    free(s);
}

static void check_call(const call *c) {
    for (int i = 0; i < c->args.n_seq; i++) {
        const block *b = c->blocks[i];
        int n = b->rows.n;
        size_t W = fv_packed_width(&b->k.shape);
        double **keys = room((size_t)n * sizeof *keys), **values = room((size_t)n * sizeof *values);
        for (int j = 0; j < n; j++) {
            rebuild(b, &b->k, b->uk, b->bk, j, keys[j] = room(W * sizeof(double)));
            rebuild(b, &b->v, b->uv, b->bv, j, values[j] = room(W * sizeof(double)));
        }
        for (int row = 0; row < c->seqs[i].n_rows; row++)
            for (int h = 0; h < c->args.n_head; h++) check_head(c, i, row, h, keys, values);
        for (int j = 0; j < n; j++) {
            free(keys[j]);
            free(values[j]);
        }
        free(keys);
        free(values);
    }
}

static void test_reference(void) {
    group("attn_lowrank: what rebuilding and attending gives");
    for (int i = 0; i < cases(60); i++) {
        int D = PICK(1, 4, 8, 16, 20, 64);
        call c =
            make_call(random_int(1, MAX_SEQ), PICK(1, 2, 3), PICK(1, 2, 5), D, PICK(1, 1, 4), NULL);
        run_call(&c, &variants[0].be);
        check_call(&c);
        free_call(&c);
    }
}

/* ---- neighbours ------------------------------------------------------------------------- */

static void test_alone(void) {
    group("attn_lowrank: a row alone has the bits that it has among others");
    for (int i = 0; i < cases(30); i++) {
        call c = make_call(2, 2, PICK(1, 4), 32, 7, NULL);
        for (int v = 0; v < n_variant; v++) {
            fv_backend *be = &variants[v].be;
            be->compute = i % 2 ? FV_COMPUTE_BF16 : FV_COMPUTE_F32;
            run_call(&c, be);
            for (int s = 0; s < 2; s++)
                for (int row = 0; row < c.seqs[s].n_rows; row++) {
                    fv_packed_seq one = c.seqs[s];
                    one.row0 += row;
                    one.n_rows = 1;
                    one.score = NULL;
                    one.score_rows = 0;
                    fv_attn_packed_args a = c.args;
                    a.o = tensor_new(FV_F32, a.o.rows, a.o.cols, 0);
                    a.lse = (fv_tensor){0};
                    a.n_seq = 1;
                    a.seqs = &one;
                    must(be->ops->attn_lowrank(be, &a));
                    long at = first_difference((float *)a.o.data + one.row0 * a.o.ld,
                                               (float *)c.args.o.data + one.row0 * c.args.o.ld,
                                               (size_t)a.o.cols);
                    check(at < 0, "row %d of sequence %d on %s: column %ld", row, s,
                          variants[v].name, at);
                    free(a.o.data);
                }
            be->compute = FV_COMPUTE_F32;
        }
        free_call(&c);
    }
}

/* ---- precision --------------------------------------------------------------------------- */

static double farthest(const fv_tensor *a, const fv_tensor *b) {
    double worst = 0;
    for (int r = 0; r < a->rows; r++)
        for (int c = 0; c < a->cols; c++) worst = fmax(worst, fabs(get(a, r, c) - get(b, r, c)));
    return worst;
}

/* In bf16, results differ from f32 only by rounding. */
static void test_bf16(void) {
    group("attn_lowrank in bf16: close to that in f32");
    int n_other = 0;
    for (int i = 0; i < cases(30); i++) {
        call c = make_call(1, 2, PICK(1, 4), PICK(20, 64), 3, NULL);
        fv_backend *be = &variants[0].be;
        float *rounded = room(c.n_out * 4);
        be->compute = FV_COMPUTE_BF16;
        run_call(&c, be);
        be->compute = FV_COMPUTE_F32;
        memcpy(rounded, c.out, c.n_out * 4);
        run_call(&c, be);
        fv_tensor o = c.args.o;
        o.data = rounded + ((float *)c.args.o.data - c.out);
        check(farthest(&o, &c.args.o) < 0.1, "off by %g", farthest(&o, &c.args.o));
        n_other += memcmp(rounded, c.out, c.n_out * 4) != 0;
        free(rounded);
        free_call(&c);
    }
    check(3 * n_other > cases(30), "%d of %d differ", n_other, cases(30));
}

/* ---- rotation, and all directions --------------------------------------------------------- */

/* Keys k [n, W] rotated by distance p_j - a_j, head by head. */
static void rotate_keys(const float *k, const int32_t *pos, const int32_t *anchor, int n, int n_kv,
                        int D, float *out) {
    int half = D / 2;
    for (int j = 0; j < n; j++)
        for (int g = 0; g < n_kv; g++)
            for (int i = 0; i < half; i++) {
                double angle = (pos[j] - anchor[j]) * pow(1e4, -2.0 * i / D);
                const float *x = k + (j * n_kv + g) * D;
                float *y = out + (j * n_kv + g) * D;
                y[i] = (float)((double)x[i] * cos(angle) - (double)x[i + half] * sin(angle));
                y[i + half] = (float)((double)x[i + half] * cos(angle) + (double)x[i] * sin(angle));
            }
}

static float *identity(int n) {
    float *x = room((size_t)(n * n) * 4);
    for (int i = 0; i < n * n; i++) x[i] = i % (n + 1) == 0;
    return x;
}

/* Ordinary attention to one segment per head of raw tokens k, v [n, W] F32. */
static void raw_attention(fv_backend *be, const call *c, const float *k, const float *v, int n,
                          fv_tensor o, fv_tensor lse) {
    int n_kv = c->args.n_kv, D = c->args.d_head, n_block = (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    fv_block_table *runs = room((size_t)n_kv * sizeof *runs);
    for (int g = 0; g < n_kv; g++) {
        runs[g] = (fv_block_table){room((size_t)n_block * sizeof(fv_kv_block)), n};
        for (int b = 0; b < n_block; b++) {
            float *rows = room((size_t)(2 * FV_KV_BLOCK * D) * 4);
            runs[g].block[b] = (fv_kv_block){rows, rows + FV_KV_BLOCK * D};
            for (int j = b * FV_KV_BLOCK; j < n && j < (b + 1) * FV_KV_BLOCK; j++) {
                memcpy(rows + j % FV_KV_BLOCK * D, k + (j * n_kv + g) * D, (size_t)D * 4);
                memcpy(rows + (FV_KV_BLOCK + j % FV_KV_BLOCK) * D, v + (j * n_kv + g) * D,
                       (size_t)D * 4);
            }
        }
    }
    fv_attn_seq seq = {.n_rows = c->q.rows, .n_seg = 1, .tables = runs};
    fv_attn_args a = {.q = c->q,
                      .o = o,
                      .lse = lse,
                      .kv_dtype = FV_F32,
                      .n_head = c->args.n_head,
                      .n_kv = n_kv,
                      .d_head = D,
                      .n_seq = 1,
                      .scale = c->args.scale,
                      .seqs = &seq};
    must(be->ops->attention(be, &a));
    for (int g = 0; g < n_kv; g++) {
        for (int b = 0; b < n_block; b++) free(runs[g].block[b].k);
        free(runs[g].block);
    }
    free(runs);
}

/* With U = M and B = I a part holds its matrix as it is. Whatever the anchors, packed attention
 * must then be attention to the rotated keys; and a part of the rows packed, the others raw,
 * merged, must be one softmax over all. */
static void test_dense(void) {
    static const int anchors[] = {0, 1, 7, 16, 64};
    enum { N = 90, HKV = 2, DIM = 16, W = HKV * DIM, RAW = 37 };
    for (int way = 0; way < 5; way++) {
        group(way == 0   ? "merge: packed and raw rows are one softmax, keys rotated before"
              : way == 1 ? "merge: the same, every row an anchor (keys never rotated)"
                         : "merge: the same, anchor blocks between them");
        for (int v = 0; v < n_variant; v++) {
            fv_backend *be = &variants[v].be;
            block_shape s = {N, anchors[way], HKV, DIM, W, W, W, W, 16, FV_F32, false, false};
            call c = make_call(1, HKV, 3, DIM, 4, &s);
            block *b = c.blocks[0];
            int n_all = N + RAW, M = c.q.rows;
            c.seqs[0].row0 = 0;
            c.seqs[0].n_rows = M;
            c.seqs[0].score = NULL;
            float *k = random_numbers((size_t)n_all * W, 1),
                  *val = random_numbers((size_t)n_all * W, 1);
            float *local = room((size_t)N * W * 4), *rotated = room((size_t)n_all * W * 4);
            float *eye = identity(W);
            int32_t pos[N + RAW], zero[N + RAW] = {0}, own[N];
            for (int j = 0; j < n_all; j++) pos[j] = j < N ? b->pos[j] : 1000 + j;
            for (int j = 0, a = 0; j < N; j++) {
                while (j >= b->first[a + 1]) a++;
                own[j] = anchors[way] ? b->pos[b->first[a]] : 0;
            }
            rotate_keys(k, pos, own, N, HKV, DIM, local);
            rotate_keys(k, pos, zero, n_all, HKV, DIM, rotated);
            fv_packed_write(&b->k.shape, local, eye, b->k.data);
            fv_packed_write(&b->v.shape, val, eye, b->v.data);
            fv_tensor o = tensor_new(FV_F32, M, c.q.cols, 0), lse = tensor_new(FV_F32, M, 6, 0);
            run_call(&c, be);
            raw_attention(be, &c, rotated, val, N, o, lse);
            check(farthest(&o, &c.args.o) < 3e-5, "%s: packed is not dense: %g", variants[v].name,
                  farthest(&o, &c.args.o));
            check(farthest(&lse, &c.args.lse) < 3e-5, "%s: nor is its lse", variants[v].name);
            fv_tensor o2 = tensor_new(FV_F32, M, c.q.cols, 0), lse2 = tensor_new(FV_F32, M, 6, 0);
            raw_attention(be, &c, rotated + (ptrdiff_t)N * W, val + (ptrdiff_t)N * W, RAW, o2,
                          lse2);
            must(be->ops->merge(be, &(fv_merge_args){o2, lse2, c.args.o, c.args.lse, 6}));
            raw_attention(be, &c, rotated, val, n_all, o, lse);
            check(farthest(&o, &o2) < 3e-5, "%s: merged is not whole: %g", variants[v].name,
                  farthest(&o, &o2));
            check(farthest(&lse, &lse2) < 3e-5, "%s: nor is its lse", variants[v].name);
            void *all[] = {k, val, local, rotated, eye, o.data, lse.data, o2.data, lse2.data};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
            free_call(&c);
        }
    }
}

/* ---- merge, importance ------------------------------------------------------------------ */

static void test_merge(void) {
    group("merge: every path gives the same bits; nothing on one side leaves the other's");
    enum { M = 5, H = 3, D = 20 };
    float *in[4] = {random_numbers(M * H * D, 1), random_numbers(M * H, 3),
                    random_numbers(M * H * D, 1), random_numbers(M * H, 3)};
    in[1][2] = in[3][4] = in[1][7] = in[3][7] = -INFINITY;
    for (int d = 0; d < D; d++) in[0][7 * D + d] = in[2][7 * D + d] = 0;
    float expected[M * H * D], first[M * H * D], lse[M * H];
    for (int v = 0; v < n_variant; v++) {
        memcpy(first, in[0], sizeof first);
        memcpy(lse, in[1], sizeof lse);
        fv_merge_args a = {fv_tensor_of(first, FV_F32, M, H * D), fv_tensor_of(lse, FV_F32, M, H),
                           fv_tensor_of(in[2], FV_F32, M, H * D), fv_tensor_of(in[3], FV_F32, M, H),
                           H};
        must(variants[v].be.ops->merge(&variants[v].be, &a));
        if (v == 0) memcpy(expected, first, sizeof expected);
        check(first_difference(first, expected, M * H * D) < 0, "o on %s", variants[v].name);
        check(memcmp(first + 2 * D, in[2] + 2 * D, D * 4) == 0 && lse[2] == in[3][2],
              "first empty");
        check(memcmp(first + 4 * D, in[0] + 4 * D, D * 4) == 0 && lse[4] == in[1][4],
              "second empty");
        check(first[7 * D] == 0 && lse[7] == -INFINITY, "both empty");
        double w = exp((double)in[1][0]), w2 = exp((double)in[3][0]);
        double o = (w * (double)in[0][0] + w2 * (double)in[2][0]) / (w + w2);
        check(fabs(o - (double)first[0]) < 1e-6 && fabs(log(w + w2) - (double)lse[0]) < 1e-6,
              "the mean by weight");
    }
    for (int i = 0; i < 4; i++) free(in[i]);
}

static void test_importance(void) {
    enum { N = 300, H = 4, ROWS = 3, LD = 310 };
    group("importance: the mean of what heads and rows pay, followed");
    float *score = random_numbers((size_t)H * ROWS * LD, 1), lse[ROWS * H], first[N], now[N];
    for (int i = 0; i < ROWS * H; i++) lse[i] = 6 + 0.1f * (float)i;
    for (int i = 0; i < H * ROWS; i++) score[i * LD + 5] = -INFINITY; /* not alive */
    lse[0] = -INFINITY;                                               /* attends to nothing */
    for (int v = 0; v < n_variant; v++) {
        fv_importance_args a = {.score = score,
                                .n_head = H,
                                .n_rows = ROWS,
                                .score_ld = LD,
                                .lse = fv_tensor_of(lse, FV_F32, ROWS, H),
                                .importance = fv_tensor_of(now, FV_F32, 1, N)};
        memset(now, 0xff, sizeof now); /* NaN: must not be read */
        must(variants[v].be.ops->importance(&variants[v].be, &a));
        if (v == 0) memcpy(first, now, sizeof first);
        check(first_difference(now, first, N) < 0, "bits on %s", variants[v].name);
        for (int j = 0; j < N; j++) {
            double mean = 0;
            for (int h = 0; h < H; h++)
                for (int r = 0; r < ROWS; r++)
                    if (lse[r * H + h] > -INFINITY)
                        mean +=
                            exp((double)score[(h * ROWS + r) * LD + j] - (double)lse[r * H + h]);
            mean /= H * ROWS;
            check(fabs(mean - (double)now[j]) < 1e-6 * (mean + 1e-3), "row %d: %g not %g", j,
                  (double)now[j], mean);
        }
        check(now[5] == 0, "a row that is not alive means nothing");
        a.keep = 0.25f;
        must(variants[v].be.ops->importance(&variants[v].be, &a));
        for (int j = 0; j < N; j++)
            check(fabsf(now[j] - first[j]) <= 1e-6f * first[j], "the same again changes nothing");
        for (int j = 0; j < N; j++) now[j] = 1;
        must(variants[v].be.ops->importance(&variants[v].be, &a));
        for (int j = 0; j < N; j++)
            check(fabsf(now[j] - (0.25f + 0.75f * first[j])) < 1e-6f, "a quarter is kept");
    }
    free(score);
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2, 3}, 3);
    test_reference();
    test_alone();
    test_bf16();
    test_dense();
    test_merge();
    test_importance();
    variants_close(variants, n_variant);
    return summary();
}
