/* Vision models in GGUF files: what llama.cpp's converter wrote of a synthetic checkpoint is that checkpoint,
 * weight by weight (tests/parity/gguf_vision.py). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/convert.h"
#include "common/file.h"
#include "kernels/backends/open.h"
#include "model/checkpoint.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"

enum { PATH_CAP = 4096 };

#define GOLDEN FOVEA_TEST_DATA "/golden/gguf/vision/"

static fv_checkpoint *loaded(const char *from) {
    fv_checkpoint *ck = NULL;
    fv_backend be;
    cr_assert_eq(fv_checkpoint_open(from, &ck), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 2}), FV_OK);
    cr_assert_eq(fv_checkpoint_load(ck, &be, NULL, NULL, NULL), FV_OK, "%s", fv_last_error());
    fv_backend_close(&be);
    return ck;
}

static float at(const fv_tensor *t, size_t i) {
    if (t->dtype == FV_F32) return ((const float *)t->data)[i];
    uint16_t bits = ((const uint16_t *)t->data)[i];
    return t->dtype == FV_BF16 ? f32_of_bf16(bits) : f32_of_f16(bits);
}

/* The values; types may differ, as the converter writes vectors in f32. A norm of Gemma's passed through
 * 1 + w in f32. */
static void assert_same(const char *what, const fv_tensor *a, const fv_tensor *b) {
    cr_assert_eq(!a->data, !b->data, "%s: one is absent", what);
    if (!a->data) return;
    cr_assert(a->rows == b->rows && a->cols == b->cols, "%s: %dx%d, %dx%d", what, a->rows, a->cols,
              b->rows, b->cols);
    for (size_t i = 0; i < (size_t)a->rows * (size_t)a->cols; i++)
        cr_assert_float_eq(at(a, i), at(b, i), 1.3e-7f, "%s: %zu: %g, %g", what, i,
                           (double)at(a, i), (double)at(b, i));
}

/* A struct of nothing but tensors. */
static void assert_same_all(const char *what, const void *a, const void *b, size_t bytes) {
    const fv_tensor *x = a, *y = b;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s, tensor %zu", what, i);
        assert_same(name, &x[i], &y[i]);
    }
}

/* Experts' matrices, which are transposed in safetensors alone. */
static void assert_same_text(const fv_checkpoint *a, const fv_checkpoint *b) {
    const fv_text_weights *v = fv_checkpoint_text(a), *w = fv_checkpoint_text(b);
    const fv_text_config *t = &fv_checkpoint_config(b)->text;
    assert_same("embedding", &v->embed, &w->embed);
    assert_same("head", &v->head, &w->head);
    assert_same("last norm", &v->norm, &w->norm);
    for (int l = 0; l < t->n_layer; l++)
        assert_same_all("text layer", &v->layer[l], &w->layer[l], sizeof v->layer[l]);
    for (int l = 0; l < t->n_layer * t->recurrent.n; l++)
        assert_same_all("recurrent layer", &v->recurrent[l], &w->recurrent[l],
                        sizeof v->recurrent[l]);
}

static void assert_same_vision(const fv_checkpoint *a, const fv_checkpoint *b) {
    const fv_vision_config *c = &fv_checkpoint_config(b)->vision;
    const fv_vision_weights *v = fv_checkpoint_vision(a), *w = fv_checkpoint_vision(b);
    assert_same("patch", &v->patch, &w->patch);
    assert_same("patch bias", &v->patch_bias, &w->patch_bias);
    assert_same("position", &v->position, &w->position);
    assert_same("class", &v->cls, &w->cls);
    assert_same("pre norm", &v->pre_norm, &w->pre_norm);
    assert_same("post norm", &v->post_norm, &w->post_norm);
    for (int l = 0; l < c->n_layer; l++)
        assert_same_all("tower layer", &v->layer[l], &w->layer[l], sizeof v->layer[l]);
    for (int i = 0; i < c->n_deepstack; i++)
        assert_same_all("deepstack", &v->deepstack[i], &w->deepstack[i], sizeof v->deepstack[i]);
    assert_same_all("connector", fv_checkpoint_projector(a), fv_checkpoint_projector(b),
                    sizeof(fv_projector_weights));
}

