#ifndef FOVEA_TEXT_SENTENCEPIECE_H
#define FOVEA_TEXT_SENTENCEPIECE_H

/* SENTENCEPIECE: tokenizer.model, a protobuf message (ModelProto of the SentencePiece project):
 *
 *   1 pieces, repeated:   1 text, 2 score (float), 3 type
 *   2 trainer_spec:       3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback
 *   3 normalizer_spec:    2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
 *   5 denormalizer_spec:  2 precompiled_charsmap
 *
 * Parsing trusts no length; members that are not listed are skipped. */
#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "gguf/gguf.h"

enum {
    FV_PIECE_NORMAL = 1,
    FV_PIECE_UNKNOWN,
    FV_PIECE_CONTROL,
    FV_PIECE_USER,
    FV_PIECE_UNUSED,
    FV_PIECE_BYTE
};
enum {
    FV_SENTENCEPIECE_UNIGRAM = 1,
    FV_SENTENCEPIECE_BPE,
    FV_SENTENCEPIECE_WORD,
    FV_SENTENCEPIECE_CHAR
};

typedef struct fv_sentencepiece {
    fv_gguf_string *piece; /* [n] borrowed from the bytes */
    double *score;         /* [n] */
    uint8_t *type;         /* [n] */
    size_t n;
    int32_t model; /* FV_SENTENCEPIECE_... */
    bool byte_fallback;
    bool dummy_prefix; /* a space is put before a text */
    bool trims;        /* white space at the ends is removed, and of several spaces all but one */
    bool suffix;       /* that space is put behind the text */
    bool escapes;      /* spaces become U+2581 */
    bool denormalizes; /* characters of an answer are replaced by a table */
    fv_gguf_string
        map; /* characters are normalized by a table (text/charsmap.h); borrowed, n 0: none */
} fv_sentencepiece;

/* Parses n bytes, which must outlive *out; tables are in the arena. FV_EDATA: it is no such message, or has no
 * pieces. */
fv_status fv_sentencepiece_parse(const void *bytes, size_t n, const char *where, fv_arena *arena,
                                 fv_sentencepiece *out);

#endif
