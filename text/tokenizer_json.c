/* tokenizer.json -> struct fv_tokenizer: the BPE model and the added tokens; tokenizer_unigram_json.c reads the
 * other kind of model, tokenizer_steps.c the other sections.
 *
 * Ids come from the file, but only if they are the ids that the reference would give: it numbers
 * added tokens by itself, after the vocabulary, whatever the file says. `truncation` and
 * `padding` are ignored: the caller limits the length of a prompt, as in
 * transformers. Runs once per file. */
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "text/tokenizer_internal.h"

static fv_status check_id(const fv_tok_loader *l, const json_t *v, const char *token,
                          int32_t *out) {
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || id > FV_TOK_ID_MAX)
        return FV_FAIL(FV_EDATA, "%s: the id of token '%.60s' must be an integer 0..%d", l->where,
                       token, FV_TOK_ID_MAX);
    *out = (int32_t)id;
    return FV_OK;
}

/* Finds the largest id + 1 of model and added tokens, and the bytes of all texts of the model. */
static fv_status measure(const fv_tok_loader *l, json_t *vocab, const json_t *added, int32_t *n_id,
                         size_t *bytes) {
    const char *key;
    json_t *v;
    int32_t id;
    *n_id = 0;
    *bytes = 0;
    json_object_foreach(vocab, key, v) {
        FV_TRY(check_id(l, v, key, &id));
        if (id >= *n_id) *n_id = id + 1;
        *bytes += strlen(key) + 1;
    }
    return fv_tok_measure_added(l, added, json_object_size(vocab), n_id);
}

fv_status fv_tok_measure_added(const fv_tok_loader *l, const json_t *added, size_t n_model,
                               int32_t *n_id) {
    const json_t *v;
    int32_t id;
    size_t i;
    json_array_foreach(added, i, v) {
        const char *text = json_string_value(json_object_get(v, "content"));
        if (!text)
            return FV_FAIL(FV_EDATA, "%s: added token number %zu has no content", l->where, i);
        FV_TRY(check_id(l, json_object_get(v, "id"), text, &id));
        if (id >= *n_id) *n_id = id + 1;
    }
    /* Tables are as long as the largest id, so it must not be far above the number of tokens. */
    size_t n = n_model + json_array_size(added);
    if ((size_t)*n_id / 4 > n + 1024)
        return FV_FAIL(FV_EDATA, "%s: %zu tokens with ids up to %d", l->where, n, *n_id - 1);
    return FV_OK;
}

static fv_status load_vocab(fv_tok_loader *l, json_t *vocab, size_t bytes) {
    char *block;
    const char *key;
    json_t *v;
    FV_TRY(fv_arena_alloc(&l->tok->arena, bytes, (void **)&block));
    json_object_foreach(vocab, key, v) {
        size_t n = strlen(key); /* Jansson refuses keys with U+0000 in them */
        memcpy(block, key, n + 1);
        fv_status st = fv_tok_vocab_add(&l->tok->vocab, block, n, (int32_t)json_integer_value(v),
                                        FV_TOK_MODEL);
        if (st != FV_OK) return fv_fail_prefix(st, "%s", l->where);
        block += n + 1;
    }
    return FV_OK;
}

/* Splits "a b" or ["a", "b"]; false: it is neither. */
static bool merge_sides(const json_t *m, fv_tok_str *a, fv_tok_str *b) {
    if (json_is_array(m) && json_array_size(m) == 2) {
        const json_t *x = json_array_get(m, 0), *y = json_array_get(m, 1);
        *a = (fv_tok_str){json_string_value(x), json_string_length(x)};
        *b = (fv_tok_str){json_string_value(y), json_string_length(y)};
        return a->s && b->s;
    }
    const char *s = json_string_value(m);
    size_t n = json_string_length(m);
    const char *space = s ? memchr(s, ' ', n) : NULL;
    if (!space) return false;
    *a = (fv_tok_str){s, (size_t)(space - s)};
    *b = (fv_tok_str){space + 1, n - a->n - 1};
    return !memchr(b->s, ' ', b->n);
}

static fv_status load_merge(fv_tok_loader *l, size_t i, fv_tok_str a, fv_tok_str b,
                            fv_tok_bytes *made) {
    fv_tok_vocab *v = &l->tok->vocab;
    made->n = 0;
    FV_TRY(fv_tok_put(made, a.s, a.n));
    FV_TRY(fv_tok_put(made, b.s, b.n));
    int32_t left = fv_tok_vocab_model(v, a.s, a.n), right = fv_tok_vocab_model(v, b.s, b.n);
    int32_t id = fv_tok_vocab_model(v, made->data, made->n);
    if (left < 0 || right < 0 || id < 0) {
        fv_tok_str missing = left < 0 ? a : right < 0 ? b : (fv_tok_str){made->data, made->n};
        return FV_FAIL(FV_EDATA,
                       "%s: merge %zu names a token that is not in the vocabulary: '%.*s'",
                       l->where, i, (int)(missing.n < 60 ? missing.n : 60), missing.s);
    }
    fv_tok_merge_put(v, left, right, (int32_t)i, id);
    return FV_OK;
}

