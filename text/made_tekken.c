/* tekken.json -> the tree of tokenizer.json, as transformers' MistralConverter makes it.
 *
 * The file has byte strings in base64, in the order of their ranks, and special tokens whose ids come first. BPE
 * by ranks is BPE by merges that are all cuts of a token, in the order of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/merges.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_made_internal.h"

enum { TOKEN_BYTES_MAX = 512 };

typedef struct maker {
    const char *where;
    json_t *root, *ids, *tokens;
    fv_arena arena;
    fv_gguf_string *token; /* [n] in the characters that stand for bytes */
    double *score;         /* [n] */
    size_t n;
    int32_t n_special;
} maker;

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Decodes base64; -1: it is none, or too long. */
static int decode(const char *text, unsigned char out[TOKEN_BYTES_MAX]) {
    const size_t n = strlen(text);
    size_t bytes;
    if (n == 0 || FV_TEXT_BASE64_BYTES(n) > TOKEN_BYTES_MAX) return -1;
    return fv_text_base64_read(text, n, out, &bytes) ? (int)bytes : -1;
}

/* Writes bytes as the characters that stand for them, each of one or two bytes of UTF-8. */
static fv_status spell(maker *m, const unsigned char *bytes, int n, fv_gguf_string *out) {
    char text[2 * TOKEN_BYTES_MAX], *copy;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const int32_t cp = fv_tok_byte_cp(bytes[i]);
        if (cp >= 0x80) text[at++] = (char)(0xC0 | cp >> 6);
        text[at++] = (char)(cp < 0x80 ? cp : 0x80 | (cp & 0x3F));
    }
    FV_TRY(fv_arena_strndup(&m->arena, text, at, &copy));
    *out = (fv_gguf_string){copy, at};
    return FV_OK;
}

static fv_status add_vocab(maker *m, const json_t *vocab, size_t most) {
    const json_t *item;
    size_t i;
    FV_TRY(FV_ARENA_NEW(&m->arena, most, m->token));
    FV_TRY(FV_ARENA_NEW(&m->arena, most, m->score));
    json_array_foreach(vocab, i, item) {
        unsigned char bytes[TOKEN_BYTES_MAX];
        const char *text = json_string_value(json_object_get(item, "token_bytes"));
        const int n = text && i < most ? decode(text, bytes) : -1;
        if (i >= most) break;
        if (n < 1)
            return FV_FAIL(FV_EDATA,
                           "%s: key 'token_bytes' of token %zu must be 1..%d bytes in base64: "
                           "download the file again",
                           m->where, i, TOKEN_BYTES_MAX);
        FV_TRY(spell(m, bytes, n, &m->token[i]));
        m->score[i] = -(double)i;
        if (json_object_getn(m->ids, m->token[i].s, m->token[i].n))
            return FV_FAIL(FV_EDATA, "%s: token %zu stands twice: download the file again",
                           m->where, i);
        if (json_object_setn_new(m->ids, m->token[i].s, m->token[i].n,
                                 json_integer((json_int_t)i + m->n_special)) != 0)
            return FV_FAIL(FV_ENOMEM, "%s: no memory for its tokens", m->where);
        m->n++;
    }
    return FV_OK;
}

/* Adds a special token, to the vocabulary too. */
static fv_status add_special(maker *m, json_int_t id, const char *text) {
    if (json_object_get(m->ids, text) || !*text)
        return FV_FAIL(FV_EDATA, "%s: special token '%.60s' is empty or stands twice", m->where,
                       text);
    if (json_object_set_new(m->ids, text, json_integer(id)) != 0 ||
        !fv_made_add_token(m->tokens, id, text, strlen(text), true))
        return FV_FAIL(FV_ENOMEM, "%s: no memory for its tokens", m->where);
    return FV_OK;
}

/* Puts the texts of special tokens in the order of their ranks; NULL where the list has none. Of two with one rank the
 * first counts. */
