/* UTF-8, character classes and normal forms on top of utf8proc.
 *
 * utf8proc alone is not enough for two reasons. Its version of Unicode is the distribution's, so
 * the tables below bring it to the versions that the reference was built with. And
 * its own normalisation sorts combining marks by repeated swaps, which is quadratic in the
 * length of a run of marks: text is untrusted, so runs are sorted by counting here. */
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/grow.h"

typedef struct range {
    int32_t first, last;
} range;

/* Letters and numbers that Unicode 15.1 and 16 added. */
static const range new_letters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
    {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389},
    {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
    {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA},
    {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
static const range new_numbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};

/* Characters with a decomposition or a combining class that came after Unicode 9: the
 * reference's normaliser passes them on as they are, and nothing moves across them. */
static const range unknown_to_forms[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

static bool in_ranges(const range *r, size_t n, int32_t cp) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > r[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= r[lo].first;
}

#define IN_RANGES(table, cp) in_ranges((table), sizeof(table) / sizeof *(table), (cp))

/* Decodes by the Unicode standard's table of well-formed byte sequences (3-7): only the second byte
 * has bounds that depend on the first. */
fv_utf8 fv_utf8_next(const char *s, size_t n, int32_t *cp, size_t *len) {
    const unsigned char *u = (const unsigned char *)s;
    unsigned c = u[0], lo = 0x80, hi = 0xBF;
    size_t want;
    *len = 1;
    if (c < 0x80) {
        *cp = (int32_t)c;
        return FV_UTF8_OK;
    }
    *cp = 0xFFFD;
    if (c < 0xC2 || c > 0xF4) return FV_UTF8_BAD;
    want = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0) lo = 0xA0;
    if (c == 0xED) hi = 0x9F;
    if (c == 0xF0) lo = 0x90;
    if (c == 0xF4) hi = 0x8F;
    int32_t value = (int32_t)(c & (0x7Fu >> want));
    for (size_t i = 1; i < want; i++) {
        if (i == n) return FV_UTF8_SHORT;
        if (u[i] < lo || u[i] > hi) return FV_UTF8_BAD;
        value = value << 6 | (u[i] & 0x3F);
        *len = i + 1;
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = value;
    return FV_UTF8_OK;
}

size_t fv_utf8_put(int32_t cp, char out[4]) {
    return (size_t)utf8proc_encode_char(cp, (utf8proc_uint8_t *)out);
}

size_t fv_utf8_valid(const char *s, size_t n) {
    size_t at = 0, len;
    int32_t cp;
    while (at < n && fv_utf8_next(s + at, n - at, &cp, &len) == FV_UTF8_OK) at += len;
    return at;
}

size_t fv_uni_cluster(const char *s, size_t n) {
    utf8proc_int32_t state = 0;
    int32_t cp, next;
    size_t at, len;
    fv_utf8_next(s, n, &cp, &at);
    for (; at < n; at += len, cp = next) {
        fv_utf8_next(s + at, n - at, &next, &len);
        if (utf8proc_grapheme_break_stateful(cp, next, &state)) break;
    }
    return at;
}

bool fv_uni_letter(int32_t cp) {
    if (cp < 0x80) return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    utf8proc_category_t c = utf8proc_category(cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
           (c == UTF8PROC_CATEGORY_CN && IN_RANGES(new_letters, cp));
}

bool fv_uni_number(int32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = utf8proc_category(cp);
    return (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) ||
           (c == UTF8PROC_CATEGORY_CN && IN_RANGES(new_numbers, cp));
}

bool fv_uni_space(int32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    if (cp == 0x85) return true;
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP;
}

/* UTS #18: Alphabetic, M, Nd, Pc, Join_Control. Alphabetic adds to L, M and Nl only the four rows of
 * enclosed letters. Marks are utf8proc's, as only tokens with single_word need this. */
bool fv_uni_word(int32_t cp) {
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_NO: return false;
    case UTF8PROC_CATEGORY_SO:
        return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
               (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
    default: return cp == 0x200C || cp == 0x200D || fv_uni_letter(cp) || fv_uni_number(cp);
    }
}

/* The text between two characters unknown to the forms, as code points. */
typedef struct segment {
    int32_t *cps;
    size_t n, cap;
} segment;

static fv_status reserve(segment *seg, size_t n) {
    return fv_grow(&seg->cps, &seg->cap, n, sizeof *seg->cps);
}

static uint8_t combining_class(int32_t cp) {
    return (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Canonical ordering: within each run of marks (class > 0), a stable sort by class. */
static fv_status order_marks(segment *seg) {
    size_t n = seg->n;
    for (size_t from = 0; from < n;) {
        if (!combining_class(seg->cps[from])) {
            from++;
            continue;
        }
        size_t to = from, start[257] = {0};
        bool sorted = true;
        for (uint8_t c, last = 0; to < n && (c = combining_class(seg->cps[to])); to++) {
            sorted = sorted && c >= last;
            last = c;
            start[c + 1]++;
        }
        if (!sorted) {
            FV_TRY(reserve(seg, n + (to - from))); /* the copy lies after the text */
            for (int c = 1; c < 257; c++) start[c] += start[c - 1];
            int32_t *copy = seg->cps + n;
            memcpy(copy, seg->cps + from, (to - from) * sizeof *copy);
            for (size_t i = 0; i < to - from; i++)
                seg->cps[from + start[combining_class(copy[i])]++] = copy[i];
        }
        from = to;
    }
    return FV_OK;
}

typedef struct text {
    char *data;
    size_t n, cap;
} text;

static fv_status put(text *t, int32_t cp) {
    FV_TRY(fv_grow(&t->data, &t->cap, t->n + 4, 1));
    t->n += fv_utf8_put(cp, t->data + t->n);
    return FV_OK;
}

static fv_status finish_segment(segment *seg, bool compose, text *out) {
    FV_TRY(order_marks(seg));
    if (compose && seg->n)
        seg->n = (size_t)utf8proc_normalize_utf32(seg->cps, (utf8proc_ssize_t)seg->n,
                                                  UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (size_t i = 0; i < seg->n; i++) FV_TRY(put(out, seg->cps[i]));
    seg->n = 0;
    return FV_OK;
}

static fv_status normalize(fv_uni_form form, const char *s, size_t n, segment *seg, text *out) {
    bool compose = form == FV_UNI_NFC || form == FV_UNI_NFKC;
    bool compat = form == FV_UNI_NFKC || form == FV_UNI_NFKD;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    enum { LONGEST = 32 }; /* the longest decomposition of one character is 18 (U+FDFA) */
    for (size_t at = 0, len; at < n; at += len) {
        int32_t cp;
        if (fv_utf8_next(s + at, n - at, &cp, &len) != FV_UTF8_OK)
            return FV_FAIL(FV_EINVAL, "the text to normalise is not UTF-8 at byte %zu", at);
        if (IN_RANGES(unknown_to_forms, cp)) {
            FV_TRY(finish_segment(seg, compose, out));
            FV_TRY(put(out, cp));
            continue;
        }
        FV_TRY(reserve(seg, seg->n + LONGEST));
        utf8proc_ssize_t k = utf8proc_decompose_char(cp, seg->cps + seg->n, LONGEST, options, NULL);
        if (k < 0 || k > LONGEST)
            return FV_FAIL(FV_EINVAL, "U+%04X cannot be normalised", (unsigned)cp);
        seg->n += (size_t)k;
    }
    return finish_segment(seg, compose, out);
}

fv_status fv_uni_normalize(fv_uni_form form, const char *s, size_t n, char **out, size_t *bytes) {
    segment seg = {0};
    text t = {0};
    fv_status st = normalize(form, s, n, &seg, &t);
    free(seg.cps);
    if (st != FV_OK) {
        free(t.data);
        return st;
    }
    *out = t.data;
    *bytes = t.n;
    return FV_OK;
}
