/* Parses the format conversion by conversion and collects the pieces of each value; a complete
 * value is escaped and written as a whole. Escaping single arguments would not do: "peer=%s:%d" is
 * one value of two arguments.
 *
 *   KEY --'='--> VALUE --' '--> KEY            (bare in the format)
 *     '--'="'--> QUOTED --'"'--> KEY           (in quotes in the format)
 *
 * Logfmt and JSON differ in the characters around keys and in when a value needs quotes; values are
 * escaped alike. */
#include "common/logfmt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char dots[] = "...";
enum { N_DOTS = 3, ATOM_MAX = 8, SPEC_MAX = 48, TAIL = N_DOTS + 1 };

typedef struct writer {
    char *out;
    size_t n, cap;                   /* cap excludes space for the NUL */
    char value[FV_LOGFMT_VALUE_MAX]; /* the value collected so far */
    size_t n_value;
    size_t n_pairs; /* bytes of `out` up to the end of the last complete pair */
    bool json, in_key, in_value, quoted, value_cut, full;
    bool optional; /* leave this pair out if its value is empty */
    bool number;   /* the value so far is a single number */
} writer;

/* A va_list in a struct can be passed by reference on all machines. */
typedef struct arguments {
    va_list ap;
} arguments;

/* ---- characters ------------------------------------------------------------------------- */

/* Length of the UTF-8 character at p, of n available bytes; 0: invalid. */
static size_t read_utf8(const uint8_t *p, size_t n, uint32_t *out) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 0;
    if (len == 0 || len > n || p[0] >= 0xf8) return 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *out = c;
    return len;
}

