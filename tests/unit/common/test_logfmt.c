/* common/logfmt.c: a line has the keys of its format with their values, whatever the values are. A
 * strict parser in this file reads them back. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/logfmt.h"

enum { LINE_MAX_BYTES = 2000, PAIRS_MAX = 8 };

static char line[LINE_MAX_BYTES];
static bool json;

__attribute__((format(printf, 2, 3))) static size_t print(size_t cap, const char *fmt, ...) {
    va_list ap;
    memset(line, 'Z', sizeof line);
    va_start(ap, fmt);
    size_t n = fv_logfmt_print(line, cap, json, fmt, ap);
    va_end(ap);
    cr_assert_lt(n, cap);
    cr_assert_eq(line[n], '\0');
    cr_assert_eq(strlen(line), n);
    for (size_t i = cap; i < sizeof line; i++) cr_assert_eq(line[i], 'Z', "written past the end");
    return n;
}

#define PRINT(...) print(sizeof line, __VA_ARGS__)

/* ---- a strict parser -------------------------------------------------------------------- */

typedef struct pair {
    char key[64];
    char value[LINE_MAX_BYTES];
    size_t n;
} pair;

static pair pairs[PAIRS_MAX];

static bool is_key(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

static size_t put_utf8(char *p, uint32_t c) {
    if (c < 0x80) return (size_t)sprintf(p, "%c", (int)c) + (c == 0);
    if (c < 0x800) return (size_t)sprintf(p, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 63)));
    return (size_t)sprintf(p, "%c%c%c", (int)(0xe0 | c >> 12), (int)(0x80 | (c >> 6 & 63)),
                           (int)(0x80 | (c & 63)));
}

static const char *read_quoted(const char *p, pair *out) {
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    for (; *p != '"'; p++) {
        cr_assert((unsigned char)*p >= ' ' && *p != 0x7f, "a control in quotes: %s", line);
        if (*p != '\\') {
            out->value[out->n++] = *p;
            continue;
        }
        const char *letter = p[1] ? strchr(letters, *++p) : NULL;
        if (letter) {
            out->value[out->n++] = plain[letter - letters];
            continue;
        }
        unsigned c;
        int n = 0;
        cr_assert_eq(sscanf(p, "u%4x%n", &c, &n), 1, "an unknown escape: %s", line);
        cr_assert_eq(n, 5, "%s", line);
        out->n += put_utf8(out->value + out->n, c);
        p += 4;
    }
    return p + 1;
}

/* Every byte of `line` has its place in the grammar, or this fails. Returns the number of pairs. */
static int parse(void) {
    int n = 0;
    for (const char *p = line; *p; n++) {
        cr_assert_lt(n, PAIRS_MAX, "%s", line);
        pair *q = &pairs[n];
        size_t n_key = 0;
        q->n = 0;
        while (is_key(*p)) q->key[n_key++] = *p++;
        q->key[n_key] = '\0';
        cr_assert_gt(n_key, 0, "no key: %s", line);
        cr_assert_eq(*p++, '=', "%s", line);
        if (*p == '"')
            p = read_quoted(p + 1, q);
        else
            for (; *p && *p != ' '; p++) {
                cr_assert(*p > ' ' && *p < 0x7f && *p != '"' && *p != '=', "bare: %s", line);
                q->value[q->n++] = *p;
            }
        q->value[q->n] = '\0';
        cr_assert(*p == ' ' || *p == '\0', "after a value: %s", line);
        p += *p == ' ';
    }
    return n;
}

static void has(int i, const char *key, const char *value) {
    cr_assert_str_eq(pairs[i].key, key, "%s", line);
    cr_assert_eq(pairs[i].n, strlen(value), "%s", line);
    cr_assert_str_eq(pairs[i].value, value, "%s", line);
}

/* ---- plain values are printed as is ------------------------------------------------------ */

Test(logfmt, harmless_values_stay_bare) {
    PRINT("req=%s n=%d peer=%s:%d s=%.3f", "r-1", -7, "10.0.0.1", 8200, 0.5);
    cr_assert_str_eq(line, "req=r-1 n=-7 peer=10.0.0.1:8200 s=0.500");
}

Test(logfmt, a_sentence_is_in_quotes) {
    PRINT("event=failed reason=\"%s\" n=%zu", "no such file", (size_t)3);
    cr_assert_str_eq(line, "event=failed reason=\"no such file\" n=3");
}

