/* Sampling: counts in double, as in Python; indices in integers where the equation has only integers. */
#include "video/sampling.h"

#include <math.h>

enum { FRAMES_MAX = 1 << 16 };

fv_status fv_video_sampling_check(const fv_video_sampling *s) {
    if ((int)s->placement < 0 || s->placement >= FV_N_VIDEO_PLACEMENT)
        return FV_FAIL(FV_EINVAL, "the placement of frames is unknown");
    if (s->multiple < 1 || s->multiple > 64)
        return FV_FAIL(FV_EINVAL, "frames in multiples of %d: expected 1..64", s->multiple);
    if (s->frames < 0 || s->frames > FRAMES_MAX)
        return FV_FAIL(FV_EINVAL, "%d frames: expected 1..%d", s->frames, FRAMES_MAX);
    if (s->frames > 0) return FV_OK;
    if (!(s->rate > 0 && s->rate <= 1000))
        return FV_FAIL(FV_EINVAL, "%g frames per second: expected more than 0, at most 1000",
                       s->rate);
    if (s->frames_min < 1 || s->frames_max < s->frames_min || s->frames_max > FRAMES_MAX)
        return FV_FAIL(FV_EINVAL, "%d..%d frames: expected a range within 1..%d", s->frames_min,
                       s->frames_max, FRAMES_MAX);
    return FV_OK;
}

int64_t fv_video_sampling_count(const fv_video_sampling *s, int64_t total, double fps) {
    double most = (double)total, n;
    if (s->frames > 0) {
        n = nearbyint((double)s->frames / s->multiple) * s->multiple;
    } else {
        n = fmax(most / fps * s->rate, s->frames_min);
        n = fmin(n, s->frames_max);
    }
    n = floor(fmin(n, most) / s->multiple) * s->multiple;
    return (int64_t)fmin(fmax(n, s->multiple), most);
}

int64_t fv_video_sampling_index(const fv_video_sampling *s, int64_t total, int64_t n, int64_t i) {
    switch (s->placement) {
    case FV_VIDEO_MIDDLE: return (2 * i + 1) * total / (2 * n);
    case FV_VIDEO_ENDS:
        return n > 1 ? (int64_t)nearbyint((double)i * ((double)(total - 1) / (double)(n - 1))) : 0;
    default: return i * total / n;
    }
}
