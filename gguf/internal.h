#ifndef FOVEA_GGUF_INTERNAL_H
#define FOVEA_GGUF_INTERNAL_H

/* The makers of the files (texts.h). */
#include <jansson.h>

#include "gguf/texts.h"

typedef struct fv_gguf_json {
    json_t *root;
    bool lost; /* incomplete, because memory ran out */
} fv_gguf_json;

static inline void fv_gguf_put(fv_gguf_json *m, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0) m->lost = true;
}

static inline void fv_gguf_append(fv_gguf_json *m, json_t *array, json_t *value) {
    if (json_array_append_new(array, value) != 0) m->lost = true;
}

fv_status fv_gguf_config(const fv_gguf_set *s, fv_gguf_json *m);
fv_status fv_gguf_tokenizer(const fv_gguf_set *s, fv_gguf_json *m);
fv_status fv_gguf_tokenizer_config(const fv_gguf_set *s, fv_gguf_json *m);
fv_status fv_gguf_processor(const fv_gguf_set *s, fv_gguf_json *m); /* vision.c; {}: no tower */

/* A value of general.architecture. */
typedef struct fv_gguf_architecture {
    const char *name, *model_type; /* of the text model */
    bool gemma;                    /* Gemma 3's norms and windows */
    bool tower;                    /* the text model is of no use without its tower */
    bool sections;                 /* M-RoPE */
    bool experts;                  /* each FFN is a mixture of experts */
    bool recurrent;     /* most layers are recurrent, and a part of each head is rotated */
    const char *vision; /* model_type with a tower, if the projector does not say */
} fv_gguf_architecture;

/* FV_EUNSUPPORTED names the architectures that are read. */
fv_status fv_gguf_architecture_of(const fv_gguf *g, const fv_gguf_architecture **out);

typedef enum fv_gguf_presence { FV_GGUF_OPTIONAL = 0, FV_GGUF_REQUIRED } fv_gguf_presence;

/* Reads "<arch>.<key>"; leaves *out unchanged if an optional key is missing. FV_EDATA: a required one is. */
fv_status fv_gguf_number_of(const fv_gguf *g, const char *arch, const char *key,
                            fv_gguf_presence need, double *out);

/* Writes whole numbers as integers, because config.json distinguishes 8 from 8.0. */
json_t *fv_gguf_json_number(double x);

/* Keys of single families of text models (text_families.c), into m->root. */
fv_status fv_gguf_gemma_config(const fv_gguf *g, fv_gguf_json *m);
fv_status fv_gguf_sections_config(const fv_gguf *g, const fv_gguf_architecture *a, fv_gguf_json *m);
fv_status fv_gguf_recurrent_config(const fv_gguf *g, const fv_gguf_architecture *a,
                                   fv_gguf_json *m);
fv_status fv_gguf_experts_config(const fv_gguf *g, const fv_gguf_architecture *a, fv_gguf_json *m);

/* Makes m->root, the text model's config, that of the vision model (vision.c). */
fv_status fv_gguf_vision_config(const fv_gguf_set *s, const fv_gguf_architecture *a,
                                fv_gguf_json *m);

/* The vocabulary in the metadata. */
typedef struct fv_gguf_vocab {
    fv_gguf_string *token; /* [n] */
    double *type;          /* [n] kinds below */
    size_t n;
} fv_gguf_vocab;

enum { FV_GGUF_NORMAL = 1, FV_GGUF_UNKNOWN, FV_GGUF_CONTROL, FV_GGUF_USER, FV_GGUF_UNUSED };

/* Gives the id of the token with this text; -1: there is none. FV_EDATA: the tokens are no list of texts. */
fv_status fv_gguf_token(const fv_gguf *g, const char *text, int64_t *id);

fv_status fv_gguf_read_vocab(const fv_gguf *g, fv_gguf_vocab *out);
void fv_gguf_free_vocab(fv_gguf_vocab *v);

/* Makes the merges of a SentencePiece vocabulary, which has scores instead: for each token the pairs of
 * tokens that it can be cut into, by descending score, and for equal scores longer first parts first.
 * `ids`: {token: id}. Like generate_merges in transformers (tokenization_utils_sentencepiece.py). */
fv_status fv_gguf_merges(const fv_gguf *g, const fv_gguf_vocab *v, const json_t *ids,
                         json_t *merges);

#endif