Test(logfmt, all_conversions_of_numbers_are_those_of_printf) {
    char want[200];
    int8_t hh = -3;
    uint16_t h = 65535;
    intmax_t j = INTMAX_MIN;
    PRINT("a=%hhd b=%hu c=%ld d=%llx e=%zu f=%jd g=%td", hh, h, -5L, 0xabcdefULL, (size_t)9, j,
          (ptrdiff_t)-4);
    snprintf(want, sizeof want, "a=%hhd b=%hu c=%ld d=%llx e=%zu f=%jd g=%td", hh, h, -5L,
             0xabcdefULL, (size_t)9, j, (ptrdiff_t)-4);
    cr_assert_str_eq(line, want);
    PRINT("a=%08.3f b=%-6de c=%+d d=%*d e=%.*f f=%" PRIu64 " g=%c h=%5.1Lf", 3.14159, 42, 7, 4, 5,
          2, 2.71828, UINT64_MAX, 'x', (long double)1.25);
    cr_assert_eq(parse(), 8);
    has(0, "a", "0003.142");
    has(1, "b", "42    e");
    has(2, "c", "+7");
    has(3, "d", "   5");
    has(4, "e", "2.72");
    has(5, "f", "18446744073709551615");
    has(6, "g", "x");
    has(7, "h", "  1.2");
}

Test(logfmt, a_percent_sign_is_itself_and_a_precision_cuts) {
    PRINT("done=50%% name=%.*s", 3, "abcdef");
    cr_assert_str_eq(line, "done=50% name=abc");
}

Test(logfmt, special_numbers_are_values) {
    PRINT("a=%g b=%f", (double)INFINITY, (double)NAN);
    cr_assert_eq(parse(), 2);
}

Test(logfmt, valid_text_in_other_scripts_is_kept) {
    PRINT("a=%s b=\"%s\"", "größe", "日本 😀");
    cr_assert_str_eq(line, "a=\"größe\" b=\"日本 😀\"");
}

/* ---- hostile values --------------------------------------------------------------------- */

static const char *const hostile[] = {
    "",
    " ",
    "\"",
    "\\",
    "\\\"",
    "a b",
    "a=b",
    "x\" level=error forged=\"yes",
    "x\n2026-01-01T00:00:00.000Z error router req=forged event=done",
    "x\r\nforged=1",
    "\t\v\f\b\x1b[2J\x1b[31m",
    "\x7f",
    "%s%n%d",
    "ends with \\",
    "ends with \"",
    "\xe2\x80\xa8separator\xe2\x80\xa9",
    "\xe2\x80\xae"
    "right to left",
    "\xc2\x9b"
    "31m is a control of eight bits",
    "trailing space ",
    "\\u0041 is not A",
    "\\n is not a new line",
};

Test(logfmt, hostile_values_are_read_back_as_they_were) {
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const char *v = hostile[i];
        PRINT("req=%s event=x reason=\"%s\" n=%d", v, v, 5);
        cr_assert_eq(parse(), 4, "%s", line);
        has(0, "req", v);
        has(1, "event", "x");
        has(2, "reason", v);
        has(3, "n", "5");
        cr_assert_null(strpbrk(line, "\n\r\t\x1b\x7f"), "%s", line);
    }
}

Test(logfmt, a_value_of_several_arguments_is_escaped_as_a_whole) {
    PRINT("peer=%s:%d to=<%s> last=%s", "a b", 80, "c\"d", "e");
    cr_assert_eq(parse(), 3);
    has(0, "peer", "a b:80");
    has(1, "to", "<c\"d>");
    has(2, "last", "e");
}

Test(logfmt, bytes_that_are_no_utf8_are_replaced) {
    static const char *const bad[] = {"\xff",
                                      "\x80",
                                      "\xc0\xaf",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        PRINT("a=%s b=%d", bad[i], 1);
        cr_assert_eq(parse(), 2, "%s", line);
        for (const char *p = line; *p; p++) cr_assert((unsigned char)*p < 0x80, "%s", line);
        cr_assert(strstr(line, "\\ufffd"), "%s", line);
    }
}

Test(logfmt, nothing_can_hide_in_a_key) {
    PRINT("%s=1 b=%d", "a=2 \"c\nd\xff", 3);
    cr_assert_str_eq(line, "a?2 ?c?d?=1 b=3");
}

Test(logfmt, random_bytes_never_make_or_break_a_pair) {
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        char v[2][24];
        for (int k = 0; k < 2; k++) {
            size_t n = 0, len = (x >> 40) % sizeof v[0];
            for (; n < len; n++) {
                static const char likely[] = "\" =\\\n\xc3\xe2\x80u";
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                unsigned c = (x >> 20) % 3 ? (unsigned char)likely[(x >> 30) % (sizeof likely - 1)]
                                           : (unsigned)(x >> 50) & 255;
                v[k][n] = (char)(c ? c : 1);
            }
            v[k][n] = '\0';
        }
        PRINT("a=%s event=x b=\"%s\" c=%s:%s", v[0], v[1], v[1], v[0]);
        cr_assert_eq(parse(), 4, "%s", line);
        has(1, "event", "x");
    }
}

