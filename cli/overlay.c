/* Draws sets of visual tokens as a contact sheet. Tokens of a span are a grid in raster order;
 * tokens outside the grid, such as CLS and newlines, have no place in the image.
 *
 *   | 0-2 576/576 | 3-9 288/576 | ...      a band per span, at most WRAP tiles a line
 *   | clear, dim  | clear, dim  |
 *   | heat        | heat        |
 */
#include "cli/overlay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "eval/scenes/font.h"
#include "video/png.h"

enum {
    TILE = 240, /* smallest size in pixels */
    GAP = 8,
    DOT = 2, /* pixels per dot of the font */
    LABEL = FV_FONT_HEIGHT * DOT + 6,
    WRAP = 8,
    GROUND = 24,        /* colour of the sheet */
    OUTSIDE = 64,       /* colour of an image's padding */
    SHEET_MAX = 1 << 26 /* pixels */
};

typedef struct sheet {
    const fv_overlay *o;
    const fv_layout_span *span;
    int32_t first;          /* index of the span's first token */
    int32_t patch;          /* pixels of a token's side, */
    int32_t w, h;           /* and of the span's grid */
    int32_t tile;           /* pixels of the widest or highest grid */
    int32_t top;            /* of the span's band */
    int32_t columns, lines; /* tiles per line and lines, in a band */
    bool heat;
    fv_image out;
    fv_image seen; /* [tile, tile] the image as the model sees it */
} sheet;

static fv_status image(int32_t w, int32_t h, uint8_t ground, fv_image *out) {
    if ((int64_t)w * h > SHEET_MAX)
        return FV_FAIL(FV_EINVAL, "the overlay would have %d x %d pixels: use fewer images", w, h);
    size_t n = (size_t)w * (size_t)h * 3;
    *out = (fv_image){.rgb = malloc(n), .w = w, .h = h};
    if (!out->rgb) return FV_FAIL(FV_ENOMEM, "out of memory for the overlay");
    memset(out->rgb, ground, n);
    return FV_OK;
}

static uint8_t *pixel(const fv_image *image, int32_t x, int32_t y) {
    return image->rgb + ((size_t)y * (size_t)image->w + (size_t)x) * 3;
}

/* ---- the image as the model sees it ---------------------------------------------------- */

static int32_t within(double v, int32_t most) { return v < 0 ? 0 : v > most ? most : (int32_t)v; }

/* Mean of the pixels that pixel (x, y) of w x h covers, at least one if any exists. */
static void cover(const fv_image *image, const fv_layout_rect *span, int32_t w, int32_t h,
                  int32_t x, int32_t y, uint8_t *rgb) {
    double x0 = span->x + span->w * x / w, y0 = span->y + span->h * y / h;
    double x1 = x0 + span->w / w, y1 = y0 + span->h / h;
    if (x1 <= 0 || y1 <= 0 || x0 >= image->w || y0 >= image->h) return;
    int32_t left = within(x0, image->w - 1), right = within(x1, image->w);
    int32_t top = within(y0, image->h - 1), bottom = within(y1, image->h);
    if (right <= left) right = left + 1;
    if (bottom <= top) bottom = top + 1;
    uint64_t sum[3] = {0}, n = (uint64_t)(right - left) * (uint64_t)(bottom - top);
    for (int32_t v = top; v < bottom; v++)
        for (int32_t u = left; u < right; u++)
            for (int c = 0; c < 3; c++) sum[c] += pixel(image, u, v)[c];
    for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)(sum[c] / n);
}

/* Renders the part of the image that span `index` shows. */
static void look(sheet *s, const fv_image *image, const fv_layout *l, int32_t index) {
    fv_layout_place at = fv_layout_span_place(s->o->layout, l, index);
    fv_layout_rect all = fv_layout_view_rect(l, &l->view[at.view]);
    fv_layout_rect span = {all.x + all.w * at.x, all.y + all.h * at.y, all.w * at.w, all.h * at.h};
    memset(s->seen.rgb, OUTSIDE, (size_t)s->tile * (size_t)s->tile * 3);
    for (int32_t y = 0; y < s->h; y++)
        for (int32_t x = 0; x < s->w; x++)
            cover(image, &span, s->w, s->h, x, y, pixel(&s->seen, x, y));
}

/* ---- tiles ------------------------------------------------------------------------------ */

static double grey(const uint8_t *rgb) { return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]; }

