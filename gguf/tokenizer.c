/* Makes tokenizer.json and tokenizer_config.json from metadata.
 *
 * tokenizer.ggml.model is "gpt2", byte-level BPE with merges and the pre-tokenizer named by
 * tokenizer.ggml.pre, or "llama", SentencePiece with scores. llama.cpp's src/llama-vocab.cpp defines the
 * names of `pre`; the expressions here are those of Hugging Face's files of these models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/internal.h"

static const char byte_level[] =
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";

/* The pre-tokenizers' regular expressions. */
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
static const char llama3[] = SUFFIXES LETTERS "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" REST;
static const char qwen2[] = SUFFIXES LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" REST;
static const char qwen35[] = SUFFIXES
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" REST;
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
static const char tekken[] =
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER
    "]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" REST;
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
static const char o200k[] =
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" ENDINGS "[^\\r\\n\\p{L}\\p{N}]?[" UPPER
    "]+[" LOWER "]*" ENDINGS "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" REST;
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const struct pre {
    const char *name, *regex;
    bool digits;        /* first makes each digit a word */
    bool nfc;           /* text is normalized */
    bool ignore_merges; /* a word that is a token is that token */
    bool adds_bos;      /* unless add_bos_token says otherwise */
} pres[] = {{.name = "llama-bpe", .regex = llama3, .ignore_merges = true, .adds_bos = true},
            {.name = "llama3", .regex = llama3, .ignore_merges = true, .adds_bos = true},
            {.name = "llama-v3", .regex = llama3, .ignore_merges = true, .adds_bos = true},
            {.name = "pixtral", .regex = llama3, .ignore_merges = true, .adds_bos = true},
            {.name = "qwen2", .regex = qwen2, .nfc = true},
            {.name = "qwen35", .regex = qwen35, .nfc = true},
            {.name = "smollm", .regex = gpt2, .digits = true},
            {.name = "tekken", .regex = tekken, .ignore_merges = true, .adds_bos = true},
            {.name = "glm4", .regex = llama3, .ignore_merges = true},
            {.name = "chatglm-bpe", .regex = llama3},
            {.name = "gpt-4o", .regex = o200k},
            {.name = "llama4", .regex = o200k},
            {.name = "gpt-2", .regex = gpt2}};

static fv_status find_pre(const fv_gguf *g, const struct pre **out) {
    fv_gguf_string s = {"", 0};
    FV_TRY(fv_gguf_text(g, "tokenizer.ggml.pre", &s));
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (strlen(pres[i].name) == s.n && memcmp(pres[i].name, s.s, s.n) == 0) {
            *out = &pres[i];
            return FV_OK;
        }
    char names[256] = "";
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", pres[i].name);
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: tokenizer.ggml.pre is '%.*s'; read are %s: take the model's safetensors",
                   fv_gguf_where(g), (int)(s.n < 80 ? s.n : 80), s.s, names);
}

/* ---- the vocabulary -------------------------------------------------------------------- */

fv_status fv_gguf_read_vocab(const fv_gguf *g, fv_gguf_vocab *out) {
    fv_gguf_vocab v = {0};
    size_t n = 0;
    FV_TRY(fv_gguf_strings(g, "tokenizer.ggml.tokens", &v.token, &v.n));
    fv_status st = fv_gguf_numbers(g, "tokenizer.ggml.token_type", &v.type, &n);
    if (st == FV_OK && (v.n == 0 || n != v.n))
        st = FV_FAIL(FV_EDATA,
                     "%s: keys 'tokenizer.ggml.tokens' and 'tokenizer.ggml.token_type' must be "
                     "lists of one length; %zu and %zu are there",
                     fv_gguf_where(g), v.n, n);
    for (size_t i = 0; i < n && st == FV_OK; i++)
        if (!(v.type[i] >= FV_GGUF_NORMAL && v.type[i] <= 6))
            st = FV_FAIL(FV_EDATA, "%s: token %zu has a type that is not known", fv_gguf_where(g),
                         i);
    if (st == FV_OK)
        *out = v;
    else
        fv_gguf_free_vocab(&v);
    return st;
}

fv_status fv_gguf_token(const fv_gguf *g, const char *text, int64_t *id) {
    fv_gguf_string *token = NULL;
    size_t n = 0, length = strlen(text);
    *id = -1;
    FV_TRY(fv_gguf_strings(g, "tokenizer.ggml.tokens", &token, &n));
    for (size_t i = n; i-- > 0;)
        if (token[i].n == length && memcmp(token[i].s, text, length) == 0) *id = (int64_t)i;
    free(token);
    return FV_OK;
}

void fv_gguf_free_vocab(fv_gguf_vocab *v) {
    free(v->token);
    free(v->type);
    *v = (fv_gguf_vocab){0};
}

/* Fills {token: id} and the added tokens, which are matched verbatim in a text. The first of tokens with the
 * same text counts; unused tokens are left out. */
