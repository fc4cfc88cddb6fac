#ifndef FOVEA_CLI_OVERLAY_H
#define FOVEA_CLI_OVERLAY_H

/* OVERLAY: what was kept of the images, as an image. For each span of an image one picture of each set
 * of tokens that neighbouring layers hold, in the order of layers, and below it, where tokens were
 * ranked, their scores as heat; above it "3-9 288/576": layers, tokens kept, tokens of the span. A
 * token that a part of the KV heads holds is as clear as that part is large. Any thread. */
#include "prefill-worker/image/image.h"
#include "prefill-worker/prefill/kept_map.h"

typedef struct fv_overlay {
    int32_t n_image;
    const fv_image *image; /* [n_image] as they were asked about */
    const fv_layout_config *layout;
    const fv_kept_map *kept;
} fv_overlay;

/* *out owns its pixels. FV_EUNSUPPORTED: the tokens are not those of such images. */
fv_status fv_overlay_draw(const fv_overlay *o, fv_image *out);

/* The same as a PNG file. */
fv_status fv_overlay_write(const fv_overlay *o, const char *path);

#endif
