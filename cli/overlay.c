/* Sets of visual tokens -> a contact sheet. Tokens of an image are a square of patches in raster
 * order; tokens before the square, such as CLS, have no place in the image.
 *
 *   | 0-2 576/576 | 3-9 288/576 | ...      a band for each image, of at most WRAP tiles a line
 *   | clear, dim  | clear, dim  |
 *   | heat        | heat        |
 */
#include "cli/overlay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/image.h"
#include "common/file.h"
#include "eval/scenes/font.h"

enum {
    TILE = 240, /* pixels, at least */
    GAP = 8,
    DOT = 2, /* pixels of a dot of the font */
    LABEL = FV_FONT_HEIGHT * DOT + 6,
    WRAP = 8,
    GROUND = 24,        /* of the sheet, in all colours */
    OUTSIDE = 64,       /* where an image was padded */
    SHEET_MAX = 1 << 26 /* pixels */
};

typedef struct sheet {
    const fv_overlay *o;
    int32_t per_image, side, ahead; /* rows, patches a line, rows ahead of the square */
    int32_t tile, patch;            /* pixels */
    int32_t columns, lines;         /* of tiles, in a band */
    bool heat;
    fv_image out;
    fv_image seen; /* [tile, tile] the image as the model has it */
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

/* ---- the image as the model has it ----------------------------------------------------- */

static int32_t within(double v, int32_t most) { return v < 0 ? 0 : v > most ? most : (int32_t)v; }

/* The mean of the pixels that tile pixel (x, y) covers: at least one where any are. */
static void cover(const fv_image *image, const fv_layout_rect *span, int32_t tile, int32_t x,
                  int32_t y, uint8_t *rgb) {
    double x0 = span->x + span->w * x / tile, y0 = span->y + span->h * y / tile;
    double x1 = x0 + span->w / tile, y1 = y0 + span->h / tile;
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

static fv_status look(sheet *s, const fv_image *image) {
    fv_layout l;
    FV_TRY(fv_layout_image(s->o->layout, image->w, image->h, s->o->n_image, &l));
    const fv_layout_rect span = fv_layout_seen(&l, &l.view[0]);
    memset(s->seen.rgb, OUTSIDE, (size_t)s->tile * (size_t)s->tile * 3);
    for (int32_t y = 0; y < s->tile; y++)
        for (int32_t x = 0; x < s->tile; x++)
            cover(image, &span, s->tile, x, y, pixel(&s->seen, x, y));
    return FV_OK;
}

/* ---- tiles ------------------------------------------------------------------------------ */

static double grey(const uint8_t *rgb) { return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]; }

static double unit(double v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

static void paint_kept(const uint8_t *in, double share, uint8_t *out) {
    for (int c = 0; c < 3; c++) out[c] = (uint8_t)(share * in[c] + (1 - share) * 0.2 * grey(in));
}

/* Black, red, yellow, white over a faint image. */
static void paint_heat(const uint8_t *in, double heat, uint8_t *out) {
    for (int c = 0; c < 3; c++)
        out[c] = (uint8_t)(0.25 * grey(in) + 0.75 * 255 * unit(3 * heat - c));
}

/* `row` is the group's array from this image's first patch on, `full` its largest value. */
static void draw_tile(const sheet *s, int32_t left, int32_t top, const uint8_t *row, int32_t full,
                      void (*paint)(const uint8_t *in, double value, uint8_t *out)) {
    for (int32_t y = 0; y < s->tile; y++)
        for (int32_t x = 0; x < s->tile; x++) {
            int32_t at = y / s->patch * s->side + x / s->patch;
            paint(pixel(&s->seen, x, y), unit((double)row[at] / full),
                  pixel(&s->out, left + x, top + y));
        }
}

/* Whether a letter has a dot there: digits, '-', '/'; anything else is a space. */
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

static void draw_group(const sheet *s, int32_t image, int32_t index) {
    const fv_kept_map_group *g = &s->o->kept->group[index];
    int32_t first = image * s->per_image, full = s->o->kept->n_kv < 255 ? s->o->kept->n_kv : 255;
    int32_t cell = LABEL + (s->tile + GAP) * (s->heat ? 2 : 1);
    int32_t left = GAP + index % s->columns * (s->tile + GAP);
    int32_t top = GAP + (image * s->lines + index / s->columns) * cell;
    char text[64];
    snprintf(text, sizeof text, "%d-%d %d/%d", g->layer, g->layer + g->n_layer - 1,
             held(g->heads + first, s->per_image), s->per_image);
    draw_label(s, left, top, text);
    draw_tile(s, left, top + LABEL, g->heads + first + s->ahead, full, paint_kept);
    if (g->score)
        draw_tile(s, left, top + LABEL + s->tile + GAP, g->score + first + s->ahead, 255,
                  paint_heat);
}

/* ---- the sheet -------------------------------------------------------------------------- */

static fv_status measure(sheet *s) {
    const fv_kept_map *kept = s->o->kept;
    if (s->o->n_image < 1 || kept->n_visual < s->o->n_image ||
        kept->n_visual % s->o->n_image != 0 || kept->n_group < 1)
        return FV_FAIL(FV_EUNSUPPORTED, "cannot draw %d visual tokens of %d images", kept->n_visual,
                       s->o->n_image);
    s->per_image = kept->n_visual / s->o->n_image;
    while ((s->side + 1) * (s->side + 1) <= s->per_image) s->side++;
    s->ahead = s->per_image - s->side * s->side;
    if (s->side > TILE || s->ahead > 1)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the %d visual tokens of an image are not a square of patches",
                       s->per_image);
    s->patch = (TILE + s->side - 1) / s->side;
    s->tile = s->patch * s->side;
    s->columns = kept->n_group < WRAP ? kept->n_group : WRAP;
    s->lines = (kept->n_group + WRAP - 1) / WRAP;
    for (int32_t i = 0; i < kept->n_group; i++) s->heat |= kept->group[i].score != NULL;
    return FV_OK;
}

static fv_status draw(sheet *s) {
    int32_t cell = LABEL + (s->tile + GAP) * (s->heat ? 2 : 1);
    int64_t h = GAP + (int64_t)cell * s->lines * s->o->n_image;
    if (h > SHEET_MAX) h = SHEET_MAX;
    FV_TRY(image(s->tile, s->tile, OUTSIDE, &s->seen));
    FV_TRY(image(GAP + s->columns * (s->tile + GAP), (int32_t)h, GROUND, &s->out));
    for (int32_t i = 0; i < s->o->n_image; i++) {
        FV_TRY(look(s, &s->o->image[i]));
        for (int32_t g = 0; g < s->o->kept->n_group; g++) draw_group(s, i, g);
    }
    return FV_OK;
}

fv_status fv_overlay_draw(const fv_overlay *o, fv_image *out) {
    sheet s = {.o = o};
    FV_TRY(measure(&s));
    fv_status st = draw(&s);
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
    fv_status st = fv_image_png(&image, &png, &n);
    fv_image_free(&image);
    FV_TRY(st);
    st = fv_file_write(path, png, n);
    free(png);
    return st;
}
