#ifndef FOVEA_VIDEO_HELPER_SANDBOX_H
#define FOVEA_VIDEO_HELPER_SANDBOX_H

/* SANDBOX: this process reads its standard input, writes to its standard output, computes, and has
 * memory up to a limit. Every other system call ends it. */
#include "video/video.h"

/* For good. Call it before a byte of the video is read. FV_EDEVICE: the system refuses it. */
fv_status fv_sandbox_enter(const fv_video_limits *limits);

#endif
