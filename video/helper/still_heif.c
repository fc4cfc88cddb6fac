/* Decodes the primary item of AVIF and HEIC files: libav's decoders of HEVC and AV1 for the coded pixels, and what is around them
 * here: the boxes (image/heif.h), grids of tiles, alpha. Rotation and mirroring are left to the caller; the clean
 * aperture (clap) is applied to HEIC, as libheif does, and not to AVIF, as Pillow does. */
#include <stdlib.h>
#include <string.h>

#include "image/heif.h"
#include "video/helper/still.h"
#include "video/helper/yuv.h"

typedef struct decoding {
    const fv_heif *h;
    const fv_video_limits *limits;
    fv_pixels *out;
    bool alpha;       /* writes the alpha of *out, otherwise its colours */
    fv_yuv_form form; /* that the item states */
} decoding;

static fv_status broken(const char *what) {
    return FV_FAIL(FV_EDATA, "the image cannot be decoded: %s", what);
}

/* Gives the item's bytes in one piece. */
static fv_status gather(const fv_heif *h, uint32_t item, uint8_t **out, size_t *n) {
    fv_byte_part part[FV_HEIF_EXTENTS_MAX];
    int32_t n_part;
    *n = 0;
    FV_TRY(fv_heif_data(h, item, part, &n_part));
    for (int32_t i = 0; i < n_part; i++) *n += part[i].n;
    uint8_t *at = malloc(*n + 1);
    if (!at) return FV_FAIL(FV_EINVAL, "the image needs more memory to decode than it may");
    *out = at;
    for (int32_t i = 0; i < n_part; i++) at = mempcpy(at, part[i].p, part[i].n);
    return FV_OK;
}

/* Reads the colour that an item states (colr, nclx): primaries, transfer, matrix, range. */
static fv_yuv_form form_of(const fv_heif *h, uint32_t item) {
    fv_byte_part c;
    fv_yuv_form none = {.stated = false};
    if (!fv_heif_property(h, item, FV_HEIF_TYPE('c', 'o', 'l', 'r'), &c)) return none;
    if (c.n < 11 || memcmp(c.p, "nclx", 4) != 0) return none;
    return (fv_yuv_form){.stated = true, .matrix = c.p[8] << 8 | c.p[9], .full = c.p[10] & 0x80};
}

/* Decodes an item with coded pixels, and puts it at (x, y). */
static fv_status decode_coded(const decoding *d, uint32_t item, int64_t x, int64_t y, int32_t *w,
                              int32_t *h) {
    const uint32_t type = fv_heif_item_type(d->h, item);
    const bool av1 = type == FV_HEIF_TYPE('a', 'v', '0', '1');
    fv_still_codec codec = {.decoder = av1 ? "libdav1d" : "hevc",
                            .pixels_max = d->limits->pixels_max};
    fv_byte_part config = {0};
    uint8_t *bytes;
    size_t n;
    AVFrame *f;
    if (!av1 && type != FV_HEIF_TYPE('h', 'v', 'c', '1') &&
        type != FV_HEIF_TYPE('h', 'e', 'v', '1'))
        return FV_FAIL(FV_EUNSUPPORTED, "the image has pixels of an unknown coding");
    if (!av1 && !fv_heif_property(d->h, item, FV_HEIF_TYPE('h', 'v', 'c', 'C'), &config))
        return broken("it does not say how its pixels are coded");
    codec.extra = config.p;
    codec.n_extra = config.n;
    FV_TRY(gather(d->h, item, &bytes, &n));
    fv_status st = fv_still_frame(&codec, bytes, n, &f);
    free(bytes);
    FV_TRY(st);
    *w = f->width;
    *h = f->height;
    st = d->alpha ? fv_yuv_to_alpha(f, x, y, d->out) : fv_yuv_to_rgb(f, &d->form, x, y, d->out);
    av_frame_free(&f);
    return st;
}

/* The description of a grid: version, flags, rows - 1, columns - 1, width and height of 16 or 32 bits. */
typedef struct grid {
    int32_t rows, cols;
    int64_t w, h;
} grid;

