#ifndef FOVEA_VIDEO_READER_H
#define FOVEA_VIDEO_READER_H

/* READER: the helper's records (video/protocol.h) -> a video. The helper has read a stranger's file
 * and may be his by now: whatever it writes is within the limits, or refused before memory is
 * allocated for it. Bytes are read to where they belong:
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
    int32_t n_frame; /* that are complete */
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

/* Where the next bytes go, and how many are wanted: 1 or more until it is done. */
void *fv_video_reader_room(const fv_video_reader *r, size_t *n);

/* That n of them are there. FV_EDATA: they are nothing that the helper writes, or over a limit.
 * The status and the sentence of an ERROR. After a failure nothing but fini. */
fv_status fv_video_reader_took(fv_video_reader *r, size_t n);

bool fv_video_reader_done(const fv_video_reader *r);

/* The video, when it is done; the caller's then. */
fv_video fv_video_reader_take(fv_video_reader *r);

#endif
