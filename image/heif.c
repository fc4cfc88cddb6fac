/* Reads boxes: a size, a type, and as many bytes. A cursor that has been asked for more bytes than are left is bad from then on
 * and gives zeros, so that a function reads all its fields before it looks. */
#include "image/heif.h"

#include <math.h>
#include <string.h>

#include "image/internal.h"

enum { META_MAX = 1 << 20, BRANDS_MAX = 64, PROPERTIES_MAX = 32, TOP_BOXES_MAX = 256 };
#define BOX(name) FV_HEIF_TYPE((name)[0], (name)[1], (name)[2], (name)[3])

/* ---- boxes ------------------------------------------------------------------------------ */

typedef struct cursor {
    const uint8_t *p;
    size_t n;
    bool bad;
} cursor;

static cursor over(fv_byte_part part) { return (cursor){part.p, part.n, part.p == NULL}; }

/* Reads an integer of 0 to 8 bytes. */
static uint64_t take(cursor *c, size_t bytes) {
    uint64_t v = 0;
    if (bytes > c->n) c->bad = true;
    if (c->bad) return 0;
    for (size_t i = 0; i < bytes; i++) v = v << 8 | c->p[i];
    c->p += bytes;
    c->n -= bytes;
    return v;
}

/* Reads the next box; false: there is none, or it is damaged. */
static bool next_box(cursor *c, uint32_t *type, fv_byte_part *content) {
    if (c->bad || c->n < 8) return false;
    uint64_t head = 8, size = take(c, 4);
    *type = (uint32_t)take(c, 4);
    if (size == 1) {
        size = take(c, 8);
        head = 16;
    } else if (size == 0) {
        size = head + c->n; /* to the end */
    }
    if (c->bad || size < head || size - head > c->n) return false;
    *content = (fv_byte_part){c->p, (size_t)(size - head)};
    c->p += content->n;
    c->n -= content->n;
    return true;
}

/* Reads version and flags of a box that has them. */
static uint32_t take_version(cursor *c, uint32_t *flags) {
    const uint32_t v = (uint32_t)take(c, 4);
    if (flags) *flags = v & 0xffffff;
    return v >> 24;
}

static fv_status broken(const char *what) {
    return FV_FAIL(FV_EDATA, "the image cannot be decoded: %s", what);
}

static void take_meta(cursor c, fv_heif *h, bool *has_primary) {
    uint32_t type;
    fv_byte_part content;
    take_version(&c, NULL);
    while (next_box(&c, &type, &content)) {
        if (type == BOX("iinf")) h->info = content;
        if (type == BOX("iloc")) h->place = content;
        if (type == BOX("iref")) h->refs = content;
        if (type == BOX("iprp")) h->props = content;
        if (type == BOX("idat")) h->idat = content;
        if (type != BOX("pitm")) continue;
        cursor item = over(content);
        h->primary = (uint32_t)take(&item, take_version(&item, NULL) == 0 ? 2 : 4);
        *has_primary = !item.bad;
    }
}

fv_status fv_heif_open(const uint8_t *p, size_t n, fv_heif *out) {
    fv_heif h = {.file = {p, n}};
    cursor c = over(h.file);
    uint32_t type;
    fv_byte_part content;
    bool has_primary = false, video = false;
    for (int32_t i = 0; i < TOP_BOXES_MAX && next_box(&c, &type, &content); i++) {
        video |= type == BOX("moov") || type == BOX("moof");
        if (type != BOX("meta")) continue;
        if (content.n > META_MAX) return broken("its list of items is longer than 1 MiB");
        take_meta(over(content), &h, &has_primary);
        break;
    }
    if (!has_primary && video)
        return FV_FAIL(FV_EUNSUPPORTED, "the file is a video, not an image: send it as a video");
    if (!has_primary || !h.props.p || !h.place.p || !h.info.p)
        return broken("the file ends before its list of items, or the list has no image");
    *out = h;
    return FV_OK;
}

