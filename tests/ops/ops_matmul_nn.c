/* matmul_nn: y = x w on every path equals, bit for bit, the chain of fused multiply-adds that
 * kernels/ops.h specifies, written out in the test; so a row or column alone has the same bits as
 * among others. Gaps between rows hold NaN and must keep it. */
#include "tests/ops/ops_test.h"

enum { MAX_VARIANT = 12 };

static variant variants[MAX_VARIANT];
static int n_variant;

static fv_tensor poisoned(fv_dtype t, int rows, int cols, int gap) {
    fv_tensor m = tensor_new(t, rows, cols, gap);
    memset(m.data, 0xff, tensor_bytes(&m)); /* NaN in every type */
    return m;
}

static void matmul_nn_case(int M, int K, int N, fv_dtype t, int one_in) {
    fv_matmul_nn_args a = {.x = poisoned(FV_F32, M, K, random_int(0, 3)),
                           .w = poisoned(t, K, N, random_int(0, 5)),
                           .y = poisoned(FV_F32, M, N, random_int(0, 2))};
    fill_normal(&a.x, 1);
    fill_normal(&a.w, 0.5f);
    if (one_in) {
        fill_specials(&a.x, one_in);
        fill_specials(&a.w, one_in);
    }
    fv_tensor expected = poisoned(FV_F32, M, N, a.y.ld - N);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum = fmaf((float)get(&a.x, m, k), (float)get(&a.w, k, n), sum);
            ((float *)expected.data)[(size_t)m * (size_t)expected.ld + (size_t)n] = sum;
        }
    for (int v = 0; v < n_variant; v++) {
        memset(a.y.data, 0xff, tensor_bytes(&a.y));
        must(variants[v].be.ops->matmul_nn(&variants[v].be, &a));
        long at = first_difference(a.y.data, expected.data, tensor_bytes(&a.y) / 4);
        check(at < 0, "[%d, %d] x [%d, %d] %s on %s: element %ld", M, K, K, N, fv_dtype_name(t),
              variants[v].name, at);
    }
    free(a.x.data);
    free(a.w.data);
    free(a.y.data);
    free(expected.data);
}

int main(void) {
    n_variant = variants_open(variants, (const int[]){1, 2, 3}, 3);
    group("matmul_nn: every path gives the chain of the definition");
    for (int i = 0; i < 120; i++)
        matmul_nn_case(PICK(0, 1, 2, 3, 5, 6, 7, 12, 40), PICK(0, 1, 2, 15, 16, 64, 127, 128, 129),
                       PICK(0, 1, 3, 16, 31, 32, 33, 63, 64, 65, 100, 192),
                       (fv_dtype)(i % FV_N_DTYPE), i % 4 == 0 ? PICK(5, 100) : 0);
    group("matmul_nn: rows of w that are used where they are");
    for (int i = 0; i < 20; i++)
        matmul_nn_case(PICK(1, 5, 6, 48), PICK(1, 16, 129, 300), PICK(32, 64), FV_F32,
                       i % 4 == 0 ? 100 : 0);
    group("matmul_nn: chains that span several blocks of K");
    matmul_nn_case(80, 600, 200, FV_F32, 0);
    matmul_nn_case(7, 1000, 64, FV_BF16, 0);
    variants_close(variants, n_variant);
    return summary();
}
