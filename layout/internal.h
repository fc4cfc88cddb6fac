#ifndef FOVEA_LAYOUT_INTERNAL_H
#define FOVEA_LAYOUT_INTERNAL_H

/* What the families' files share. No other folder includes this. */
#include "layout/layout.h"

/* One family; a row of layout.c's table. Configs are checked before `image` and `tokens_max`. */
typedef struct fv_layout_rules {
    const char *name;
    /* What the family reads beyond tile, patch and merge, which all have; NULL: nothing. */
    fv_status (*check)(const fv_layout_config *c);
    /* Adds views and spans to *l, which has the image's size. */
    fv_status (*image)(const fv_layout_config *c, int32_t n_image, fv_layout *l);
    int64_t (*tokens_max)(const fv_layout_config *c, int32_t n_image);
} fv_layout_rules;

extern const fv_layout_rules fv_layout_llava;

/* Tokens of a side of a tile. */
int32_t fv_layout_side(const fv_layout_config *c);

/* FV_EINVAL where the image then has more tiles or tokens than it may. add_span sets n. */
fv_status fv_layout_add_view(fv_layout *l, const fv_layout_view *view);
fv_status fv_layout_add_span(fv_layout *l, const fv_layout_span *span);

/* A tile's tokens, all of them. */
fv_status fv_layout_add_tile(const fv_layout_config *c, fv_layout *l, int32_t tile);

#endif
