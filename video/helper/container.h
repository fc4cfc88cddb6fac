#ifndef FOVEA_VIDEO_HELPER_CONTAINER_H
#define FOVEA_VIDEO_HELPER_CONTAINER_H

/* CONTAINER: an MP4 (MOV), Matroska (WebM) or GIF file on standard input, its first video stream, and
 * the times of its frames. The first bytes decide the format; no other demuxer is tried. */
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

#include "video/video.h"

typedef struct fv_packet_info {
    int64_t pts;    /* AV_NOPTS_VALUE: none */
    int64_t number; /* in the file, from 0: the order of decoding */
    bool key, shown;
} fv_packet_info;

typedef struct fv_container {
    AVFormatContext *format;
    AVIOContext *io;
    AVStream *stream;
    const AVCodec *codec;
    int64_t bytes;          /* of the file */
    fv_packet_info *packet; /* [n_packet] of the stream, in the file's order */
    int64_t n_packet;
    const fv_packet_info **shown; /* [n_shown] in the order of display */
    int64_t n_shown;
    bool timed;           /* each frame has a time of its own */
    double *seconds;      /* [n_shown] since the first, never decreasing */
    double fps, duration; /* frames per second, above 0; seconds */
} fv_container;           /* the process ends with it: nothing is freed */

/* Reads the header and all packets, and decodes nothing. FV_EUNSUPPORTED: another format or codec;
 * FV_EDATA: damaged or cut short; FV_EINVAL: over a limit. */
fv_status fv_container_open(const fv_video_limits *limits, fv_container *out);

/* Seeks back to the first packet. */
fv_status fv_container_rewind(fv_container *c);

/* Reads the next packet of the stream; *there is false at the end. */
fv_status fv_container_next(fv_container *c, AVPacket *packet, bool *there);

/* Fails with libav's message for error e, after "what: ". */
fv_status fv_av_failed(int e, const char *what);

#endif