/* ---- items ------------------------------------------------------------------------------ */

uint32_t fv_heif_item_type(const fv_heif *h, uint32_t item) {
    cursor c = over(h->info);
    uint32_t type;
    fv_byte_part content;
    take(&c, take_version(&c, NULL) == 0 ? 2 : 4);
    while (next_box(&c, &type, &content)) {
        cursor entry = over(content);
        const uint32_t version = take_version(&entry, NULL);
        if (type != BOX("infe") || version < 2) continue;
        const uint32_t id = (uint32_t)take(&entry, version == 2 ? 2 : 4);
        take(&entry, 2);
        const uint32_t found = (uint32_t)take(&entry, 4);
        if (!entry.bad && id == item) return found;
    }
    return 0;
}

/* The numbers of an item's properties, from 1 on. */
typedef struct numbers {
    uint32_t list[PROPERTIES_MAX];
    int32_t n;
} numbers;

static void take_numbers(cursor *c, bool wide, numbers *out) {
    for (uint64_t n = take(c, 1); n > 0 && !c->bad; n--) {
        const uint32_t number = (uint32_t)take(c, wide ? 2 : 1) & (wide ? 0x7fff : 0x7f);
        if (out && out->n < PROPERTIES_MAX) out->list[out->n++] = number;
    }
}

/* Finds the item in the boxes ipma, of which the first that has it counts. */
static numbers numbers_of(const fv_heif *h, uint32_t item) {
    numbers found = {.n = 0};
    cursor boxes = over(h->props);
    uint32_t type, flags;
    fv_byte_part content;
    while (next_box(&boxes, &type, &content)) {
        if (type != BOX("ipma")) continue;
        cursor c = over(content);
        const uint32_t version = take_version(&c, &flags);
        for (uint64_t n = take(&c, 4); n > 0 && !c.bad && found.n == 0; n--) {
            const bool mine = (uint32_t)take(&c, version == 0 ? 2 : 4) == item;
            take_numbers(&c, flags & 1, mine ? &found : NULL);
        }
    }
    return found;
}

static bool has_number(const numbers *s, uint32_t number) {
    for (int32_t i = 0; i < s->n; i++)
        if (s->list[i] == number) return true;
    return false;
}

bool fv_heif_property(const fv_heif *h, uint32_t item, uint32_t wanted, fv_byte_part *out) {
    const numbers mine = numbers_of(h, item);
    cursor c = over(h->props);
    uint32_t type;
    fv_byte_part content;
    while (next_box(&c, &type, &content)) {
        if (type != BOX("ipco")) continue;
        c = over(content);
        for (uint32_t number = 1; next_box(&c, &type, &content); number++) {
            if (type != wanted || !has_number(&mine, number)) continue;
            *out = content;
            return true;
        }
        return false;
    }
    return false;
}

bool fv_heif_size(const fv_heif *h, uint32_t item, uint32_t *width, uint32_t *height) {
    fv_byte_part size;
    if (!fv_heif_property(h, item, BOX("ispe"), &size)) return false;
    cursor c = over(size);
    take_version(&c, NULL);
    const uint32_t w = (uint32_t)take(&c, 4), high = (uint32_t)take(&c, 4);
    if (c.bad) return false;
    *width = w;
    *height = high;
    return true;
}

/* Reads a signed fraction. */
static double take_fraction(cursor *c) {
    const double n = (int32_t)take(c, 4), d = (int32_t)take(c, 4);
    if (d == 0) c->bad = true;
    return c->bad ? 0 : n / d;
}

