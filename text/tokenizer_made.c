/* Makes the tree of tokenizer.json from other files: what all kinds share, and the choice of the file. Any
 * thread. */
#include "text/tokenizer_made.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/texts.h"
#include "text/json.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_made_internal.h"

enum { CONFIG_MAX = 16 << 20, PATH_MAX_MADE = 4096 };

/* ---- parts of the tree ---------------------------------------------------------------------- */

json_t *fv_made_step(const char *json) { return json_loads(json, 0, NULL); }

json_t *fv_made_sequence(const char *key, json_t *steps) {
    return json_pack("{s:s, s:o}", "type", "Sequence", key, steps);
}

json_t *fv_made_model(json_t *root, json_t *vocab) {
    json_t *model = json_pack("{s:s, s:o, s:[]}", "type", "BPE", "vocab", vocab, "merges");
    return json_object_set_new(root, "model", model) == 0 ? model : NULL;
}

bool fv_made_byte_level(json_t *root, const char *regex, bool prefix) {
    json_t *steps = json_array();
    json_array_append_new(steps, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern",
                                           "Regex", regex, "behavior", "Isolated", "invert", 0));
    json_array_append_new(steps, json_pack("{s:s, s:b, s:b}", "type", "ByteLevel",
                                           "add_prefix_space", prefix, "use_regex", 0));
    bool whole = json_array_size(steps) == 2;
    whole &=
        json_object_set_new(root, "pre_tokenizer", fv_made_sequence("pretokenizers", steps)) == 0;
    return whole &&
           json_object_set_new(root, "decoder", fv_made_step("{\"type\": \"ByteLevel\"}")) == 0;
}

const char *fv_made_named(const json_t *config, const char *key, const char *usual) {
    const json_t *v = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    return text ? text : usual;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static json_t *token_of(json_int_t id, json_t *content, bool special) {
    return json_pack("{s:I, s:O?, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content,
                     "special", special, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized",
                     0);
}

static bool set_token(json_t *tokens, json_int_t id, json_t *token) {
    char key[24];
    snprintf(key, sizeof key, "%08lld", (long long)id); /* sorts as the number */
    return json_object_set_new(tokens, key, token) == 0;
}

bool fv_made_add_token(json_t *tokens, json_int_t id, const char *text, size_t n, bool special) {
    json_t *content = json_stringn(text, n);
    bool added = content && set_token(tokens, id, token_of(id, content, special));
    json_decref(content);
    return added;
}

json_t *fv_made_find_token(json_t *tokens, json_int_t id) {
    char key[24];
    snprintf(key, sizeof key, "%08lld", (long long)id);
    return json_object_get(tokens, key);
}

/* Reads the id that is a key of added_tokens_decoder. */
static bool read_id(const char *key, json_int_t *id) {
    char *end;
    errno = 0;
    const long v = strtol(key, &end, 10);
    *id = v;
    return errno == 0 && end != key && !*end && v >= 0 && v <= FV_TOK_ID_MAX;
}

/* {"32000": {"content": "<image>", "special": true, ...}} */
static fv_status add_decoder(json_t *tokens, const json_t *config, const char *where) {
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, v) {
        json_int_t id;
        if (!read_id(key, &id) || !json_is_object(v) ||
            !json_is_string(json_object_get(v, "content")))
            return FV_FAIL(FV_EDATA,
                           "%s: key 'added_tokens_decoder' of tokenizer_config.json holds '%.40s', "
                           "which is no id of an added token",
                           where, key);
        json_t *token = token_of(id, json_object_get(v, "content"), false);
        if (json_object_update(token, v) != 0 || !set_token(tokens, id, token))
            return FV_FAIL(FV_ENOMEM, "%s: no memory for added tokens", where);
    }
    return FV_OK;
}

static bool is_named_special(const json_t *config, const char *text) {
    const char *key;
    json_t *v, *item;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)config, key, v) {
        size_t n = strlen(key);
        const char *name =
            n > 6 && !strcmp(key + n - 6, "_token") ? fv_made_named(config, key, "") : "";
        if (!strcmp(name, text)) return true;
    }
    json_array_foreach(json_object_get(config, "additional_special_tokens"), i, item) {
        const char *name =
            json_string_value(json_is_object(item) ? json_object_get(item, "content") : item);
        if (name && !strcmp(name, text)) return true;
    }
    return false;
}

/* {"<image>": 32000} */
static fv_status add_listed(json_t *tokens, const json_t *config, const json_t *added,
                            const char *where) {
    const char *text;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)added, text, v) {
        char key[24];
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > FV_TOK_ID_MAX)
            return FV_FAIL(FV_EDATA, "%s: added_tokens.json gives '%.40s' no id", where, text);
        snprintf(key, sizeof key, "%08lld", (long long)id);
        if (json_object_get(tokens, key)) continue;
        if (!fv_made_add_token(tokens, id, text, strlen(text), is_named_special(config, text)))
            return FV_FAIL(FV_ENOMEM, "%s: no memory for added tokens", where);
    }
    return FV_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

