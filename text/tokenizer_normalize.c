/* The normalizer of a tokenizer: its steps, one after another, each from one buffer into another.
 *
 * SentencePiece's own step knows where a text begins and ends, because a space is put at the front and white space
 * is removed at both ends of the text, not of each of its pieces. The reference applies the same table of characters
 * in another way, to clusters of characters and by the shortest key; both ways are here. Any thread. */
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "text/charsmap.h"
#include "text/tokenizer_internal.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */

static bool is_ascii(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80) return false;
    return true;
}

/* The most bytes that a normaliser may make of n. Steps that lengthen the text can be chained without end
 * in a hostile file; real ones stay far below: NFKC makes 33 bytes of 3, Prepend adds 3. */
static size_t growth_max(size_t n) {
    return n < FV_TOK_TEXT_BYTES_MAX / 64 ? 64 * n + 4096 : FV_TOK_TEXT_BYTES_MAX;
}

static fv_status check_growth(size_t n, size_t max) {
    if (n <= max) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "the tokenizer's normalizer makes more than %zu bytes of a text: shorten the "
                   "text, or the replacements in tokenizer.json",
                   max);
}

fv_status fv_tok_replace(const char *s, size_t n, const char *a, size_t n_a, const char *b,
                         size_t n_b, size_t max, fv_tok_bytes *out) {
    FV_TRY(fv_tok_put(out, "", 0)); /* data is not NULL even if the text is empty */
    const char *end = s + n;
    while (s < end) {
        const char *hit = memmem(s, (size_t)(end - s), a, n_a);
        FV_TRY(fv_tok_put(out, s, (size_t)((hit ? hit : end) - s)));
        if (!hit) break;
        FV_TRY(fv_tok_put(out, b, n_b));
        FV_TRY(check_growth(out->n, max));
        s = hit + n_a;
    }
    return FV_OK;
}

/* Replaces the matches of an expression, as the reference's iterator finds them: an empty match right after
 * another match is none. */
static fv_status replace_matches(const fv_tok_norm *p, const char *s, size_t n, size_t max,
                                 fv_tok_bytes *out) {
    size_t done = 0, at = 0, start, end, len;
    int32_t cp;
    for (bool any = false; at <= n; at = end) {
        FV_TRY(fv_tok_regex_find(p->regex, s, n, at, &start, &end));
        if (start == n && end == n) break;
        if (start == end && any && end == done) {
            fv_utf8_next(s + end, n - end, &cp, &len);
            end += len;
            continue;
        }
        FV_TRY(fv_tok_put(out, s + done, start - done));
        FV_TRY(fv_tok_put(out, p->b, p->n_b));
        FV_TRY(check_growth(out->n, max));
        any = true;
        done = end;
    }
    return fv_tok_put(out, s + done, n - done);
}

/* ---- the table of characters, as the reference applies it ---- */

static fv_status map_chars(const fv_charsmap *map, const char *s, size_t n, size_t max,
                           fv_tok_bytes *out) {
    const char *to;
    int32_t cp;
    for (size_t at = 0, len; at < n; at += len) {
        fv_utf8_next(s + at, n - at, &cp, &len);
        if (fv_charsmap_find(map, s + at, len, false, &to))
            FV_TRY(fv_tok_put(out, to, strlen(to)));
        else
            FV_TRY(fv_tok_put(out, s + at, len));
        FV_TRY(check_growth(out->n, max));
    }
    return FV_OK;
}

/* A short cluster that begins with a key is replaced whole; of others, each character is looked up. */
static fv_status map_clusters(const fv_charsmap *map, const char *s, size_t n, size_t max,
                              fv_tok_bytes *out) {
    enum { SHORT = 6 };
    const char *to;
    for (size_t at = 0, len; at < n; at += len) {
        len = fv_uni_cluster(s + at, n - at);
        if (len < SHORT && fv_charsmap_find(map, s + at, len, false, &to))
            FV_TRY(fv_tok_put(out, to, strlen(to)));
        else
            FV_TRY(map_chars(map, s + at, len, max, out));
        FV_TRY(check_growth(out->n, max));
    }
    return FV_OK;
}

static fv_status strip(const fv_tok_norm *p, const char *s, size_t n, fv_tok_bytes *out) {
    size_t start = 0, end = 0, len;
    bool inside = false;
    int32_t cp;
    for (size_t at = 0; at < n; at += len) {
        fv_utf8_next(s + at, n - at, &cp, &len);
        if (fv_uni_space(cp)) continue;
        if (!inside) start = at;
        inside = true;
        end = at + len;
    }
    if (!inside) end = p->left || p->right ? 0 : n;
    if (inside && !p->left) start = 0;
    if (inside && !p->right) end = n;
    return fv_tok_put(out, s + start, end - start);
}

/* ---- SentencePiece's normalizer ---- */

/* A unit of text as the normalizer reads it: the bytes that it takes, and those that it gives. */
typedef struct unit {
    size_t taken;
    const char *s;
    size_t n;
} unit;

