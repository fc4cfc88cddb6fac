/* tokenizer.model -> the tree of tokenizer.json, as transformers' converter of Llama's tokenizer makes it.
 *
 * SentencePiece's BPE joins the pair whose piece has the best score; the tree's BPE joins by the rank of a merge.
 * Merges are therefore all cuts of a piece in two pieces, in the order of scores. */
#include <string.h>

#include "gguf/merges.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_made_internal.h"

static fv_status check(const fv_sentencepiece *s, const char *where) {
    static const char *const kinds[] = {"", "unigram", "BPE", "word", "char"};
    if (s->model != FV_SENTENCEPIECE_BPE)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: a SentencePiece model of type %s is not read, only BPE: use a checkpoint "
            "whose tokenizer is BPE",
            where, kinds[s->model]);
    if (s->maps || s->trims)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: %s, which is not supported: use a checkpoint that has tokenizer.json",
                       where,
                       s->maps ? "characters are normalized by a table (precompiled_charsmap)"
                               : "white space is removed (remove_extra_whitespaces)");
    return FV_OK;
}

static bool is_special(const fv_sentencepiece *s, size_t i) {
    static const char *const turns[] = {"<start_of_turn>", "<end_of_turn>"}; /* Gemma's */
    for (size_t k = 0; k < sizeof turns / sizeof *turns; k++)
        if (s->piece[i].n == strlen(turns[k]) && !memcmp(s->piece[i].s, turns[k], s->piece[i].n))
            return true;
    return s->type[i] != FV_PIECE_USER;
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
            (added && !fv_made_add_token(tokens, (json_int_t)i, t.s, t.n, is_special(s, i))))
            return FV_FAIL(FV_ENOMEM, "%s: no memory for its pieces", where);
    }
    return FV_OK;
}

/* Spaces become U+2581, with one in front: by the normalizer, before every text between added tokens; or, unless
 * `legacy`, by Metaspace, before the first one alone. */
static bool add_steps(json_t *root, bool prefix, bool legacy) {
    static const char spaces[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}";
    static const char marks[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}";
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

static fv_status add_model(const fv_sentencepiece *s, const char *where, json_t *root,
                           json_t *ids) {
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
    FV_TRY(add_model(s, where, root, ids));
    if (!add_steps(root, prefix, !json_is_false(legacy)))
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
