#ifndef FOVEA_GATEWAY_API_DATA_URL_H
#define FOVEA_GATEWAY_API_DATA_URL_H

/* "data:image/png;base64,...." (RFC 2397, RFC 4648) -> bytes, which are decoded as the URL comes. Any thread. */
#include "gateway/api/base64.h"
#include "inference.pb-c.h"

enum { FV_DATA_URL_HEAD_MAX = 256 }; /* characters up to the comma */

typedef struct fv_data_url {
    /* private */
    bool video, discards, decodes;
    char head[FV_DATA_URL_HEAD_MAX];
    size_t n_head;
    fv_base64_reader base64;
    uint8_t *data; /* [n] owned */
    size_t n, cap;
} fv_data_url;

/* `video`: of a video, else of an image; a GIF is both. `discards`: the URL is checked, and its bytes are not kept.
 * fv_data_url_drop it. */
void fv_data_url_begin(fv_data_url *u, bool video, bool discards);
void fv_data_url_drop(fv_data_url *u); /* {0} is fine */

/* The next n characters. FV_EINVAL: another scheme, a type that is no image's (or video's), not base64. The type is not
 * looked at further: decoders detect it. */
fv_status fv_data_url_feed(fv_data_url *u, const char *text, size_t n);

/* Gives out->data (free it); NULL where they are discarded. */
fv_status fv_data_url_end(fv_data_url *u, ProtobufCBinaryData *out);

#endif