static fv_status add_tokens(const fv_gguf *g, const fv_gguf_vocab *v, json_t *ids, json_t *added,
                            fv_gguf_json *m) {
    for (size_t i = 0; i < v->n; i++) {
        int type = (int)v->type[i];
        fv_gguf_string t = v->token[i];
        if (type == FV_GGUF_UNUSED || json_object_getn(ids, t.s, t.n)) continue;
        json_t *text = json_stringn(t.s, t.n);
        if (!text || memchr(t.s, 0, t.n)) {
            json_decref(text);
            return FV_FAIL(FV_EDATA, "%s: the text of token %zu is not UTF-8, or has a NUL",
                           fv_gguf_where(g), i);
        }
        if (json_object_setn_new(ids, t.s, t.n, json_integer((json_int_t)i)) != 0) m->lost = true;
        if (type == FV_GGUF_UNKNOWN || type == FV_GGUF_CONTROL || type == FV_GGUF_USER)
            fv_gguf_append(m, added,
                           json_pack("{s:i, s:O, s:b, s:b, s:b, s:b, s:b}", "id", (int)i, "content",
                                     text, "special", type != FV_GGUF_USER, "single_word", 0,
                                     "lstrip", 0, "rstrip", 0, "normalized", 0));
        json_decref(text);
    }
    return FV_OK;
}

/* Gives the text, borrowed, and the id of the token that `key` names; NULL: none. */
static fv_status named_token(const fv_gguf *g, const fv_gguf_vocab *v, const char *key,
                             json_int_t *id, fv_gguf_string *out) {
    int64_t at = -1;
    out->s = NULL;
    FV_TRY(fv_gguf_integer(g, key, &at));
    if (at >= (int64_t)v->n)
        return FV_FAIL(FV_EDATA, "%s: key '%s' is %lld, and there are %zu tokens", fv_gguf_where(g),
                       key, (long long)at, v->n);
    if (at >= 0) *out = v->token[at];
    *id = at;
    return FV_OK;
}

/* ---- steps ----------------------------------------------------------------------------- */

static json_t *constant(const char *text) { return json_loads(text, 0, NULL); }

static fv_status add_byte_level(const fv_gguf *g, const struct pre *pre, fv_gguf_json *m,
                                json_t *model) {
    json_t *steps = json_array();
    if (pre->nfc) fv_gguf_put(m, m->root, "normalizer", constant("{\"type\": \"NFC\"}"));
    if (pre->digits)
        fv_gguf_append(m, steps, constant("{\"type\": \"Digits\", \"individual_digits\": true}"));
    fv_gguf_append(m, steps,
                   json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                             pre->regex, "behavior", "Isolated", "invert", 0));
    fv_gguf_append(m, steps, constant(byte_level));
    fv_gguf_put(m, m->root, "pre_tokenizer",
                json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps));
    fv_gguf_put(m, m->root, "decoder", constant(byte_level));
    fv_gguf_put(m, model, "ignore_merges", json_boolean(pre->ignore_merges));

    fv_gguf_string *merge = NULL;
    size_t n = 0;
    json_t *merges = json_object_get(model, "merges");
    if (!fv_gguf_has(g, "tokenizer.ggml.merges"))
        return FV_FAIL(FV_EDATA,
                       "%s: key 'tokenizer.ggml.merges' is missing; the file is incomplete, or not "
                       "a text model",
                       fv_gguf_where(g));
    FV_TRY(fv_gguf_strings(g, "tokenizer.ggml.merges", &merge, &n));
    fv_status st = FV_OK;
    for (size_t i = 0; i < n && st == FV_OK; i++) {
        json_t *text = json_stringn(merge[i].s, merge[i].n);
        if (!text) st = FV_FAIL(FV_EDATA, "%s: merge %zu is not UTF-8", fv_gguf_where(g), i);
        fv_gguf_append(m, merges, text);
    }
    free(merge);
    return st;
}

static fv_status add_sentencepiece(const fv_gguf *g, const fv_gguf_vocab *v, fv_gguf_json *m,
                                   json_t *model) {
    static const char spaces[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}";
    static const char marks[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}";
    bool prefix = true;
    FV_TRY(fv_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &prefix));
    json_t *norm = json_array(), *dec = json_array();
    if (prefix)
        fv_gguf_append(m, norm, constant("{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"));
    fv_gguf_append(m, norm, constant(spaces));
    fv_gguf_append(m, dec, constant(marks));
    fv_gguf_append(m, dec, constant("{\"type\": \"ByteFallback\"}"));
    fv_gguf_append(m, dec, constant("{\"type\": \"Fuse\"}"));
    if (prefix)
        fv_gguf_append(
            m, dec,
            constant("{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"));
    fv_gguf_put(m, m->root, "normalizer",
                json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", norm));
    fv_gguf_put(m, m->root, "decoder",
                json_pack("{s:s, s:o}", "type", "Sequence", "decoders", dec));
    fv_gguf_put(m, model, "byte_fallback", json_true());
    fv_gguf_put(m, model, "fuse_unk", json_true());
    for (size_t i = 0; i < v->n; i++)
        if ((int)v->type[i] == FV_GGUF_UNKNOWN)
            fv_gguf_put(m, model, "unk_token", json_stringn(v->token[i].s, v->token[i].n));
    return fv_gguf_merges(g, v, json_object_get(model, "vocab"), json_object_get(model, "merges"));
}