/* ISO 14496-12, 12.1.4: width and height of the part, and how far its centre is from that of the pixels. */
fv_heif_part fv_heif_crop(const fv_heif *h, uint32_t item, int32_t width, int32_t height) {
    const fv_heif_part all = {0, 0, width, height};
    fv_byte_part clap;
    if (!fv_heif_property(h, item, BOX("clap"), &clap)) return all;
    cursor c = over(clap);
    const double w = take_fraction(&c), high = take_fraction(&c);
    const double x = floor(take_fraction(&c) + (width - 1) / 2.0 - (w - 1) / 2);
    const double y = floor(take_fraction(&c) + (height - 1) / 2.0 - (high - 1) / 2);
    if (c.bad || !(w >= 1 && high >= 1 && x >= 0 && y >= 0) || x + w > width || y + high > height)
        return all;
    return (fv_heif_part){(int32_t)x, (int32_t)y, (int32_t)w, (int32_t)high};
}

/* irot turns anticlockwise by quarters; imir exchanges top and bottom (0), or left and right (1). */
int32_t fv_heif_orientation(const fv_heif *h, uint32_t item) {
    static const uint8_t of[3][4] = {{1, 8, 3, 6}, {4, 5, 2, 7}, {2, 7, 4, 5}};
    fv_byte_part turn = {0}, mirror = {0};
    fv_heif_property(h, item, BOX("irot"), &turn);
    fv_heif_property(h, item, BOX("imir"), &mirror);
    return of[mirror.n ? 1 + (mirror.p[0] & 1) : 0][turn.n ? turn.p[0] & 3 : 0];
}

/* ---- data ------------------------------------------------------------------------------- */

/* The widths of the fields of iloc, in bytes. */
typedef struct place_format {
    uint32_t version;
    size_t offset, length, base, index;
} place_format;

static place_format take_format(cursor *c) {
    place_format f = {.version = take_version(c, NULL)};
    const uint32_t widths = (uint32_t)take(c, 2);
    f.offset = widths >> 12 & 15;
    f.length = widths >> 8 & 15;
    f.base = widths >> 4 & 15;
    f.index = f.version > 0 ? widths & 15 : 0;
    c->bad |= f.offset > 8 || f.length > 8 || f.base > 8 || f.index > 8;
    return f;
}

/* Reads the extents of an entry; out is NULL where they are of another item. A length of 0 is all of the file. */
static fv_status take_extents(const fv_heif *h, cursor *c, const place_format *f, bool in_idat,
                              fv_byte_part *out, int32_t *n) {
    const fv_byte_part from = in_idat ? h->idat : h->file;
    const uint64_t base = take(c, f->base), count = take(c, 2);
    for (uint64_t i = 0; i < count && !c->bad; i++) {
        take(c, f->index);
        const uint64_t offset = take(c, f->offset), length = take(c, f->length);
        if (!out) continue;
        if (i == FV_HEIF_EXTENTS_MAX) return broken("an item has too many parts");
        if (c->bad || base > from.n || offset > from.n - base || length > from.n - base - offset)
            return broken("the file ends before its pixels");
        const size_t at = (size_t)(base + offset);
        out[i] = (fv_byte_part){from.p + at, length ? (size_t)length : from.n - at};
        *n = (int32_t)i + 1;
    }
    return FV_OK;
}

fv_status fv_heif_data(const fv_heif *h, uint32_t item, fv_byte_part out[FV_HEIF_EXTENTS_MAX],
                       int32_t *n) {
    cursor c = over(h->place);
    const place_format f = take_format(&c);
    *n = 0;
    for (uint64_t left = take(&c, f.version < 2 ? 2 : 4); left > 0 && !c.bad && *n == 0; left--) {
        const bool mine = (uint32_t)take(&c, f.version < 2 ? 2 : 4) == item;
        const uint64_t method = f.version > 0 ? take(&c, 2) & 15 : 0;
        const uint64_t other_file = take(&c, 2);
        if (mine && (method > 1 || other_file)) return broken("its pixels are in another file");
        if (mine && method == 1 && !h->idat.p) return broken("the file ends before its pixels");
        FV_TRY(take_extents(h, &c, &f, method == 1, mine ? out : NULL, n));
    }
    return *n ? FV_OK : broken("an item has no data");
}

/* ---- references ------------------------------------------------------------------------- */

