#ifndef FOVEA_RPC_PB_WIRE_H
#define FOVEA_RPC_PB_WIRE_H

/* Protocol buffers in memory: a cursor over the fields of one message, for the few places that
 * read a message without unpacking it. Nothing is allocated, and nothing past `end` is read. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct fv_pb_cursor {
    const uint8_t *at, *end;
} fv_pb_cursor;

enum { FV_PB_VARINT = 0, FV_PB_FIXED64 = 1, FV_PB_BYTES = 2, FV_PB_FIXED32 = 5 };

typedef struct fv_pb_field {
    uint32_t number;
    uint32_t type;
    uint64_t value;       /* the number, or the length of the bytes */
    const uint8_t *bytes; /* [value], borrowed */
} fv_pb_field;

static inline bool fv_pb_varint(fv_pb_cursor *c, uint64_t *out) {
    uint64_t x = 0;
    for (unsigned shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        uint8_t b = *c->at++;
        x |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *out = x;
            return true;
        }
    }
    return false;
}

static inline bool fv_pb_fixed(fv_pb_cursor *c, size_t n, uint64_t *out) {
    if ((size_t)(c->end - c->at) < n) return false;
    *out = 0;
    memcpy(out, c->at, n); /* little-endian on both sides: handoff/bytes.h */
    c->at += n;
    return true;
}

/* Reads a field's number and type, and its value or the length of its bytes, which follow. */
static inline bool fv_pb_head(fv_pb_cursor *c, fv_pb_field *f) {
    uint64_t tag;
    if (!fv_pb_varint(c, &tag) || tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1) return false;
    f->number = (uint32_t)(tag >> 3);
    f->type = (uint32_t)(tag & 7);
    f->bytes = NULL;
    switch (f->type) {
    case FV_PB_VARINT:
    case FV_PB_BYTES: return fv_pb_varint(c, &f->value);
    case FV_PB_FIXED64: return fv_pb_fixed(c, 8, &f->value);
    case FV_PB_FIXED32: return fv_pb_fixed(c, 4, &f->value);
    default: return false; /* groups, which are not supported */
    }
}

/* Reads the next field; false at the end, where c->at == c->end, or if the bytes are malformed. */
static inline bool fv_pb_next(fv_pb_cursor *c, fv_pb_field *f) {
    if (c->at == c->end) return false;
    const uint8_t *start = c->at;
    bool good = fv_pb_head(c, f);
    if (good && f->type == FV_PB_BYTES) {
        good = f->value <= (uint64_t)(c->end - c->at);
        if (good) {
            f->bytes = c->at;
            c->at += f->value;
        }
    }
    if (!good) c->at = start; /* tells it from the end */
    return good;
}

#endif
