/* Tokenizers made of files other than tokenizer.json: the ids of their own libraries (golden files, see
 * tests/parity/tokenizer_files_golden.py), and broken files. */
#include "text/tokenizer_made.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/tensor_file.h"
#include "text/json.h"
#include "text/sentencepiece.h"
#include "text/tokenizer.h"

#define GOLDEN FOVEA_TEST_DATA "/golden/tokenizer_files/"
#define JSON_FORMS FOVEA_TEST_DATA "/golden/tokenizer/"

static char *read_whole(const char *path, size_t *n) {
    char *text;
    cr_assert_eq(fv_file_read(path, 1 << 24, &text, n), FV_OK, "%s", fv_last_error());
    return text;
}

static json_t *read_json(const char *path) {
    size_t n;
    json_t *root;
    char *text = read_whole(path, &n);
    cr_assert_eq(fv_json_object(text, n, path, &root), FV_OK, "%s", fv_last_error());
    free(text);
    return root;
}

static void check_case(const fv_tokenizer *tok, const json_t *c, const char *form, size_t at) {
    const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
    const json_t *decoded = json_object_get(c, "decoded");
    int32_t *found, n;
    char *back;
    size_t bytes;
    cr_assert_eq(fv_tokenizer_encode(tok, json_string_value(text), json_string_length(text), false,
                                     &found, &n),
                 FV_OK);
    cr_assert_eq((size_t)n, json_array_size(ids), "%s case %zu: %d ids", form, at, n);
    for (int32_t i = 0; i < n; i++)
        cr_assert_eq(found[i], json_integer_value(json_array_get(ids, (size_t)i)),
                     "%s case %zu: id %d", form, at, i);
    cr_assert_eq(fv_tokenizer_decode(tok, found, n, false, &back, &bytes), FV_OK);
    cr_assert(bytes == json_string_length(decoded) &&
                  memcmp(back, json_string_value(decoded), bytes) == 0,
              "%s case %zu: '%s'", form, at, back);
    free(found);
    free(back);
}

/* SentencePiece sees no special tokens in a text: all of it is the user's. */
static void check_users_case(const fv_tokenizer *tok, const json_t *c, const char *form,
                             size_t at) {
    const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
    const json_t *decoded = json_object_get(c, "decoded");
    const size_t bytes = json_string_length(text);
    uint8_t *user = malloc(bytes + 1);
    int32_t *found, n;
    char *back;
    size_t n_back;
    memset(user, 1, bytes + 1);
    cr_assert_eq(fv_tokenizer_encode_marked(tok, json_string_value(text), bytes, false,
                                            &(fv_text_marks){user, -1}, &found, &n),
                 FV_OK, "%s", fv_last_error());
    size_t same = 0;
    while (same < (size_t)n && same < json_array_size(ids) &&
           found[same] == json_integer_value(json_array_get(ids, same)))
        same++;
    cr_assert(same == (size_t)n && same == json_array_size(ids),
              "%s case %zu: id %zu of %d (%zu) is %d: '%s'", form, at, same, n,
              json_array_size(ids), same < (size_t)n ? found[same] : -1, json_string_value(text));
    cr_assert_eq(fv_tokenizer_decode(tok, found, n, false, &back, &n_back), FV_OK);
    cr_assert(!decoded || (n_back == json_string_length(decoded) &&
                           memcmp(back, json_string_value(decoded), n_back) == 0),
              "%s case %zu: '%s', not '%s'", form, at, back, json_string_value(decoded));
    free(user);
    free(found);
    free(back);
}

