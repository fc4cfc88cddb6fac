#ifndef FOVEA_VIDEO_VIDEO_H
#define FOVEA_VIDEO_VIDEO_H

/* VIDEO: some frames of an MP4, WebM or GIF file, as pixels with their times. docs/VIDEO.md
 *
 *   this process                          fovea-video, a process for each video
 *   file by descriptor, options   ---->   limits, seccomp; then libav reads the file
 *   checked against the limits    <----   frames, or a sentence why there are none
 *
 * Containers and codecs are the most attacked parsers there are, so they run where there is nothing
 * to take: no file, network, other process, and bounded memory and time. Nothing that comes
 * back is trusted (video/reader.h). The helper is a program of its own, because a process with
 * threads cannot fork and go on, and because this one need not load libav then. Any thread. */
#include <stddef.h>

#include "video/sampling.h"

typedef struct fv_video_limits {
    int64_t bytes_max;     /* of the file */
    int32_t side_max;      /* width, height of the video's frames */
    int64_t pixels_max;    /* width x height of them */
    int64_t source_max;    /* frames of the file */
    double seconds_max;    /* its duration */
    int32_t frames_max;    /* frames that are taken: more is an error */
    int64_t taken_max;     /* pixels of those together: they are scaled down to it, in proportion */
    int64_t memory_max;    /* bytes of the helper's address space */
    int32_t cpu_s, wall_s; /* of the helper */
} fv_video_limits;

/* 512 MiB; 8192, 2^24 pixels, 2^18 frames, 7200 s; 768 frames, 2^26 pixels; 1 GiB, 60 s, 120 s. */
fv_video_limits fv_video_limits_default(void);

typedef struct fv_video_options {
    fv_video_sampling sampling;
    fv_video_limits limits;
    const char *helper; /* path of fovea-video; NULL: beside this program */
} fv_video_options;

typedef struct fv_video {
    int32_t n, w, h;
    uint8_t *rgb;     /* [n, h, w, 3] owned */
    int64_t *index;   /* [n] of the source's frames, as shown; increases; owned */
    double *seconds;  /* [n] since the source's first frame; never decreases; owned */
    int64_t n_source; /* frames */
    double fps;       /* of the source; above 0 */
    double duration;  /* of the source, seconds */
} fv_video;           /* {0} is empty and may be freed */

/* Decodes what `fd` reads, which must be a file that can be read at any place; its offset
 * changes. Blocks until the helper has ended. FV_EINVAL: a limit or an option; FV_EUNSUPPORTED:
 * another format or codec; FV_EDATA: damaged, or it crashed the helper; FV_ENOTFOUND: no helper.
 * Gives *out. */
fv_status fv_video_decode(int fd, const fv_video_options *opt, fv_video *out);

/* The same of a file by its path, and of bytes. */
fv_status fv_video_decode_file(const char *path, const fv_video_options *opt, fv_video *out);
fv_status fv_video_decode_bytes(const void *bytes, size_t n, const fv_video_options *opt,
                                fv_video *out);

/* A file in memory with these bytes, for fv_video_decode. Gives *fd (close it). */
fv_status fv_video_hold(const void *bytes, size_t n, int *fd);

void fv_video_free(fv_video *v);

#endif
