/* model/hub: checkpoints by their names on the Hugging Face Hub, in a cache made here. */
#include "model/hub.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"

static char root[300], out[FV_HUB_PATH_MAX];

static void make(void) {
    snprintf(root, sizeof root, "%s/hub-%d", FOVEA_TEST_TMP, (int)getpid());
    cr_assert_eq(fv_dir_make(root), FV_OK);
}

static void drop(void) {
    char line[400];
    snprintf(line, sizeof line, "rm -rf '%s'", root);
    cr_assert_eq(system(line), 0);
}

TestSuite(hub, .init = make, .fini = drop);

/* Writes root/path, with its folders. */
static void put(const char *path, const char *text) {
    char whole[700], *slash;
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    slash = strrchr(whole, '/');
    *slash = '\0';
    cr_assert_eq(fv_dir_make(whole), FV_OK);
    *slash = '/';
    cr_assert_eq(fv_file_write(whole, text, strlen(text)), FV_OK, "%s", fv_last_error());
}

static void put_model(const char *hub, const char *folder) {
    static const char *const files[] = {"refs/main", "snapshots/0a1b/config.json",
                                        "snapshots/0a1b/tokenizer.json",
                                        "snapshots/0a1b/model.safetensors"};
    char path[300];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", hub, folder, files[i]);
        put(path, i == 0 ? "0a1b\n" : "{}");
    }
}

/* Expects the model in root/path. */
static void finds(const fv_hub_places *p, const char *model, const char *path) {
    char expected[700];
    snprintf(expected, sizeof expected, "%s/%s", root, path);
    cr_assert_eq(fv_hub_find(p, model, out), FV_OK, "%s: %s", model, fv_last_error());
    cr_assert_str_eq(out, expected);
}

static void fails(const fv_hub_places *p, const char *model, fv_status st, const char *words) {
    cr_assert_eq(fv_hub_find(p, model, out), st, "%s", model);
    cr_assert(strstr(fv_last_error(), words), "%s: '%s' is not in: %s", model, words,
              fv_last_error());
}

Test(hub, the_cache_is_where_the_variables_say) {
    char a[400], b[400], c[400], d[400];
    snprintf(a, sizeof a, "%s/a", root);
    snprintf(b, sizeof b, "%s/b", root);
    snprintf(c, sizeof c, "%s/c", root);
    snprintf(d, sizeof d, "%s/d", root);
    put_model("a", "models--org--m");
    put_model("b/hub", "models--org--m");
    put_model("c/huggingface/hub", "models--org--m");
    put_model("d/.cache/huggingface/hub", "models--org--m");
    fv_hub_places p = {a, b, c, d};
    finds(&p, "org/m", "a/models--org--m/snapshots/0a1b");
    p.hub_cache = "";
    finds(&p, "org/m", "b/hub/models--org--m/snapshots/0a1b");
    p.hf_home = NULL;
    finds(&p, "org/m", "c/huggingface/hub/models--org--m/snapshots/0a1b");
    p.cache_home = NULL;
    finds(&p, "org/m", "d/.cache/huggingface/hub/models--org--m/snapshots/0a1b");
    p.hf_home = "~/.cache/huggingface";
    finds(&p, "org/m", "d/.cache/huggingface/hub/models--org--m/snapshots/0a1b");
    p = (fv_hub_places){0};
    fails(&p, "org/m", FV_EINVAL, "set HF_HOME");
}

Test(hub, a_directory_or_file_that_exists_is_itself) {
    const fv_hub_places p = {.hub_cache = root};
    cr_assert_eq(fv_hub_find(&p, root, out), FV_OK);
    cr_assert_str_eq(out, root);
    fails(&p, "/nowhere/at/all", FV_ENOTFOUND, "there is no directory '/nowhere/at/all'");
    fails(&p, "a/b/c", FV_ENOTFOUND, "there is no directory");
    fails(&p, "../up", FV_ENOTFOUND, "there is no directory");
    fails(&p, "org/--", FV_ENOTFOUND, "there is no directory");
    fails(&p, "", FV_ENOTFOUND, "there is no directory");
}

Test(hub, other_tokenizers_and_weights_of_any_name_are_complete_too) {
    const fv_hub_places p = {.hub_cache = root};
    put("models--org--m/refs/main", "0a1b");
    put("models--org--m/snapshots/0a1b/config.json", "{}");
    put("models--org--m/snapshots/0a1b/merges.txt", "");
    put("models--org--m/snapshots/0a1b/weights.safetensors", "");
    fails(&p, "org/m", FV_ENOTFOUND, "lacks tokenizer.json in ");
    put("models--org--m/snapshots/0a1b/vocab.json", "{}");
    finds(&p, "org/m", "models--org--m/snapshots/0a1b");
    put("models--org--n/refs/main", "0a1b");
    put("models--org--n/snapshots/0a1b/config.json", "{}");
    put("models--org--n/snapshots/0a1b/tokenizer.model", "");
    fails(&p, "org/n", FV_ENOTFOUND, "lacks model.safetensors in ");
    cr_assert_eq(fv_hub_locate(&p, "org/n", out), FV_OK);
    put("models--org--n/snapshots/0a1b/pytorch_model.bin", ""); /* opening it explains it */
    finds(&p, "org/n", "models--org--n/snapshots/0a1b");
}