/* Control characters, line separators, and characters that change the direction of text. */
static bool must_be_escaped(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* Writes the next character of a value as it appears between quotes; returns the bytes read. */
static size_t escape(const uint8_t *p, size_t n, char atom[ATOM_MAX], size_t *n_atom) {
    uint32_t c;
    size_t len = read_utf8(p, n, &c);
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *found = len == 1 ? memchr(plain, (int)c, sizeof plain - 1) : NULL;
    if (found)
        *n_atom = (size_t)snprintf(atom, ATOM_MAX, "\\%c", letters[found - plain]);
    else if (len == 0 || must_be_escaped(c))
        *n_atom = (size_t)snprintf(atom, ATOM_MAX, "\\u%04x", len ? (unsigned)c : 0xfffdu);
    else
        memcpy(atom, p, *n_atom = len);
    return len ? len : 1;
}

static bool is_bare(const writer *w) {
    for (size_t i = 0; i < w->n_value; i++) {
        uint8_t c = (uint8_t)w->value[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\') return false;
    }
    return w->n_value > 0;
}

/* ---- output ----------------------------------------------------------------------------- */

/* Space for n bytes and the end of a truncated value. */
static bool fits(const writer *w, size_t n) { return w->n + n + TAIL <= w->cap; }

static void put(writer *w, const char *p, size_t n) {
    memcpy(w->out + w->n, p, n);
    w->n += n;
}

static void put_key(writer *w, char c) {
    if (w->full || !fits(w, 1)) {
        w->full = true;
        return;
    }
    put(w, &c, 1);
}

/* Writes all digits of a number, or none. */
static void put_number(writer *w) {
    if (fits(w, w->n_value))
        put(w, w->value, w->n_value);
    else
        w->full = true;
}

/* The first character of a key follows. */
static void begin_key(writer *w) {
    if (!w->json || w->in_key) return;
    put_key(w, ',');
    put_key(w, '"');
    w->in_key = true;
}

static void put_bare(writer *w) {
    size_t n = w->n_value;
    while (n > 0 && !fits(w, n)) n--;
    put(w, w->value, n);
    w->full = n < w->n_value;
    if (w->full || w->value_cut) put(w, dots, N_DOTS);
}

static void put_quoted(writer *w) {
    if (!fits(w, 1)) {
        w->full = true;
        return;
    }
    put(w, "\"", 1);
    for (size_t i = 0; i < w->n_value && !w->full;) {
        char atom[ATOM_MAX];
        size_t n_atom, n = escape((const uint8_t *)w->value + i, w->n_value - i, atom, &n_atom);
        if (fits(w, n_atom))
            put(w, atom, n_atom);
        else
            w->full = true;
        i += n;
    }
    if (w->full || w->value_cut) put(w, dots, N_DOTS);
    put(w, "\"", 1);
}

/* Returns whether the value is a number in JSON: no sign but '-', no leading zero, no infinity. */
static bool is_json_number(const writer *w) {
    const char *p = w->value, *end = p + w->n_value;
    if (!w->number || p == end) return false;
    p += *p == '-';
    return p < end && *p >= '0' && *p <= '9' && (*p != '0' || p + 1 == end || p[1] == '.');
}

static void end_value(writer *w) {
    size_t before = w->n;
    if (w->optional && w->n_value == 0)
        w->n = before = w->n_pairs;
    else if (w->full)
        before = SIZE_MAX; /* none of it was written */
    else if (w->json && is_json_number(w))
        put_number(w);
    else if (!w->json && is_bare(w))
        put_bare(w);
    else
        put_quoted(w);
    if (w->n > before || w->n == w->n_pairs) w->n_pairs = w->n;
    w->in_value = w->value_cut = w->optional = w->number = false;
    w->n_value = 0;
}

/* Adds text to a value, or to a key with characters that could end it replaced. */
static void add(writer *w, const char *p, size_t n) {
    if (w->in_value) {
        size_t left = sizeof w->value - w->n_value;
        w->value_cut |= n > left;
        if (n > left) n = left;
        memcpy(w->value + w->n_value, p, n);
        w->n_value += n;
        return;
    }
    begin_key(w);
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        put_key(w, c < ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\' ? '?' : (char)c);
    }
}

/* ---- conversions ------------------------------------------------------------------------ */

typedef struct spec {
    char text[SPEC_MAX]; /* with stars replaced by numbers */
    size_t n;
    char length; /* 'H' is hh, 'q' is ll */
    char conversion;
} spec;

static void add_spec(spec *s, char c) {
    if (s->n + 1 < sizeof s->text) s->text[s->n++] = c;
    s->text[s->n] = '\0';
}

static const char *read_number(spec *s, const char *f, arguments *a) {
    char digits[16];
    if (*f != '*') {
        while (*f >= '0' && *f <= '9') add_spec(s, *f++);
        return f;
    }
    snprintf(digits, sizeof digits, "%d", va_arg(a->ap, int));
    for (const char *d = digits; *d; d++) add_spec(s, *d);
    return f + 1;
}

/* Reads a conversion after '%'; returns the rest of the format. */
static const char *read_spec(spec *s, const char *f, arguments *a) {
    *s = (spec){.n = 0};
    add_spec(s, '%');
    while (*f && strchr("-+ #0", *f)) add_spec(s, *f++);
    f = read_number(s, f, a);
    if (*f == '.') {
        add_spec(s, *f++);
        f = read_number(s, f, a);
    }
    for (; *f && strchr("hlzjtL", *f); f++) {
        if (s->length)
            s->length = *f == 'h' ? 'H' : 'q';
        else
            s->length = *f;
        add_spec(s, *f);
    }
    s->conversion = *f;
    add_spec(s, *f);
    return *f ? f + 1 : f;
}

/* Formats are those of FV_LOG, which the compiler has checked, one conversion at a time. */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#define PRINT(type) snprintf(text, cap, s->text, va_arg(a->ap, type))

static int print_integer(char *text, size_t cap, const spec *s, arguments *a) {
    switch (s->length) {
    case 'l': return PRINT(long);
    case 'q': return PRINT(long long);
    case 'z': return PRINT(size_t);
    case 'j': return PRINT(intmax_t);
    case 't': return PRINT(ptrdiff_t);
    default: return PRINT(int);
    }
}

static int print(char *text, size_t cap, const spec *s, arguments *a) {
    switch (s->conversion) {
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X': return print_integer(text, cap, s, a);
    case 'a':
    case 'e':
    case 'f':
    case 'g':
    case 'A':
    case 'E':
    case 'F':
    case 'G': return s->length == 'L' ? PRINT(long double) : PRINT(double);
    case 'c': return s->length ? -1 : PRINT(int);
    case 's': return s->length ? -1 : PRINT(const char *);
    case 'p': return PRINT(void *);
    default: return -1;
    }
}

/* Adds one conversion to its value. Returns false if the remaining arguments cannot be located. */
static bool convert(writer *w, const spec *s, arguments *a) {
    char text[FV_LOGFMT_VALUE_MAX + 2];
    int n = print(text, sizeof text, s, a);
    if (n < 0) {
        add(w, "?", 1);
        return false;
    }
    w->number = w->in_value && w->n_value == 0 && strchr("diufeg", s->conversion);
    add(w, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    return true;
}

static void json_key(writer *w, char c) {
    if (c == ' ') return;
    begin_key(w);
    w->in_key = c != '=';
    if (c == '=') put_key(w, '"');
    put_key(w, c == '=' ? ':' : c);
}

static const char *literal(writer *w, const char *f) {
    if (w->in_value && *f == (w->quoted ? '"' : ' ')) {
        end_value(w);
        if (w->quoted) return f + 1;
    } else if (w->in_value) {
        w->number = false;
        add(w, f, 1);
        return f + 1;
    }
    if (*f == '?' && f[1] == '=') {
        w->optional = true;
        return f + 1;
    }
    if (w->json)
        json_key(w, *f);
    else
        put_key(w, *f);
    if (*f != '=') return f + 1;
    w->in_value = true;
    w->quoted = f[1] == '"';
    return f + 1 + w->quoted;
}

size_t fv_logfmt_print(char *out, size_t cap, bool json, const char *fmt, va_list ap) {
    writer w = {.out = out, .cap = cap - 1, .json = json};
    arguments a;
    va_copy(a.ap, ap);
    for (const char *f = fmt; *f && !w.full;) {
        spec s;
        if (*f != '%' || f[1] == '%') {
            f += *f == '%';
            f = literal(&w, f);
            continue;
        }
        f = read_spec(&s, f + 1, &a);
        if (!convert(&w, &s, &a)) break;
    }
    if (w.in_value) end_value(&w);
    if (json) w.n = w.n_pairs;
    va_end(a.ap);
    out[w.n] = '\0';
    return w.n;
}