static void check_form(const char *where, const char *form,
                       void (*check)(const fv_tokenizer *, const json_t *, const char *, size_t)) {
    char path[512];
    fv_tokenizer *tok;
    size_t i;
    const json_t *c;
    snprintf(path, sizeof path, "%s/%s", where, form);
    cr_assert_eq(fv_tokenizer_open(path, &tok), FV_OK, "%s", fv_last_error());
    snprintf(path, sizeof path, "%s/%s/cases.json", where, form);
    size_t n;
    char *text = read_whole(path, &n);
    json_t *cases = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    cr_assert_geq(json_array_size(cases), 100);
    json_array_foreach(cases, i, c) check(tok, c, form, i);
    json_decref(cases);
    free(text);
    fv_tokenizer_free(tok);
}

Test(tokenizer_made, a_llama_sentencepiece_model_gives_its_ids, .timeout = 240) {
    check_form(GOLDEN, "llama", check_case);
}
Test(tokenizer_made, a_gemma_sentencepiece_model_gives_its_ids, .timeout = 240) {
    check_form(GOLDEN, "gemma", check_case);
}
Test(tokenizer_made, tekken_gives_the_ids_of_transformers, .timeout = 240) {
    check_form(GOLDEN, "mistral", check_case);
}

/* Unigram models, and models whose normalizer changes characters and white space. */
Test(tokenizer_made, sentencepiece_models_with_a_normalizer_give_its_ids, .timeout = 240) {
    const char *where = getenv("FOVEA_TOKENIZER_FILES");
    if (!where) where = GOLDEN;
    DIR *dir = opendir(where);
    int n = 0;
    cr_assert_not_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, "spiece-", 7) != 0) continue;
        check_form(where, e->d_name, check_users_case);
        n++;
    }
    closedir(dir);
    cr_assert_geq(n, 4);
}

Test(tokenizer_made, what_a_user_writes_is_no_token_of_a_unigram_model) {
    static const char text[] = "<s>a<image>b</s>";
    fv_tokenizer *tok;
    int32_t *ids, n;
    uint8_t user[sizeof text];
    memset(user, 1, sizeof user);
    cr_assert_eq(fv_tokenizer_open(GOLDEN "spiece-unigram", &tok), FV_OK, "%s", fv_last_error());
    const int32_t image = fv_tokenizer_id(tok, "<image>"), start = fv_tokenizer_id(tok, "<s>");
    for (int marked = 0; marked < 2; marked++) {
        int images = 0, starts = 0;
        cr_assert_eq(fv_tokenizer_encode_marked(tok, text, sizeof text - 1, false,
                                                marked ? &(fv_text_marks){user, image} : NULL, &ids,
                                                &n),
                     FV_OK);
        for (int32_t i = 0; i < n; i++) {
            images += ids[i] == image;
            starts += ids[i] == start;
        }
        cr_assert(images == !marked && starts == !marked, "%d %d", images, starts);
        free(ids);
    }
    fv_tokenizer_free(tok);
}

Test(tokenizer_made, added_tokens_and_bos_come_from_the_config) {
    fv_tokenizer *tok;
    int32_t *ids, n;
    cr_assert_eq(fv_tokenizer_open(GOLDEN "llama", &tok), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tokenizer_id(tok, "<image>"), 1400);
    cr_assert(fv_tokenizer_is_special(tok, 1400));
    cr_assert_eq(fv_tokenizer_encode(tok, "<image>", 7, true, &ids, &n), FV_OK);
    cr_assert(n == 2 && ids[0] == 1 && ids[1] == 1400, "%d: %d %d", n, ids[0], ids[1]);
    free(ids);
    fv_tokenizer_free(tok);
    cr_assert_eq(fv_tokenizer_open(GOLDEN "gemma", &tok), FV_OK, "%s", fv_last_error());
    cr_assert(fv_tokenizer_is_special(tok, fv_tokenizer_id(tok, "<start_of_turn>")));
    cr_assert(!fv_tokenizer_is_special(tok, fv_tokenizer_id(tok, "<b>")));
    cr_assert_eq(fv_tokenizer_encode(tok, "", 0, true, &ids, &n), FV_OK);
    cr_assert(n == 1 && ids[0] == fv_tokenizer_id(tok, "<bos>"));
    free(ids);
    fv_tokenizer_free(tok);
}

