/* syrk: x x^T on every path equals, bit for bit, the sums of kernels/ops.h written out in the test;
 * gaps between rows hold NaN, and elements above the diagonal must not change. And fv_backend_each:
 * each item runs once, with a backend that gives the same bits as the whole one. */
#include <stdatomic.h>

#include "tests/ops/ops_test.h"

enum { MAX_VARIANT = 12, N_ITEM = 23 };

static variant variants[MAX_VARIANT];
static int n_variant;

static double expected(const fv_tensor *x, int m, int n) {
    double acc[8] = {0};
    for (int k = 0; k < x->cols; k++) acc[k % 8] += get(x, m, k) * get(x, n, k);
    for (int s = 4; s > 0; s /= 2)
        for (int i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

static fv_tensor rows_of(int M, int K) {
    fv_tensor x = tensor_new(FV_F32, M, K, random_int(0, 3));
    memset(x.data, 0xff, tensor_bytes(&x)); /* NaN between the rows */
    fill_normal(&x, 1);
    return x;
}

static void syrk_case(int M, int K) {
    fv_tensor x = rows_of(M, K);
    double *g = malloc(sizeof *g * (size_t)(M * M + 1));
    for (int v = 0; v < n_variant; v++) {
        for (int i = 0; i < M * M; i++) g[i] = -7;
        must(variants[v].be.ops->syrk(&variants[v].be, &(fv_syrk_args){x, g}));
        int wrong = 0;
        for (int m = 0; m < M; m++)
            for (int n = 0; n < M; n++) wrong += g[m * M + n] != (n > m ? -7 : expected(&x, m, n));
        check(wrong == 0, "[%d, %d] on %s: %d elements", M, K, variants[v].name, wrong);
    }
    free(g);
    free(x.data);
}

typedef struct items {
    fv_tensor x;
    double *g; /* [N_ITEM, M, M] */
    atomic_int n_run[N_ITEM], in_slot[FV_EACH_SLOTS];
    atomic_int shared; /* two items had the same slot at the same time */
} items;

static void syrk_item(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    items *t = arg;
    size_t M = (size_t)t->x.rows;
    if (atomic_fetch_add(&t->in_slot[slot], 1)) atomic_fetch_add(&t->shared, 1);
    must(be->ops->syrk(be, &(fv_syrk_args){t->x, t->g + (size_t)i * M * M}));
    atomic_fetch_add(&t->n_run[i], 1);
    atomic_fetch_sub(&t->in_slot[slot], 1);
}

static void each_case(const variant *v, int n) {
    static items t;
    memset(&t, 0, sizeof t);
    t.x = rows_of(9, 50);
    t.g = calloc((size_t)N_ITEM * 9 * 9, sizeof *t.g);
    fv_backend be = v->be;
    must(fv_backend_each(&be, n, syrk_item, &t));
    int wrong = t.shared;
    for (int i = 0; i < N_ITEM; i++) {
        wrong += t.n_run[i] != (i < n);
        for (int m = 0; i < n && m < 9; m++)
            for (int k = 0; k <= m; k++) wrong += t.g[i * 81 + m * 9 + k] != expected(&t.x, m, k);
    }
    check(wrong == 0, "%d items on %s: %d differences", n, v->name, wrong);
    free(t.g);
    free(t.x.data);
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2, 3}, 3);
    group("syrk: every path gives the sums of the definition");
    for (int M = 0; M <= 9; M++)
        for (int K = 0; K <= 34; K += K < 9 ? 1 : 5) syrk_case(M, K);
    syrk_case(37, 1001);
    group("each: items run once, alone in their slot, and give the same bits");
    for (int v = 0; v < n_variant; v++)
        for (int n = 0; n <= N_ITEM; n += n < 3 ? 1 : 10) each_case(&variants[v], n);
    variants_close(variants, n_variant);
    return summary();
}
