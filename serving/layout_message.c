/* Converts layout constants from and to their message. Any thread. */
#include "serving/layout_message.h"

#include <string.h>

typedef Fovea__Inference__V1__ImageLayout layout_message;
typedef Fovea__Inference__V1__Size size_message;

/* Returns -1, which fv_layout_check refuses, for a number that does not fit int32. */
static int32_t narrow(uint32_t n) { return n <= INT32_MAX ? (int32_t)n : -1; }

static fv_layout_size size_of(const size_message *m) {
    return (fv_layout_size){narrow(m->w), narrow(m->h)};
}

fv_status fv_layout_from_message(const layout_message *m, fv_layout_config *out) {
    fv_layout_config c = {0};
    *out = c;
    if (!m) return FV_OK;
    for (int f = 0; f < FV_N_LAYOUT; f++)
        if (strcmp(m->family, fv_layout_family_name(f)) == 0) c.family = (fv_layout_family)f;
    if (c.family == FV_LAYOUT_NONE)
        return FV_FAIL(FV_EINVAL, "images of a model family '%.32s', which is not known here",
                       m->family);
    if (m->n_pinpoints > FV_LAYOUT_PINPOINTS_MAX)
        return FV_FAIL(FV_EINVAL, "%zu pinpoints; at most %d are possible", m->n_pinpoints,
                       FV_LAYOUT_PINPOINTS_MAX);
    c.tile = narrow(m->tile);
    c.patch = narrow(m->patch);
    c.merge = narrow(m->merge);
    c.class_token = m->class_token;
    c.tower_class = m->tower_class_token;
    c.pad_square = m->pad_square;
    c.shortest_edge = narrow(m->shortest_edge);
    if (m->resize) c.resize = size_of(m->resize);
    c.n_pinpoint = (int32_t)m->n_pinpoints;
    for (size_t i = 0; i < m->n_pinpoints; i++) c.pinpoint[i] = size_of(m->pinpoints[i]);
    c.tiles_min = narrow(m->tiles_min);
    c.tiles_max = narrow(m->tiles_max);
    c.longest_edge = narrow(m->longest_edge);
    c.split = m->split;
    c.pixels_min = narrow(m->pixels_min);
    c.pixels_max = narrow(m->pixels_max);
    c.video_pixels_min = narrow(m->video_pixels_min);
    c.video_pixels_max = narrow(m->video_pixels_max);
    c.tokens_per_second = narrow(m->tokens_per_second);
    c.video_class = m->video_class_token;
    FV_TRY(fv_layout_check(&c));
    *out = c;
    return FV_OK;
}

static size_message message_of(fv_layout_size s) {
    size_message m = FOVEA__INFERENCE__V1__SIZE__INIT;
    m.w = (uint32_t)s.w;
    m.h = (uint32_t)s.h;
    return m;
}

fv_status fv_layout_to_message(const fv_layout_config *c, fv_arena *a, layout_message **out) {
    layout_message *m;
    size_message *size;
    const char *family = fv_layout_family_name(c->family);
    *out = NULL;
    if (c->family == FV_LAYOUT_NONE) return FV_OK;
    FV_TRY(FV_ARENA_NEW(a, 1, m));
    FV_TRY(FV_ARENA_NEW(a, c->n_pinpoint + 1, size));
    fovea__inference__v1__image_layout__init(m);
    FV_TRY(FV_ARENA_NEW(a, c->n_pinpoint, m->pinpoints));
    FV_TRY(fv_arena_strndup(a, family, strlen(family), &m->family));
    m->tile = (uint32_t)c->tile;
    m->patch = (uint32_t)c->patch;
    m->merge = (uint32_t)c->merge;
    m->class_token = c->class_token;
    m->tower_class_token = c->tower_class;
    m->pad_square = c->pad_square;
    m->shortest_edge = (uint32_t)c->shortest_edge;
    for (int32_t i = 0; i < c->n_pinpoint; i++) {
        size[i] = message_of(c->pinpoint[i]);
        m->pinpoints[m->n_pinpoints++] = &size[i];
    }
    size[c->n_pinpoint] = message_of(c->resize);
    if (c->resize.w) m->resize = &size[c->n_pinpoint];
    m->tiles_min = (uint32_t)c->tiles_min;
    m->tiles_max = (uint32_t)c->tiles_max;
    m->longest_edge = (uint32_t)c->longest_edge;
    m->split = c->split;
    m->pixels_min = (uint32_t)c->pixels_min;
    m->pixels_max = (uint32_t)c->pixels_max;
    m->video_pixels_min = (uint32_t)c->video_pixels_min;
    m->video_pixels_max = (uint32_t)c->video_pixels_max;
    m->tokens_per_second = (uint32_t)c->tokens_per_second;
    m->video_class_token = c->video_class;
    *out = m;
    return FV_OK;
}
