/* Any bytes through fv_image_size_read, which must not read past them, and then through the
 * decoders: they must find the same size as the header, so that what a router admits is what a
 * worker decodes. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    /* Low, so that an input costs microseconds and not a gigabyte. */
    static const fv_image_limits lim = {
        .bytes_max = 1 << 16, .side_max = 256, .pixels_max = 1 << 14};
    fv_image_size size = {0};
    fv_status st = fv_image_size_read(data, n, &size);
    if (st == FV_OK)
        expect(size.w > 0 && size.h > 0 && size.orientation >= 1 && size.orientation <= 8);
    else
        expect((st == FV_EDATA || st == FV_EINVAL || st == FV_EUNSUPPORTED) && size.w == 0 &&
               *fv_last_error());
    if (st == FV_OK && fv_image_is_sandboxed(size.kind))
        return 0; /* in another process: fuzz_still */
    fv_image img = {0};
    fv_status decoded = fv_image_decode(data, n, &lim, &img);
    if (decoded == FV_OK)
        expect(st == FV_OK && img.w == size.w && img.h == size.h);
    else
        expect(!strstr(fv_last_error(), "its header says"));
    fv_image_free(&img);
    return 0;
}
