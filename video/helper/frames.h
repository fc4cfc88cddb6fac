#ifndef FOVEA_VIDEO_HELPER_FRAMES_H
#define FOVEA_VIDEO_HELPER_FRAMES_H

/* FRAMES: decodes the chosen frames and writes them to the caller (video/protocol.h): upright, by the
 * container's matrix, and scaled down if all of them together have too many pixels. */
#include "video/helper/container.h"
#include "video/protocol.h"

/* FV_EDATA: a chosen frame cannot be decoded, or is damaged. FV_EINVAL: the frames differ in size. If the
 * caller closes its end of the socket, this process ends. */
fv_status fv_frames_write(fv_container *c, const fv_video_request *request);

/* Writes a whole record. */
void fv_record_write(fv_video_record_kind kind, fv_status status, const void *head, size_t n_head,
                     const void *rest, size_t n_rest);

#endif
