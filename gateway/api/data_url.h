#ifndef FOVEA_GATEWAY_API_DATA_URL_H
#define FOVEA_GATEWAY_API_DATA_URL_H

/* "data:image/png;base64,...." (RFC 2397, RFC 4648) -> bytes, decoded as the URL arrives. Any
 * thread. */
#include "gateway/api/base64.h"
#include "inference.pb-c.h"

enum { FV_DATA_URL_HEAD_MAX = 256 }; /* characters up to the comma */

typedef struct fv_data_url {
    /* private */
    bool video, decodes;
    char head[FV_DATA_URL_HEAD_MAX];
    size_t n_head;
    fv_base64_reader base64;
    uint8_t *data; /* [n] owned */
    size_t n, cap;
} fv_data_url;

/* Begins a URL; fv_data_url_drop it. `video`: expect a video, else an image, in errors. */
void fv_data_url_begin(fv_data_url *u, bool video);
void fv_data_url_drop(fv_data_url *u); /* {0} is fine */

/* Reads the next n characters. FV_EINVAL: another scheme, or not base64. The media type is not
 * checked: decoders detect what the bytes are. */
fv_status fv_data_url_feed(fv_data_url *u, const char *text, size_t n);

/* Ends the URL. Gives out->data (free it). */
fv_status fv_data_url_end(fv_data_url *u, ProtobufCBinaryData *out);

#endif
