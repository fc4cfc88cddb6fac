#ifndef FOVEA_VIDEO_PROCESS_H
#define FOVEA_VIDEO_PROCESS_H

/* PROCESS: one fovea-video for one file (video/protocol.h). Its limits are those of the request; what it writes is checked
 * against them (video/reader.h). Any thread. */
#include "video/protocol.h"

/* Starts `helper` (NULL: fovea-video beside this program) with the file behind fd, whose offset changes, and blocks until it
 * has ended. Errors are those of fv_video_decode. Gives *out. */
fv_status fv_helper_run(int fd, const char *helper, const fv_video_request *request, fv_video *out);

#endif
