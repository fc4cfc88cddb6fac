/* Splits a program into tokens. Trims white space around tags like jinja2 with trim_blocks and
 * lstrip_blocks: a newline after a block or comment, blanks between the beginning of a line and
 * one, all white space on the side of a '-', none on the side of a '+'. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "text/jinja/internal.h"

typedef struct lexer {
    fv_jinja *p;
    const char *s; /* [n] the program, all line ends "\n" */
    size_t n, at;
    int32_t line;
    size_t line_at; /* the byte that `line` was counted to */
    fv_jj_token *tokens;
    size_t n_token, cap;
} lexer;

static int32_t line_of(lexer *l, size_t at) {
    for (; l->line_at < at; l->line_at++) l->line += l->s[l->line_at] == '\n';
    return l->line;
}

static fv_status fail(lexer *l, const char *what) {
    return FV_FAIL(FV_EDATA, "%s:%d: %s", l->p->where, line_of(l, l->at), what);
}

static fv_status add(lexer *l, fv_jj_token token) {
    token.line = line_of(l, l->at);
    FV_TRY(fv_grow(&l->tokens, &l->cap, l->n_token + 1, sizeof *l->tokens));
    l->tokens[l->n_token++] = token;
    return FV_OK;
}

static bool space_at(const lexer *l, size_t at, size_t *len) {
    int32_t cp;
    if (at >= l->n) return false;
    *len = fv_jj_char(l->s + at, l->n - at, &cp);
    return fv_jj_is_space(cp);
}

static void skip_space(lexer *l) {
    size_t len;
    while (space_at(l, l->at, &len)) l->at += len;
}

static bool starts(const lexer *l, size_t at, const char *with) {
    size_t n = strlen(with);
    return l->n - at >= n && memcmp(l->s + at, with, n) == 0;
}

/* ---- text between tags ---- */

static bool tag_at(const lexer *l, size_t at) {
    return l->s[at] == '{' && at + 1 < l->n && strchr("{%#", l->s[at + 1]) && l->s[at + 1];
}

/* Returns where the text [from, to) before a tag with this sign ends once trimmed. */
static size_t trimmed(const lexer *l, size_t from, size_t to, char sign, bool print) {
    fv_jj_str text = {.s = l->s + from, .n = to - from};
    if (sign == '-') return from + fv_jj_strip(text, NULL, false, true).n;
    if (sign == '+' || print) return to;
    size_t start = to;
    while (start > from && l->s[start - 1] != '\n') start--;
    if (start == from && from > 0 && l->s[from - 1] != '\n') return to;
    text = (fv_jj_str){.s = l->s + start, .n = to - start};
    return fv_jj_strip(text, NULL, true, true).n == 0 ? start : to;
}

static fv_status add_data(lexer *l, size_t from, size_t to) {
    if (from == to) return FV_OK;
    fv_jj_value v = fv_jj_of((fv_jj_str){.s = l->s + from, .n = to - from});
    return add(l, (fv_jj_token){.kind = FV_JJ_T_DATA, .value = v});
}

/* Skips the white space after a closing tag; sign: the character before "}}", "%}" or "#}". */
static void end_tag(lexer *l, char sign, bool print) {
    if (sign == '-')
        skip_space(l);
    else if (!print && sign != '+' && l->at < l->n && l->s[l->at] == '\n')
        l->at++;
}

static fv_status skip_comment(lexer *l) {
    size_t at = l->at;
    while (at < l->n && !starts(l, at, "#}")) at++;
    if (at >= l->n) return fail(l, "the comment has no end '#}'");
    char sign = at > l->at ? l->s[at - 1] : ' ';
    l->at = at + 2;
    end_tag(l, sign, false);
    return FV_OK;
}

/* Tells whether the block at l->at, after "{%" and its sign, is only `word`; if so, skips it. */
static bool block_is(lexer *l, const char *word, char *sign) {
    lexer in = *l;
    skip_space(&in);
    if (!starts(&in, in.at, word)) return false;
    in.at += strlen(word);
    skip_space(&in);
    *sign = in.at < in.n ? in.s[in.at] : ' ';
    if (*sign == '-' || *sign == '+') in.at++;
    if (!starts(&in, in.at, "%}")) return false;
    l->at = in.at + 2;
    return true;
}

