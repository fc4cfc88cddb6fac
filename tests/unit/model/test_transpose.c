/* Experts that are transposed in the files: transposed when loaded, or quantized without a copy. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "model/checkpoint.h"
#include "model/synth/synth.h"
#include "model/transpose.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

Test(transpose, rows_are_those_of_each_matrix) {
    enum { N = 3, IN = 5, OUT = 70 };
    static char bytes[1 + N * IN * OUT * sizeof(float)];
    static float from[N][IN][OUT], to[N * OUT][IN];
    for (int e = 0; e < N; e++)
        for (int i = 0; i < IN; i++)
            for (int o = 0; o < OUT; o++) from[e][i][o] = (float)(e * 10000 + i * 100 + o);
    memcpy(bytes + 1, from, sizeof from); /* unaligned, as in a file */
    const fv_transposed t = {.data = bytes + 1, .dtype = FV_F32, .n = N, .n_in = IN, .n_out = OUT};
    for (int row0 = 0; row0 < N * OUT; row0 += 47) {
        const int rows = N * OUT - row0 < 47 ? N * OUT - row0 : 47;
        fv_transpose_rows(&t, row0, rows, to[row0]);
    }
    for (int r = 0; r < N * OUT; r++)
        for (int i = 0; i < IN; i++) cr_assert_eq(to[r][i], from[r / OUT][i][r % OUT]);
}

Test(transpose, a_number_that_is_not_finite_is_found) {
    static uint16_t from[64];
    const fv_weights *to;
    fv_tensor out;
    fv_transposed t = {.data = from, .dtype = FV_BF16, .n = 2, .n_in = 8, .n_out = 4};
    fv_tensor shape = fv_tensor_of(NULL, FV_BF16, 8, 8);
    ok(fv_weights_find("int8", &to));
    void *memory = malloc(fv_quantize_bytes(&shape, to));
    ok(fv_transpose_quantize(&t, to, memory, &out));
    from[63] = 0x7f80;
    cr_assert_eq(fv_transpose_quantize(&t, to, memory, &out), FV_EDATA);
    free(memory);
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

static fv_checkpoint *opened(const char *dir) {
    fv_checkpoint *ck;
    ok(fv_checkpoint_open(dir, &ck));
    return ck;
}

static void expect_same(const fv_tensor *a, const fv_tensor *b, const char *name) {
    cr_assert(a->data && b->data && a->quant && b->quant && a->dtype == b->dtype);
    cr_assert(a->rows == b->rows && a->cols == b->cols);
    const size_t n = (size_t)a->rows * a->quant->row_bytes;
    cr_assert_eq(memcmp(a->data, b->data, n), 0, "%s", name);
    const size_t scales = (size_t)a->rows * (size_t)a->quant->groups;
    cr_assert_eq(memcmp(a->quant->scale, b->quant->scale,
                        scales * fv_dtype_bytes(a->quant->group ? FV_BF16 : FV_F32)),
                 0, "%s", name);
}

Test(transpose, experts_are_quantized_as_they_are_read) {
    static const char *const names[] = {"int8", "int4", "int4-128"};
    char dir[PATH_CAP];
    fv_synth_report r;
    fv_backend be;
    scratch_dir(dir, sizeof dir);
    ok(fv_synth_write(
        &(fv_synth_options){
            .dir = dir, .shape = "tiny", .family = "qwen3_vl_moe", .dtype = FV_BF16, .force = true},
        &r));
    ok(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 2}));
    for (int i = 0; i < 3; i++) {
        const fv_weights *to;
        ok(fv_weights_find(names[i], &to));
        fv_checkpoint *a = opened(dir), *b = opened(dir), *c = opened(dir);
        const fv_text_layer *x = fv_checkpoint_text(a)->layer, *y = fv_checkpoint_text(b)->layer;
        cr_assert(!x[0].experts_in.data && x[0].router.data && x[1].gate.data);
        ok(fv_checkpoint_load(a, &be, NULL, NULL, NULL)); /* as stored, */
        cr_assert(x[0].experts_in.data && x[0].experts_in.dtype == FV_BF16);
        ok(fv_checkpoint_quantize(a, &be, to, NULL, NULL)); /* then quantized, */
        ok(fv_checkpoint_load(b, &be, to, NULL, NULL));     /* or not loaded before */
        cr_assert_null(y[0].experts_in.data);
        ok(fv_checkpoint_quantize(b, &be, to, NULL, NULL));
        for (int l = 0; l < 3; l += 2) {
            expect_same(&x[l].experts_in, &y[l].experts_in, names[i]);
            expect_same(&x[l].experts_out, &y[l].experts_out, names[i]);
            cr_assert(x[l].router.data && !x[l].router.quant);
        }
        cr_assert_null(fv_checkpoint_find_nonfinite(c));
        uint64_t bytes;
        cr_assert_eq(fv_checkpoint_write(a, to, dir, NULL, NULL, &bytes), FV_EUNSUPPORTED);
        cr_assert(strstr(fv_last_error(), "serve it with --weights"), "%s", fv_last_error());
        fv_checkpoint_close(a);
        fv_checkpoint_close(b);
        fv_checkpoint_close(c);
    }
    fv_backend_close(&be);
}
