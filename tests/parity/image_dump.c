/* The image functions behind a pipe, for image_golden.py: one command line on stdin, followed by
 * its bytes, gives "ok W H BYTES" and the bytes, or "fail CODE sentence".
 *
 *   decode BYTES                          an encoded file -> RGB
 *   resize W H RESAMPLE w h               RGB of w x h -> RGB of W x H
 *   pixels FLAGS EDGE RW RH CW CH RESAMPLE FACTOR MEAN*3 STD*3 w h
 *                                         RGB of w x h -> float CHW; FLAGS is a sum of 1 resize,
 *                                         2 crop, 4 rescale, 8 normalise, 16 pad to a square
 * Numbers with a fraction are written as C hexadecimal floats, so that no bit is lost. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/image/image.h"
#include "tests/support/image_steps.h"

static void *read_bytes(size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p || fread(p, 1, n, stdin) != n) exit(2);
    return p;
}

static void answer(fv_status st, int32_t w, int32_t h, const void *bytes, size_t n) {
    if (st != FV_OK) {
        printf("fail %s %s\n", fv_status_name(st), fv_last_error());
    } else {
        printf("ok %" PRId32 " %" PRId32 " %zu\n", w, h, n);
        fwrite(bytes, 1, n, stdout);
    }
    fflush(stdout);
}

static void answer_image(fv_status st, fv_image *img) {
    answer(st, img->w, img->h, img->rgb, (size_t)img->w * (size_t)img->h * 3);
    fv_image_free(img);
}

static fv_image read_image(int32_t w, int32_t h) {
    return (fv_image){.rgb = read_bytes((size_t)w * (size_t)h * 3), .w = w, .h = h};
}

static void decode(size_t n) {
    void *bytes = read_bytes(n);
    fv_image img = {0};
    fv_status st = fv_image_decode(bytes, n, NULL, &img);
    answer_image(st, &img);
    free(bytes);
}

static void resize(int32_t to_w, int32_t to_h, int32_t resample, int32_t w, int32_t h) {
    fv_image in = read_image(w, h), img = {0};
    fv_status st = fv_image_resize(&in, to_w, to_h, resample, &img);
    answer_image(st, &img);
    fv_image_free(&in);
}

static int pixels(const char *line) {
    fv_image_config c = {0};
    image_steps steps = {0};
    fv_layout layout;
    int32_t w, h;
    int flags;
    if (sscanf(line,
               "pixels %d %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32
               " %la %a %a %a %a %a %a %" SCNd32 " %" SCNd32,
               &flags, &steps.shortest_edge, &steps.resize_w, &steps.resize_h, &steps.crop_w,
               &steps.crop_h, &c.resample, &c.rescale_factor, &c.mean[0], &c.mean[1], &c.mean[2],
               &c.std[0], &c.std[1], &c.std[2], &w, &h) != 16)
        return 0;
    c.do_convert_rgb = true;
    steps.do_resize = flags & 1;
    c.do_rescale = flags & 4;
    c.do_normalize = flags & 8;
    steps.pad_square = flags & 16;
    fv_image in = read_image(w, h);
    if (image_steps_layout(&steps, w, h, &layout) != FV_OK) return 0;
    const size_t bytes = fv_image_pixels_count(&layout) * sizeof(float);
    float *out = malloc(bytes);
    if (!out) return 0;
    fv_status st = fv_image_preprocess(&in, &layout, &c, out);
    answer(st, steps.crop_w, steps.crop_h, out, bytes);
    free(out);
    fv_image_free(&in);
    return 1;
}

int main(void) {
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        size_t n;
        int32_t a[5];
        if (sscanf(line, "decode %zu", &n) == 1) {
            decode(n);
        } else if (sscanf(line, "resize %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32,
                          &a[0], &a[1], &a[2], &a[3], &a[4]) == 5) {
            resize(a[0], a[1], a[2], a[3], a[4]);
        } else if (!pixels(line)) {
            fprintf(stderr, "image_dump: cannot read: %s", line);
            return 1;
        }
    }
    return 0;
}
