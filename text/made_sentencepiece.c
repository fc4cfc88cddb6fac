/* tokenizer.model -> the tree of tokenizer.json, as transformers' converter of Llama's tokenizer makes it.
 *
 * SentencePiece's BPE joins the pair whose piece has the best score; the tree's BPE joins by the rank of a merge.
 * Merges are therefore all cuts of a piece in two pieces, in the order of scores. A unigram model, and a BPE model that
 * changes characters or white space, gets SentencePiece's own normalizer, and its ids. */
#include <stdlib.h>
#include <string.h>

#include "gguf/merges.h"
#include "text/base64.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_made_internal.h"

static fv_status check(const fv_sentencepiece *s, const char *where) {
    static const char *const kinds[] = {"", "unigram", "BPE", "word", "char"};
    if (s->model != FV_SENTENCEPIECE_BPE && s->model != FV_SENTENCEPIECE_UNIGRAM)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: a SentencePiece model of type %s is not read, only unigram and BPE: use "
            "a checkpoint that has such a tokenizer",
            where, kinds[s->model]);
    if (s->denormalizes)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: characters of answers are replaced by a table (denormalizer_spec), "
                       "which is not supported: use a checkpoint that has tokenizer.json",
                       where);
    return FV_OK;
}

/* Whether SentencePiece's own normalizer is needed. Without it the tree is as transformers' converter makes it. */
static bool needs_normalizer(const fv_sentencepiece *s) {
    return s->model == FV_SENTENCEPIECE_UNIGRAM || s->map.n || s->trims || s->suffix || !s->escapes;
}

static bool is_special(const fv_sentencepiece *s, size_t i) {
    static const char *const turns[] = {"<start_of_turn>", "<end_of_turn>"}; /* Gemma's */
    for (size_t k = 0; k < sizeof turns / sizeof *turns; k++)
        if (s->piece[i].n == strlen(turns[k]) && !memcmp(s->piece[i].s, turns[k], s->piece[i].n))
            return true;
    return s->type[i] != FV_PIECE_USER;
}

/* Whether a user-defined piece has the mark of a space in it, so that text can have it once it is normalized. */
static bool is_marked(const fv_sentencepiece *s, size_t i) {
    return s->type[i] == FV_PIECE_USER && needs_normalizer(s) &&
           memmem(s->piece[i].s, s->piece[i].n, "\u2581", 3) != NULL;
}

/* User-defined pieces lie inside a text for its normalizer, control pieces between texts. A marked one is left to
 * the unigram model; BPE finds it in the normalized text. */
static bool add_token(const fv_sentencepiece *s, size_t i, json_t *tokens) {
    const fv_gguf_string t = s->piece[i];
    if (is_marked(s, i) && s->model == FV_SENTENCEPIECE_UNIGRAM) return true;
    if (!fv_made_add_token(tokens, (json_int_t)i, t.s, t.n, is_special(s, i))) return false;
    json_t *token = fv_made_find_token(tokens, (json_int_t)i);
    if (is_marked(s, i)) return json_object_set_new(token, "normalized", json_true()) == 0;
    return s->type[i] != FV_PIECE_USER || !needs_normalizer(s) ||
           json_object_set_new(token, "user_defined", json_true()) == 0;
}

static fv_status add_pieces(const fv_sentencepiece *s, const char *where, json_t *ids,
                            json_t *tokens) {
    for (size_t i = 0; i < s->n; i++) {
        const fv_gguf_string t = s->piece[i];
        json_t *text = json_stringn(t.s, t.n);
        if (!text || memchr(t.s, 0, t.n) || json_object_getn(ids, t.s, t.n)) {
            json_decref(text);
            return FV_FAIL(FV_EDATA,
                           "%s: the text of piece %zu is not UTF-8, has a NUL, or stands twice: "
                           "download the file again",
                           where, i);
        }
        json_decref(text);
        bool added = s->type[i] == FV_PIECE_UNKNOWN || s->type[i] == FV_PIECE_CONTROL ||
                     s->type[i] == FV_PIECE_USER;
        if (json_object_setn_new(ids, t.s, t.n, json_integer((json_int_t)i)) != 0 ||
            (added && !add_token(s, i, tokens)))
            return FV_FAIL(FV_ENOMEM, "%s: no memory for its pieces", where);
    }
    return FV_OK;
}