/* ---- optional pairs --------------------------------------------------------------------- */

Test(logfmt, an_optional_pair_is_left_out_when_it_is_empty) {
    PRINT("req=%s trace?=%s n?=%s event=x", "r", "", "");
    cr_assert_str_eq(line, "req=r event=x");
    PRINT("req=%s trace?=%s event=x", "r", "ab c");
    cr_assert_str_eq(line, "req=r trace=\"ab c\" event=x");
    PRINT("event=x reason?=\"%s\"", "");
    cr_assert_str_eq(line, "event=x");
    PRINT("event=x reason?=\"%s\" n=%d", "", 1);
    cr_assert_str_eq(line, "event=x n=1");
}

/* ---- JSON ------------------------------------------------------------------------------- */

/* Parses the printed line into members of an object. The caller decrefs it. */
static json_t *members(void) {
    char text[LINE_MAX_BYTES + 16];
    json_error_t err;
    snprintf(text, sizeof text, "{\"a0\":0%s}", line);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &err);
    cr_assert_not_null(o, "%s: %s", err.text, text);
    return o;
}

#define JSON(...) (json = true, PRINT(__VA_ARGS__))

Test(logfmt, json_has_numbers_where_the_format_has_them_and_strings_elsewhere) {
    JSON("req=%s n=%d peer=%s:%d s=%.3f id=%08x u=%" PRIu64 " z=%02d inf=%f event=7", "12", -7,
         "10.0.0.1", 8200, 0.5, 255u, UINT64_C(18446744073709551615), 7, (double)INFINITY);
    cr_assert_str_eq(line, ",\"req\":\"12\",\"n\":-7,\"peer\":\"10.0.0.1:8200\",\"s\":0.500,"
                           "\"id\":\"000000ff\",\"u\":18446744073709551615,\"z\":\"07\","
                           "\"inf\":\"inf\",\"event\":\"7\"");
}

Test(logfmt, json_leaves_optional_pairs_out_too) {
    JSON("trace?=%s event=x reason?=\"%s\"", "", "");
    cr_assert_str_eq(line, ",\"event\":\"x\"");
}

Test(logfmt, json_reads_hostile_values_back_as_they_were) {
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        JSON("req=%s reason=\"%s\" n=%d", hostile[i], hostile[i], 5);
        json_t *o = members();
        cr_assert_eq(json_object_size(o), 4);
        cr_assert_str_eq(json_string_value(json_object_get(o, "req")), hostile[i]);
        cr_assert_str_eq(json_string_value(json_object_get(o, "reason")), hostile[i]);
        cr_assert_eq(json_integer_value(json_object_get(o, "n")), 5);
        json_decref(o);
    }
    JSON("%s=1 b=%d", "a=2 \"c\nd\xff\\", 3);
    cr_assert_str_eq(line, ",\"a?2 ?c?d??\":\"1\",\"b\":3");
}

Test(logfmt, json_that_does_not_fit_is_cut_and_stays_valid) {
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    for (size_t i = 3; i < 200; i += 27) big[i] = i % 2 ? '"' : '\n';
    for (size_t cap = 16; cap < 300; cap++) {
        json = true;
        print(cap, "k=%s n=%d event=\"%s\" key_that_is_rather_long=%d", "v", 123456, big, 1);
        json_decref(members());
        print(cap, "first_key_that_is_rather_long=%" PRId64, INT64_MIN);
        json_decref(members());
    }
}

/* ---- buffer size ------------------------------------------------------------------------ */

Test(logfmt, a_line_that_does_not_fit_is_cut_and_stays_valid) {
    char big[5000], odd[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    strcpy(odd, big);
    for (size_t i = 3; i < 200; i += 27) odd[i] = i % 2 ? '"' : '\n';
    for (size_t cap = 16; cap < 200; cap++) {
        print(cap, "k=%s event=\"%s\" n=%d", "v", big, 1);
        int n = parse();
        cr_assert_geq(n, 1);
        if (cap > 40) cr_assert_eq(n, 2, "%s", line);
        if (cap > 40) cr_assert(strstr(line, "x..."), "%s", line);
        print(cap, "k=%s", odd); /* and where it would cut an escape */
        cr_assert_eq(parse(), 1);
    }
}

Test(logfmt, a_value_that_is_too_long_does_not_drop_later_ones) {
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    PRINT("a=%s b=%d", big, 1);
    cr_assert_eq(parse(), 2);
    cr_assert_eq(pairs[0].n, FV_LOGFMT_VALUE_MAX + strlen("..."));
    has(1, "b", "1");
}
