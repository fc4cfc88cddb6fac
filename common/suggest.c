/* Edit distance between names: optimal string alignment, V. Levenshtein (1966) with transpositions
 * of adjacent letters (F. Damerau, 1964), each letter moved once. Any thread. */
#include "common/suggest.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 63, FAR = 1 << 20 };

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* d[i][j]: edits from the first i bytes of a to the first j of b; three rows of it are enough. */
static int32_t distance(const char *a, size_t n, const char *b, size_t m) {
    int32_t row[3][NAME_MAX_BYTES + 1];
    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES) return FAR;
    for (size_t j = 0; j <= m; j++) row[0][j] = (int32_t)j;
    for (size_t i = 1; i <= n; i++) {
        int32_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (int32_t)i;
        for (size_t j = 1; j <= m; j++) {
            int32_t other = a[i - 1] != b[j - 1];
            now[j] = least(last[j - 1] + other, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

fv_suggestion fv_suggest_for(const char *word, size_t n) {
    return (fv_suggestion){.word = word, .n = n, .edits = FAR};
}

void fv_suggest_try(fv_suggestion *s, const char *known) {
    size_t m = strlen(known);
    int32_t most = m <= 3 || s->n <= 3 ? 1 : 2, edits = distance(s->word, s->n, known, m);
    if (s->n < 2 || m < 2 || edits > most || edits >= s->edits) return;
    s->best = known;
    s->edits = edits;
}

const char *fv_suggest_text(const fv_suggestion *s, char out[FV_SUGGEST_MAX]) {
    out[0] = '\0';
    if (s->best) snprintf(out, FV_SUGGEST_MAX, "; did you mean '%s'?", s->best);
    return out;
}
