#ifndef FOVEA_VIDEO_AS_IMAGES_H
#define FOVEA_VIDEO_AS_IMAGES_H

/* A VIDEO AS IMAGES, for models that read only images: a text with the time and an image for each frame. The
 * text is the one that Qwen3-VL has ahead of its frames, "<1.5 seconds>". */
#include "video/video.h"

enum { FV_VIDEO_TIME_MAX = 32, FV_VIDEO_AS_IMAGES_MAX = 256 };

/* Sets options for frames from the middle of n parts of equal length (FV_VIDEO_MIDDLE), at most
 * FV_VIDEO_AS_IMAGES_MAX and 2^23 pixels. frames 0: by rate; both 0: 8 frames. FV_EINVAL: both are given. */
fv_status fv_video_as_images(int32_t frames, double rate, fv_video_options *out);

/* Changes *opt for a model that reads videos: with `ends` the first and the last frame and others at equal
 * distances, otherwise the first of each of n parts; n is a multiple of `multiple`. */
void fv_video_as_video(bool ends, int32_t multiple, fv_video_options *opt);

void fv_video_time_text(double seconds, char out[FV_VIDEO_TIME_MAX]);

/* Writes frame i of v as a PNG file. Gives *png [*n] (free it). */
fv_status fv_video_frame_png(const fv_video *v, int32_t i, uint8_t **png, size_t *n);

#endif