static void rank_specials(const maker *m, const json_t *list, const char **text) {
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const json_t *rank = json_object_get(item, "rank");
        const json_int_t at = json_integer_value(rank);
        const char *s = json_string_value(json_object_get(item, "token_str"));
        if (json_is_integer(rank) && at >= 0 && at < m->n_special && !text[at]) text[at] = s;
    }
}

/* Special tokens that the file does not name are called <SPECIAL_7>. */
static fv_status add_specials(maker *m, const json_t *list) {
    const char **named;
    FV_TRY(FV_ARENA_NEW(&m->arena, m->n_special, named));
    rank_specials(m, list, named);
    for (int32_t id = 0; id < m->n_special; id++) {
        char filler[32];
        snprintf(filler, sizeof filler, "<SPECIAL_%d>", id);
        const char *text = (size_t)id < json_array_size(list) ? named[id] : filler;
        if (!text)
            return FV_FAIL(FV_EDATA,
                           "%s: the ranks of 'special_tokens' must be 0, 1, 2, ..., each with a "
                           "'token_str'; %d is missing",
                           m->where, id);
        FV_TRY(add_special(m, id, text));
    }
    return FV_OK;
}

/* ---- the tree -------------------------------------------------------------------------------- */

static fv_status make(maker *m, const json_t *file) {
    enum { SPECIAL_MAX = 1 << 16 };
    const json_t *config = json_object_get(file, "config"), *vocab = json_object_get(file, "vocab");
    const json_t *list = json_object_get(file, "special_tokens");
    const char *pattern = json_string_value(json_object_get(config, "pattern"));
    int32_t n_id = 0;
    if (!pattern || !json_is_array(vocab) || json_array_size(vocab) == 0)
        return FV_FAIL(FV_EDATA,
                       "%s: config.pattern or vocab is missing: it is no tekken.json of Mistral's",
                       m->where);
    if (!json_is_array(list))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s has no 'special_tokens', as the first files of this kind: use a "
                       "checkpoint that has tokenizer.json",
                       m->where);
    m->n_special =
        (int32_t)(json_array_size(list) < SPECIAL_MAX ? json_array_size(list) : SPECIAL_MAX);
    FV_TRY(fv_json_i32(config, "default_num_special_tokens", m->where, m->n_special, SPECIAL_MAX,
                       &m->n_special));
    FV_TRY(fv_json_i32(config, "default_vocab_size", m->where, m->n_special + 1, FV_TOK_ID_MAX,
                       &n_id));
    size_t most = json_array_size(vocab);
    if (n_id && most > (size_t)(n_id - m->n_special)) most = (size_t)(n_id - m->n_special);
    FV_TRY(add_vocab(m, vocab, most));
    FV_TRY(add_specials(m, list));
    json_t *model = fv_made_model(m->root, json_incref(m->ids));
    if (!model || json_object_set_new(model, "ignore_merges", json_true()) != 0 ||
        !fv_made_byte_level(m->root, pattern, false))
        return FV_FAIL(FV_ENOMEM, "%s: no memory for a tokenizer", m->where);
    const fv_merge_source source = {
        .where = m->where, .token = m->token, .score = m->score, .n = m->n, .first = m->n_special};
    FV_TRY(fv_merges_make(&source, m->ids, json_object_get(model, "merges")));
    FV_TRY(fv_made_finish_tokens(m->root, m->tokens, NULL, NULL, m->where));
    return fv_made_add_template(m->root, NULL, true, m->where);
}

fv_status fv_tokenizer_of_tekken(const char *text, size_t n, const char *where, json_t **root) {
    json_t *file;
    FV_TRY(fv_json_object(text, n, where, &file));
    maker m = {
        .where = where, .root = json_object(), .ids = json_object(), .tokens = json_object()};
    fv_status st =
        m.root && m.ids && m.tokens ? make(&m, file) : FV_FAIL(FV_ENOMEM, "%s: no memory", where);
    json_decref(file);
    json_decref(m.ids);
    json_decref(m.tokens);
    fv_arena_fini(&m.arena);
    if (st == FV_OK)
        *root = m.root;
    else
        json_decref(m.root);
    return st;
}
