#ifndef FOVEA_VIDEO_VIDEO_H
#define FOVEA_VIDEO_VIDEO_H

/* VIDEO: some frames of an MP4, WebM or GIF file, as pixels with their times. docs/VIDEO.md
 *
 *   this process                          fovea-video, a process for each video
 *   file by descriptor, options   ---->   limits, seccomp; then libav reads the file
 *   checked against the limits    <----   frames, or a message why there are none
 *
 * Parsers of containers and codecs are prime targets of attacks, so they run without access to files,
 * network and other processes, and with bounded memory and time. Their output is not trusted either
 * (video/reader.h). The helper is a program of its own, because a process with threads cannot safely go
 * on after a fork, and so that this one does not load libav. Any thread. */
#include <stddef.h>

#include "video/sampling.h"

typedef struct fv_video_limits {
    int64_t bytes_max;  /* of the file */
    int32_t side_max;   /* width, height of the video's frames */
    int64_t pixels_max; /* width x height of a frame */
    int64_t source_max; /* frames of the file */
    double seconds_max; /* duration of the file */
    int32_t frames_max; /* frames that are taken: more is an error */
    int64_t taken_max; /* pixels of all taken frames; larger frames are scaled down in proportion */
    int64_t memory_max;    /* bytes of the helper's address space */
    int32_t cpu_s, wall_s; /* of the helper */
} fv_video_limits;

/* Defaults: 512 MiB; 8192, 2^24 pixels, 2^18 frames, 7200 s; 768 frames, 2^26 pixels; 1 GiB, 60 s, 120 s. */
fv_video_limits fv_video_limits_default(void);

typedef struct fv_video_options {
    fv_video_sampling sampling;
    fv_video_limits limits;
    const char *helper; /* path of fovea-video; NULL: beside this program */
} fv_video_options;

typedef struct fv_video {
    int32_t n, w, h;
    uint8_t *rgb;    /* [n, h, w, 3] owned */
    int64_t *index;  /* [n] indices among the source's frames, in display order; increases; owned */
    double *seconds; /* [n] since the source's first frame; never decreases; owned */
    int64_t n_source; /* frames */
    double fps;       /* of the source; above 0 */
    double duration;  /* of the source, seconds */
} fv_video;           /* {0} is empty and may be freed */

/* Decodes the file behind `fd`, which must be seekable; its offset changes. Blocks until the helper has
 * ended. FV_EINVAL: over a limit, or a wrong option; FV_EUNSUPPORTED: another format or codec, or no helper; FV_EDATA: the
 * file is damaged, or crashed the helper. Gives *out. */
fv_status fv_video_decode(int fd, const fv_video_options *opt, fv_video *out);

/* fv_video_decode for a path, and for bytes. */
fv_status fv_video_decode_file(const char *path, const fv_video_options *opt, fv_video *out);
fv_status fv_video_decode_bytes(const void *bytes, size_t n, const fv_video_options *opt,
                                fv_video *out);

/* Makes a file in memory with these bytes, for fv_video_decode. Gives *fd (close it). */
fv_status fv_video_memfd(const void *bytes, size_t n, int *fd);

void fv_video_free(fv_video *v);

/* FV_EUNSUPPORTED if fovea-video is not beside this program: a daemon says so when it starts. */
fv_status fv_video_check_helper(void);

#endif
