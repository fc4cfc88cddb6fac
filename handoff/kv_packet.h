#ifndef FOVEA_HANDOFF_KV_PACKET_H
#define FOVEA_HANDOFF_KV_PACKET_H

/* KV PACKET: how a prefilled request crosses the network, as a stream of checked sections.
 *
 *   section:  header, 56 bytes, little-endian        payload, `length` bytes
 *              0 u16 magic "FV"    2 u8  version     3 u8  flags: 1 critical, others 0
 *              4 u32 type          8 u32 index: 0, 1, 2, ... in the stream
 *             12 u16 layer0       14 u16 layer1     16 u16 part0    18 u16 part1
 *             20 u8  segment      21 u8  dtype      22 u16 0
 *             24 u32 dims[4]      40 u64 length     48 u32 CRC32C of the payload
 *             52 u32 CRC32C of the 52 bytes before
 *
 *   stream:   HELO PRMT GRDT? KEPT?
 *             { STAT? LEAD? RANK? MASK? packed? ROWS { POSN? TALY? DATA* } per layer and segment }
 *             per layer or more  TOKN END
 *   packed:   PACK FACT FACT? IMPO?     visual tokens of one layer as factors, codes, directions or
 *                                       coefficients; its ROWS then has no visual tokens. Text tokens
 *                                       too, with the segment of text: keys as factors, values
 *                                       uncompressed; or blocks of codes, one after the other
 *
 * END has the number of sections, bytes and entries, and a digest over all headers before it; as
 * headers hold the payloads' checksums, it covers every byte. The stream is cut into frames
 * anywhere: a frame may hold several sections or a part of one. Neither side ever holds the whole
 * stream: the writer's frames point into the store's memory, the reader passes payloads on as they
 * arrive.
 *
 * GRDT is sent if the tokens of images are rotated by their places in a grid: without it every token
 * is rotated by its position in the prompt.
 *
 * KEPT is sent if the grant says that the receiver has the prompt's first tokens (handoff/links.h): ROWS counts
 * them, POSN, TALY and DATA leave them out.
 *
 * A receiver that has all but a short rest of the prompt may compute that: ROWS counts the kept tokens only, TOKN has
 * step 0 and no token, and there is no DATA.
 *
 * A layer with RANK has its visual tokens in rank order, the first to be dropped last, instead of
 * the order of their positions. There is no permutation, because entries are copied to their final
 * places as they arrive and need not be moved again.
 *
 * STAT: in a model with recurrent layers each layer begins with its state after the whole prompt, and
 * its ROWS come alone. In other models no layer has one.
 *
 * MASK: the last visual tokens of a layer's heads are held but masked.
 *
 * A type is four letters. The reader refuses the hand-off if it does not know a critical section, and
 * skips an unknown one that is not critical; new methods add sections, not versions.
 *
 * This file has frames and sections; handoff/kv_sections.h has the payloads without KV entries. A
 * writer or a reader belongs to one thread at a time. */
#include "common/arena.h"
#include "handoff/refusal.h"

enum {
    FV_PACKET_VERSION = 1,
    FV_SECTION_HEADER = 56,
    FV_FRAME_MAX = 1 << 20, /* bytes */
    FV_FRAME_PIECES = 256,
};

#define FV_FOURCC(a, b, c, d)                                                                      \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

/* The sections that this build knows, and their payloads. */
#define FV_SECTIONS(X)                                                                             \
    X(HELLO, 'H', 'E', 'L', 'O')  /* the request for which the grant was given */                  \
    X(PROMPT, 'P', 'R', 'M', 'T') /* token ids, segments, next position, sampling */               \
    X(GRIDS, 'G', 'R', 'D', 'T')  /* u32 prompt tokens, each grid i32 first, t, h, w, f32 step */  \
    X(KEPT, 'K', 'E', 'P', 'T')   /* u32 links, text tokens, visual tokens left out */             \
    X(RANK, 'R', 'A', 'N', 'K')   /* u32 [Hkv]: initial image tokens of a ranked layer */          \
    X(MASK, 'M', 'A', 'S', 'K')   /* u32: masked image tokens at the end of each head */           \
    X(STATE, 'S', 'T', 'A', 'T')  /* f32: the state of a layer's recurrent layers */               \
    X(ROWS, 'R', 'O', 'W', 'S')   /* u32 [layers, Hkv, segments]: lengths */                       \
    X(POSITIONS, 'P', 'O', 'S', 'N') /* i32 [lists, len]: one list for all heads, or Hkv */        \
    X(ACCUM, 'T', 'A', 'L',                                                                        \
      'Y') /* f32 [entries of all heads, dims 1]: accumulated attention scores */                  \
    X(DATA, 'D', 'A', 'T', 'A')   /* per head part0 <= g < part1: K [len, D], except keys of */    \
                                  /* another layer (LEAD), then V [len, D] */                      \
    X(LEAD, 'L', 'E', 'A', 'D')   /* u32 [2]: the layer whose image keys this one uses; 1: its */  \
                                  /* text keys too */                                              \
    X(PACKED, 'P', 'A', 'C', 'K') /* one layer's shapes of parts, blocks, positions */             \
    X(FACTOR, 'F', 'A', 'C', 'T') /* a part (packed/part.h) of keys (part0 0) or values (1) */     \
    X(IMPORTANCE, 'I', 'M', 'P',                                                                   \
      'O') /* f32 [n] importance of the entries: attention received so far */                      \
    X(TOKEN, 'T', 'O', 'K', 'N') /* the first token, sampled by the sender */                      \
    X(END, 'E', 'N', 'D', ' ')   /* totals and digest */

