#ifndef FOVEA_VIDEO_SAMPLING_H
#define FOVEA_VIDEO_SAMPLING_H

/* SAMPLING: chooses the frames of a video that a model sees, like the video processors of transformers.
 * Of `total` frames at `fps`, n are taken:
 *
 *   by count   n = frames,           rounded to a multiple (half to even)
 *   by rate    n = total / fps * rate, within min..max, rounded down to a multiple
 *
 * and never more than `total`. Frame i of them is
 *
 *   START    floor(i * total / n)               Qwen2-VL, Qwen2.5-VL, Video-LLaVA
 *   MIDDLE   floor((i + 1/2) * total / n)       InternVL
 *   ENDS     round(i * (total - 1) / (n - 1))   Qwen3-VL: numpy.linspace, half to even
 *
 * Source: Qwen2VLVideoProcessor, Qwen3VLVideoProcessor and InternVLVideoProcessor.sample_frames,
 * with three deviations. All frames are taken of a video shorter than `frames`, which transformers refuses,
 * or whose frames it repeats. A video with fewer frames than a multiple gives all its frames: the model's
 * processor repeats the last one. START and MIDDLE are computed exactly, where torch.arange rounds to float:
 * the same up to about 16 000 frames, except for lengths where it gives one index too many, past the end
 * (13 of 15). Pure functions; any thread. */
#include <stdint.h>

#include "common/status.h"

typedef enum fv_video_placement {
    FV_VIDEO_START = 0,
    FV_VIDEO_MIDDLE,
    FV_VIDEO_ENDS,
    FV_N_VIDEO_PLACEMENT
} fv_video_placement;

typedef struct fv_video_sampling {
    fv_video_placement placement;
    int32_t multiple; /* unit of the count; temporal_patch_size of Qwen2-VL; 1 or more */
    int32_t frames;   /* 0: by rate */
    double rate;      /* frames per second to take */
    int32_t frames_min, frames_max; /* by rate */
} fv_video_sampling;

/* FV_EINVAL: a number is out of range, or neither frames nor rate is given. */
fv_status fv_video_sampling_check(const fv_video_sampling *s);

/* How many of `total` frames at `fps` frames per second are taken: 1..total, or 0 if total is 0. */
int64_t fv_video_sampling_count(const fv_video_sampling *s, int64_t total, double fps);

/* The index, in the video, of frame i of n: 0..total-1, increasing with i. */
int64_t fv_video_sampling_index(const fv_video_sampling *s, int64_t total, int64_t n, int64_t i);

#endif
