/* Which files a GGUF checkpoint consists of. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "gguf/files.h"
#include "tests/support/tensor_file.h"

static char dir[1024], at[2048];

static void setup(void) { scratch_dir(dir, sizeof dir); }

static const char *in_dir(const char *name) {
    snprintf(at, sizeof at, "%s/%s", dir, name);
    return at;
}

static void put(const char *name) { write_text(dir, name, ""); }

/* Names are in the directory; mmproj NULL: none. */
static void finds(const char *from, int32_t n, const char *model, const char *mmproj) {
    fv_gguf_files f;
    cr_assert_eq(fv_gguf_files_find(from, &f), FV_OK, "%s", fv_last_error());
    cr_assert_eq(f.n, n, "%d", f.n);
    cr_assert_str_eq(f.model, in_dir(model));
    cr_assert_str_eq(f.mmproj, mmproj ? in_dir(mmproj) : "");
}

static void fails(const char *from, fv_status st, const char *words) {
    fv_gguf_files f;
    cr_assert_eq(fv_gguf_files_find(from, &f), st);
    cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

static void is_none(const char *from) {
    fv_gguf_files f;
    cr_assert_eq(fv_gguf_files_find(from, &f), FV_OK, "%s", fv_last_error());
    cr_assert_eq(f.n, 0);
}

Test(gguf_files, a_file_is_the_model_alone, .init = setup) {
    put("mmproj-m.gguf");
    finds(in_dir("m.gguf"), 1, "m.gguf", NULL);
}

Test(gguf_files, a_directory_has_a_model_and_perhaps_a_tower, .init = setup) {
    is_none(dir);
    is_none(in_dir("absent"));
    put("m-Q4_K_M.gguf");
    put("README.md");
    put("config.json");
    finds(dir, 1, "m-Q4_K_M.gguf", NULL);
    put("m.MMPROJ-f16.gguf");
    finds(dir, 1, "m-Q4_K_M.gguf", "m.MMPROJ-f16.gguf");
    put("model-00001-of-00002.safetensors");
    is_none(dir);
}

Test(gguf_files, several_of_a_kind_are_listed, .init = setup) {
    char pair[FV_CHECKPOINT_PATH], mmproj[2048], both[5000];
    put("b.gguf");
    put("mmproj-f16.gguf");
    put("mmproj-f32.gguf");
    fails(dir, FV_EINVAL, "2 mmproj files (mmproj-f16.gguf, mmproj-f32.gguf): choose one");
    snprintf(mmproj, sizeof mmproj, "%s", in_dir("mmproj-f32.gguf"));
    cr_assert_eq(fv_gguf_name_pair(dir, mmproj, pair), FV_OK, "%s", fv_last_error());
    snprintf(both, sizeof both, "%s+%s", in_dir("b.gguf"), mmproj);
    cr_assert_str_eq(pair, both);
    cr_assert_eq(fv_gguf_name_pair(both, mmproj, pair), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(pair, both);
    put("a.gguf");
    fails(dir, FV_EINVAL, "2 GGUF models (a.gguf, b.gguf): name one by its path");
    cr_assert_eq(fv_gguf_name_pair(dir, mmproj, pair), FV_EINVAL);
    cr_assert_eq(fv_gguf_name_pair(in_dir("a.txt"), mmproj, pair), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "is not a GGUF file, nor a directory"), "%s",
              fv_last_error());
    cr_assert_eq(fv_gguf_name_pair(in_dir("a.gguf"), "mmproj.bin", pair), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "--mmproj: 'mmproj.bin' is not"), "%s", fv_last_error());
}

Test(gguf_files, a_tower_needs_a_model, .init = setup) {
    put("mmproj-m.gguf");
    fails(dir, FV_ENOTFOUND, "no GGUF file of the model");
}

Test(gguf_files, a_pair_is_two_files, .init = setup) {
    char pair[4096], mmproj[2048];
    snprintf(mmproj, sizeof mmproj, "%s", in_dir("v.gguf"));
    snprintf(pair, sizeof pair, "%s+%s", in_dir("m.gguf"), mmproj);
    finds(pair, 1, "m.gguf", "v.gguf");
    cr_assert_eq(fv_gguf_model_bytes(pair), strlen(in_dir("m.gguf")));
    put("odd.gguf+name.gguf"); /* one file */
    finds(in_dir("odd.gguf+name.gguf"), 1, "odd.gguf+name.gguf", NULL);
}

Test(gguf_files, any_part_names_a_split_model, .init = setup) {
    char path[FV_CHECKPOINT_PATH];
    fv_gguf_files f;
    put("m-00001-of-00003.gguf");
    put("m-00002-of-00003.gguf");
    put("m-00003-of-00003.gguf");
    put("mmproj.gguf");
    finds(dir, 3, "m-00001-of-00003.gguf", "mmproj.gguf");
    finds(in_dir("m-00003-of-00003.gguf"), 3, "m-00001-of-00003.gguf", NULL);
    cr_assert_eq(fv_gguf_files_find(dir, &f), FV_OK);
    cr_assert_eq(fv_gguf_files_part(&f, 2, path), FV_OK);
    cr_assert_str_eq(path, in_dir("m-00003-of-00003.gguf"));
    fails(in_dir("m-00004-of-00003.gguf"), FV_EINVAL, "the name says file 4 of 3");
    fails(in_dir("m-00000-of-00003.gguf"), FV_EINVAL, "the name says file 0 of 3");
    fails(in_dir("m-00001-of-00000.gguf"), FV_EINVAL, "the name says file 1 of 0");
    fails(in_dir("m-00001-of-99999.gguf"), FV_EINVAL, "at most 1024");
    finds(in_dir("m-1-of-3.gguf"), 1, "m-1-of-3.gguf", NULL);
    put("other-00002-of-00002.gguf"); /* the first file is missing: no model begins here */
    finds(dir, 3, "m-00001-of-00003.gguf", "mmproj.gguf");
}