static const char marks[] =
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}";

/* Spaces become U+2581, with one in front: by the normalizer, before every text between added tokens; or, unless
 * `legacy`, by Metaspace, before the first one alone. */
static bool add_steps(json_t *root, bool prefix, bool legacy) {
    static const char spaces[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}";
    json_t *norm = json_array(), *dec = json_array();
    if (prefix && legacy)
        json_array_append_new(norm,
                              fv_made_step("{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"));
    if (legacy || !prefix) json_array_append_new(norm, fv_made_step(spaces));
    json_array_append_new(dec, fv_made_step(marks));
    json_array_append_new(dec, fv_made_step("{\"type\": \"ByteFallback\"}"));
    json_array_append_new(dec, fv_made_step("{\"type\": \"Fuse\"}"));
    if (prefix)
        json_array_append_new(
            dec,
            fv_made_step("{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"));
    bool whole = json_array_size(dec) == 3 + (size_t)prefix;
    if (prefix && !legacy) {
        json_decref(norm);
        whole &= json_object_set_new(root, "pre_tokenizer",
                                     fv_made_step("{\"type\": \"Metaspace\", \"replacement\": "
                                                  "\"\u2581\", \"prepend_scheme\": \"first\", "
                                                  "\"split\": false}")) == 0;
    } else {
        whole &= json_array_size(norm) == 1 + (size_t)prefix;
        whole &=
            json_object_set_new(root, "normalizer", fv_made_sequence("normalizers", norm)) == 0;
    }
    return json_object_set_new(root, "decoder", fv_made_sequence("decoders", dec)) == 0 && whole;
}

/* SentencePiece's normalizer, and the decoder for what it makes. */
static bool add_normalizer(const fv_sentencepiece *s, json_t *root, bool prefix, bool legacy) {
    json_t *norm = json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "type", "SentencePiece", "prefix",
                             (int)prefix, "first_only", (int)!legacy, "suffix", (int)s->suffix,
                             "trims", (int)s->trims, "escapes", (int)s->escapes);
    json_t *keep = json_array();
    bool whole = norm && keep && json_object_set(norm, "keep", keep) == 0;
    for (size_t i = 0; i < s->n && whole; i++)
        if (is_marked(s, i))
            whole = json_array_append_new(keep, json_stringn(s->piece[i].s, s->piece[i].n)) == 0;
    json_decref(keep);
    if (norm && s->map.n) {
        const size_t n = FV_TEXT_BASE64_CHARS(s->map.n);
        char *text = malloc(n);
        if (text) fv_text_base64_write((const unsigned char *)s->map.s, s->map.n, text);
        whole =
            text && json_object_set_new(norm, "precompiled_charsmap", json_stringn(text, n)) == 0;
        free(text);
    }
    json_t *dec = json_array();
    json_array_append_new(dec, fv_made_step(marks));
    json_array_append_new(dec, fv_made_step("{\"type\": \"ByteFallback\"}"));
    json_array_append_new(dec, fv_made_step("{\"type\": \"Fuse\"}"));
    if (prefix || s->trims)
        json_array_append_new(dec, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content",
                                             " ", "start", s->trims ? INT32_MAX : 1, "stop", 0));
    whole &= json_array_size(dec) == 3 + (size_t)(prefix || s->trims);
    whole &= json_object_set_new(root, "normalizer", norm) == 0;
    return json_object_set_new(root, "decoder", fv_made_sequence("decoders", dec)) == 0 && whole;
}

