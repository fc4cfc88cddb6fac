/* Walks the entries of one directory: tag, type, count, and a value of 4 bytes (BigTIFF: 8) or the place of a longer
 * one. Sizes and offsets are untrusted: read_at checks each. */
#include "image/tiff.h"

#include <string.h>

#include "image/internal.h"

enum { ENTRIES_MAX = 4096, WIDTH = 256, HEIGHT = 257, ORIENTATION = 274 };

typedef struct data {
    const fv_byte_part *part;
    int32_t n_part;
    uint64_t n;  /* bytes of all parts */
    bool little; /* byte order */
    bool big;    /* BigTIFF */
} data;

/* Copies n bytes from `at`; false: not all of them are there. */
static bool read_at(const data *d, uint64_t at, size_t n, uint8_t *out) {
    if (at > d->n || n > d->n - at) return false;
    for (const fv_byte_part *part = d->part; n > 0; part++) {
        if (at >= part->n) {
            at -= part->n;
            continue;
        }
        const size_t here = part->n - (size_t)at < n ? part->n - (size_t)at : n;
        memcpy(out, part->p + at, here);
        out += here;
        n -= here;
        at = 0;
    }
    return true;
}

static uint64_t number(const data *d, const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v = v << 8 | p[d->little ? n - 1 - i : i];
    return v;
}

/* Bytes of one value of a type; 0: the type is unknown. */
static size_t bytes_of(uint64_t type) {
    static const uint8_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/* Whether a type is an integer that Pillow reads as a number: SHORT, LONG, their signed forms, IFD, LONG8. BYTE is read as a
 * string of bytes. */
static bool is_integer(uint64_t type) {
    return type == 3 || type == 4 || type == 6 || type == 8 || type == 9 || type == 13 ||
           type == 16;
}

static void take(uint64_t tag, uint64_t value, fv_tiff_tags *out) {
    uint64_t *size = tag == WIDTH ? &out->width : &out->height;
    if (tag != ORIENTATION) {
        if (*size == 0) *size = value;
    } else if (!out->has_orientation) {
        out->has_orientation = true;
        out->orientation = value <= 8 ? (int32_t)value : 0;
    }
}

/* Reads an entry. False: it ends the directory. *outside sums the bytes of values that are not in the entry. */
static bool read_entry(const data *d, uint64_t at, uint64_t *outside, fv_tiff_tags *out) {
    const size_t word = d->big ? 8 : 4;
    uint8_t entry[20], first[8];
    if (!read_at(d, at, 4 + 2 * word, entry)) return false;
    const uint64_t tag = number(d, entry, 2), type = number(d, entry + 2, 2);
    const uint64_t count = number(d, entry + 4, word), each = bytes_of(type);
    const uint8_t *value = entry + 4 + word;
    if (each == 0 || count == 0) return true;
    if (count > d->n) return true; /* more values than there are bytes */
    if (count * each > word) {
        const uint64_t place = number(d, value, word);
        *outside += count * each;
        if (*outside > d->n) return true;
        if (place > d->n || count * each > d->n - place) return false;
        read_at(d, place, (size_t)each, first);
        value = first;
    }
    if (tag == WIDTH || tag == HEIGHT || tag == ORIENTATION)
        take(tag, is_integer(type) ? number(d, value, (size_t)each) : 0, out);
    return true;
}

bool fv_tiff_read_tags(const fv_byte_part *part, int32_t n_part, bool big_too, fv_tiff_tags *out) {
    uint8_t head[16];
    uint64_t at, n, outside = 0;
    data d = {.part = part, .n_part = n_part};
    for (int32_t i = 0; i < n_part; i++) d.n += part[i].n;
    if (!read_at(&d, 0, 8, head)) return false;
    d.little = head[0] == 'I';
    if (memcmp(head, d.little ? "II" : "MM", 2) != 0) return false;
    const uint64_t version = number(&d, head + 2, 2);
    d.big = version == 43;
    if (version != 42 && !(d.big && big_too)) return false;
    if (d.big && !read_at(&d, 8, 8, head + 8)) return false;
    at = d.big ? number(&d, head + 8, 8) : number(&d, head + 4, 4);
    *out = (fv_tiff_tags){0};
    const size_t word = d.big ? 8 : 2, step = d.big ? 20 : 12;
    if (!read_at(&d, at, word, head)) return true;
    n = number(&d, head, word);
    at += word;
    for (uint64_t i = 0; i < n && i < ENTRIES_MAX; i++)
        if (!read_entry(&d, at + i * step, &outside, out)) break;
    return true;
}

fv_status fv_image_read_tiff(const uint8_t *p, size_t n, fv_image_size *out) {
    const fv_byte_part whole = {p, n};
    fv_tiff_tags tags;
    if (!fv_tiff_read_tags(&whole, 1, true, &tags)) return fv_image_cut_off(FV_IMAGE_TIFF);
    if (!tags.width || !tags.height)
        return FV_FAIL(FV_EDATA,
                       "the TIFF cannot be decoded: its first directory has no width and height");
    FV_TRY(fv_image_take_size(FV_IMAGE_TIFF, tags.width, tags.height, out));
    fv_image_take_orientation(tags.orientation, out);
    return FV_OK;
}