static fv_status parse_grid(const uint8_t *p, size_t n, grid *out) {
    grid g = {0};
    if (n < 8 || ((p[1] & 1) && n < 12)) return broken("its grid is cut short");
    const size_t width = p[1] & 1 ? 4 : 2;
    g.rows = p[2] + 1;
    g.cols = p[3] + 1;
    for (size_t i = 0; i < width; i++) {
        g.w = g.w << 8 | p[4 + i];
        g.h = g.h << 8 | p[4 + width + i];
    }
    *out = g;
    return FV_OK;
}

static fv_status read_grid(const fv_heif *h, uint32_t item, grid *out) {
    uint8_t *p;
    size_t n;
    FV_TRY(gather(h, item, &p, &n));
    fv_status st = parse_grid(p, n, out);
    free(p);
    return st;
}

/* Tiles have one size; those at the right and at the bottom may go beyond the image. */
static fv_status decode_grid(const decoding *d, uint32_t item, const grid *g) {
    static uint32_t tiles[FV_HEIF_TILES_MAX];
    const int32_t n = g->rows * g->cols;
    int32_t w = 0, h = 0, w_tile, h_tile;
    if (n > FV_HEIF_TILES_MAX)
        return FV_FAIL(FV_EINVAL, "the image has %d tiles: the most are %d", n, FV_HEIF_TILES_MAX);
    if (fv_heif_refers(d->h, FV_HEIF_TYPE('d', 'i', 'm', 'g'), item, tiles, n) != n)
        return broken("its grid has other tiles than it says");
    for (int32_t i = 0; i < n; i++) {
        const int64_t x = (int64_t)(i % g->cols) * w, y = (int64_t)(i / g->cols) * h;
        FV_TRY(decode_coded(d, tiles[i], x, y, &w_tile, &h_tile));
        if (i > 0 && (w_tile != w || h_tile != h)) return broken("its tiles differ in size");
        w = w_tile;
        h = h_tile;
    }
    if ((int64_t)g->cols * w < g->w || (int64_t)g->rows * h < g->h)
        return broken("its tiles do not cover it");
    return FV_OK;
}

/* Decodes an item of the image's size. */
static fv_status decode_item(const decoding *d, uint32_t item) {
    const fv_pixels *out = d->out;
    int32_t w, h;
    grid g = {0};
    if (fv_heif_item_type(d->h, item) != FV_HEIF_TYPE('g', 'r', 'i', 'd')) {
        FV_TRY(decode_coded(d, item, 0, 0, &w, &h));
        return w >= out->w && h >= out->h ? FV_OK
                                          : broken("it has fewer pixels than its header says");
    }
    FV_TRY(read_grid(d->h, item, &g));
    if (g.w != out->w || g.h != out->h)
        return broken("its grid has another size than its header says");
    return decode_grid(d, item, &g);
}

/* Keeps a part of the pixels. */
static void crop(const fv_heif_part *part, fv_pixels *p) {
    for (int32_t y = 0; y < part->h; y++)
        memmove(p->rgba + 4 * (size_t)y * (size_t)part->w,
                p->rgba + 4 * ((size_t)(part->y + y) * (size_t)p->w + (size_t)part->x),
                4 * (size_t)part->w);
    p->w = part->w;
    p->h = part->h;
}

static fv_status decode(const uint8_t *bytes, size_t n, const fv_video_limits *l, bool heic,
                        fv_pixels *out) {
    fv_heif h;
    uint32_t w, high;
    FV_TRY(fv_heif_open(bytes, n, &h));
    if (!fv_heif_size(&h, h.primary, &w, &high)) return broken("it has no width and height");
    FV_TRY(fv_pixels_alloc(w, high, l, out));
    decoding d = {.h = &h, .limits = l, .out = out, .form = form_of(&h, h.primary)};
    d.form.nearest = heic;
    FV_TRY(decode_item(&d, h.primary));
    const uint32_t alpha = fv_heif_alpha(&h, h.primary);
    d.alpha = true;
    if (alpha) FV_TRY(decode_item(&d, alpha));
    const fv_heif_part part = fv_heif_crop(&h, h.primary, out->w, out->h);
    if (heic) crop(&part, out);
    return FV_OK;
}

fv_status fv_still_avif(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out) {
    return decode(bytes, n, l, false, out);
}

fv_status fv_still_heic(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out) {
    return decode(bytes, n, l, true, out);
}
