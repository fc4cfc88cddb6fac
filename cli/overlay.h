#ifndef FOVEA_CLI_OVERLAY_H
#define FOVEA_CLI_OVERLAY_H

/* OVERLAY: what was kept of the images, as an image. One tile for each set of rows that
 * neighbouring layers hold, in the order of layers, and below it, where rows were ranked, their
 * scores as heat; above it "3-9 288/576": layers, rows kept, rows of the image. A patch that a
 * part of the KV heads holds is as clear as that part is large. Any thread. */
#include "prefill-worker/image/image.h"
#include "prefill-worker/prefill/kept_map.h"

typedef struct fv_overlay {
    int32_t n_image;
    const fv_image *image;          /* [n_image] as they were asked about */
    const fv_layout_config *layout; /* what the model sees of them */
    const fv_kept_map *kept;
} fv_overlay;

/* *out owns its pixels. FV_EUNSUPPORTED: the rows are no square of patches. */
fv_status fv_overlay_draw(const fv_overlay *o, fv_image *out);

/* The same as a PNG file. */
fv_status fv_overlay_write(const fv_overlay *o, const char *path);

#endif