/* Adds the template that puts BOS before a text, if the file or its pre-tokenizer says so. */
static fv_status add_template(const fv_gguf *g, const fv_gguf_vocab *v, bool adds_bos,
                              fv_gguf_json *m) {
    fv_gguf_string t;
    json_int_t id;
    FV_TRY(fv_gguf_bool(g, "tokenizer.ggml.add_bos_token", &adds_bos));
    FV_TRY(named_token(g, v, "tokenizer.ggml.bos_token_id", &id, &t));
    if (!adds_bos || !t.s) return FV_OK;
    json_t *piece =
        json_pack("[{s:{s:s%}}, {s:{s:s}}]", "SpecialToken", "id", t.s, t.n, "Sequence", "id", "A");
    json_t *special = json_object();
    if (json_object_setn_new(special, t.s, t.n, json_pack("{s:[I]}", "ids", id)) != 0)
        m->lost = true;
    fv_gguf_put(m, m->root, "post_processor",
                json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing", "single", piece,
                          "special_tokens", special));
    return FV_OK;
}

static fv_status make(const fv_gguf *g, const fv_gguf_vocab *v, fv_gguf_json *m) {
    fv_gguf_string kind = {"", 0};
    json_t *ids = json_object(), *added = json_array();
    json_t *model = json_pack("{s:s, s:o, s:[]}", "type", "BPE", "vocab", ids, "merges");
    fv_gguf_put(m, m->root, "model", model);
    fv_gguf_put(m, m->root, "added_tokens", added);
    FV_TRY(fv_gguf_text(g, "tokenizer.ggml.model", &kind));
    FV_TRY(add_tokens(g, v, ids, added, m));
    if (kind.n == 5 && memcmp(kind.s, "llama", 5) == 0) {
        FV_TRY(add_sentencepiece(g, v, m, model));
        return add_template(g, v, true, m);
    }
    if (kind.n != 4 || memcmp(kind.s, "gpt2", 4) != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: tokenizer.ggml.model is '%.*s'; gpt2 and llama are read: take the "
                       "model's safetensors",
                       fv_gguf_where(g), (int)(kind.n < 80 ? kind.n : 80), kind.s);
    const struct pre *pre = NULL;
    FV_TRY(find_pre(g, &pre));
    FV_TRY(add_byte_level(g, pre, m, model));
    return add_template(g, v, pre->adds_bos, m);
}

fv_status fv_gguf_tokenizer(const fv_gguf_set *s, fv_gguf_json *m) {
    const fv_gguf *g = s->model[0];
    fv_gguf_vocab v;
    FV_TRY(fv_gguf_read_vocab(g, &v));
    fv_status st = make(g, &v, m);
    fv_gguf_free_vocab(&v);
    return st;
}

/* ---- tokenizer_config.json ------------------------------------------------------------- */

static fv_status add_named(const fv_gguf *g, const fv_gguf_vocab *v, fv_gguf_json *m) {
    static const struct {
        const char *own, *hub;
    } names[] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                 {"tokenizer.ggml.eos_token_id", "eos_token"},
                 {"tokenizer.ggml.unknown_token_id", "unk_token"},
                 {"tokenizer.ggml.padding_token_id", "pad_token"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fv_gguf_string t;
        json_int_t id;
        FV_TRY(named_token(g, v, names[i].own, &id, &t));
        if (t.s) fv_gguf_put(m, m->root, names[i].hub, json_stringn(t.s, t.n));
    }
    return FV_OK;
}

fv_status fv_gguf_tokenizer_config(const fv_gguf_set *s, fv_gguf_json *m) {
    const fv_gguf *g = s->model[0];
    static const char key[] = "tokenizer.chat_template";
    fv_gguf_vocab v;
    fv_gguf_string program = {NULL, 0};
    FV_TRY(fv_gguf_text(g, key, &program));
    json_t *text = program.s ? json_stringn(program.s, program.n) : NULL;
    if (program.s && !text)
        return FV_FAIL(FV_EDATA, "%s: key '%s' is not UTF-8", fv_gguf_where(g), key);
    if (text) fv_gguf_put(m, m->root, "chat_template", text);
    FV_TRY(fv_gguf_read_vocab(g, &v));
    fv_status st = add_named(g, &v, m);
    fv_gguf_free_vocab(&v);
    return st;
}
