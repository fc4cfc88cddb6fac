/* text/tokenizer_config: what clients are told of a checkpoint's tokenizer. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tensor_file.h"
#include "text/tokenizer_config.h"

static json_t *told(const char *dir, const char *program) {
    char *text;
    cr_assert_eq(fv_tokenizer_config(dir, program, &text), FV_OK, "%s", fv_last_error());
    json_t *config = json_loads(text, 0, NULL);
    cr_assert(config, "%s", text);
    free(text);
    return config;
}

static const char *word(const json_t *config, const char *key) {
    return json_string_value(json_object_get(config, key));
}

Test(tokenizer_config, the_file_is_told_without_names_of_files) {
    char dir[256];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json",
               "{\"tokenizer_class\":\"LlamaTokenizer\",\"name_or_path\":\"/home/me/secret\","
               "\"vocab_file\":\"/home/me/v\",\"chat_template\":\"old\",\"bos_token\":{\"content\":"
               "\"<s>\"},\"model_max_length\":1000000000000000019884624838656,\"sizes\":[336,0.5],"
               "\"added_tokens_decoder\":{\"7\":{\"content\":\"\\u00e9\",\"special\":true}}}");
    json_t *config = told(dir, "{{ messages }}");
    cr_assert_str_eq(word(config, "tokenizer_class"), "LlamaTokenizer");
    cr_assert_str_eq(word(config, "chat_template"), "{{ messages }}");
    cr_assert(!json_object_get(config, "name_or_path") && !json_object_get(config, "vocab_file"));
    cr_assert_str_eq(word(json_object_get(config, "bos_token"), "content"), "<s>");
    const json_t *sizes = json_object_get(config, "sizes");
    cr_assert_eq(json_integer_value(json_array_get(sizes, 0)), 336);
    cr_assert_eq(json_real_value(json_array_get(sizes, 1)), 0.5);
    cr_assert_eq(json_real_value(json_object_get(config, "model_max_length")), 1e30);
    const json_t *added = json_object_get(json_object_get(config, "added_tokens_decoder"), "7");
    cr_assert_str_eq(word(added, "content"), "\xc3\xa9");
    json_decref(config);
}

Test(tokenizer_config, the_template_is_the_servers_the_files_or_none) {
    char dir[256];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json", "{\"chat_template\":\"old\"}");
    json_t *own = told(dir, NULL), *none = told(dir, "");
    cr_assert_str_eq(word(own, "chat_template"), "old");
    cr_assert(!json_object_get(none, "chat_template"));
    json_decref(own);
    json_decref(none);
}

Test(tokenizer_config, a_checkpoint_without_the_file_has_a_class) {
    char dir[256];
    scratch_dir(dir, sizeof dir);
    json_t *config = told(dir, NULL);
    cr_assert_str_eq(word(config, "tokenizer_class"), "PreTrainedTokenizerFast");
    cr_assert_eq(json_object_size(config), 1);
    json_decref(config);
}

Test(tokenizer_config, a_broken_file_and_a_large_template_are_refused) {
    char dir[256], *text, *large = malloc(FV_TOKENIZER_CONFIG_BYTES + 1);
    scratch_dir(dir, sizeof dir);
    memset(large, 'a', FV_TOKENIZER_CONFIG_BYTES);
    large[FV_TOKENIZER_CONFIG_BYTES] = '\0';
    cr_assert_eq(fv_tokenizer_config(dir, large, &text), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "more than"), "%s", fv_last_error());
    write_text(dir, "tokenizer_config.json", "{\"a\":");
    cr_assert_eq(fv_tokenizer_config(dir, NULL, &text), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "tokenizer_config.json"), "%s", fv_last_error());
    free(large);
}
