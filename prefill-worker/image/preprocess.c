/* Computes what the image processors of transformers (PIL backend) do, bit for bit: RGB in, float CHW out.
 *
 *   for each view: [pad to a square] -> resize, once or more -> canvas -> rescale -> normalise -> tiles
 *
 * Rescale and normalise depend only on a byte and its channel, so they are done 768 times,
 * not once per pixel. numpy's types decide the bits: rescale multiplies in double and rounds to
 * float; normalise subtracts and divides in float. The black border of an image that is smaller than
 * the canvas is added before these steps, as bytes of 0.
 *
 * Pixels that a canvas crops are known before the last resize, which does not compute them. For any
 * thread. */
#include "prefill-worker/image/internal.h"

#include <inttypes.h>
#include <string.h>

static size_t view_count(const fv_layout_view *v) {
    return (size_t)3 * (size_t)v->w * (size_t)v->h;
}

size_t fv_image_pixels_count(const fv_layout *l) {
    return (size_t)3 * (size_t)(l->n_tile * l->frames) * (size_t)l->tile.w * (size_t)l->tile.h;
}

static fv_status check_config(const fv_image_config *c, bool pad) {
    for (int i = 0; c->do_normalize && i < 3; i++)
        if (!(c->std[i] > 0))
            return FV_FAIL(FV_EINVAL, "image_std[%d] is %g; it must be above 0", i,
                           (double)c->std[i]);
    for (int i = 0; pad && i < 3; i++)
        if (!(c->mean[i] >= 0 && c->mean[i] <= 1))
            return FV_FAIL(FV_EINVAL, "image_mean[%d] is %g; as a padding colour it is 0 to 1", i,
                           (double)c->mean[i]);
    return FV_OK;
}

/* Does LLaVA's expand2square: puts the image in the middle of a square of the mean colour. */
static fv_status pad_to_square(const fv_image *in, const float mean[3], fv_image *out) {
    const int32_t side = in->w > in->h ? in->w : in->h;
    const fv_image_limits lim = fv_image_limits_default();
    fv_image square = {0};
    FV_TRY(fv_image_size_fits("the image, padded to a square,", side, side, &lim));
    FV_TRY(fv_image_alloc(side, side, false, &square));
    const uint8_t colour[3] = {(uint8_t)(mean[0] * 255.0), (uint8_t)(mean[1] * 255.0),
                               (uint8_t)(mean[2] * 255.0)};
    const size_t n = (size_t)side * (size_t)side;
    for (size_t i = 0; i < n; i++) memcpy(square.rgb + 3 * i, colour, 3);
    const size_t left = (size_t)(side - in->w) / 2, top = (size_t)(side - in->h) / 2;
    for (size_t y = 0; y < (size_t)in->h; y++)
        memcpy(square.rgb + ((top + y) * (size_t)side + left) * 3, in->rgb + y * (size_t)in->w * 3,
               (size_t)in->w * 3);
    *out = square;
    return FV_OK;
}

/* Places an axis of the image on the canvas: samples [*from, *from + *n) are on it, the first at *at. */
static void canvas_axis(int32_t size, int32_t offset, int32_t canvas, int32_t *from, int32_t *n,
                        int32_t *at) {
    *from = offset < 0 ? -offset : 0;
    *at = offset > 0 ? offset : 0;
    *n = size - *from < canvas - *at ? size - *from : canvas - *at;
}

static void value_table(const fv_image_config *c, float table[3][256]) {
    for (int k = 0; k < 3; k++)
        for (int v = 0; v < 256; v++) {
            float f = (float)v;
            if (c->do_rescale) f = (float)((double)v * c->rescale_factor);
            if (c->do_normalize) f = (f - c->mean[k]) / c->std[k];
            table[k][v] = f;
        }
}

/* Writes n samples of one channel of a canvas row, from column `at` on, to their tiles; `out` is the first
 * tile's row. */
static void put_row(const uint8_t *rgb, int32_t n, int32_t at, int32_t tile_w, size_t tile,
                    const float table[256], float *out) {
    out += (size_t)(at / tile_w) * tile;
    for (int32_t x = at % tile_w; n > 0; n--, rgb += 3) {
        out[x++] = table[*rgb];
        if (x < tile_w) continue;
        x = 0;
        out += tile;
    }
}

