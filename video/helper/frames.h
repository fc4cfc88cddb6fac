#ifndef FOVEA_VIDEO_HELPER_FRAMES_H
#define FOVEA_VIDEO_HELPER_FRAMES_H

/* FRAMES: decodes those that were chosen and writes them to the caller (video/protocol.h): upright, as
 * the container says, and scaled down where all of them together have too many pixels. */
#include "video/helper/container.h"
#include "video/protocol.h"

/* FV_EDATA: a frame that was chosen cannot be decoded, or is damaged. FV_EINVAL: the frames do not
 * have one size. The caller's end of the socket is assumed to stay: a closed one ends this process. */
fv_status fv_frames_write(fv_container *c, const fv_video_request *request);

/* All of a record. */
void fv_record_write(fv_video_record_kind kind, fv_status status, const void *head, size_t n_head,
                     const void *rest, size_t n_rest);

#endif