Test(tokenizer_made, special_tokens_of_tekken_have_their_ranks_in_any_order) {
    static const char text[] =
        "{\"config\":{\"pattern\":\"a\",\"default_num_special_tokens\":4},"
        "\"vocab\":[{\"token_bytes\":\"YQ==\"}],"
        "\"special_tokens\":[{\"rank\":2,\"token_str\":\"</"
        "s>\"},{\"rank\":9,\"token_str\":\"far\"},"
        "{\"rank\":0,\"token_str\":\"<unk>\"},{\"rank\":1,\"token_str\":\"<s>\"}%s]}";
    static const char *const want[] = {"<unk>", "<s>", "</s>"};
    char file[1024];
    json_t *root = NULL;
    snprintf(file, sizeof file, text, ",{\"rank\":3,\"token_str\":\"<pad>\"}");
    cr_assert_neq(fv_tokenizer_of_tekken(file, strlen(file), "t", &root), FV_OK,
                  "five tokens, four places");
    snprintf(file, sizeof file, text, "");
    cr_assert_eq(fv_tokenizer_of_tekken(file, strlen(file), "t", &root), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "3 is missing"), "%s", fv_last_error());
    char *far = strstr(file, ":9,");
    far[1] = '3';
    cr_assert_eq(fv_tokenizer_of_tekken(file, strlen(file), "t", &root), FV_OK, "%s",
                 fv_last_error());
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    for (int i = 0; i < 3; i++)
        cr_expect_eq(json_integer_value(json_object_get(vocab, want[i])), i, "%s", want[i]);
    cr_expect_eq(json_integer_value(json_object_get(vocab, "far")), 3);
    cr_expect_eq(json_integer_value(json_object_get(vocab, "a")), 4);
    json_decref(root);
}

/* ---- vocab.json and merges.txt ---- */

static char dir[256];

static void put_json(const char *name, json_t *value) {
    char *text = json_dumps(value, 0);
    write_text(dir, name, text);
    free(text);
    json_decref(value);
}

/* Writes a golden tokenizer.json as vocab.json, merges.txt and tokenizer_config.json. */
static void split_form(const char *form, const char *class) {
    char path[512], *lines;
    size_t n, i;
    const json_t *m, *t;
    FILE *f = open_memstream(&lines, &n);
    snprintf(path, sizeof path, JSON_FORMS "%s.json", form);
    json_t *root = read_json(path), *model = json_object_get(root, "model"),
           *decoder = json_object();
    fputs("#version: 0.2\n", f);
    json_array_foreach(json_object_get(model, "merges"), i, m) {
        if (json_is_string(m)) fprintf(f, "%s\n", json_string_value(m));
        if (json_is_array(m))
            fprintf(f, "%s %s\n", json_string_value(json_array_get(m, 0)),
                    json_string_value(json_array_get(m, 1)));
    }
    fclose(f);
    json_array_foreach(json_object_get(root, "added_tokens"), i, t) {
        char key[24];
        snprintf(key, sizeof key, "%lld", (long long)json_integer_value(json_object_get(t, "id")));
        json_object_set(decoder, key, (json_t *)(uintptr_t)t);
    }
    scratch_dir(dir, sizeof dir);
    write_text(dir, "merges.txt", lines);
    put_json("vocab.json", json_incref(json_object_get(model, "vocab")));
    put_json("tokenizer_config.json",
             json_pack("{s:s, s:o}", "tokenizer_class", class, "added_tokens_decoder", decoder));
    free(lines);
    json_decref(root);
}

