#ifndef FOVEA_TEXT_CHARSMAP_H
#define FOVEA_TEXT_CHARSMAP_H

/* CHARSMAP: the precompiled_charsmap of SentencePiece, by which characters are normalized:
 *
 *   u32 n, little endian     bytes of the trie
 *   n / 4 units of 32 bits   a double-array trie (darts-clone) from byte strings to offsets
 *   the rest                 what these are replaced by, each with a NUL behind it
 *
 * Reading trusts no offset. Any thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"

enum { FV_CHARSMAP_KEY_MAX = 256 }; /* longer keys, of which no model has any, do not match */

typedef struct fv_charsmap {
    const uint32_t *unit; /* [n_unit] */
    size_t n_unit;
    const char *text; /* [n_text], ends with a NUL */
    size_t n_text;
} fv_charsmap; /* memory belongs to an arena */

/* Reads n bytes of a map. FV_EDATA: they are none; `where` names the file. */
fv_status fv_charsmap_read(const unsigned char *bytes, size_t n, const char *where, fv_arena *arena,
                           fv_charsmap *out);

/* Finds the longest key at the front of s[0..n), or the shortest one. Returns its bytes, 0 if there is none;
 * *to: what replaces it, borrowed. */
size_t fv_charsmap_find(const fv_charsmap *map, const char *s, size_t n, bool longest,
                        const char **to);

#endif
