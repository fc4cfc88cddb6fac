/* A still image is a video of one frame for the helper, with limits of its own. */
#include "video/still.h"

#include <unistd.h>

#include "video/process.h"

enum { STILL_CPU_S = 20, STILL_WALL_S = 60 };

static fv_video_limits limits_of_still(const fv_image_limits *lim) {
    fv_video_limits l = fv_video_limits_default();
    const fv_image_limits most = fv_image_limits_default();
    l.bytes_max = (int64_t)(lim->bytes_max ? lim->bytes_max : most.bytes_max);
    l.side_max = lim->side_max ? lim->side_max : most.side_max;
    l.pixels_max = l.taken_max = lim->pixels_max ? lim->pixels_max : most.pixels_max;
    l.frames_max = 1;
    l.source_max = 1;
    l.cpu_s = STILL_CPU_S;
    l.wall_s = STILL_WALL_S;
    return l;
}

fv_status fv_still_decode(const void *bytes, size_t n, fv_image_kind kind,
                          const fv_image_limits *lim, const char *helper, fv_still *out) {
    const fv_video_request request = {
        .limits = limits_of_still(lim), .is_still = true, .still = kind};
    fv_video v;
    int fd;
    FV_TRY(fv_video_memfd(bytes, n, &fd));
    fv_status st = fv_helper_run(fd, helper, &request, &v);
    close(fd);
    FV_TRY(st);
    *out = (fv_still){.rgb = v.rgb, .w = v.w, .h = v.h};
    v.rgb = NULL;
    fv_video_free(&v);
    return FV_OK;
}
