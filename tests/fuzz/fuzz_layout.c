/* Any numbers as a layout's configuration and an image's size: little-endian int32, in the order of
 * `fields`, then sizes that images may be fitted to. What fv_layout_check lets through has a layout
 * within all limits, or is refused with a reason. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "layout/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void expect(bool holds) {
    if (!holds) abort();
}

typedef struct fields {
    int32_t family, tile, patch, merge, flags, shortest_edge, resize_w, resize_h, longest_edge,
        tiles_max, n_pinpoint, n_image, w, h;
} fields;

static fv_layout_config config_of(const fields *f, const uint8_t *rest, size_t bytes) {
    fv_layout_config c = {.family = (fv_layout_family)f->family,
                          .tile = f->tile,
                          .patch = f->patch,
                          .merge = f->merge,
                          .class_token = f->flags & 1,
                          .pad_square = f->flags & 2,
                          .shortest_edge = f->shortest_edge,
                          .resize = {f->resize_w, f->resize_h},
                          .n_pinpoint = f->n_pinpoint,
                          .tiles_min = f->shortest_edge,
                          .pixels_min = f->shortest_edge,
                          .pixels_max = f->longest_edge,
                          .tiles_max = f->tiles_max,
                          .longest_edge = f->longest_edge,
                          .video_pixels_min = f->flags & 8 ? f->resize_w : 0,
                          .video_pixels_max = f->flags & 8 ? f->resize_h : 0,
                          .tokens_per_second = f->flags & 8 ? f->tiles_max : 0,
                          .tower_class = f->flags & 32,
                          .video_class = f->flags & 32,
                          .split = f->flags & 4};
    memcpy(c.pinpoint, rest, bytes < sizeof c.pinpoint ? bytes : sizeof c.pinpoint);
    return c;
}

static void check_views(const fv_layout *l) {
    int32_t n_tile = 0;
    expect(l->n_view >= 1 && l->n_view <= FV_LAYOUT_VIEWS_MAX);
    for (int32_t i = 0; i < l->n_view; i++) {
        const fv_layout_view *v = &l->view[i];
        fv_layout_size size = {l->image_w, l->image_h};
        expect(v->cols >= 1 && v->rows >= 1 && v->n_resize >= 0 && v->n_resize <= 3);
        expect(v->w == v->cols * l->tile.w && v->h == v->rows * l->tile.h);
        if (v->pad_square) size.w = size.h = size.w > size.h ? size.w : size.h;
        for (int32_t k = 0; k < v->n_resize; k++) {
            size = v->resize[k];
            expect(size.w >= 1 && size.h >= 1);
        }
        expect(v->x < v->w && v->y < v->h); /* part of the image is on the canvas */
        expect((int64_t)v->x + size.w > 0 && (int64_t)v->y + size.h > 0);
        const fv_layout_rect seen = fv_layout_view_rect(l, v);
        expect(seen.w > 0 && seen.h > 0 && seen.x < l->image_w && seen.y < l->image_h);
        n_tile += v->cols * v->rows;
    }
    expect(n_tile == l->n_tile && n_tile <= FV_LAYOUT_TILES_MAX);
}

static void check_spans(const fv_layout_config *c, const fv_layout *l) {
    const int32_t cols = l->tile.w / c->patch / c->merge, rows = l->tile.h / c->patch / c->merge;
    int32_t n_visual = 0;
    expect(l->n_span >= 1 && l->n_span <= FV_LAYOUT_SPANS_MAX);
    for (int32_t i = 0; i < l->n_span; i++) {
        const fv_layout_span *s = &l->span[i];
        expect(s->t == 1 && s->h >= 1 && s->w >= 1 && s->cols >= 1 && s->rows >= 1);
        expect(s->n == s->h * s->w + s->class_token + s->newline_end);
        expect(s->tile >= 0 && s->tile + s->cols * s->rows <= l->n_tile);
        expect(s->crop_x >= 0 && s->crop_w >= 0 && s->crop_x + s->crop_w <= s->cols * cols);
        expect(s->crop_y >= 0 && s->crop_h >= 1 && s->crop_y + s->crop_h <= s->rows * rows);
        expect(s->h <= s->crop_h && s->w - s->newline_column <= s->crop_w);
        expect(s->newline_column || s->crop_w >= 1);
        n_visual += s->n;
    }
    expect(n_visual == l->n_visual && n_visual <= FV_LAYOUT_TOKENS_MAX);
}

/* The text must have a mark for each span. */
static void check_text(const fv_layout_config *c, const fv_layout *l) {
    static char text[FV_LAYOUT_TEXT_MAX];
    int32_t n = 0;
    expect(fv_layout_text(c, l, "<image>", text) == FV_OK);
    for (const char *p = text; (p = strstr(p, "<image>")); p++) n++;
    expect(n == l->n_span && l->n_text >= 0);
}

/* Checks a video of n_image frames, with a frame rate and times taken from the input. */
static void check_video(const fv_layout_config *c, const fields *f, const uint8_t *rest,
                        size_t bytes, fv_layout *l) {
    double seconds[8];
    fv_layout_clip v = {.n = f->n_image, .fps = f->n_pinpoint / 16.0};
    if (f->flags & 16 && v.n >= 0 && v.n <= 8 && bytes >= (size_t)v.n * sizeof *seconds) {
        memcpy(seconds, rest, (size_t)v.n * sizeof *seconds);
        v.seconds = seconds;
        v.n_seconds = (size_t)v.n;
    }
    const fv_status st = fv_layout_video(c, f->w, f->h, &v, l);
    expect(st == FV_OK || st == FV_EINVAL || (st == FV_EUNSUPPORTED && !fv_layout_reads_video(c)));
    if (st != FV_OK) return;
    int32_t t = 0, n = 0;
    for (int32_t i = 0; i < l->n_span; i++) {
        const fv_layout_span *s = &l->span[i];
        expect(s->n == s->t * s->h * s->w + s->class_token && s->step >= 0 && s->tile == t &&
               s->seconds >= 0);
        t += s->t, n += s->n;
    }
    expect(t == l->n_tile && l->n_tile <= FV_LAYOUT_TILES_MAX);
    expect(l->n_visual == n && n <= FV_LAYOUT_TOKENS_MAX && l->n_tile * l->frames >= f->n_image);
    check_text(c, l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static bool quiet;
    static fv_layout l;
    fields f;
    if (!quiet) quiet = fv_log_configure("error") == FV_OK;
    if (bytes < sizeof f) return 0;
    memcpy(&f, data, sizeof f);
    const fv_layout_config c = config_of(&f, data + sizeof f, bytes - sizeof f);
    const fv_status sane = fv_layout_check(&c);
    expect(sane == FV_OK || sane == FV_EINVAL);
    if (sane != FV_OK) return 0;
    check_video(&c, &f, data + sizeof f, bytes - sizeof f, &l);
    const fv_status st = fv_layout_image(&c, f.w, f.h, f.n_image, &l);
    expect(st == FV_OK || st == FV_EINVAL);
    if (st != FV_OK) return 0;
    check_views(&l);
    check_spans(&c, &l);
    check_text(&c, &l);
    expect(l.n_visual <= fv_layout_tokens_max(&c, f.n_image));
    return 0;
}
