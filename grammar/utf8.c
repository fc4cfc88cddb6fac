/* Characters as bytes: UTF-8, plain or as JSON strings hold them. */
#include <stdio.h>
#include <string.h>

#include "grammar/internal.h"

size_t fv_cp_next(const char *s, size_t n, int32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    size_t len = u[0] < 0x80   ? 1
                 : u[0] < 0xC2 ? 0
                 : u[0] < 0xE0 ? 2
                 : u[0] < 0xF0 ? 3
                 : u[0] < 0xF5 ? 4
                               : 0;
    if (len == 0 || len > n) return 0;
    int32_t x = len == 1 ? u[0] : u[0] & (0x7F >> len);
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xC0) != 0x80) return 0;
        x = x << 6 | (u[i] & 0x3F);
    }
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (x < least[len] || x > FV_CP_MAX || (x >= 0xD800 && x <= 0xDFFF)) return 0;
    *cp = x;
    return len;
}

size_t fv_cp_put(int32_t cp, char out[4]) {
    const size_t len = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = len; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(first[len] | cp);
    return len;
}

bool fv_text_valid(const char *s, size_t n) {
    int32_t cp;
    for (size_t at = 0, len; at < n; at += len)
        if ((len = fv_cp_next(s + at, n - at, &cp)) == 0) return false;
    return true;
}

/* ---- states ------------------------------------------------------------------------------- */

/* The place at which states for characters before `next` are added. more[k]: k continuation bytes before next, 0: not made. */
typedef struct place {
    fv_compile *c;
    int32_t next, more[4], all; /* all: what has been added, -1: nothing */
} place;

static fv_status range(fv_compile *c, int lo, int hi, int32_t next, int32_t *out) {
    return fv_emit_state(
        c, (fv_net_state){.kind = FV_NET_RANGE, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .a = next},
        out);
}

static fv_status either(fv_compile *c, int32_t *all, int32_t one) {
    if (*all < 0) {
        *all = one;
        return FV_OK;
    }
    return fv_emit_state(c, (fv_net_state){.kind = FV_NET_SPLIT, .a = one, .b = *all}, all);
}

static fv_status continuation(place *p, size_t n, int32_t *out) {
    for (size_t i = 1; i <= n; i++)
        if (p->more[i] < 0) FV_TRY(range(p->c, 0x80, 0xBF, p->more[i - 1], &p->more[i]));
    *out = p->more[n];
    return FV_OK;
}

static bool all_are(const unsigned char *s, size_t n, unsigned char byte) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != byte) return false;
    return true;
}

/* Adds the texts of n bytes from lo to hi. At most 4 deep. */
static fv_status bytes_between(place *p, const unsigned char *lo, const unsigned char *hi, size_t n,
                               int32_t *all) {
    static const unsigned char least[] = {0x80, 0x80, 0x80, 0x80},
                               most[] = {0xBF, 0xBF, 0xBF, 0xBF};
    int32_t tail = -1, one;
    unsigned char from = lo[0], to = hi[0];
    if (n == 1 || from == to) {
        if (n == 1)
            tail = p->next;
        else
            FV_TRY(bytes_between(p, lo + 1, hi + 1, n - 1, &tail));
        FV_TRY(range(p->c, from, to, tail, &one));
        return either(p->c, all, one);
    }
    if (!all_are(lo + 1, n - 1, 0x80)) {
        FV_TRY(bytes_between(p, lo + 1, most, n - 1, &tail));
        FV_TRY(range(p->c, from, from, tail, &one));
        FV_TRY(either(p->c, all, one));
        from++;
    }
    tail = -1;
    if (!all_are(hi + 1, n - 1, 0xBF)) {
        FV_TRY(bytes_between(p, least, hi + 1, n - 1, &tail));
        FV_TRY(range(p->c, to, to, tail, &one));
        FV_TRY(either(p->c, all, one));
        to--;
    }
    if (from > to) return FV_OK;
    FV_TRY(continuation(p, n - 1, &tail));
    FV_TRY(range(p->c, from, to, tail, &one));
    return either(p->c, all, one);
}

/* Adds the characters lo..hi, as UTF-8. */
static fv_status characters(place *p, int32_t lo, int32_t hi) {
    static const fv_span parts[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, FV_CP_MAX}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const int32_t from = lo > parts[i].lo ? lo : parts[i].lo,
                      to = hi < parts[i].hi ? hi : parts[i].hi;
        char a[4], b[4];
        if (from > to) continue;
        const size_t n = fv_cp_put(from, a);
        fv_cp_put(to, b);
        FV_TRY(bytes_between(p, (unsigned char *)a, (unsigned char *)b, n, &p->all));
    }
    return FV_OK;
}

