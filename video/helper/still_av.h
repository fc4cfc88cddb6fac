#ifndef FOVEA_VIDEO_HELPER_STILL_AV_H
#define FOVEA_VIDEO_HELPER_STILL_AV_H

/* One frame by one of libav's decoders, without a container, on one thread. */
#include <libavcodec/avcodec.h>

#include "common/status.h"

typedef struct fv_still_codec {
    const char *decoder;
    const uint8_t *extra; /* [n_extra] configuration of the codec, or NULL */
    size_t n_extra;
    int64_t pixels_max;
} fv_still_codec;

/* Decodes the first frame of n bytes. FV_EDATA: damaged; FV_EINVAL: needs too much memory. Gives *out (av_frame_free). */
fv_status fv_still_frame(const fv_still_codec *codec, const uint8_t *bytes, size_t n,
                         AVFrame **out);

#endif
