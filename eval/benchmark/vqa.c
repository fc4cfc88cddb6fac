/* VQA accuracy. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "eval/benchmark/metrics.h"

enum { TEXT_CAP = 1 << 13, WORD_CAP = 1024 };

static const char punctuation[] = ";/[]\"{}()=+\\_-><@`,?!";

static const struct {
    const char *word, *counts_as; /* NULL: removed */
} words[] = {
    {"a", NULL},  {"an", NULL},   {"the", NULL},  {"none", "0"}, {"zero", "0"},
    {"one", "1"}, {"two", "2"},   {"three", "3"}, {"four", "4"}, {"five", "5"},
    {"six", "6"}, {"seven", "7"}, {"eight", "8"}, {"nine", "9"}, {"ten", "10"},
};

/* Contractions with all apostrophes; words that lack some or all of them are replaced by these. */
static const char contractions[] = " ain't aren't can't couldn't couldn't've could've didn't "
                                   "doesn't don't hadn't hadn't've hasn't haven't he'd"
                                   " he'd've he's how'd how'll how's isn't it'd it'd've it'll "
                                   "ma'am mightn't mightn't've might've mustn't must've"
                                   " needn't not've o'clock oughtn't 'ow's'at shan't she'd've "
                                   "shouldn't shouldn't've should've somebody'd"
                                   " somebody'd've somebody'll somebody's someone'd someone'd've "
                                   "someone'll someone's something'd something'd've"
                                   " something'll that's there'd there'd've there're there's "
                                   "they'd they'd've they'll they're they've 'twas wasn't"
                                   " we'd've weren't we've what'll what're what's what've when's "
                                   "where'd where's where've who'd who'd've who'll"
                                   " who's who've why'll why're why's won't wouldn't wouldn't've "
                                   "would've y'all y'all'd've y'all'll you'd you'd've"
                                   " you'll you're you've ";

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_space(char c) { return c && strchr(" \t\n\r\v\f", c); }

/* Returns whether any `c` in the text is next to a space. */
static bool is_next_to_space(const char *said, char c) {
    for (const char *at = said; (at = strchr(at, c)); at++)
        if (is_space(at[1]) || (at > said && is_space(at[-1]))) return true;
    return false;
}

static bool has_comma_between_digits(const char *said) {
    for (const char *at = said; (at = strchr(at, ',')); at++)
        if (at > said && is_digit(at[-1]) && is_digit(at[1])) return true;
    return false;
}

/* Removes punctuation. */
static void strip(const char *said, char out[TEXT_CAP]) {
    bool joins = has_comma_between_digits(said);
    size_t n = 0;
    for (const char *p = said; *p && n + 1 < TEXT_CAP; p++) {
        if (*p == '.' && !is_digit(p[1])) continue;
        bool mark = strchr(punctuation, *p) != NULL;
        if (!mark)
            out[n++] = *p;
        else if (!joins && !is_next_to_space(said, *p))
            out[n++] = ' ';
    }
    out[n] = 0;
}

/* Returns whether `said` equals `word`, which ends at a space, ignoring apostrophes. */
static bool is_contraction(const char *said, const char *word) {
    for (;; said++, word++) {
        while (*said == '\'') said++;
        while (*word == '\'') word++;
        if (!*said || *word == ' ') return !*said && *word == ' ';
        if (*said != *word) return false;
    }
}

/* Normal form of a word, [*n]; NULL: removed. */
static const char *counts_as(const char *word, size_t *n) {
    const char *is = word;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i].word) == 0) is = words[i].counts_as;
    *n = is ? strlen(is) : 0;
    if (is != word) return is;
    for (const char *at = contractions + 1; *at; at = strchr(at, ' ') + 1) {
        if (!is_contraction(word, at)) continue;
        *n = strcspn(at, " ");
        return at;
    }
    return word;
}

void fv_vqa_normalise(const char *said, char *out, size_t cap) {
    char trimmed[TEXT_CAP], text[TEXT_CAP];
    while (is_space(*said)) said++;
    size_t n = strnlen(said, TEXT_CAP - 1);
    while (n > 0 && is_space(said[n - 1])) n--;
    memcpy(trimmed, said, n);
    trimmed[n] = 0;
    strip(trimmed, text);
    n = 0;
    out[0] = 0;
    for (const char *p = text; *p;) {
        char word[WORD_CAP];
        size_t length = 0;
        for (; *p && !is_space(*p); p++)
            if (length + 1 < sizeof word) word[length++] = (char)tolower((unsigned char)*p);
        word[length] = 0;
        while (is_space(*p)) p++;
        const char *counts = length ? counts_as(word, &length) : NULL;
        if (!counts) continue;
        if (n + (n > 0) + length >= cap) return;
        if (n > 0) out[n++] = ' ';
        memcpy(out + n, counts, length);
        n += length;
        out[n] = 0;
    }
}

double fv_metric_vqa(const char *const *answer, int32_t n, const char *said) {
    char is[TEXT_CAP], other[TEXT_CAP];
    int32_t equal = 0;
    fv_vqa_normalise(said, is, sizeof is);
    for (int32_t i = 0; i < n; i++) {
        fv_vqa_normalise(answer[i], other, sizeof other);
        equal += strcmp(is, other) == 0;
    }
    /* leaving out an equal answer leaves one fewer of them */
    const double with = equal > 3 ? 3 : equal, without = equal > 4 ? 3 : equal - 1;
    return equal ? (equal * without + (n - equal) * with) / (3.0 * n) : 0;
}
