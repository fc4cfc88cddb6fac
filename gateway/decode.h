#ifndef FOVEA_GATEWAY_DECODE_H
#define FOVEA_GATEWAY_DECODE_H

/* DECODE: videos to frames (video/as_images.h), on threads of libuv, each in a process of its own. Some run
 * at a time and some wait; more are refused. Loop thread. */
#include "gateway/internal.h"
#include "layout/layout.h"
#include "video/as_images.h"

enum { FV_DECODINGS_MAX = 16 }; /* that run or wait; libuv has four threads */

typedef struct fv_decoding fv_decoding; /* opaque */

/* With FV_OK there are n frames, and their files are of the request's memory. A failure has its sentence in fv_last_error;
 * FV_EINVAL: the video is to blame. */
typedef void (*fv_decoded)(void *user, fv_status st);

/* For a model with this layout. The file is of `held`, which the decoding uses to its end. Calls `done` once, later,
 * unless it is freed before. */
fv_status fv_decode_start(fv_gateway *g, const fv_api_video *v, fv_held *held,
                          const fv_layout_config *layout, fv_decoded done, void *user,
                          fv_decoding **out);

fv_api_frames fv_decoding_frames(const fv_decoding *d);

/* In `done`, too. One that runs goes on to its end, which is at its limits, and nobody hears of it. NULL is
 * fine. */
void fv_decoding_free(fv_decoding *d);

#endif
