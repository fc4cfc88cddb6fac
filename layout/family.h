#ifndef FOVEA_LAYOUT_FAMILY_H
#define FOVEA_LAYOUT_FAMILY_H

/* What a family's file gives. Inside layout/ only. */
#include "layout/layout.h"

typedef struct fv_layout_rules {
    const char *name;
    /* The family's own numbers; tile, patch and merge are checked. */
    fv_status (*check)(const fv_layout_config *c);
    /* Views and spans of an image of w x h pixels, 1 or more each, one of n_image. */
    fv_status (*lay)(const fv_layout_config *c, int32_t w, int32_t h, int32_t n_image,
                     fv_layout *out);
    /* fv_layout_text, into out[FV_LAYOUT_TEXT_MAX]; NULL: a mark for each span, and no text. */
    fv_status (*text)(const fv_layout_config *c, const fv_layout *l, const char *mark, char *out);
    int32_t (*tokens_max)(const fv_layout_config *c, int32_t n_image);
} fv_layout_rules;

extern const fv_layout_rules fv_layout_llava;

/* Tokens along the side of a tile. */
static inline int32_t fv_layout_side(const fv_layout_config *c) {
    return c->tile / c->patch / c->merge;
}

/* Adds a view; the caller has counted that there is space. */
static inline void fv_layout_add_view(fv_layout *l, const fv_layout_view *view) {
    l->view[l->n_view++] = *view;
    l->n_tile += view->cols * view->rows;
}

/* Adds a span with the tokens that its grid comes to. FV_EINVAL when there are too many. */
fv_status fv_layout_add_span(fv_layout *l, fv_layout_span span);

/* The tokens of the single tile number `tile`. */
fv_layout_span fv_layout_tile_span(const fv_layout_config *c, int32_t tile);

#endif