int32_t fv_heif_refers(const fv_heif *h, uint32_t wanted, uint32_t item, uint32_t *out,
                       int32_t most) {
    cursor c = over(h->refs);
    const size_t width = take_version(&c, NULL) == 0 ? 2 : 4;
    uint32_t type;
    fv_byte_part content;
    int32_t n = 0;
    while (next_box(&c, &type, &content)) {
        cursor ref = over(content);
        if (type != wanted || (uint32_t)take(&ref, width) != item) continue;
        for (uint64_t left = take(&ref, 2); left > 0 && n < INT32_MAX; left--, n++) {
            const uint32_t to = (uint32_t)take(&ref, width);
            if (ref.bad) break;
            if (n < most) out[n] = to;
        }
    }
    return n;
}

static bool is_alpha(const fv_heif *h, uint32_t item) {
    static const char *const names[] = {"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha",
                                        "urn:mpeg:hevc:2015:auxid:1"};
    fv_byte_part aux;
    if (!fv_heif_property(h, item, BOX("auxC"), &aux) || aux.n < 4) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]) + 1;
        if (aux.n - 4 >= n && !memcmp(aux.p + 4, names[i], n)) return true;
    }
    return false;
}

uint32_t fv_heif_alpha(const fv_heif *h, uint32_t item) {
    cursor c = over(h->refs);
    const size_t width = take_version(&c, NULL) == 0 ? 2 : 4;
    uint32_t type;
    fv_byte_part content;
    while (next_box(&c, &type, &content)) {
        cursor ref = over(content);
        const uint32_t from = (uint32_t)take(&ref, width);
        if (type != BOX("auxl")) continue;
        for (uint64_t left = take(&ref, 2); left > 0 && !ref.bad; left--)
            if ((uint32_t)take(&ref, width) == item && !ref.bad && is_alpha(h, from)) return from;
    }
    return 0;
}

/* ---- size ------------------------------------------------------------------------------- */

/* Brands of still images; files of MP4 have others. */
static bool has_image_brand(const uint8_t *p, size_t n) {
    static const char brands[][5] = {"avif", "avis", "heic", "heix", "heim",
                                     "heis", "hevc", "hevx", "mif1", "msf1"};
    const size_t bytes = be32(p) < n ? be32(p) : n;
    for (size_t at = 8; at + 4 <= bytes && at < 8 + 4 * BRANDS_MAX; at += 4) {
        if (at == 12) continue; /* a version */
        for (size_t i = 0; i < sizeof brands / sizeof *brands; i++)
            if (!memcmp(p + at, brands[i], 4)) return true;
    }
    return false;
}

fv_status fv_image_read_heif(const uint8_t *p, size_t n, fv_image_size *out) {
    fv_heif h;
    uint32_t coded, w, high;
    if (!has_image_brand(p, n))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the file is an MP4 or a relative of it, not an AVIF or HEIC image");
    FV_TRY(fv_heif_open(p, n, &h));
    coded = h.primary;
    if (fv_heif_item_type(&h, coded) == BOX("grid"))
        fv_heif_refers(&h, BOX("dimg"), coded, &coded, 1);
    const uint32_t type = fv_heif_item_type(&h, coded);
    if (type != BOX("av01") && type != BOX("hvc1") && type != BOX("hev1"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the image is neither AVIF nor HEIC: its pixels have another coding");
    if (!fv_heif_size(&h, h.primary, &w, &high)) return broken("it has no width and height");
    const fv_image_kind kind = type == BOX("av01") ? FV_IMAGE_AVIF : FV_IMAGE_HEIC;
    FV_TRY(fv_image_take_size(kind, w, high, out));
    if (kind == FV_IMAGE_HEIC) {
        const fv_heif_part part = fv_heif_crop(&h, h.primary, out->w, out->h);
        out->w = part.w;
        out->h = part.h;
    }
    fv_image_take_orientation(fv_heif_orientation(&h, h.primary), out);
    return FV_OK;
}