/* The one form in which a JSON string holds a character that it must escape; "": another character. */
static const char *escape_of(int32_t cp, char room[8]) {
    static const char short_of[] = "b\bf\fn\nr\rt\t\"\"\\\\";
    for (size_t i = 0; cp < 0x80 && cp > 0 && i + 1 < sizeof short_of; i += 2)
        if (short_of[i + 1] == cp) {
            snprintf(room, 8, "\\%c", short_of[i]);
            return room;
        }
    if (cp >= 0x20) return "";
    snprintf(room, 8, "\\u%04x", (unsigned)cp);
    return room;
}

static fv_status bytes(fv_compile *c, const char *s, size_t n, int32_t next, int32_t *out) {
    *out = next;
    for (size_t i = n; i-- > 0;)
        FV_TRY(range(c, (unsigned char)s[i], (unsigned char)s[i], *out, out));
    return FV_OK;
}

static fv_status escaped(place *p, int32_t cp) {
    char room[8];
    int32_t one;
    const char *text = escape_of(cp, room);
    FV_TRY(bytes(p->c, text, strlen(text), p->next, &one));
    return either(p->c, &p->all, one);
}

fv_status fv_emit_spans(fv_compile *c, const fv_span *span, size_t n, bool json, int32_t next,
                        int32_t *out) {
    static const fv_span plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, FV_CP_MAX}};
    place p = {c, next, {next, -1, -1, -1}, -1};
    for (size_t i = 0; i < n; i++) {
        if (!json) {
            FV_TRY(characters(&p, span[i].lo, span[i].hi));
            continue;
        }
        for (int k = 0; k < 3; k++) {
            int32_t lo = span[i].lo > plain[k].lo ? span[i].lo : plain[k].lo;
            int32_t hi = span[i].hi < plain[k].hi ? span[i].hi : plain[k].hi;
            if (lo <= hi) FV_TRY(characters(&p, lo, hi));
        }
        for (int32_t cp = span[i].lo; cp <= span[i].hi && cp <= '\\'; cp++)
            if (cp < 0x20 || cp == '"' || cp == '\\') FV_TRY(escaped(&p, cp));
    }
    if (p.all < 0) return range(c, 1, 0, next, out); /* no byte */
    *out = p.all;
    return FV_OK;
}

fv_status fv_emit_text(fv_compile *c, const char *text, size_t n, bool json, int32_t next,
                       int32_t *out) {
    char room[8];
    if (!json) return bytes(c, text, n, next, out);
    *out = next;
    for (size_t i = n; i-- > 0;) {
        unsigned char byte = (unsigned char)text[i];
        const char *escape = byte < 0x80 ? escape_of(byte, room) : "";
        if (escape[0])
            FV_TRY(bytes(c, escape, strlen(escape), *out, out));
        else
            FV_TRY(range(c, byte, byte, *out, out));
    }
    return FV_OK;
}

static fv_status hex(fv_compile *c, const char *first, int n_more, int32_t next, int32_t *out);

/* A hexadecimal digit among the ranges "lohilohi...", then n_more digits. */
static fv_status hex(fv_compile *c, const char *first, int n_more, int32_t next, int32_t *out) {
    int32_t tail = next, one;
    if (n_more) FV_TRY(hex(c, "09afAF", n_more - 1, next, &tail));
    *out = -1;
    for (; *first; first += 2) {
        FV_TRY(range(c, first[0], first[1], tail, &one));
        FV_TRY(either(c, out, one));
    }
    return FV_OK;
}

/* \uXXXX, with two halves for characters beyond U+FFFF: never half of one. */
static fv_status any_unicode_escape(fv_compile *c, int32_t next, int32_t *out) {
    int32_t low, high, one, all = -1;
    FV_TRY(hex(c, "09acefACEF", 3, next, &all)); /* not D */
    FV_TRY(hex(c, "07", 2, next, &one));
    FV_TRY(range(c, 'd', 'd', one, &low));
    FV_TRY(either(c, &all, low));
    FV_TRY(range(c, 'D', 'D', one, &low));
    FV_TRY(either(c, &all, low));
    FV_TRY(hex(c, "cfCF", 2, next, &low));
    FV_TRY(bytes(c, "\\ud", 3, low, &low));
    FV_TRY(hex(c, "89abAB", 2, low, &high));
    FV_TRY(range(c, 'd', 'd', high, &one));
    FV_TRY(either(c, &all, one));
    FV_TRY(range(c, 'D', 'D', high, &one));
    FV_TRY(either(c, &all, one));
    return range(c, 'u', 'u', all, out);
}

fv_status fv_emit_char(fv_compile *c, int32_t next, int32_t *out) {
    static const fv_span plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, FV_CP_MAX}};
    static const char letters[] = "\"\\/bfnrt";
    int32_t escape, one;
    FV_TRY(any_unicode_escape(c, next, &escape));
    for (const char *l = letters; *l; l++) {
        FV_TRY(range(c, *l, *l, next, &one));
        FV_TRY(either(c, &escape, one));
    }
    FV_TRY(range(c, '\\', '\\', escape, &one));
    FV_TRY(fv_emit_spans(c, plain, 3, false, next, out));
    return either(c, out, one);
}