static double unit(double v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

static void paint_kept(const uint8_t *in, double share, uint8_t *out) {
    for (int c = 0; c < 3; c++) out[c] = (uint8_t)(share * in[c] + (1 - share) * 0.2 * grey(in));
}

/* Heat from black over red and yellow to white, over a faint image. */
static void paint_heat(const uint8_t *in, double heat, uint8_t *out) {
    for (int c = 0; c < 3; c++)
        out[c] = (uint8_t)(0.25 * grey(in) + 0.75 * 255 * unit(3 * heat - c));
}

/* `row`: the group's array from this span's grid on; `full`: its largest possible value. */
static void draw_tile(const sheet *s, int32_t left, int32_t top, const uint8_t *row, int32_t full,
                      void (*paint)(const uint8_t *in, double value, uint8_t *out)) {
    for (int32_t y = 0; y < s->h; y++)
        for (int32_t x = 0; x < s->w; x++) {
            int32_t at = y / s->patch * s->span->w + x / s->patch;
            paint(pixel(&s->seen, x, y), unit((double)row[at] / full),
                  pixel(&s->out, left + x, top + y));
        }
}

/* Returns whether a letter has a dot there: digits, '-' and '/'; all others are spaces. */
static bool ink(char letter, int32_t column, int32_t line) {
    if (letter >= '0' && letter <= '9') return fv_font_dot(letter - '0', column, line);
    if (letter == '-') return line == 3 && column > 0 && column < 4;
    return letter == '/' && column == (FV_FONT_HEIGHT - 1 - line) * 5 / FV_FONT_HEIGHT;
}

static void draw_label(const sheet *s, int32_t left, int32_t top, const char *text) {
    for (int32_t y = 0; y < FV_FONT_HEIGHT * DOT; y++)
        for (int32_t x = 0; x < s->tile; x++) {
            size_t letter = (size_t)(x / DOT / (FV_FONT_WIDTH + 1));
            int32_t column = x / DOT % (FV_FONT_WIDTH + 1);
            if (letter >= strlen(text)) break;
            if (column < FV_FONT_WIDTH && ink(text[letter], column, y / DOT))
                memset(pixel(&s->out, left + x, top + y), 220, 3);
        }
}

static int32_t held(const uint8_t *heads, int32_t n) {
    int32_t rows = 0;
    for (int32_t i = 0; i < n; i++) rows += heads[i] > 0;
    return rows;
}

static int32_t cell_height(const sheet *s) { return LABEL + (s->tile + GAP) * (s->heat ? 2 : 1); }

static void draw_group(const sheet *s, int32_t index) {
    const fv_kept_map_group *g = &s->o->kept->group[index];
    int32_t n = s->span->n, grid = s->first + s->span->class_token;
    int32_t full = s->o->kept->n_kv < 255 ? s->o->kept->n_kv : 255;
    int32_t left = GAP + index % s->columns * (s->tile + GAP);
    int32_t top = s->top + index / s->columns * cell_height(s);
    char text[64];
    snprintf(text, sizeof text, "%d-%d %d/%d", g->layer, g->layer + g->n_layer - 1,
             held(g->heads + s->first, n), n);
    draw_label(s, left, top, text);
    draw_tile(s, left, top + LABEL, g->heads + grid, full, paint_kept);
    if (g->score) draw_tile(s, left, top + LABEL + s->tile + GAP, g->score + grid, 255, paint_heat);
}

/* ---- the sheet -------------------------------------------------------------------------- */

/* Sizes of the next span's grid on the sheet. */
static void measure_span(sheet *s, const fv_layout_span *span) {
    int32_t cols = span->w - span->newline_column, most = cols > span->h ? cols : span->h;
    s->span = span;
    s->patch = (TILE + most - 1) / most;
    s->w = s->patch * cols;
    s->h = s->patch * span->h;
}

static fv_status lay(const fv_overlay *o, int32_t image, fv_layout *out) {
    return fv_layout_image(o->layout, o->image[image].w, o->image[image].h, o->n_image, out);
}

/* Counts tokens and spans of all images. */
static fv_status measure(sheet *s, fv_layout *l, int32_t *n_span) {
    const fv_kept_map *kept = s->o->kept;
    int32_t n = 0;
    *n_span = 0;
    for (int32_t i = 0; i < s->o->n_image; i++) {
        FV_TRY(lay(s->o, i, l));
        for (int32_t k = 0; k < l->n_span; k++) {
            measure_span(s, &l->span[k]);
            if (s->w > s->tile) s->tile = s->w;
            if (s->h > s->tile) s->tile = s->h;
        }
        *n_span += l->n_span;
        n += l->n_visual;
    }
    if (n == 0 || kept->n_visual != n || kept->n_group < 1)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "cannot draw %d visual tokens of %d images, which should have %d",
                       kept->n_visual, s->o->n_image, n);
    s->columns = kept->n_group < WRAP ? kept->n_group : WRAP;
    s->lines = (kept->n_group + WRAP - 1) / WRAP;
    for (int32_t i = 0; i < kept->n_group; i++) s->heat |= kept->group[i].score != NULL;
    return FV_OK;
}

static fv_status draw(sheet *s, fv_layout *l, int32_t n_span) {
    int32_t band = cell_height(s) * s->lines;
    int64_t h = GAP + (int64_t)band * n_span;
    if (h > SHEET_MAX) h = SHEET_MAX;
    FV_TRY(image(s->tile, s->tile, OUTSIDE, &s->seen));
    FV_TRY(image(GAP + s->columns * (s->tile + GAP), (int32_t)h, GROUND, &s->out));
    s->top = GAP;
    for (int32_t i = 0; i < s->o->n_image; i++) {
        FV_TRY(lay(s->o, i, l));
        for (int32_t k = 0; k < l->n_span; k++) {
            measure_span(s, &l->span[k]);
            look(s, &s->o->image[i], l, k);
            for (int32_t g = 0; g < s->o->kept->n_group; g++) draw_group(s, g);
            s->first += s->span->n;
            s->top += band;
        }
    }
    return FV_OK;
}

fv_status fv_overlay_draw(const fv_overlay *o, fv_image *out) {
    sheet s = {.o = o};
    fv_layout layout;
    int32_t n_span;
    FV_TRY(measure(&s, &layout, &n_span));
    fv_status st = draw(&s, &layout, n_span);
    fv_image_free(&s.seen);
    if (st == FV_OK)
        *out = s.out;
    else
        fv_image_free(&s.out);
    return st;
}

fv_status fv_overlay_write(const fv_overlay *o, const char *path) {
    fv_image image = {0};
    uint8_t *png;
    size_t n;
    FV_TRY(fv_overlay_draw(o, &image));
    fv_status st = fv_png_write(image.rgb, image.w, image.h, &png, &n);
    fv_image_free(&image);
    FV_TRY(st);
    st = fv_file_write(path, png, n);
    free(png);
    return st;
}
