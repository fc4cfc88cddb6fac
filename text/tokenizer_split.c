/* Matches by hand, without the general engine's cost (tokenizer_regex.c), the expressions of GPT-2, Llama-3
 * and Qwen2, with which most byte-level tokenizers cut text into words. Each is
 * a list of alternatives, of which the first that matches wins, and together they match at every position;
 * so a word is found by trying the alternatives in order at the end of the word before. The
 * classes were compared with the reference's engine (Oniguruma) code point by code point. Any
 * thread.
 *
 * In one respect the expressions look further than one run of a class: \s+(?!\S) gives back the
 * last white-space character before a word, so that it can lead that word. */
#include <string.h>

#include "text/tokenizer_internal.h"

static const char *const regexes[FV_TOK_N_PATTERN] = {
    [FV_TOK_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                    "|\\s+(?!\\S)|\\s+",
    [FV_TOK_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [FV_TOK_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

fv_tok_pattern fv_tok_pattern_of(const char *regex) {
    int p = 0;
    while (p < FV_TOK_N_PATTERN && strcmp(regex, regexes[p]) != 0) p++;
    return (fv_tok_pattern)p;
}

typedef enum class { LETTER, NUMBER, SPACE, OTHER, END } class;

static class class_at(const char *s, size_t n, size_t at, size_t *len) {
    *len = 0;
    if (at >= n) return END;
    int32_t cp;
    fv_utf8_next(s + at, n - at, &cp, len);
    if (fv_uni_letter(cp)) return LETTER;
    if (fv_uni_number(cp)) return NUMBER;
    return fv_uni_space(cp) ? SPACE : OTHER;
}

/* Returns the end of the run of class c that starts at `at`, of at most `most` characters. */
static size_t run_end(const char *s, size_t n, size_t at, class c, size_t most) {
    size_t len;
    for (; most && class_at(s, n, at, &len) == c; most--) at += len;
    return at;
}

/* Matches 's 't 'm 'd 're 've 'll: returns the length or 0. With any_case, U+017F is an s, too. */
static size_t contraction(const char *s, size_t n, bool any_case) {
    if (n < 2 || s[0] != '\'') return 0;
    char a = s[1], b = n > 2 ? s[2] : 0;
    if (any_case) {
        if (n > 2 && memcmp(s + 1, "\u017F", 2) == 0) return 3;
        if (a >= 'A' && a <= 'Z') a = (char)(a | 0x20);
        if (b >= 'A' && b <= 'Z') b = (char)(b | 0x20);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (b == 'e' && (a == 'r' || a == 'v')) || (b == 'l' && a == 'l') ? 3 : 0;
}

/* Matches \s+(?!\S)|\s+ on white space s[0..end): all of it at the end of the text, otherwise all but the
 * last character, which begins at `last`; a single character is taken whole. */
static size_t spaces(size_t n, size_t end, size_t last) {
    return end == n || last == 0 ? end : last;
}

static size_t match_gpt2(const char *s, size_t n) {
    size_t len = contraction(s, n, false), after;
    if (len) return len;
    class first = class_at(s, n, 0, &len);
    class c = first;
    size_t at = 0;
    if (s[0] == ' ') { /* " ?" before a run of anything but white space */
        c = class_at(s, n, 1, &after);
        if (c == SPACE || c == END)
            c = first;
        else
            at = 1;
    }
    if (c != SPACE) return run_end(s, n, at, c, SIZE_MAX);
    size_t last = 0;
    for (at = 0; class_at(s, n, at, &len) == SPACE; at += len) last = at;
    return spaces(n, at, last);
}

static bool is_newline(char c) { return c == '\r' || c == '\n'; }

/* Llama-3 and Qwen2 differ in how many number characters make a word. */
static size_t match_llama3(const char *s, size_t n, size_t numbers) {
    size_t len = contraction(s, n, true), after;
    if (len) return len;
    class first = class_at(s, n, 0, &len);
    class next = class_at(s, n, len, &after);
    if (first == LETTER) return run_end(s, n, 0, LETTER, SIZE_MAX);
    if (first == NUMBER) return run_end(s, n, 0, NUMBER, numbers);
    if (next == LETTER && !is_newline(s[0])) return run_end(s, n, len, LETTER, SIZE_MAX);
    if (first == OTHER || (s[0] == ' ' && next == OTHER)) {
        size_t at = run_end(s, n, first == OTHER ? 0 : 1, OTHER, SIZE_MAX);
        while (at < n && is_newline(s[at])) at++;
        return at;
    }
    size_t at = 0, last = 0, line = 0; /* line: after the last line break of the run */
    for (; class_at(s, n, at, &len) == SPACE; at += len) {
        last = at;
        if (is_newline(s[at])) line = at + 1;
    }
    return line ? line : spaces(n, at, last);
}

size_t fv_tok_pattern_match(fv_tok_pattern p, const char *s, size_t n) {
    if (p == FV_TOK_GPT2) return match_gpt2(s, n);
    return match_llama3(s, n, p == FV_TOK_LLAMA3 ? 3 : 1);
}
