/* Turns frames into texts and PNG files. */
#include "video/as_images.h"

#include <stdio.h>

#include "video/png.h"

enum { FRAMES = 8 };

fv_status fv_video_as_images(int32_t frames, double rate, fv_video_options *out) {
    if (frames > 0 && rate > 0)
        return FV_FAIL(FV_EINVAL, "give either a number of frames or frames per second, not both");
    fv_video_options o = {.sampling = {.placement = FV_VIDEO_MIDDLE,
                                       .multiple = 1,
                                       .frames = rate > 0     ? 0
                                                 : frames > 0 ? frames
                                                              : FRAMES,
                                       .rate = rate,
                                       .frames_min = 1,
                                       .frames_max = FV_VIDEO_AS_IMAGES_MAX},
                          .limits = fv_video_limits_default()};
    o.limits.frames_max = FV_VIDEO_AS_IMAGES_MAX;
    o.limits.taken_max = 1 << 23;
    FV_TRY(fv_video_sampling_check(&o.sampling));
    *out = o;
    return FV_OK;
}

void fv_video_as_video(bool ends, int32_t multiple, fv_video_options *opt) {
    opt->sampling.placement = ends ? FV_VIDEO_ENDS : FV_VIDEO_START;
    opt->sampling.multiple = multiple;
}

void fv_video_time_text(double seconds, char out[FV_VIDEO_TIME_MAX]) {
    snprintf(out, FV_VIDEO_TIME_MAX, "<%.1f seconds>", seconds);
}

fv_status fv_video_frame_png(const fv_video *v, int32_t i, uint8_t **png, size_t *n) {
    return fv_png_write(v->rgb + (size_t)i * 3 * (size_t)v->w * (size_t)v->h, v->w, v->h, png, n);
}
