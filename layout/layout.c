/* What families share: the table, checks, counts. Any thread. */
#include "layout/layout.h"

#include <stdio.h>
#include <string.h>

#include "layout/family.h"

static const fv_layout_rules *const families[FV_N_LAYOUT] = {
    [FV_LAYOUT_LLAVA] = &fv_layout_llava,
};

static const fv_layout_rules *rules_of(fv_layout_family f) {
    return (unsigned)f < FV_N_LAYOUT ? families[f] : NULL;
}

const char *fv_layout_family_name(fv_layout_family f) {
    const fv_layout_rules *r = rules_of(f);
    return r ? r->name : "none";
}

fv_status fv_layout_check(const fv_layout_config *c) {
    const fv_layout_rules *r = rules_of(c->family);
    if (!r) return FV_FAIL(FV_EINVAL, "this model reads text only: it has no layout of images");
    if (c->tile < 1 || c->tile > FV_LAYOUT_SIDE_MAX)
        return FV_FAIL(FV_EINVAL, "the vision tower reads %d x %d pixels; it can be 1 to %d",
                       c->tile, c->tile, FV_LAYOUT_SIDE_MAX);
    if (c->patch < 1 || c->tile % c->patch)
        return FV_FAIL(FV_EINVAL, "patches of %d pixels do not divide the tower's %d", c->patch,
                       c->tile);
    if (c->merge < 1 || c->tile / c->patch % c->merge)
        return FV_FAIL(FV_EINVAL, "tokens of %d x %d patches do not divide the tower's %d",
                       c->merge, c->merge, c->tile / c->patch);
    return r->check(c);
}

fv_status fv_layout_image(const fv_layout_config *c, int32_t w, int32_t h, int32_t n_image,
                          fv_layout *out) {
    const fv_layout_rules *r = rules_of(c->family);
    if (!r) return FV_FAIL(FV_EINVAL, "this model reads text only: send no images");
    if (w < 1 || h < 1) return FV_FAIL(FV_EINVAL, "an image of %d x %d pixels is empty", w, h);
    memset(out, 0, sizeof *out);
    out->image_w = w;
    out->image_h = h;
    FV_TRY(r->lay(c, w, h, n_image, out));
    if (out->n_visual > 0) return FV_OK;
    return FV_FAIL(FV_EINVAL, "an image of %d x %d pixels comes to no visual token: enlarge it", w,
                   h);
}

fv_status fv_layout_add_span(fv_layout *l, fv_layout_span s) {
    int64_t n = (int64_t)s.t * s.h * s.w + s.class_token + s.newline_end;
    if (l->n_span == FV_LAYOUT_SPANS_MAX || l->n_visual + n > FV_LAYOUT_TOKENS_MAX)
        return FV_FAIL(FV_EINVAL,
                       "an image of %d x %d pixels comes to more than %d visual tokens: make it "
                       "smaller",
                       l->image_w, l->image_h, FV_LAYOUT_TOKENS_MAX);
    s.n = (int32_t)n;
    l->n_visual += s.n;
    l->span[l->n_span++] = s;
    return FV_OK;
}

fv_layout_span fv_layout_tile_span(const fv_layout_config *c, int32_t tile) {
    int32_t side = fv_layout_side(c);
    return (fv_layout_span){.t = 1,
                            .h = side,
                            .w = side,
                            .tile = tile,
                            .cols = 1,
                            .rows = 1,
                            .crop_w = side,
                            .crop_h = side,
                            .class_token = c->class_token};
}

fv_layout_place fv_layout_place_of(const fv_layout_config *c, const fv_layout *l, int32_t span) {
    const fv_layout_span *s = &l->span[span];
    int32_t view = 0, tile = s->tile, side = fv_layout_side(c);
    while (tile >= l->view[view].cols * l->view[view].rows) {
        tile -= l->view[view].cols * l->view[view].rows;
        view++;
    }
    const fv_layout_view *v = &l->view[view];
    double across = v->cols * side, down = v->rows * side;
    return (fv_layout_place){view, (tile % v->cols * side + s->crop_x) / across,
                             (tile / v->cols * side + s->crop_y) / down, s->crop_w / across,
                             s->crop_h / down};
}

bool fv_layout_is_one_tile(const fv_layout *l) {
    const fv_layout_span *s = &l->span[0];
    return l->n_tile == 1 && l->n_span == 1 && !s->newline_column && !s->newline_end &&
           s->crop_w == s->w && s->crop_h == s->h;
}

fv_status fv_layout_text(const fv_layout_config *c, const fv_layout *l, const char *mark,
                         char *out) {
    const fv_layout_rules *r = rules_of(c->family);
    size_t n = strlen(mark);
    if (r->text) return r->text(c, l, mark, out);
    if ((size_t)l->n_span * n >= FV_LAYOUT_TEXT_MAX)
        return FV_FAIL(FV_EINVAL, "an image token of %zu bytes is too long", n);
    for (int32_t i = 0; i < l->n_span; i++) memcpy(out + (size_t)i * n, mark, n);
    out[(size_t)l->n_span * n] = '\0';
    return FV_OK;
}

int32_t fv_layout_tokens_max(const fv_layout_config *c, int32_t n_image) {
    const fv_layout_rules *r = rules_of(c->family);
    return r ? r->tokens_max(c, n_image) : 0;
}
