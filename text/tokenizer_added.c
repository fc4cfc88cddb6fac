/* Added tokens inside text: "Hi <image> there" -> text, token, text.
 *
 * In: a sorted set of tokens and a text; out: pieces in order. At each position whose byte can
 * begin a token, the range of tokens that still agree with the text is narrowed byte by byte;
 * the last one that ended on the way is the longest. Tokens are at most 1024 bytes long, so a
 * text of n bytes costs O(n). An Aho-Corasick automaton would not be faster here: almost every
 * byte of real text begins no token at all. Any thread. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_internal.h"

static int compare(const void *a, const void *b) {
    const fv_tok_added *x = a, *y = b;
    int c = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

fv_status fv_tok_added_init(fv_tok_added_set *set, const char *where) {
    if (set->n) qsort(set->tokens, set->n, sizeof *set->tokens, compare);
    for (size_t i = 0; i < set->n; i++) {
        const fv_tok_added *t = &set->tokens[i];
        if (t->n == 0 || t->n > FV_TOK_ADDED_BYTES_MAX)
            return FV_FAIL(FV_EDATA, "%s: added token %d has %zu bytes; it must have 1..%d", where,
                           t->id, t->n, FV_TOK_ADDED_BYTES_MAX);
        if (i && compare(t - 1, t) == 0)
            return FV_FAIL(FV_EDATA, "%s: added tokens %d and %d read the same: '%.60s'", where,
                           t[-1].id, t->id, t->text);
    }
    size_t i = 0;
    for (int b = 0; b < 257; b++) {
        while (i < set->n && (unsigned char)set->tokens[i].text[0] < b) i++;
        set->first[b] = i;
    }
    return FV_OK;
}

/* Finds the first of tokens[lo..hi), which agree in `depth` bytes, whose next byte is >= c. */
static size_t lower(const fv_tok_added *tokens, size_t lo, size_t hi, size_t depth, int c) {
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if ((unsigned char)tokens[mid].text[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const fv_tok_added *fv_tok_added_longest(const fv_tok_added_set *set, const char *s, size_t n) {
    unsigned char c = (unsigned char)s[0];
    size_t lo = set->first[c], hi = set->first[c + 1];
    const fv_tok_added *best = NULL;
    for (size_t depth = 1; lo < hi; depth++) {
        if (set->tokens[lo].n == depth) best = &set->tokens[lo++]; /* a prefix sorts first */
        if (depth == n) break;
        c = (unsigned char)s[depth];
        size_t from = lower(set->tokens, lo, hi, depth, c);
        hi = lower(set->tokens, from, hi, depth, c + 1);
        lo = from;
    }
    return best;
}

static const fv_tok_added *added_find(const fv_tok_added_set *set, const char *s, size_t n,
                                      size_t from, size_t *start) {
    for (size_t i = from; set->n && i < n; i++) {
        const fv_tok_added *t = fv_tok_added_longest(set, s + i, n - i);
        if (!t) continue;
        *start = i;
        return t;
    }
    return NULL;
}

/* Decodes the character that ends before s[at]; at > 0, s is valid UTF-8. *start: where it begins. */
static int32_t char_before(const char *s, size_t at, size_t *start) {
    size_t i = at - 1, len;
    while (i > 0 && ((unsigned char)s[i] & 0xC0) == 0x80) i--;
    int32_t cp;
    fv_utf8_next(s + i, at - i, &cp, &len);
    *start = i;
    return cp;
}

static bool is_single_word(const char *s, size_t n, size_t start, size_t end) {
    size_t ignored;
    int32_t cp;
    if (start > 0 && fv_uni_word(char_before(s, start, &ignored))) return false;
    if (end == n) return true;
    fv_utf8_next(s + end, n - end, &cp, &ignored);
    return !fv_uni_word(cp);
}

static size_t skip_space_back(const char *s, size_t at, size_t stop) {
    size_t before;
    while (at > stop && fv_uni_space(char_before(s, at, &before))) at = before;
    return at;
}

static size_t skip_space(const char *s, size_t n, size_t at) {
    int32_t cp;
    for (size_t len; at < n; at += len) {
        fv_utf8_next(s + at, n - at, &cp, &len);
        if (!fv_uni_space(cp)) break;
    }
    return at;
}

/* Whether a match counts as a token, by the marks. A match in normalised text corresponds to the next place
 * where the raw text has the token as the file writes it, because normalisers that insert and replace keep
 * the order. Normal forms can make a token from other characters; after those a match is text. */
static bool counts(fv_tok_added_iter *it, const fv_tok_added *t, size_t start) {
    const fv_text_marks *m = it->marks;
    if (!m || (t->id != m->literal && !(it->vocab->tokens[t->id].flags & FV_TOK_SPECIAL)))
        return true;
    size_t n = t->n;
    if (it->raw && it->respelled) return false;
    if (it->raw) {
        const fv_tok_entry *written = &it->vocab->tokens[t->id];
        const char *at = it->raw_from < it->n_raw
                             ? memmem(it->raw + it->raw_from, it->n_raw - it->raw_from,
                                      written->text, written->n)
                             : NULL;
        if (!at) return false;
        start = (size_t)(at - it->raw);
        n = written->n;
        it->raw_from = start + n;
    }
    return !memchr(m->user + start, 1, n);
}

/* Searches after the bytes of the previous match, not after the white space that it
 * absorbed: a token of spaces is found there again, as in the reference. */
bool fv_tok_added_next(const fv_tok_added_set *set, const char *s, size_t n, fv_tok_added_iter *it,
                       fv_tok_piece *piece) {
    if (it->has_up) {
        *piece = it->up;
        it->has_up = false;
        it->done = piece->end;
        return true;
    }
    size_t start;
    const fv_tok_added *t;
    while ((t = added_find(set, s, n, it->from, &start))) {
        size_t end = start + t->n;
        it->from = end;
        if (t->single_word && !is_single_word(s, n, start, end)) continue;
        if (!counts(it, t, start)) continue;
        if (t->lstrip && start > it->done) start = skip_space_back(s, start, it->done);
        if (t->rstrip) {
            /* Walk over white space only once. */
            if (end > it->space_end) it->space_end = skip_space(s, n, end);
            end = it->space_end;
        }
        it->up = (fv_tok_piece){.start = start, .end = end, .added = t};
        it->has_up = true;
        if (it->done >= start) return fv_tok_added_next(set, s, n, it, piece);
        *piece = (fv_tok_piece){.start = it->done, .end = start};
        return true;
    }
    if (it->done >= n) return false;
    *piece = (fv_tok_piece){.start = it->done, .end = n};
    it->done = n;
    return true;
}
