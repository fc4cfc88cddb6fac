#ifndef FOVEA_TESTS_SUPPORT_IMAGE_STEPS_H
#define FOVEA_TESTS_SUPPORT_IMAGE_STEPS_H

/* CLIPImageProcessor's steps, with any crop, as the layout of one view. */
#include "layout/layout.h"

typedef struct image_steps {
    bool do_resize, pad_square;
    int32_t shortest_edge, resize_w, resize_h, crop_w, crop_h;
} image_steps;

/* A tile is a square, so each axis has a layout of its own. */
static inline fv_status image_steps_layout(const image_steps *s, int32_t w, int32_t h,
                                           fv_layout *out) {
    fv_layout down;
    fv_layout_config c = {.family = FV_LAYOUT_LLAVA,
                          .tile = s->crop_w,
                          .patch = s->crop_w,
                          .merge = 1,
                          .pad_square = s->pad_square};
    if (s->do_resize) {
        c.shortest_edge = s->shortest_edge;
        if (!c.shortest_edge) c.resize = (fv_layout_size){s->resize_w, s->resize_h};
    }
    FV_TRY(fv_layout_check(&c));
    FV_TRY(fv_layout_image(&c, w, h, 1, out));
    c.tile = c.patch = s->crop_h;
    FV_TRY(fv_layout_check(&c));
    FV_TRY(fv_layout_image(&c, w, h, 1, &down));
    out->view[0].y = down.view[0].y;
    out->view[0].h = down.view[0].h;
    return FV_OK;
}

#endif
