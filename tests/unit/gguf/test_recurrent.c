/* gguf/recurrent.h: sizes that do not fit together, or are larger than any model's, are refused. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "gguf/recurrent.h"
#include "tests/support/gguf_file.h"

typedef struct sizes {
    uint32_t groups, rank, state, inner;
} sizes;

static fv_status read_sizes(sizes s, fv_gguf_recurrent *out) {
    gguf_file f = {0};
    fv_gguf *g;
    size_t n;
    gguf_put_u32(&f, "qwen35.block_count", 4);
    gguf_put_u32(&f, "qwen35.ssm.group_count", s.groups);
    gguf_put_u32(&f, "qwen35.ssm.time_step_rank", s.rank);
    gguf_put_u32(&f, "qwen35.ssm.state_size", s.state);
    gguf_put_u32(&f, "qwen35.ssm.inner_size", s.inner);
    gguf_put_u32(&f, "qwen35.ssm.conv_kernel", 4);
    unsigned char *bytes = gguf_end(&f, &n);
    cr_assert_eq(fv_gguf_parse(bytes, n, "model.gguf", &g), FV_OK, "%s", fv_last_error());
    fv_status st = fv_gguf_recurrent_of(g, "qwen35", out);
    fv_gguf_free(g);
    free(bytes);
    return st;
}

Test(recurrent, sizes_are_read) {
    fv_gguf_recurrent r;
    cr_assert_eq(read_sizes((sizes){2, 6, 16, 48}, &r), FV_OK, "%s", fv_last_error());
    cr_assert(r.n_key == 2 && r.n_value == 6 && r.d_key == 16 && r.d_value == 8 && r.taps == 4 &&
              r.n_layer == 4);
}

Test(recurrent, sizes_that_do_not_fit_together_are_refused) {
    static const sizes bad[] = {{2, 5, 16, 40},                       /* heads that share none */
                                {2, 6, 16, 5},                        /* values without a width */
                                {0, 6, 16, 48},                       /* no keys */
                                {1 << 20, 1 << 20, 1 << 20, 1 << 20}, /* rows of keys: 2^40 */
                                {1 << 12, 1 << 12, 1 << 19, 1 << 20}};
    fv_gguf_recurrent r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(read_sizes(bad[i], &r), FV_EDATA, "%zu", i);
}
