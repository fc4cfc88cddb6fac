/* Any bytes as an image of the formats that fovea-video decodes: the decoders run here without their sandbox. What they give has
 * the size that the header said. Limits are low, so that an input costs microseconds. */
#include <libavutil/log.h>
#include <stdlib.h>

#include "video/helper/still.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const fv_video_limits limits = {
        .bytes_max = 1 << 20, .side_max = 256, .pixels_max = 1 << 14, .memory_max = 1 << 26};
    fv_image_size size;
    fv_pixels p = {0};
    av_log_set_level(AV_LOG_QUIET);
    if (fv_image_size_read(data, n, &size) != FV_OK || !fv_image_is_sandboxed(size.kind)) return 0;
    fv_status st = fv_still_read(data, n, size.kind, &limits, &p);
    if (st == FV_OK) {
        volatile uint8_t last = p.rgba[3 * (size_t)p.w * (size_t)p.h - 1];
        (void)last;
    } else if (p.rgba || (st != FV_EDATA && st != FV_EINVAL && st != FV_EUNSUPPORTED)) {
        abort();
    }
    free(p.rgba);
    return 0;
}
