#ifndef FOVEA_GGUF_MERGES_H
#define FOVEA_GGUF_MERGES_H

/* MERGES of a BPE vocabulary that comes without them: SentencePiece's has scores, tiktoken's ranks. Each token is
 * cut into two tokens in every way; the cuts of the token with the highest score come first. */
#include <jansson.h>

#include "gguf/gguf.h"

typedef struct fv_merge_source {
    const char *where;           /* names the file in errors */
    const fv_gguf_string *token; /* [n] UTF-8 */
    const double *score;         /* [n] */
    size_t n;
    json_int_t first; /* id of token[0]; the others follow */
    /* Whether a token takes part; NULL: all do. */
    bool (*takes)(const void *user, size_t i);
    const void *user;
    /* Among cuts of equal scores those with longer parts come first, as transformers orders SentencePiece's; false:
     * in the order of their parts' ids, as it orders tiktoken's. */
    bool longest_first;
} fv_merge_source;

/* Appends the merges to the list `merges`, as ["a", "b"]; `ids`: {token: id}. FV_EDATA: a score is no number,
 * or a token that takes part is too long. */
fv_status fv_merges_make(const fv_merge_source *v, const json_t *ids, json_t *merges);

#endif
