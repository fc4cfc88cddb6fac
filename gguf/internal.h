#ifndef FOVEA_GGUF_INTERNAL_H
#define FOVEA_GGUF_INTERNAL_H

/* The makers of the files (texts.h). */
#include <jansson.h>

#include "gguf/texts.h"

typedef struct fv_gguf_json {
    json_t *root;
    bool lost; /* incomplete, because memory ran out */
} fv_gguf_json;

static inline void fv_gguf_set(fv_gguf_json *m, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0) m->lost = true;
}

static inline void fv_gguf_append(fv_gguf_json *m, json_t *array, json_t *value) {
    if (json_array_append_new(array, value) != 0) m->lost = true;
}

fv_status fv_gguf_config(const fv_gguf *g, fv_gguf_json *m);
fv_status fv_gguf_tokenizer(const fv_gguf *g, fv_gguf_json *m);
fv_status fv_gguf_tokenizer_config(const fv_gguf *g, fv_gguf_json *m);

/* The vocabulary in the metadata. */
typedef struct fv_gguf_vocab {
    fv_gguf_string *token; /* [n] */
    double *type;          /* [n] kinds below */
    size_t n;
} fv_gguf_vocab;

enum { FV_GGUF_NORMAL = 1, FV_GGUF_UNKNOWN, FV_GGUF_CONTROL, FV_GGUF_USER, FV_GGUF_UNUSED };

fv_status fv_gguf_read_vocab(const fv_gguf *g, fv_gguf_vocab *out);
void fv_gguf_free_vocab(fv_gguf_vocab *v);

/* Makes the merges of a SentencePiece vocabulary, which has scores instead: for each token the pairs of
 * tokens that it can be cut into, by descending score, and for equal scores longer first parts first.
 * `ids`: {token: id}. Like generate_merges in transformers (tokenization_utils_sentencepiece.py). */
fv_status fv_gguf_merges(const fv_gguf *g, const fv_gguf_vocab *v, const json_t *ids,
                         json_t *merges);

#endif
