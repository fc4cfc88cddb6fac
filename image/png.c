/* Reads a PNG's header, which has the size, and its other chunks for the orientation: eXIf, else EXIF as a raw profile in a
 * text chunk, else XMP in a text chunk. Of several chunks the last one counts. A chunk is: length, name, data, checksum; the
 * checksums of chunks that state an orientation are not looked at.
 *
 * Pure functions; any thread. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "image/exif.h"
#include "image/internal.h"

/* Encoders write chunks of 8 KiB and more, so a file within the limits has a few thousand. */
enum { CHUNKS_MAX = 1 << 16 };

typedef struct text {
    fv_byte_part data; /* p is NULL: there is none */
    bool deflated;
} text;

typedef struct found {
    fv_byte_part exif;
    text raw, xmp;
} found;

/* Moves *part behind its next zero byte; false: there is none. */
static bool skip_string(fv_byte_part *part) {
    const uint8_t *zero = part->n ? memchr(part->p, 0, part->n) : NULL;
    if (!zero) return false;
    part->n -= (size_t)(zero + 1 - part->p);
    part->p = zero + 1;
    return true;
}

/* A text chunk is: keyword, 0, and
 *   tEXt   the text
 *   zTXt   method, deflated text
 *   iTXt   whether it is deflated, method, language, 0, translated keyword, 0, the text */
static void read_text(const uint8_t *name, const uint8_t *data, size_t n, found *f) {
    fv_byte_part rest = {data, n};
    text t = {.deflated = name[0] == 'z'};
    text *to = NULL;
    if (!skip_string(&rest)) return;
    if (!strcmp((const char *)data, "Raw profile type exif")) to = &f->raw;
    if (!strcmp((const char *)data, "XML:com.adobe.xmp")) to = &f->xmp;
    if (!to) return;
    if (name[0] == 'i') {
        if (rest.n < 2) return;
        t.deflated = rest.p[0] != 0;
        rest = (fv_byte_part){rest.p + 2, rest.n - 2};
        if (!skip_string(&rest)) return; /* the language, and the translated keyword */
        if (!skip_string(&rest)) return;
    } else if (name[0] == 'z') {
        if (rest.n < 1) return;
        rest = (fv_byte_part){rest.p + 1, rest.n - 1};
    }
    t.data = rest;
    *to = t;
}

/* Reads chunks up to the end of the image, or to the second frame of an animation. */
static void read_chunks(const uint8_t *p, size_t n, found *f) {
    bool pixels = false;
    size_t at = 8;
    for (int32_t i = 0; i < CHUNKS_MAX && n - at >= 8; i++) {
        const size_t bytes = be32(p + at);
        const uint8_t *name = p + at + 4, *data = p + at + 8;
        pixels |= !memcmp(name, "IDAT", 4);
        if (bytes > n - at - 8 || !memcmp(name, "IEND", 4)) return;
        if (pixels && !memcmp(name, "fcTL", 4)) return;
        if (!memcmp(name, "eXIf", 4)) f->exif = (fv_byte_part){data, bytes};
        if (!memcmp(name, "tEXt", 4) || !memcmp(name, "zTXt", 4) || !memcmp(name, "iTXt", 4))
            read_text(name, data, bytes, f);
        at += 8 + bytes;
        at += n - at < 4 ? n - at : 4;
    }
}

/* Applies `read` to a text; inflates it before, as far as the bound. */
static int32_t read_orientation(const text *t, int32_t (*read)(const uint8_t *text, size_t n)) {
    if (!t->data.p) return FV_ORIENTATION_ABSENT;
    if (!t->deflated) return read(t->data.p, t->data.n);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)t->data.p, .avail_in = (uInt)t->data.n};
    uint8_t *out = malloc(FV_EXIF_TEXT_MAX);
    int32_t orientation = FV_ORIENTATION_ABSENT;
    if (out && inflateInit(&z) == Z_OK) {
        z.next_out = out;
        z.avail_out = FV_EXIF_TEXT_MAX;
        const int e = inflate(&z, Z_FINISH);
        if (e == Z_STREAM_END) orientation = read(out, FV_EXIF_TEXT_MAX - z.avail_out);
        inflateEnd(&z);
    }
    free(out);
    return orientation;
}

static int32_t orientation_of(const found *f) {
    int32_t orientation = f->exif.p ? fv_exif_orientation(&f->exif, 1)
                                    : read_orientation(&f->raw, fv_raw_profile_orientation);
    if (orientation != FV_ORIENTATION_ABSENT) return orientation;
    return read_orientation(&f->xmp, fv_xmp_orientation);
}

/* The first chunk must be IHDR: length, name, width, height. */
fv_status fv_image_read_png(const uint8_t *p, size_t n, fv_image_size *out) {
    found f = {0};
    if (n < 24 || memcmp(p + 12, "IHDR", 4) != 0) return FV_FAIL(FV_EDATA, "the PNG has no header");
    FV_TRY(fv_image_take_size(FV_IMAGE_PNG, be32(p + 16), be32(p + 20), out));
    read_chunks(p, n, &f);
    fv_image_take_orientation(orientation_of(&f), out);
    return FV_OK;
}