static void compare_split(const char *form) {
    char path[512];
    fv_tokenizer *whole, *made;
    size_t n, bytes;
    snprintf(path, sizeof path, JSON_FORMS "%s.json", form);
    char *json = read_whole(path, &bytes), *text = read_whole(JSON_FORMS "corpus.txt", &n);
    cr_assert_eq(fv_tokenizer_parse(json, bytes, path, &whole), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tokenizer_open(dir, &made), FV_OK, "%s", fv_last_error());
    for (size_t at = 0; at < n; at += 97) {
        int32_t *a, *b, n_a, n_b;
        size_t length = n - at < 200 ? n - at : 200;
        cr_assert_eq(fv_tokenizer_encode(whole, text + at, length, true, &a, &n_a), FV_OK);
        cr_assert_eq(fv_tokenizer_encode(made, text + at, length, true, &b, &n_b), FV_OK);
        cr_assert(n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof *a) == 0, "%s at %zu", form, at);
        free(a);
        free(b);
    }
    free(json);
    free(text);
    fv_tokenizer_free(whole);
    fv_tokenizer_free(made);
}

Test(tokenizer_made, vocab_and_merges_give_the_ids_of_tokenizer_json, .timeout = 240) {
    split_form("qwen2", "Qwen2TokenizerFast");
    compare_split("qwen2");
    split_form("gpt2", "GPT2Tokenizer");
    compare_split("gpt2");
}

static void refused(fv_status st, const char *words) {
    fv_tokenizer *tok;
    cr_assert_eq(fv_tokenizer_open(dir, &tok), st, "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
}

Test(tokenizer_made, what_cannot_be_made_is_refused_by_name) {
    char path[512];
    split_form("gpt2", "CodeGenTokenizer");
    refused(FV_EUNSUPPORTED, "'CodeGenTokenizer'");
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    cr_assert_eq(remove(path), 0);
    refused(FV_ENOTFOUND, "neither vocab.json nor tokenizer.json");
    scratch_dir(dir, sizeof dir);
    refused(FV_ENOTFOUND, "has no tokenizer.json");
    write_text(dir, "tokenizer.model",
               "\x0a\x05\x0a\x03"
               "abc"
               "\x12\x02\x18\x04");
    refused(FV_EUNSUPPORTED, "of type char");
    write_text(dir, "tokenizer.model",
               "\x0a\x05\x0a\x03"
               "abc"
               "\x12\x02\x18\x01\x1a\x05\x12\x03"
               "abc");
    refused(FV_EDATA, "precompiled_charsmap is broken");
    write_text(dir, "tokenizer.model",
               "\x0a\x05\x0a\x03"
               "abc"
               "\x12\x02\x18\x02\x2a\x05\x12\x03"
               "abc");
    refused(FV_EUNSUPPORTED, "denormalizer_spec");
    write_text(dir, "tokenizer.model", "version https://git-lfs.github.com/spec/v1\n");
    refused(FV_EDATA, "Git LFS pointer");
    write_text(dir, "tekken.json", "{\"config\": {}}");
    refused(FV_EDATA, "config.pattern or vocab is missing");
    write_text(dir, "tekken.json",
               "{\"config\":{\"pattern\":\"a\"},\"vocab\":[{\"token_bytes\":\"?\"}],"
               "\"special_tokens\":[]}");
    refused(FV_EDATA, "bytes in base64");
    write_text(dir, "tekken.json",
               "{\"config\":{\"pattern\":\"a\"},\"vocab\":[{\"token_bytes\":\"YQ==\"}],"
               "\"special_tokens\":[{\"rank\":1,\"token_str\":\"x\"}]}");
    refused(FV_EDATA, "0 is missing");
}

Test(tokenizer_made, a_sentencepiece_model_that_is_cut_short_is_refused) {
    size_t n;
    char *bytes = read_whole(GOLDEN "llama/tokenizer.model", &n);
    int refusals = 0;
    for (size_t k = 0; k < n; k += k < 400 ? 1 : 61) {
        json_t *root = NULL;
        if (fv_tokenizer_of_sentencepiece(bytes, k, "m", NULL, NULL, &root) != FV_OK) refusals++;
        json_decref(root);
    }
    cr_assert_gt(refusals, 400);
    free(bytes);
}
