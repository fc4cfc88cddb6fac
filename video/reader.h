#ifndef FOVEA_VIDEO_READER_H
#define FOVEA_VIDEO_READER_H

/* READER: turns the helper's records (video/protocol.h) into a video. The helper has read an untrusted
 * file and may be under an attacker's control: records over the limits are refused before memory is
 * allocated for them. Bytes are read directly into their destination:
 *
 *   while (!fv_video_reader_done(r)) {
 *       void *at = fv_video_reader_room(r, &n);
 *       k = read(fd, at, n);
 *       FV_TRY(fv_video_reader_took(r, k));
 *   } */
#include "video/protocol.h"

typedef struct fv_video_reader {
    /* private */
    fv_video_limits limits;
    fv_video video;
    int32_t n_frame; /* complete frames */
    enum { FV_READS_RECORD, FV_READS_HEAD, FV_READS_FRAME, FV_READS_PIXELS, FV_READS_ERROR } state;
    fv_video_record record;
    union {
        fv_video_head head;
        fv_video_frame frame;
        char sentence[FV_VIDEO_SENTENCE_MAX];
    } u;
    uint8_t *at;
    size_t left; /* 0: done */
} fv_video_reader;

void fv_video_reader_init(fv_video_reader *r, const fv_video_limits *limits);
void fv_video_reader_fini(fv_video_reader *r);

/* The destination of the next bytes; *n: how many are wanted, 1 or more until the video is complete. */
void *fv_video_reader_room(const fv_video_reader *r, size_t *n);

/* Tells the reader that n bytes were read. FV_EDATA: they are malformed, or over a limit. An ERROR record
 * returns its own status and message. After a failure only fini may be called. */
fv_status fv_video_reader_took(fv_video_reader *r, size_t n);

bool fv_video_reader_done(const fv_video_reader *r);

/* Gives the complete video. */
fv_video fv_video_reader_take(fv_video_reader *r);

#endif
