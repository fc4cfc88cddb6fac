/* Any bytes through fv_image_decode; a decoded image runs through a tiny preprocessor. Limits are
 * low, so that an input costs microseconds and not a gigabyte. */
#include <stdint.h>
#include <stdlib.h>

#include "prefill-worker/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const fv_image_limits lim = {
        .bytes_max = 1 << 16, .side_max = 256, .pixels_max = 1 << 14};
    fv_image_size said;
    fv_image img = {0};
    if (fv_image_size_read(data, size, &said) == FV_OK && fv_image_is_sandboxed(said.kind))
        return 0; /* in another process: fuzz_still */
    if (fv_image_decode(data, size, &lim, &img) != FV_OK) {
        if (img.rgb) abort();
        return 0;
    }
    float out[3 * 6 * 6];
    fv_layout_config layout = {.family = FV_LAYOUT_LLAVA,
                               .tile = 6,
                               .patch = 2,
                               .merge = 1,
                               .pad_square = size & 4,
                               .shortest_edge = 7};
    fv_image_config c = {.resample = (int32_t)(size & 3),
                         .do_rescale = true,
                         .do_normalize = true,
                         .rescale_factor = 1.0 / 255,
                         .std = {1, 1, 1}};
    fv_layout l;
    if (fv_layout_image(&layout, img.w, img.h, 1, &l) != FV_OK) abort();
    if (fv_image_preprocess(&img, &l, &c, out) != FV_OK) abort();
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        if (!(out[i] >= 0 && out[i] <= 1)) abort();
    fv_image_free(&img);
    return 0;
}