static unit next_unit(const fv_tok_spiece *p, const char *s, size_t n) {
    const char *to;
    unit u = {.s = s};
    int32_t cp;
    const fv_tok_added *kept = p->keep ? fv_tok_added_longest(p->keep, s, n) : NULL;
    u.taken = p->map && !kept ? fv_charsmap_find(p->map, s, n, true, &to) : 0;
    if (kept) {
        u.taken = u.n = kept->n;
    } else if (u.taken) {
        u.s = to;
        u.n = strlen(to);
    } else {
        fv_utf8_next(s, n, &cp, &u.taken);
        u.n = u.taken;
    }
    return u;
}

static bool is_one_space(unit u) { return u.n == 1 && u.s[0] == ' '; }

static fv_status put_space(const fv_tok_spiece *p, fv_tok_bytes *out) {
    return p->escapes ? fv_tok_put(out, SPACE, strlen(SPACE)) : fv_tok_put(out, " ", 1);
}

static fv_status put_unit(const fv_tok_spiece *p, unit u, fv_tok_bytes *out) {
    for (size_t i = 0; i < u.n; i++) {
        if (u.s[i] == ' ')
            FV_TRY(put_space(p, out));
        else
            FV_TRY(fv_tok_put(out, u.s + i, 1));
    }
    return FV_OK;
}

static void cut_spaces(const fv_tok_spiece *p, fv_tok_bytes *out) {
    const char *space = p->escapes ? SPACE : " ";
    const size_t n = strlen(space);
    while (out->n >= n && !memcmp(out->data + out->n - n, space, n)) out->n -= n;
}

static fv_status spiece(const fv_tok_spiece *p, const char *s, size_t n, fv_tok_edges e, size_t max,
                        fv_tok_bytes *out) {
    const bool prefix = p->prefix && (e.first || !p->first_only);
    size_t at = 0;
    unit u;
    FV_TRY(fv_tok_put(out, "", 0));
    while (p->trims && e.start && at < n && is_one_space(u = next_unit(p, s + at, n - at)))
        at += u.taken;
    if (at == n && e.start && e.end) return FV_OK;
    if (prefix && e.start && !p->suffix) FV_TRY(put_space(p, out));
    for (bool after_space = p->trims && e.start; at < n; at += u.taken) {
        u = next_unit(p, s + at, n - at);
        unit rest = u;
        for (; after_space && rest.n && rest.s[0] == ' '; rest.n--) rest.s++;
        FV_TRY(put_unit(p, rest, out));
        FV_TRY(check_growth(out->n, max));
        if (rest.n) after_space = p->trims && rest.s[rest.n - 1] == ' ';
    }
    if (p->trims && e.end) cut_spaces(p, out);
    return prefix && e.end && p->suffix ? put_space(p, out) : FV_OK;
}

/* ---- all steps ---- */

static fv_status form(const fv_tok_norm *step, const fv_tok_bytes *in, fv_tok_bytes *out) {
    char *text;
    size_t n;
    if (is_ascii(in->data, in->n)) return fv_tok_put(out, in->data, in->n);
    FV_TRY(fv_uni_normalize(step->form, in->data, in->n, &text, &n));
    fv_status st = fv_tok_put(out, text, n);
    free(text);
    return st;
}

static fv_status normalize_step(const fv_tok_norm *step, const fv_tok_bytes *in, fv_tok_edges edges,
                                size_t max, fv_tok_bytes *out) {
    switch (step->kind) {
    case FV_TOK_NORM_REPLACE:
        return fv_tok_replace(in->data, in->n, step->a, step->n_a, step->b, step->n_b, max, out);
    case FV_TOK_NORM_PREPEND:
        if (in->n) FV_TRY(fv_tok_put(out, step->a, step->n_a));
        return fv_tok_put(out, in->data, in->n);
    case FV_TOK_NORM_FORM: return form(step, in, out);
    case FV_TOK_NORM_REGEX: return replace_matches(step, in->data, in->n, max, out);
    case FV_TOK_NORM_STRIP: return strip(step, in->data, in->n, out);
    case FV_TOK_NORM_CHARSMAP: return map_clusters(step->spiece.map, in->data, in->n, max, out);
    case FV_TOK_NORM_SPIECE: return spiece(&step->spiece, in->data, in->n, edges, max, out);
    }
    return FV_OK;
}

fv_status fv_tok_normalize(const fv_tokenizer *tok, const char *s, size_t n, fv_tok_edges edges,
                           fv_tok_bytes *out, fv_tok_bytes *tmp) {
    out->n = 0;
    FV_TRY(fv_tok_put(out, s, n));
    for (int32_t i = 0; i < tok->n_norm; i++) {
        tmp->n = 0;
        FV_TRY(fv_tok_put(tmp, "", 0));
        FV_TRY(normalize_step(&tok->norm[i], out, edges, growth_max(n), tmp));
        FV_TRY(check_growth(tmp->n, growth_max(n)));
        fv_tok_bytes swap = *out;
        *out = *tmp;
        *tmp = swap;
    }
    return FV_OK;
}
