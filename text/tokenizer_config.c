/* Reads tokenizer_config.json and writes it again for clients. The file is read at each call: calls are rare,
 * and a Gemma's has a megabyte that would otherwise be held for good. Any thread. */
#include "text/tokenizer_config.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/texts.h"
#include "text/json.h"

#define FILE_NAME "tokenizer_config.json"

static fv_status read_file(const char *from, json_t **out) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t n;
    FV_TRY(fv_checkpoint_file(from, FILE_NAME, FV_TOKENIZER_CONFIG_BYTES, path, &text, &n));
    if (!text) {
        *out = json_object();
        return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "no memory for " FILE_NAME);
    }
    fv_status st = fv_json_object(text, n, FILE_NAME, out);
    free(text);
    return st;
}

/* Makes integers of real numbers without a fraction, which fv_json_object leaves where one number of the
 * file is beyond 64 bits: model_max_length is 10^30 for "no limit". */
static json_t *with_integers(json_t *v) {
    const char *key;
    json_t *item;
    size_t i;
    void *next;
    const double x = json_real_value(v);
    if (json_is_real(v) && x >= -0x1p53 && x <= 0x1p53 && x == (double)(json_int_t)x)
        return json_integer((json_int_t)x);
    json_array_foreach(v, i, item) json_array_set_new(v, i, with_integers(item));
    json_object_foreach_safe(v, next, key, item) json_object_set_new(v, key, with_integers(item));
    return json_incref(v);
}

static void leave_out_files(json_t *config) {
    static const char *const keys[] = {"vocab_file",   "merges_file",
                                       "name_or_path", "special_tokens_map_file",
                                       "spm_file",     "tokenizer_file"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_del(config, keys[i]);
}

static bool complete(json_t *config, const char *program) {
    int failed = 0;
    if (!json_is_string(json_object_get(config, "tokenizer_class")))
        failed |=
            json_object_set_new(config, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    if (program && program[0])
        failed |= json_object_set_new(config, "chat_template", json_string(program));
    else if (program)
        json_object_del(config, "chat_template");
    return !failed;
}

fv_status fv_tokenizer_config(const char *from, const char *program, char **json) {
    json_t *read, *config;
    FV_TRY(read_file(from, &read));
    config = with_integers(read);
    json_decref(read);
    leave_out_files(config);
    char *text = complete(config, program) ? json_dumps(config, JSON_COMPACT) : NULL;
    json_decref(config);
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory for " FILE_NAME);
    if (strlen(text) > FV_TOKENIZER_CONFIG_BYTES) {
        free(text);
        return FV_FAIL(FV_EUNSUPPORTED, FILE_NAME " with the chat template has more than %d bytes",
                       FV_TOKENIZER_CONFIG_BYTES);
    }
    *json = text;
    return FV_OK;
}