static fv_status raw_text(lexer *l) {
    for (size_t from = l->at, at = l->at; at < l->n; at++) {
        char sign = ' ', end = ' ';
        if (!starts(l, at, "{%")) continue;
        l->at = at + 2;
        if (l->at < l->n && (l->s[l->at] == '-' || l->s[l->at] == '+')) sign = l->s[l->at++];
        if (!block_is(l, "endraw", &end)) continue;
        size_t after = l->at;
        l->at = from;
        FV_TRY(add_data(l, from, trimmed(l, from, at, sign, false)));
        l->at = after;
        end_tag(l, end, false);
        return FV_OK;
    }
    return fail(l, "{% raw %} has no end {% endraw %}");
}

/* ---- inside tags ------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) {
    return c == '_' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (unsigned char)c >= 0x80;
}

static fv_status lex_name(lexer *l) {
    size_t from = l->at;
    char *name;
    while (l->at < l->n && is_word(l->s[l->at])) l->at++;
    if (l->at - from > FV_JINJA_NAME_BYTES)
        return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: a name of %zu bytes; at most %d are read",
                       l->p->where, line_of(l, from), l->at - from, FV_JINJA_NAME_BYTES);
    FV_TRY(fv_arena_strndup(&l->p->arena, l->s + from, l->at - from, &name));
    return add(l, (fv_jj_token){.kind = FV_JJ_T_NAME, .name = name});
}

static fv_status lex_number(lexer *l) {
    char text[64];
    size_t n = 0, at = l->at;
    bool is_float = false, hex = starts(l, at, "0x") || starts(l, at, "0X");
    for (; at < l->n; at++) {
        char c = l->s[at];
        bool exponent = !hex && (c == 'e' || c == 'E');
        bool sign =
            (c == '-' || c == '+') && n && (text[n - 1] == 'e' || text[n - 1] == 'E') && !hex;
        bool point = c == '.' && !is_float && !hex && at + 1 < l->n && is_digit(l->s[at + 1]);
        if (!is_word(c) && !sign && !point) break;
        if (c == '_') continue;
        is_float |= point || exponent;
        if (n + 1 >= sizeof text) return fail(l, "the number is too long");
        text[n++] = c;
    }
    text[n] = '\0';
    char *end;
    errno = 0;
    fv_jj_value v =
        is_float ? fv_jj_float(strtod(text, &end)) : fv_jj_int(strtoll(text, &end, hex ? 16 : 10));
    if (*end || (errno && !is_float)) return fail(l, "this is no number that fits 64 bits");
    l->at = at;
    return add(l, (fv_jj_token){.kind = FV_JJ_T_CONST, .value = v});
}

static int hex_digits(const lexer *l, size_t at, size_t n, int32_t *cp) {
    *cp = 0;
    for (size_t i = at; i < at + n; i++) {
        char c = i < l->n ? l->s[i] : ' ';
        int digit = is_digit(c)                          ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0 || *cp > 0x10ffff) return -1;
        *cp = *cp * 16 + digit;
    }
    return *cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000) ? -1 : 0;
}

/* Decodes the escape at l->at, after its backslash, and skips it. */
static fv_status escape(lexer *l, char out[8], size_t *n) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = l->s[l->at++];
    const char *known = strchr(from, c);
    *n = 0;
    if (c == '\n') return FV_OK;
    if (c && known) {
        out[(*n)++] = to[known - from];
        return FV_OK;
    }
    int32_t cp = 0;
    if (c >= '0' && c <= '7') {
        cp = c - '0';
        for (int i = 0; i < 2 && l->at < l->n && l->s[l->at] >= '0' && l->s[l->at] <= '7'; i++)
            cp = cp * 8 + (l->s[l->at++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (hex_digits(l, l->at, digits, &cp) != 0) return fail(l, "the escape is no character");
        l->at += digits;
    } else {
        out[(*n)++] = '\\';
        out[(*n)++] = c;
        return FV_OK;
    }
    *n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = *n; i-- > 0; cp >>= 6) out[i] = (char)(i ? 0x80 | (cp & 0x3f) : lead[*n] | cp);
    return FV_OK;
}

static fv_status lex_string(lexer *l) {
    char quote = l->s[l->at];
    size_t start = l->at++, n = 0, len, end = l->at;
    while (end < l->n && l->s[end] != quote) end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n) return fail(l, "the string has no end");
    char *text, letters[8];
    FV_TRY(fv_arena_alloc(&l->p->arena, end - l->at + 1, (void **)&text));
    while (l->at < end) {
        if (l->s[l->at] != '\\') {
            text[n++] = l->s[l->at++];
            continue;
        }
        l->at++;
        FV_TRY(escape(l, letters, &len)); /* never longer than the escape */
        memcpy(text + n, letters, len);
        n += len;
    }
    l->at = start;
    FV_TRY(add(l, (fv_jj_token){.kind = FV_JJ_T_CONST,
                                .value = fv_jj_of((fv_jj_str){.s = text, .n = n})}));
    l->at = end + 1;
    return FV_OK;
}