static void assert_same_config(const fv_model_config *a, const fv_model_config *b) {
    const fv_text_config *x = &a->text, *y = &b->text;
    const char *name = a->family->name; /* SmolVLM is the same network as Idefics3 */
    cr_assert_str_eq(b->family->name, strcmp(name, "smolvlm") == 0 ? "idefics3" : name);
    cr_assert_eq(a->layout.family, b->layout.family);
    cr_assert_eq(a->image_token, b->image_token);
    cr_assert_eq(a->video_token, b->video_token);
    cr_assert_eq(x->d_head, y->d_head);
    cr_assert_eq(x->window, y->window);
    cr_assert_arr_eq(x->slides, y->slides, sizeof x->slides);
    cr_assert_eq(x->query_scalar, y->query_scalar);
    cr_assert_eq(x->embed_scale, y->embed_scale);
    cr_assert_arr_eq(x->rope.section, y->rope.section, sizeof x->rope.section);
    cr_assert_eq(x->rope.interleaved, y->rope.interleaved);
    cr_assert_float_eq(x->rope.theta, y->rope.theta, 1);
    cr_assert_float_eq(x->rms_eps, y->rms_eps, 1e-9f);
    cr_assert_eq(x->n_active, y->n_active);
    cr_assert_eq(x->n_layer, y->n_layer);
    cr_assert_eq(memcmp(&x->recurrent, &y->recurrent, sizeof x->recurrent), 0);
    cr_assert_eq(x->rope.rotary, y->rope.rotary);
    const fv_vision_config *v = &a->vision, *w = &b->vision;
    /* layers after the last whose outputs are used are not in LLaVA's mmproj files */
    cr_assert_eq(a->layout.family == FV_LAYOUT_LLAVA ? v->feature_layer[0] : v->n_layer,
                 w->n_layer);
    cr_assert_eq(v->d_ffn, w->d_ffn);
    cr_assert_eq(v->n_head, w->n_head);
    cr_assert_eq(v->patch, w->patch);
    cr_assert_eq(v->merge, w->merge);
    cr_assert_eq(v->act, w->act);
    cr_assert_eq(v->projector_act, w->projector_act);
    cr_assert_float_eq(v->ln_eps, w->ln_eps, 1e-9f);
    cr_assert_float_eq(v->projector_eps, w->projector_eps, 1e-9f);
    cr_assert_eq(v->window, w->window);
    cr_assert_arr_eq(v->whole, w->whole, sizeof v->whole);
    cr_assert_eq(v->position_side, w->position_side);
    cr_assert_eq(v->n_deepstack, w->n_deepstack);
    cr_assert_arr_eq(v->deepstack, w->deepstack, sizeof v->deepstack);
    cr_assert_eq(v->n_feature_layer, w->n_feature_layer);
    cr_assert_arr_eq(v->feature_layer, w->feature_layer, sizeof v->feature_layer);
    cr_assert_eq(v->post_norm, w->post_norm);
    cr_assert_eq(v->keep_cls, w->keep_cls);
}

/* `from`: the family's checkpoint in GGUF files. */
static void is_same(const char *family, const char *from) {
    char dir[PATH_CAP], config[PATH_CAP];
    fv_synth_report r;
    scratch_dir(dir, sizeof dir);
    snprintf(config, sizeof config, GOLDEN "%s.json", family);
    const fv_synth_options o = {.dir = dir, .config_file = config, .dtype = FV_BF16, .force = true};
    cr_assert_eq(fv_synth_write(&o, &r), FV_OK, "%s", fv_last_error());
    fv_checkpoint *a = loaded(dir), *b = loaded(from);
    assert_same_config(fv_checkpoint_config(a), fv_checkpoint_config(b));
    assert_same_text(a, b);
    assert_same_vision(a, b);
    const fv_image_config *x = fv_checkpoint_image(a), *y = fv_checkpoint_image(b);
    cr_assert_eq(memcmp(x->mean, y->mean, sizeof x->mean), 0);
    cr_assert_eq(memcmp(x->std, y->std, sizeof x->std), 0);
    cr_assert_eq(x->resample, y->resample);
    fv_checkpoint_close(a);
    fv_checkpoint_close(b);
}

static void converted_is_same(const char *family) {
    char pair[PATH_CAP];
    snprintf(pair, sizeof pair, GOLDEN "%s.gguf+" GOLDEN "%s.mmproj.gguf", family, family);
    is_same(family, pair);
}

Test(gguf_vision, qwen2_vl_is_the_same_in_gguf) { converted_is_same("qwen2_vl"); }
Test(gguf_vision, qwen2_5_vl_is_the_same_in_gguf) { converted_is_same("qwen2_5_vl"); }
Test(gguf_vision, qwen3_vl_is_the_same_in_gguf) { converted_is_same("qwen3_vl"); }
Test(gguf_vision, qwen3_vl_moe_is_the_same_in_gguf) { converted_is_same("qwen3_vl_moe"); }
Test(gguf_vision, qwen3_5_is_the_same_in_gguf) { converted_is_same("qwen3_5"); }
Test(gguf_vision, qwen3_5_moe_is_the_same_in_gguf) { converted_is_same("qwen3_5_moe"); }
Test(gguf_vision, gemma3_is_the_same_in_gguf) { converted_is_same("gemma3"); }
Test(gguf_vision, idefics3_is_the_same_in_gguf) { converted_is_same("idefics3"); }
Test(gguf_vision, smolvlm_is_the_same_in_gguf) { converted_is_same("smolvlm"); }
Test(gguf_vision, pixtral_is_the_same_in_gguf) { converted_is_same("pixtral"); }
Test(gguf_vision, mistral3_is_the_same_in_gguf) { converted_is_same("mistral3"); }
Test(gguf_vision, internvl_is_the_same_in_gguf) { converted_is_same("internvl"); }
Test(gguf_vision, llava_is_the_same_in_gguf) { converted_is_same("llava"); }

