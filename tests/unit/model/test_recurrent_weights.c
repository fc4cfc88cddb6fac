/* Checkpoints of models with recurrent layers: what their files may have and lack. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };
static const char weights[] = "model.safetensors";
#define LAYER "model.language_model.layers.1.linear_attn."

static tensor_file *made(const char *family, char dir[PATH_CAP]) {
    fv_synth_report r;
    scratch_dir(dir, PATH_CAP);
    cr_assert_eq(
        fv_synth_write(
            &(fv_synth_options){
                .dir = dir, .shape = "tiny", .family = family, .dtype = FV_BF16, .force = true},
            &r),
        FV_OK, "%s", fv_last_error());
    return tensor_file_read(dir, weights);
}

static fv_status open_with(tensor_file *f, const char *dir, fv_checkpoint **ck) {
    tensor_file_write(f, dir, weights, 0);
    tensor_file_free(f);
    return fv_checkpoint_open(dir, ck);
}

Test(recurrent_weights, layers_that_predict_further_tokens_are_not_read) {
    char dir[PATH_CAP];
    const int64_t shape[] = {2, 2};
    const float x[4] = {0};
    fv_checkpoint *ck;
    tensor_file *f = made("qwen3_5", dir);
    tensor_file_add(f, "mtp.fc.weight", "F32", 2, shape, x, sizeof x);
    tensor_file_add(f, "mtp.layers.0.mlp.up_proj.weight", "F32", 2, shape, x, sizeof x);
    cr_assert_eq(open_with(f, dir, &ck), FV_OK, "%s", fv_last_error());
    const fv_text_weights *w = fv_checkpoint_text(ck);
    cr_assert(w->recurrent[0].delta_qkv.data && w->recurrent[5].delta_out.data);
    cr_assert(w->layer[2].q.rows == 2 * 4 * 16 && !w->layer[2].delta_qkv.data);
    fv_checkpoint_close(ck);
    f = made("llava", dir);
    tensor_file_add(f, "mtp.fc.weight", "F32", 2, shape, x, sizeof x);
    cr_assert_eq(open_with(f, dir, &ck), FV_EDATA, "no other family has them");
    cr_assert(strstr(fv_last_error(), "'mtp.fc.weight'"), "%s", fv_last_error());
}

Test(recurrent_weights, a_tensor_may_have_another_type_than_the_others) {
    char dir[PATH_CAP];
    const int64_t heads[] = {4};
    const float x[4] = {0.5F, 1, -1, 2};
    fv_checkpoint *ck;
    tensor_file *f = made("qwen3_5", dir);
    tensor_file_drop(f, LAYER "A_log");
    tensor_file_add(f, LAYER "A_log", "F32", 1, heads, x, sizeof x);
    cr_assert_eq(open_with(f, dir, &ck), FV_OK, "%s", fv_last_error());
    const fv_tensor *rate = &fv_checkpoint_text(ck)->recurrent[1].delta_log_rate;
    cr_assert(rate->dtype == FV_F32 && ((const float *)rate->data)[3] == 2);
    fv_checkpoint_close(ck);
}

Test(recurrent_weights, a_tensor_that_lacks_or_has_another_shape_is_named) {
    char dir[PATH_CAP];
    const int64_t heads[] = {3};
    const float x[4] = {0};
    fv_checkpoint *ck;
    tensor_file *f = made("qwen3_5", dir);
    tensor_file_drop(f, LAYER "dt_bias");
    cr_assert_eq(open_with(f, dir, &ck), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "'" LAYER "dt_bias' is missing"), "%s", fv_last_error());
    f = made("qwen3_5", dir);
    tensor_file_drop(f, LAYER "A_log");
    tensor_file_add(f, LAYER "A_log", "F32", 1, heads, x, 3 * sizeof *x);
    cr_assert_eq(open_with(f, dir, &ck), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "linear_num_value_heads"), "%s", fv_last_error());
}
