/* Forbids tokens. An allowed id is marked by a bit, so that a step costs one pass over the vocabulary. */
#include "text/token_mask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ids that may not follow one another in an answer. */
typedef struct sequence {
    int32_t *id; /* [n] owned */
    int32_t n;
} sequence;

struct fv_token_mask {
    int32_t n_vocab, min_tokens, n_ending, n_allowed, n_sequence;
    int32_t *ending;     /* [n_ending] */
    uint64_t *allowed;   /* [n_vocab] bits; NULL: all are */
    sequence *sequences; /* [n_sequence] */
    fv_matcher *grammar; /* NULL: none */
    uint64_t *legal;     /* [n_vocab] bits: what the grammar allows now */
};

/* ---- the rules --------------------------------------------------------------------------- */

static fv_status check_ids(const char *name, const int32_t *id, int32_t n, int32_t most,
                           int32_t n_vocab) {
    if (n < 0 || n > most)
        return FV_FAIL(FV_EINVAL, "%s has %d ids; the limit is %d", name, n, most);
    for (int32_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= n_vocab)
            return FV_FAIL(FV_EINVAL, "%s has the id %d; the model's ids are 0..%d", name, id[i],
                           n_vocab - 1);
    return FV_OK;
}

fv_status fv_token_rules_check(const fv_token_rules *r, int32_t n_vocab) {
    if (r->min_tokens < 0)
        return FV_FAIL(FV_EINVAL, "min_tokens is %d; it must be 0 or more", r->min_tokens);
    FV_TRY(check_ids("allowed_token_ids", r->allowed, r->n_allowed, FV_MAX_ALLOWED, n_vocab));
    FV_TRY(check_ids("stop_token_ids", r->stop_id, r->n_stop_id, FV_MAX_STOP_IDS, n_vocab));
    if (r->n_bad_word < 0 || r->n_bad_word > FV_MAX_BAD_WORDS)
        return FV_FAIL(FV_EINVAL, "bad_words has %d words; the limit is %d", r->n_bad_word,
                       FV_MAX_BAD_WORDS);
    for (int32_t i = 0; i < r->n_bad_word; i++) {
        size_t n = strnlen(r->bad_word[i], FV_BAD_WORD_BYTES_MAX + 1);
        if (n == 0 || n > FV_BAD_WORD_BYTES_MAX)
            return FV_FAIL(FV_EINVAL, "bad_words: word %d must have 1..%d bytes", i,
                           FV_BAD_WORD_BYTES_MAX);
    }
    return FV_OK;
}

/* ---- making a mask ----------------------------------------------------------------------- */

static fv_status out_of_memory(void) {
    return FV_FAIL(FV_ENOMEM, "out of memory for the rules of an answer");
}

static fv_status encode(const fv_tokenizer *tok, const char *text, sequence *out) {
    *out = (sequence){0};
    return fv_tokenizer_encode(tok, text, strlen(text), false, &out->id, &out->n);
}

/* Adds a word's sequences. Leading spaces are not part of it. */
static fv_status add_word(fv_token_mask *m, const fv_tokenizer *tok, const char *word) {
    char spaced[FV_BAD_WORD_BYTES_MAX + 2] = " ";
    sequence alone, after;
    word += strspn(word, " \t\r\n");
    strncat(spaced, word, FV_BAD_WORD_BYTES_MAX);
    FV_TRY(encode(tok, word, &alone));
    if (alone.n == 0) {
        free(alone.id);
        return FV_FAIL(FV_EINVAL, "bad_words: '%s' has no tokens: leave it out", word);
    }
    m->sequences[m->n_sequence++] = alone;
    FV_TRY(encode(tok, spaced, &after));
    if (after.n == alone.n && after.id[0] != alone.id[0])
        m->sequences[m->n_sequence++] = after;
    else
        free(after.id);
    return FV_OK;
}

static fv_status allow(fv_token_mask *m, const fv_token_rules *r) {
    if (r->n_allowed == 0) return FV_OK;
    m->allowed = calloc((size_t)m->n_vocab / 64 + 1, sizeof *m->allowed);
    if (!m->allowed) return out_of_memory();
    for (int32_t i = 0; i < r->n_allowed; i++) {
        uint64_t *word = &m->allowed[r->allowed[i] / 64], bit = UINT64_C(1) << r->allowed[i] % 64;
        m->n_allowed += !(*word & bit);
        *word |= bit;
    }
    return FV_OK;
}

static fv_status fill(fv_token_mask *m, const fv_token_rules *r, const fv_tokenizer *tok,
                      const int32_t *ending, int32_t n_ending) {
    m->ending = malloc(((size_t)n_ending + 1) * sizeof *m->ending);
    m->sequences = calloc(2 * (size_t)r->n_bad_word + 1, sizeof *m->sequences);
    if (!m->ending || !m->sequences) return out_of_memory();
    if (n_ending) memcpy(m->ending, ending, (size_t)n_ending * sizeof *ending);
    m->n_ending = n_ending;
    for (int32_t i = 0; i < r->n_bad_word; i++) FV_TRY(add_word(m, tok, r->bad_word[i]));
    return allow(m, r);
}

