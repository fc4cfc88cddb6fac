/* Tiles of a layout as transformers' image processors make them (PIL backend), bit for bit: RGB in,
 * float CHW out.
 *
 *   [pad to a square] -> resize, once or more -> canvas -> tiles -> rescale -> normalise
 *
 * The last two steps depend on nothing but a byte and its channel, so they are done 768 times,
 * not once per pixel. numpy's types decide the bits: rescale multiplies in double and rounds to
 * float; normalise subtracts and divides in float. Black around an image is put there before these
 * steps, as a byte of 0.
 *
 * What the canvas shows is known before the last resize, which therefore computes nothing else. Any
 * thread. */
#include "prefill-worker/image/internal.h"

#include <string.h>

size_t fv_image_pixels_count(const fv_layout *l) {
    size_t n = 0;
    for (int32_t i = 0; i < l->n_view; i++) n += 3 * (size_t)l->view[i].w * (size_t)l->view[i].h;
    return n;
}

static fv_status check_config(const fv_image_config *cfg, const fv_layout *l) {
    for (int c = 0; cfg->do_normalize && c < 3; c++)
        if (!(cfg->std[c] > 0))
            return FV_FAIL(FV_EINVAL, "image_std[%d] is %g; it divides, so it must be above 0", c,
                           (double)cfg->std[c]);
    for (int c = 0; l->view[0].pad_square && c < 3; c++)
        if (!(cfg->mean[c] >= 0 && cfg->mean[c] <= 1))
            return FV_FAIL(FV_EINVAL, "image_mean[%d] is %g; as a padding colour it is 0 to 1", c,
                           (double)cfg->mean[c]);
    return FV_OK;
}

/* LLaVA's expand2square: the image in the middle of a square, on the mean colour. */
static fv_status pad_to_square(const fv_image *in, const float mean[3], fv_image *out) {
    const int32_t side = in->w > in->h ? in->w : in->h;
    const fv_image_limits lim = fv_image_limits_default();
    fv_image square = {0};
    FV_TRY(fv_image_size_fits("the image, padded to a square,", side, side, &lim));
    FV_TRY(fv_image_alloc(side, side, &square));
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

static void value_table(const fv_image_config *cfg, float table[3][256]) {
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++) {
            float f = (float)v;
            if (cfg->do_rescale) f = (float)((double)v * cfg->rescale_factor);
            if (cfg->do_normalize) f = (f - cfg->mean[c]) / cfg->std[c];
            table[c][v] = f;
        }
}

/* The pixels of the image that a view's canvas shows: those of `part` of the resized image. */
static fv_status resize(const fv_image *img, const fv_layout_view *view, int32_t resample,
                        fv_image_rect part, fv_image *out) {
    fv_image from = *img, owned = {0};
    fv_status st = FV_OK;
    for (int32_t i = 0; i + 1 < view->n_resize && st == FV_OK; i++) {
        fv_image next = {0};
        st = fv_image_resize(&from, view->resize[i].w, view->resize[i].h, resample, &next);
        fv_image_free(&owned);
        from = owned = next;
    }
    fv_layout_size size = {from.w, from.h};
    if (view->n_resize) size = view->resize[view->n_resize - 1];
    if (st == FV_OK) st = fv_image_resize_part(&from, size.w, size.h, resample, part, out);
    fv_image_free(&owned);
    return st;
}

/* One axis of a canvas of `canvas` pixels, on which an image of `size` begins at `at`: pixels [*from,
 * *from + *n) of the image are seen, the first of them at *to; none where it lies outside. */
static void seen(int32_t size, int32_t at, int32_t canvas, int32_t *from, int32_t *n, int32_t *to) {
    int64_t end = (int64_t)at + size;
    *from = at < 0 ? -at : 0;
    *to = at > 0 ? at : 0;
    *n = (int32_t)((end < canvas ? end : canvas) - *to);
}

/* One colour of one tile: canvas pixels from (left, top) on. */
static void fill(const fv_image *shown, int32_t at_x, int32_t at_y, int32_t left, int32_t top,
                 int32_t w, int32_t h, const float *table, size_t colour, float *out) {
    for (int32_t y = 0; y < h; y++, out += w) {
        int32_t line = top + y - at_y, begin = at_x - left, end = begin + shown->w;
        if (line < 0 || line >= shown->h) begin = end = 0;
        if (begin < 0) begin = 0;
        if (begin > w) begin = w;
        if (end < begin) end = begin;
        if (end > w) end = w;
        for (int32_t x = 0; x < begin; x++) out[x] = table[0];
        for (int32_t x = begin; x < end; x++)
            out[x] =
                table[shown->rgb[((size_t)line * (size_t)shown->w + (size_t)(left + x - at_x)) * 3 +
                                 colour]];
        for (int32_t x = end; x < w; x++) out[x] = table[0];
    }
}

static fv_status preprocess(const fv_image *img, const fv_layout_view *view, int32_t resample,
                            float table[3][256], float *out) {
    int32_t w = view->w / view->cols, h = view->h / view->rows, at_x, at_y;
    fv_layout_size size = {img->w, img->h};
    fv_image_rect part;
    fv_image shown = {0};
    if (view->n_resize) size = view->resize[view->n_resize - 1];
    seen(size.w, view->x, view->w, &part.x, &part.w, &at_x);
    seen(size.h, view->y, view->h, &part.y, &part.h, &at_y);
    FV_TRY(resize(img, view, resample, part, &shown));
    for (int32_t row = 0; row < view->rows; row++)
        for (int32_t col = 0; col < view->cols; col++)
            for (size_t c = 0; c < 3; c++, out += (size_t)w * (size_t)h)
                fill(&shown, at_x, at_y, col * w, row * h, w, h, table[c], c, out);
    fv_image_free(&shown);
    return FV_OK;
}

fv_status fv_image_preprocess(const fv_image *img, const fv_layout *layout,
                              const fv_image_config *cfg, float *out) {
    float table[3][256];
    fv_status st = FV_OK;
    if (img->w != layout->image_w || img->h != layout->image_h)
        return FV_FAIL(FV_EINVAL, "an image of %d x %d pixels, and its header said %d x %d", img->w,
                       img->h, layout->image_w, layout->image_h);
    FV_TRY(check_config(cfg, layout));
    value_table(cfg, table);
    for (int32_t i = 0; i < layout->n_view && st == FV_OK; i++) {
        const fv_layout_view *view = &layout->view[i];
        fv_image square = {0};
        if (view->pad_square) st = pad_to_square(img, cfg->mean, &square);
        if (st == FV_OK)
            st = preprocess(view->pad_square ? &square : img, view, cfg->resample, table, out);
        fv_image_free(&square);
        out += 3 * (size_t)view->w * (size_t)view->h;
    }
    return st;
}
