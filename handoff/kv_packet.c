/* Turns sections into frames and back. The writer reads every payload once for its checksum, which is sent
 * before the payload, and emits pointers; the reader verifies a header before it uses any field, and a
 * payload in steps that stay in the cache for the following copy. */
#include "handoff/kv_packet.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "common/crc32c_join.h"
#include "handoff/bytes.h"
#include "handoff/crc32c.h"

enum { MAGIC = 0x5646, CRITICAL = 1, CRC_AT = FV_SECTION_HEADER - 4, END_BYTES = 32 };
enum { READ_STEP = 128 << 10 }; /* bytes; fits a core's own cache beside the copy */

fv_wire_dtype fv_wire_dtype_named(const char *name) {
    return strcmp(name, "f32") == 0    ? FV_WIRE_F32
           : strcmp(name, "bf16") == 0 ? FV_WIRE_BF16
           : strcmp(name, "f16") == 0  ? FV_WIRE_F16
                                       : FV_WIRE_NONE;
}

void fv_section_name(uint32_t type, char out[5]) {
    for (int i = 0; i < 4; i++) {
        char c = (char)(type >> 8 * i & 0x7f);
        out[i] = c >= ' ' && c <= '~' && !(type >> 8 * i & 0x80) ? c : '?';
    }
    out[4] = '\0';
}