/* Links the golden file into dir, and gives its path there. */
static void link_golden(const char *dir, const char *name, const char *as, char to[PATH_CAP]) {
    char from[PATH_CAP];
    snprintf(from, sizeof from, GOLDEN "%s", name);
    snprintf(to, PATH_CAP, "%s/%s", dir, as);
    cr_assert_eq(symlink(from, to), 0);
}

static void split_is_same(const char *family, int n, char dir[PATH_CAP]) {
    char name[128], to[PATH_CAP];
    scratch_dir(dir, PATH_CAP);
    for (int i = 1; i <= n; i++) {
        snprintf(name, sizeof name, "%s-split-%05d-of-%05d.gguf", family, i, n);
        link_golden(dir, name, name, to);
    }
    snprintf(name, sizeof name, "%s.mmproj.gguf", family);
    link_golden(dir, name, name, to);
    is_same(family, dir);
}

Test(gguf_vision, split_files_in_a_directory_are_the_same) {
    char dir[PATH_CAP], to[PATH_CAP];
    fv_checkpoint *ck;
    split_is_same("gemma3", 5, dir);
    split_is_same("qwen3_vl_moe", 7, dir); /* gate and up of experts are apart */
    snprintf(to, sizeof to, "%.4000s/qwen3_vl_moe-split-00003-of-00007.gguf", dir);
    cr_assert_eq(remove(to), 0);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "-00003-of-"), "%s", fv_last_error());
    link_golden(dir, "qwen3_vl_moe-split-00002-of-00007.gguf",
                "qwen3_vl_moe-split-00003-of-00007.gguf", to);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "file 2 of 7 by its metadata, and 3 of 7 by its name"), "%s",
              fv_last_error());
}

static void refuses(const char *model, const char *mmproj, fv_status st, const char *words) {
    char pair[PATH_CAP];
    fv_checkpoint *ck;
    snprintf(pair, sizeof pair, "%s+%s", model, mmproj);
    cr_assert_eq(fv_checkpoint_open(*mmproj ? pair : model, &ck), st, "%s", words);
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

Test(gguf_vision, files_that_do_not_belong_together_are_refused) {
    refuses(GOLDEN "qwen2_vl.gguf", "", FV_EINVAL, "give it with --mmproj FILE");
    refuses(GOLDEN "qwen2_vl.mmproj.gguf", "", FV_EINVAL, "this one with --mmproj");
    refuses(GOLDEN "qwen2_vl.gguf", GOLDEN "gemma3.mmproj.gguf", FV_EINVAL,
            "do not belong together: the first has the projector 'gemma3', the second is a qwen2vl "
            "model");
    refuses(GOLDEN "smolvlm.gguf", GOLDEN "gemma3.gguf", FV_EINVAL, "is no vision tower");
}

/* Writes the golden file `name` with one text replaced by another of the same length, and its path. */
static void changed(const char *dir, const char *name, const char *from, const char *to,
                    char path[PATH_CAP]) {
    char *bytes;
    size_t n;
    snprintf(path, PATH_CAP, GOLDEN "%s", name);
    cr_assert_eq(fv_file_read(path, 1 << 24, &bytes, &n), FV_OK);
    char *at = memmem(bytes, n, from, strlen(from));
    cr_assert(at && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    snprintf(path, PATH_CAP, "%s/%s", dir, name);
    cr_assert_eq(fv_file_write(path, bytes, n), FV_OK);
    free(bytes);
}

Test(gguf_vision, unknown_projectors_and_missing_tensors_are_named) {
    char dir[PATH_CAP], path[PATH_CAP];
    scratch_dir(dir, sizeof dir);
    changed(dir, "qwen2_vl.mmproj.gguf", "qwen2vl_merger", "qwen9vl_merger", path);
    refuses(GOLDEN "qwen2_vl.gguf", path, FV_EUNSUPPORTED,
            "clip.projector_type is 'qwen9vl_merger'; mmproj files are read with qwen2vl_merger, ");
    changed(dir, "qwen2_vl.mmproj.gguf", "v.blk.2.attn_v.weight", "v.blk.2.attn_x.weight", path);
    refuses(GOLDEN "qwen2_vl.gguf", path, FV_ENOTFOUND,
            "tensor 'v.blk.2.attn_q.weight' is missing");
    changed(dir, "gemma3.mmproj.gguf", "v.blk.2.ffn_up.bias", "v.blk.2.ffn_xx.bias", path);
    refuses(GOLDEN "gemma3.gguf", path, FV_ENOTFOUND, "tensor 'v.blk.2.ffn_up.bias' is missing");
    changed(dir, "smolvlm.gguf", "<image>", "<omage>", path);
    refuses(path, GOLDEN "smolvlm.mmproj.gguf", FV_EUNSUPPORTED, "has no token '<image>'");
    changed(dir, "qwen2_vl.mmproj.gguf", "clip.vision.block_count", "clip.vision.block_cxxxt",
            path);
    refuses(GOLDEN "qwen2_vl.gguf", path, FV_EDATA, "key 'clip.vision.block_count' is missing");
}
