/* Merging attention over two parts of a context, and the importance of tokens, against the plain
 * path. */
#include "tests/ops/device_mirror.h"
#include "tests/ops/run/run.h"

static void test_merge(device_test *d) {
    group("merge: the bits of the CPU, where one part is empty too");
    for (int i = 0; i < cases(20); i++) {
        int M = random_int(0, 5), H = random_int(1, 4), D = PICK(1, 16, 33, 128), gap = i % 3;
        fv_tensor t[4] = {tensor_new(FV_F32, M, H * D, gap), tensor_new(FV_F32, M, H, gap),
                          tensor_new(FV_F32, M, H * D, 1), tensor_new(FV_F32, M, H, 0)};
        for (int x = 0; x < 4; x++) fill_normal(&t[x], 2);
        for (int x = 1; x < 4; x += 2)
            for (int r = 0; r < M * H; r++)
                if (random_int(0, 3) == 0) put(&t[x], r / H, r % H, -INFINITY);
        mirror m = {.be = &d->be};
        fv_tensor t2[4];
        for (int x = 0; x < 4; x++) {
            t2[x] = t[x];
            t2[x].data = there(&m, t[x].data, tensor_bytes(&t[x]));
        }
        fv_merge_args a = {t[0], t[1], t[2], t[3], H}, b = {t2[0], t2[1], t2[2], t2[3], H};
        must(d->plain.ops->merge(&d->plain, &a));
        must(d->be.ops->merge(&d->be, &b));
        for (int x = 0; x < 2; x++) {
            float *got = room(tensor_bytes(&t[x]));
            back(&m, got, t2[x].data, tensor_bytes(&t[x]));
            for (int r = 0; r < M; r++)
                same(got + r * t[x].ld, (float *)t[x].data + r * t[x].ld, (size_t)t[x].cols,
                     x ? "lse" : "o");
            free(got);
        }
        for (int x = 0; x < 4; x++) free(t[x].data);
        mirror_free(&m);
    }
}

static void test_importance(device_test *d) {
    group("importance: the bits of the CPU");
    for (int i = 0; i < cases(20); i++) {
        int H = random_int(1, 5), rows = random_int(1, 3), n = PICK(0, 1, 127, 128, 300),
            ld = n + 2;
        fv_tensor score = tensor_new(FV_F32, H * rows, ld, 0), lse = tensor_new(FV_F32, rows, H, 0);
        fv_tensor imp = tensor_new(FV_F32, 1, n, 0);
        fill_normal(&score, 2);
        fill_normal(&lse, 1);
        fill_normal(&imp, 1);
        for (int x = 0; x < H * rows * ld; x++)
            if (random_int(0, 9) == 0) ((float *)score.data)[x] = -INFINITY;
        if (i % 4 == 0) put(&lse, 0, 0, -INFINITY);
        float keep = i % 3 ? 0.9f : 0.0f;
        if (keep == 0.0f && n) put(&imp, 0, 0, NAN); /* it is not read */
        mirror m = {.be = &d->be};
        fv_tensor dl = lse, di = imp;
        dl.data = there(&m, lse.data, tensor_bytes(&lse));
        di.data = there(&m, imp.data, tensor_bytes(&imp));
        fv_importance_args a = {score.data, H, rows, ld, lse, imp, keep}, b = a;
        b.score = there(&m, score.data, tensor_bytes(&score));
        b.lse = dl;
        b.importance = di;
        must(d->plain.ops->importance(&d->plain, &a));
        must(d->be.ops->importance(&d->be, &b));
        float *got = room(tensor_bytes(&imp));
        back(&m, got, di.data, tensor_bytes(&imp));
        same(got, imp.data, (size_t)n, "importance");
        free(got);
        free(score.data);
        free(lse.data);
        free(imp.data);
        mirror_free(&m);
    }
}

/* ---- speed ------------------------------------------------------------------------------ */

/* Times both parts of one row and of many. */
static void perf_merge(device_test *d) {
    enum { H = 32, D = 128 };
    for (int M = 1; M <= 640; M += 639) {
        both o = both_normal(d, FV_F32, M, H * D, 0), lse = both_normal(d, FV_F32, M, H, 0);
        both o2 = both_normal(d, FV_F32, M, H * D, 0), lse2 = both_normal(d, FV_F32, M, H, 0);
        fv_merge_args a = {o.there, lse.there, o2.there, lse2.there, H};
        report(seconds_of(d, d->be.ops->merge, a), 0, 12.0 * M * H * (D + 1),
               "%d rows, %d heads of %d", M, H, D);
        both_free(&o);
        both_free(&lse);
        both_free(&o2);
        both_free(&lse2);
    }
}

/* Scores of the last rows of a prompt, and of one decoded row. */
static void perf_importance(device_test *d) {
    enum { H = 32, N = 2048 };
    for (int rows = 1; rows <= 16; rows += 15) {
        both score = both_normal(d, FV_F32, H * rows, N, 0);
        both lse = both_normal(d, FV_F32, rows, H, 0), imp = both_normal(d, FV_F32, 1, N, 0);
        fv_importance_args a = {score.there.data, H, rows, N, lse.there, imp.there, 0.9f};
        report(seconds_of(d, d->be.ops->importance, a), 0, 4.0 * (H * rows + 2.0) * N,
               "%d rows, %d heads, %d keys", rows, H, N);
        both_free(&score);
        both_free(&lse);
        both_free(&imp);
    }
}

const op op_merge = {"merge", "bits", test_merge, perf_merge};
const op op_importance = {"importance", "bits", test_importance, perf_importance};
