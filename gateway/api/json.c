/* A state machine that reads byte by byte between strings, and skips plain characters in strings
 * eight at a time. */
#include "gateway/api/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/random.h"

enum state {
    VALUE,         /* expects a value */
    FIRST_ELEMENT, /* a value, or ] */
    FIRST_KEY,     /* a key, or } */
    NEXT_KEY,
    COLON,
    AFTER, /* after a value: a comma, ] or } */
    DONE,
    STRING,
    ESCAPE,     /* after a backslash */
    HEX,        /* after \u */
    LOW_SLASH,  /* after the first half of a surrogate pair */
    LOW_LETTER, /* after that half and a backslash */
    LITERAL,
    NUMBER,
};

enum number_state { MINUS, ZERO, WHOLE, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS };

static fv_status refuse_with(const fv_json *j, fv_status st, const char *why) {
    return FV_FAIL(st, "line %" PRIu32 ", column %" PRIu64 ": %s", j->line,
                   j->n_read - j->line_at + 1, why);
}

__attribute__((format(printf, 2, 3))) static fv_status refuse(const fv_json *j, const char *fmt,
                                                              ...) {
    char why[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return refuse_with(j, FV_EDATA, why);
}

/* The text may be JSON, but it is beyond a limit. */
static fv_status refuse_limit(const fv_json *j, int32_t limit, const char *of_what) {
    char why[160];
    snprintf(why, sizeof why, "more than %" PRId32 " %s", limit, of_what);
    return refuse_with(j, FV_EINVAL, why);
}

static fv_status emit(fv_json *j, fv_json_type type) {
    return j->on_event(j->user, &(fv_json_event){.type = type});
}

/* ---- keys ------------------------------------------------------------------------------- */

/* FNV-1a with a secret seed, then the finalizer of MurmurHash3, so that clients cannot choose keys
 * that collide in the table. Two keys with the same 64-bit hash count as duplicates, which does not
 * happen by accident. */
static void hash_bytes(fv_json *j, const char *text, size_t n) {
    uint64_t h = j->hash;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    j->hash = h;
}

/* Never returns 0, which marks an empty slot. The depth is hashed too, because objects inside each
 * other may have the same key. */
static uint64_t finish_hash(const fv_json *j) {
    uint64_t h = j->hash ^ (uint64_t)j->depth * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    h ^= h >> 33;
    return h ? h : 1;
}

/* Finds the slot of a hash, or the empty slot where it belongs. Hashes are removed in reverse order
 * of insertion, so removal only has to empty the slot. */
static uint64_t *slot_of(const fv_json *j, uint64_t hash) {
    size_t i = (size_t)hash & (j->n_slot - 1);
    while (j->table[i] && j->table[i] != hash) i = (i + 1) & (j->n_slot - 1);
    return &j->table[i];
}

static fv_status enlarge_table(fv_json *j) {
    size_t n = j->n_slot ? 2 * j->n_slot : 64;
    uint64_t *table = calloc(n, sizeof *table);
    if (!table) return FV_FAIL(FV_ENOMEM, "out of memory for the keys of an object");
    free(j->table);
    j->table = table;
    j->n_slot = n;
    for (size_t i = 0; i < j->n_key; i++) *slot_of(j, j->keys[i]) = j->keys[i];
    return FV_OK;
}

static fv_status add_key(fv_json *j) {
    uint64_t hash = finish_hash(j);
    if (j->n_key == FV_JSON_KEYS_MAX)
        return refuse_limit(j, FV_JSON_KEYS_MAX, "keys in objects that are open");
    if (2 * (j->n_key + 1) > j->n_slot) FV_TRY(enlarge_table(j));
    FV_TRY(fv_grow(&j->keys, &j->cap_key, j->n_key + 1, sizeof *j->keys));
    uint64_t *slot = slot_of(j, hash);
    if (*slot) return refuse(j, "an object has the same key twice");
    *slot = hash;
    j->keys[j->n_key++] = hash;
    return FV_OK;
}

static void forget_keys(fv_json *j) {
    for (const size_t first = j->first_key[j->depth - 1]; j->n_key > first;)
        *slot_of(j, j->keys[--j->n_key]) = 0;
}

/* ---- objects and arrays ------------------------------------------------------------------ */

static bool in_object(const fv_json *j) {
    return j->depth_is_object[(j->depth - 1) / 8] >> (j->depth - 1) % 8 & 1;
}

static fv_status open(fv_json *j, bool object) {
    const uint8_t bit = (uint8_t)(1 << j->depth % 8);
    uint8_t *bits = &j->depth_is_object[j->depth / 8];
    *bits = (uint8_t)(object ? *bits | bit : *bits & ~bit);
    j->first_key[j->depth++] = (uint32_t)j->n_key;
    j->state = object ? FIRST_KEY : FIRST_ELEMENT;
    return emit(j, object ? FV_JSON_OBJECT : FV_JSON_ARRAY);
}

static fv_status close_open(fv_json *j, char c) {
    bool object = in_object(j);
    if (c != (object ? '}' : ']')) return refuse(j, "found %c, expected %c", c, object ? '}' : ']');
    if (object) forget_keys(j);
    j->depth--;
    j->state = j->depth ? AFTER : DONE;
    return emit(j, object ? FV_JSON_OBJECT_END : FV_JSON_ARRAY_END);
}

static void begin_string(fv_json *j, bool is_key) {
    j->state = STRING;
    j->is_key = is_key;
    j->hash = j->seed;
}

static fv_status begin_number(fv_json *j, char c) {
    j->state = NUMBER;
    j->number_state = c == '-' ? MINUS : c == '0' ? ZERO : WHOLE;
    j->number[0] = c;
    j->n_number = 1;
    return FV_OK;
}

static fv_status begin_literal(fv_json *j, const char *literal) {
    j->state = LITERAL;
    j->literal = literal + 1;
    return FV_OK;
}

static fv_status begin_value(fv_json *j, char c) {
    if (j->depth == FV_JSON_DEPTH_MAX)
        return refuse_limit(j, FV_JSON_DEPTH_MAX, "values inside of each other");
    if (c == '{' || c == '[') return open(j, c == '{');
    if (j->depth == 0) return refuse(j, "{ or [ expected");
    switch (c) {
    case '"': begin_string(j, false); return FV_OK;
    case 't': return begin_literal(j, "true");
    case 'f': return begin_literal(j, "false");
    case 'n': return begin_literal(j, "null");
    default: break;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return begin_number(j, c);
    return refuse(j, "a value expected");
}

static fv_status between(fv_json *j, char c) {
    switch (j->state) {
    case VALUE: return begin_value(j, c);
    case FIRST_ELEMENT: return c == ']' ? close_open(j, c) : begin_value(j, c);
    case FIRST_KEY:
        if (c == '}') return close_open(j, c);
        /* fall through */
    case NEXT_KEY:
        if (c != '"') return refuse(j, "a key in quotes expected");
        begin_string(j, true);
        return FV_OK;
    case COLON:
        if (c != ':') return refuse(j, ": expected behind a key");
        j->state = VALUE;
        return FV_OK;
    case AFTER:
        if (c == '}' || c == ']') return close_open(j, c);
        if (c != ',') return refuse(j, ", or %c expected", in_object(j) ? '}' : ']');
        j->state = in_object(j) ? NEXT_KEY : VALUE;
        return FV_OK;
    default: return refuse(j, "unexpected data after the JSON value");
    }
}

/* ---- literals and numbers ---------------------------------------------------------------- */

static fv_status in_literal(fv_json *j, char c) {
    if (c != *j->literal) return refuse(j, "true, false or null expected");
    if (*++j->literal) return FV_OK;
    j->state = AFTER;
    return emit(j, j->literal[-2] == 'l' ? FV_JSON_NULL
                                         : (j->literal[-2] == 'u' ? FV_JSON_TRUE : FV_JSON_FALSE));
}

/* Returns whether c continues the number, and then advances number_state. */
static bool continues(fv_json *j, char c) {
    const bool digit = c >= '0' && c <= '9', exponent = c == 'e' || c == 'E';
    uint8_t *s = &j->number_state;
    switch (*s) {
    case MINUS:
        if (!digit) return false;
        *s = c == '0' ? ZERO : WHOLE;
        return true;
    case WHOLE:
        if (digit) return true;
        /* fall through */
    case ZERO:
        if (c != '.' && !exponent) return false;
        *s = exponent ? EXPONENT : POINT;
        return true;
    case POINT:
    case FRACTION:
        if (*s == FRACTION && exponent) {
            *s = EXPONENT;
            return true;
        }
        *s = digit ? FRACTION : *s;
        return digit;
    case EXPONENT:
        if (c == '+' || c == '-') {
            *s = EXPONENT_SIGN;
            return true;
        }
        /* fall through */
    default: *s = digit ? EXPONENT_DIGITS : *s; return digit;
    }
}

static fv_status end_number(fv_json *j) {
    fv_json_event e = {.type = FV_JSON_INTEGER};
    j->number[j->n_number] = '\0';
    errno = 0;
    switch (j->number_state) {
    case ZERO:
    case WHOLE: e.integer = strtoll(j->number, NULL, 10); break;
    case FRACTION:
    case EXPONENT_DIGITS: e.type = FV_JSON_REAL; break;
    default: return refuse(j, "a number ends after '%.20s'", j->number);
    }
    if (errno) e.type = FV_JSON_REAL;
    if (e.type == FV_JSON_REAL) e.real = strtod(j->number, NULL);
    j->state = AFTER;
    return j->on_event(j->user, &e);
}

/* *taken: c is part of the number; otherwise the number has ended before it. */
static fv_status in_number(fv_json *j, char c, bool *taken) {
    *taken = continues(j, c);
    if (!*taken) return end_number(j);
    if (j->n_number == FV_JSON_NUMBER_MAX)
        return refuse_limit(j, FV_JSON_NUMBER_MAX, "characters of a number");
    j->number[j->n_number++] = c;
    return FV_OK;
}

/* ---- strings ----------------------------------------------------------------------------- */

static fv_status piece(fv_json *j, const char *text, size_t n, bool more) {
    if (j->is_key) hash_bytes(j, text, n);
    if (!more) j->state = j->is_key ? COLON : AFTER;
    if (!more && j->is_key) FV_TRY(add_key(j));
    return j->on_event(j->user, &(fv_json_event){.type = j->is_key ? FV_JSON_KEY : FV_JSON_STRING,
                                                 .text = text,
                                                 .n = n,
                                                 .more = more});
}

/* ASCII except quotes, backslashes and control characters. */
static bool is_plain(char c) { return (signed char)c >= ' ' && c != '"' && c != '\\'; }

/* Finds the first byte that is not plain, eight at a time: each operation sets the highest bit of
 * the bytes that are not (and, by borrows, perhaps of bytes above them). */
static const char *skip_plain(const char *s, const char *end) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    for (; end - s >= 8; s += 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        if ((w | (w - ones * ' ') | ((w ^ ones * '"') - ones) | ((w ^ ones * '\\') - ones)) &
            ones * 0x80)
            break;
    }
    while (s < end && is_plain(*s)) s++;
    return s;
}

/* Sets which bytes may follow the first byte of a UTF-8 character (RFC 3629, section 4). */
static fv_status begin_character(fv_json *j, uint8_t c) {
    j->follow_min = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    j->follow_max = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    j->n_follow = (uint8_t)(c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1);
    if (c < 0xC2 || c > 0xF4) return refuse(j, "the byte 0x%02x is not UTF-8", c);
    return FV_OK;
}

static fv_status follow(fv_json *j, uint8_t c) {
    if (c < j->follow_min || c > j->follow_max)
        return refuse(j, "the byte 0x%02x is not UTF-8 here", c);
    j->n_follow--;
    j->follow_min = 0x80;
    j->follow_max = 0xBF;
    return FV_OK;
}

/* Reads string bytes from s on. *at: where it stopped, after the closing quote or a backslash, or
 * at the end. */
static fv_status in_string(fv_json *j, const char *s, const char *end, const char **at) {
    const char *const from = s;
    const uint64_t begin = j->n_read;
    while (s < end) {
        j->n_read = begin + (uint64_t)(s - from); /* the position that `refuse` reports */
        if (j->n_follow) {
            FV_TRY(follow(j, (uint8_t)*s++));
            continue;
        }
        s = skip_plain(s, end);
        if (s == end) break;
        j->n_read = begin + (uint64_t)(s - from);
        if (*s == '"' || *s == '\\') {
            const bool more = *s == '\\';
            *at = s + 1;
            if (more) j->state = ESCAPE;
            return more && s == from ? FV_OK : piece(j, from, (size_t)(s - from), more);
        }
        if ((uint8_t)*s < ' ') return refuse(j, "a control character in a string");
        FV_TRY(begin_character(j, (uint8_t)*s++));
    }
    *at = s;
    return s == from ? FV_OK : piece(j, from, (size_t)(s - from), true);
}

static fv_status add_character(fv_json *j, uint32_t c) {
    char text[4];
    size_t n = 0;
    j->state = STRING;
    if (c < 0x80) {
        text[n++] = (char)c;
    } else {
        const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
        text[n++] = (char)(first[more] | c >> 6 * more);
        for (int i = more - 1; i >= 0; i--) text[n++] = (char)(0x80 | (c >> 6 * i & 0x3F));
    }
    return piece(j, text, n, true);
}

static fv_status in_escape(fv_json *j, char c) {
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) return add_character(j, (uint32_t)(uint8_t)means[letter - letters]);
    if (c != 'u') return refuse(j, "invalid escape sequence");
    j->state = HEX;
    j->hex = j->n_hex = 0;
    return FV_OK;
}

