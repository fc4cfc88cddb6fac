/* The maximum length of text per token, by which a text can be too long for a context whatever it
 * contains. The tokens of a byte-level model are in an alphabet of its own, a character for each
 * byte. Runs once per file; the check is one multiplication. */
#include "text/tokenizer_internal.h"

enum { SHORTENED = 4, CHARACTER_MAX = 4 };

static bool is_byte_level(const fv_tokenizer *tok) {
    for (int32_t i = 0; i < tok->n_pre; i++)
        if (tok->pre[i].kind == FV_TOK_PRE_BYTE_LEVEL) return true;
    return false;
}

/* Number of bytes of text that a token of the model stands for. */
static size_t bytes_of(const fv_tok_entry *t, bool byte_level) {
    size_t characters = 0, len;
    int32_t cp;
    if (!byte_level) return t->n;
    for (size_t at = 0; at < t->n; at += len, characters++)
        fv_utf8_next(t->text + at, t->n - at, &cp, &len);
    return characters;
}

static size_t longest_added(const fv_tok_added_set *set) {
    size_t longest = 0;
    for (size_t i = 0; i < set->n; i++)
        if (set->tokens[i].n > longest) longest = set->tokens[i].n;
    return longest;
}

static bool takes_space(const fv_tok_added_set *set) {
    for (size_t i = 0; i < set->n; i++)
        if (set->tokens[i].lstrip || set->tokens[i].rstrip) return true;
    return false;
}

static bool has_all_bytes(const fv_tokenizer *tok) {
    for (int i = 0; i < 256; i++)
        if (tok->byte_ids[i] < 0) return false;
    return true;
}

/* Whether text can vanish, or many characters become one, other than in a token of the model. */
static bool shortens(const fv_tokenizer *tok, bool byte_level) {
    if (takes_space(&tok->raw) || takes_space(&tok->normalized)) return true;
    for (int32_t i = 0; i < tok->n_norm; i++)
        if ((tok->norm[i].kind != FV_TOK_NORM_PREPEND &&
             tok->norm[i].kind != FV_TOK_NORM_REPLACE) ||
            (tok->norm[i].kind == FV_TOK_NORM_REPLACE && tok->norm[i].n_b < tok->norm[i].n_a))
            return true;
    for (int32_t i = 0; i < tok->n_pre; i++)
        if (tok->pre[i].kind == FV_TOK_PRE_DROP || tok->pre[i].kind == FV_TOK_PRE_WORDS ||
            (tok->pre[i].kind == FV_TOK_PRE_REGEX &&
             !(tok->pre[i].keep_matches && tok->pre[i].keep_gaps)))
            return true;
    if (byte_level || (tok->byte_fallback && has_all_bytes(tok))) return false;
    return tok->fuse_unk || tok->unk < 0;
}

void fv_tok_set_token_bytes(fv_tokenizer *tok) {
    bool byte_level = is_byte_level(tok);
    size_t longest = CHARACTER_MAX; /* an unknown character */
    size_t raw = longest_added(&tok->raw), normalized = longest_added(&tok->normalized);
    for (int32_t id = 0; id < tok->vocab.n; id++) {
        const fv_tok_entry *t = &tok->vocab.tokens[id];
        if (!(t->flags & FV_TOK_MODEL)) continue;
        size_t bytes = bytes_of(t, byte_level);
        if (bytes > longest) longest = bytes;
    }
    if (raw > longest) longest = raw;
    if (normalized > longest) longest = normalized;
    tok->token_bytes = longest * (shortens(tok, byte_level) ? SHORTENED : 1);
}

size_t fv_tokenizer_token_bytes(const fv_tokenizer *tok) { return tok->token_bytes; }

fv_status fv_tokenizer_check_length(const fv_tokenizer *tok, size_t n_bytes, int32_t n_tokens) {
    size_t most = tok->token_bytes * (size_t)n_tokens;
    if (n_bytes <= most) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "the text has %zu bytes, and this checkpoint's context is %d tokens, which are "
                   "at most %zu bytes: shorten the text",
                   n_bytes, n_tokens, most);
}
