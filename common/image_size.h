#ifndef FOVEA_COMMON_IMAGE_SIZE_H
#define FOVEA_COMMON_IMAGE_SIZE_H

/* IMAGE SIZE: width and height of a JPEG, PNG or WebP file, read from its header. Nothing is
 * decoded or allocated, so a router can compute the cost of an image before it is decoded. The
 * decoders (prefill-worker/image/image.h) refuse an image whose size differs from its header, so
 * the two always agree. Pure functions; any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_image_kind {
    FV_IMAGE_JPEG = 0,
    FV_IMAGE_PNG,
    FV_IMAGE_WEBP,
} fv_image_kind;

const char *fv_image_kind_name(fv_image_kind kind); /* "JPEG"; never NULL */

typedef struct fv_image_size {
    fv_image_kind kind;
    int32_t w, h; /* pixels, 1 or more */
} fv_image_size;

typedef struct fv_image_limits {
    size_t bytes_max;   /* encoded size */
    int32_t side_max;   /* width, height */
    int64_t pixels_max; /* width x height */
} fv_image_limits;      /* 0: no limit of this kind */

/* 32 MiB, 16384, 64 Mpixel. */
fv_image_limits fv_image_limits_default(void);

/* Reads the header of a file of n bytes, never past its end, in time that does not depend on n.
 * FV_EUNSUPPORTED: not one of the formats; FV_EDATA: no header, a truncated one, or a side of 0;
 * FV_EINVAL: a side of 2^31 or more. */
fv_status fv_image_size_read(const void *bytes, size_t n, fv_image_size *out);

/* Reads the size and checks it against the limits (NULL: the default); FV_EINVAL if it exceeds
 * one. */
fv_status fv_image_size_check(const void *bytes, size_t n, const fv_image_limits *lim,
                              fv_image_size *out);

/* Checks a size against the limits. `what` begins the message: "the JPEG". */
fv_status fv_image_size_fits(const char *what, int64_t w, int64_t h, const fv_image_limits *lim);

static inline int64_t fv_image_size_pixels(const fv_image_size *s) { return (int64_t)s->w * s->h; }

#endif