static fv_status load_merges(fv_tok_loader *l, const json_t *merges) {
    fv_tok_bytes made = {0};
    fv_status st = FV_OK;
    for (size_t i = 0; i < json_array_size(merges) && st == FV_OK; i++) {
        const json_t *m = json_array_get(merges, i);
        fv_tok_str a, b;
        const char *line = json_string_value(m);
        if (line && strncmp(line, "#version", 8) == 0) continue; /* the head of a merges.txt */
        st = merge_sides(m, &a, &b)
                 ? load_merge(l, i, a, b, &made)
                 : FV_FAIL(FV_EDATA, "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]",
                           l->where, i);
    }
    free(made.data);
    return st;
}

static fv_status check_affix(const fv_tok_loader *l, const json_t *model, const char *key) {
    const char *s = "";
    FV_TRY(fv_json_str(model, key, l->where, &s));
    if (!*s) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: a BPE model with %s '%.40s' is not supported; it must be "
                   "null",
                   l->where, key, s);
}

static fv_status load_model_options(fv_tok_loader *l, const json_t *model) {
    fv_tokenizer *tok = l->tok;
    double dropout = 0;
    const char *unk = NULL;
    FV_TRY(fv_json_f64(model, "dropout", l->where, &dropout));
    if (dropout != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a BPE model with dropout is not supported; set it to null", l->where);
    FV_TRY(check_affix(l, model, "continuing_subword_prefix"));
    FV_TRY(check_affix(l, model, "end_of_word_suffix"));
    FV_TRY(fv_json_bool(model, "byte_fallback", l->where, &tok->byte_fallback));
    FV_TRY(fv_json_bool(model, "fuse_unk", l->where, &tok->fuse_unk));
    FV_TRY(fv_json_bool(model, "ignore_merges", l->where, &tok->ignore_merges));
    FV_TRY(fv_json_str(model, "unk_token", l->where, &unk));
    tok->unk = unk ? fv_tok_vocab_model(&tok->vocab, unk, strlen(unk)) : -1;
    if (unk && tok->unk < 0)
        tok->unk = -2; /* an error only when it is needed, as in the reference */
    fv_tok_find_bytes(tok);
    return FV_OK;
}

void fv_tok_find_bytes(fv_tokenizer *tok) {
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        tok->byte_ids[b] = fv_tok_vocab_model(&tok->vocab, name, 6);
    }
}

static fv_status load_model(fv_tok_loader *l, const json_t *root, const json_t *added) {
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) return FV_FAIL(FV_EDATA, "%s: no model", l->where);
    const char *type = "BPE"; /* old files leave it out */
    FV_TRY(fv_json_str(model, "type", l->where, &type));
    if (!json_object_get(model, "type") && json_is_array(json_object_get(model, "vocab")))
        type = "Unigram";
    if (strcmp(type, "Unigram") == 0) return fv_tok_load_unigram(l, model, added);
    if (strcmp(type, "BPE") != 0) return fv_tok_unsupported(l, "model", type, "BPE and Unigram");
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_object(vocab) || !json_is_array(merges))
        return FV_FAIL(FV_EDATA, "%s: a BPE model needs an object 'vocab' and a list 'merges'",
                       l->where);
    l->n_model = (int32_t)json_object_size(vocab);
    int32_t n_id;
    size_t bytes;
    FV_TRY(measure(l, vocab, added, &n_id, &bytes));
    FV_TRY(fv_tok_vocab_init(&l->tok->vocab, &l->tok->arena, n_id, json_array_size(merges)));
    FV_TRY(load_vocab(l, vocab, bytes));
    FV_TRY(load_merges(l, merges));
    return load_model_options(l, model);
}

/* ---- added tokens ---- */

/* Sets the text that is searched for and that the decoder gets: the normalised token, if it asks for that. */
static fv_status set_shown(fv_tok_loader *l, fv_tok_entry *t, bool normalized) {
    if (!normalized) return FV_OK;
    fv_tok_bytes out = {0}, tmp = {0};
    char *copy = NULL;
    fv_status st = fv_tok_normalize(l->tok, t->text, t->n, (fv_tok_edges){0}, &out, &tmp);
    if (st == FV_OK) st = fv_arena_strndup(&l->tok->arena, out.data, out.n, &copy);
    if (st == FV_OK) {
        t->shown = copy;
        t->n_shown = (uint32_t)out.n;
    }
    free(out.data);
    free(tmp.data);
    return st == FV_OK ? FV_OK : fv_fail_prefix(st, "%s", l->where);
}

