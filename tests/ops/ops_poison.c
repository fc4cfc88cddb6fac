/* Operations read and write only what they are given.
 *
 * Data that must not be read is NaN or has an invalid address; data that must not be written holds
 * a pattern. Results must be free of NaN, and the pattern must survive. */
#include "tests/ops/attention_case.h"
#include "tests/ops/ops_test.h"

enum { MAX_VARIANT = 12 };

static variant variants[MAX_VARIANT];
static int n_variant;

static const float PATTERN = 7777.0f;

static void fill_pattern(const fv_tensor *t) {
    for (size_t i = 0; i < tensor_bytes(t) / 4; i++) ((float *)t->data)[i] = PATTERN;
}

/* Sets the elements between the rows of x to NaN. */
static void poison_gaps(const fv_tensor *x) {
    for (int r = 0; r + 1 < x->rows; r++)
        for (int c = x->cols; c < x->ld; c++) ((float *)x->data)[r * x->ld + c] = NAN;
}

/* All of y is a number, none of it the pattern; all between its rows is the pattern. */
static bool written_exactly(const fv_tensor *y) {
    for (int r = 0; r < y->rows; r++)
        for (int c = 0; c < (r + 1 < y->rows ? y->ld : y->cols); c++) {
            float f = ((float *)y->data)[r * y->ld + c];
            if (f != f || (c < y->cols) == (f == PATTERN)) return false;
        }
    return true;
}

static void test_linear(void) {
    group("linear: reads no neighbour of x and writes no neighbour of y");
    for (int v = 0; v < n_variant; v++)
        for (int i = 0; i < cases(30); i++) {
            int M = random_int(1, 45), K = random_int(1, 70), N = random_int(1, 40);
            fv_dtype t = (fv_dtype)(i % FV_N_DTYPE);
            fv_linear_args a = {.x = tensor_new(FV_F32, M, K, 3), .n_part = 1};
            fv_linear_part *p = &a.part[0];
            p->w = tensor_new(t, N, K, 0);
            p->y = tensor_new(FV_F32, M, N, 5);
            fill_normal(&a.x, 1);
            poison_gaps(&a.x);
            fill_normal(&p->w, 1);
            fill_pattern(&p->y);
            fv_backend be = variants[v].be;
            must(be.ops->linear(&be, &a));
            check(written_exactly(&p->y), "%s %s M=%d K=%d N=%d", variants[v].name,
                  fv_dtype_name(t), M, K, N);
            free(a.x.data);
            free(p->w.data);
            free(p->y.data);
        }
}

static void test_attention(void) {
    group("attention: reads no row that a query does not see, and no block after a run");
    for (int v = 0; v < n_variant; v++)
        for (int i = 0; i < cases(60); i++) {
            attention_shape s = attention_shape_random();
            s.lse = true;
            attention_case c = attention_case_new(&s);
            fill_pattern(&c.out);
            fv_backend be = variants[v].be;
            must(attention_case_run(&be, &c));
            size_t bad = 0;
            for (size_t j = 0; j < tensor_bytes(&c.out) / 4; j++) {
                float f = ((float *)c.out.data)[j];
                bad += f != f;
            }
            check(bad == 0, "%s %s D=%d G=%d: %zu NaN", variants[v].name, fv_dtype_name(s.dtype),
                  s.D, s.group, bad);
            attention_case_free(&c);
        }

    group("attention: rows of o that no sequence owns stay as they are");
    for (int v = 0; v < n_variant; v++) {
        attention_shape s = attention_shape_random();
        attention_case c = attention_case_new(&s);
        fill_pattern(&c.out);
        fv_backend be = variants[v].be;
        must(be.ops->attention(&be, attention_case_args(&c)));
        bool kept = true;
        for (int r = 0; r < c.args.o.rows; r++) {
            bool owned = false;
            for (int q = 0; q < s.n_seq; q++)
                owned |= r >= c.seqs[q].row0 && r < c.seqs[q].row0 + c.seqs[q].n_rows;
            float f = ((float *)c.args.o.data)[r * c.args.o.ld];
            kept &= owned == (f != PATTERN);
        }
        check(kept, "%s", variants[v].name);
        attention_case_free(&c);
    }
}

