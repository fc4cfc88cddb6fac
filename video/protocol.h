#ifndef FOVEA_VIDEO_PROTOCOL_H
#define FOVEA_VIDEO_PROTOCOL_H

/* The messages between the helper and its caller, over a socket that is the helper's standard output; both
 * are of one build, on one machine.
 *
 *   to the helper    fv_video_request
 *   from it          records: fv_video_record, and as many bytes as it says
 *
 * A still image is a video of one frame, which lasts no time.
 *
 *     HEAD   fv_video_head             first
 *     FRAME  fv_video_frame, pixels    head.n times, the last record of a video
 *     ERROR  a sentence                instead of any record, the last one
 *
 * The file is the helper's standard input. */
#include "image/size.h"
#include "video/video.h"

typedef struct fv_video_request {
    fv_video_limits limits;
    bool is_still;
    fv_image_kind still;        /* of a still image */
    fv_video_sampling sampling; /* of a video */
} fv_video_request;

static inline const char *fv_video_request_noun(const fv_video_request *r) {
    return r->is_still ? "image" : "video";
}

typedef enum fv_video_record_kind {
    FV_VIDEO_HEAD = 0x46564831,
    FV_VIDEO_FRAME,
    FV_VIDEO_ERROR
} fv_video_record_kind;

typedef struct fv_video_record {
    uint32_t kind;
    uint32_t status; /* of ERROR, an fv_status; otherwise 0 */
    uint64_t bytes;  /* bytes that follow */
} fv_video_record;

typedef struct fv_video_head {
    int32_t n, w, h, zero;
    int64_t n_source;
    double fps, duration;
} fv_video_head;

typedef struct fv_video_frame {
    int64_t index;
    double seconds;
} fv_video_frame; /* then [h, w, 3] */

enum { FV_VIDEO_SENTENCE_MAX = 400 };

#endif
