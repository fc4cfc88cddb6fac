/* Converts pixel by pixel:
 *
 *   R = Y + 2 (1 - kr) V     B = Y + 2 (1 - kb) U     G = Y - 2 (kr (1 - kr) V + kb (1 - kb) U) / kg
 *
 * with Y in 0..1 and U, V in -0.5..0.5. Source: ITU-R BT.601, BT.709, BT.2020. */
#include "video/helper/yuv.h"

#include <libavutil/pixdesc.h>

enum { IDENTITY = 0, UNSPECIFIED = 2 };

typedef struct planes {
    const AVFrame *f;
    int shift_x, shift_y, depth, n; /* of chroma; bits; number of planes */
    bool wide, rgb, nearest; /* 16-bit samples; planes are G, B, R; chroma is not interpolated */
    float y_low, y_scale, c_mid, c_scale;
    float kr, kb;
} planes;

static fv_status set_matrix(int matrix, planes *p) {
    static const struct {
        int matrix;
        float kr, kb;
    } known[] = {{1, 0.2126F, 0.0722F}, {UNSPECIFIED, 0.299F, 0.114F}, {4, 0.30F, 0.11F},
                 {5, 0.299F, 0.114F},   {6, 0.299F, 0.114F},           {7, 0.212F, 0.087F},
                 {9, 0.2627F, 0.0593F}, {10, 0.2627F, 0.0593F}};
    p->rgb |= matrix == IDENTITY;
    if (p->rgb || p->n == 1) return FV_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].matrix == matrix) {
            p->kr = known[i].kr;
            p->kb = known[i].kb;
            return FV_OK;
        }
    return FV_FAIL(FV_EUNSUPPORTED, "the image has colours of an unknown matrix (%d)", matrix);
}

static fv_status open_planes(const AVFrame *f, bool full, planes *out) {
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get((enum AVPixelFormat)f->format);
    const bool planar = d && (d->nb_components == 1 || d->flags & AV_PIX_FMT_FLAG_PLANAR);
    if (!planar || d->flags & (AV_PIX_FMT_FLAG_BE | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_FLOAT) ||
        d->comp[0].depth < 8 || d->comp[0].shift)
        return FV_FAIL(FV_EUNSUPPORTED, "the image has pixels of the format %s",
                       d ? d->name : "unknown");
    planes p = {.f = f,
                .shift_x = d->log2_chroma_w,
                .shift_y = d->log2_chroma_h,
                .depth = d->comp[0].depth,
                .n = d->nb_components >= 3 ? 3 : 1,
                .wide = d->comp[0].depth > 8,
                .rgb = d->flags & AV_PIX_FMT_FLAG_RGB};
    const float unit = (float)(1 << (p.depth - 8)), most = (float)((1 << p.depth) - 1);
    p.y_low = full ? 0 : 16 * unit;
    p.y_scale = full ? 1 / most : 1 / (219 * unit);
    p.c_mid = 128 * unit;
    p.c_scale = full ? 1 / most : 1 / (224 * unit);
    *out = p;
    return FV_OK;
}

static float sample(const planes *p, int plane, int32_t x, int32_t y) {
    const uint8_t *row = p->f->data[plane] + (ptrdiff_t)y * p->f->linesize[plane];
    return p->wide ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

/* Places an axis of a pixel among chroma samples: three quarters of the nearer one, one of the other. */
static void neighbours(int32_t at, int shift, int32_t size, int32_t *near, int32_t *other) {
    const int32_t n = (size + (1 << shift) - 1) >> shift;
    *near = at >> shift;
    *other = *near;
    if (shift == 0) return;
    *other += at & 1 ? 1 : -1;
    if (*other < 0 || *other >= n) *other = *near;
}

static float chroma(const planes *p, int plane, int32_t x, int32_t y) {
    int32_t x0, x1, y0, y1;
    if (p->nearest || (p->shift_x == 0 && p->shift_y == 0))
        return sample(p, plane, x >> p->shift_x, y >> p->shift_y);
    neighbours(x, p->shift_x, p->f->width, &x0, &x1);
    neighbours(y, p->shift_y, p->f->height, &y0, &y1);
    if (!(x & 1) && x + 1 == p->f->width) x1 = x0; /* as libyuv ends rows of odd width */
    const float a = sample(p, plane, x0, y0), b = sample(p, plane, x1, y0);
    const float c = sample(p, plane, x0, y1), d = sample(p, plane, x1, y1);
    return (a * 9 + b * 3 + c * 3 + d) / 16;
}

static uint8_t to_byte(float v) { return (uint8_t)(v <= 0 ? 0 : v >= 1 ? 255 : v * 255 + 0.5F); }

static void read_pixel(const planes *p, int32_t x, int32_t y, uint8_t out[3]) {
    const float luma = (sample(p, 0, x, y) - p->y_low) * p->y_scale;
    if (p->n == 1) {
        out[0] = out[1] = out[2] = to_byte(luma);
        return;
    }
    if (p->rgb) {
        out[0] = to_byte((sample(p, 2, x, y) - p->y_low) * p->y_scale);
        out[1] = to_byte(luma);
        out[2] = to_byte((sample(p, 1, x, y) - p->y_low) * p->y_scale);
        return;
    }
    const float u = (chroma(p, 1, x, y) - p->c_mid) * p->c_scale;
    const float v = (chroma(p, 2, x, y) - p->c_mid) * p->c_scale;
    const float kr = p->kr, kb = p->kb, kg = 1 - kr - kb;
    out[0] = to_byte(luma + 2 * (1 - kr) * v);
    out[1] = to_byte(luma - 2 * (kr * (1 - kr) * v + kb * (1 - kb) * u) / kg);
    out[2] = to_byte(luma + 2 * (1 - kb) * u);
}

fv_status fv_yuv_to_rgb(const AVFrame *f, const fv_yuv_form *form, int64_t x, int64_t y,
                        fv_pixels *out) {
    planes p;
    const bool full = form->stated ? form->full : f->color_range == AVCOL_RANGE_JPEG;
    FV_TRY(open_planes(f, full, &p));
    FV_TRY(set_matrix(form->stated ? form->matrix : (int)f->colorspace, &p));
    p.nearest = form->nearest;
    if (p.rgb && (p.n < 3 || p.shift_x || p.shift_y))
        return FV_FAIL(FV_EUNSUPPORTED, "the image has RGB of less than full resolution");
    for (int32_t j = 0; j < f->height && y + j < out->h; j++)
        for (int32_t i = 0; i < f->width && x + i < out->w; i++) {
            uint8_t *to = out->rgba + 4 * ((size_t)(y + j) * (size_t)out->w + (size_t)(x + i));
            read_pixel(&p, i, j, to);
            to[3] = 255;
        }
    return FV_OK;
}

fv_status fv_yuv_to_alpha(const AVFrame *f, int64_t x, int64_t y, fv_pixels *out) {
    planes p;
    FV_TRY(open_planes(f, f->color_range == AVCOL_RANGE_JPEG, &p));
    for (int32_t j = 0; j < f->height && y + j < out->h; j++)
        for (int32_t i = 0; i < f->width && x + i < out->w; i++)
            out->rgba[4 * ((size_t)(y + j) * (size_t)out->w + (size_t)(x + i)) + 3] =
                to_byte((sample(&p, 0, i, j) - p.y_low) * p.y_scale);
    return FV_OK;
}
