/* Reads captions back into lists of things, and compares the lists.
 *
 * A sentence is read word by word: names of a row, column, size, colour or shape and digits are
 * noted, the last of a kind counts, other words are ignored. A sentence with all facts of a thing
 * lists one thing. */
#include <string.h>

#include "eval/scenes/score.h"

enum { WORD_MAX = 24, THINGS_MAX = 64 };

/* Facts in a sentence, -1 if absent; also a thing, which has only the facts it needs. All fields
 * are int32_t, so things can be compared as bytes. */
typedef struct sentence {
    int32_t row, column, size, color, shape, digits, handwritten;
} sentence;

typedef struct list {
    int32_t n; /* number listed; things past THINGS_MAX count but never hit */
    sentence thing[THINGS_MAX];
} list;

static int32_t find(const char *word, const char *(*name)(int32_t), int32_t n, int32_t otherwise) {
    for (int32_t i = 0; i < n; i++)
        if (strcmp(word, name(i)) == 0) return i;
    return otherwise;
}

static const char *row_word(int32_t i) {
    static const char *const words[] = {"top", "middle", "bottom"};
    return words[i];
}

static const char *column_word(int32_t i) {
    static const char *const words[] = {"left", "center", "right"};
    return words[i];
}

/* Reads a number of up to six digits; returns `otherwise` for other words. */
static int32_t read_digits(const char *word, int32_t otherwise) {
    int32_t value = 0;
    if (strlen(word) > 6) return otherwise;
    for (const char *c = word; *c; c++) {
        if (*c < '0' || *c > '9') return otherwise;
        value = value * 10 + (*c - '0');
    }
    return value;
}

static void note_word(sentence *s, const char *word) {
    s->row = find(word, row_word, 3, s->row);
    s->column = find(word, column_word, 3, s->column);
    s->size = find(word, fv_size_word, FV_N_SIZE, s->size);
    s->color = find(word, fv_color_word, FV_N_COLOR, s->color);
    s->shape = find(word, fv_shape_word, FV_N_SHAPE, s->shape);
    s->digits = read_digits(word, s->digits);
    if (strcmp(word, "handwritten") == 0) s->handwritten = 1;
}

static const sentence unsaid = {
    .row = -1, .column = -1, .size = -1, .color = -1, .shape = -1, .digits = -1, .handwritten = -1};

static void end_sentence(sentence *s, list *l) {
    const bool placed = s->row >= 0 && s->column >= 0;
    const bool object = s->size >= 0 && s->color >= 0 && s->shape >= 0;
    if (object)
        s->digits = s->handwritten = -1;
    else
        s->size = s->color = s->shape = -1;
    if (placed && (object || s->digits >= 0)) {
        if (l->n < THINGS_MAX) l->thing[l->n] = *s;
        l->n++;
    }
    *s = unsaid;
}

static bool ends_sentence(char c) { return c == '.' || c == ';' || c == '\n' || c == 0; }

static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static void read_list(const char *text, list *l) {
    sentence s = unsaid;
    char word[WORD_MAX];
    size_t length = 0;
    l->n = 0;
    for (const char *c = text;; c++) {
        if (is_letter_or_digit(*c)) {
            if (length + 1 < sizeof word)
                word[length++] = (char)(*c | (*c < 'a' && *c > '9' ? 32 : 0));
            continue;
        }
        word[length] = 0;
        if (length > 0) note_word(&s, word);
        length = 0;
        if (ends_sentence(*c)) end_sentence(&s, l);
        if (*c == 0) return;
    }
}

static int32_t stored(const list *l) { return l->n < THINGS_MAX ? l->n : THINGS_MAX; }

double fv_score_caption(const char *expected, const char *said) {
    list right, given;
    bool taken[THINGS_MAX] = {false}; /* each thing hits once */
    read_list(expected, &right);
    read_list(said, &given);
    const int32_t listed = right.n + given.n;
    if (listed == 0) return 1;
    int32_t hits = 0;
    for (int32_t i = 0; i < stored(&given); i++)
        for (int32_t k = 0; k < stored(&right); k++)
            if (!taken[k] && memcmp(&given.thing[i], &right.thing[k], sizeof(sentence)) == 0) {
                taken[k] = true;
                hits++;
                break;
            }
    return 2.0 * hits / listed;
}