static fv_status load_added_token(fv_tok_loader *l, const json_t *obj, int32_t *next_id) {
    fv_tokenizer *tok = l->tok;
    fv_tok_added a = {0};
    fv_tok_str text;
    bool special = false, normalized = false, inside = false;
    FV_TRY(fv_tok_string_member(l, obj, "content", &text));
    FV_TRY(fv_json_i32(obj, "id", l->where, 0, FV_TOK_ID_MAX, &a.id));
    FV_TRY(fv_json_bool(obj, "single_word", l->where, &a.single_word));
    FV_TRY(fv_json_bool(obj, "lstrip", l->where, &a.lstrip));
    FV_TRY(fv_json_bool(obj, "rstrip", l->where, &a.rstrip));
    FV_TRY(fv_json_bool(obj, "normalized", l->where, &normalized));
    FV_TRY(fv_json_bool(obj, "special", l->where, &special));
    FV_TRY(fv_json_bool(obj, "user_defined", l->where, &inside));
    if (text.n == 0) return FV_OK; /* the reference ignores it, too */
    int32_t id = fv_tok_vocab_find(&tok->vocab, text.s, text.n);
    if (id < 0 && a.id == *next_id) {
        id = (*next_id)++;
        fv_status st = fv_tok_vocab_add(&tok->vocab, text.s, text.n, id, 0);
        if (st != FV_OK) return fv_fail_prefix(st, "%s", l->where);
    } else if (id != a.id) {
        return FV_FAIL(FV_EDATA,
                       "%s: added token '%.60s' has id %d, but `tokenizers` would give it "
                       "%d: added tokens follow the vocabulary one by one",
                       l->where, text.s, a.id, id < 0 ? *next_id : id);
    }
    fv_tok_entry *t = &tok->vocab.tokens[id];
    if (special) t->flags |= FV_TOK_SPECIAL;
    if (inside) t->flags |= FV_TOK_INSIDE;
    FV_TRY(set_shown(l, t, normalized));
    a.text = t->shown;
    a.n = t->n_shown;
    fv_tok_added_set *set = normalized ? &tok->normalized : &tok->raw;
    set->tokens[set->n++] = a;
    return FV_OK;
}

static fv_status load_added(fv_tok_loader *l, const json_t *added) {
    fv_tokenizer *tok = l->tok;
    FV_TRY(FV_ARENA_NEW(&tok->arena, json_array_size(added), tok->raw.tokens));
    FV_TRY(FV_ARENA_NEW(&tok->arena, json_array_size(added), tok->normalized.tokens));
    size_t i;
    const json_t *obj;
    int32_t next_id = l->n_model;
    json_array_foreach(added, i, obj) FV_TRY(load_added_token(l, obj, &next_id));
    for (int32_t id = 0; id < tok->vocab.n; id++) {
        fv_tok_entry *t = &tok->vocab.tokens[id];
        if (!(t->flags & FV_TOK_USED)) continue;
        if (fv_tokenizer_is_special(tok, fv_tok_vocab_find(&tok->vocab, t->shown, t->n_shown)))
            t->flags |= FV_TOK_SKIP;
    }
    FV_TRY(fv_tok_added_init(&tok->raw, l->where));
    return fv_tok_added_init(&tok->normalized, l->where);
}

fv_status fv_tok_load(fv_tokenizer *tok, const json_t *root, const char *where) {
    static int32_t text_only[] = {-1};
    fv_tok_loader l = {.tok = tok, .where = where};
    const char *version = "1.0";
    FV_TRY(fv_json_str(root, "version", where, &version));
    if (strcmp(version, "1.0") != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: version '%.40s' of the format; this engine reads 1.0",
                       where, version);
    const json_t *added = json_object_get(root, "added_tokens");
    if (added && !json_is_null(added) && !json_is_array(added))
        return FV_FAIL(FV_EDATA, "%s: added_tokens must be a list", where);
    tok->post = text_only;
    tok->n_post = 1;
    /* Added tokens may be normalised; templates name ids. */
    FV_TRY(fv_tok_load_normalizer(&l, root));
    FV_TRY(load_model(&l, root, added));
    FV_TRY(load_added(&l, added));
    if (tok->unigram) FV_TRY(fv_tok_unigram_index(&l));
    FV_TRY(fv_tok_load_steps(&l, root));
    fv_tok_set_token_bytes(tok);
    return FV_OK;
}
