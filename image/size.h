#ifndef FOVEA_IMAGE_SIZE_H
#define FOVEA_IMAGE_SIZE_H

/* IMAGE SIZE: kind, width, height and orientation of an image file, read from its header. No pixel is
 * decoded, so a router can compute the cost of an image before it is decoded. The
 * decoders (prefill-worker/image/image.h) refuse an image whose size differs from its header, so
 * the two always agree.
 *
 * Width and height are those of the upright image, which is the one that a model sees: a camera that was
 * held on its side stores 4000 x 3000 pixels and an orientation, and the size is 3000 x 4000. The orientation
 * is the one that Pillow's ImageOps.exif_transpose applies: of EXIF in JPEG (APP1), PNG (eXIf, or a raw profile in a
 * text chunk), WebP (EXIF) and TIFF, else of XMP; in AVIF and HEIC of the properties irot and imir.
 *
 * Pure functions; any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_image_kind {
    FV_IMAGE_JPEG = 0,
    FV_IMAGE_PNG,
    FV_IMAGE_WEBP,
    FV_IMAGE_WEBP_ANIMATION,
    FV_IMAGE_GIF,
    FV_IMAGE_BMP,
    FV_IMAGE_TIFF,
    FV_IMAGE_AVIF,
    FV_IMAGE_HEIC,
    FV_N_IMAGE_KIND
} fv_image_kind;

const char *fv_image_kind_name(fv_image_kind kind); /* "JPEG"; never NULL */

/* Whether images of this kind are decoded in the sandbox of fovea-video (video/still.h). */
static inline bool fv_image_is_sandboxed(fv_image_kind kind) { return kind > FV_IMAGE_WEBP; }

typedef struct fv_image_size {
    fv_image_kind kind;
    int32_t w, h;        /* pixels of the upright image, 1 or more */
    int32_t orientation; /* 1 to 8, as in EXIF; 1: stored upright */
} fv_image_size;

/* Whether an image of this orientation has width and height exchanged in its file. */
static inline bool fv_image_is_on_side(int32_t orientation) { return orientation > 4; }

typedef struct fv_image_limits {
    size_t bytes_max;   /* encoded size */
    int32_t side_max;   /* width, height */
    int64_t pixels_max; /* width x height */
} fv_image_limits;      /* 0: no limit of this kind */

/* 32 MiB, 16384, 64 Mpixel. */
fv_image_limits fv_image_limits_default(void);

/* Reads the header of a file of n bytes, never past its end. The work is bounded: parts of a file are skipped by their
 * lengths, their number is limited, and at most 2 MiB of text are inflated or searched. Metadata that is broken or
 * beyond these bounds is ignored: the image counts as upright. FV_EUNSUPPORTED: not one of the formats; FV_EDATA: no
 * header, a truncated one, or a side of 0; FV_EINVAL: a side of 2^31 or more. */
fv_status fv_image_size_read(const void *bytes, size_t n, fv_image_size *out);

/* Reads the size and checks it against the limits (NULL: the default); FV_EINVAL if it exceeds
 * one. */
fv_status fv_image_size_check(const void *bytes, size_t n, const fv_image_limits *lim,
                              fv_image_size *out);

/* Checks a size against the limits. `what` begins the message: "the JPEG". */
fv_status fv_image_size_fits(const char *what, int64_t w, int64_t h, const fv_image_limits *lim);

static inline int64_t fv_image_size_pixels(const fv_image_size *s) { return (int64_t)s->w * s->h; }

#endif
