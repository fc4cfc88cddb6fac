/* model/gguf_tensors.h: rows are put in another order only in a tensor that has all of them. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "model/gguf_tensors.h"
#include "tests/support/gguf_file.h"

enum { HIDDEN = 32, KEYS = 2, VALUES = 4, WIDTH = 8, INNER = VALUES * WIDTH };

static unsigned char *recurrent_file(int64_t rows, size_t *n) {
    static const float zeros[4 * INNER * HIDDEN];
    const int64_t shape[] = {rows, HIDDEN}, turned[] = {HIDDEN, rows}, one[] = {rows};
    gguf_file f = {0};
    gguf_put_text(&f, "general.architecture", "qwen35");
    gguf_put_u32(&f, "qwen35.block_count", 1);
    gguf_put_u32(&f, "qwen35.ssm.group_count", KEYS);
    gguf_put_u32(&f, "qwen35.ssm.time_step_rank", VALUES);
    gguf_put_u32(&f, "qwen35.ssm.state_size", WIDTH);
    gguf_put_u32(&f, "qwen35.ssm.inner_size", INNER);
    gguf_put_u32(&f, "qwen35.ssm.conv_kernel", 4);
    size_t bytes = (size_t)rows * HIDDEN * sizeof *zeros;
    cr_assert_leq(bytes, sizeof zeros);
    gguf_put_tensor(&f, "blk.0.attn_gate.weight", 0, 2, shape, zeros, bytes);
    gguf_put_tensor(&f, "blk.0.ssm_out.weight", 0, 2, turned, zeros, bytes);
    gguf_put_tensor(&f, "blk.0.attn_qkv.weight", 0, 2, shape, zeros, bytes);
    gguf_put_tensor(&f, "blk.0.ssm_dt.bias", 0, 1, one, zeros, (size_t)rows * sizeof *zeros);
    return gguf_end(&f, n);
}

/* Lists the tensors; *tiled: how many of them are in another order. */
static void list(int64_t rows, int *tiled) {
    fv_arena arena = {0};
    fv_safetensors_entry *e;
    fv_gguf_form *form;
    fv_gguf *g;
    size_t size;
    int32_t n;
    unsigned char *bytes = recurrent_file(rows, &size);
    cr_assert_eq(fv_gguf_parse(bytes, size, "model.gguf", &g), FV_OK, "%s", fv_last_error());
    const fv_gguf_set set = {(const fv_gguf *const *)&g, 1, NULL};
    cr_assert_eq(fv_gguf_tensors_list(&set, g, &arena, &e, &form, &n), FV_OK, "%s",
                 fv_last_error());
    cr_assert_eq(n, 4);
    *tiled = 0;
    for (int32_t i = 0; i < n; i++) *tiled += form[i].tiles.each > 1;
    fv_arena_fini(&arena);
    fv_gguf_free(g);
    free(bytes);
}

Test(gguf_tensors, only_whole_tensors_are_reordered) {
    int tiled;
    list(INNER, &tiled);
    cr_assert_eq(tiled, 2, "gate and ssm_out");
    list(INNER + 2 * KEYS * WIDTH, &tiled);
    cr_assert_eq(tiled, 1, "queries, keys and values");
    list(INNER - WIDTH, &tiled);
    cr_assert_eq(tiled, 0);
}