/* Fills the canvas of `v` with black, puts `seen` at (at_x, at_y), and cuts it into tiles. */
static void put_tiles(const fv_image *seen, int32_t at_x, int32_t at_y, const fv_layout_view *v,
                      float table[3][256], float *out) {
    const int32_t tile_w = v->w / v->cols, tile_h = v->h / v->rows;
    const size_t plane = (size_t)tile_w * (size_t)tile_h, row_tiles = 3 * plane * (size_t)v->cols;
    float *p = out;
    for (int32_t i = 0; i < v->cols * v->rows; i++)
        for (int c = 0; c < 3; c++)
            for (size_t k = 0; k < plane; k++) *p++ = table[c][0];
    for (int32_t y = 0; y < seen->h; y++) {
        const uint8_t *row = seen->rgb + (size_t)y * (size_t)seen->w * 3;
        const size_t to = (size_t)(at_y + y);
        p = out + to / (size_t)tile_h * row_tiles + to % (size_t)tile_h * (size_t)tile_w;
        for (size_t c = 0; c < 3; c++)
            put_row(row + c, seen->w, at_x, tile_w, 3 * plane, table[c], p + c * plane);
    }
}

/* The image as the previous view resized it, if its canvas had all of it; otherwise n is 0. */
struct made {
    fv_image image; /* owned */
    int32_t n;      /* number of resizes done */
    const fv_layout_size *resize;
};

/* Whether `v` can start from that image: Idefics3 resizes the image that it cut into tiles once more, to
 * one tile of the whole image. */
static bool goes_on(const struct made *m, const fv_layout_view *v) {
    return m->n > 0 && m->n < v->n_resize &&
           !memcmp(m->resize, v->resize, (size_t)m->n * sizeof *m->resize);
}

/* Does the resizes of `v`, of which the last computes only the part on the canvas, and writes the tiles.
 * Keeps the result in *made for the next view if that is the whole image. */
static fv_status preprocess(const fv_image *img, const fv_layout_view *v, const fv_image_config *c,
                            struct made *made, float *out) {
    const int32_t begin = goes_on(made, v) ? made->n : 0;
    fv_image kept = made->image, seen = {0};
    fv_layout_size size = {img->w, img->h};
    fv_status st = FV_OK;
    if (begin > 0) img = &kept;
    *made = (struct made){0};
    for (int32_t i = begin; i < v->n_resize; i++) {
        size = v->resize[i];
        if (i + 1 == v->n_resize) break;
        fv_image next;
        FV_TRY_GOTO(fv_image_resize(img, size.w, size.h, c->resample, &next), st, end);
        fv_image_free(&kept);
        kept = next;
        img = &kept;
    }
    int32_t at_x, at_y;
    fv_image_rect part;
    canvas_axis(size.w, v->x, v->w, &part.x, &part.w, &at_x);
    canvas_axis(size.h, v->y, v->h, &part.y, &part.h, &at_y);
    FV_TRY_GOTO(fv_image_resize_part(img, size.w, size.h, c->resample, part, &seen), st, end);
    float table[3][256];
    value_table(c, table);
    put_tiles(&seen, at_x, at_y, v, table, out);
    if (part.w == size.w && part.h == size.h && !v->pad_square) {
        *made = (struct made){seen, v->n_resize, v->resize};
        seen = (fv_image){0};
    }
end:
    fv_image_free(&seen);
    fv_image_free(&kept);
    return st;
}

static fv_status preprocess_view(const fv_image *img, const fv_layout_view *v,
                                 const fv_image_config *c, struct made *made, float *out) {
    fv_image square = {0};
    FV_TRY(check_config(c, v->pad_square));
    if (!v->pad_square) return preprocess(img, v, c, made, out);
    FV_TRY(pad_to_square(img, c->mean, &square));
    fv_status st = preprocess(&square, v, c, made, out);
    fv_image_free(&square);
    return st;
}

fv_status fv_image_preprocess(const fv_image *img, const fv_layout *l, const fv_image_config *c,
                              float *out) {
    struct made made = {0};
    fv_status st = FV_OK;
    if (img->w < 1 || img->h < 1) return FV_FAIL(FV_EINVAL, "the image is empty");
    if (img->w != l->image_w || img->h != l->image_h)
        return FV_FAIL(FV_EINVAL,
                       "the image has %" PRId32 " x %" PRId32
                       " pixels, but its layout is of one with %" PRId32 " x %" PRId32,
                       img->w, img->h, l->image_w, l->image_h);
    for (int32_t i = 0; i < l->n_view && st == FV_OK; out += view_count(&l->view[i++]))
        st = preprocess_view(img, &l->view[i], c, &made, out);
    fv_image_free(&made.image);
    return st;
}
