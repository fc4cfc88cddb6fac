/* Reads the few members of a SentencePiece model that a tokenizer is made of. Any thread. */
#include "text/sentencepiece.h"

#include <string.h>

enum { PIECES_MAX = 1 << 22 };

typedef struct reader {
    const unsigned char *at, *end;
    const char *where;
} reader;

/* A member of a message: its number, and its value by wire type. */
typedef struct member {
    uint64_t number;
    int wire;                  /* 0 varint, 1 64 bits, 2 bytes, 5 32 bits */
    uint64_t value;            /* of wire types 0, 1 and 5 */
    const unsigned char *data; /* [n] of wire type 2 */
    size_t n;
} member;

static fv_status broken(const reader *r) {
    return FV_FAIL(FV_EDATA,
                   "%s is not a SentencePiece model, or is cut short: download the file again",
                   r->where);
}

static fv_status read_varint(reader *r, uint64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const unsigned char c = *r->at++;
        v |= (uint64_t)(c & 0x7F) << shift;
        if (c < 0x80) {
            *out = v;
            return FV_OK;
        }
    }
    return broken(r);
}

static fv_status read_fixed(reader *r, size_t n, uint64_t *out) {
    uint64_t v = 0;
    if ((size_t)(r->end - r->at) < n) return broken(r);
    for (size_t i = 0; i < n; i++) v |= (uint64_t)r->at[i] << 8 * i;
    r->at += n;
    *out = v;
    return FV_OK;
}

static fv_status read_member(reader *r, member *m) {
    uint64_t tag = 0;
    FV_TRY(read_varint(r, &tag));
    *m = (member){.number = tag >> 3, .wire = (int)(tag & 7)};
    if (m->number == 0) return broken(r);
    switch (m->wire) {
    case 0: return read_varint(r, &m->value);
    case 1: return read_fixed(r, 8, &m->value);
    case 5: return read_fixed(r, 4, &m->value);
    case 2: break;
    default: return broken(r);
    }
    FV_TRY(read_varint(r, &m->value));
    if (m->value > (uint64_t)(r->end - r->at)) return broken(r);
    m->data = r->at;
    m->n = (size_t)m->value;
    r->at += m->n;
    return FV_OK;
}

static reader within(const reader *r, const member *m) {
    return (reader){m->data, m->data + m->n, r->where};
}

static fv_status read_piece(reader r, fv_sentencepiece *out) {
    member m;
    const size_t i = out->n;
    out->type[i] = FV_PIECE_NORMAL;
    while (r.at < r.end) {
        FV_TRY(read_member(&r, &m));
        if (m.number == 1 && m.wire == 2)
            out->piece[i] = (fv_gguf_string){(const char *)m.data, m.n};
        if (m.number == 2 && m.wire == 5) {
            float score;
            const uint32_t bits = (uint32_t)m.value;
            memcpy(&score, &bits, sizeof score);
            out->score[i] = (double)score;
        }
        if (m.number == 3 && m.wire == 0 && m.value <= FV_PIECE_BYTE)
            out->type[i] = (uint8_t)m.value;
    }
    if (out->piece[i].n == 0)
        return FV_FAIL(FV_EDATA, "%s: piece %zu has no text: download the file again", r.where, i);
    out->n++;
    return FV_OK;
}

static fv_status read_trainer(reader r, fv_sentencepiece *out) {
    member m;
    while (r.at < r.end) {
        FV_TRY(read_member(&r, &m));
        if (m.wire != 0) continue;
        if (m.number == 3 && m.value <= FV_SENTENCEPIECE_CHAR) out->model = (int32_t)m.value;
        if (m.number == 24) out->suffix = m.value != 0;
        if (m.number == 35) out->byte_fallback = m.value != 0;
    }
    return FV_OK;
}

static fv_status read_normalizer(reader r, fv_sentencepiece *out) {
    member m;
    while (r.at < r.end) {
        FV_TRY(read_member(&r, &m));
        if (m.number == 2 && m.wire == 2) out->map = (fv_gguf_string){(const char *)m.data, m.n};
        if (m.number == 3 && m.wire == 0) out->dummy_prefix = m.value != 0;
        if (m.number == 4 && m.wire == 0) out->trims = m.value != 0;
        if (m.number == 5 && m.wire == 0) out->escapes = m.value != 0;
    }
    return FV_OK;
}

static fv_status read_denormalizer(reader r, fv_sentencepiece *out) {
    member m;
    while (r.at < r.end) {
        FV_TRY(read_member(&r, &m));
        if (m.number == 2 && m.wire == 2) out->denormalizes |= m.n > 0;
    }
    return FV_OK;
}

/* Counts the pieces, and checks the outer message. */
static fv_status count_pieces(reader r, size_t *n) {
    member m;
    *n = 0;
    while (r.at < r.end) {
        FV_TRY(read_member(&r, &m));
        *n += m.number == 1 && m.wire == 2;
    }
    if (*n >= 1 && *n <= PIECES_MAX) return FV_OK;
    return FV_FAIL(FV_EDATA, "%s has %zu pieces; 1..%d are possible: it is no SentencePiece model",
                   r.where, *n, PIECES_MAX);
}

fv_status fv_sentencepiece_parse(const void *bytes, size_t n, const char *where, fv_arena *arena,
                                 fv_sentencepiece *out) {
    reader r = {bytes, (const unsigned char *)bytes + n, where};
    member m;
    size_t n_piece;
    fv_sentencepiece s = {.model = FV_SENTENCEPIECE_UNIGRAM, /* the message's own defaults */
                          .dummy_prefix = true,
                          .trims = true,
                          .escapes = true};
    FV_TRY(count_pieces(r, &n_piece));
    FV_TRY(FV_ARENA_NEW(arena, n_piece, s.piece));
    FV_TRY(FV_ARENA_NEW(arena, n_piece, s.score));
    FV_TRY(FV_ARENA_NEW(arena, n_piece, s.type));
    while (r.at < r.end) {
        FV_TRY(read_member(&r, &m));
        if (m.wire != 2) continue;
        if (m.number == 1) FV_TRY(read_piece(within(&r, &m), &s));
        if (m.number == 2) FV_TRY(read_trainer(within(&r, &m), &s));
        if (m.number == 3) FV_TRY(read_normalizer(within(&r, &m), &s));
        if (m.number == 5) FV_TRY(read_denormalizer(within(&r, &m), &s));
    }
    *out = s;
    return FV_OK;
}
