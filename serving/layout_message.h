#ifndef FOVEA_SERVING_LAYOUT_MESSAGE_H
#define FOVEA_SERVING_LAYOUT_MESSAGE_H

/* What the layout of images follows from, as inference.proto carries it <-> as layout/ reads it. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "layout/layout.h"

/* NULL is a model that reads text only. FV_EINVAL for a family that is not known here, and for what
 * fv_layout_check refuses. */
fv_status fv_layout_from_message(const Fovea__Inference__V1__ImageLayout *m, fv_layout_config *out);

/* *out is in the arena; NULL for a model that reads text only. */
fv_status fv_layout_to_message(const fv_layout_config *c, fv_arena *arena,
                               Fovea__Inference__V1__ImageLayout **out);

#endif