static fv_status end_hex(fv_json *j) {
    const uint32_t c = j->hex, high = j->high;
    const bool low = c >= 0xDC00 && c <= 0xDFFF;
    if (low != (high != 0)) return refuse(j, "unpaired surrogate in a \\u escape");
    j->high = 0;
    if (low) return add_character(j, 0x10000 + ((high - 0xD800) << 10) + (c - 0xDC00));
    if (c < 0xD800 || c > 0xDBFF) return add_character(j, c);
    j->high = c;
    j->state = LOW_SLASH;
    return FV_OK;
}

static fv_status in_hex(fv_json *j, char c) {
    static const char digits[] = "0123456789abcdef";
    const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 'a' - 'A' : c) : NULL;
    if (!digit) return refuse(j, "four hexadecimal digits expected behind \\u");
    j->hex = j->hex << 4 | (uint32_t)(digit - digits);
    return ++j->n_hex < 4 ? FV_OK : end_hex(j);
}

static fv_status in_pair(fv_json *j, char c) {
    if (c != (j->state == LOW_SLASH ? '\\' : 'u'))
        return refuse(j, "unpaired surrogate in a \\u escape");
    if (j->state == LOW_LETTER) j->hex = j->n_hex = 0;
    j->state = j->state == LOW_SLASH ? LOW_LETTER : HEX;
    return FV_OK;
}

