/* A row's result does not depend on what is computed with it: not on the other rows of a call, not
 * on how a prompt is cut into calls, not on the number of threads.
 *
 * Bits are compared on every path. This is what lets a server batch requests and chunk prompts
 * freely, and repeat an answer exactly. */
#include "tests/ops/attention_case.h"
#include "tests/ops/ops_test.h"

enum { MAX_VARIANT = 12 };

static variant variants[MAX_VARIANT];
static int n_variant;

/* ---- linear ---------------------------------------------------------------------------- */

/* M rows at once, and the same rows in calls of `step` rows. */
static void linear_rows(const variant *v, fv_dtype t, int M, int K, int N, int step) {
    fv_linear_args a = {.x = tensor_new(FV_F32, M, K, 1), .n_part = 1};
    fv_tensor whole = tensor_new(FV_F32, M, N, 0), parts = tensor_new(FV_F32, M, N, 0);
    a.part[0].w = tensor_new(t, N, K, 0);
    a.part[0].accumulate = true;
    fill_normal(&a.x, 1);
    fill_normal(&a.part[0].w, 1);
    fill_normal(&whole, 1);
    memcpy(parts.data, whole.data, tensor_bytes(&whole));
    a.part[0].y = whole;
    fv_backend be = v->be;
    must(be.ops->linear(&be, &a));
    fv_tensor x = a.x;
    for (int m = 0; m < M; m += step) {
        int rows = M - m < step ? M - m : step;
        a.x = fv_tensor_rows(x, m, rows);
        a.part[0].y = fv_tensor_rows(parts, m, rows);
        must(be.ops->linear(&be, &a));
    }
    long at = first_difference(whole.data, parts.data, (size_t)M * (size_t)N);
    check(at < 0, "%s %s [%d, %d] x [%d, %d]: %d rows at a time differ at %ld", v->name,
          fv_dtype_name(t), M, K, N, K, step, at);
    free(x.data);
    free(a.part[0].w.data);
    free(whole.data);
    free(parts.data);
}

static void test_linear(void) {
    group("linear: a row alone has the bits that it has among others");
    for (int v = 0; v < n_variant; v++)
        for (fv_dtype t = FV_F32; t < FV_N_DTYPE; t++) {
            linear_rows(&variants[v], t, 70, 100, 19, 1);
            linear_rows(&variants[v], t, 41, 1100, 9, 1);
            linear_rows(&variants[v], t, 150, 33, 7, 32);
            linear_rows(&variants[v], t, 13, 513, 34, 4);
        }
}

/* A layer computed alone, and as the second of three parts. */
static void test_parts(void) {
    group("linear: a part alone has the bits that it has among others");
    for (int v = 0; v < n_variant; v++)
        for (int M = 1; M <= 40; M += 13) {
            enum { K = 70 };
            static const int N[3] = {33, 20, 5};
            fv_linear_args a = {.x = tensor_new(FV_F32, M, K, 0), .n_part = 3};
            fill_normal(&a.x, 1);
            for (int p = 0; p < 3; p++) {
                a.part[p].w = tensor_new(FV_BF16, N[p], K, 0);
                fill_normal(&a.part[p].w, 1);
                a.part[p].y = tensor_new(FV_F32, M, N[p], 0);
            }
            fv_backend be = variants[v].be;
            must(be.ops->linear(&be, &a));
            fv_tensor y = tensor_new(FV_F32, M, N[1], 0);
            fv_linear_args alone = {.x = a.x, .n_part = 1, .part = {a.part[1]}};
            alone.part[0].y = y;
            must(be.ops->linear(&be, &alone));
            check(first_difference(y.data, a.part[1].y.data, (size_t)M * (size_t)N[1]) < 0,
                  "%s M=%d", variants[v].name, M);
            for (int p = 0; p < 3; p++) {
                free(a.part[p].w.data);
                free(a.part[p].y.data);
            }
            free(a.x.data);
            free(y.data);
        }
}

/* ---- attention ------------------------------------------------------------------------- */

/* Runs query rows [i0, i1) of sequence s as a call of their own; results go to the same rows, and
 * attention received to the same sums. */