enum {
#define X(name, a, b, c, d) FV_SECTION_##name = FV_FOURCC(a, b, c, d),
    FV_SECTIONS(X)
#undef X
};

/* Element types on the wire, with fixed numbers, as enums in memory may change. */
typedef enum fv_wire_dtype {
    FV_WIRE_NONE = 0,
    FV_WIRE_BYTES,
    FV_WIRE_I32,
    FV_WIRE_F32,
    FV_WIRE_BF16,
    FV_WIRE_F16,
} fv_wire_dtype;

/* The type with this name in options and reports: "f32", "bf16", "f16"; otherwise FV_WIRE_NONE. */
fv_wire_dtype fv_wire_dtype_named(const char *name);

typedef struct fv_section {
    uint32_t type, index; /* only the writer and the reader use the index */
    bool critical;
    uint16_t layer0, layer1, part0, part1;
    uint8_t segment, dtype;
    uint32_t dims[4];
    uint64_t length; /* bytes of the payload */
} fv_section;

/* Writes the four letters of a type, '?' for unprintable ones. */
void fv_section_name(uint32_t type, char out[5]);

/* Bytes in memory; borrowed. */
typedef struct fv_piece {
    const void *data;
    size_t bytes;
} fv_piece;

typedef struct fv_packet_totals {
    uint64_t sections, rows;
    uint64_t bytes; /* headers and payloads */
    uint64_t digest;
} fv_packet_totals;

/* ---- writing --------------------------------------------------------------------------- */

/* Takes the next frame: n pieces, `bytes` together, never empty. The array is borrowed for the
 * call. The memory behind the pieces stays unchanged until the hand-off has ended, so that a transport
 * can send it without copying. */
typedef fv_status (*fv_packet_emit)(void *user, const fv_piece *piece, int32_t n, size_t bytes);

typedef struct fv_packet_writer {
    fv_packet_totals totals; /* written so far; may be read at any time */
    /* private */
    fv_packet_emit emit;
    void *user;
    size_t frame_max, bytes; /* bytes: of the frame being filled */
    fv_piece piece[FV_FRAME_PIECES];
    int32_t n_piece;
    fv_arena arena;
} fv_packet_writer;

/* Frames of at most frame_max bytes, 1..FV_FRAME_MAX; 0: FV_FRAME_MAX. */
void fv_packet_writer_init(fv_packet_writer *w, size_t frame_max, fv_packet_emit emit, void *user);
void fv_packet_writer_fini(fv_packet_writer *w); /* after the hand-off has ended */

/* Allocates memory that lives as long as the writer, for temporary payloads. */
fv_status fv_packet_alloc(fv_packet_writer *w, size_t bytes, void **out);

/* Adds a section whose payload is n pieces; sets its index and length. Failures of `emit` are passed on. */
fv_status fv_packet_write(fv_packet_writer *w, fv_section s, const fv_piece *payload, int32_t n);

/* Adds a section whose payload the host cannot read, of `length` bytes with this checksum: sends the header
 * with all bytes before it; the caller sends the payload in frames of its own. */
fv_status fv_packet_write_oob(fv_packet_writer *w, fv_section s, uint64_t length, uint32_t crc);

/* Emits the bytes of an incomplete frame. */
fv_status fv_packet_flush(fv_packet_writer *w);

/* Adds END and flushes; `rows` is the sender's count. */
fv_status fv_packet_end(fv_packet_writer *w, uint64_t rows);

/* ---- reading --------------------------------------------------------------------------- */

/* The receiver's handlers of sections. Each may refuse, which ends the stream. */
typedef struct fv_packet_hooks {
    void *user;
    /* A verified header, before any byte of its payload: check lengths here before allocating memory. */
    fv_status (*begin)(void *user, const fv_section *s);
    /* The payload's bytes [offset, offset + n), in order; the checksum is not verified yet. */
    fv_status (*bytes)(void *user, const fv_section *s, uint64_t offset, const void *p, size_t n);
    /* Bytes of a payload that the host cannot read. NULL: not supported. */
    fv_status (*oob)(void *user, const fv_section *s, uint64_t offset, const void *p, size_t n);
    /* The payload is complete and its checksum right. */
    fv_status (*end)(void *user, const fv_section *s);
    /* END has arrived and its totals agree. */
    fv_status (*finish)(void *user, const fv_packet_totals *totals);
} fv_packet_hooks;

typedef struct fv_packet_reader {
    fv_packet_totals totals; /* read so far; may be read at any time */
    bool done;               /* END was read, and its totals agree */
    /* private */
    fv_packet_hooks hooks;
    uint64_t skip_max;
    fv_section section;
    uint8_t head[FV_SECTION_HEADER], tail[32]; /* collect a header, and END's payload */
    size_t n_head;
    uint32_t crc_want, crc;
    uint64_t offset; /* in the payload */
    bool skipping;
} fv_packet_reader;

/* skip_max: the most bytes of a skipped section. Allocates nothing. */
void fv_packet_reader_init(fv_packet_reader *r, const fv_packet_hooks *hooks, uint64_t skip_max);

/* Reads the next n bytes of the stream, cut anywhere. After a refusal the reader must not be used again. */
fv_status fv_packet_read(fv_packet_reader *r, const void *bytes, size_t n);

/* Reads n bytes of one payload that the host cannot read; crc is their checksum. */
fv_status fv_packet_read_oob(fv_packet_reader *r, const void *bytes, size_t n, uint32_t crc);

#endif