Test(hub, what_is_missing_is_named_with_the_command_that_fetches_it) {
    const fv_hub_places p = {.hub_cache = root};
    char path[700];
    fails(&p, "org/m", FV_ENOTFOUND, "`hf download org/m`");
    put("models--org--m/blobs/x", "");
    fails(&p, "org/m", FV_ENOTFOUND, "no refs/main");
    put("models--org--m/refs/main", "../../x");
    fails(&p, "org/m", FV_EDATA, "does not name a commit");
    put("models--org--m/refs/main", "0a1b");
    fails(&p, "org/m", FV_ENOTFOUND, "snapshots/0a1b");
    put("models--org--m/snapshots/0a1b/README.md", "");
    fails(&p, "org/m", FV_ENOTFOUND, "lacks config.json, tokenizer.json, model.safetensors in ");
    put_model(".", "models--org--m");
    finds(&p, "org/m", "models--org--m/snapshots/0a1b");
    put("models--org--m/snapshots/0a1b/model.safetensors.index.json",
        "{\"weight_map\": {\"a\": \"model-1-of-2.safetensors\", \"b\": "
        "\"model-2-of-2.safetensors\","
        " \"c\": \"model-2-of-2.safetensors\"}}");
    put("models--org--m/snapshots/0a1b/model-1-of-2.safetensors", "");
    fails(&p, "org/m", FV_ENOTFOUND, "org/m lacks model-2-of-2.safetensors in ");
    snprintf(path, sizeof path, "%s/models--org--m/snapshots/0a1b/model-2-of-2.safetensors", root);
    cr_assert_eq(symlink("../../blobs/gone", path), 0); /* as of an interrupted download */
    fails(&p, "org/m", FV_ENOTFOUND, "lacks model-2-of-2.safetensors");
    put("models--org--m/snapshots/0a1b/model.safetensors.index.json", "[");
    fails(&p, "org/m", FV_EDATA, "index.json");
}

Test(hub, many_missing_files_do_not_overflow_the_sentence) {
    const fv_hub_places p = {.hub_cache = root};
    char text[20000] = "{\"weight_map\": {\"x\": \"y\"";
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 ", \"t%d\": \"model-%05d-of-00200.safetensors\"", i, i);
    strcat(text, "}}");
    put_model(".", "models--org--m");
    put("models--org--m/snapshots/0a1b/model.safetensors.index.json", text);
    fails(&p, "org/m", FV_ENOTFOUND, ", ... in ");
}

Test(hub, a_model_of_one_gguf_file_is_that_file) {
    const fv_hub_places p = {.hub_cache = root};
    put("models--gpt/refs/main", "0a1b");
    put("models--gpt/snapshots/0a1b/gpt-q8.gguf", "");
    finds(&p, "gpt", "models--gpt/snapshots/0a1b/gpt-q8.gguf");
    put("models--gpt/snapshots/0a1b/gpt-q4.gguf", "");
    fails(&p, "gpt", FV_EINVAL, "has 2 GGUF models (");
}

Test(hub, a_model_of_a_gguf_file_and_a_tower_is_their_directory) {
    const fv_hub_places p = {.hub_cache = root};
    put("models--vl/refs/main", "0a1b");
    put("models--vl/snapshots/0a1b/config.json", "{}");
    put("models--vl/snapshots/0a1b/vl-q8.gguf", "");
    put("models--vl/snapshots/0a1b/mmproj-vl-f16.gguf", "");
    finds(&p, "vl", "models--vl/snapshots/0a1b");
}

static void named(const char *path, const char *expected) {
    char name[200];
    fv_hub_name(path, name, sizeof name);
    cr_assert_str_eq(name, expected, "%s: %s", path, name);
}

Test(hub, a_checkpoint_is_called_as_on_the_hub_or_as_its_directory) {
    char here[FV_HUB_PATH_MAX];
    named("/x/hub/models--org--a-7b-hf/snapshots/0123abcd", "org/a-7b-hf");
    named("/x/hub/models--org--a/snapshots/0123abcd/", "org/a");
    named("/x/hub/models--org--a/snapshots/0123abcd/a.gguf", "org/a");
    named("/x/hub/models--gpt2/snapshots/0123abcd", "gpt2");
    named("models--org--a/snapshots/1", "org/a");
    named("/x/snapshots/0123abcd", "0123abcd");
    named("/x/llava-1.5-7b/", "llava-1.5-7b");
    named("nano", "nano");
    named("/", "");
    cr_assert_eq(chdir(root), 0);
    cr_assert_not_null(getcwd(here, sizeof here));
    named(".", strrchr(here, '/') + 1);
}