/* A segment without keys: o = 0, lse = -inf or ln n, and it receives no attention. */
static void test_empty(void) {
    group("attention: a query that sees nothing gets o = 0, lse = ln n and adds to no sum");
    for (int v = 0; v < n_variant; v++)
        for (int i = 0; i < 4; i++) {
            int len = i % 2 * 70, n = i / 2;
            enum { H = 2, D = 20, ROWS = 3 };
            int32_t masked_tail[ROWS] = {len, len + 4, len};
            fv_kv_block blocks[2];
            memset(blocks, 0, sizeof blocks); /* invalid addresses */
            fv_block_table run = {.block = len ? blocks : NULL, .len = len};
            float sum[H * 71];
            uint8_t share[ROWS] = {FV_SHARE_KEPT, FV_SHARE_ON_FIRST, FV_SHARE_DROPPED};
            fv_tensor q = tensor_new(FV_F32, ROWS, H * D, 0),
                      o = tensor_new(FV_F32, ROWS, H * D, 0);
            fv_tensor lse = tensor_new(FV_F32, ROWS, H, 0);
            fill_normal(&q, 1);
            fill_pattern(&o);
            fill_pattern(&lse);
            for (int j = 0; j < H * 71; j++) sum[j] = PATTERN;
            fv_attn_seq s = {
                .n_rows = ROWS, .n_seg = 1, .tables = &run, .masked_tail = masked_tail};
            if (n == 0) s.share = share;
            s.n = (float)n;
            fv_attn_args a = {.q = q,
                              .o = o,
                              .lse = lse,
                              .kv_dtype = FV_BF16,
                              .n_head = H,
                              .n_kv = 1,
                              .d_head = D,
                              .n_seq = 1,
                              .scale = 1,
                              .seqs = &s};
            fv_backend be = variants[v].be;
            must(be.ops->attention(&be, &a));
            bool ok = true;
            for (int j = 0; j < ROWS * H * D; j++) ok &= ((float *)o.data)[j] == 0.0f;
            for (int j = 0; j < ROWS * H; j++)
                ok &= ((float *)lse.data)[j] == (n ? 0.0f : -INFINITY);
            fv_score_sum to = {.n_row = ROWS, .n_kind = 1, .n = 1, .ld = 71, .sum = sum};
            must(be.ops->score_sums(&be, &(fv_score_sums_args){&a, 1, &to}));
            for (int j = 0; j < H * 71; j++) ok &= sum[j] == PATTERN;
            check(ok, "%s len=%d n=%d", variants[v].name, len, n);
            free(q.data);
            free(o.data);
            free(lse.data);
        }
}

static void test_rowwise(void) {
    group("norm, activate, rope, index_select: read and write their own columns only");
    for (int v = 0; v < n_variant; v++) {
        enum { M = 5, K = 70 };
        fv_backend be = variants[v].be;
        fv_tensor x = tensor_new(FV_F32, M, K, 3), y = tensor_new(FV_F32, M, K, 2);
        fv_tensor w = tensor_new(FV_BF16, 1, K, 0);
        fill_normal(&x, 1);
        fill_normal(&w, 1);
        poison_gaps(&x);
        fill_pattern(&y);
        must(be.ops->norm(&be, &(fv_norm_args){.x = x, .w = w, .b = w, .y = y, .eps = 1e-5f}));
        check(written_exactly(&y), "%s norm", variants[v].name);
        fill_pattern(&y);
        must(be.ops->activate(&be, &(fv_activate_args){.x = x, .gate = x, .y = y}));
        check(written_exactly(&y), "%s activate", variants[v].name);
        fill_pattern(&y);
        int32_t ids[M] = {0, 4, 4, 1, 2};
        fv_tensor table = x;
        table.data = room(sizeof(float) * M * K);
        table.ld = K;
        fill_normal(&table, 1);
        must(
            be.ops->index_select(&be, &(fv_index_select_args){.table = table, .y = y, .ids = ids}));
        check(written_exactly(&y), "%s index_select", variants[v].name);
        fill_pattern(&y);
        for (int r = 0; r < M; r++)
            for (int c = 0; c < K; c++) put(&y, r, c, 1.0f);
        fv_tensor angle = tensor_new(FV_F32, M, K / 2, 0);
        fill_normal(&angle, 0.1f);
        must(be.ops->rope(&be, &(fv_rope_args){.x = y, .cos = angle, .sin = angle, .n_head = 1}));
        check(written_exactly(&y), "%s rope", variants[v].name);
        free(x.data);
        free(y.data);
        free(w.data);
        free(table.data);
        free(angle.data);
    }
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2}, 2);
    test_linear();
    test_attention();
    test_empty();
    test_rowwise();
    variants_close(variants, n_variant);
    return summary();
}
