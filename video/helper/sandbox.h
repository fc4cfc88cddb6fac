#ifndef FOVEA_VIDEO_HELPER_SANDBOX_H
#define FOVEA_VIDEO_HELPER_SANDBOX_H

/* SANDBOX: the process may read its standard input, write to its standard output, compute, and allocate
 * memory up to a limit. Every other system call ends it. */
#include "video/video.h"

/* Enters the sandbox for good. Call it before reading a byte of the video. FV_EDEVICE: the system refuses
 * it. */
fv_status fv_sandbox_enter(const fv_video_limits *limits);

#endif
