#ifndef FOVEA_VIDEO_PNG_H
#define FOVEA_VIDEO_PNG_H

/* Writes a picture as a PNG file in memory. Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* rgb [h, w, 3]. Gives *png [*n] (free it). */
fv_status fv_png_write(const uint8_t *rgb, int32_t w, int32_t h, uint8_t **png, size_t *n);

#endif