/* A user-defined piece costs nothing, and so wins. Pieces that are no text have no score. */
static fv_status add_unigram(const fv_sentencepiece *s, const char *where, json_t *root) {
    json_t *vocab = json_array(), *model = json_object();
    bool whole = vocab && model;
    for (size_t i = 0; i < s->n && whole; i++) {
        const bool used = s->type[i] == FV_PIECE_NORMAL || s->type[i] == FV_PIECE_USER;
        json_t *score =
            used ? json_real(s->type[i] == FV_PIECE_USER ? 0 : s->score[i]) : json_null();
        if (used && !score) {
            json_decref(vocab);
            json_decref(model);
            return FV_FAIL(FV_EDATA, "%s: the score of piece %zu is not a number", where, i);
        }
        whole = json_array_append_new(
                    vocab, json_pack("[s#, o]", s->piece[i].s, (int)s->piece[i].n, score)) == 0;
        if (s->type[i] == FV_PIECE_UNKNOWN)
            whole &= json_object_set_new(model, "unk_id", json_integer((json_int_t)i)) == 0;
    }
    whole &= json_object_set_new(model, "type", json_string("Unigram")) == 0;
    whole &= json_object_set_new(model, "sentencepiece", json_true()) == 0;
    whole &= json_object_set_new(model, "byte_fallback", json_boolean(s->byte_fallback)) == 0;
    whole &= json_object_set_new(model, "vocab", vocab) == 0;
    whole &= json_object_set_new(root, "model", model) == 0;
    return whole ? FV_OK : FV_FAIL(FV_ENOMEM, "%s: no memory for its pieces", where);
}

static fv_status add_bpe(const fv_sentencepiece *s, const char *where, json_t *root, json_t *ids) {
    const fv_merge_source source = {
        .where = where, .token = s->piece, .score = s->score, .n = s->n, .longest_first = true};
    json_t *model = fv_made_model(root, json_incref(ids));
    bool whole =
        model && json_object_set_new(model, "byte_fallback", json_boolean(s->byte_fallback)) == 0;
    whole = whole && json_object_set_new(model, "fuse_unk", json_true()) == 0;
    for (size_t i = 0; i < s->n && whole; i++)
        if (s->type[i] == FV_PIECE_UNKNOWN)
            whole = json_object_set_new(model, "unk_token",
                                        json_stringn(s->piece[i].s, s->piece[i].n)) == 0;
    if (!whole) return FV_FAIL(FV_ENOMEM, "%s: no memory for its pieces", where);
    return fv_merges_make(&source, ids, json_object_get(model, "merges"));
}

static fv_status make(const fv_sentencepiece *s, const char *where, const json_t *config,
                      const json_t *added, json_t *root, json_t *ids, json_t *tokens) {
    const json_t *legacy = json_object_get(config, "legacy");
    bool prefix = s->dummy_prefix && !json_is_false(json_object_get(config, "add_prefix_space"));
    FV_TRY(check(s, where));
    FV_TRY(add_pieces(s, where, ids, tokens));
    FV_TRY(s->model == FV_SENTENCEPIECE_BPE ? add_bpe(s, where, root, ids)
                                            : add_unigram(s, where, root));
    if (!(needs_normalizer(s) ? add_normalizer(s, root, prefix, !json_is_false(legacy))
                              : add_steps(root, prefix, !json_is_false(legacy))))
        return FV_FAIL(FV_ENOMEM, "%s: no memory for a tokenizer", where);
    FV_TRY(fv_made_finish_tokens(root, tokens, config, added, where));
    return fv_made_add_template(root, config, true, where);
}

fv_status fv_tokenizer_of_sentencepiece(const void *bytes, size_t n, const char *where,
                                        const json_t *config, const json_t *added, json_t **root) {
    fv_arena arena = {0};
    fv_sentencepiece s;
    json_t *made = json_object(), *ids = json_object(), *tokens = json_object();
    fv_status st = made && ids && tokens ? fv_sentencepiece_parse(bytes, n, where, &arena, &s)
                                         : FV_FAIL(FV_ENOMEM, "%s: no memory", where);
    if (st == FV_OK) st = make(&s, where, config, added, made, ids, tokens);
    json_decref(ids);
    json_decref(tokens);
    fv_arena_fini(&arena);
    if (st == FV_OK)
        *root = made;
    else
        json_decref(made);
    return st;
}