static void attention_rows(fv_backend *be, attention_case *c, int s, int i0, int i1) {
    fv_attn_args a = c->args;
    fv_attn_seq q = c->seqs[s];
    int n = i1 - i0;
    int32_t *masked_tail = room((size_t)(q.n_seg * n) * sizeof *masked_tail);
    for (int seg = 0; q.masked_tail && seg < q.n_seg; seg++)
        memcpy(masked_tail + seg * n, q.masked_tail + seg * q.n_rows + i0,
               (size_t)n * sizeof *masked_tail);
    q.masked_tail = q.masked_tail ? masked_tail : NULL;
    q.row0 += i0;
    q.n_rows = n;
    q.share = q.share ? q.share + i0 : NULL;
    q.window_from = q.window_from ? q.window_from + i0 : NULL;
    a.n_seq = 1;
    a.seqs = &q;
    must(be->ops->attention(be, &a));
    fv_score_sum sum = c->sums[s];
    int first = c->seqs[s].n_rows - sum.n_row, skipped = i0 < first ? 0 : i0 - first;
    sum.seq = 0;
    sum.n_row = i1 - first - skipped;
    sum.kind = sum.kind ? sum.kind + skipped : NULL;
    if (sum.weight) sum.weight += (ptrdiff_t)skipped * sum.ld;
    if (c->sums_args.n_sum && sum.n_row > 0)
        must(be->ops->score_sums(be, &(fv_score_sums_args){&a, 1, &sum}));
    free(masked_tail);
}

static void test_attention(void) {
    group("attention and its sums: rows in pieces have the bits that they have together");
    for (int i = 0; i < cases(40); i++)
        for (int v = 0; v < n_variant; v++) {
            attention_shape s = attention_shape_random();
            if (v == 0) s.max_len = s.max_len > 70 ? 70 : s.max_len; /* plain is slow */
            attention_case c = attention_case_new(&s);
            fv_backend be = variants[v].be;
            size_t n = tensor_bytes(&c.out) / 4;
            float *before = room(n * 4), *together = room(n * 4);
            memcpy(before, c.out.data, n * 4);
            must(attention_case_run(&be, &c));
            memcpy(together, c.out.data, n * 4);
            memcpy(c.out.data, before, n * 4); /* the pieces must compute it all again */
            for (int q = 0; q < s.n_seq; q++)
                for (int r = 0, step; r < c.seqs[q].n_rows; r += step) {
                    int left = c.seqs[q].n_rows - r;
                    step = i % 2 ? 1 : random_int(1, 7);
                    attention_rows(&be, &c, q, r, r + (step < left ? step : left));
                }
            long at = first_difference(c.out.data, together, n);
            check(at < 0, "%s %s D=%d G=%d: differs at %ld of %zu", variants[v].name,
                  fv_dtype_name(s.dtype), s.D, s.group, at, n);
            free(before);
            free(together);
            attention_case_free(&c);
        }
}

/* ---- a prompt in chunks ---------------------------------------------------------------- */

enum { PROMPT_T = 150, PROMPT_H = 6, PROMPT_HKV = 2, PROMPT_D = 24, PROMPT_BLOCKS = 3 };

typedef struct prompt {
    fv_tensor q, k, v;
    fv_kv_block blocks[PROMPT_HKV][PROMPT_BLOCKS];
    fv_block_table tables[PROMPT_HKV];
} prompt;

