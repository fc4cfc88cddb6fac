#ifndef FOVEA_COMMON_SUGGEST_H
#define FOVEA_COMMON_SUGGEST_H

/* "Did you mean": the known name nearest to an unknown one.
 *
 *   fv_suggestion s = fv_suggest_for(word, n);
 *   for each known name: fv_suggest_try(&s, name);
 *   FV_FAIL(..., "unknown thing '%s'%s", word, fv_suggest_text(&s, text));
 *
 * Names are near if at most two edits apart, one edit for short names: a letter inserted, deleted,
 * replaced, or two exchanged. Pure functions. */
#include <stddef.h>
#include <stdint.h>

enum { FV_SUGGEST_MAX = 96 }; /* bytes of the text with its NUL */

typedef struct fv_suggestion {
    const char *word; /* [n], borrowed */
    size_t n;
    const char *best; /* borrowed; NULL: none is near */
    int32_t edits;    /* from word to best */
} fv_suggestion;

fv_suggestion fv_suggest_for(const char *word, size_t n);

/* Keeps the first of equally near names. */
void fv_suggest_try(fv_suggestion *s, const char *known);

/* "; did you mean 'NAME'?", or "" if no name is near. Returns out. */
const char *fv_suggest_text(const fv_suggestion *s, char out[FV_SUGGEST_MAX]);

#endif
