#ifndef FOVEA_GATEWAY_DECODE_H
#define FOVEA_GATEWAY_DECODE_H

/* DECODE: decodes videos to frames (video/as_images.h) on libuv threads, each video in its own
 * process. FV_DECODINGS_MAX run or wait; more are refused. Loop thread. */
#include "gateway/internal.h"
#include "layout/layout.h"
#include "video/as_images.h"

enum { FV_DECODINGS_MAX = 16 }; /* running or waiting; libuv has four threads */

typedef struct fv_decoding fv_decoding; /* opaque */

/* After FV_OK, fv_decoding_frames returns the frames, whose PNG files `held` owns. After a failure,
 * fv_last_error says why; FV_EINVAL: the video is to blame. */
typedef void (*fv_decoded)(void *user, fv_status st);

/* Decodes v for a model with this layout. `held` owns v's file; the decoding keeps a reference to
 * it. Calls `done` once, later, unless *out is freed before. FV_EBUSY: too many are being
 * decoded. */
fv_status fv_decode_start(fv_gateway *g, const fv_api_video *v, fv_request_memory *held,
                          const fv_layout_config *layout, fv_decoded done, void *user,
                          fv_decoding **out);

fv_api_frames fv_decoding_frames(const fv_decoding *d);

/* May be called in `done`. A running decoding goes on until it ends or reaches its limits; `done`
 * is not called. NULL is fine. */
void fv_decoding_free(fv_decoding *d);

#endif