/* Rows [r0, r1) go into the cache and attend to all before them and themselves. */
static void prompt_chunk(fv_backend *be, prompt *p, fv_dtype t, int r0, int r1, fv_tensor o) {
    int n = r1 - r0;
    uint8_t seg[PROMPT_T] = {0};
    int32_t slot[PROMPT_T], masked_tail[PROMPT_T];
    for (int i = 0; i < n; i++) {
        slot[i] = i;
        masked_tail[i] = n - 1 - i;
    }
    fv_kv_write_seq w = {.n_rows = n, .n_seg = 1, .tables = p->tables, .seg = seg, .slot = slot};
    fv_kv_write_args wa = {.k = fv_tensor_rows(p->k, r0, n),
                           .v = fv_tensor_rows(p->v, r0, n),
                           .kv_dtype = t,
                           .n_kv = PROMPT_HKV,
                           .d_head = PROMPT_D,
                           .n_seq = 1,
                           .seqs = &w};
    must(be->ops->kv_write(be, &wa));
    for (int g = 0; g < PROMPT_HKV; g++) p->tables[g].len += n;
    fv_attn_seq s = {.n_rows = n, .n_seg = 1, .tables = p->tables, .masked_tail = masked_tail};
    fv_attn_args a = {.q = fv_tensor_rows(p->q, r0, n),
                      .o = fv_tensor_rows(o, r0, n),
                      .kv_dtype = t,
                      .n_head = PROMPT_H,
                      .n_kv = PROMPT_HKV,
                      .d_head = PROMPT_D,
                      .n_seq = 1,
                      .scale = 0.2f,
                      .seqs = &s};
    must(be->ops->attention(be, &a));
}

static void test_chunks(void) {
    group("kv_write and attention: a prompt in chunks has the bits of the prompt at once");
    static const int chunks[] = {PROMPT_T, 1, 7, 64, 65};
    prompt p;
    p.q = tensor_new(FV_F32, PROMPT_T, PROMPT_H * PROMPT_D, 0);
    p.k = tensor_new(FV_F32, PROMPT_T, PROMPT_HKV * PROMPT_D, 0);
    p.v = tensor_new(FV_F32, PROMPT_T, PROMPT_HKV * PROMPT_D, 0);
    fill_normal(&p.q, 2);
    fill_normal(&p.k, 1);
    fill_normal(&p.v, 1);
    size_t bytes = (size_t)FV_KV_BLOCK * PROMPT_D * 4;
    for (int g = 0; g < PROMPT_HKV; g++)
        for (int b = 0; b < PROMPT_BLOCKS; b++)
            p.blocks[g][b] = (fv_kv_block){room(bytes), room(bytes)};
    fv_tensor first = tensor_new(FV_F32, PROMPT_T, PROMPT_H * PROMPT_D, 0);
    fv_tensor o = tensor_new(FV_F32, PROMPT_T, PROMPT_H * PROMPT_D, 0);
    for (int v = 0; v < n_variant; v++)
        for (fv_dtype t = FV_F32; t < FV_N_DTYPE; t++)
            for (int c = 0; c < 5; c++) {
                for (int g = 0; g < PROMPT_HKV; g++) {
                    p.tables[g] = (fv_block_table){.block = p.blocks[g]};
                    for (int b = 0; b < PROMPT_BLOCKS; b++) {
                        memset(p.blocks[g][b].k, 0xff, bytes); /* NaN in every type */
                        memset(p.blocks[g][b].v, 0xff, bytes);
                    }
                }
                memset(o.data, 0, tensor_bytes(&o));
                fv_backend be = variants[v].be;
                for (int r = 0; r < PROMPT_T; r += chunks[c]) {
                    int left = PROMPT_T - r;
                    prompt_chunk(&be, &p, t, r, r + (chunks[c] < left ? chunks[c] : left), o);
                }
                if (c == 0) memcpy(first.data, o.data, tensor_bytes(&o));
                long at = first_difference(o.data, first.data, tensor_bytes(&o) / 4);
                const float *x = o.data;
                check(at < 0 && x[0] == x[0], "%s %s chunks of %d: differs at %ld",
                      variants[v].name, fv_dtype_name(t), chunks[c], at);
            }
    for (int g = 0; g < PROMPT_HKV; g++)
        for (int b = 0; b < PROMPT_BLOCKS; b++) {
            free(p.blocks[g][b].k);
            free(p.blocks[g][b].v);
        }
    free(p.q.data);
    free(p.k.data);
    free(p.v.data);
    free(first.data);
    free(o.data);
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2}, 2);
    test_linear();
    test_parts();
    test_attention();
    test_chunks();
    variants_close(variants, n_variant);
    return summary();
}
