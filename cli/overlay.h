#ifndef FOVEA_CLI_OVERLAY_H
#define FOVEA_CLI_OVERLAY_H

/* OVERLAY: an image of the visual tokens that were kept. Each span of an image has one picture for
 * each set of tokens that neighbouring layers hold, in the order of layers, with their scores as
 * heat below it if tokens were ranked, and "3-9 288/576" above it: layers, tokens kept, tokens of
 * the span. A token held by some of the KV heads is as clear as their share is large. Any
 * thread. */
#include "prefill-worker/image/image.h"
#include "prefill-worker/prefill/kept_map.h"

typedef struct fv_overlay {
    int32_t n_image;
    const fv_image *image; /* [n_image] as in the question */
    const fv_layout_config *layout;
    const fv_kept_map *kept;
} fv_overlay;

/* *out owns its pixels. FV_EUNSUPPORTED: the tokens do not belong to such images. */
fv_status fv_overlay_draw(const fv_overlay *o, fv_image *out);

/* Writes the overlay as a PNG file. */
fv_status fv_overlay_write(const fv_overlay *o, const char *path);

#endif