fv_status fv_made_finish_tokens(json_t *root, json_t *tokens, const json_t *config,
                                const json_t *added, const char *where) {
    FV_TRY(add_decoder(tokens, config, where));
    FV_TRY(add_listed(tokens, config, added, where));
    size_t n = 0;
    const char *key;
    json_t *v, *list = json_array();
    const char **keys = calloc(json_object_size(tokens) + 1, sizeof *keys);
    bool whole = keys && list;
    if (keys) {
        json_object_foreach(tokens, key, v) keys[n++] = key;
        qsort(keys, n, sizeof *keys, by_key);
    }
    for (size_t i = 0; i < n && whole; i++)
        whole = json_array_append(list, json_object_get(tokens, keys[i])) == 0;
    free(keys);
    whole &= json_object_set_new(root, "added_tokens", list) == 0;
    return whole ? FV_OK : FV_FAIL(FV_ENOMEM, "%s: no memory for added tokens", where);
}

static bool id_of(const json_t *root, const char *text, json_int_t *id) {
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *item;
    const json_t *found = json_object_get(vocab, text);
    size_t i;
    if (json_is_integer(found)) {
        *id = json_integer_value(found);
        return true;
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, item) {
        const char *content = json_string_value(json_object_get(item, "content"));
        if (!content || strcmp(content, text) != 0) continue;
        *id = json_integer_value(json_object_get(item, "id"));
        return true;
    }
    return false;
}

fv_status fv_made_add_template(json_t *root, const json_t *config, bool bos, const char *where) {
    bool ends[2] = {bos, false};
    static const char *const keys[2][3] = {{"add_bos_token", "bos_token", "<s>"},
                                           {"add_eos_token", "eos_token", "</s>"}};
    json_t *single = json_array(), *special = json_object();
    bool whole = single && special;
    for (int e = 0; e < 2; e++) {
        const json_t *said = json_object_get(config, keys[e][0]);
        const char *text = fv_made_named(config, keys[e][1], keys[e][2]);
        json_int_t id;
        if (json_is_boolean(said)) ends[e] = json_is_true(said);
        if (e == 1)
            whole &=
                json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A")) == 0;
        if (!ends[e] || !id_of(root, text, &id)) continue;
        whole &=
            json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", text)) == 0;
        whole &= json_object_set_new(special, text, json_pack("{s:[I]}", "ids", id)) == 0;
    }
    json_t *post = json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing", "single", single,
                             "special_tokens", special);
    whole &= json_object_set_new(root, "post_processor", post) == 0;
    return whole ? FV_OK : FV_FAIL(FV_ENOMEM, "%s: no memory for a template", where);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads a file if it exists; *data NULL: it does not. */
static fv_status read_bytes(const char *dir, const char *name, size_t most, char path[4096],
                            char **data, size_t *n) {
    return fv_checkpoint_file(dir, name, most, path, data, n);
}

static fv_status read_object(const char *dir, const char *name, size_t most, json_t **out) {
    char path[PATH_MAX_MADE], *text;
    size_t n;
    *out = NULL;
    FV_TRY(read_bytes(dir, name, most, path, &text, &n));
    if (!text) return FV_OK;
    fv_status st = fv_json_object(text, n, path, out);
    free(text);
    return st;
}

static fv_status make_sentencepiece(const char *dir, const json_t *config, const json_t *added,
                                    char path[4096], json_t **root) {
    static const char *const names[] = {"tokenizer.model", "spiece.model"};
    char *data = NULL;
    size_t n;
    for (size_t i = 0; i < sizeof names / sizeof *names && !data; i++)
        FV_TRY(read_bytes(dir, names[i], FV_TOKENIZER_FILE_MAX, path, &data, &n));
    if (!data) return FV_OK;
    fv_status st = fv_tokenizer_of_sentencepiece(data, n, path, config, added, root);
    free(data);
    return st;
}

static fv_status make_tekken(const char *dir, char path[4096], json_t **root) {
    char *text;
    size_t n;
    FV_TRY(read_bytes(dir, "tekken.json", FV_TOKENIZER_FILE_MAX, path, &text, &n));
    if (!text) return FV_OK;
    fv_status st = fv_tokenizer_of_tekken(text, n, path, root);
    free(text);
    return st;
}

static fv_status make_merges(const char *dir, const json_t *config, const json_t *added,
                             char path[4096], json_t **root) {
    char *merges;
    size_t n;
    json_t *vocab;
    FV_TRY(read_bytes(dir, "merges.txt", FV_TOKENIZER_FILE_MAX, path, &merges, &n));
    if (!merges) return FV_OK;
    fv_status st = read_object(dir, "vocab.json", FV_TOKENIZER_FILE_MAX, &vocab);
    if (st == FV_OK && !vocab)
        st = FV_FAIL(FV_ENOTFOUND,
                     "%s has merges.txt and neither vocab.json nor tokenizer.json, of which one is "
                     "needed: download the checkpoint again",
                     dir);
    if (st == FV_OK) st = fv_tokenizer_of_merges(vocab, merges, n, path, config, added, root);
    json_decref(vocab);
    free(merges);
    return st;
}

fv_status fv_tokenizer_make(const char *dir, char path[4096], json_t **root) {
    json_t *config = NULL, *added = NULL;
    *root = NULL;
    fv_status st = read_object(dir, "tokenizer_config.json", CONFIG_MAX, &config);
    if (st == FV_OK) st = read_object(dir, "added_tokens.json", CONFIG_MAX, &added);
    if (st == FV_OK) st = make_tekken(dir, path, root);
    if (st == FV_OK && !*root) st = make_sentencepiece(dir, config, added, path, root);
    if (st == FV_OK && !*root) st = make_merges(dir, config, added, path, root);
    json_decref(config);
    json_decref(added);
    return st;
}
