#ifndef FOVEA_GATEWAY_API_DATA_URL_H
#define FOVEA_GATEWAY_API_DATA_URL_H

/* "data:image/png;base64,...." (RFC 2397, RFC 4648) -> bytes. Any thread. */
#include "common/arena.h"
#include "inference.pb-c.h"

/* *out is in the arena. FV_EINVAL: another scheme, a type that is no image's (or, with `video`, no video's;
 * a GIF is both), not base64. The type is not looked at further: decoders detect it. */
fv_status fv_data_url_read(const char *url, size_t n, bool video, fv_arena *arena,
                           ProtobufCBinaryData *out);

#endif
