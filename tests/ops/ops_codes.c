/* Quantized and depth-merged attention: attn_quantized and attn_merged, and the blocks themselves.
 *
 * The plain path equals attention in double to the numbers that blocks and outliers represent
 * (ops_run compares the other paths with it), with keys rotated to their token's position. */
#include "tests/ops/codes_case.h"

enum { MAX_VARIANT = 12 };

static variant variants[MAX_VARIANT];
static int n_variant;

/* ---- the plain path against double --------------------------------------------------- */

static double reference_score(const call *c, const block *b, int j, int row, int h) {
    int D = c->args.d_head, half = D / 2, g = h / (c->args.n_head / c->args.n_kv);
    const float *key = b->mk + (j * c->args.n_kv + g) * D;
    double sum = 0;
    for (int d = 0; d < D; d++) {
        double k = (double)key[d];
        if (b->rows.cos) {
            int at = angle_at(j, d % half, half);
            double other = (double)key[d < half ? d + half : d - half];
            k = k * (double)b->cos[at] + (d < half ? -other : other) * (double)b->sin[at];
        }
        sum += get(&c->args.q, row, h * D + d) * k;
    }
    return sum * (double)c->args.scale;
}

static void check_head(const call *c, const block *b, int row, int h) {
    int D = c->args.d_head, g = h / (c->args.n_head / c->args.n_kv), n = b->rows.n;
    double *s = room((size_t)n * sizeof *s), top = (double)-INFINITY, l = 0, worst = 0;
    for (int j = 0; j < n; j++) {
        s[j] = is_alive(b, j) ? reference_score(c, b, j, row, h) : (double)-INFINITY;
        top = fmax(top, s[j]);
    }
    for (int j = 0; j < n; j++) l += top > (double)-INFINITY ? exp(s[j] - top) : 0;
    for (int d = 0; d < D; d++) {
        double o = 0;
        for (int j = 0; l > 0 && j < n; j++)
            o += exp(s[j] - top) / l * (double)b->mv[(j * c->args.n_kv + g) * D + d];
        worst = fmax(worst, fabs(o - get(&c->args.o, row, h * D + d)) / (1 + fabs(o)));
    }
    check(worst < 1e-4, "o of row %d, head %d is off by %g", row, h, worst);
    double lse = l > 0 ? top + log(l) : (double)-INFINITY, got = get(&c->args.lse, row, h);
    check(lse == got || fabs(lse - got) < 1e-4 * (1 + fabs(lse)), "lse: %g not %g", got, lse);
    free(s);
}

static void test_reference(void) {
    group("attn_quantized, attn_merged: what attending to the numbers gives");
    for (int i = 0; i < 100; i++) {
        call c = make_call(random_int(1, MAX_SEQ), PICK(1, 2, 3), PICK(1, 2, 5),
                           PICK(1, 4, 8, 16, 20, 64), PICK(1, 1, 4));
        run_call(&c, &variants[0].be);
        for (int s = 0; s < c.args.n_seq; s++)
            for (int row = 0; row < c.seqs[s].n_rows; row++)
                for (int h = 0; h < c.args.n_head; h++)
                    check_head(&c, c.blocks[s], c.seqs[s].row0 + row, h);
        free_call(&c);
    }
}

/* ---- neighbours --------------------------------------------------------------------- */

static void test_alone(void) {
    group("attn_quantized, attn_merged: a row alone has the bits that it has among others");
    for (int i = 0; i < 50; i++) {
        call c = make_call(2, 2, PICK(1, 4), 32, 7);
        fv_backend *be = &variants[i % n_variant].be;
        be->compute = i / n_variant % 2 ? FV_COMPUTE_BF16 : FV_COMPUTE_F32;
        run_call(&c, be);
        for (int s = 0; s < 2; s++)
            for (int row = 0; row < c.seqs[s].n_rows; row++) {
                fv_packed_seq one = c.seqs[s];
                one.row0 += row;
                one.n_rows = 1;
                fv_attn_packed_args a = c.args;
                a.o = tensor_new(FV_F32, a.o.rows, a.o.cols, 0);
                a.lse = (fv_tensor){0};
                a.n_seq = 1;
                a.seqs = &one;
                must(attend(&c, be, &a));
                long at = first_difference((float *)a.o.data + one.row0 * a.o.ld,
                                           (float *)c.args.o.data + one.row0 * c.args.o.ld,
                                           (size_t)a.o.cols);
                check(at < 0, "row %d of sequence %d: column %ld", row, s, at);
                free(a.o.data);
            }
        be->compute = FV_COMPUTE_F32;
        free_call(&c);
    }
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2, 3}, 3);
    test_reference();
    test_alone();
    variants_close(variants, n_variant);
    return summary();
}