static bool known(uint32_t type) {
#define X(name, a, b, c, d)                                                                        \
    if (type == FV_SECTION_##name) return true;
    FV_SECTIONS(X)
#undef X
    return false;
}

/* ---- writing --------------------------------------------------------------------------- */

void fv_packet_writer_init(fv_packet_writer *w, size_t frame_max, fv_packet_emit emit, void *user) {
    assert(frame_max <= FV_FRAME_MAX);
    *w = (fv_packet_writer){
        .emit = emit, .user = user, .frame_max = frame_max ? frame_max : FV_FRAME_MAX};
}

void fv_packet_writer_fini(fv_packet_writer *w) { fv_arena_fini(&w->arena); }

fv_status fv_packet_alloc(fv_packet_writer *w, size_t bytes, void **out) {
    return fv_arena_alloc(&w->arena, bytes, out);
}

fv_status fv_packet_flush(fv_packet_writer *w) {
    if (w->bytes == 0) return FV_OK;
    fv_status st = w->emit(w->user, w->piece, w->n_piece, w->bytes);
    w->n_piece = 0;
    w->bytes = 0;
    return st;
}

static fv_status add_piece(fv_packet_writer *w, fv_piece p) {
    while (p.bytes > 0) {
        size_t left = w->frame_max - w->bytes, n = p.bytes < left ? p.bytes : left;
        w->piece[w->n_piece++] = (fv_piece){p.data, n};
        w->bytes += n;
        p.data = (const char *)p.data + n;
        p.bytes -= n;
        if (w->bytes == w->frame_max || w->n_piece == FV_FRAME_PIECES) FV_TRY(fv_packet_flush(w));
    }
    return FV_OK;
}

static void put_header(const fv_section *s, uint32_t crc_payload, uint8_t *head) {
    uint8_t *at = head;
    fv_put_u16(&at, MAGIC);
    fv_put_u8(&at, FV_PACKET_VERSION);
    fv_put_u8(&at, s->critical ? CRITICAL : 0);
    fv_put_u32(&at, s->type);
    fv_put_u32(&at, s->index);
    fv_put_u16(&at, s->layer0);
    fv_put_u16(&at, s->layer1);
    fv_put_u16(&at, s->part0);
    fv_put_u16(&at, s->part1);
    fv_put_u8(&at, s->segment);
    fv_put_u8(&at, s->dtype);
    fv_put_u16(&at, 0);
    for (int i = 0; i < 4; i++) fv_put_u32(&at, s->dims[i]);
    fv_put_u64(&at, s->length);
    fv_put_u32(&at, crc_payload);
    fv_put_u32(&at, fv_crc32c(0, head, CRC_AT));
    assert(at == head + FV_SECTION_HEADER);
}

static fv_status add_header(fv_packet_writer *w, fv_section s, uint32_t crc) {
    void *head;
    s.index = (uint32_t)w->totals.sections;
    FV_TRY(fv_arena_alloc(&w->arena, FV_SECTION_HEADER, &head));
    put_header(&s, crc, head);
    w->totals.sections++;
    w->totals.bytes += FV_SECTION_HEADER + s.length;
    w->totals.digest = XXH64(head, FV_SECTION_HEADER, w->totals.digest);
    return add_piece(w, (fv_piece){head, FV_SECTION_HEADER});
}

fv_status fv_packet_write(fv_packet_writer *w, fv_section s, const fv_piece *payload, int32_t n) {
    uint32_t crc = 0;
    s.length = 0;
    for (int32_t i = 0; i < n; i++) {
        crc = fv_crc32c(crc, payload[i].data, payload[i].bytes);
        s.length += payload[i].bytes;
    }
    FV_TRY(add_header(w, s, crc));
    for (int32_t i = 0; i < n; i++) FV_TRY(add_piece(w, payload[i]));
    return FV_OK;
}

fv_status fv_packet_write_oob(fv_packet_writer *w, fv_section s, uint64_t length, uint32_t crc) {
    s.length = length;
    FV_TRY(add_header(w, s, crc));
    return fv_packet_flush(w);
}

fv_status fv_packet_end(fv_packet_writer *w, uint64_t rows) {
    void *payload;
    FV_TRY(fv_arena_alloc(&w->arena, END_BYTES, &payload));
    w->totals.rows = rows;
    uint8_t *at = payload;
    fv_put_u64(&at, w->totals.sections);
    fv_put_u64(&at, w->totals.bytes);
    fv_put_u64(&at, w->totals.rows);
    fv_put_u64(&at, w->totals.digest);
    fv_section s = {.type = FV_SECTION_END, .critical = true, .dtype = FV_WIRE_BYTES};
    FV_TRY(fv_packet_write(w, s, &(fv_piece){payload, END_BYTES}, 1));
    return fv_packet_flush(w);
}

/* ---- reading --------------------------------------------------------------------------- */

void fv_packet_reader_init(fv_packet_reader *r, const fv_packet_hooks *hooks, uint64_t skip_max) {
    *r = (fv_packet_reader){.hooks = *hooks, .skip_max = skip_max};
}

static fv_status take_header(fv_packet_reader *r) {
    const uint8_t *at = r->head, *crc = r->head + CRC_AT;
    fv_section *s = &r->section;
    if (fv_get_u32(&crc) != fv_crc32c(0, r->head, CRC_AT))
        return FV_REFUSE(
            CHECKSUM,
            "the header of section %llu: wrong checksum, its data were damaged in transit",
            (unsigned long long)r->totals.sections);
    uint16_t magic = fv_get_u16(&at);
    uint8_t version = fv_get_u8(&at), flags = fv_get_u8(&at);
    if (magic != MAGIC || version != FV_PACKET_VERSION)
        return FV_REFUSE(MALFORMED, "not a KV packet of version %d (magic %04x, version %d)",
                         FV_PACKET_VERSION, magic, version);
    *s = (fv_section){.critical = flags & CRITICAL};
    s->type = fv_get_u32(&at);
    s->index = fv_get_u32(&at);
    s->layer0 = fv_get_u16(&at);
    s->layer1 = fv_get_u16(&at);
    s->part0 = fv_get_u16(&at);
    s->part1 = fv_get_u16(&at);
    s->segment = fv_get_u8(&at);
    s->dtype = fv_get_u8(&at);
    uint16_t reserved = fv_get_u16(&at);
    for (int i = 0; i < 4; i++) s->dims[i] = fv_get_u32(&at);
    s->length = fv_get_u64(&at);
    r->crc_want = fv_get_u32(&at);
    char name[5];
    fv_section_name(s->type, name);
    if ((flags & ~CRITICAL) || reserved || s->index != r->totals.sections)
        return FV_REFUSE(
            MALFORMED, "section %s has index %u and flags %d; expected index %llu and flags 0 or 1",
            name, s->index, flags, (unsigned long long)r->totals.sections);
    return FV_OK;
}

static fv_status begin_section(fv_packet_reader *r) {
    FV_TRY(take_header(r));
    const fv_section *s = &r->section;
    char name[5];
    fv_section_name(s->type, name);
    r->crc = 0;
    r->offset = 0;
    r->skipping = !known(s->type);
    if (r->skipping && s->critical)
        return FV_REFUSE(UNKNOWN_SECTION,
                         "section %s is critical and this build does not know it: "
                         "the decode worker is older than the prefill worker",
                         name);
    if (r->skipping && s->length > r->skip_max)
        return FV_REFUSE(MALFORMED,
                         "section %s is unknown and has %llu bytes; at most %llu are "
                         "skipped",
                         name, (unsigned long long)s->length, (unsigned long long)r->skip_max);
    if (r->skipping) return FV_OK;
    if (s->type == FV_SECTION_END && s->length != END_BYTES)
        return FV_REFUSE(MALFORMED, "section END has %llu bytes", (unsigned long long)s->length);
    return s->type == FV_SECTION_END ? FV_OK : r->hooks.begin(r->hooks.user, s);
}

static fv_status take_end(fv_packet_reader *r) {
    const uint8_t *at = r->tail;
    fv_packet_totals said;
    said.sections = fv_get_u64(&at);
    said.bytes = fv_get_u64(&at);
    said.rows = fv_get_u64(&at);
    said.digest = fv_get_u64(&at);
    if (said.sections != r->totals.sections || said.bytes != r->totals.bytes ||
        said.digest != r->totals.digest)
        return FV_REFUSE(
            MALFORMED, "END announces %llu sections and %llu bytes, but %llu and %llu arrived",
            (unsigned long long)said.sections, (unsigned long long)said.bytes,
            (unsigned long long)r->totals.sections, (unsigned long long)r->totals.bytes);
    FV_TRY(r->hooks.finish(r->hooks.user, &said));
    r->totals.rows = said.rows;
    r->done = true;
    return FV_OK;
}

static fv_status end_section(fv_packet_reader *r) {
    const fv_section *s = &r->section;
    if (r->crc != r->crc_want) {
        char name[5];
        fv_section_name(s->type, name);
        return FV_REFUSE(CHECKSUM,
                         "section %s (layer %d): wrong checksum, its data were damaged in transit",
                         name, s->layer0);
    }
    if (s->type == FV_SECTION_END)
        FV_TRY(take_end(r));
    else if (!r->skipping)
        FV_TRY(r->hooks.end(r->hooks.user, s));
    r->totals.sections++;
    r->totals.bytes += FV_SECTION_HEADER + s->length;
    r->totals.digest = XXH64(r->head, FV_SECTION_HEADER, r->totals.digest);
    r->n_head = 0;
    return FV_OK;
}

static fv_status take_payload(fv_packet_reader *r, const uint8_t *p, size_t n) {
    r->crc = fv_crc32c(r->crc, p, n);
    if (r->section.type == FV_SECTION_END)
        memcpy(r->tail + r->offset, p, n);
    else if (!r->skipping)
        FV_TRY(r->hooks.bytes(r->hooks.user, &r->section, r->offset, p, n));
    r->offset += n;
    return FV_OK;
}

fv_status fv_packet_read_oob(fv_packet_reader *r, const void *bytes, size_t n, uint32_t crc) {
    bool payload = !r->done && r->n_head == FV_SECTION_HEADER && !r->skipping &&
                   r->section.type != FV_SECTION_END && r->hooks.oob;
    if (!payload || n > r->section.length - r->offset)
        return FV_REFUSE(MALFORMED, "%zu bytes came out of band where none were expected", n);
    r->crc = fv_crc32c_join(r->crc, crc, n);
    FV_TRY(r->hooks.oob(r->hooks.user, &r->section, r->offset, bytes, n));
    r->offset += n;
    return r->offset == r->section.length ? end_section(r) : FV_OK;
}

fv_status fv_packet_read(fv_packet_reader *r, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    while (n > 0) {
        if (r->done) return FV_REFUSE(MALFORMED, "%zu bytes after END", n);
        size_t take;
        if (r->n_head < FV_SECTION_HEADER) {
            take = FV_SECTION_HEADER - r->n_head < n ? FV_SECTION_HEADER - r->n_head : n;
            memcpy(r->head + r->n_head, p, take);
            r->n_head += take;
            if (r->n_head == FV_SECTION_HEADER) FV_TRY(begin_section(r));
        } else {
            uint64_t left = r->section.length - r->offset;
            take = left < n ? (size_t)left : n;
            if (take > READ_STEP) take = READ_STEP;
            FV_TRY(take_payload(r, p, take));
        }
        p += take;
        n -= take;
        if (r->n_head == FV_SECTION_HEADER && r->offset == r->section.length)
            FV_TRY(end_section(r));
    }
    return FV_OK;
}
