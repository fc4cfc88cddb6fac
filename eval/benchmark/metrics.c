/* Exact match, contains, ANLS and multiple choice. VQA accuracy is in vqa.c.
 *
 * Texts are truncated to TEXT_CAP bytes: answers are shorter (benchmark.c), and replies usually
 * are. */
#include "eval/benchmark/metrics.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { TEXT_CAP = 1 << 15 };

static bool is_space(char c) { return c && strchr(" \t\n\r\v\f", c); }
static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Writes `text` in lower case with single spaces. Returns the length. */
static size_t squeeze(const char *text, char out[TEXT_CAP]) {
    size_t n = 0;
    for (; *text && n + 2 < TEXT_CAP; text++) {
        if (is_space(*text)) continue;
        if (n > 0 && is_space(text[-1])) out[n++] = ' ';
        out[n++] = small(*text);
    }
    out[n] = 0;
    return n;
}

static void plain(const char *text, char out[TEXT_CAP]) {
    size_t n = squeeze(text, out);
    if (n > 1 && out[n - 1] == '.') out[n - 1] = 0;
}

static bool same(const char *a, const char *b) {
    char x[TEXT_CAP], y[TEXT_CAP];
    plain(a, x);
    plain(b, y);
    return strcmp(x, y) == 0;
}

static bool in_a_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }

/* Returns whether `whole` contains `part` as whole words. */
static bool has(const char *whole, const char *part) {
    char x[TEXT_CAP], y[TEXT_CAP];
    plain(whole, x);
    plain(part, y);
    size_t n = strlen(y);
    for (const char *at = x; n && (at = strstr(at, y)); at++) {
        bool begins = at == x || !in_a_word(at[-1]) || !in_a_word(y[0]);
        if (begins && (!in_a_word(at[n]) || !in_a_word(y[n - 1]))) return true;
    }
    return false;
}

double fv_metric_exact_match(const char *const *answer, int32_t n, const char *said) {
    for (int32_t i = 0; i < n; i++)
        if (same(answer[i], said)) return 1;
    return 0;
}

double fv_metric_contains(const char *const *answer, int32_t n, const char *said) {
    for (int32_t i = 0; i < n; i++)
        if (has(said, answer[i])) return 1;
    return 0;
}

/* ---- ANLS -------------------------------------------------------------------------------- */

/* Decodes UTF-8 characters, at most cap. */
static size_t characters(const char *text, uint32_t *out, size_t cap) {
    size_t n = 0;
    for (; *text && n < cap; n++) {
        out[n] = (unsigned char)*text++;
        while (((unsigned char)*text & 0xC0) == 0x80) out[n] = out[n] << 8 | (unsigned char)*text++;
    }
    return n;
}

/* Levenshtein's distance, one row of its table at a time. */
static size_t distance(const uint32_t *a, size_t n, const uint32_t *b, size_t m) {
    size_t row[FV_ANLS_MAX + 1];
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t before = row[0]++;
        for (size_t j = 1; j <= n; j++) {
            size_t best = before + (a[j - 1] != b[i - 1]);
            before = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

static double likeness(const char *answer, const char *said) {
    char x[TEXT_CAP], y[TEXT_CAP];
    uint32_t a[FV_ANLS_MAX], b[2 * FV_ANLS_MAX + 1];
    squeeze(answer, x);
    squeeze(said, y);
    size_t n = characters(x, a, FV_ANLS_MAX), m = characters(y, b, 2 * FV_ANLS_MAX + 1);
    size_t longest = n > m ? n : m;
    if (longest == 0) return 1;
    if (m > 2 * n) return 0; /* d >= m - n > m / 2 */
    double s = 1 - (double)distance(a, n, b, m) / (double)longest;
    return s < 0.5 ? 0 : s;
}

double fv_metric_anls(const char *const *answer, int32_t n, const char *said) {
    double best = 0;
    for (int32_t i = 0; i < n; i++) {
        double s = likeness(answer[i], said);
        if (s > best) best = s;
    }
    return best;
}

/* ---- multiple choice --------------------------------------------------------------------- */

static int32_t letter_said(int32_t n, const char *said) {
    while (is_space(*said)) said++;
    bool open = *said == '(';
    said += open;
    int32_t choice = small(*said) - 'a';
    if (choice < 0 || choice >= n) return -1;
    char next = said[1];
    if (open) return next == ')' ? choice : -1;
    if (next && strchr(".):,", next)) return choice;
    for (said++; is_space(*said); said++)
        ;
    return *said ? -1 : choice;
}

int32_t fv_choice_said(const char *const *choice, int32_t n, const char *said) {
    int32_t found = letter_said(n, said);
    if (found >= 0) return found;
    for (int32_t i = 0; i < n; i++)
        if (same(choice[i], said)) return i;
    for (int32_t i = 0; i < n; i++) {
        if (!has(said, choice[i])) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}
