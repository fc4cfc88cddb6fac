/* Compares answers in a normal form, and computes intervals. Captions are in score_caption.c. */
#include "eval/scenes/score.h"

#include <math.h>
#include <string.h>

static const double Z = 1.959963984540054; /* the 97.5 % quantile of the normal distribution */

enum { WORD_MAX = 64 };

/* Normal forms of words; NULL: ignored. */
static const struct alias {
    const char *word, *counts_as;
} aliases[] = {
    {"a", NULL},    {"an", NULL},   {"the", NULL}, {"at", NULL},  {"in", NULL},
    {"on", NULL},   {"to", NULL},   {"of", NULL},  {"zero", "0"}, {"one", "1"},
    {"two", "2"},   {"three", "3"}, {"four", "4"}, {"five", "5"}, {"six", "6"},
    {"seven", "7"}, {"eight", "8"}, {"nine", "9"}, {"ten", "10"}, {"centre", "center"},
};

static const char *counts_as(const char *word) {
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(word, aliases[i].word) == 0) return aliases[i].counts_as;
    return word;
}

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool in_a_word(char c) {
    c = small(c);
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80;
}

static bool begins_with(const char *text, const char *end, const char *head) {
    for (; *head; head++, text++)
        if (text == end || small(*text) != *head) return false;
    return true;
}

/* Start of the answer in [said, end): after the words that restate the question. */
static const char *answer_start(const char *said, const char *end) {
    const char *start = said;
    for (const char *p = said; p < end; p++) {
        const char *next = NULL;
        if (*p == ':') next = p + 1;
        if (begins_with(p, end, " is ")) next = p + 4;
        if (begins_with(p, end, " are ")) next = p + 5;
        const char *rest = next;
        while (rest && rest < end && !in_a_word(*rest)) rest++;
        if (rest && rest < end) start = rest;
    }
    return start;
}

static const char *first_line_end(const char **said) {
    while (**said == ' ' || **said == '\t' || **said == '\n' || **said == '\r') (*said)++;
    return *said + strcspn(*said, "\r\n");
}

void fv_answer_normalise(const char *said, char *out, size_t cap) {
    const char *end = first_line_end(&said);
    size_t n = 0;
    out[0] = 0;
    for (const char *p = answer_start(said, end); p < end;) {
        char word[WORD_MAX];
        size_t length = 0;
        for (; p < end && in_a_word(*p); p++)
            if (length + 1 < sizeof word) word[length++] = small(*p);
        word[length] = 0;
        while (p < end && !in_a_word(*p)) p++;
        const char *counts = length ? counts_as(word) : NULL;
        if (!counts) continue;
        length = strlen(counts);
        if (n + (n > 0) + length >= cap) return;
        if (n > 0) out[n++] = ' ';
        memcpy(out + n, counts, length + 1);
        n += length;
    }
}

double fv_score_turn(const fv_turn *turn, const char *said) {
    if (turn->task == FV_TASK_CAPTION) return fv_score_caption(turn->answer, said);
    char right[FV_ANSWER_MAX], given[FV_ANSWER_MAX];
    fv_answer_normalise(turn->answer, right, sizeof right);
    fv_answer_normalise(said, given, sizeof given);
    return strcmp(right, given) == 0;
}

/* ---- intervals -------------------------------------------------------------------------- */

fv_interval fv_interval_wilson(double sum, int32_t n) {
    if (n <= 0) return (fv_interval){0, 0, 1};
    const double count = n, p = sum / count, z2 = Z * Z / count;
    const double middle = (p + z2 / 2) / (1 + z2);
    const double half = Z * sqrt(p * (1 - p) / count + z2 / (4 * count)) / (1 + z2);
    return (fv_interval){p, fmax(0, middle - half), fmin(1, middle + half)};
}

fv_interval fv_interval_paired(const double *a, const double *b, int32_t n) {
    if (n <= 0) return (fv_interval){0, -1, 1};
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < n; i++) {
        const double d = a[i] - b[i];
        sum += d;
        squares += d * d;
    }
    const double count = n + 2.0, d = sum / count;
    const double half = Z * sqrt(((squares + 1) / count - d * d) / count);
    return (fv_interval){sum / n, fmax(-1, d - half), fmin(1, d + half)};
}
