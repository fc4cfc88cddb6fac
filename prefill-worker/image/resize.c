/* Resizes 8-bit RGB like Pillow's Image.resize, bit for bit.
 *
 * Resampling is separable: one pass along rows, one along columns, rounded to 8 bits between.
 * Along one axis, `in` samples become `out`; output i is
 *
 *   scale  = in / out             f = max(scale, 1)         shrinking widens the filter
 *   centre = (i + 1/2) scale      samples  x in [centre - s f, centre + s f), s = filter support
 *   w_x    = filter((x - centre + 1/2) / f) / sum           in double
 *   k_x    = round(2^22 w_x)                                half away from zero
 *   out_i  = clamp((2^21 + sum_x k_x in_x) >> 22, 0, 255)   in int32
 *
 * A pass over an axis that keeps its size is skipped. Rows come first unless the height shrinks
 * by more than twice as much as the width, as in Pillow 13; earlier versions always began with rows,
 * and differ by a few units where the order differs.
 *
 * Only the requested part is computed. A strip of 1 x 500 whose short side becomes 336
 * is 336 x 168000 pixels, of which a crop keeps 336 rows. For any thread. */
#include "prefill-worker/image/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEAREST, LANCZOS, BILINEAR, BICUBIC, N_RESAMPLE };
enum { PRECISION = 22 }; /* of int32: leaves 8 bits of value, a sign, 1 for weights over 1 */