static fv_status lex_operator(lexer *l, int *nesting) {
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    char c = l->s[l->at];
    fv_jj_token t = {.kind = FV_JJ_T_OP, .op = c};
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (starts(l, l->at, two[i])) {
            t.op = FV_JJ_OP(two[i][0], two[i][1]);
            n = 2;
        }
    if (!strchr("+-/*%~[](){}<>=.:|,;!", c) || !c || (c == '!' && n == 1)) {
        char what[48];
        snprintf(what, sizeof what,
                 c > ' ' && c < 0x7f ? "unexpected '%c'" : "unexpected character %#x",
                 (unsigned char)c);
        return fail(l, what);
    }
    *nesting += strchr("[({", c) ? 1 : strchr("])}", c) ? -1 : 0;
    if (*nesting < 0) return fail(l, "unmatched closing bracket");
    FV_TRY(add(l, t));
    l->at += n;
    return FV_OK;
}

/* Reads a tag from after "{{" or "{%" and its sign to after its end. */
static fv_status lex_tag(lexer *l, bool print) {
    const char *end = print ? "}}" : "%}";
    int nesting = 0;
    for (;;) {
        skip_space(l);
        if (l->at >= l->n) return fail(l, print ? "'{{' has no end '}}'" : "'{%' has no end '%}'");
        char c = l->s[l->at], sign = c == '-' || (c == '+' && !print) ? c : ' ';
        if (nesting == 0 && starts(l, l->at + (sign != ' '), end)) {
            FV_TRY(add(l, (fv_jj_token){.kind = print ? FV_JJ_T_PRINT_END : FV_JJ_T_BLOCK_END}));
            l->at += 2 + (sign != ' ');
            end_tag(l, sign, print);
            return FV_OK;
        }
        if (is_digit(c))
            FV_TRY(lex_number(l));
        else if (is_word(c))
            FV_TRY(lex_name(l));
        else if (c == '\'' || c == '"')
            FV_TRY(lex_string(l));
        else
            FV_TRY(lex_operator(l, &nesting));
    }
}

static fv_status lex_all(lexer *l) {
    while (l->at < l->n) {
        size_t from = l->at, tag = l->at;
        while (tag < l->n && !tag_at(l, tag)) tag++;
        if (tag == l->n) {
            FV_TRY(add_data(l, from, tag));
            l->at = tag;
            break;
        }
        char kind = l->s[tag + 1], sign = tag + 2 < l->n ? l->s[tag + 2] : ' ';
        if (sign != '-' && sign != '+') sign = ' ';
        FV_TRY(add_data(l, from, trimmed(l, from, tag, sign, kind == '{')));
        l->at = tag + 2 + (sign != ' ');
        char end;
        if (kind == '#') {
            FV_TRY(skip_comment(l));
        } else if (kind == '%' && block_is(l, "raw", &end)) {
            if (end == '-') skip_space(l);
            FV_TRY(raw_text(l));
        } else {
            fv_jj_token begin = {.kind = kind == '{' ? FV_JJ_T_PRINT_BEGIN : FV_JJ_T_BLOCK_BEGIN};
            FV_TRY(add(l, begin));
            FV_TRY(lex_tag(l, kind == '{'));
        }
    }
    return add(l, (fv_jj_token){.kind = FV_JJ_T_END});
}

/* Makes every line end "\n" and drops the last one. */
static size_t newlines(char *s, size_t n) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n') continue;
        s[k++] = s[i] == '\r' ? '\n' : s[i];
    }
    return k && s[k - 1] == '\n' ? k - 1 : k;
}

fv_status fv_jj_lex(fv_jinja *p, const char *s, size_t n, fv_jj_token **out) {
    char *copy;
    FV_TRY(fv_arena_strndup(&p->arena, s, n, &copy));
    lexer l = {.p = p, .s = copy, .n = newlines(copy, n), .line = 1};
    fv_status st = lex_all(&l);
    if (st == FV_OK) st = fv_jj_names_make(l.tokens, l.n_token, &p->arena, &p->names);
    if (st != FV_OK) {
        free(l.tokens);
        return st;
    }
    *out = l.tokens;
    return FV_OK;
}
