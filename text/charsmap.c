/* A walk through SentencePiece's double-array trie of normalized characters.
 *
 * A unit has the label of the edge that leads to it, the offset of its children, and whether one of them, with the
 * label 0, has a value. The child for byte c is at position ^ offset ^ c. Each position is checked, and a key's length
 * is bounded, because a hostile trie can go in circles. */
#include "text/charsmap.h"

#include <string.h>

enum {
    RESULTS_MAX = 32, /* SentencePiece looks at this many keys */
    TEXT_MAX = 1024   /* of one key; the longest of Unicode's forms has 33 bytes */
};

static uint32_t label_of(uint32_t unit) { return unit & (1U << 31 | 0xFF); }
static bool has_value(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

fv_status fv_charsmap_read(const unsigned char *bytes, size_t n, const char *where, fv_arena *arena,
                           fv_charsmap *out) {
    uint32_t *unit;
    char *text;
    size_t n_trie = 0;
    for (size_t i = 0; i < 4 && n >= 4; i++) n_trie |= (size_t)bytes[i] << 8 * i;
    if (n < 4 || n_trie < 4 || n_trie % 4 || n_trie >= n - 4 || bytes[n - 1])
        return FV_FAIL(FV_EDATA,
                       "%s: precompiled_charsmap is broken or cut short: download the file again",
                       where);
    const size_t n_text = n - 4 - n_trie;
    FV_TRY(FV_ARENA_NEW(arena, n_trie / 4, unit));
    FV_TRY(FV_ARENA_NEW(arena, n_text, text));
    for (size_t i = 0; i < n_trie; i++) unit[i / 4] |= (uint32_t)bytes[4 + i] << 8 * (i % 4);
    memcpy(text, bytes + 4 + n_trie, n_text);
    for (size_t at = 0, length; at < n_text; at += length + 1) {
        length = strlen(text + at);
        if (length > TEXT_MAX)
            return FV_FAIL(FV_EDATA,
                           "%s: precompiled_charsmap makes %zu bytes of a character; "
                           "at most %d are possible",
                           where, length, TEXT_MAX);
    }
    *out = (fv_charsmap){unit, n_trie / 4, text, n_text};
    return FV_OK;
}

size_t fv_charsmap_find(const fv_charsmap *map, const char *s, size_t n, bool longest,
                        const char **to) {
    size_t found = 0, at = offset_of(map->unit[0]);
    int results = 0;
    if (n > FV_CHARSMAP_KEY_MAX) n = FV_CHARSMAP_KEY_MAX;
    for (size_t i = 0; i < n && results < RESULTS_MAX; i++) {
        at ^= (unsigned char)s[i];
        if (at >= map->n_unit || label_of(map->unit[at]) != (unsigned char)s[i]) break;
        const bool ends = has_value(map->unit[at]);
        at ^= offset_of(map->unit[at]);
        if (at >= map->n_unit) break;
        if (!ends) continue;
        const uint32_t value = map->unit[at] & ~(1U << 31);
        if (value >= map->n_text) break;
        found = i + 1;
        *to = map->text + value;
        results++;
        if (!longest) break;
    }
    return found;
}
