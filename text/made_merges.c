/* vocab.json and merges.txt -> the tree of tokenizer.json. The class in tokenizer_config.json says how text is cut
 * into words. */
#include <string.h>

#include "text/tokenizer_made_internal.h"

#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The classes with these two files, without the suffix Fast. */
static const struct class {
    const char *name, *regex;
    bool nfc;
} classes[] = {
    {"Qwen2Tokenizer",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" REST, true},
    {"GPT2Tokenizer",
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false},
};

static fv_status find_class(const json_t *config, const char *where, const struct class **out) {
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++) {
        const size_t n = strlen(classes[i].name);
        if (strncmp(name, classes[i].name, n) != 0 || (name[n] && strcmp(name + n, "Fast") != 0))
            continue;
        *out = &classes[i];
        return FV_OK;
    }
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: key 'tokenizer_class' of tokenizer_config.json is '%.60s'; with vocab.json "
        "and merges.txt it must be Qwen2Tokenizer or GPT2Tokenizer: write tokenizer.json "
        "with transformers, AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
        where, name ? name : "absent");
}

static fv_status add_lines(const char *text, size_t n, const char *where, json_t *merges) {
    size_t row = 0;
    for (size_t at = 0; at < n; row++) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        size_t length = end ? (size_t)(end - line) : n - at;
        at += length + 1;
        if (length && line[length - 1] == '\r') length--;
        if (length == 0 || (row == 0 && length > 8 && !strncmp(line, "#version", 8))) continue;
        json_t *merge = json_stringn(line, length);
        if (!merge) return FV_FAIL(FV_EDATA, "%s: line %zu is not UTF-8", where, row + 1);
        if (json_array_append_new(merges, merge) != 0)
            return FV_FAIL(FV_ENOMEM, "%s: no memory for merges", where);
    }
    return FV_OK;
}

static fv_status make(json_t *root, json_t *vocab, const char *merges, size_t n, const char *where,
                      const json_t *config, const json_t *added, json_t *tokens) {
    const struct class *c;
    FV_TRY(find_class(config, where, &c));
    json_t *model = fv_made_model(root, json_incref(vocab));
    bool whole =
        model && fv_made_byte_level(root, c->regex,
                                    json_is_true(json_object_get(config, "add_prefix_space")));
    if (c->nfc)
        whole &= json_object_set_new(root, "normalizer", fv_made_step("{\"type\": \"NFC\"}")) == 0;
    if (!whole) return FV_FAIL(FV_ENOMEM, "%s: no memory for a tokenizer", where);
    FV_TRY(add_lines(merges, n, where, json_object_get(model, "merges")));
    FV_TRY(fv_made_finish_tokens(root, tokens, config, added, where));
    return fv_made_add_template(root, config, false, where);
}

fv_status fv_tokenizer_of_merges(json_t *vocab, const char *merges, size_t n, const char *where,
                                 const json_t *config, const json_t *added, json_t **root) {
    json_t *made = json_object(), *tokens = json_object();
    fv_status st = made && tokens ? make(made, vocab, merges, n, where, config, added, tokens)
                                  : FV_FAIL(FV_ENOMEM, "%s: no memory", where);
    json_decref(tokens);
    if (st != FV_OK) {
        json_decref(made);
        return st;
    }
    *root = made;
    return FV_OK;
}