static double bilinear(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys' cubic with a = -1/2. */
static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double sinc(double x) {
    if (x == 0.0) return 1.0;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

static const struct filter {
    double (*at)(double x);
    double support;
} filters[N_RESAMPLE] = {
    [LANCZOS] = {lanczos, 3.0}, [BILINEAR] = {bilinear, 1.0}, [BICUBIC] = {bicubic, 2.0}};

/* The filter weights of one axis: output j = sum of k[j * k_max + t] sample[first[j] + t], t < count[j]. */
struct captures {
    int32_t n;      /* outputs; 0: this axis keeps its size */
    int32_t lo, hi; /* samples [lo, hi) are read; `first` counts from lo */
    int32_t k_max;
    int32_t *first, *count, *k;
};

/* Borrowed pixels. */
struct view {
    const uint8_t *px;
    size_t stride;
    int32_t w, h;
};

static void captures_free(struct captures *t) {
    free(t->first);
    free(t->count);
    free(t->k);
    *t = (struct captures){0};
}

/* Computes the weights for outputs [begin, begin + n) of an axis that goes from `in` to `out` samples. */
static fv_status captures_make(int32_t in, int32_t out, int32_t begin, int32_t n, struct filter f,
                               struct captures *t) {
    *t = (struct captures){.lo = begin, .hi = begin + n};
    if (in == out) return FV_OK;
    const double scale = (double)in / out, stretch = scale < 1.0 ? 1.0 : scale;
    const double support = f.support * stretch, per_stretch = 1.0 / stretch;
    t->n = n;
    t->k_max = (int32_t)ceil(support) * 2 + 1;
    t->first = malloc((size_t)n * sizeof *t->first);
    t->count = malloc((size_t)n * sizeof *t->count);
    t->k = malloc((size_t)n * (size_t)t->k_max * sizeof *t->k);
    double *weight = malloc((size_t)t->k_max * sizeof *weight);
    if (!t->first || !t->count || !t->k || !weight) {
        free(weight);
        captures_free(t);
        return FV_FAIL(FV_ENOMEM, "no memory to resize an axis from %" PRId32 " to %" PRId32, in,
                       out);
    }
    t->lo = in;
    t->hi = 0;
    for (int32_t j = 0; j < n; j++) {
        const double centre = (begin + j + 0.5) * scale;
        int32_t first = (int32_t)(centre - support + 0.5);
        int32_t last = (int32_t)(centre + support + 0.5);
        if (first < 0) first = 0;
        if (last > in) last = in;
        double sum = 0.0;
        for (int32_t x = first; x < last; x++)
            sum += weight[x - first] = f.at((x - centre + 0.5) * per_stretch);
        int32_t *k = t->k + (size_t)j * (size_t)t->k_max;
        for (int32_t x = 0; x < last - first; x++) {
            double w = (sum != 0.0 ? weight[x] / sum : weight[x]) * (1 << PRECISION);
            k[x] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
        }
        t->first[j] = first;
        t->count[j] = last - first;
        if (first < t->lo) t->lo = first;
        if (last > t->hi) t->hi = last;
    }
    free(weight);
    for (int32_t j = 0; j < n; j++) t->first[j] -= t->lo;
    return FV_OK;
}

static uint8_t narrow(int32_t sum) {
    sum >>= PRECISION;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Resizes along rows: in [h, w], out [h, n]. */
static void pass_across(struct view in, const struct captures *t, uint8_t *out) {
    for (int32_t y = 0; y < in.h; y++) {
        const uint8_t *row = in.px + (size_t)y * in.stride;
        for (int32_t j = 0; j < t->n; j++, out += 3) {
            const int32_t *k = t->k + (size_t)j * (size_t)t->k_max;
            const uint8_t *p = row + (size_t)t->first[j] * 3;
            int32_t r = 1 << (PRECISION - 1), g = r, b = r;
            for (int32_t x = 0; x < t->count[j]; x++, p += 3) {
                r += p[0] * k[x];
                g += p[1] * k[x];
                b += p[2] * k[x];
            }
            out[0] = narrow(r), out[1] = narrow(g), out[2] = narrow(b);
        }
    }
}

/* Resizes along columns: in [h, w], out [n, w]. Runs over strips of columns whose sums stay in the L1
 * cache; the innermost loop has no dependence, so the compiler vectorizes it. */
static void pass_down(struct view in, const struct captures *t, uint8_t *out) {
    enum { STRIP = 1024 };
    const size_t row_bytes = (size_t)in.w * 3;
    for (int32_t j = 0; j < t->n; j++, out += row_bytes) {
        const int32_t *k = t->k + (size_t)j * (size_t)t->k_max;
        const uint8_t *rows = in.px + (size_t)t->first[j] * in.stride;
        for (size_t at = 0; at < row_bytes; at += STRIP) {
            const size_t n = row_bytes - at < STRIP ? row_bytes - at : STRIP;
            int32_t sum[STRIP];
            for (size_t i = 0; i < n; i++) sum[i] = 1 << (PRECISION - 1);
            for (int32_t y = 0; y < t->count[j]; y++) {
                const uint8_t *p = rows + (size_t)y * in.stride + at;
                for (size_t i = 0; i < n; i++) sum[i] += p[i] * k[y];
            }
            for (size_t i = 0; i < n; i++) out[at + i] = narrow(sum[i]);
        }
    }
}

static struct view view_of(const fv_image *img) {
    return (struct view){.px = img->rgb, .stride = (size_t)img->w * 3, .w = img->w, .h = img->h};
}

/* Runs the passes in order; their result is *img, and *v becomes a view of it. */
static fv_status run(struct view *v, const struct captures *across, const struct captures *down,
                     bool down_first, fv_image *img) {
    for (int i = 0; i < 2; i++) {
        const bool is_down = (i == 0) == down_first;
        const struct captures *t = is_down ? down : across;
        if (t->n == 0) continue;
        fv_image next = {0};
        FV_TRY(fv_image_alloc(is_down ? v->w : t->n, is_down ? t->n : v->h, false, &next));
        if (is_down)
            pass_down(*v, t, next.rgb);
        else
            pass_across(*v, t, next.rgb);
        fv_image_free(img);
        *img = next;
        *v = view_of(img);
    }
    return FV_OK;
}

static fv_status resample_part(const fv_image *in, int32_t w, int32_t h, struct filter f,
                               fv_image_rect part, fv_image *out) {
    fv_image img = {0};
    struct captures across = {0}, down = {0};
    fv_status st;
    FV_TRY_GOTO(captures_make(in->w, w, part.x, part.w, f, &across), st, end);
    FV_TRY_GOTO(captures_make(in->h, h, part.y, part.h, f, &down), st, end);

    struct view v = view_of(in);
    v.px += (size_t)down.lo * v.stride + (size_t)across.lo * 3;
    v.w = across.hi - across.lo;
    v.h = down.hi - down.lo;
    const int64_t less_h = (int64_t)in->h - h, less_w = (int64_t)in->w - w;
    FV_TRY_GOTO(run(&v, &across, &down, less_h > 0 && less_h > 2 * less_w, &img), st, end);
    if (!img.rgb) { /* both axes keep their size */
        FV_TRY_GOTO(fv_image_alloc(part.w, part.h, false, &img), st, end);
        for (int32_t y = 0; y < part.h; y++)
            memcpy(img.rgb + (size_t)y * (size_t)part.w * 3, v.px + (size_t)y * v.stride,
                   (size_t)part.w * 3);
    }
    *out = img;
    img = (fv_image){0};
end:
    fv_image_free(&img);
    captures_free(&across);
    captures_free(&down);
    return st;
}

/* Finds the sample under the centre of each output; -1: beyond the last sample. Steps by repeated addition
 * from output 0, like Pillow, because its rounding decides ties. */
static void nearest_axis(int32_t in, int32_t out, int32_t begin, int32_t n, int32_t *at) {
    const double step = (double)in / out;
    double x = step * 0.5;
    for (int32_t i = 0; i < begin + n; i++, x += step)
        if (i >= begin) at[i - begin] = x < in ? (int32_t)x : -1;
}

static fv_status nearest_part(const fv_image *in, int32_t w, int32_t h, fv_image_rect part,
                              fv_image *out) {
    fv_image img = {0};
    fv_status st;
    int32_t *col = malloc(((size_t)part.w + (size_t)part.h) * sizeof *col);
    if (!col) return FV_FAIL(FV_ENOMEM, "no memory to resize to %" PRId32 " x %" PRId32, w, h);
    int32_t *row = col + part.w;
    nearest_axis(in->w, w, part.x, part.w, col);
    nearest_axis(in->h, h, part.y, part.h, row);
    FV_TRY_GOTO(fv_image_alloc(part.w, part.h, false, &img), st, end);
    uint8_t *p = img.rgb;
    for (int32_t y = 0; y < part.h; y++)
        for (int32_t x = 0; x < part.w; x++, p += 3) {
            if (row[y] < 0 || col[x] < 0)
                memset(p, 0, 3);
            else
                memcpy(p, in->rgb + ((size_t)row[y] * (size_t)in->w + (size_t)col[x]) * 3, 3);
        }
    *out = img;
end:
    free(col);
    return st;
}

fv_status fv_image_resize_part(const fv_image *in, int32_t w, int32_t h, int32_t resample,
                               fv_image_rect part, fv_image *out) {
    if (resample < 0 || resample >= N_RESAMPLE)
        return FV_FAIL(FV_EINVAL,
                       "resample %" PRId32
                       " is not known: 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic",
                       resample);
    enum { SIDE_MAX = 1 << 24 }; /* Pillow's limit: it passes sides as float */
    if (in->w < 1 || in->h < 1 || in->w > SIDE_MAX || in->h > SIDE_MAX || w < 1 || h < 1)
        return FV_FAIL(FV_EINVAL,
                       "cannot resize %" PRId32 " x %" PRId32 " pixels to %" PRId32 " x %" PRId32,
                       in->w, in->h, w, h);
    if (resample == NEAREST) return nearest_part(in, w, h, part, out);
    return resample_part(in, w, h, filters[resample], part, out);
}

fv_status fv_image_resize(const fv_image *in, int32_t w, int32_t h, int32_t resample,
                          fv_image *out) {
    return fv_image_resize_part(in, w, h, resample, (fv_image_rect){0, 0, w, h}, out);
}