static fv_status open_grammar(fv_token_mask *m, const fv_token_rules *r, const fv_tokenizer *tok) {
    const fv_token_trie *trie;
    fv_grammar *g;
    if (!r->grammar.kind) return FV_OK;
    m->legal = calloc((size_t)m->n_vocab / 64 + 1, sizeof *m->legal);
    if (!m->legal) return out_of_memory();
    FV_TRY(fv_tokenizer_trie(tok, &trie));
    FV_TRY(fv_grammar_take(r->compiled, &r->grammar, &g));
    fv_status st =
        fv_matcher_open(g, trie, !r->keeps_space && fv_tokenizer_strips_space(tok), &m->grammar);
    fv_grammar_unref(g);
    if (st != FV_OK || !r->grammar.opens || r->reasoning == FV_REASONING_MAY) return st;
    return fv_matcher_continue(m->grammar, r->reasoning == FV_REASONING_OPEN ? r->grammar.opens
                                                                             : FV_GRAMMAR_THOUGHT);
}

fv_status fv_token_mask_open(const fv_token_rules *r, const fv_tokenizer *tok, int32_t n_vocab,
                             const int32_t *ending, int32_t n_ending, fv_token_mask **out) {
    *out = NULL;
    if (!r->grammar.kind && r->n_allowed == 0 && r->n_bad_word == 0 &&
        (r->min_tokens == 0 || n_ending == 0))
        return FV_OK;
    fv_token_mask *m = calloc(1, sizeof *m);
    if (!m) return out_of_memory();
    m->n_vocab = n_vocab;
    m->min_tokens = r->min_tokens;
    fv_status st = fill(m, r, tok, ending, n_ending);
    if (st == FV_OK) st = open_grammar(m, r, tok);
    if (st == FV_OK)
        *out = m;
    else
        fv_token_mask_close(m);
    return st;
}

void fv_token_mask_close(fv_token_mask *m) {
    if (!m) return;
    for (int32_t i = 0; i < m->n_sequence; i++) free(m->sequences[i].id);
    fv_matcher_close(m->grammar);
    free(m->legal);
    free(m->sequences);
    free(m->ending);
    free(m->allowed);
    free(m);
}

/* ---- a step ------------------------------------------------------------------------------ */

bool fv_token_mask_acts(const fv_token_mask *m, int32_t n) {
    return m && (m->grammar || m->allowed || m->n_sequence > 0 || n < m->min_tokens);
}

/* Forbids an id, unless it is the last one left. */
static void forbid(const fv_token_mask *m, int32_t id, float *l, int32_t *left) {
    if (id < 0 || id >= m->n_vocab || l[id] == -INFINITY || *left == 1) return;
    l[id] = -INFINITY;
    --*left;
}

/* Whether the answer ends with all of the sequence but its last id. */
static bool begins(const sequence *s, const int32_t *answer, int32_t n) {
    const int32_t before = s->n - 1;
    return before <= n && (before == 0 || memcmp(answer + n - before, s->id,
                                                 (size_t)before * sizeof *answer) == 0);
}

/* Sets the bits of what the grammar allows, and *left to their number. */
static fv_status find_legal(fv_token_mask *m, const int32_t *answer, int32_t n, int32_t *left) {
    const int32_t n_word = m->n_vocab / 64 + 1, n_known = (fv_matcher_vocab(m->grammar) + 63) / 64;
    const uint64_t *bits;
    FV_TRY(fv_matcher_seek(m->grammar, answer, n));
    FV_TRY(fv_matcher_mask(m->grammar, &bits, left));
    for (int32_t w = 0; w < n_word; w++) m->legal[w] = w < n_known ? bits[w] : 0;
    m->legal[n_word - 1] &= (UINT64_C(1) << m->n_vocab % 64) - 1;
    for (int32_t i = 0; i < m->n_ending; i++) {
        const int32_t id = m->ending[i];
        if (id < 0 || id >= m->n_vocab) continue;
        const uint64_t bit = UINT64_C(1) << id % 64;
        m->legal[id / 64] &= ~bit;
        if (fv_matcher_may_end(m->grammar)) m->legal[id / 64] |= bit;
    }
    *left = 0;
    for (int32_t w = 0; w < n_word; w++) *left += __builtin_popcountll(m->legal[w]);
    return *left > 0 ? FV_OK
                     : FV_FAIL(FV_EINVAL,
                               "the grammar allows no token of this model's vocabulary after %d "
                               "tokens of the answer",
                               n);
}

/* Forbids what is not among the bits; `wins`: bits of which some stay. */
static int32_t keep_only(const fv_token_mask *m, const uint64_t *bits, const uint64_t *wins,
                         float *l) {
    int32_t left = 0;
    for (int32_t w = 0; w <= m->n_vocab / 64; w++)
        left += __builtin_popcountll(bits[w] & (wins ? wins[w] : ~UINT64_C(0)));
    if (left == 0) return 0;
    for (int32_t i = 0; i < m->n_vocab; i++)
        if (!(bits[i / 64] >> i % 64 & 1)) l[i] = -INFINITY;
    return left;
}

fv_status fv_token_mask_apply(fv_token_mask *m, const int32_t *answer, int32_t n, float *l) {
    int32_t left = m->n_vocab;
    if (m->grammar) {
        FV_TRY(find_legal(m, answer, n, &left));
        (void)keep_only(m, m->legal, NULL, l);
    }
    if (m->allowed) {
        const int32_t both = keep_only(m, m->allowed, m->grammar ? m->legal : NULL, l);
        if (both) left = both;
    }
    for (int32_t i = 0; i < m->n_sequence; i++)
        if (begins(&m->sequences[i], answer, n))
            forbid(m, m->sequences[i].id[m->sequences[i].n - 1], l, &left);
    for (int32_t i = 0; n < m->min_tokens && i < m->n_ending; i++)
        forbid(m, m->ending[i], l, &left);
    return FV_OK;
}
