/* The trie of a tokenizer's vocabulary, for grammars: made when the first request needs it, and kept with the
 * tokenizer. An id is legal by the bytes that it adds to an answer; a special token, which adds none, by those that its
 * name has behind FV_TOKEN_SPECIAL, which only the marks of a grammar have. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_internal.h"

static bool has_special_byte(const char *s, size_t n) {
    return memchr(s, FV_TOKEN_SPECIAL[0], n) != NULL;
}

static fv_status read_special(const fv_tokenizer *tok, int32_t id, fv_arena *arena, char **text,
                              size_t *bytes) {
    char *s;
    FV_TRY(fv_tokenizer_token_text(tok, id, arena, &s, bytes));
    FV_TRY(FV_ARENA_NEW(arena, *bytes + 2, *text));
    (*text)[0] = FV_TOKEN_SPECIAL[0];
    memcpy(*text + 1, s, *bytes + 1);
    *bytes += *bytes > 0;
    return FV_OK;
}

static fv_status read_tokens(const fv_tokenizer *tok, fv_arena *arena, const char **text,
                             size_t *bytes) {
    for (int32_t i = 0; i < tok->vocab.n; i++) {
        const uint8_t flags = tok->vocab.tokens[i].flags;
        char *s = "";
        bytes[i] = 0;
        if (flags & FV_TOK_USED && flags & (FV_TOK_SPECIAL | FV_TOK_SKIP)) {
            FV_TRY(read_special(tok, i, arena, &s, &bytes[i]));
        } else if (flags & FV_TOK_USED) {
            FV_TRY(fv_tokenizer_token_text(tok, i, arena, &s, &bytes[i]));
            if (has_special_byte(s, bytes[i])) bytes[i] = 0; /* the byte token <0xFF> */
        }
        text[i] = s;
    }
    return FV_OK;
}

static fv_status make(const fv_tokenizer *tok, fv_token_trie **out) {
    fv_arena arena = {0};
    const char **text;
    size_t *bytes;
    fv_status st = FV_ARENA_NEW(&arena, tok->vocab.n + 1, text);
    if (st == FV_OK) st = FV_ARENA_NEW(&arena, tok->vocab.n + 1, bytes);
    if (st == FV_OK) st = read_tokens(tok, &arena, text, bytes);
    if (st == FV_OK) st = fv_token_trie_make(text, bytes, tok->vocab.n, out);
    fv_arena_fini(&arena);
    return st;
}

fv_status fv_tokenizer_trie(const fv_tokenizer *tok, const fv_token_trie **out) {
    fv_tok_lazy *lazy = tok->lazy;
    fv_status st = FV_OK;
    pthread_mutex_lock(&lazy->lock);
    if (!lazy->trie) st = make(tok, &lazy->trie);
    if (st == FV_OK) *out = lazy->trie;
    pthread_mutex_unlock(&lazy->lock);
    return st;
}

bool fv_tokenizer_strips_space(const fv_tokenizer *tok) {
    for (int32_t k = 0; k < tok->n_dec; k++) {
        const fv_tok_dec *d = &tok->dec[k];
        if (d->kind == FV_TOK_DEC_METASPACE && !d->keep_first) return true;
        if (d->kind == FV_TOK_DEC_STRIP && d->start > 0 && d->n_a == 1 && d->a[0] == ' ')
            return true;
    }
    return false;
}
