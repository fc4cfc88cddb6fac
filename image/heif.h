#ifndef FOVEA_IMAGE_HEIF_H
#define FOVEA_IMAGE_HEIF_H

/* HEIF: the items of an AVIF or HEIC file (ISO 23008-12), by the boxes of its `meta` box. The primary item is the image:
 * coded pixels, or a grid of items with coded pixels. Nothing is copied or allocated; results point into the file, which is
 * untrusted. Every function reads the `meta` box once, which has at most 1 MiB. Pure functions; any thread. */
#include "common/status.h"
#include "image/tiff.h"

#define FV_HEIF_TYPE(a, b, c, d)                                                                   \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

enum { FV_HEIF_EXTENTS_MAX = 16, FV_HEIF_TILES_MAX = 4096 };

typedef struct fv_heif {
    fv_byte_part file, info, place, refs, props, idat; /* contents of boxes; props: of iprp */
    uint32_t primary;                                  /* item */
} fv_heif;

/* Finds the boxes. FV_EUNSUPPORTED: the file has the boxes of a video and no image; FV_EDATA: it is damaged. */
fv_status fv_heif_open(const uint8_t *p, size_t n, fv_heif *out);

/* Returns FV_HEIF_TYPE('h', 'v', 'c', '1'), 'av01', 'grid' and so on; 0: there is no such item. */
uint32_t fv_heif_item_type(const fv_heif *h, uint32_t item);

/* Finds the item's first property of a type: FV_HEIF_TYPE('i', 's', 'p', 'e'). */
bool fv_heif_property(const fv_heif *h, uint32_t item, uint32_t type, fv_byte_part *out);

/* Finds the item's bytes, in up to FV_HEIF_EXTENTS_MAX parts; *n is how many. FV_EDATA: there are none in the file. */
fv_status fv_heif_data(const fv_heif *h, uint32_t item, fv_byte_part out[FV_HEIF_EXTENTS_MAX],
                       int32_t *n);

/* Lists the items that `item` refers to by references of type `wanted`, at most `most`; returns how many there are. */
int32_t fv_heif_refers(const fv_heif *h, uint32_t wanted, uint32_t item, uint32_t *out,
                       int32_t most);

/* Returns the item that has the alpha of `item`; 0: there is none. */
uint32_t fv_heif_alpha(const fv_heif *h, uint32_t item);

/* Reads the item's width and height (ispe); false: it has none. */
bool fv_heif_size(const fv_heif *h, uint32_t item, uint32_t *width, uint32_t *height);

/* The part of an item's pixels that is the image, before it is turned. */
typedef struct fv_heif_part {
    int32_t x, y, w, h;
} fv_heif_part;

/* Reads the item's clean aperture (clap), as libheif applies it to HEIC, for pixels of these sides: a part of them, or all
 * where it is absent or wrong. */
fv_heif_part fv_heif_crop(const fv_heif *h, uint32_t item, int32_t width, int32_t height);

/* Returns the orientation of EXIF that stands for the item's rotation (irot), followed by its mirroring (imir). */
int32_t fv_heif_orientation(const fv_heif *h, uint32_t item);

#endif
