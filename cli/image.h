#ifndef FOVEA_CLI_IMAGE_H
#define FOVEA_CLI_IMAGE_H

/* An image as a file in memory. */
#include "prefill-worker/image/image.h"

/* Gives *png [*n] (free it). */
fv_status fv_image_png(const fv_image *image, uint8_t **png, size_t *n);

#endif
