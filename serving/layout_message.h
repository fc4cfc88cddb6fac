#ifndef FOVEA_SERVING_LAYOUT_MESSAGE_H
#define FOVEA_SERVING_LAYOUT_MESSAGE_H

/* LAYOUT MESSAGE: the constants of a model's image layout, between inference.proto's form and that of layout/. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "layout/layout.h"

/* Reads a message; NULL: a text-only model. FV_EINVAL for an unknown family, and for constants that
 * fv_layout_check refuses. */
fv_status fv_layout_from_message(const Fovea__Inference__V1__ImageLayout *m, fv_layout_config *out);

/* Makes a message; *out is in the arena, NULL for a text-only model. */
fv_status fv_layout_to_message(const fv_layout_config *c, fv_arena *arena,
                               Fovea__Inference__V1__ImageLayout **out);

#endif