/* ---- reading a text ---------------------------------------------------------------------- */

/* Skips space between values and counts lines; strings have no line breaks. */
static bool is_space(fv_json *j, char c) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return false;
    if (c == '\n') {
        j->line++;
        j->line_at = j->n_read + 1;
    }
    return true;
}

fv_status fv_json_feed(fv_json *j, const char *text, size_t n) {
    const char *s = text, *const end = text + n;
    const uint64_t before = j->n_read;
    while (s < end) {
        fv_status st;
        const char *at = s + 1;
        bool taken = true;
        j->n_read = before + (uint64_t)(s - text);
        switch (j->state) {
        case STRING: st = in_string(j, s, end, &at); break;
        case ESCAPE: st = in_escape(j, *s); break;
        case HEX: st = in_hex(j, *s); break;
        case LOW_SLASH:
        case LOW_LETTER: st = in_pair(j, *s); break;
        case LITERAL: st = in_literal(j, *s); break;
        case NUMBER:
            st = in_number(j, *s, &taken);
            if (!taken) at = s;
            break;
        default: st = is_space(j, *s) ? FV_OK : between(j, *s);
        }
        if (st != FV_OK) return st;
        s = at;
    }
    j->n_read = before + n;
    return FV_OK;
}

fv_status fv_json_end(fv_json *j) {
    return j->state == DONE ? FV_OK : refuse(j, "unexpected end of JSON");
}

fv_status fv_json_init(fv_json *j, fv_status (*on_event)(void *user, const fv_json_event *e),
                       void *user) {
    memset(j, 0, sizeof *j);
    j->on_event = on_event;
    j->user = user;
    j->line = 1;
    return fv_random_bytes(&j->seed, sizeof j->seed);
}

void fv_json_fini(fv_json *j) {
    free(j->keys);
    free(j->table);
    j->keys = j->table = NULL;
    j->n_key = j->cap_key = j->n_slot = 0;
}
