/* A model of type Unigram in a tokenizer.json -> its tables. Runs once per file.
 *
 *   "vocab": [["<unk>", 0.0], ["\u2581the", -3.2], ["<0x0A>", null], ...]
 *
 * A piece's id is its place. null, which stands in trees that are made of a tokenizer.model, says that texts are not
 * cut in this piece; "sentencepiece": true, also of such trees, that sums are SentencePiece's (tokenizer_internal.h).
 * Added tokens are no pieces either: they are found in a text before the model sees it, and what a user writes must
 * not become one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "text/tokenizer_internal.h"

#define UNKNOWN_PENALTY 10.0

/* Whether texts may be cut in this piece. */
static bool is_used(const fv_tok_unigram *u, int32_t id) { return !isnan(u->score[id]); }

static fv_status load_piece(fv_tok_loader *l, const json_t *item, int32_t id) {
    fv_tok_unigram *u = l->tok->unigram;
    const json_t *text = json_array_get(item, 0), *score = json_array_get(item, 1);
    const size_t n = json_string_length(text);
    char *copy;
    if (!json_is_array(item) || json_array_size(item) != 2 || !json_is_string(text) ||
        (!json_is_number(score) && !json_is_null(score)))
        return FV_FAIL(FV_EDATA, "%s: piece %d of the vocabulary must be [text, score]", l->where,
                       id);
    if (n > FV_TOK_PIECE_BYTES_MAX)
        return FV_FAIL(FV_EDATA, "%s: piece %d has %zu bytes; at most %d are possible", l->where,
                       id, n, FV_TOK_PIECE_BYTES_MAX);
    u->score[id] = json_is_null(score) || n == 0 ? NAN : json_number_value(score);
    FV_TRY(fv_arena_strndup(&l->tok->arena, json_string_value(text), n, &copy));
    fv_status st = fv_tok_vocab_add(&l->tok->vocab, copy, n, id, FV_TOK_MODEL);
    return st == FV_OK ? FV_OK : fv_fail_prefix(st, "%s", l->where);
}

static fv_status load_options(fv_tok_loader *l, const json_t *model) {
    fv_tokenizer *tok = l->tok;
    const json_t *unk = json_object_get(model, "unk_id");
    tok->unk = -1;
    if (unk && !json_is_null(unk))
        FV_TRY(fv_json_i32(model, "unk_id", l->where, 0, l->n_model - 1, &tok->unk));
    FV_TRY(fv_json_bool(model, "byte_fallback", l->where, &tok->byte_fallback));
    FV_TRY(fv_json_bool(model, "sentencepiece", l->where, &tok->unigram->narrow));
    tok->fuse_unk = true;
    fv_tok_find_bytes(tok);
    return FV_OK;
}

fv_status fv_tok_load_unigram(fv_tok_loader *l, const json_t *model, const json_t *added) {
    const json_t *vocab = json_object_get(model, "vocab"), *item;
    fv_tokenizer *tok = l->tok;
    const size_t n = json_array_size(vocab);
    size_t i;
    if (n < 1 || n > FV_TOK_ID_MAX)
        return FV_FAIL(FV_EDATA, "%s: a Unigram model needs a list 'vocab' of 1..%d pieces",
                       l->where, FV_TOK_ID_MAX);
    l->n_model = (int32_t)n;
    int32_t n_id = l->n_model;
    FV_TRY(fv_tok_measure_added(l, added, n, &n_id));
    FV_TRY(fv_tok_vocab_init(&tok->vocab, &tok->arena, n_id, 0));
    FV_TRY(FV_ARENA_NEW(&tok->arena, 1, tok->unigram));
    FV_TRY(FV_ARENA_NEW(&tok->arena, n_id, tok->unigram->score));
    json_array_foreach(vocab, i, item) FV_TRY(load_piece(l, item, (int32_t)i));
    return load_options(l, model);
}

/* ---- the sorted list ---- */

typedef struct entry {
    const char *s;
    size_t n;
    int32_t id;
} entry;

static int compare(const void *a, const void *b) {
    const entry *x = a, *y = b;
    const int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static void mark_added(const fv_tok_added_set *set, uint8_t *added) {
    for (size_t i = 0; i < set->n; i++) added[set->tokens[i].id] = 1;
}

static void fill(fv_tokenizer *tok, entry *list, const uint8_t *added) {
    fv_tok_unigram *u = tok->unigram;
    for (int32_t id = 0; id < tok->vocab.n; id++) {
        const fv_tok_entry *t = &tok->vocab.tokens[id];
        if (t->flags & FV_TOK_MODEL && is_used(u, id) && !added[id])
            list[u->n++] = (entry){t->text, t->n, id};
    }
    if (u->n) qsort(list, u->n, sizeof *list, compare);
    for (size_t i = 0; i < u->n; i++) u->id[i] = list[i].id;
    size_t i = 0;
    for (int b = 0; b < 257; b++) {
        while (i < u->n && (unsigned char)list[i].s[0] < b) i++;
        u->first[b] = i;
    }
}

/* The score of an unknown character. SentencePiece counts ordinary pieces alone, the reference all. */
static double unknown_score(const fv_tokenizer *tok) {
    const fv_tok_unigram *u = tok->unigram;
    double least = INFINITY;
    for (int32_t id = 0; id < tok->vocab.n; id++)
        if (tok->vocab.tokens[id].flags & FV_TOK_MODEL && is_used(u, id) &&
            !(tok->vocab.tokens[id].flags & FV_TOK_INSIDE) && u->score[id] < least)
            least = u->score[id];
    if (isinf(least)) least = 0;
    return u->narrow ? (double)((float)least - (float)UNKNOWN_PENALTY) : least - UNKNOWN_PENALTY;
}

fv_status fv_tok_unigram_index(fv_tok_loader *l) {
    fv_tokenizer *tok = l->tok;
    const size_t n = (size_t)tok->vocab.n;
    entry *list = calloc(n, sizeof *list);
    uint8_t *added = calloc(n, 1);
    fv_status st = list && added ? FV_ARENA_NEW(&tok->arena, n, tok->unigram->id)
                                 : FV_FAIL(FV_ENOMEM, "%s: no memory for its pieces", l->where);
    if (st == FV_OK) {
        mark_added(&tok->raw, added);
        mark_added(&tok->normalized, added);
        fill(tok, list, added);
        tok->unigram->unk_score = unknown_score(tok);
    }
    free(list);
    free(added);
    return st;
}
