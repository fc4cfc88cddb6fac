/* One spelling for Jinja programs: a scanner for text, comments and tags, no parser. */
#include "text/jinja.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stands around text outside of tags, which may hold anything a tag begins with. */
enum { BORDER = '\x01' };

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (unsigned char)c >= 0x80;
}

/* Characters that make one operator with their likes: == != <= >= ** // */
static bool joins(char c) { return c && strchr("=!<>*/", c); }

/* The end of the string literal that begins at s, behind its quote; NULL: it has none. */
static const char *string_end(const char *s) {
    for (const char *p = s + 1; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == *s)
            return p + 1;
    }
    return NULL;
}

static void put_string(FILE *f, const char *s, const char *end) {
    size_t n = (size_t)(end - s) - 2;
    bool same = *s == '\'' || memchr(s + 1, '\'', n);
    char quote = same ? *s : '\'';
    fprintf(f, " %c%.*s%c", quote, (int)n, s + 1, quote);
}

/* One token of a tag; gives what follows it, NULL where a string has no end. */
static const char *put_token(FILE *f, const char *s) {
    const char *end = s + 1;
    if (*s == '\'' || *s == '"') {
        end = string_end(s);
        if (end) put_string(f, s, end);
        return end;
    }
    if (is_word(*s))
        while (is_word(*end)) end++;
    else if (joins(*s))
        while (joins(*end)) end++;
    fprintf(f, " %.*s", (int)(end - s), s);
    return end;
}

/* A tag from its "{%" or "{{" to its end; gives what follows, NULL where there is no end. */
static const char *put_tag(FILE *f, const char *s) {
    const char close[3] = {s[1] == '%' ? '%' : '}', '}', '\0'};
    fprintf(f, "%.2s", s);
    for (s += 2; s && *s;) {
        if (strncmp(s, close, 2) == 0) {
            fprintf(f, " %s", close);
            return s + 2;
        }
        s = is_space(*s) ? s + 1 : put_token(f, s);
    }
    return NULL;
}

static const char *next_tag(const char *s) {
    for (; *s; s++)
        if (*s == '{' && s[1] && strchr("{%#", s[1])) return s;
    return s;
}

static const char *put_text(FILE *f, const char *s) {
    const char *end = next_tag(s);
    size_t n = (size_t)(end - s);
    if (!*end && n && end[-1] == '\n') n--;
    if (n) fprintf(f, "%c%.*s%c", BORDER, (int)n, s, BORDER);
    return end;
}

/* Leaves a comment out, unless it trims the text beside it; gives what follows, as put_tag does. */
static const char *put_comment(FILE *f, const char *s) {
    const char *end = strstr(s + 2, "#}");
    if (!end) return NULL;
    if (s[2] == '-' || s[2] == '+' || end[-1] == '-' || end[-1] == '+')
        fprintf(f, "%.*s", (int)(end + 2 - s), s);
    return end + 2;
}

static fv_status put_program(FILE *f, const char *s) {
    while (*s) {
        s = put_text(f, s);
        if (!*s) break;
        const char *end = s[1] == '#' ? put_comment(f, s) : put_tag(f, s);
        if (!end) return FV_FAIL(FV_EDATA, "a tag of the template has no end: %.20s", s);
        s = end;
    }
    return FV_OK;
}

fv_status fv_jinja_spelling(const char *program, char **out) {
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    fv_status st = put_program(f, program);
    bool failed = ferror(f) != 0;
    failed |= fclose(f) != 0;
    if (st == FV_OK && failed) st = FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    if (st != FV_OK) {
        free(text);
        return st;
    }
    *out = text;
    return FV_OK;
}
